"""What figures, terminal and live page have in common: the colours of results, and the data of a heatmap.

`ACCURACY` runs from dark plum (0%) to pale mint (100%). Lightness increases throughout in even OKLab steps, so it works
in grey, in print and with any colour vision. `RED_GREEN`, for those who choose it, has the colours of many
published needle maps, and becomes lighter throughout as well. `DIFFERENCE` is orange for a loss and blue for a gain,
darker with size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final, Literal

from leadline.core.format import format_depth, format_length, format_percent, sanitise
from leadline.core.records import FailureClass
from leadline.results.table import GridPoint, Table, Tally, format_cell, format_grid_point, format_mean

Scale = Sequence[str]
Rgb = tuple[int, int, int]

# Piecewise linear in OKLCH: lightness .20 .36 .54 .73 .93, chroma .08 .11 .105 .095 .06, hue 335 300 245 200 160.
ACCURACY: Final = (
    "#2a0324", "#38113f", "#43225e", "#463a7d", "#3f5796", "#3174a7",
    "#3291b4", "#44acbc", "#6bc6c3", "#99decc", "#c6f5da",
)  # fmt: skip
# Piecewise linear in OKLCH: lightness .34 .52 .66 .80 .92, chroma .135 .16 .14 .15 .14, hue 25 32 60 105 135.
RED_GREEN: Final = (
    "#6d030e", "#841816", "#9b291e", "#b23a26", "#c35b1f", "#cf7b26",
    "#d49618", "#d1b32a", "#cace4f", "#c3e474", "#bcfa99",
)  # fmt: skip
Palette = Literal["plum-mint", "red-green"]
PALETTES: Final[Mapping[Palette, Scale]] = {"plum-mint": ACCURACY, "red-green": RED_GREEN}
_palette: ContextVar[Palette] = ContextVar("palette", default="plum-mint")
DIFFERENCE: Final = (
    "#7f2704", "#b3470c", "#dd7430", "#f1a672", "#f8d6bd", "#f4f4f2",
    "#c9ddee", "#8fbbdd", "#5191c2", "#24679f", "#0b3f70",
)  # fmt: skip
INK: Final = "#1c2733"
PAPER: Final = "#ffffff"

# Each of these four has one use, so that the page can replace them by its own light or dark colours.
HEAD: Final = "#17212b"
TEXT: Final = "#3b4855"
MUTED: Final = "#667381"
LINE: Final = "#e1e5ea"

CLASS_COLOURS: Final[dict[FailureClass, str]] = {
    "correct": "#b9ecd6",
    "partial": "#3291b4",
    "distractor": "#e69f00",
    "not_found": "#43225e",
    "false_abstention": "#6a51a3",
    "false_alarm": "#b15928",
    "wrong": "#9a3b6b",
    "empty": "#b8bec6",
    "refused": "#cc79a7",
    "cut_off": "#f0e442",
    "wrong_format": "#8c6d31",
    "input_truncated": "#d55e00",
    "error": "#a11d33",
    "measured": "#667381",
}


def accuracy_scale() -> Scale:
    """The colours of accuracy, from 0% to 100%: those of the palette that was chosen."""
    return PALETTES[_palette.get()]


@contextmanager
def drawn_in(palette: Palette) -> Iterator[None]:
    """Inside, accuracy is drawn in these colours."""
    before = _palette.set(palette)
    try:
        yield
    finally:
        _palette.reset(before)


def colour_at(scale: Scale, share: float) -> str:
    """The colour at 0..1 of a scale, between its stops."""
    position = min(max(share, 0.0), 1.0) * (len(scale) - 1)
    at = min(int(position), len(scale) - 2)
    low, high = rgb_of(scale[at]), rgb_of(scale[at + 1])
    mixed = (round(a + (b - a) * (position - at)) for a, b in zip(low, high, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def rgb_of(colour: str) -> Rgb:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return red, green, blue


def ink_on(colour: str) -> str:
    """Dark or white text, whichever contrasts more (relative luminance of WCAG 2)."""
    light = luminance(colour)
    return INK if (light + 0.05) / (luminance(INK) + 0.05) > 1.05 / (light + 0.05) else PAPER


def luminance(colour: str) -> float:
    red, green, blue = (_linear(part / 255) for part in rgb_of(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(part: float) -> float:
    return float(part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4)


# --- cells --------------------------------------------------------------------------------------

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
    def of(cls, place: GridPoint, tally: Tally, select: str, row: str) -> HeatmapCell:
        low, high = (tally.interval.low, tally.interval.high) if tally.interval else (None, None)
        note = "" if tally.done >= tally.planned else f"{tally.done} of {tally.planned}"
        label = format_cell(place, tally)
        cell = cls(
            row, format_length(place.length), tally.mean, format_percent(tally.mean), note, label, select, low, high
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
        found = {(cell.row, cell.column): cell for cell in self.cells}
        return [[found.get((row, column)) for column in self.columns] for row in self.rows]


def heatmaps_of(table: Table, run: int = 0) -> list[HeatmapData]:
    """A grid for every task with depths, then one whose rows are the tasks without.

    `run` is the number of the run on its page, so that a click finds its samples.
    """
    made = [task_heatmap(table, task, run) for task in table.tasks if table.has_depths(task)]
    without = [task for task in table.tasks if not table.has_depths(task)]
    return [*made, tasks_heatmap(table, without, run)] if without else made


def task_heatmap(table: Table, task: str, run: int = 0) -> HeatmapData:
    """Depths down, lengths across, and the mean over all depths for each length."""
    number, lengths, depths = table.tasks.index(task), table.lengths_of(task), table.depths_of(task)
    cells = [
        HeatmapCell.of(place, tally, selection(run, number, place.length, place.depth), format_depth(place.depth))
        for place, tally in table.cells.items()
        if place.task == task
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
