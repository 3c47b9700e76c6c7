"""From an answer to a record: with scores unless it is a failure, and always with a failure class."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from leadline.core import registry
from leadline.core.contracts import Scorer
from leadline.core.errors import LeadlineError
from leadline.core.secrets import redact, redact_used
from leadline.core.types import (
    SLACK_TOKENS,
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


def receipt_for(probe: Probe, outcome: Outcome) -> Receipt:
    """Our count and the model's own, which failures and measurements do not have.

    A count that is short, but not when the cached tokens are added, is that of a server that leaves those out.
    """
    ours = probe.prompt_tokens
    if not isinstance(outcome, Completion) or outcome.prompt_tokens is None:
        return Receipt(ours, None)
    plain, cached = Receipt(ours, outcome.prompt_tokens), outcome.cached_tokens or 0
    left_out = plain.short and abs(outcome.prompt_tokens + cached - ours) <= SLACK_TOKENS
    return Receipt(ours, outcome.prompt_tokens, cached) if left_out else plain


Classify = Callable[[Probe, Completion | Failure, dict[str, Score], Receipt], tuple[FailureClass, str]]


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
        scores, failure_class, detail = self._grade(probe, outcome, receipt)
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

    def malformed(self, record: Record, why: str) -> Record:
        """A failure in the place of an answer that could not be read back from a file, such as a wrong type."""
        failure = Failure("malformed", f"the model's answer cannot be recorded: {why}")
        return msgspec.structs.replace(
            record,
            outcome=failure,
            receipt=Receipt(record.prompt_tokens, None),
            scores={},
            failure_class="error",
            detail=failure.why,
        )

    def _grade(self, probe: Probe, outcome: Outcome, receipt: Receipt) -> tuple[dict[str, Score], FailureClass, str]:
        """Scores, failure class and its detail."""
        if isinstance(outcome, Measurement):
            # A metric may have no number in one document, such as LongPPL if no token needs the far context.
            return {n: Score(outcome.numbers[n]) for n in probe.scorers if n in outcome.numbers}, "measured", ""
        scores = (
            {}
            if isinstance(outcome, Failure)
            else {registry.scorer_title(name): self._score(name, probe, outcome) for name in probe.scorers}
        )
        return scores, *self._classify(probe, outcome, scores, receipt)

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
    if isinstance(outcome, Completion):
        named = ("text", "thinking", "finish", "model", "system_fingerprint")
        return msgspec.structs.replace(outcome, **{name: redact_used(getattr(outcome, name)) for name in named})
    return outcome
