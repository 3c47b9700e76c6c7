"""Scores of published benchmarks in a report: a table of the terminal and the page, and JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leadline.core.format import format_length
from leadline.features.published.results import GroupScore, group_scores, means_over_tasks
from leadline.report.heatmap_data import short_name
from leadline.report.sections import ReportSection, SectionText
from leadline.report.text_table import TextTable
from leadline.results.run import Run
from leadline.results.summary import estimate_values
from leadline.stats.intervals import Estimate

CUT_NOTE = (
    "Prompts that were too long lost their middle (cut; in brackets the score of those sent whole), or were not sent."
)
MEMORY_NOTE = '"No text" is the score of the same questions asked without their text: what is answered from memory.'


def published_section(runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    """An entry point of `leadline.report_sections`."""
    if len(runs) > 1:
        return None
    scores = published_scores(runs[0])
    if not scores:
        return None
    notes = [CUT_NOTE] if any(row.cut or row.not_sent for row in scores) else []
    notes += [MEMORY_NOTE] if any(row.memory for row in scores) else []
    return ReportSection(
        "Published benchmarks, official scores",
        (*map(SectionText, notes), published_table(scores)),
        [published_values(row) for row in scores],
        link="Benchmarks",
        has_scores=True,
    )


def published_scores(run: Run) -> list[GroupScore]:
    """By length bin, difficulty and domain; empty without tasks of published data sets."""
    return group_scores(run.data_set_records, run.data_set_records_without_text)


def published_table(scores: Sequence[GroupScore]) -> TextTable:
    """By length bin, difficulty and domain, and the means over data sets. Empty columns are left out, so that the
    others fit a screen."""
    limits = {row.length for row in scores}
    columns: dict[str, Callable[[GroupScore], str]] = {"group": lambda row: short_name(row.group)}
    if len(limits) > 1:
        columns["limit"] = lambda row: format_length(row.length)
    columns["samples"] = lambda row: f"{row.score.n:,}" if row.score else "0"
    columns["score"] = lambda row: _format_score(row.score)
    if any(row.memory for row in scores):
        columns["no text"] = lambda row: _format_score(row.memory)
    if any(row.cut for row in scores):
        columns["cut"] = _format_cut
    if any(row.not_sent for row in scores):
        columns["not sent"] = lambda row: f"{row.not_sent:,}" if row.not_sent else ""
    rows = [(short_name(row.task), *(cell(row) for cell in columns.values())) for row in scores]
    for (length, group), mean in means_over_tasks(scores).items():
        shown = {"group": short_name(group), "limit": format_length(length), "score": f"{100 * mean:.2f}"}
        rows.append(("mean", *(shown.get(column, "") for column in columns)))
    limit = "" if len(limits) > 1 else f", prompts of at most {format_length(min(limits))}"
    return TextTable(f"official scores with 95% intervals{limit}", ("data set", *columns), rows, names=2)


def _format_score(score: Estimate | None) -> str:
    """A score to the digits that benchmarks print, and its interval."""
    if score is None:
        return ""
    return f"{100 * score.mean:.2f} ({100 * score.interval.low:.1f}–{100 * score.interval.high:.1f})"


def _format_cut(row: GroupScore) -> str:
    if not row.cut:
        return ""
    return f"{row.cut:,} ({100 * row.whole.mean:.2f})" if row.whole else f"{row.cut:,}"


def published_values(row: GroupScore) -> dict[str, Any]:
    """Scores in percent, as the benchmarks print them."""
    return {
        "task": row.task,
        "length": row.length,
        "group": row.group,
        "metric": row.metric,
        "score": estimate_values(row.score),
        "cut": row.cut,
        "not_sent": row.not_sent,
        "score_of_whole": estimate_values(row.whole),
        "score_without_text": estimate_values(row.memory),
    }
