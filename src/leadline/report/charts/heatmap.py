"""The heatmap: length across, depth down, colour for accuracy; and the cells of the other grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import altair as alt
import numpy as np

from leadline.core.format import format_count, format_depth, format_length, format_percent, sanitise
from leadline.report.charts.theme import (
    QUIET,
    ChartRow,
    ChartSpec,
    Figure,
    caption,
    layered,
    panel_title,
    rows_of,
    selectable,
    unchecked,
)
from leadline.report.colours import DIFFERENCE, HEAD, MUTED, TEXT, accuracy_scale
from leadline.report.heatmap_data import HeatmapCell, HeatmapData, heatmaps_of
from leadline.results.run import Run, format_interval_kind
from leadline.results.table import Table, format_cell
from leadline.results.verdict import reading_warning
from leadline.stats.smooth import SmoothSurface, smooth

TASKS_PANEL = -1
"""The panel whose rows are tasks without depths."""
SMOOTHED = (
    "Smoothed: neighbouring lengths and depths inform each other. Under each number: correct / answered. "
    "An aid for reading, not the measurement."
)
CELL_SCALE = alt.Scale(paddingInner=0.05, paddingOuter=0)
LABEL_LIMIT, SHORT_LABEL = 230, 16
"""Width of a row label in pixels, and characters that always fit it."""
_NO_DATA = "datum.mean === null"
_CELL: dict[str, Any] = {"cornerRadius": 2, "ariaRoleDescription": "cell"}


@unchecked
def heatmap(run: Run, *, titled: bool = True, narrow: bool = False, smoothed: bool = False, at: int = 0) -> Figure:
    """A panel for every task with depths, and one for all tasks without.

    `narrow` sizes it for a column of a paper. `at` is the number of the run on a page, so that a click finds its
    samples.
    """
    table = run.table
    panels = heatmaps_of(table, at)
    if smoothed:
        panels = [_smoothed(table, panel) for panel in panels]
    deep = [panel for panel in panels if panel.means]
    columns = columns_for(len(deep), narrow=narrow)
    size = CellSize.fitting(len(table.lengths), max((len(p.rows) for p in deep), default=1), columns, narrow=narrow)
    cells: list[ChartRow] = []
    means: list[ChartRow] = []
    for number, panel in enumerate(panels):
        where = {"panel": number if panel.means else TASKS_PANEL}
        cells += [cell_row(cell) | where for cell in panel.cells]
        means += [cell_row(mean) | where for mean in panel.means]
    parts: list[ChartSpec] = []
    for start in range(0, len(deep), columns):
        row = [
            _task_panel(table, number, deep[number], size, first=number == start, last=number + columns >= len(deep))
            for number in range(start, min(start + columns, len(deep)))
        ]
        parts.append({"hconcat": row, "spacing": 30} if len(row) > 1 else row[0])
    parts += [_tasks_panel(panel, narrow=narrow) for panel in panels if not panel.means]
    notes, alternative = _caption(run), _alternative(run)
    if smoothed:
        notes, alternative = f"{SMOOTHED} {notes}", f"{SMOOTHED} {alternative}"
    chart: ChartSpec = {
        "vconcat": [*parts, caption(notes, columns * size.width if deep else 500)],
        "spacing": 20,
        "resolve": {"scale": {"fill": "shared"}},
    }
    if titled:
        chart["title"] = _heading(run)
    return Figure(chart, {"cells": cells, "means": means}, alternative)


def can_smooth(table: Table, task: str) -> bool:
    """Whether the task was answered at two lengths and two depths at least."""
    answered = table.counted.take(table.counted.task == task).counted()
    return len(answered.lengths) > 1 and len(np.unique(answered.depth[~np.isnan(answered.depth)])) > 1


# --- cells, shared with the task grid and the difference map ------------------------------------


@dataclass(frozen=True, slots=True)
class CellSize:
    """Of one panel of cells, in pixels at scale 1."""

    width: float
    height: float
    font: float
    """Font size of the numbers in cells; 0 leaves them out."""
    narrow: bool = False

    @classmethod
    def fitting(cls, columns: int, rows: int, panels: int = 1, *, narrow: bool = False) -> CellSize:
        """For a figure with `panels` side by side."""
        room = (330 if narrow else 560) if panels == 1 else (360 if narrow else 960) / panels - 70
        columns, rows = max(1, columns), max(1, rows)  # a run without an answer has none
        width = min(62.0, max(13.0, room / columns))
        height = min(24.0 if narrow else 31.0, max(8.0, (352 if panels == 1 else 190) / rows))
        return cls.exactly(columns, rows, width, height, narrow=narrow)

    @classmethod
    def exactly(cls, columns: int, rows: int, width: float, height: float, *, narrow: bool = False) -> CellSize:
        font = min(12.0, width / 2.8, height * 0.62)
        return cls(width * columns, height * rows, font if font >= 6.5 else 0.0, narrow)


@dataclass(frozen=True, slots=True)
class CellColour:
    """What the colour of a cell means."""

    title: str
    scale: alt.Scale
    ticks: tuple[float, ...]
    format: str


DIFFERENCE_COLOUR = CellColour(
    "points", alt.Scale(domain=[-50, 50], range=list(DIFFERENCE), clamp=True), (-50, -25, 0, 25, 50), "+d"
)


def accuracy_colour() -> CellColour:
    scale = alt.Scale(domain=[0, 1], range=list(accuracy_scale()), clamp=True)
    return CellColour("accuracy", scale, (0, 0.25, 0.5, 0.75, 1), ".0%")


def cell_row(cell: HeatmapCell) -> ChartRow:
    return {
        "length": cell.column, "row": cell.row, "mean": cell.mean, "low": cell.low, "high": cell.high,
        "value": cell.value, "note": cell.note, "colour": cell.colour, "ink": cell.ink,
        "label": selectable(cell.select, cell.label) if cell.select else cell.label,
    }  # fmt: skip


def columns_for(panels: int, *, narrow: bool = False) -> int:
    """How many panels stand side by side."""
    return 1 if panels <= 1 or narrow else 2 if panels <= 4 else 3


def length_columns(lengths: Sequence[str], *, titled: bool = True, axis: bool = True) -> alt.X:
    """A column for every length, also for those without data in this panel."""
    title = "context length (tokens)" if titled else None
    drawn = alt.Axis(labelAngle=0, labelOverlap=True, title=title, **QUIET) if axis else None
    scale = alt.Scale(domain=list(lengths), paddingInner=0.05, paddingOuter=0)
    return alt.X("length:O", sort=list(lengths), scale=scale, axis=drawn)


def named_rows(rows: Sequence[str], title: str | None) -> alt.Y:
    limit = LABEL_LIMIT if max(map(len, rows), default=0) > SHORT_LABEL else 0
    axis = alt.Axis(labelOverlap=True, labelLimit=limit, title=title, **QUIET)
    return alt.Y("row:O", sort=list(rows), scale=CELL_SCALE, axis=axis)


def heatmap_cells(x: alt.X, y: alt.Y, size: CellSize, colour: CellColour | None = None) -> ChartSpec:
    """Coloured cells with their numbers, and dashed outlines for cells without data. The caller joins the rows."""
    colour = colour or accuracy_colour()
    base = alt.Chart().encode(x, y)
    known, unknown = base.transform_filter(f"!({_NO_DATA})"), base.transform_filter(_NO_DATA)
    where: dict[str, Any] = {"gradientLength": min(200, max(80, size.height))}
    if size.narrow:
        where = {"gradientLength": 150, "orient": "bottom", "direction": "horizontal", "titleOrient": "left"}
    legend = alt.Legend(
        title=colour.title, format=colour.format, values=list(colour.ticks), gradientThickness=11, **where
    )
    fill = alt.Fill("mean:Q", scale=colour.scale, legend=legend)
    outline = alt.MarkDef("rect", fill="transparent", stroke=MUTED, strokeDash=[3, 3], **_CELL)
    layers = [
        unknown.encode(alt.Description("label:N")).properties(mark=outline),
        known.encode(fill, alt.Description("label:N")).properties(mark=alt.MarkDef("rect", **_CELL)),
    ]
    if size.font:
        layers += _numbers(known, unknown, size.font)
    return layered(layers, size.width, size.height)


def _numbers(known: alt.Chart, unknown: alt.Chart, size: float) -> list[alt.Chart]:
    """The value in every cell, with its note below where there is one."""
    ink, value = alt.Color("ink:N", scale=None), alt.Text("value:N")
    plain, noted = known.transform_filter("!datum.note"), known.transform_filter("datum.note")
    return [
        unknown.mark_text(text="no data", fontSize=size * 0.72, fontStyle="italic", color=MUTED, aria=False),
        plain.mark_text(fontSize=size, aria=False).encode(ink, value),
        noted.mark_text(fontSize=size * 0.92, dy=-size * 0.36, aria=False).encode(ink, value),
        noted.mark_text(fontSize=size * 0.66, dy=size * 0.6, aria=False).encode(ink, alt.Text("note:N")),
    ]


# --- panels -------------------------------------------------------------------------------------


def _task_panel(table: Table, number: int, data: HeatmapData, size: CellSize, *, first: bool, last: bool) -> ChartSpec:
    """The means over all depths above, the cells below. Only outer panels have axis titles."""
    lengths = [format_length(n) for n in table.lengths]
    # A title longer than the panel is tall would push the rows of the figure out of line.
    depth = "depth of the fact (0% = start)" if size.height >= 240 else "depth"
    rows = named_rows(data.rows, depth if first else None)
    cells = heatmap_cells(length_columns(lengths, titled=last), rows, size)
    means = _mean_strip(lengths, size, titled=first)
    panel: ChartSpec = {"vconcat": [means | rows_of("means", number), cells | rows_of("cells", number)], "spacing": 8}
    return panel | (panel_title(data.title) if len(table.tasks) > 1 else {})


def _tasks_panel(data: HeatmapData, *, narrow: bool) -> ChartSpec:
    wide = min(62.0, max(13.0, (330 if narrow else 620) / len(data.columns)))
    size = CellSize.exactly(len(data.columns), len(data.rows), wide, 31.0, narrow=narrow)
    cells = heatmap_cells(length_columns(data.columns), named_rows(data.rows, None), size)
    return cells | rows_of("cells", TASKS_PANEL)


def _mean_strip(lengths: Sequence[str], size: CellSize, *, titled: bool) -> ChartSpec:
    """All depths together with their intervals, which single cells have no room for."""
    tall = 62 if size.height >= 240 else 40
    known = alt.Chart().transform_filter(f"!({_NO_DATA})").encode(length_columns(lengths, axis=False))
    title = "all depths" if tall >= 60 else "all"
    axis = alt.Axis(format=".0%", values=[0, 0.5, 1], title=title if titled else None, **QUIET)
    y = alt.Y("mean:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    layers = [
        known.mark_line(color=MUTED, strokeWidth=1, opacity=0.6, aria=False).encode(y),
        known.mark_rule(color=TEXT, strokeWidth=1.6, aria=False).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
        known.mark_circle(size=44, opacity=1, stroke=HEAD, strokeWidth=1, ariaRoleDescription="mean").encode(
            y, alt.Color("colour:N", scale=None), alt.Description("label:N")
        ),
    ]
    return layered(layers, size.width, tall)


def _smoothed(table: Table, data: HeatmapData) -> HeatmapData:
    """The same cells with smoothed values. A cell without data stays empty."""
    if not can_smooth(table, data.task):
        return data
    smoothed = _smoothed_cells(smooth(table.counted.take(table.counted.task == data.task)), data)
    return replace(data, cells=tuple(smoothed.get((cell.row, cell.column), cell) for cell in data.cells))


def _smoothed_cells(surface: SmoothSurface, data: HeatmapData) -> dict[tuple[str, str], HeatmapCell]:
    cells = {}
    places = {(format_depth(d), format_length(n)): (i, j) for i, n in enumerate(surface.lengths.tolist())
              for j, d in enumerate(surface.depths.tolist())}  # fmt: skip
    for cell in data.cells:
        at = places.get((cell.row, cell.column))
        if at is None or not surface.raw.n[at]:
            continue
        mean, low, high = (float(values[at]) for values in (surface.mean, surface.low, surface.high))
        seen = f"{float(surface.raw.total[at]):g}/{float(surface.raw.n[at]):g}"
        interval = f"{format_percent(low)}–{format_percent(high)}%"
        where = f"{data.title}, length {cell.column}, depth {cell.row}"
        label = f"{where}: smoothed {format_percent(mean)}%, 95% interval {interval}, measured {seen}"
        new = replace(cell, mean=mean, low=low, high=high, value=format_percent(mean), note=seen, label=label)
        cells[cell.row, cell.column] = new.coloured(accuracy_scale(), mean)
    return cells


# --- titles and captions ------------------------------------------------------------------------


def _heading(run: Run) -> ChartSpec:
    """Model, tasks, reading mode, number of samples and date."""
    table, whole = run.table, run.table.whole
    tasks = ", ".join(table.tasks) if len(table.tasks) <= 4 else f"{len(table.tasks)} tasks"
    counts = [format_count(whole.done, "sample")]
    if whole.failed:
        counts.append(f"{whole.failed:,} failed")
    if whole.missing:
        counts.append(f"{whole.missing:,} not asked yet")
    facts = [sanitise(tasks, 90), f"{run.reading} reading", ", ".join(counts), run.date]
    subtitle, warning = " · ".join(facts), reading_warning(run)
    return {"text": sanitise(run.label, 60), "subtitle": [subtitle, warning] if warning else subtitle}


def _caption(run: Run) -> str:
    tallies = list(run.table.cells.values())
    sizes = sorted({t.planned for t in tallies}) or [0]
    samples = format_count(sizes[-1], "sample")
    planned = samples if len(sizes) == 1 else f"{sizes[0]} to {samples}"
    counted = " asked" if run.rule else "" if run.table.regridded else " planned"
    parts = [f"Cells: accuracy in percent, {planned}{counted} per cell. Bars: {format_interval_kind(run)}."]
    if any(t.estimate is None for t in tallies):
        parts.append("Dashed: no data.")
    if any(t.failed for t in tallies):
        parts.append("Failed samples have no answer and are not in the means.")
    if run.manifest.sessions:
        parts.append(f"Leadline\u00a0{run.manifest.sessions[-1].leadline}.")
    return " ".join(parts)


def _alternative(run: Run) -> str:
    table = run.table
    known = {n: t for n, t in sorted(table.by_length.items()) if t.estimate is not None}
    parts = ", ".join(f"{format_length(n)} {format_percent(t.mean)}%" for n, t in known.items())
    text = f"Heatmap of accuracy by length and depth for {sanitise(run.label, 60)}. By length: {parts or 'no data'}."
    scored = [(t.mean, p) for p, t in table.cells.items() if t.mean is not None]
    mean, point = min(scored, default=(1.0, None), key=lambda scored_cell: scored_cell[0])
    if point is not None and mean < 1:
        text += f" Lowest cell: {format_cell(point, table.cells[point])}."
    return text
