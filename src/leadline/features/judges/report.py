"""What judges said, in a report: sentences, the section of terminal and page, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from leadline.core.format import (
    format_depth,
    format_length,
    format_list,
    format_percent,
    format_percent_range,
    format_tokens,
    sanitise,
)
from leadline.features.judges.agreement import Agreement, Coefficient
from leadline.features.judges.results import JudgeScore, RubricResults, read_judged
from leadline.report.sections import ReportSection, SectionPart, SectionText
from leadline.report.text_table import TextTable
from leadline.results.run import Run
from leadline.stats.intervals import Estimate, Interval

# --- Judged answers as tables: means naive and corrected, agreement, known cases, disagreement ---


def judged_tables(judged: RubricResults) -> Iterator[TextTable]:
    table = partial(TextTable, wrapped=True)
    scores = [*zip(_letters(judged), judged.judges, strict=True)]
    shown = [*scores, *([("median", judged.panel)] if judged.panel else [])]
    columns = ("judge", "graded", "unparsed", "failed", "says yes", "naive mean", "corrected mean")
    yield table("judged means, with 95% intervals", columns, [_mean_row(*named) for named in shown])
    columns = ("part", "judge", "n", "says yes", "naive", "corrected", "tokens")
    yield table("judged means by length and depth", columns, list(_part_rows(shown)))
    if judged.is_corrected:
        columns = ("judge", "corrected", "Rogan-Gladen", "accepts right", "rejects wrong", "labels", "label multiplier")
        yield table("beside labels by people", columns, [_correction_row(*named) for named in shown])
    columns = ("judge", "accepts right", "rejects wrong", "unparsed", "worst kind", "requests", "tokens")
    yield table("known cases, and what the judge cost", columns, [_known_row(*named) for named in scores])
    if judged.agreement is not None:
        rows = [("all", *_agreement_cells(judged.agreement))]
        rows += [(format_length(at), *_agreement_cells(agreement_at)) for at, agreement_at in judged.by_length.items()]
        rows += [(_depth(at), *_agreement_cells(agreement_at)) for at, agreement_at in judged.by_depth.items()]
        agreement = ("part", "n", "same verdict", "Krippendorff's α", "Gwet's AC1")
        yield table("agreement of judges, with 95% intervals", agreement, rows)
        yield _map(judged)


def judge_legend(judged: RubricResults) -> list[str]:
    """The judge behind each letter, with its family."""
    return [
        f"{letter}: {sanitise(score.name, 120)} (family {', '.join(score.families) or 'unknown'}"
        f"{', the own family of the tested model' if score.own_family else ''})"
        for letter, score in zip(_letters(judged), judged.judges, strict=True)
    ]


def _letters(judged: RubricResults) -> list[str]:
    return [chr(ord("A") + n) if n < 26 else str(n + 1) for n in range(len(judged.judges))]


def _mean_row(name: str, score: JudgeScore) -> tuple[str, ...]:
    corrected = score.corrected
    return (
        name,
        f"{score.graded:,}",
        f"{score.unparsed:,}",
        f"{score.failed:,}",
        _percent(score.yes_rate),
        _format_mean(score.naive.mean, score.naive.interval) if score.naive else "-",
        _format_mean(corrected.mean, corrected.interval) if corrected else "uncorrected",
    )


def _part_rows(shown: Sequence[tuple[str, JudgeScore]]) -> Iterator[tuple[str, ...]]:
    for named, parts in ((format_length, "by_length"), (_depth, "by_depth")):
        for at in getattr(shown[0][1], parts) if shown else ():
            for name, score in shown:
                if (part := getattr(score, parts).get(at)) is not None:
                    _, graded, _, _, yes, naive, corrected = _mean_row(name, part)
                    yes += f", {part.unparsed:,} unparsed" if part.unparsed else ""
                    corrected = corrected if part.corrected else "-"
                    tokens = part.prompt_tokens + part.completion_tokens
                    yield named(at), name, graded, yes, naive, corrected, format_tokens(tokens) if tokens else ""


def _depth(depth: float) -> str:
    return f"depth {format_depth(depth)}"


def _correction_row(name: str, score: JudgeScore) -> tuple[str, ...]:
    corrected, rogan = score.corrected, score.rogan_gladen
    return (
        name,
        _format_mean(corrected.mean, corrected.interval) if corrected else "uncorrected",
        _format_mean(rogan.mean, rogan.interval) if rogan else "-",
        _percent(rogan.sensitivity) if rogan else "-",
        _percent(rogan.specificity) if rogan else "-",
        f"{corrected.labels}" if corrected else "-",
        f"x {corrected.label_multiplier:.1f}" if corrected and math.isfinite(corrected.label_multiplier) else "-",
    )


def _known_row(name: str, score: JudgeScore) -> tuple[str, ...]:
    known, tokens = score.known, format_tokens(score.prompt_tokens + score.completion_tokens)
    cached = f", {format_tokens(score.cached_tokens)} cached" if score.cached_tokens else ""
    cost = (f"{score.requests:,}", tokens + cached)
    if known is None:
        return name, "-", "-", "-", "-", *cost
    kind, (good, cases) = min(known.by_kind.items(), key=lambda item: item[1][0] / item[1][1])
    return (
        name,
        f"{known.accepted} of {known.right}",
        f"{known.rejected} of {known.wrong}",
        f"{known.unparsed}",
        "-" if good == cases else f"{kind}: {good} of {cases}",
        *cost,
    )


def _agreement_cells(agreement: Agreement) -> tuple[str, ...]:
    return (
        f"{agreement.items:,}",
        _format_mean(agreement.raw.value, agreement.raw.interval),
        _coefficient(agreement.krippendorff),
        _coefficient(agreement.gwet),
    )


def _format_mean(mean: float | None, interval: Interval | None) -> str:
    return "-" if mean is None else f"{format_percent(mean)}% [{format_percent_range(interval)}]"


def _coefficient(coefficient: Coefficient) -> str:
    if not math.isfinite(coefficient.value):
        return "not defined"
    return f"{coefficient.value:.2f} [{coefficient.interval.low:.2f}, {coefficient.interval.high:.2f}]"


def _percent(value: float) -> str:
    return f"{format_percent(value)}%" if math.isfinite(value) else "-"


def _map(judged: RubricResults) -> TextTable:
    """Samples with different verdicts, by depth and length."""
    lengths = sorted({length for length, _ in judged.disagreement})
    depths = sorted({depth for _, depth in judged.disagreement}, key=lambda d: -1.0 if d is None else d)
    rows = []
    for depth in depths:
        cells = [judged.disagreement.get((length, depth)) for length in lengths]
        rows.append((format_depth(depth), *(f"{f.differ} of {f.samples}" if f else "" for f in cells)))
    title = "samples with different verdicts, depth down, length across"
    return TextTable(title, ("depth", *map(format_length, lengths)), rows, wrapped=True)


# --- the section ---


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
        "agreement_by_length": {str(at): _agreement_values(agreement) for at, agreement in judged.by_length.items()},
        "agreement_by_depth": {f"{at:g}": _agreement_values(agreement) for at, agreement in judged.by_depth.items()},
        "agreement_per_doubling": judged.trend.slope if judged.trend else None,
        "agreement_falls_with_length": bool(judged.trend and judged.trend.falls),
        "disagreement": [
            {"length": length, "depth": depth, "samples": cell.samples, "differ": cell.differ}
            for (length, depth), cell in sorted(judged.disagreement.items(), key=lambda item: str(item[0]))
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
              "documents": corrected.documents, "label_multiplier": _number(corrected.label_multiplier)},
        "rogan_gladen": None
        if rogan is None
        else {"mean": rogan.mean, **_interval_values(rogan.interval), "sensitivity": rogan.sensitivity,
              "specificity": rogan.specificity, "labels": rogan.labels},
        "known_cases": None
        if score.known is None
        else {"sensitivity": _number(score.known.sensitivity), "specificity": _number(score.known.specificity),
              "unparsed": score.known.unparsed,
              "by_kind": {kind: list(counts) for kind, counts in score.known.by_kind.items()}},
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


def _agreement_values(agreement: Agreement | None) -> dict[str, Any] | None:
    if agreement is None:
        return None
    named = {"raw": agreement.raw, "krippendorff": agreement.krippendorff, "gwet": agreement.gwet}
    return {"samples": agreement.items, **{name: _coefficient_values(c) for name, c in named.items()}}


def _coefficient_values(coefficient: Coefficient) -> dict[str, Any]:
    return {
        "value": _number(coefficient.value),
        "low": _number(coefficient.interval.low),
        "high": _number(coefficient.interval.high),
    }
