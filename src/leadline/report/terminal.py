"""A run in the terminal: a table of lengths, and the heatmap in colour blocks where the terminal has them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table as Grid
from rich.text import Text

from leadline.report.colours import ACCURACY, colour_at, ink_on
from leadline.report.details import detail_rows
from leadline.report.load import Run, interval_words, load_run
from leadline.report.table import Place, Tally
from leadline.report.verdict import shapes, verdict
from leadline.report.words import (
    NO_NUMBER,
    count_words,
    depth_words,
    inert,
    length_words,
    percent,
    percent_range,
)
from leadline.stats.memory import FromMemory, from_memory
from leadline.store.runs import read_records


def print_summary(folder: Path | str, console: Console) -> None:
    """The final screen of a run, and what `leadline report` prints."""
    show_run(load_run(folder), console)


def show_run(run: Run, console: Console) -> None:
    colourful = has_colours(console)
    console.print(heading(run))
    console.print(Text(verdict(run).claim, style="bold"))
    for sentence in shapes(run):
        console.print(Text(sentence))
    if run.table.tasks or run.memory.tasks:
        console.print(length_table(run, plain=not colourful))
    for map_ in heatmaps(run, colourful=colourful):
        console.print(map_)
    if run.table.details:
        console.print(detail_table(run, plain=not colourful))
    if run.measures:
        console.print(measure_table(run, plain=not colourful))
    for line in small_print(run):
        console.print(Text(line, style="dim"))


def has_colours(console: Console) -> bool:
    """Whether blocks of colour would be seen as such: not in a pipe, not in CI, not with NO_COLOR."""
    logged = os.environ.get("CI", "") not in ("", "0", "false") and not os.environ.get("FORCE_COLOR")
    seen = console.is_terminal and not console.no_color and not logged
    return seen and console.color_system in ("256", "truecolor")


def heading(run: Run) -> Text:
    facts = [f"{run.reading} reading", run.date, str(run.folder)]
    facts[:0] = [run.model] if run.manifest.name else []
    return Text.assemble((inert(run.label, 80), "bold"), " · ", (inert(" · ".join(facts), 200), "dim"))


def length_table(run: Run, *, plain: bool) -> Grid:
    """Every task at every length: planned, done, failed, mean and interval over all depths."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold")
    grid.add_column("task", overflow="fold")  # names give way to numbers where there is not room for both
    for title in ("length", "planned", "done", "failed", "mean", "95% interval"):
        grid.add_column(title, justify="right", no_wrap=True)
    for table in (run.table, run.memory):  # what is answered from memory stands below what was read
        for task in table.tasks:
            lengths = table.lengths_of(task)
            for length in lengths:
                tally = table.by_task_and_length[task, length]
                name = Text(inert(task, 40) if length == lengths[0] or plain else "")
                grid.add_row(name, length_words(length), *_numbers(tally), end_section=length == lengths[-1])
    return grid


def detail_table(run: Run, *, plain: bool) -> Grid:
    """What wrong answers had in common, at every length."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold", title="seen in wrong answers")
    grid.add_column("task", overflow="fold")
    grid.add_column("what")
    for length in run.table.lengths:
        grid.add_column(length_words(length), justify="right", no_wrap=True)
    for row in detail_rows(run.table):
        counts = [f"{count:,}" if count else "" for count in row.counts]
        grid.add_row(Text(inert(row.task, 40)), Text(inert(row.detail, 60)), *counts)
    return grid


def measure_table(run: Run, *, plain: bool) -> Grid:
    """Every log-probability metric at every length."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold")
    grid.add_column("metric", no_wrap=True)
    for title in ("length", "docs", "mean", "95% interval"):
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column("unit")
    names = [metric.name for metric in run.measures.estimates]
    for metric, lengths in run.measures.estimates.items():
        for length, found in lengths.items():
            low, high = found.interval.low, found.interval.high
            name = inert(metric.name if names.count(metric.name) == 1 else f"{metric.task}: {metric.name}", 48)
            row = [name, length_words(length), str(found.n_clusters), f"{found.mean:.4g}", f"{low:.4g} to {high:.4g}"]
            grid.add_row(*map(Text, row), Text(inert(metric.unit, 60)))
    return grid


