"""What judges said about the answers of a run: means, agreement, errors on known cases, labels by people.

A judged mean is never shown alone. Beside it are how often judges agree, how often each says yes, what it makes of the
known cases, and the mean corrected with labels by people; without labels it is called uncorrected. A reply without a
verdict (`unparsed`) stays in the denominator as not right.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from leadline.core.format import format_length, format_percent, format_percent_range
from leadline.core.seeds import digest_text, rng
from leadline.core.types import Completion, Record
from leadline.results.run import format_model
from leadline.stats.agreement import Agreement, Coefficient, agreement
from leadline.stats.intervals import Estimate, Interval, mean_interval
from leadline.stats.judged import Corrected, RoganGladen, Trend, corrected_mean, rogan_gladen, trend
from leadline.store.runs import read_records
from leadline.store.verdicts import (
    LABELS,
    Draw,
    JudgeVerdict,
    parse_label,
    read_draw,
    read_label_rows,
    read_verdicts,
)

RULE = "rule"
PANEL = "median of all judges"
UNPARSED = "unparsed"
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class KnownCases:
    """How a judge graded the cases whose truth is known."""

    right: int
    accepted: int
    wrong: int
    rejected: int
    unparsed: int
    by_kind: Mapping[str, tuple[int, int]]
    """For each kind of case, how many were graded rightly, and of how many."""

    @property
    def sensitivity(self) -> float:
        return self.accepted / self.right if self.right else math.nan

    @property
    def specificity(self) -> float:
        return self.rejected / self.wrong if self.wrong else math.nan


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """One judge, or the median of all, over all answers of the run."""

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

    @property
    def complete(self) -> bool:
        return self.graded > 0 and self.failed == 0


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Samples of one place of the map that all judges graded, and on how many they differ."""

    samples: int
    differ: int


@dataclass(frozen=True, slots=True)
class Judged:
    """All verdicts of one rubric on a run."""

    rubric: str
    answers: int
    """Answers that can be judged: those that rules decided, and those that were sent."""
    by_rule: Mapping[str, int]
    sent: int
    judges: tuple[JudgeScore, ...]
    panel: JudgeScore | None
    """The median of all judges, where there are several."""
    agreement: Agreement | None
    by_length: Mapping[int, Agreement]
    by_depth: Mapping[float, Agreement]
    disagreement: Mapping[tuple[int, float | None], Disagreement]
    trend: Trend | None
    """How the agreement changes with every doubling of the length."""
    labels: int
    human: Estimate | None
    """The labels' own mean."""
    labels_used: str = ""

    @property
    def is_corrected(self) -> bool:
        return any(score.corrected is not None for score in self.judges)


@dataclass(slots=True)
class _Sample:
    """One answer with everything that was said about it."""

    record: Record
    rule: JudgeVerdict | None = None
    verdicts: dict[str, JudgeVerdict] = field(default_factory=dict)
    """By the judge's identity."""

    @property
    def key(self) -> str:
        return self.record.cell.key


def read_judged(
    folder: Path | str, labels: Path | None = None, records: Iterable[Record] | None = None
) -> list[Judged]:
    """What judges said, one entry for each rubric; empty where nothing was judged.

    `labels` is a file of labels in place of the run's own.
    """
    folder = Path(folder)
    verdicts = read_verdicts(folder)
    if not verdicts:
        return []
    by_rubric: dict[str, list[JudgeVerdict]] = {}
    for verdict in verdicts.values():
        by_rubric.setdefault(verdict.rubric_digest, []).append(verdict)
    kept = {record.cell.key: record for record in (records if records is not None else read_records(folder))}
    file = labels or (folder / LABELS if (folder / LABELS).exists() else None)
    given = read_labels(file, kept) if file is not None else {}
    draw = read_draw(folder) if labels is None else None
    return [_judged(found, kept, given, draw, str(file or "")) for found in by_rubric.values()]


