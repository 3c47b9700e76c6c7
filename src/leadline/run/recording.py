"""From an answer to a record: scored when it is an answer, classed always, never scored when it is a failure."""

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
    Measured,
    Outcome,
    PlantedRecord,
    Probe,
    Reading,
    Receipt,
    Record,
    Score,
)
from leadline.run.attempts import Asked
from leadline.run.receipts import receipt_for
from leadline.store.provenance import redact

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
        return ("measured", "") if isinstance(outcome, Measured) else self._classify(probe, outcome, scores, receipt)

    def _scores(self, probe: Probe, outcome: Outcome) -> dict[str, Score]:
        if isinstance(outcome, Failure):
            return {}
        if isinstance(outcome, Measured):
            # A metric may have no number in one document, as LongPPL where no token needs the far context.
            return {name: Score(outcome.numbers[name]) for name in probe.scorers if name in outcome.numbers}
        return {name: self._score(name, probe, outcome) for name in probe.scorers}

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
