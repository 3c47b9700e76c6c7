"""Scores as tables: a run of several tasks by task and length with RULER's averages, for the terminal, the page,
Markdown and LaTeX; strata, wrong answers, wordings and thinking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from leadline.core.errors import UsageError
from leadline.core.format import (
    NO_NUMBER,
    escape_markdown,
    format_length,
    format_number,
    format_percent,
    format_percent_range,
    sanitise,
)
from leadline.report.heatmap_data import ACCURACY, colour_at, ink_on, short_name
from leadline.report.text_table import TextTable, markdown_table
from leadline.results.run import Run
from leadline.results.table import wrong_answer_rows
from leadline.results.totals import is_shown
from leadline.results.verdict import verdict_by_task
from leadline.stats.intervals import Estimate
from leadline.stats.ruler_summary import THRESHOLD, SuiteRow, SuiteSummary, ranks

SUITE_TASKS = 4
"""From this many tasks on a run is shown as one table of tasks and lengths instead of a heatmap for each task."""
_PLAIN = box.Box("    \n    \n -- \n    \n -- \n -- \n    \n    \n", ascii=True)
_COLOURED = box.Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
NO_AVERAGES = (None, None, None)
BY_RULE = "by RULER's rule"
"""The column of RULER's effective lengths, which are not those of the verdict."""
RowKind = Literal["task", "category", "average", "interval", "published"]


# --- a run of several tasks ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScoreCell:
    """A number as text, and the share that it shows, where it has a colour."""

    text: str
    share: float | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    kind: RowKind
    name: str
    cells: tuple[ScoreCell, ...]


@dataclass(frozen=True, slots=True)
class SuiteTable:
    """Tasks, means of categories, and the averages of all: a column for each length, then RULER's summary."""

    header: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]

    def groups(self) -> Iterator[tuple[TableRow, bool]]:
        """Every row, and whether it is the last of its group."""
        kinds = ["average" if row.kind in ("interval", "published") else row.kind for row in self.rows]
        for at, row in enumerate(self.rows):
            yield row, at + 1 == len(self.rows) or kinds[at] != kinds[at + 1]


def suite_table(run: Run) -> SuiteTable:
    """Scores in percent with one digit, as in published tables."""
    found, table = _suite(run), run.table
    several = len(found.lengths) > 1
    summary = ("avg", *(("wAvg inc", "wAvg dec", BY_RULE) if several else ()))
    fewer = {key for key, tally in table.by_task_and_length.items() if 0 < tally.done < tally.planned}

    def row(kind: RowKind, one: SuiteRow) -> TableRow:
        scores = tuple(
            _score(one.scores.get(length), "*" if (one.name, length) in fewer else "") for length in found.lengths
        )
        means = one.averages or NO_AVERAGES
        effective = ScoreCell(str(one.effective) if one.effective else NO_NUMBER)
        ends = (*map(_score, means), effective) if several else (_score(means[0]),)
        return TableRow(kind, short_name(one.name), (*scores, *ends))

    rows = [row("task", task) for task in found.tasks]
    if len(found.categories) > 1:
        rows += [row("category", one) for one in found.categories]
    rows.append(row("average", found.whole))
    if not run.rule:
        rows.append(_interval_row(found.whole, found.lengths, several=several))
    other = found.published
    if other and any(abs(e.mean - found.whole.scores[n].mean) > 5e-4 for n, e in other.scores.items()):
        rows.append(row("published", other))
    header = ("task", *map(format_length, found.lengths), *summary)
    return SuiteTable(header, tuple(rows), tuple(_notes(run, several=several)))


def _suite(run: Run) -> SuiteSummary:
    if run.suite is None:
        raise UsageError(
            "the run has no answers to make a table of", where=str(run.folder), fix="continue it: run its command again"
        )
    return run.suite


def _score(found: Estimate | None, note: str = "") -> ScoreCell:
    return ScoreCell(f"{100 * found.mean:.1f}{note}", found.mean) if found else ScoreCell(NO_NUMBER)


def _interval_row(whole: SuiteRow, lengths: Sequence[int], *, several: bool) -> TableRow:
    means = whole.averages or NO_AVERAGES
    every = [*(whole.scores.get(length) for length in lengths), *(means if several else means[:1])]
    cells = [ScoreCell(format_percent_range(e.interval) if e else "") for e in every]
    return TableRow("interval", "95% interval", (*cells, *([ScoreCell("")] if several else [])))