def _numbers(tally: Tally) -> Iterator[Text]:
    yield Text(f"{tally.planned:,}")
    yield Text(f"{tally.done:,}")
    yield Text(f"{tally.failed:,}", style="bold red" if tally.failed else "dim")
    known = tally.mean is not None
    yield Text(f"{percent(tally.mean)}%" if known else NO_NUMBER, style="bold" if known else "dim")
    yield Text(percent_range(tally.interval))


def heatmaps(run: Run, *, colourful: bool) -> Iterator[RenderableType]:
    """Depth down, length across, one map for every task that has depths."""
    for task in run.table.tasks:
        if run.table.has_depths(task):
            title = Text(f"{inert(task, 60)}: accuracy in percent, depth down, length across", style="bold")
            yield Group(Text(), title, _heatmap(run, task, colourful=colourful))


def _heatmap(run: Run, task: str, *, colourful: bool) -> Grid:
    table = run.table
    grid = Grid(box=None, padding=(0, 0 if colourful else 1), show_header=False, pad_edge=False)
    lengths = table.lengths_of(task)
    grid.add_column(justify="right", no_wrap=True)
    for _ in lengths:
        grid.add_column(justify="left" if colourful else "right", no_wrap=True)
    for depth in table.depths_of(task):
        cells = [block(table.cells.get(Place(task, length, depth)), colourful=colourful) for length in lengths]
        grid.add_row(Text(f"{depth_words(depth)} "), *cells)
    grid.add_row(Text(), *(Text(f"{length_words(n):^6}" if colourful else length_words(n)) for n in lengths))
    return grid


def block(tally: Tally | None, *, colourful: bool) -> Text:
    """One cell of a map."""
    if tally is None or tally.mean is None:
        return Text(f"{'·':^6}" if colourful else "·", style="dim")
    words = percent(tally.mean) + ("*" if tally.done < tally.planned else "")
    if not colourful:
        return Text(words)
    colour = colour_at(ACCURACY, tally.mean)
    return Text(f"{words:^6}", style=f"{ink_on(colour)} on {colour}")


def small_print(run: Run) -> list[str]:
    """How to read the numbers, and everything about them that a reader must know."""
    whole, totals = run.table.whole, run.totals
    cells = list(run.table.cells.values())
    lines = [run.table.counting_rule]
    if run.rule:
        lines.append(f"The run stopped by itself (until {inert(run.rule, 60)}). Intervals are {interval_words(run)}.")
    if whole.failed:
        kinds = ", ".join(f"{inert(kind)} {count}" for kind, count in sorted(totals.failures.items()))
        said = f"{count_words(whole.failed, 'sample')} failed ({kinds})"
        brought = f"; counted as wrong, they would bring the overall mean from {percent(whole.mean)}%"
        lines.append(f"{said}{brought} to {percent(whole.if_failed_wrong)}%." if whole.done else f"{said}.")
    if run.memory.tasks:
        lines.extend(_memory_words(run))
    if run.measures.failed:
        lines.append(f"{count_words(run.measures.failed, 'document')} gave no log-probabilities.")
    if any(t.estimate is None for t in cells):
        lines.append("· is a cell without data.")
    if any(t.estimate and t.done < t.planned for t in cells):
        lines.append("* marks a cell with fewer answers than planned.")
    if totals.receipts_wrong:
        lines.append(
            f"{count_words(totals.receipts_wrong, 'receipt')} differ: the server says it read another number of "
            "tokens than was sent, so these answers may be about a shortened text."
        )
    lines += [f"Note on {count_words(n, 'sample')}: {inert(note)}" for note, n in sorted(totals.notes.items())]
    return lines


def _memory_words(run: Run) -> Iterator[str]:
    """How much of what was answered needed no document, task by task."""
    tasks: dict[str, list[FromMemory]] = {}
    for found in from_memory(read_records(run.folder)):
        tasks.setdefault(found.task, []).append(found)
    for task, lengths in tasks.items():
        both, right, wrong, same = (
            sum(getattr(found, name) for found in lengths)
            for name in ("both", "right_without", "wrong", "wrong_from_memory")
        )
        yield (
            f"{inert(task, 40)}: {right:,} of {both:,} questions are answered right without their documents; "
            f"{same:,} of {wrong:,} wrong answers are those from memory."
        )
