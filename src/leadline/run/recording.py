"""From an answer to a record: scored when it is an answer, classed always, never scored when it is a failure."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from leadline.core import registry
from leadline.core.contracts import LogprobModel, Model, Scorer, TokenNLL
from leadline.core.digest import digest_bytes
from leadline.core.errors import LeadlineError
from leadline.core.logprobs import CellNumbers, LogprobDocument, Passage
from leadline.core.types import (
    Answer,
    Completion,
    Document,
    Failure,
    FailureClass,
    Measurement,
    Outcome,
    PlantedRecord,
    Probe,
    Reading,
    Receipt,
    Record,
    Score,
    Sent,
)
from leadline.run.documents import surprised
from leadline.run.retry import Asked
from leadline.store.manifest import redact

# --- Receipts: did the model read as many tokens as we sent? And the count of them over a run.


def receipt_for(probe: Probe, outcome: Outcome) -> Receipt:
    """Our count beside the model's own. A failure or a measurement has no receipt to show."""
    theirs = outcome.prompt_tokens if isinstance(outcome, Completion) else None
    return Receipt(ours=probe.prompt_tokens, theirs=theirs)


@dataclass(slots=True)
class ReceiptCount:
    """Of the answers of a run: how many receipts agree, disagree, or were never given."""

    ok: int = 0
    wrong: int = 0
    absent: int = 0
    worst: int = 0
    """The largest disagreement: tokens reported less tokens sent."""

    def add(self, receipt: Receipt) -> None:
        if receipt.theirs is None:
            self.absent += 1
        elif receipt.theirs == receipt.ours:
            self.ok += 1
        else:
            self.wrong += 1
            off = receipt.theirs - receipt.ours
            self.worst = off if abs(off) > abs(self.worst) else self.worst


# --- From an answer to a record: scored when it is an answer, classed always, never scored when it is a f

Classify = Callable[[Probe, Completion | Failure, dict[str, Score], Receipt], tuple[FailureClass, str]]


class Recorder:
    """Makes the records of one run. Holds the scorers it has met, so that each is looked up once."""

    def __init__(self, model: str, reading: Reading, classify: Classify) -> None:
        self._model = model
        self._reading = reading
        self._classify = classify
        self._scorers: dict[str, Scorer] = {}

    def record(self, document: Document, asked: Asked) -> Record:
        probe, answer = asked.probe, asked.answer
        outcome = _without_secrets(answer.outcome)
        receipt = receipt_for(probe, outcome)
        scores = self._scores(probe, outcome)
        failure_class, detail = self._classed(probe, outcome, scores, receipt)
        return Record(
            cell=probe.cell,
            reading=self._reading,
            document=document.id,
            cluster=document.cluster,
            model=self._model,
            question=probe.question,
            answer_prefix=probe.answer_prefix,
            targets=probe.targets,
            facts=tuple(PlantedRecord(f.id, f.start, f.end, f.depth_asked, f.depth) for f in document.planted(probe)),
            body_tokens=probe.body_tokens,
            prompt_tokens=probe.prompt_tokens,
            allowance=probe.allowance,
            sent=answer.sent,
            outcome=outcome,
            receipt=receipt,
            scores=scores,
            failure_class=failure_class,
            detail=detail,
            labels=dict(probe.labels),
            attempts=asked.attempts,
            started=asked.started,
            seconds=answer.seconds,
        )

    def _classed(
        self, probe: Probe, outcome: Outcome, scores: dict[str, Score], receipt: Receipt
    ) -> tuple[FailureClass, str]:
        """Numbers are neither right nor wrong."""
        return ("measured", "") if isinstance(outcome, Measurement) else self._classify(probe, outcome, scores, receipt)

    def _scores(self, probe: Probe, outcome: Outcome) -> dict[str, Score]:
        if isinstance(outcome, Failure):
            return {}
        if isinstance(outcome, Measurement):
            # A metric may have no number in one document, as LongPPL where no token needs the far context.
            return {name: Score(outcome.numbers[name]) for name in probe.scorers if name in outcome.numbers}
        return {registry.scorer_title(name): self._score(name, probe, outcome) for name in probe.scorers}

    def _score(self, name: str, probe: Probe, completion: Completion) -> Score:
        scorer = self._scorers.get(name)
        if scorer is None:
            scorer = self._scorers[name] = registry.scorer(name)
        score = scorer.score(probe, completion)
        if not math.isfinite(score.value):
            raise LeadlineError(
                f"scorer {name!r} gave {score.value}", where=probe.cell.key, fix="a score is a number from 0 to 1"
            )
        return score


def _without_secrets(outcome: Outcome) -> Outcome:
    """Servers like to quote the request in their errors, key and all."""
    if isinstance(outcome, Failure):
        return msgspec.structs.replace(outcome, message=redact(outcome.message))
    return outcome


# --- Measuring in place of asking: passages are read, and their surprise becomes the numbers of every cell.


class LogprobAsker:
    """Stands before a model: sounded documents are measured, all others are asked of the model as they are."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        if not isinstance(document, LogprobDocument):
            return self._model.answer(document, probes)
        begin = time.monotonic()
        model = surprised(self._model, probes[0].cell.task)
        reckonings = [document.reckonings[p.cell.key] for p in probes]
        found = _read(model, document.passages, {i for r in reckonings for i in r.passages})
        seconds = (time.monotonic() - begin) / len(probes)  # all were measured together: each is charged its share
        return [
            Answer(_sent(document, reckoning, found), _reckoned(reckoning, found), seconds) for reckoning in reckonings
        ]


Found = dict[int, TokenNLL | Failure]


def _read(model: LogprobModel, passages: Sequence[Passage], wanted: set[int]) -> Found:
    return {i: model.nll(p.ids, p.continuations, p.spans) for i, p in enumerate(passages) if i in wanted}


def _reckoned(reckoning: CellNumbers, found: Found) -> Outcome:
    """The numbers; a failure where a passage could not be read, or came back as something that is no number."""
    surprises = []
    for number in reckoning.passages:
        one = found[number]
        if isinstance(one, Failure):
            return one
        if not all(np.isfinite(nats).all() for nats in (*one.continuations, *one.spans)):
            return Failure("unsupported", "the model's log-probabilities are not finite; try dtype=float32")
        surprises.append(one)
    return reckoning.numbers(surprises)


def _sent(document: LogprobDocument, reckoning: CellNumbers, found: Found) -> Sent:
    ids = b"".join(document.passages[i].ids.astype("<i4").tobytes() for i in reckoning.passages)
    notes = [n for i in reckoning.passages for n in getattr(found[i], "notes", ())]
    return Sent(
        form="ids",
        prefix="none",
        digest=digest_bytes(ids),
        decoding={"method": "log-probabilities"},
        notes=tuple(dict.fromkeys(notes)),
    )