def read_labels(path: Path, records: Mapping[str, Record]) -> dict[str, float]:
    """Labels by the key of their sample. A label of another answer than the one on the record is left out."""
    found: dict[str, float] = {}
    for number, row in enumerate(read_label_rows(path), 2):
        label = parse_label(row["label"], f"{path}, line {number}")
        record = records.get(row["id"])
        if label is None or record is None or not isinstance(record.outcome, Completion):
            continue
        if row.get("answer_digest", "") in ("", digest_text(record.outcome.text)):
            found[row["id"]] = label
    return found


def _judged(
    verdicts: Sequence[JudgeVerdict],
    records: Mapping[str, Record],
    labels: Mapping[str, float],
    draw: Draw | None,
    labels_used: str,
) -> Judged:
    samples = _samples(verdicts, records)
    names = {v.identity: v for v in verdicts if v.judge != RULE}
    ruled = [s for s in samples if s.rule is not None]
    sent = [s for s in samples if s.rule is None]
    known = {identity: known_cases([v for v in verdicts if v.canary and v.identity == identity]) for identity in names}
    labels = {key: label for key, label in labels.items() if key in {s.key for s in sent}}
    strata = draw.strata if draw is not None else {}
    scores = tuple(
        _score(first, samples, sent, [v for v in verdicts if v.identity == identity], known[identity], labels, strata)
        for identity, first in names.items()
    )
    both = [s for s in sent if len(s.verdicts) > 1 and len(s.verdicts) == len(_graders(sent))]
    ratings = [_ratings(s, _graders(sent)) for s in both]
    return Judged(
        rubric=verdicts[0].rubric,
        answers=len(samples),
        by_rule=Counter(s.rule.reason for s in ruled if s.rule is not None),
        sent=len(sent),
        judges=scores,
        panel=_panel(samples, sent, labels, strata) if len(_graders(sent)) > 1 else None,
        agreement=_agreement(ratings),
        by_length=_agreement_by(both, ratings, lambda s: s.record.cell.length),
        by_depth=_agreement_by(both, ratings, lambda s: s.record.cell.depth),
        disagreement=_disagreements(both, ratings),
        trend=_agreement_trend(both, ratings),
        labels=len(labels),
        human=_mean([s for s in sent if s.key in labels], lambda s: labels[s.key]),
        labels_used=labels_used,
    )


def _samples(verdicts: Sequence[JudgeVerdict], records: Mapping[str, Record]) -> list[_Sample]:
    """Answers with verdicts about exactly this answer: one that was asked again needs a new verdict."""
    found: dict[str, _Sample] = {}
    for verdict in verdicts:
        record = records.get(verdict.cell.key)
        if verdict.canary or record is None or not isinstance(record.outcome, Completion):
            continue
        if verdict.answer != digest_text(record.outcome.text):
            continue
        sample = found.setdefault(verdict.cell.key, _Sample(record))
        if verdict.judge == RULE:
            sample.rule = verdict
        elif verdict.status != "failed":
            sample.verdicts[verdict.identity] = verdict
    return [s for s in found.values() if s.rule is not None or s.verdicts]


def known_cases(verdicts: Sequence[JudgeVerdict]) -> KnownCases | None:
    if not verdicts:
        return None
    good = {v.key: v.value is not None and (v.value >= 0.5) is v.expected for v in verdicts}
    kinds: dict[str, tuple[int, int]] = {}
    for verdict in verdicts:
        hits, cases = kinds.get(verdict.canary, (0, 0))
        kinds[verdict.canary] = (hits + good[verdict.key], cases + 1)
    right = [v for v in verdicts if v.expected]
    wrong = [v for v in verdicts if not v.expected]
    return KnownCases(
        right=len(right),
        accepted=sum(good[v.key] for v in right),
        wrong=len(wrong),
        rejected=sum(good[v.key] for v in wrong),
        unparsed=sum(v.status == "unparsed" for v in verdicts),
        by_kind=kinds,
    )


