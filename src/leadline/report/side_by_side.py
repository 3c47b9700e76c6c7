"""Models side by side in the terminal: accuracy by length, the furthest reader first, and every metric by length."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from leadline.report.comparison import Board, BoardCell, boards
from leadline.report.load import Run
from leadline.report.measures import Metric
from leadline.report.terminal import has_colours, small_print
from leadline.report.verdict import verdict
from leadline.report.words import NO_NUMBER, inert, length_words
from leadline.stats.intervals import Estimate


def show_side_by_side(runs: Sequence[Run], names: Sequence[str], console: Console) -> None:
    """A table of runs, under names of their own."""
    plain = not has_colours(console)
    asked = [(run, name) for run, name in zip(runs, names, strict=True) if run.table.tasks]
    if asked:
        verdicts = [verdict(run) for run, _ in asked]
        for board in boards([run for run, _ in asked], verdicts, [inert(name, 60) for _, name in asked]):
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
    lengths = map(length_words, board.lengths)
    grid = _grid(f"{board.reading} reading", "effective", *lengths, "average", plain=plain)
    for row in board.rows:
        effective, _, spread = row.effective.removesuffix(")").partition(" (95%: ")
        cells = (BoardCell(effective, spread), *row.cells, row.average)
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
    metrics: dict[Metric, None] = dict.fromkeys(m for run in runs for m in run.measures.estimates)
    for metric in metrics:
        found = [(name, run.measures.estimates.get(metric, {})) for name, run in zip(names, runs, strict=True)]
        lengths = sorted({length for _, by_length in found for length in by_length})
        title = f"{metric.task}: {metric.name}" + (f", {metric.unit}" if metric.unit else "")
        grid = _grid(inert(title, 60), *map(length_words, lengths), plain=plain)
        for name, by_length in found:
            cells = [_estimate_cell(by_length.get(n)) for n in lengths]
            grid.add_row(Text(inert(name, 60)), *map(_cell, cells), end_section=True)
        yield grid
