"""Judged answers as plain values for JSON, and what a reader must know before reading a judged number."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from leadline.core.format import format_length, format_percent, format_percent_range
from leadline.results.judged import Judged
from leadline.results.judged_means import JudgeScore
from leadline.stats.agreement import Agreement, Coefficient
from leadline.stats.intervals import Estimate, Interval


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
        **({"by_length": _part_values(score.by_length)} if score.by_length else {}),
        **({"by_depth": _part_values(score.by_depth)} if score.by_depth else {}),
    }  # fmt: skip


def _part_values(parts: Mapping[int, JudgeScore] | Mapping[float, JudgeScore]) -> dict[str, Any]:
    return {f"{at:g}" if isinstance(at, float) else str(at): _score_values(part) for at, part in parts.items()}


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
