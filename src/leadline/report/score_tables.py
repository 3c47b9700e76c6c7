"""Scores as tables: a run of several tasks by task and length with RULER's averages, for the terminal, the page,
Markdown and LaTeX; strata, wrong answers, wordings and thinking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from leadline.core.errors import UsageError
from leadline.core.format import (
    NO_NUMBER,
    format_length,
    format_number,
    format_percent,
    format_percent_range,
    sanitise,
)
from leadline.report.heatmap_data import short_name
from leadline.report.text_table import TextCell, TextTable, latex
from leadline.results.run import Run
from leadline.results.table import Table, wrong_answer_rows
from leadline.results.totals import is_shown
from leadline.results.verdict import verdict_by_task
from leadline.stats.intervals import Estimate
from leadline.stats.ruler_summary import THRESHOLD, SuiteRow, SuiteSummary, ranks

SUITE_TASKS = 4
"""From this many tasks on a run is shown as one table of tasks and lengths instead of a heatmap for each task."""
NO_AVERAGES = (None, None, None)
BY_RULE = "by RULER's rule"
"""The column of RULER's effective lengths, which are not those of the verdict."""


# --- a run of several tasks ---------------------------------------------------------------------


def suite_table(run: Run) -> TextTable:
    """Tasks, means of categories, and the averages of all: a column for each length, then RULER's summary. Scores in
    percent with one digit, as in published tables."""
    summary, table = _suite(run), run.table
    several = len(summary.lengths) > 1
    fewer = {key for key, tally in table.by_task_and_length.items() if 0 < tally.done < tally.planned}

    def row(part: SuiteRow) -> tuple[str | TextCell, ...]:
        scores = (
            _score(part.scores.get(length), "*" if (part.name, length) in fewer else "") for length in summary.lengths
        )
        means = part.averages or NO_AVERAGES
        effective = str(part.effective) if part.effective else NO_NUMBER
        averages = (*map(_score, means), TextCell(effective)) if several else (_score(means[0]),)
        return short_name(part.name), *scores, *averages

    tasks = [row(task) for task in summary.tasks]
    categories = [row(part) for part in summary.categories] if len(summary.categories) > 1 else []
    rows = [*tasks, *categories, row(summary.whole)]
    average = len(rows) - 1
    if not run.rule:
        rows.append(_interval_row(summary.whole, summary.lengths, several=several))
    other = summary.published
    if other and any(abs(e.mean - summary.whole.scores[n].mean) > 5e-4 for n, e in other.scores.items()):
        rows.append(row(other))
    titles = ("avg", *(("wAvg inc", "wAvg dec", BY_RULE) if several else ()))
    return TextTable(
        "",
        ("task", *map(format_length, summary.lengths), *titles),
        rows,
        ends=frozenset({len(tasks) - 1, len(tasks) + len(categories) - 1, len(rows) - 1}),
        bold=frozenset({average}),
        quiet=frozenset() if run.rule else frozenset({average + 1}),
        notes=tuple(_notes(run, several=several)),
    )


def _suite(run: Run) -> SuiteSummary:
    if run.suite is None:
        raise UsageError(
            "the run has no answers to make a table of", where=str(run.folder), fix="continue it: run its command again"
        )
    return run.suite


def _score(estimate: Estimate | None, note: str = "") -> TextCell:
    return TextCell(f"{100 * estimate.mean:.1f}{note}", share=estimate.mean) if estimate else TextCell(NO_NUMBER)


def _interval_row(whole: SuiteRow, lengths: Sequence[int], *, several: bool) -> tuple[str, ...]:
    means = whole.averages or NO_AVERAGES
    every = [*(whole.scores.get(length) for length in lengths), *(means if several else means[:1])]
    intervals = [format_percent_range(e.interval) if e else "" for e in every]
    return "95% interval", *intervals, *([""] if several else [])


def _notes(run: Run, *, several: bool) -> Iterator[str]:
    summary = _suite(run)
    if several:
        yield "wAvg inc weighs the lengths 1, 2, 3 ... from the shortest, wAvg dec from the longest."
        yield _rule_note(summary.threshold)
    widths = [2 * e.interval.half_width for row in summary.tasks for e in row.scores.values()]
    if widths and not run.rule:
        yield f"The 95% interval of a task at one length is about {100 * median(widths):.0f} points wide."


def _rule_note(threshold: float) -> str:
    known = ", RULER's threshold" if threshold == THRESHOLD else ""
    return (
        f"By RULER's rule: the longest length whose own score is above {threshold:g}{known}, whatever shorter ones "
        "score. The effective length is that of a falling curve through all scores, so the two can differ."
    )