def _notes(run: Run, *, several: bool) -> Iterator[str]:
    found = _suite(run)
    if several:
        yield "wAvg inc weighs the lengths 1, 2, 3 ... from the shortest, wAvg dec from the longest."
        yield _rule_note(found.threshold)
    widths = [2 * e.interval.half_width for row in found.tasks for e in row.scores.values()]
    if widths and not run.rule:
        yield f"The 95% interval of a task at one length is about {100 * median(widths):.0f} points wide."


def _rule_note(threshold: float) -> str:
    known = ", RULER's threshold" if threshold == THRESHOLD else ""
    return (
        f"By RULER's rule: the longest length whose own score is above {threshold:g}{known}, whatever shorter ones "
        "score. The effective length is that of a falling curve through all scores, so the two can differ."
    )


def suite_grid(run: Run, *, colour: bool) -> RenderableType:
    """The table of a suite in the terminal, cells in the colours of heatmaps."""
    table = suite_table(run)
    padding = (0, 0, 0, 0 if colour else 1)
    grid = Grid(box=_COLOURED if colour else _PLAIN, header_style="bold", padding=padding, pad_edge=False)
    grid.show_edge = False
    grid.add_column(table.header[0], overflow="fold")
    for title in table.header[1:]:
        grid.add_column(title.replace(" ", "\n"), justify="right", no_wrap=True)
    styles = {"task": "", "category": "", "average": "bold", "interval": "dim", "published": ""}
    for row, last in table.groups():
        cells = [_coloured(cell, colour=colour) for cell in row.cells]
        grid.add_row(Text(row.name), *cells, style=styles[row.kind], end_section=last)
    return Group(grid, *(Text(note, style="dim") for note in table.notes))


def _coloured(cell: ScoreCell, *, colour: bool) -> Text:
    if not colour or cell.share is None:
        return Text(f"{cell.text:>5} " if colour else cell.text)
    background = colour_at(ACCURACY, cell.share)
    return Text(f"{cell.text:>5} ", style=f"{ink_on(background)} on {background}")


def suite_markdown(run: Run) -> list[str]:
    """The lines of the table, and its notes."""
    table = suite_table(run)
    rows = [(row.kind, escape_markdown(row.name), *(cell.text for cell in row.cells)) for row in table.rows]
    shown = [[f"**{text}**" if kind == "average" else text for text in texts] for kind, *texts in rows]
    return [*markdown_table(table.header, shown, names=1), "", *map(escape_markdown, table.notes)]


_LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    ">": "$>$", "<": "$<$",
})  # fmt: skip


def latex(runs: Sequence[Run], names: Sequence[str]) -> str:
    """A table for a paper (needs booktabs): of one run by task, of several by run."""
    if len(runs) == 1:
        table = suite_table(runs[0])
        rows = [(row.name, [cell.text for cell in row.cells], last) for row, last in table.groups()]
        header = table.header
    else:
        lengths = sorted({length for run in runs for length in _suite(run).lengths})
        header = ("model", *map(format_length, lengths), "avg", "wAvg inc", "wAvg dec", BY_RULE)
        rows = [(name, cells, False) for name, cells in zip(names, _board_cells(runs, lengths), strict=True)]
    lines = [rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}", r"\toprule", _latex_row(header), r"\midrule"]
    for at, (name, cells, last) in enumerate(rows):
        lines.append(_latex_row((name, *cells)))
        lines += [r"\midrule"] if last and at + 1 < len(rows) else []
    notes = [f"% {_rule_note(_suite(runs[0]).threshold)}"] if BY_RULE in header else []
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *notes, ""])


def _board_cells(runs: Sequence[Run], lengths: Sequence[int]) -> list[list[str]]:
    """The cells of each run; behind both weighted averages its rank among the runs, as in RULER's table."""
    suites = [_suite(run).whole for run in runs]
    averages: list[Sequence[Estimate | None]] = [whole.averages or NO_AVERAGES for whole in suites]
    places = [
        ranks([mean.mean if mean else -1.0 for mean in column]) for column in list(zip(*averages, strict=True))[1:]
    ]
    rows = []
    for number, (whole, (average, *weighted)) in enumerate(zip(suites, averages, strict=True)):
        scores = (*(whole.scores.get(length) for length in lengths), average)
        ranked = (
            f"{_score(mean).text} ({place[number]})" if mean else _score(mean).text
            for mean, place in zip(weighted, places, strict=True)
        )
        rows.append([*(_score(one).text for one in scores), *ranked, str(whole.effective or NO_NUMBER)])
    return rows


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"