# --- means


def _score(
    first: JudgeVerdict,
    samples: Sequence[_Sample],
    sent: Sequence[_Sample],
    verdicts: Sequence[JudgeVerdict],
    known: KnownCases | None,
    labels: Mapping[str, float],
    strata: Mapping[str, str],
) -> JudgeScore:
    identity = first.identity
    graded = [s for s in sent if identity in s.verdicts]
    own = [s for s in samples if s.rule is not None or identity in s.verdicts]

    def value(sample: _Sample) -> float:
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
        known=known,
        prompt_tokens=sum(v.prompt_tokens for v in verdicts),
        completion_tokens=sum(v.completion_tokens for v in verdicts),
        cached_tokens=sum(v.cached_tokens for v in verdicts),
        requests=sum(v.replies for v in verdicts),
        seconds=sum(v.seconds for v in verdicts),
        **_means(own if graded else [], value, labels, strata),
    )


def _panel(
    samples: Sequence[_Sample], sent: Sequence[_Sample], labels: Mapping[str, float], strata: Mapping[str, str]
) -> JudgeScore:
    graders = _graders(sent)
    graded = [s for s in sent if len(s.verdicts) == len(graders)]

    def value(sample: _Sample) -> float:
        if sample.rule is not None:
            return sample.rule.value or 0.0
        return float(median(verdict.value or 0.0 for verdict in sample.verdicts.values()))

    own = [s for s in samples if s.rule is not None or len(s.verdicts) == len(graders)]
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
    samples: Sequence[_Sample],
    value: Callable[[_Sample], float],
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
    return {
        "naive": _mean(samples, value),
        "corrected": corrected_mean(values, clusters, given, drawn) if has_labels else None,
        "rogan_gladen": _rogan_gladen(samples, judged, value, labels, strata) if has_labels else None,
    }


