"""Judged means: of one judge or of the median of all, over all answers of a run and at each length and depth.

A mean is naive (what the judge said) and, where there are labels by people, corrected. A reply without a verdict
(`unparsed`) stays in the denominator as not right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import Any

from leadline.core.records import Record
from leadline.core.types import Cell
from leadline.results.run import format_model
from leadline.stats.intervals import Estimate, Interval, mean_interval
from leadline.stats.judged import (
    Corrected,
    KnownCase,
    KnownCases,
    RoganGladen,
    corrected_mean,
    known_cases,
    rogan_gladen,
)
from leadline.store.verdicts import RULE, JudgeVerdict

PANEL = "median of all judges"
PART_LABELS = 10
"""With fewer labels at a length or depth its mean is not corrected: the interval would say nothing."""


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """One judge, or the median of all, over all answers of the run or over one length or depth of it."""

    name: str
    families: tuple[str, ...]
    own_family: bool
    graded: int
    """Answers with a verdict of this judge."""
    unparsed: int
    failed: int
    yes_rate: float
    """Of the answers that were sent to it, the share that it called right."""
    naive: Estimate | None
    corrected: Corrected | None
    rogan_gladen: RoganGladen | None
    known: KnownCases | None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    requests: int = 0
    seconds: float = 0.0
    by_length: Mapping[int, JudgeScore] = field(default_factory=dict)
    by_depth: Mapping[float, JudgeScore] = field(default_factory=dict)


@dataclass(slots=True)
class JudgedAnswer:
    """One answer with everything that was said about it."""

    record: Record
    rule: JudgeVerdict | None = None
    verdicts: dict[str, JudgeVerdict] = field(default_factory=dict)
    """By the judge's identity."""

    @property
    def key(self) -> str:
        return self.record.cell.key


