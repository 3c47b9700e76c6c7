"""Two runs, candidate less base: a map of differences, and only what was tested is called a difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import altair as alt

from leadline.core.format import (
    format_count,
    format_depth,
    format_length,
    format_percent,
    format_percent_range,
    sanitise,
)
from leadline.report.charts.heatmap import (
    DIFFERENCE_HUE,
    TILES,
    Kinds,
    Size,
    across,
    cell_row,
    columns_for,
    down,
    heatmap_cells,
    ink,
)
from leadline.report.charts.theme import (
    HEAD,
    LINE,
    MUTED,
    QUIET,
    TEXT,
    Figure,
    Row,
    Spec,
    caption,
    layered,
    rows_of,
    selection,
)
from leadline.report.colours import DIFFERENCE
from leadline.results.run import Run, format_interval_kind
from leadline.results.table import Place, Tally
from leadline.results.verdict import Verdict, length_range
from leadline.stats.compare import Comparison, Difference

# --- Tasks down, lengths across: the table that long-context papers print, with intervals behind every number.

AVERAGE = "average"


def task_grid(run: Run, found: Verdict, *, narrow: bool = False, at: int = 0) -> Figure:
    """A band for each category, an average column and row, and the effective length of every row."""
    table = run.table
    lengths = [format_length(n) for n in table.lengths]
    bands = by_category(run)
    wide = min(54.0, max(13.0, (300 if narrow else 500) / (len(lengths) + 1)))
    groups = [*bands.items(), ("", [AVERAGE])]
    rows: list[Row] = [
        row | {"panel": number}
        for number, (_, tasks) in enumerate(groups)
        for task in tasks
        for row in _row(run, task, at)
    ]
    kinds = Kinds.of(rows)
    parts: list[Spec] = []
    for number, (category, tasks) in enumerate(groups):
        names = [_name(t) for t in tasks]
        size = Size.exactly(len(lengths), len(tasks), wide, 26.0, narrow=narrow)
        last = number == len(bands)
        body = heatmap_cells(across(lengths, titled=last, axis=last), down(names, None), size, kinds)
        body |= _rows_where(number, f"datum.length !== '{AVERAGE}'")
        if category and len(bands) > 1:
            body["title"] = _small_title(category)
        right = [_averages(names, Size.exactly(1, len(tasks), wide, 26.0, narrow=narrow), kinds, number, axis=last)]
        if not narrow:
            right.append(_effective(names, 26.0 * len(tasks), number, titled=number == 0))
        parts.append({"hconcat": [body, *right], "spacing": 8})
    note = "Accuracy in percent; tasks weigh alike in averages."
    if not narrow:
        note += " Effective length with its 95% interval."
    if run.rule:
        note += f" Intervals: {format_interval_kind(run)}."
    chart: Spec = {
        "vconcat": [*parts, caption(note, max(330.0, wide * len(lengths)))],
        "spacing": 8,
        "resolve": {"scale": {"fill": "shared"}},
    }
    return Figure(chart, {"cells": rows, "effective": _effective_rows(bands, found)}, _alternative(run, found))


def by_category(run: Run) -> dict[str, list[str]]:
    """Tasks in the order of the plan, those of one category together."""
    bands: dict[str, list[str]] = {}
    for task in run.table.tasks:
        bands.setdefault(run.category(task), []).append(task)
    return bands


def _row(run: Run, task: str, at: int) -> list[Row]:
    """The cells of one task and their average; of all tasks together for the last row."""
    table = run.table
    if task == AVERAGE:
        tallies, whole, number = table.by_length, table.whole, None
    else:
        tallies = {n: t for (name, n), t in table.by_task_and_length.items() if name == task}
        whole, number = table.by_task[task], table.tasks.index(task)
    rows = [_cell(task, n, t, selection(at, number, n)) for n, t in sorted(tallies.items())]
    label = f"{_name(task)}, all lengths: {format_percent(whole.mean)}%, 95% interval {format_percent_range(whole.interval)}%"
    average = cell_row(Place(task, 0, None), whole, "") | {"length": AVERAGE, "row": _name(task), "short": ""}
    return [*rows, average | {"label": f"[{selection(at, number)}] {label}"}]


def _cell(task: str, length: int, tally: Tally, chosen: str) -> Row:
    return cell_row(Place(task, length, None), tally, chosen) | {"row": _name(task)}


def _name(task: str) -> str:
    return sanitise(task, 40)


def _averages(names: list[str], size: Size, kinds: Kinds, number: int, *, axis: bool) -> Spec:
    bottom = alt.Axis(title=None, labelAngle=0, **QUIET) if axis else None
    x = alt.X("length:O", scale=TILES, axis=bottom)
    y = alt.Y("row:O", sort=names, scale=TILES, axis=None)
    return heatmap_cells(x, y, size, kinds) | _rows_where(number, f"datum.length === '{AVERAGE}'")


def _effective(names: list[str], height: float, number: int, *, titled: bool) -> Spec:
    text = alt.Chart().mark_text(align="left", fontSize=11, color=HEAD, ariaRoleDescription="effective length")
    y = alt.Y("row:O", sort=names, scale=TILES, axis=None)
    spec = layered([text.encode(y, alt.Text("words:N"), x=alt.value(6))], 150, height)
    if titled:
        spec["title"] = _small_title("effective length")
    return spec | rows_of("effective", number)


def _rows_where(number: int, test: str) -> Spec:
    rows = rows_of("cells", number)
    rows["transform"].append({"filter": test})
    return rows


def _small_title(text: str) -> Spec:
    words = sanitise(text, 40)
    return {"text": words, "fontSize": 11, "fontWeight": "normal", "color": MUTED, "offset": 4, "frame": "group"}


def _effective_rows(bands: Mapping[str, Sequence[str]], found: Verdict) -> list[Row]:
    rows = [
        {"panel": number, "row": _name(task), "words": length_range(found.by_task[task])}
        for number, tasks in enumerate(bands.values())
        for task in tasks
        if task in found.by_task
    ]
    if found.effective is not None:
        rows.append({"panel": len(bands), "row": AVERAGE, "words": length_range(found.effective)})
    return rows


def _alternative(run: Run, found: Verdict) -> str:
    rows = []
    for task, tally in run.table.by_task.items():
        reach = f", effective length {length_range(found.by_task[task])}" if task in found.by_task else ""
        rows.append(f"{_name(task)} {format_percent(tally.mean)}%{reach}")
    return f"Accuracy by task and length for {sanitise(run.label, 60)}. {'; '.join(rows)}."


# --- Two runs, candidate less base: a map of differences, and only what was tested is called a difference

FLAT = -1
FULL = 50
"""Points at which the colour is full: half of all answers."""
NOTE = (
    "Cells: points of accuracy gained or lost on the same prompts; single cells are described, not tested. "
    "Above: by length with 95% intervals over documents; filled marks differ after correction for many tests."
)


def difference_map(found: Comparison, names: tuple[str, str], *, narrow: bool = False, titled: bool = False) -> Figure:
    """The change by length above; a panel of cells for every task below. `names` are those of base and candidate."""
    keys = [(str(d.key[0]), int(d.key[1] or 0), d.key[2]) for d in found.cells]
    tasks = list(dict.fromkeys(task for task, _, _ in keys))
    deep = [t for t in tasks if any(task == t and depth is not None for task, _, depth in keys)]
    flat = [t for t in tasks if t not in deep]
    lengths = [format_length(n) for n in sorted({n for _, n, _ in keys})]
    columns = columns_for(len(deep), narrow=narrow)
    depths = {t: sorted({float(d) for task, _, d in keys if task == t and d is not None}) for t in deep}
    size = Size.of(len(lengths), max((len(d) for d in depths.values()), default=1), across=columns, narrow=narrow)
    wide = size.width if deep else (330.0 if narrow else 500.0)
    parts: list[Spec] = [_strip(lengths, wide, _reach(found.of("length")))]
    for start in range(0, len(deep), columns):
        row = [
            _panel(lengths, depths[deep[number]], number, _panel_title(deep[number], found, len(tasks)), size)
            for number in range(start, min(start + columns, len(deep)))
        ]
        parts.append({"hconcat": row, "spacing": 30} if len(row) > 1 else row[0])
    if flat:
        size = Size.exactly(len(lengths), len(flat), wide / len(lengths), 31.0, narrow=narrow)
        rows = down([sanitise(t, 40) for t in flat], None)
        parts.append(heatmap_cells(across(lengths), rows, size, Kinds(), DIFFERENCE_HUE) | rows_of("cells", FLAT))
    parts.append(caption(NOTE, max(300.0, columns * wide)))
    chart: Spec = {"vconcat": parts, "spacing": 14, "resolve": {"scale": {"fill": "shared"}}}
    base, candidate = (sanitise(name, 60) for name in names)
    if titled:
        chart["title"] = {"text": candidate, "subtitle": f"less {base}", "fontSize": 13}  # two names in a column
    data = {
        "cells": [_difference_cell(d, deep) for d in found.cells],
        "lengths": [_length(d) for d in found.of("length")],
    }
    return Figure(chart, data, f"Map of differences, {candidate} less {base}. {sentence(found)}")


def sentence(found: Comparison) -> str:
    """The overall difference, and every part that differs after correction."""
    overall = found.overall
    words = f"{points(overall)} points overall on {format_count(found.pairs, 'prompt')} asked in both runs"
    # A single task is the whole.
    parted = [d for d in found.differences[1:] if d.scope != "task" or len(found.of("task")) > 1]
    changed = [d for d in parted if d.verdict in ("worse", "better")]
    if overall.verdict == "no difference seen" and not changed:
        interval = overall.estimate.interval
        if interval.low <= 0 <= interval.high:
            return f"No difference seen: {words}."
        # Few documents bound what the test can say, and correction for many tests what it may.
        return f"Not settled: {words}, which may still be chance (p {overall.adjusted:.2g} after correction)."
    parts = [f"{d.verdict} {_part(d)}, {points(d)}" for d in changed]
    # Parts that differ while the whole does not are no absence of a difference.
    said = "mixed" if overall.verdict == "no difference seen" else overall.verdict
    return f"{said.capitalize()}: {words}" + (f"; {'; '.join(parts)}." if parts else ".")


def points(d: Difference) -> str:
    """`-4.2 (95%: -6.0 to -2.4)`."""
    interval = d.estimate.interval
    return f"{100 * d.estimate.mean:+.1f} (95%: {100 * interval.low:+.1f} to {100 * interval.high:+.1f})"


def _part(d: Difference) -> str:
    name = sanitise(d.name.partition(":")[2], 60)
    return {"length": f"at {name}", "task": f"on {name}", "depth": f"in the {name} of the document"}.get(d.scope, name)


def _panel(lengths: list[str], depths: Sequence[float], number: int, title: str, size: Size) -> Spec:
    rows = down([format_depth(d) for d in depths], "depth")
    panel = heatmap_cells(across(lengths), rows, size, Kinds(), DIFFERENCE_HUE) | rows_of("cells", number)
    return panel | ({"title": {"text": title, "fontSize": 13, "offset": 8}} if title else {})


def _panel_title(task: str, found: Comparison, tasks: int) -> str:
    if tasks == 1:
        return ""
    mine = next((d for d in found.of("task") if d.key == (task,)), None)
    changed = f": {mine.verdict}" if mine and mine.verdict in ("worse", "better") else ""
    return sanitise(task, 50) + changed


def _strip(lengths: list[str], wide: float, reach: float) -> Spec:
    base = alt.Chart().encode(across(lengths, axis=False))
    axis = alt.Axis(format="+d", values=[-reach, 0, reach], title="all", **QUIET)
    scale = alt.Scale(domain=[-reach, reach])
    y = alt.Y("mean:Q", scale=scale, axis=axis)
    point = base.mark_circle(size=34, opacity=1, stroke=HEAD, strokeWidth=1.2, ariaRoleDescription="difference")
    layers = [
        alt.Chart().mark_rule(color=MUTED, strokeWidth=1, aria=False).encode(y=alt.datum(0)),
        base.mark_rule(color=TEXT, strokeWidth=1.6, aria=False).encode(alt.Y("low:Q", scale=scale), alt.Y2("high:Q")),
        point.encode(y, alt.Color("colour:N", scale=None), alt.Description("label:N")),
    ]
    return layered(layers, wide, 70) | {"data": {"name": "lengths"}}


def _reach(differences: Sequence[Difference]) -> float:
    ends = [abs(e) for d in differences for e in (d.estimate.interval.low, d.estimate.interval.high)]
    return min(100.0, max(10.0, 10.0 * math.ceil(10 * max(ends, default=0.1))))


def _difference_cell(d: Difference, deep: Sequence[str]) -> Row:
    task, length, depth = str(d.key[0]), int(d.key[1] or 0), d.key[2]
    mean = 100 * d.estimate.mean
    flat = task not in deep
    where = f"{sanitise(task, 60)}, length {format_length(length)}"
    where += "" if depth is None else f", depth {format_depth(float(depth))}"
    return {
        "panel": FLAT if flat else deep.index(task),
        "length": format_length(length),
        "row": sanitise(task, 40) if flat else format_depth(float(depth or 0.0)),
        "mean": mean,
        "value": f"{mean:+.0f}" if mean else "0",
        "short": "",
        "ink": ink(DIFFERENCE, 0.5 + mean / (2 * FULL)),
        "label": f"{where}: {points(d)} points, {d.lost} lost and {d.gained} gained of {d.estimate.n}; not tested",
    }


def _length(d: Difference) -> Row:
    interval = d.estimate.interval
    name = format_length(int(d.key[0] or 0))
    return {
        "length": name, "mean": 100 * d.estimate.mean, "low": 100 * interval.low, "high": 100 * interval.high,
        "colour": HEAD if d.verdict in ("worse", "better") else LINE,
        "label": f"length {name}, all tasks and depths: {points(d)} points, {d.verdict}",
    }  # fmt: skip
