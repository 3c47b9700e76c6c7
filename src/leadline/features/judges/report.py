"""What judges said, in a report: sentences, the section of terminal and page, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from leadline.core.format import format_length, format_list, format_percent
from leadline.features.judges.agreement import Agreement, Coefficient
from leadline.features.judges.results import JudgeScore, RubricResults, read_judged
from leadline.features.judges.tables import judge_legend, judged_tables
from leadline.report.sections import ReportSection, SectionPart, SectionText
from leadline.results.run import Run
from leadline.stats.intervals import Estimate, Interval


def judges_section(runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    """An entry point of `leadline.report_sections`. Runs side by side have none: rubrics and judges differ."""
    if len(runs) > 1:
        return None
    judged = read_judged(runs[0].folder)
    return judged_section(judged) if judged else None


def judged_section(judged: Sequence[RubricResults]) -> ReportSection:
    """What judges said, by rubric."""
    parts = tuple(part for rubric in judged for part in _parts(rubric))
    return ReportSection("Judged answers", parts, [judged_values(rubric) for rubric in judged], link="Judges")


def _parts(judged: RubricResults) -> Iterator[SectionPart]:
    state = f"corrected with {judged.labels} labels by people" if judged.is_corrected else "uncorrected"
    yield SectionText(f"Rubric {judged.rubric}: {state}", "heading")
    for note in (*judged_notes(judged), *judge_legend(judged)):
        yield SectionText(note, "warning" if note == UNCORRECTED else "note")
    yield from judged_tables(judged)


# --- sentences ----------------------------------------------------------------------------------

UNCORRECTED = (
    "Uncorrected: no labels by people, so the judges' bias is in every mean below, and no interval shows it. "
    "`leadline judge RUN --label 40` draws the samples to label."
)


def judged_notes(judged: RubricResults) -> list[str]:
    """What a reader must know before reading a judged number."""
    rules = ", ".join(f"{count:,} {rule}" for rule, count in judged.by_rule.items())
    if judged.answers and not judged.sent:
        return [f"Rules decided all {judged.answers:,} answers ({rules}): judges were not asked, and need no labels."]
    notes = [
        f"{judged.sent:,} of {judged.answers:,} answers were sent to judges; rules decided the others"
        f"{f' ({rules})' if rules else ''}."
    ]
    if not judged.is_corrected:
        notes.append(UNCORRECTED)
    unparsed = {s.name: s.unparsed for s in judged.judges if s.unparsed}
    if unparsed:
        counts = ", ".join(f"{name} {count:,}" for name, count in unparsed.items())
        notes.append(f"Replies without a verdict count as not right: {counts}.")
    missing = [(s, max(s.failed, judged.sent - s.graded)) for s in judged.judges]
    unjudged = [f"{s.name} on {count:,} of {s.graded + count:,} answers" for s, count in missing if count]
    if unjudged and judged.by_rule:
        notes.append(
            f"There is no verdict of {format_list(unjudged)}: means lean towards what rules decided, all of which is "
            "in them. Judge the run again: only these are asked."
        )
    notes += [f"{s.name} is of the tested model's own family." for s in judged.judges if s.own_family]
    if judged.agreement is not None and judged.agreement.nearly_one_label:
        alpha = judged.agreement.krippendorff
        near = "near zero" if math.isfinite(alpha.value) else "not defined"
        notes.append(f"Nearly all verdicts are alike, so alpha is {near} however often judges agree: read AC1.")
    if judged.trend is not None and judged.trend.falls:
        lengths = sorted(judged.by_length)
        notes.append(
            f"Judges agree less on longer samples ({format_percent(judged.by_length[lengths[0]].raw.value)}% at "
            f"{format_length(lengths[0])}, {format_percent(judged.by_length[lengths[-1]].raw.value)}% at "
            f"{format_length(lengths[-1])}): part of the fall of the score may be the judges'."
        )
    return notes


# --- JSON ---------------------------------------------------------------------------------------


def judged_values(judged: RubricResults) -> dict[str, Any]:
    """For JSON. Numbers that do not exist are null."""
    return {
        "rubric": judged.rubric,
        "answers": judged.answers,
        "decided_by_rule": dict(judged.by_rule),
        "sent": judged.sent,
        "corrected": judged.is_corrected,
        "labels": judged.labels,
        "label_mean": _mean_values(judged.human),
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
        "naive": _mean_values(score.naive),
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


def _mean_values(estimate: Estimate | None) -> dict[str, Any] | None:
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
