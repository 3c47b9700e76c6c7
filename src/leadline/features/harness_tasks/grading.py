"""Answers that another harness asked for, graded as a run grades them, and their means with a run's intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from leadline.core.answers import Completion, Failure, Outcome
from leadline.core.format import format_length
from leadline.core.types import Document, Probe, Question
from leadline.models.openai.replies import without_echo
from leadline.run.recording import Grade, Recorder, receipt_for
from leadline.stats.allocate import parse_until
from leadline.stats.effective import EffectiveLength, effective_length
from leadline.stats.intervals import CONFIDENCE
from leadline.stats.marginals import marginals
from leadline.stats.observations import Observations
from leadline.stats.sequential import anytime, anytime_effective
from leadline.store.logged_questions import FIELD, encode_question

Fields = Mapping[str, Any]


def sample_fields(document: Document, probe: Probe) -> dict[str, Any]:
    """The metadata of a sample in another harness, which grading and means need and by which the sample is found
    again."""
    cell, start = probe.cell, len(document.frame.before)
    return {
        "task": cell.task,
        "length": cell.length,
        "depth": cell.depth,
        "sample": cell.sample,
        "cluster": document.cluster,
        "prompt_tokens": probe.prompt_tokens,
        "answer_tokens": probe.question.allowance,
        "prompt_digest": document.prompt_digest(probe),
        "answer_prefix": probe.question.answer_prefix if document.frame.prefill else "",
        "body_start": max(0, document.body_start_characters - start),
        "body_end": max(0, probe.cut_characters - start),
        FIELD: encode_question(probe.question),
    }


def completion(text: str, fields: Fields, **counts: Any) -> Completion:
    """The answer of a model that may have repeated its begun answer."""
    return Completion(without_echo(text, str(fields.get("answer_prefix") or "")), **counts)


def grade_logged(question: Question, outcome: Outcome, fields: Fields, prompt: str) -> Grade:
    """`prompt` is the user's turn: the document in it is what failure classes compare wrong values with."""
    recorder = Recorder("", "fresh")
    document = prompt[int(fields["body_start"]) : int(fields["body_end"])]
    receipt = receipt_for(int(fields["prompt_tokens"]), outcome)
    return recorder.grade(question, outcome, receipt, document, f"{fields['task']} at {fields['length']}")


def why_unscored(outcome: Outcome, grade: Grade) -> str:
    """The reason why an answer has no score; empty if it has one."""
    if isinstance(outcome, Failure):
        return f"{outcome.why}: {outcome.message}"
    return "" if grade.scores else grade.detail or grade.failure_class


def logged_observations(samples: Iterable[tuple[Fields, float]]) -> Observations:
    """Scored samples as columns, from the fields of each and its score."""
    rows = list(samples)
    fields, values = [row for row, _ in rows], [value for _, value in rows]
    depths = [np.nan if row["depth"] is None else float(row["depth"]) for row in fields]
    return Observations(
        task=np.array([row["task"] for row in fields], dtype=np.str_),
        length=np.array([row["length"] for row in fields], dtype=np.int64),
        depth=np.array(depths, dtype=np.float64),
        sample=np.array([row["sample"] for row in fields], dtype=np.int64),
        cluster=np.array([row["cluster"] for row in fields], dtype=np.str_),
        value=np.array(values, dtype=np.float64),
        failed=np.zeros(len(rows), dtype=np.bool_),
    )


def means_with_intervals(samples: Observations, until: str, lengths: Sequence[int]) -> dict[str, float]:
    """For each task and length the mean and the ends of its 95 % interval, and the effective length once it is
    decided. With a stopping rule the intervals hold at every look."""
    if not len(samples):
        return {}
    numbers: dict[str, float] = {}
    keys, code = samples.codes(("task", "length"))
    for marginal in marginals(samples, ("task", "length")):
        estimate = marginal.estimate
        if until:
            estimate = anytime(samples.take(code == keys.index(marginal.key)), estimate)
        name = f"{marginal.key[0]}_{format_length(int(marginal.key[1] or 0))}"
        numbers |= {name: estimate.mean, f"{name}_low": estimate.interval.low, f"{name}_high": estimate.interval.high}
    effective = _effective(samples, until, lengths)
    if effective is not None and effective.decided and effective.falls and effective.bound != "below":
        numbers["effective_length"] = float(effective.length)
    return numbers


def _effective(samples: Observations, until: str, lengths: Sequence[int]) -> EffectiveLength | None:
    """None where only one length was asked."""
    if len(lengths) < 2 or (not until and len(np.unique(samples.length)) < 2):
        return None
    effective = effective_length(samples)
    if not until:
        return effective
    rule = parse_until(until)
    confidence = rule.number if rule.rule == "effective" else CONFIDENCE
    return anytime_effective(samples, effective, lengths, confidence)
