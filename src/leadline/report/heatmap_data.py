"""The data of a heatmap, the same for figures, terminal and live page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from leadline.core.format import format_depth, format_length, format_percent, sanitise
from leadline.core.records import FailureClass
from leadline.report.colours import Scale, accuracy_scale, colour_at, ink_on
from leadline.results.table import GridPoint, Table, Tally, format_cell, format_grid_point, format_mean

ANY = "*"


@dataclass(frozen=True, slots=True)
class HeatmapCell:
    """One cell as it is shown. Cells without data have no mean, colour or ink."""

    row: str
    column: str
    mean: float | None
    value: str
    """The mean as text."""
    note: str
    """`2 of 3` where fewer samples were answered than planned, else empty."""
    label: str
    """The cell in a sentence, for tooltips and screen readers."""
    select: str = ""
    """Which samples a click shows; see `selection`."""
    low: float | None = None
    high: float | None = None
    colour: str = ""
    ink: str = ""

    @classmethod
    def of(cls, point: GridPoint, tally: Tally, select: str, row: str) -> HeatmapCell:
        low, high = (tally.interval.low, tally.interval.high) if tally.interval else (None, None)
        note = "" if tally.done >= tally.planned else f"{tally.done} of {tally.planned}"
        label = format_cell(point, tally)
        cell = cls(
            row, format_length(point.length), tally.mean, format_percent(tally.mean), note, label, select, low, high
        )
        return cell if tally.mean is None else cell.coloured(accuracy_scale(), tally.mean)

    def coloured(self, scale: Scale, share: float) -> HeatmapCell:
        colour = colour_at(scale, share)
        return replace(self, colour=colour, ink=ink_on(colour))


@dataclass(frozen=True, slots=True)
class HeatmapData:
    """One grid of cells: lengths across; down the depths of a task, or tasks."""

    task: str
    """Empty where rows are tasks."""
    title: str
    rows_title: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[HeatmapCell, ...]
    means: tuple[HeatmapCell, ...] = ()
    """Over all depths, one for each length."""

    def grid(self) -> list[list[HeatmapCell | None]]:
        """Cells by row and column; None where nothing was planned."""
        cell_at = {(cell.row, cell.column): cell for cell in self.cells}
        return [[cell_at.get((row, column)) for column in self.columns] for row in self.rows]


def heatmaps_of(table: Table, run: int = 0) -> list[HeatmapData]:
    """A grid for every task with depths, then one whose rows are the tasks without.

    `run` is the number of the run on its page, so that a click finds its samples.
    """
    maps = [task_heatmap(table, task, run) for task in table.tasks if table.has_depths(task)]
    without = [task for task in table.tasks if not table.has_depths(task)]
    return [*maps, tasks_heatmap(table, without, run)] if without else maps


def task_heatmap(table: Table, task: str, run: int = 0) -> HeatmapData:
    """Depths down, lengths across, and the mean over all depths for each length."""
    number, lengths, depths = table.tasks.index(task), table.lengths_of(task), table.depths_of(task)
    cells = [
        HeatmapCell.of(point, tally, selection(run, number, point.length, point.depth), format_depth(point.depth))
        for point, tally in table.cells.items()
        if point.task == task
    ]
    means = [_mean(task, n, table.by_task_and_length[task, n], selection(run, number, n)) for n in lengths]
    columns, rows = map(format_length, lengths), map(format_depth, depths)
    return HeatmapData(task, short_name(task, 60), "depth", tuple(columns), tuple(rows), tuple(cells), tuple(means))


def tasks_heatmap(table: Table, tasks: Sequence[str], run: int = 0) -> HeatmapData:
    """Tasks down, lengths across."""
    cells = [
        HeatmapCell.of(
            GridPoint(task, length, None), tally, selection(run, table.tasks.index(task), length), short_name(task)
        )
        for (task, length), tally in table.by_task_and_length.items()
        if task in tasks
    ]
    columns = tuple(map(format_length, table.lengths))
    return HeatmapData("", "", "task", columns, tuple(map(short_name, tasks)), tuple(cells))


def short_name(text: str, limit: int = 40) -> str:
    """A task, or the value of an option, as the title of a row or a line. Long ones lose their middle: those of a sweep
    begin alike, and rows or lines with the same title would be drawn over each other."""
    name = sanitise(text, None)
    return name if len(name) <= limit else f"{name[: limit // 2]}…{name[1 - limit // 2 :]}"


def _mean(task: str, length: int, tally: Tally, select: str) -> HeatmapCell:
    label = f"{format_grid_point(task, length, None)}, all depths: {format_mean(tally)}, {tally.done} answered"
    return replace(HeatmapCell.of(GridPoint(task, length, None), tally, select, "all"), label=label)


def selection(
    run: int,
    task: int | None = None,
    length: int | None = None,
    depth: float | str | None = ANY,
    failure_class: FailureClass | None = None,
) -> str:
    """`run/task/length/depth/class`: numbers of run and task, tokens, depth (`-` for none); `*` for any."""
    parts = (run, task, length, "-" if depth is None else depth, failure_class)
    return "/".join(ANY if part is None else str(part) for part in parts)
