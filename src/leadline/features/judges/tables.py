"""Judged answers as tables: means naive and corrected, agreement, known cases, disagreement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from leadline.core.format import (
    format_depth,
    format_length,
    format_percent,
    format_percent_range,
    format_tokens,
    sanitise,
)
from leadline.features.judges.agreement import Agreement, Coefficient
from leadline.features.judges.results import JudgeScore, RubricResults
from leadline.report.text_table import TextTable
from leadline.stats.intervals import Interval


def judged_tables(judged: RubricResults) -> Iterator[TextTable]:
    table = partial(TextTable, wrapped=True)
    scores = [*zip(_letters(judged), judged.judges, strict=True)]
    shown = [*scores, *([("median", judged.panel)] if judged.panel else [])]
    columns = ("judge", "graded", "unparsed", "failed", "says yes", "naive mean", "corrected mean")
    yield table("judged means, with 95% intervals", columns, [_mean_row(*named) for named in shown])
    columns = ("part", "judge", "n", "says yes", "naive", "corrected", "tokens")
    yield table("judged means by length and depth", columns, list(_part_rows(shown)))
    if judged.is_corrected:
        columns = ("judge", "corrected", "Rogan-Gladen", "accepts right", "rejects wrong", "labels", "worth")
        yield table("beside labels by people", columns, [_correction_row(*named) for named in shown])
    columns = ("judge", "accepts right", "rejects wrong", "unparsed", "worst kind", "requests", "tokens")
    yield table("known cases, and what the judge cost", columns, [_known_row(*named) for named in scores])
    if judged.agreement is not None:
        rows = [("all", *_agreement_cells(judged.agreement))]
        rows += [(format_length(at), *_agreement_cells(found)) for at, found in judged.by_length.items()]
        rows += [(_depth(at), *_agreement_cells(found)) for at, found in judged.by_depth.items()]
        agreement = ("part", "n", "same verdict", "Krippendorff's α", "Gwet's AC1")
        yield table("agreement of judges, with 95% intervals", agreement, rows)
        yield _map(judged)


def judge_legend(judged: RubricResults) -> list[str]:
    """Which judge each letter is, with its family."""
    return [
        f"{letter}: {sanitise(score.name, 120)} (family {', '.join(score.families) or 'unknown'}"
        f"{', the own family of the tested model' if score.own_family else ''})"
        for letter, score in zip(_letters(judged), judged.judges, strict=True)
    ]


def _letters(judged: RubricResults) -> list[str]:
    return [chr(ord("A") + n) if n < 26 else str(n + 1) for n in range(len(judged.judges))]


def _mean_row(name: str, score: JudgeScore) -> tuple[str, ...]:
    found = score.corrected
    return (
        name,
        f"{score.graded:,}",
        f"{score.unparsed:,}",
        f"{score.failed:,}",
        _percent(score.yes_rate),
        _format_mean(score.naive.mean, score.naive.interval) if score.naive else "-",
        _format_mean(found.mean, found.interval) if found else "uncorrected",
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
    found, rogan = score.corrected, score.rogan_gladen
    return (
        name,
        _format_mean(found.mean, found.interval) if found else "uncorrected",
        _format_mean(rogan.mean, rogan.interval) if rogan else "-",
        _percent(rogan.sensitivity) if rogan else "-",
        _percent(rogan.specificity) if rogan else "-",
        f"{found.labels}" if found else "-",
        f"x {found.worth:.1f}" if found and math.isfinite(found.worth) else "-",
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


def _agreement_cells(found: Agreement) -> tuple[str, ...]:
    return (
        f"{found.items:,}",
        _format_mean(found.raw.value, found.raw.interval),
        _coefficient(found.krippendorff),
        _coefficient(found.gwet),
    )


def _format_mean(mean: float | None, interval: Interval | None) -> str:
    return "-" if mean is None else f"{format_percent(mean)}% [{format_percent_range(interval)}]"


def _coefficient(found: Coefficient) -> str:
    if not math.isfinite(found.value):
        return "not defined"
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def _percent(value: float) -> str:
    return f"{format_percent(value)}%" if math.isfinite(value) else "-"


def _map(judged: RubricResults) -> TextTable:
    """Samples with different verdicts, by depth and length."""
    lengths = sorted({length for length, _ in judged.disagreement})
    depths = sorted({depth for _, depth in judged.disagreement}, key=lambda d: -1.0 if d is None else d)
    rows = []
    for depth in depths:
        found = [judged.disagreement.get((length, depth)) for length in lengths]
        rows.append((format_depth(depth), *(f"{f.differ} of {f.samples}" if f else "" for f in found)))
    title = "samples with different verdicts, depth down, length across"
    return TextTable(title, ("depth", *map(format_length, lengths)), rows, wrapped=True)
