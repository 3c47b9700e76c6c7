"""A run in the terminal: a table of lengths, and the heatmap in colour blocks where the terminal has them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from leadline.core.format import (
    NO_NUMBER,
    format_count,
    format_depth,
    format_length,
    format_percent,
    format_percent_range,
    format_time,
    sanitise,
)
from leadline.report.colours import ACCURACY, colour_at, ink_on
from leadline.report.comparison import Board, BoardCell, boards
from leadline.results.follow import FailedSample
from leadline.results.progress import Progress
from leadline.results.run import MetricName, Run, format_interval_kind, load_run
from leadline.results.table import Place, Tally, detail_rows
from leadline.results.verdict import shapes, verdict
from leadline.stats.intervals import Estimate
from leadline.stats.no_context import FromMemory, from_memory
from leadline.store.runs import read_records

# --- A run in the terminal: a table of lengths, and the heatmap in colour blocks where the terminal has t


def print_summary(folder: Path | str, console: Console) -> None:
    """The final screen of a run, and what `leadline report` prints."""
    show_run(load_run(folder), console)


def show_run(run: Run, console: Console) -> None:
    colourful = has_colours(console)
    console.print(heading(run))
    console.print(Text(verdict(run).claim, style="bold"))
    for sentence in shapes(run):
        console.print(Text(sentence))
    if run.table.tasks or run.no_context.tasks:
        console.print(length_table(run, plain=not colourful))
    for map_ in heatmaps(run, colourful=colourful):
        console.print(map_)
    if run.table.details:
        console.print(detail_table(run, plain=not colourful))
    if run.logprobs:
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
    return Text.assemble((sanitise(run.label, 80), "bold"), " · ", (sanitise(" · ".join(facts), 200), "dim"))


def length_table(run: Run, *, plain: bool) -> Grid:
    """Every task at every length: planned, done, failed, mean and interval over all depths."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold")
    grid.add_column("task", overflow="fold")  # names give way to numbers where there is not room for both
    for title in ("length", "planned", "done", "failed", "mean", "95% interval"):
        grid.add_column(title, justify="right", no_wrap=True)
    for table in (run.table, run.no_context):  # what is answered from memory stands below what was read
        for task in table.tasks:
            lengths = table.lengths_of(task)
            for length in lengths:
                tally = table.by_task_and_length[task, length]
                name = Text(sanitise(task, 40) if length == lengths[0] or plain else "")
                grid.add_row(name, format_length(length), *_numbers(tally), end_section=length == lengths[-1])
    return grid


def detail_table(run: Run, *, plain: bool) -> Grid:
    """What wrong answers had in common, at every length."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold", title="seen in wrong answers")
    grid.add_column("task", overflow="fold")
    grid.add_column("what")
    for length in run.table.lengths:
        grid.add_column(format_length(length), justify="right", no_wrap=True)
    for row in detail_rows(run.table):
        counts = [f"{count:,}" if count else "" for count in row.counts]
        grid.add_row(Text(sanitise(row.task, 40)), Text(sanitise(row.detail, 60)), *counts)
    return grid


def measure_table(run: Run, *, plain: bool) -> Grid:
    """Every log-probability metric at every length."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold")
    grid.add_column("metric", no_wrap=True)
    for title in ("length", "docs", "mean", "95% interval"):
        grid.add_column(title, justify="right", no_wrap=True)
    grid.add_column("unit")
    names = [metric.name for metric in run.logprobs.estimates]
    for metric, lengths in run.logprobs.estimates.items():
        for length, found in lengths.items():
            low, high = found.interval.low, found.interval.high
            name = sanitise(metric.name if names.count(metric.name) == 1 else f"{metric.task}: {metric.name}", 48)
            row = [name, format_length(length), str(found.n_clusters), f"{found.mean:.4g}", f"{low:.4g} to {high:.4g}"]
            grid.add_row(*map(Text, row), Text(sanitise(metric.unit, 60)))
    return grid


def _numbers(tally: Tally) -> Iterator[Text]:
    yield Text(f"{tally.planned:,}")
    yield Text(f"{tally.done:,}")
    yield Text(f"{tally.failed:,}", style="bold red" if tally.failed else "dim")
    known = tally.mean is not None
    yield Text(f"{format_percent(tally.mean)}%" if known else NO_NUMBER, style="bold" if known else "dim")
    yield Text(format_percent_range(tally.interval))