def judge_score(
    first: JudgeVerdict,
    samples: Sequence[JudgedAnswer],
    verdicts: Sequence[JudgeVerdict],
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> JudgeScore:
    """The score of the judge of the verdict `first`; `verdicts` are all of its own, those of known cases too."""
    return _with_parts(partial(_score, first, labels=labels, strata=strata), samples, verdicts)


def panel_score(
    samples: Sequence[JudgedAnswer], graders: int, labels: Mapping[str, float], strata: Mapping[str, str]
) -> JudgeScore:
    """The score of the median of all judges, over the answers that all `graders` of them graded."""
    return _with_parts(partial(_panel, graders=graders, labels=labels, strata=strata), samples, [])


def _with_parts(
    score: Callable[[Sequence[JudgedAnswer], Sequence[JudgeVerdict]], JudgeScore],
    samples: Sequence[JudgedAnswer],
    verdicts: Sequence[JudgeVerdict],
) -> JudgeScore:
    """The score over all answers, with the same at every length and depth."""

    def parts(place: Callable[[Cell], Any]) -> dict[Any, JudgeScore]:
        places = sorted({at for s in samples if (at := place(s.record.cell)) is not None})
        graded = [v for v in verdicts if not v.canary]
        return {
            at: _without_few_labels(
                score([s for s in samples if place(s.record.cell) == at], [v for v in graded if place(v.cell) == at])
            )
            for at in places
        }

    by_length, by_depth = parts(lambda cell: cell.length), parts(lambda cell: cell.depth)
    return replace(score(samples, verdicts), by_length=by_length, by_depth=by_depth)


def _without_few_labels(part: JudgeScore) -> JudgeScore:
    labels = part.corrected.labels if part.corrected is not None else 0
    few = labels < min(PART_LABELS, part.graded)
    return replace(part, corrected=None, rogan_gladen=None) if few else part


def _score(
    first: JudgeVerdict,
    samples: Sequence[JudgedAnswer],
    verdicts: Sequence[JudgeVerdict],
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> JudgeScore:
    identity = first.identity
    graded = [s for s in samples if s.rule is None and identity in s.verdicts]
    known = [KnownCase(v.canary, bool(v.expected), v.value) for v in verdicts if v.canary]
    own = [s for s in samples if s.rule is not None or identity in s.verdicts]

    def value(sample: JudgedAnswer) -> float:
        verdict = sample.rule or sample.verdicts[identity]
        return verdict.value or 0.0

    return JudgeScore(
        name=format_model(first.judge),
        families=first.families,
        own_family=first.own_family,
        graded=len(graded),
        unparsed=sum(s.verdicts[identity].status == "unparsed" for s in graded),
        failed=sum(v.status == "failed" and not v.canary for v in verdicts),
        yes_rate=sum(value(s) >= 1 for s in graded) / len(graded) if graded else math.nan,
        known=known_cases(known) if known else None,
        prompt_tokens=sum(v.prompt_tokens for v in verdicts),
        completion_tokens=sum(v.completion_tokens for v in verdicts),
        cached_tokens=sum(v.cached_tokens for v in verdicts),
        requests=sum(v.replies for v in verdicts),
        seconds=sum(v.seconds for v in verdicts),
        **_means(own if graded else [], value, labels, strata),
    )


def _panel(
    samples: Sequence[JudgedAnswer],
    verdicts: Sequence[JudgeVerdict],
    graders: int,
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> JudgeScore:
    graded = [s for s in samples if s.rule is None and len(s.verdicts) == graders]

    def value(sample: JudgedAnswer) -> float:
        if sample.rule is not None:
            return sample.rule.value or 0.0
        return float(median(verdict.value or 0.0 for verdict in sample.verdicts.values()))

    own = [s for s in samples if s.rule is not None or len(s.verdicts) == graders]
    return JudgeScore(
        name=PANEL,
        families=tuple(dict.fromkeys(f for s in graded[:1] for v in s.verdicts.values() for f in v.families)),
        own_family=any(v.own_family for s in graded[:1] for v in s.verdicts.values()),
        graded=len(graded),
        unparsed=sum(all(v.status == "unparsed" for v in s.verdicts.values()) for s in graded),
        failed=0,
        yes_rate=sum(value(s) >= 1 for s in graded) / len(graded) if graded else math.nan,
        known=None,
        **_means(own, value, labels, strata),
    )


def _means(
    samples: Sequence[JudgedAnswer],
    value: Callable[[JudgedAnswer], float],
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> dict[str, Any]:
    """The naive mean and the corrected ones. What a rule decided is taken as known."""
    values = [value(s) for s in samples]
    clusters = [s.record.cluster for s in samples]
    given = [v if s.rule is not None else labels.get(s.key) for s, v in zip(samples, values, strict=True)]
    drawn = [RULE if s.rule is not None else strata.get(s.key, "") for s in samples]
    judged = [s for s in samples if s.rule is None]
    has_labels = any(s.key in labels for s in judged)
    corrected = corrected_mean(values, clusters, given, drawn) if has_labels else None
    return {
        "naive": mean_of(samples, value),
        "corrected": replace(corrected, labels=sum(s.key in labels for s in judged)) if corrected else None,
        "rogan_gladen": _rogan_gladen(samples, judged, value, labels, strata) if has_labels else None,
    }


def _rogan_gladen(
    samples: Sequence[JudgedAnswer],
    judged: Sequence[JudgedAnswer],
    value: Callable[[JudgedAnswer], float],
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> RoganGladen | None:
    """Over the answers that were sent, as only these have the judge's errors; then with what rules decided."""
    found = rogan_gladen(
        [value(s) for s in judged],
        [s.record.cluster for s in judged],
        [labels.get(s.key) for s in judged],
        [strata.get(s.key, "") for s in judged],
    )
    if found is None:
        return None
    share = len(judged) / len(samples)
    certain = sum(value(s) for s in samples if s.rule is not None) / len(samples)
    interval = found.interval
    return RoganGladen(
        mean=certain + share * found.mean,
        interval=Interval(
            certain + share * interval.low, certain + share * interval.high, interval.confidence, interval.method
        ),
        sensitivity=found.sensitivity,
        specificity=found.specificity,
        labels=found.labels,
    )


def mean_of(samples: Sequence[JudgedAnswer], value: Callable[[JudgedAnswer], float]) -> Estimate | None:
    return mean_interval([value(s) for s in samples], [s.record.cluster for s in samples]) if samples else None