def _rogan_gladen(
    samples: Sequence[_Sample],
    judged: Sequence[_Sample],
    value: Callable[[_Sample], float],
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


def _mean(samples: Sequence[_Sample], value: Callable[[_Sample], float]) -> Estimate | None:
    return mean_interval([value(s) for s in samples], [s.record.cluster for s in samples]) if samples else None


# --- agreement


def _graders(sent: Sequence[_Sample]) -> list[str]:
    return list(dict.fromkeys(identity for s in sent for identity in s.verdicts))


def _ratings(sample: _Sample, graders: Sequence[str]) -> tuple[str, ...]:
    """What each judge said; no verdict is a label of its own."""
    return tuple(_label(sample.verdicts[identity]) for identity in graders)


def _label(verdict: JudgeVerdict) -> str:
    return UNPARSED if verdict.value is None else f"{verdict.value:.3g}"


def _agreement(ratings: Sequence[tuple[str, ...]]) -> Agreement | None:
    return agreement(ratings, resamples=RESAMPLES) if ratings else None


def _agreement_by(
    samples: Sequence[_Sample], ratings: Sequence[tuple[str, ...]], place: Callable[[_Sample], Any]
) -> dict[Any, Agreement]:
    places = sorted({place(s) for s in samples if place(s) is not None})
    return {
        at: agreement([r for s, r in zip(samples, ratings, strict=True) if place(s) == at], resamples=RESAMPLES)
        for at in places
    }


def _disagreements(
    samples: Sequence[_Sample], ratings: Sequence[tuple[str, ...]]
) -> dict[tuple[int, float | None], Disagreement]:
    found: dict[tuple[int, float | None], Disagreement] = {}
    for sample, row in zip(samples, ratings, strict=True):
        place = (sample.record.cell.length, sample.record.cell.depth)
        before = found.get(place, Disagreement(0, 0))
        found[place] = Disagreement(before.samples + 1, before.differ + (len(set(row)) > 1))
    return found


def _agreement_trend(samples: Sequence[_Sample], ratings: Sequence[tuple[str, ...]]) -> Trend | None:
    agree = [float(len(set(row)) == 1) for row in ratings]
    return trend(agree, [s.record.cell.length for s in samples], [s.record.cluster for s in samples])


# --- drawing samples to label


@dataclass(frozen=True, slots=True)
class LabelDraw:
    """Samples that are worth a label, and the strata they come from."""

    keys: tuple[str, ...]
    draw: Draw


def draw_labels(folder: Path | str, count: int, rubric: str, seed: int = 0) -> LabelDraw:
    """Draws samples over verdicts and lengths: from every stratum at least two, the rest in proportion.

    Samples on which judges differ are strata of their own. A second draw keeps the strata of the first and adds to it.
    """
    records = {record.cell.key: record for record in read_records(folder)}
    verdicts = [v for v in read_verdicts(folder).values() if v.rubric_digest == rubric]
    earlier, last = read_draw(Path(folder)), rubric
    strata = {s.key: _stratum(s) for s in _samples(verdicts, records) if s.rule is None}
    if earlier is not None and earlier.rubric == rubric:
        strata |= {key: stratum for key, stratum in earlier.strata.items() if key in strata}
    groups: dict[str, list[str]] = {}
    for key, stratum in strata.items():
        groups.setdefault(stratum, []).append(key)
    draw = rng(seed, "labels", last)
    for keys in groups.values():
        draw.shuffle(keys)
    keys = [key for stratum, size in _allocate(groups, count).items() for key in groups[stratum][:size]]
    draw.shuffle(keys)
    return LabelDraw(tuple(keys), Draw(last, strata))


def _stratum(sample: _Sample) -> str:
    values = [verdict.value or 0.0 for verdict in sample.verdicts.values()]
    verdict = "differ" if len(set(values)) > 1 else "right" if values[0] >= 1 else "wrong" if not values[0] else "part"
    return f"{verdict} {sample.record.cell.length}"


def _allocate(groups: Mapping[str, Sequence[str]], count: int) -> dict[str, int]:
    """How many of each stratum: two, or all of a smaller one, then in proportion to what is left."""
    order = sorted(groups, key=lambda stratum: -len(groups[stratum]))
    sizes = dict.fromkeys(groups, 0)
    for stratum in order:
        if sum(sizes.values()) + min(2, len(groups[stratum])) <= count:
            sizes[stratum] = min(2, len(groups[stratum]))
    while sum(sizes.values()) < min(count, sum(map(len, groups.values()))):
        room = [s for s in order if sizes[s] < len(groups[s])]
        sizes[max(room, key=lambda s: (len(groups[s]) / (sizes[s] + 1), s))] += 1
    return sizes


# --- as plain values and as sentences


def judged_values(judged: Judged) -> dict[str, Any]:
    """For JSON. Numbers that do not exist are null."""
    return {
        "rubric": judged.rubric,
        "answers": judged.answers,
        "decided_by_rule": dict(judged.by_rule),
        "sent": judged.sent,
        "corrected": judged.is_corrected,
        "labels": judged.labels,
        "label_mean": _estimate_values(judged.human),
        "judges": [_score_values(score) for score in judged.judges],
        "panel": _score_values(judged.panel) if judged.panel else None,
        "agreement": _agreement_values(judged.agreement),
        "agreement_by_length": {str(at): _agreement_values(found) for at, found in judged.by_length.items()},
        "agreement_by_depth": {f"{at:g}": _agreement_values(found) for at, found in judged.by_depth.items()},
        "agreement_per_doubling": judged.trend.slope if judged.trend else None,
        "agreement_falls_with_length": bool(judged.trend and judged.trend.falls),
        "disagreement": [
            {"length": length, "depth": depth, "samples": found.samples, "differ": found.differ}
            for (length, depth), found in sorted(judged.disagreement.items(), key=lambda item: str(item[0]))
        ],
        "notes": judged_notes(judged),
    }


def _score_values(score: JudgeScore) -> dict[str, Any]:
    corrected, rogan = score.corrected, score.rogan_gladen
    return {
        "judge": score.name,
        "families": list(score.families),
        "own_family": score.own_family,
        "graded": score.graded,
        "unparsed": score.unparsed,
        "failed": score.failed,
        "yes_rate": _number(score.yes_rate),
        "naive": _estimate_values(score.naive),
        "corrected": None
        if corrected is None
        else {"mean": corrected.mean, **_interval_values(corrected.interval), "labels": corrected.labels,
              "documents": corrected.documents, "worth": _number(corrected.worth)},
        "rogan_gladen": None
        if rogan is None
        else {"mean": rogan.mean, **_interval_values(rogan.interval), "sensitivity": rogan.sensitivity,
              "specificity": rogan.specificity, "labels": rogan.labels},
        "known_cases": None
        if score.known is None
        else {"sensitivity": _number(score.known.sensitivity), "specificity": _number(score.known.specificity),
              "unparsed": score.known.unparsed,
              "by_kind": {kind: list(found) for kind, found in score.known.by_kind.items()}},
        "requests": score.requests,
        "prompt_tokens": score.prompt_tokens,
        "completion_tokens": score.completion_tokens,
        "cached_tokens": score.cached_tokens,
        "seconds": score.seconds,
    }  # fmt: skip


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _estimate_values(estimate: Estimate | None) -> dict[str, Any] | None:
    return None if estimate is None else {"mean": estimate.mean, **_interval_values(estimate.interval)}


def _interval_values(interval: Interval) -> dict[str, Any]:
    return {"low": _number(interval.low), "high": _number(interval.high), "method": interval.method}


def _agreement_values(found: Agreement | None) -> dict[str, Any] | None:
    if found is None:
        return None
    named = {"raw": found.raw, "krippendorff": found.krippendorff, "gwet": found.gwet}
    return {"samples": found.items, **{name: _coefficient_values(c) for name, c in named.items()}}


def _coefficient_values(found: Coefficient) -> dict[str, Any]:
    return {"value": _number(found.value), "low": _number(found.interval.low), "high": _number(found.interval.high)}


def judged_notes(judged: Judged) -> list[str]:
    """What a reader must know before reading a judged number."""
    rules = ", ".join(f"{count:,} {rule}" for rule, count in judged.by_rule.items())
    notes = [
        f"{judged.sent:,} of {judged.answers:,} answers were sent to judges; rules decided the others"
        f"{f' ({rules})' if rules else ''}."
    ]
    if not judged.is_corrected:
        notes.append(
            "Uncorrected: no labels by people, so the judges' bias is in every mean below, and no interval shows it. "
            "`leadline judge RUN --label 40` draws the samples to label."
        )
    unparsed = {s.name: s.unparsed for s in judged.judges if s.unparsed}
    if unparsed:
        counts = ", ".join(f"{name} {count:,}" for name, count in unparsed.items())
        notes.append(f"Replies without a verdict count as not right: {counts}.")
    notes += [f"{s.name} is of the tested model's own family." for s in judged.judges if s.own_family]
    if judged.agreement is not None and judged.agreement.nearly_one_label:
        notes.append("Nearly all verdicts are alike, so alpha is near zero however often judges agree: read AC1.")
    if judged.trend is not None and judged.trend.falls:
        lengths = sorted(judged.by_length)
        notes.append(
            f"Judges agree less on longer samples ({format_percent(judged.by_length[lengths[0]].raw.value)}% at "
            f"{format_length(lengths[0])}, {format_percent(judged.by_length[lengths[-1]].raw.value)}% at "
            f"{format_length(lengths[-1])}): part of the fall of the score may be the judges'."
        )
    return notes


def format_mean(mean: float | None, interval: Interval | None) -> str:
    return "-" if mean is None else f"{format_percent(mean)}% [{format_percent_range(interval)}]"
