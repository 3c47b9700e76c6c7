"""Grids by task and length: accuracy with effective lengths, outcomes of samples, differences between two runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import altair as alt

from leadline.core.format import (
    format_count,
    format_depth,
    format_length,
    format_percent,
    sanitise,
)
from leadline.report.charts.heatmap import (
    CELL_SCALE,
    DIFFERENCE_COLOUR,
    TASKS_PANEL,
    CellSize,
    cell_row,
    columns_for,
    heatmap_cells,
    length_columns,
    named_rows,
)
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
from leadline.report.colours import CLASS_COLOURS, DIFFERENCE, HEAD, LINE, MUTED, TEXT
from leadline.report.heatmap_data import HeatmapCell, selection, short_name, tasks_heatmap
from leadline.results.run import Run, format_interval_kind
from leadline.results.sentences import format_comparison, format_points
from leadline.results.table import FAILURE_CLASSES, GridPoint, Tally, format_class, format_grid_point, format_mean
from leadline.results.verdict import Verdict
from leadline.stats.compare import Comparison, Difference

# --- tasks by lengths ---------------------------------------------------------------------------

AVERAGE = "average"


@unchecked
def task_grid(run: Run, run_verdict: Verdict, *, narrow: bool = False, at: int = 0) -> Figure:
    """Tasks down, lengths across, a band for each category; averages and effective lengths beside them."""
    lengths = [format_length(n) for n in run.table.lengths]
    bands: dict[str, list[str]] = {}
    for task in run.table.tasks:
        bands.setdefault(run.category(task), []).append(task)
    wide = min(54.0, max(13.0, (300 if narrow else 500) / (len(lengths) + 1)))
    groups = [*bands.items(), ("", [AVERAGE])]
    rows = [
        cell_row(cell) | {"panel": number}
        for number, (_, tasks) in enumerate(groups)
        for cell in (_average_cells(run, at) if number == len(bands) else _task_cells(run, tasks, at))
    ]
    parts: list[ChartSpec] = []
    for number, (category, tasks) in enumerate(groups):
        names = list(map(short_name, tasks))
        size = CellSize.exactly(len(lengths), len(tasks), wide, 26.0, narrow=narrow)
        last = number == len(bands)
        columns = length_columns(lengths, titled=last, axis=last)
        cells = heatmap_cells(columns, named_rows(names, None), size)
        cells |= _rows_where(number, f"datum.length !== '{AVERAGE}'")
        if category and len(bands) > 1:
            cells |= _small_title(category)
        size = CellSize.exactly(1, len(tasks), wide, 26.0, narrow=narrow)
        right = [_average_column(names, size, number, axis=last)]
        if not narrow:
            right.append(_effective_column(names, 26.0 * len(tasks), number, titled=number == 0))
        parts.append({"hconcat": [cells, *right], "spacing": 8})
    notes = "Accuracy in percent; tasks have equal weight in averages."
    if not narrow:
        notes += " Effective length with its 95% interval."
    if run.rule:
        notes += f" Intervals: {format_interval_kind(run)}."
    chart: ChartSpec = {
        "vconcat": [*parts, caption(notes, max(330.0, wide * len(lengths)))],
        "spacing": 8,
        "resolve": {"scale": {"fill": "shared"}},
    }
    return Figure(
        chart, {"cells": rows, "effective": _effective_rows(bands, run_verdict)}, _alternative(run, run_verdict)
    )


def _task_cells(run: Run, tasks: Sequence[str], at: int) -> list[HeatmapCell]:
    table = run.table
    averages = [_over_lengths(task, table.by_task[task], selection(at, table.tasks.index(task))) for task in tasks]
    return [*tasks_heatmap(table, tasks, at).cells, *averages]


def _average_cells(run: Run, at: int) -> list[HeatmapCell]:
    cells = [
        HeatmapCell.of(GridPoint(AVERAGE, n, None), tally, selection(at, None, n), AVERAGE)
        for n, tally in sorted(run.table.by_length.items())
    ]
    return [*cells, _over_lengths(AVERAGE, run.table.whole, selection(at))]


def _over_lengths(task: str, tally: Tally, select: str) -> HeatmapCell:
    label = f"{short_name(task)}, all lengths: {format_mean(tally)}"
    cell = HeatmapCell.of(GridPoint(task, 0, None), tally, select, short_name(task))
    return replace(cell, column=AVERAGE, note="", label=label)


def _average_column(names: list[str], size: CellSize, number: int, *, axis: bool) -> ChartSpec:
    bottom = alt.Axis(title=None, labelAngle=0, **QUIET) if axis else None
    x = alt.X("length:O", scale=CELL_SCALE, axis=bottom)
    y = alt.Y("row:O", sort=names, scale=CELL_SCALE, axis=None)
    return heatmap_cells(x, y, size) | _rows_where(number, f"datum.length === '{AVERAGE}'")


def _effective_column(names: list[str], height: float, number: int, *, titled: bool) -> ChartSpec:
    text = alt.Chart().mark_text(align="left", fontSize=11, color=HEAD, ariaRoleDescription="effective length")
    y = alt.Y("row:O", sort=names, scale=CELL_SCALE, axis=None)
    spec = layered([text.encode(y, alt.Text("effective:N"), x=alt.value(6))], 150, height)
    return spec | (_small_title("effective length") if titled else {}) | rows_of("effective", number)


def _rows_where(number: int, test: str) -> ChartSpec:
    rows = rows_of("cells", number)
    rows["transform"].append({"filter": test})
    return rows


def _small_title(text: str) -> ChartSpec:
    return panel_title(sanitise(text, 40), fontSize=11, fontWeight="normal", color=MUTED, offset=4, frame="group")


def _effective_rows(bands: Mapping[str, Sequence[str]], run_verdict: Verdict) -> list[ChartRow]:
    """One for every task, also for those without a length: else the others would not stand beside their rows."""
    rows: list[ChartRow] = [
        {"panel": number, "row": short_name(task), "effective": str(run_verdict.by_task.get(task, "–"))}
        for number, tasks in enumerate(bands.values())
        for task in tasks
    ]
    if run_verdict.effective is not None:
        rows.append({"panel": len(bands), "row": AVERAGE, "effective": str(run_verdict.effective)})
    return rows


def _alternative(run: Run, run_verdict: Verdict) -> str:
    rows = []
    for task, tally in run.table.by_task.items():
        effective = f", effective length {run_verdict.by_task[task]}" if task in run_verdict.by_task else ""
        rows.append(f"{short_name(task)} {format_percent(tally.mean)}%{effective}")
    return f"Accuracy by task and length for {sanitise(run.label, 60)}. {'; '.join(rows)}."


# --- outcomes of samples ------------------------------------------------------------------------


@unchecked
def class_bars(run: Run, *, narrow: bool = False, at: int = 0) -> Figure:
    """The share of each outcome for every task and length, failed samples included."""
    table = run.table
    rows: list[ChartRow] = []
    for (task, length), tally in table.by_task_and_length.items():
        rows += _segments(table.tasks.index(task), short_name(task, 60), length, tally, at)
    seen = [c for c in FAILURE_CLASSES if any(r["class"] == format_class(c) for r in rows)]
    columns = columns_for(len(table.tasks), narrow=narrow)
    wide = (330 if narrow else 560) if columns == 1 else 960 / columns - 70
    lengths = [format_length(n) for n in table.lengths]
    panels = []
    for number, task in enumerate(table.tasks):
        names, colours = [format_class(c) for c in seen], [CLASS_COLOURS[c] for c in seen]
        panel = _bars(lengths, names, colours, wide, 110 if len(table.tasks) > 1 else 200, narrow=narrow)
        title = short_name(task, 60) if len(table.tasks) > 1 else ""
        panels.append(panel | rows_of("classes", number) | panel_title(title))
    chart: ChartSpec = {"concat": panels, "columns": columns, "spacing": 26}
    counts = ", ".join(f"{format_class(c)} {n}" for c, n in table.whole.classes.items())
    return Figure(chart, {"classes": rows}, f"Outcomes of samples: {counts}.")


def _segments(number: int, task: str, length: int, tally: Tally, at: int) -> list[ChartRow]:
    """Stacked here rather than by Vega, to keep the order of the classes: correct at the bottom."""
    total, start, rows = tally.done + tally.failed, 0.0, []
    for name in FAILURE_CLASSES:
        count = tally.classes.get(name, 0)
        if not count:
            continue
        end = start + count / total
        length_name, class_name = format_length(length), format_class(name)
        label = f"{task}, length {length_name}: {class_name}, {count} of {format_count(total, 'sample')}"
        select = selection(at, number, length, failure_class=name)
        rows.append(
            {"panel": number, "length": length_name, "class": class_name, "start": start, "end": end,
             "label": selectable(select, label)}
        )  # fmt: skip
        start = end
    return rows


def _bars(
    lengths: list[str], names: list[str], colours: list[str], wide: float, height: float, *, narrow: bool
) -> ChartSpec:
    title = "share of samples" if height >= 200 else None
    axis = alt.Axis(format=".0%", values=[0, 0.5, 1], title=title, **QUIET)
    legend = alt.Legend(
        title=None, orient="bottom", columns=4 if narrow else 6, symbolType="square", symbolStrokeWidth=0
    )
    bar = (
        alt.Chart()
        .mark_rect(stroke=LINE, strokeWidth=0.5, ariaRoleDescription="share")
        .encode(
            length_columns(lengths),
            alt.Y("start:Q", scale=alt.Scale(domain=[0, 1]), axis=axis),
            alt.Y2("end:Q"),
            alt.Fill("class:N", scale=alt.Scale(domain=names, range=colours), legend=legend),
            alt.Description("label:N"),
        )
    )
    return layered([bar], wide, height)


# --- differences between two runs ---------------------------------------------------------------

FULL_POINTS = 50
"""The difference in points at which the colour is full."""
NOTE = (
    "Cells: change in accuracy on the same prompts, in points; single cells are not tested. "
    "Top: by length with 95% intervals over documents; filled marks differ after correction for multiple tests."
)


@unchecked
def difference_map(
    comparison: Comparison, names: tuple[str, str], *, narrow: bool = False, titled: bool = False
) -> Figure:
    """Candidate minus base: by length on top, a panel of cells for every task below. `names` are base, candidate."""
    keys = [(str(d.key[0]), int(d.key[1] or 0), d.key[2]) for d in comparison.cells]
    tasks = list(dict.fromkeys(task for task, _, _ in keys))
    deep = [t for t in tasks if any(task == t and depth is not None for task, _, depth in keys)]
    flat = [t for t in tasks if t not in deep]
    lengths = [format_length(n) for n in sorted({n for _, n, _ in keys})]
    columns = columns_for(len(deep), narrow=narrow)
    depths = {t: sorted({float(d) for task, _, d in keys if task == t and d is not None}) for t in deep}
    most = max((len(d) for d in depths.values()), default=1)
    size = CellSize.fitting(len(lengths), most, columns, narrow=narrow)
    wide = size.width if deep else (330.0 if narrow else 500.0)
    parts: list[ChartSpec] = [_length_strip(lengths, wide, _widest(comparison.of("length")))]

    def cells(rows: Sequence[str], title: str | None, panel: int) -> ChartSpec:
        x, y = length_columns(lengths), named_rows(rows, title)
        return heatmap_cells(x, y, size, DIFFERENCE_COLOUR) | rows_of("cells", panel)

    for start in range(0, len(deep), columns):
        row = [
            cells(list(map(format_depth, depths[task])), "depth", start + offset)
            | panel_title(_tested_title(task, comparison) if len(tasks) > 1 else "")
            for offset, task in enumerate(deep[start : start + columns])
        ]
        parts.append({"hconcat": row, "spacing": 30} if len(row) > 1 else row[0])
    if flat:
        size = CellSize.exactly(len(lengths), len(flat), wide / len(lengths), 31.0, narrow=narrow)
        parts.append(cells(list(map(short_name, flat)), None, TASKS_PANEL))
    parts.append(caption(NOTE, max(300.0, columns * wide)))
    chart: ChartSpec = {"vconcat": parts, "spacing": 14, "resolve": {"scale": {"fill": "shared"}}}
    base, candidate = (sanitise(name, 60) for name in names)
    if titled:  # two names in the width of a column
        chart["title"] = {"text": candidate, "subtitle": f"minus {base}", "fontSize": 13}
    data = {
        "cells": [
            cell_row(_difference_cell(d, in_depth=str(d.key[0]) in deep))
            | {"panel": deep.index(str(d.key[0])) if d.key[0] in deep else TASKS_PANEL}
            for d in comparison.cells
        ],
        "lengths": [_length_row(d) for d in comparison.of("length")],
    }
    return Figure(chart, data, f"Map of differences, {candidate} minus {base}. {format_comparison(comparison)}")


def _tested_title(task: str, comparison: Comparison) -> str:
    own = next((d for d in comparison.of("task") if d.key == (task,)), None)
    return sanitise(task, 50) + (f": {own.verdict}" if own and own.verdict in ("worse", "better") else "")


def _length_strip(lengths: list[str], wide: float, limit: float) -> ChartSpec:
    base = alt.Chart().encode(length_columns(lengths, axis=False))
    axis = alt.Axis(format="+d", values=[-limit, 0, limit], title="all", **QUIET)
    scale = alt.Scale(domain=[-limit, limit])
    y = alt.Y("mean:Q", scale=scale, axis=axis)
    point = base.mark_circle(size=34, opacity=1, stroke=HEAD, strokeWidth=1.2, ariaRoleDescription="difference")
    layers = [
        alt.Chart().mark_rule(color=MUTED, strokeWidth=1, aria=False).encode(y=alt.datum(0)),
        base.mark_rule(color=TEXT, strokeWidth=1.6, aria=False).encode(alt.Y("low:Q", scale=scale), alt.Y2("high:Q")),
        point.encode(y, alt.Color("colour:N", scale=None), alt.Description("label:N")),
    ]
    return layered(layers, wide, 70) | {"data": {"name": "lengths"}}


def _widest(differences: Sequence[Difference]) -> float:
    """The limit of the axis: the farthest interval end in points, rounded up to tens."""
    ends = [abs(e) for d in differences for e in (d.estimate.interval.low, d.estimate.interval.high)]
    return min(100.0, max(10.0, 10.0 * math.ceil(10 * max(ends, default=0.1))))


def _difference_cell(d: Difference, *, in_depth: bool) -> HeatmapCell:
    task, length, depth = str(d.key[0]), int(d.key[1] or 0), None if d.key[2] is None else float(d.key[2])
    mean = 100 * d.estimate.mean
    cell = HeatmapCell(
        row=format_depth(depth or 0.0) if in_depth else short_name(task),
        column=format_length(length),
        mean=mean,
        value=f"{mean:+.0f}" if mean else "0",
        note="",
        label=f"{format_grid_point(task, length, depth)}: {format_points(d)} points, "
        f"{d.lost} lost and {d.gained} gained of {d.estimate.n}; not tested",
    )
    return cell.coloured(DIFFERENCE, 0.5 + mean / (2 * FULL_POINTS))


def _length_row(d: Difference) -> ChartRow:
    interval = d.estimate.interval
    name = format_length(int(d.key[0] or 0))
    return {
        "length": name, "mean": 100 * d.estimate.mean, "low": 100 * interval.low, "high": 100 * interval.high,
        "colour": HEAD if d.verdict in ("worse", "better") else LINE,
        "label": f"length {name}, all tasks and depths: {format_points(d)} points, {d.verdict}",
    }  # fmt: skip