def heatmaps(run: Run, *, colourful: bool) -> Iterator[RenderableType]:
    """Depth down, length across, one map for every task that has depths."""
    for task in run.table.tasks:
        if run.table.has_depths(task):
            title = Text(f"{sanitise(task, 60)}: accuracy in percent, depth down, length across", style="bold")
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
        grid.add_row(Text(f"{format_depth(depth)} "), *cells)
    grid.add_row(Text(), *(Text(f"{format_length(n):^6}" if colourful else format_length(n)) for n in lengths))
    return grid


def block(tally: Tally | None, *, colourful: bool) -> Text:
    """One cell of a map."""
    if tally is None or tally.mean is None:
        return Text(f"{'·':^6}" if colourful else "·", style="dim")
    words = format_percent(tally.mean) + ("*" if tally.done < tally.planned else "")
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
        lines.append(
            f"The run stopped by itself (until {sanitise(run.rule, 60)}). Intervals are {format_interval_kind(run)}."
        )
    if whole.failed:
        kinds = ", ".join(f"{sanitise(kind)} {count}" for kind, count in sorted(totals.failures.items()))
        said = f"{format_count(whole.failed, 'sample')} failed ({kinds})"
        brought = f"; counted as wrong, they would bring the overall mean from {format_percent(whole.mean)}%"
        lines.append(f"{said}{brought} to {format_percent(whole.if_failed_wrong)}%." if whole.done else f"{said}.")
    if run.no_context.tasks:
        lines.extend(_memory_words(run))
    if run.logprobs.failed:
        lines.append(f"{format_count(run.logprobs.failed, 'document')} gave no log-probabilities.")
    if any(t.estimate is None for t in cells):
        lines.append("· is a cell without data.")
    if any(t.estimate and t.done < t.planned for t in cells):
        lines.append("* marks a cell with fewer answers than planned.")
    if totals.receipts.different:
        lines.append(
            f"{format_count(totals.receipts.different, 'receipt')} differ: the server says it read another number of "
            "tokens than was sent, so these answers may be about a shortened text."
        )
    lines += [f"Note on {format_count(n, 'sample')}: {sanitise(note)}" for note, n in sorted(totals.notes.items())]
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
            f"{sanitise(task, 40)}: {right:,} of {both:,} questions are answered right without their documents; "
            f"{same:,} of {wrong:,} wrong answers are those from memory."
        )


# --- Models side by side in the terminal: accuracy by length, the furthest reader first, and every metric by length.


def show_side_by_side(runs: Sequence[Run], names: Sequence[str], console: Console) -> None:
    """A table of runs, under names of their own."""
    plain = not has_colours(console)
    asked = [(run, name) for run, name in zip(runs, names, strict=True) if run.table.tasks]
    if asked:
        verdicts = [verdict(run) for run, _ in asked]
        for board in boards([run for run, _ in asked], verdicts, [sanitise(name, 60) for _, name in asked]):
            console.print(_board_table(board, plain=plain))
        console.print(Text("Accuracy in percent. Below every number its 95% interval over documents.", style="dim"))
    for table in _metric_tables(runs, names, plain=plain):
        console.print(table)
    for line in dict.fromkeys(line for run in runs for line in small_print(run)):
        console.print(Text(line, style="dim"))