def board_table(runs: Sequence[Run], names: Sequence[str]) -> TextTable:
    """The averages of several runs in RULER's columns, for a paper. Behind both weighted averages is the rank among the
    runs, as in RULER's table."""
    lengths = sorted({length for run in runs for length in _suite(run).lengths})
    suites = [_suite(run).whole for run in runs]
    averages: list[Sequence[Estimate | None]] = [whole.averages or NO_AVERAGES for whole in suites]
    ranked = [
        ranks([mean.mean if mean else -1.0 for mean in column]) for column in list(zip(*averages, strict=True))[1:]
    ]
    rows: list[tuple[str, ...]] = []
    for number, (name, whole, (average, *weighted)) in enumerate(zip(names, suites, averages, strict=True)):
        scores = (_score(score).text for score in (*map(whole.scores.get, lengths), average))
        with_ranks = (
            f"{_score(mean).text} ({column[number]})" if mean else NO_NUMBER
            for mean, column in zip(weighted, ranked, strict=True)
        )
        rows.append((name, *scores, *with_ranks, str(whole.effective or NO_NUMBER)))
    columns = ("model", *map(format_length, lengths), "avg", "wAvg inc", "wAvg dec", BY_RULE)
    return TextTable("", columns, rows, notes=(_rule_note(_suite(runs[0]).threshold),))


def suite_latex(runs: Sequence[Run], names: Sequence[str]) -> str:
    """A table for a paper: of one run by task, of several by run."""
    if len(runs) > 1:
        return latex(board_table(runs, names))
    table = suite_table(runs[0])
    rule = _rule_note(_suite(runs[0]).threshold)
    return latex(table._replace(notes=tuple(note for note in table.notes if note == rule)))


def length_table(tables: Sequence[Table]) -> TextTable:
    """Every task at every length: planned, done, failed, mean and interval over all depths."""
    rows: list[tuple[str | TextCell, ...]] = []
    ends = set()
    for table in tables:
        for task in table.tasks:
            for length in table.lengths_of(task):
                tally = table.by_task_and_length[task, length]
                failed = TextCell(f"{tally.failed:,}", is_alarm=tally.failed > 0)
                mean = f"{format_percent(tally.mean)}%" if tally.mean is not None else NO_NUMBER
                counts = (f"{tally.planned:,}", f"{tally.done:,}", failed)
                rows.append(
                    (short_name(task), format_length(length), *counts, mean, format_percent_range(tally.interval))
                )
            ends.add(len(rows) - 1)
    columns = ("task", "length", "planned", "done", "failed", "mean", "95% interval")
    return TextTable("", columns, rows, ends=frozenset(ends))


# --- tables for the terminal and the page -------------------------------------------------------


def verdict_table(run: Run) -> TextTable:
    """A row for every task, if one of them has strata."""
    rows = []
    for task_verdict in verdict_by_task(run) if run.strata else ():
        effective = str(task_verdict.effective) if task_verdict.effective else NO_NUMBER
        weakest = (
            f"{task_verdict.weakest.value}: {_with_interval(task_verdict.weakest_mean)}" if task_verdict.weakest else ""
        )
        mistake = f"{task_verdict.mistake} ({task_verdict.mistakes:,})" if task_verdict.mistake else ""
        named = (effective, format_length(task_verdict.longest), _with_interval(task_verdict.mean), weakest, mistake)
        rows.append((short_name(task_verdict.task), *(sanitise(text, 80) for text in named)))
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
    for absent in run.absent:
        rates = (absent.accuracy, absent.false_abstentions, absent.false_alarms)
        shown = (_with_interval(rate) + (f", {rate.n:,}" if rate else "") for rate in rates)
        rows.append((short_name(absent.task), format_length(absent.length), *shown))
    return TextTable("questions without an answer, percent with 95% intervals", columns, rows, wrapped=True)


def wording_table(run: Run) -> TextTable:
    """The lowest and highest score with the number of the wording."""
    rows = []
    for wording in run.wordings:
        ends = [f"{format_percent(score)} (no. {number})" for number, score in (wording.lowest, wording.highest)]
        length = "all" if wording.length is None else format_length(wording.length)
        rows.append(
            (short_name(wording.task), length, _with_interval(wording.mean), *ends, format_percent(wording.deviation))
        )
    columns = ("task", "length", "mean (95%)", "lowest", "highest", "deviation")
    return TextTable("spread over wordings, percent; the same samples in every wording", columns, rows)


def _with_interval(estimate: Estimate | None) -> str:
    return (
        NO_NUMBER
        if estimate is None
        else f"{format_percent(estimate.mean)} ({format_percent_range(estimate.interval)})"
    )


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