# --- tables for the terminal and the page -------------------------------------------------------


def verdict_table(run: Run) -> TextTable:
    """A row for every task, if one of them has strata."""
    rows = []
    for one in verdict_by_task(run) if run.strata else ():
        effective = str(one.effective) if one.effective else NO_NUMBER
        weakest = f"{one.weakest.value}: {_with_interval(one.weakest_mean)}" if one.weakest else ""
        mistake = f"{one.mistake} ({one.mistakes:,})" if one.mistake else ""
        named = (effective, format_length(one.longest), _with_interval(one.mean), weakest, mistake)
        rows.append((short_name(one.task), *(sanitise(text, 80) for text in named)))
    columns = ("task", "effective length", "longest", "score there", "weakest stratum there", "usual mistake")
    return TextTable("verdict by task", columns, rows, names=len(columns))


def stratum_table(run: Run) -> TextTable:
    lengths = run.table.lengths
    rows = [
        (short_name(s.task), short_name(s.value), *(_with_interval(s.by_length.get(n)) for n in lengths))
        for s in run.strata
    ]
    columns = ("task", "stratum", *map(format_length, lengths))
    return TextTable("by what was asked, percent with 95% intervals", columns, rows, names=2)


def absent_table(run: Run) -> TextTable:
    """Questions without an answer: rates in percent with their intervals and numbers of questions."""
    columns = ("task", "length", "accuracy where there is an answer", "false abstentions", "false alarms")
    rows = []
    for one in run.absent:
        rates = (one.accuracy, one.false_abstentions, one.false_alarms)
        shown = (_with_interval(rate) + (f", {rate.n:,}" if rate else "") for rate in rates)
        rows.append((short_name(one.task), format_length(one.length), *shown))
    return TextTable("questions without an answer, percent with 95% intervals", columns, rows, wrapped=True)


def wording_table(run: Run) -> TextTable:
    """The lowest and highest score with the number of the wording."""
    rows = []
    for one in run.wordings:
        ends = [f"{format_percent(score)} (no. {number})" for number, score in (one.lowest, one.highest)]
        length = "all" if one.length is None else format_length(one.length)
        rows.append((short_name(one.task), length, _with_interval(one.mean), *ends, format_percent(one.deviation)))
    columns = ("task", "length", "mean (95%)", "lowest", "highest", "deviation")
    return TextTable("spread over wordings, percent; the same samples in every wording", columns, rows)


def _with_interval(found: Estimate | None) -> str:
    return NO_NUMBER if found is None else f"{format_percent(found.mean)} ({format_percent_range(found.interval)})"


def wrong_answer_table(run: Run) -> TextTable:
    """The classes of wrong answers, and what was seen in them, at every length."""
    rows = [
        (
            short_name(row.task),
            sanitise(str(row.answer), 80),
            *(f"{count:,}" if count else "" for count in row.counts),
        )
        for row in wrong_answer_rows(run.table)
    ]
    return TextTable("", ("task", "wrong answers", *map(format_length, run.table.lengths)), rows, names=2)


def thinking_table(runs: Sequence[Run], names: Sequence[str]) -> TextTable:
    """A row for each length of every run, with thinking or without; no rows if no run has any. One run goes unnamed."""
    several = len(runs) > 1
    rows = [
        (
            *([short_name(name)] if several else []),
            format_length(length),
            f"{format_percent(use.accuracy)}%",
            format_number(use.mean_tokens),
            format_number(use.most),
            format_number(use.allowed) if use.allowed else "the task's",
            f"{100 * use.cut_share:.1f}%",
        )
        for run, name in zip(runs, names, strict=True)
        for length, use in sorted(run.totals.thinking.items())
        if use.answers
    ]
    columns = (*(["run"] if several else []), "length", "accuracy", "thinking, mean", "most", "allowance", "cut off")
    shown = any(is_shown(run.totals.thinking) for run in runs)
    return TextTable("accuracy against thinking", columns, rows if shown else ())