def _grid(*titles: str, plain: bool) -> Grid:
    """The first column is of names, the others are of numbers."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold")
    grid.add_column(titles[0], overflow="fold")
    for title in titles[1:]:
        grid.add_column(title, justify="right", no_wrap=True)
    return grid


def _board_table(board: Board, *, plain: bool) -> Grid:
    lengths = map(format_length, board.lengths)
    grid = _grid(f"{board.reading} reading", "effective", *lengths, "average", plain=plain)
    for row in board.rows:
        cells = (row.effective_cell, *row.cells, row.average)
        grid.add_row(Text(row.name), *map(_cell, cells), end_section=True)
    return grid


def _cell(cell: BoardCell) -> Text:
    """The interval below the mean, so that eight lengths fit a screen."""
    return Text.assemble((cell.mean, "bold"), (f"\n{cell.spread}" if cell.spread else "", "dim"))


def _estimate_cell(found: Estimate | None) -> BoardCell:
    if found is None:
        return BoardCell(NO_NUMBER, "")
    return BoardCell(f"{found.mean:.4g}", f"{found.interval.low:.4g} to {found.interval.high:.4g}")


def _metric_tables(runs: Sequence[Run], names: Sequence[str], *, plain: bool) -> Iterator[Grid]:
    """One for each metric, since each has a unit of its own."""
    metrics: dict[MetricName, None] = dict.fromkeys(m for run in runs for m in run.logprobs.estimates)
    for metric in metrics:
        found = [(name, run.logprobs.estimates.get(metric, {})) for name, run in zip(names, runs, strict=True)]
        lengths = sorted({length for _, by_length in found for length in by_length})
        title = f"{metric.task}: {metric.name}" + (f", {metric.unit}" if metric.unit else "")
        grid = _grid(sanitise(title, 60), *map(format_length, lengths), plain=plain)
        for name, by_length in found:
            cells = [_estimate_cell(by_length.get(n)) for n in lengths]
            grid.add_row(Text(sanitise(name, 60)), *map(_cell, cells), end_section=True)
        yield grid


# --- A growing run as one screen of a terminal: how far it is, its map so far, and what failed last.

SHOWN_FAILURES = 4
_OTHER_LINES = 8
"""Of a screen: heading, bar, hint, and room around them."""


def run_screen(
    run: Run, progress: Progress, failures: Sequence[FailedSample], console: Console, hint: str = ""
) -> Group:
    """Never taller than the terminal, for what scrolls out of it cannot be redrawn."""
    told = list(failures)[-SHOWN_FAILURES:]
    room = console.height - _OTHER_LINES - (len(told) + 2 if told else 0)
    parts: list[RenderableType] = [heading(run), bar(progress)]
    if run.table.whole.done:
        parts += maps(run, room, colourful=has_colours(console))
    if told:
        parts += [Text(), Text("failed last", style="bold")]
        parts += [Text(failure_line(one), style="red", no_wrap=True, overflow="ellipsis") for one in told]
    if hint:
        parts += [Text(), Text(hint, style="dim")]
    return Group(*parts)


def bar(progress: Progress) -> RenderableType:
    words = Text(progress.describe(), no_wrap=True, overflow="ellipsis")
    if progress.planned is None:
        return words
    grid = Grid.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right")
    grid.add_row(ProgressBar(total=max(1, progress.planned), completed=progress.asked), words)
    return grid


def maps(run: Run, room: int, *, colourful: bool) -> list[RenderableType]:
    """The maps of all tasks where they fit; else a row for each task, as many as fit."""
    table = run.table
    deep = [task for task in table.tasks if table.has_depths(task)]
    if len(deep) == len(table.tasks) and sum(len(table.depths_of(t)) + 3 for t in deep) <= room:
        return list(heatmaps(run, colourful=colourful))
    return list(_task_rows(run, max(3, room - 4), colourful=colourful))


def _task_rows(run: Run, rows: int, *, colourful: bool) -> Iterator[RenderableType]:
    table = run.table
    yield Text()
    yield Text("accuracy in percent, tasks down, length across", style="bold")
    grid = Grid(box=None, padding=(0, 0 if colourful else 1), show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    for _ in table.lengths:
        grid.add_column(justify="left" if colourful else "right", no_wrap=True)
    for task in table.tasks[:rows]:
        cells = [block(table.by_task_and_length.get((task, n)), colourful=colourful) for n in table.lengths]
        grid.add_row(Text(f"{sanitise(task, 24)} "), *cells)
    grid.add_row(Text(), *(Text(f"{format_length(n):^6}" if colourful else format_length(n)) for n in table.lengths))
    yield grid
    if len(table.tasks) > rows:
        yield Text(f"and {len(table.tasks) - rows} more tasks", style="dim")


def failure_line(failed: FailedSample) -> str:
    return f"{format_time(failed.at)}  {failed}"
