"""From an answer to a record: with scores unless it is a failure, and always with a failure class."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from leadline.core import registry
from leadline.core.contracts import Scorer
from leadline.core.errors import LeadlineError
from leadline.core.types import (
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
)
from leadline.run.retry import Asked
from leadline.store.manifest import redact

# --- Receipts: did the model read as many tokens as we sent?


def receipt_for(probe: Probe, outcome: Outcome) -> Receipt:
    """Our count and the model's own, which failures and measurements do not have."""
    theirs = outcome.prompt_tokens if isinstance(outcome, Completion) else None
    return Receipt(ours=probe.prompt_tokens, theirs=theirs)


# --- From an answer to a record: scored when it is an answer, classed always, never scored when it is a f

Classify = Callable[[Probe, Completion | Failure, dict[str, Score], Receipt, str], tuple[FailureClass, str]]


class Recorder:
    """Makes the records of one run. Looks up each scorer once."""

    def __init__(self, model: str, reading: Reading, classify: Classify) -> None:
        self._model = model
        self._reading = reading
        self._classify = classify
        self._scorers: dict[str, Scorer] = {}

    def record(self, document: Document, asked: Asked) -> Record:
        probe, answer = asked.probe, asked.answer
        outcome = _without_secrets(answer.outcome)
        receipt = receipt_for(probe, outcome)
        scores, failure_class, detail = self._grade(probe, document, outcome, receipt)
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

    def _grade(
        self, probe: Probe, document: Document, outcome: Outcome, receipt: Receipt
    ) -> tuple[dict[str, Score], FailureClass, str]:
        """Scores, failure class and its detail."""
        if isinstance(outcome, Measurement):
            # A metric may have no number in one document, such as LongPPL if no token needs the far context.
            return {n: Score(outcome.numbers[n]) for n in probe.scorers if n in outcome.numbers}, "measured", ""
        scores = (
            {}
            if isinstance(outcome, Failure)
            else {registry.scorer_title(name): self._score(name, probe, outcome) for name in probe.scorers}
        )
        read = document.text[document.body_start_characters : probe.cut_characters]
        return scores, *self._classify(probe, outcome, scores, receipt, read)

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
    """Servers may quote the request in their errors, including the key."""
    if isinstance(outcome, Failure):
        return msgspec.structs.replace(outcome, message=redact(outcome.message))
    return outcome
