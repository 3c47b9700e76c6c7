"""The heatmap: length across, depth down, colour for accuracy. One definition for page, png, svg and pdf."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, NamedTuple

import altair as alt
import numpy as np

from leadline.core.format import (
    format_count,
    format_depth,
    format_length,
    format_percent,
    format_percent_range,
    sanitise,
)
from leadline.report.charts.theme import (
    ACCURACY_SCALE,
    DIFFERENCE_SCALE,
    HEAD,
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
from leadline.report.colours import ACCURACY, Scale, colour_at, ink_on
from leadline.results.run import Run, format_interval_kind
from leadline.results.table import Place, Table, Tally, format_cell
from leadline.stats.smooth import SmoothSurface, smooth

# --- Coloured cells with numbers in them: what heatmap, task grid and difference map are made of.

NO_DATA = "datum.mean === null"
_ROOM: dict[str, Any] = {"paddingInner": 0.05, "paddingOuter": 0}
TILES = alt.Scale(**_ROOM)
_TILE: dict[str, Any] = {"cornerRadius": 2, "ariaRoleDescription": "cell"}
LABEL_LIMIT, SHORT = 180, 16
"""Pixels that a name beside a row may take, and characters that never take so many."""
_LEGEND: dict[str, Any] = {"gradientThickness": 11}


@dataclass(frozen=True, slots=True)
class Size:
    """Of one panel of cells, in pixels of a png at scale 1. `narrow` is for a column of a paper."""

    width: float
    height: float
    digits: float
    """Font size of the numbers in cells; 0 leaves them out."""
    narrow: bool = False

    @classmethod
    def of(cls, columns: int, rows: int, *, across: int = 1, narrow: bool = False) -> Size:
        """Cells of a panel when `across` of them stand side by side."""
        room = (330 if narrow else 560) if across == 1 else (360 if narrow else 960) / across - 70
        width = min(62.0, max(13.0, room / columns))
        height = min(24.0 if narrow else 31.0, max(8.0, (352 if across == 1 else 190) / rows))
        return cls.exactly(columns, rows, width, height, narrow=narrow)

    @classmethod
    def exactly(cls, columns: int, rows: int, width: float, height: float, *, narrow: bool = False) -> Size:
        digits = min(12.0, width / 2.8, height * 0.62)
        return cls(width * columns, height * rows, digits if digits >= 6.5 else 0.0, narrow)


@dataclass(frozen=True, slots=True)
class Hue:
    """What the colour of a cell means."""

    title: str
    scale: alt.Scale
    ticks: tuple[float, ...]
    format: str


ACCURACY_HUE = Hue("accuracy", ACCURACY_SCALE, (0, 0.25, 0.5, 0.75, 1), ".0%")
DIFFERENCE_HUE = Hue("points", DIFFERENCE_SCALE, (-50, -25, 0, 25, 50), "+d")


def across(lengths: list[str], *, titled: bool = True, axis: bool = True) -> alt.X:
    """Lengths from left to right: all of them, also those that a strip or a row has nothing for."""
    title = "context length (tokens)" if titled else None
    drawn = alt.Axis(labelAngle=0, labelOverlap=True, title=title, **QUIET) if axis else None
    return alt.X("length:O", sort=lengths, scale=alt.Scale(domain=lengths, **_ROOM), axis=drawn)


def down(rows: list[str], title: str | None) -> alt.Y:
    limit = LABEL_LIMIT if max(map(len, rows), default=0) > SHORT else 0  # each label is measured once more for it
    axis = alt.Axis(labelOverlap=True, labelLimit=limit, title=title, **QUIET)
    return alt.Y("row:O", sort=rows, scale=TILES, axis=axis)


class Kinds(NamedTuple):
    """What cells there are besides those with a number and all their answers. A layer for none of them would be seen by
    nobody, and is half of the time that a figure takes."""

    empty: bool = False
    short: bool = False

    @classmethod
    def of(cls, cells: Iterable[Row]) -> Kinds:
        seen = [(cell["mean"] is None, bool(cell["short"])) for cell in cells]
        return cls(any(empty for empty, _ in seen), any(short and not empty for empty, short in seen))


def heatmap_cells(x: alt.X, y: alt.Y, size: Size, kinds: Kinds, hue: Hue = ACCURACY_HUE) -> Spec:
    """Cells with data in colour, those without as dashed outlines; the rows are joined by the caller."""
    base = alt.Chart().encode(x, y)
    known, unknown = base.transform_filter(f"!({NO_DATA})"), base.transform_filter(NO_DATA)
    where: dict[str, Any] = {"gradientLength": min(200, max(80, size.height))}
    if size.narrow:
        where = {"gradientLength": 150, "orient": "bottom", "direction": "horizontal", "titleOrient": "left"}
    legend = alt.Legend(title=hue.title, format=hue.format, values=list(hue.ticks), **where, **_LEGEND)
    fill = alt.Fill("mean:Q", scale=hue.scale, legend=legend)
    layers = [known.encode(fill, alt.Description("label:N")).properties(mark=alt.MarkDef("rect", **_TILE))]
    if kinds.empty:
        empty = alt.MarkDef("rect", fill="transparent", stroke=MUTED, strokeDash=[3, 3], **_TILE)
        layers.insert(0, unknown.encode(alt.Description("label:N")).properties(mark=empty))
    if size.digits:
        layers += _numbers(known, unknown, size.digits, kinds)
    return layered(layers, size.width, size.height)


def _numbers(known: alt.Chart, unknown: alt.Chart, digits: float, kinds: Kinds) -> list[alt.Chart]:
    """The value in every cell, and under it how many samples answered where some did not."""
    ink = alt.Color("ink:N", scale=None)
    whole, short = known.transform_filter("!datum.short"), known.transform_filter("datum.short")
    layers = [whole.mark_text(fontSize=digits, aria=False).encode(ink, alt.Text("value:N"))]
    if kinds.empty:
        words: dict[str, Any] = {
            "text": "no data",
            "fontSize": digits * 0.72,
            "fontStyle": "italic",
            "color": MUTED,
            "aria": False,
        }
        layers.insert(0, unknown.mark_text(**words))
    if kinds.short:
        layers += [
            short.mark_text(fontSize=digits * 0.92, dy=-digits * 0.36, aria=False).encode(ink, alt.Text("value:N")),
            short.mark_text(fontSize=digits * 0.66, dy=digits * 0.6, aria=False).encode(ink, alt.Text("short:N")),
        ]
    return layers


def cell_row(place: Place, tally: Tally, selection: str) -> Row:
    """One cell of accuracy as data. `selection` is what a click on it asks for."""
    mean = tally.mean
    return {
        "length": format_length(place.length),
        "row": format_depth(place.depth),
        "mean": mean,
        "value": format_percent(mean),
        "short": "" if tally.done >= tally.planned else f"{tally.done} of {tally.planned}",
        "ink": ink(ACCURACY, mean),
        "label": f"[{selection}] {format_cell(place, tally)}",
    }


def ink(scale: Scale, share: float | None) -> str:
    return "" if share is None else ink_on(colour_at(scale, share))


# --- A second look at a heatmap: cells that borrow strength from their neighbours, with what was seen under each.

CAPTION = (
    "Smoothed: neighbouring lengths and depths inform each other; under each number what was seen, right of answered. "
    "A second look, not the measurement."
)


def can_smooth(table: Table, task: str) -> bool:
    """Whether there are neighbours to borrow from."""
    mine = table.samples.take(table.samples.task == task).counted()
    return len(np.unique(mine.length)) > 1 and len(np.unique(mine.depth[~np.isnan(mine.depth)])) > 1


def one_thread() -> AbstractContextManager[object]:
    """Matrices of a hundred cells are solved several times quicker by one thread than by many that wait for each
    other. Does nothing where threadpoolctl, which comes with scikit-learn, is not installed."""
    if find_spec("threadpoolctl") is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)  # type: ignore[no-any-return]


def smoothed_cells(table: Table, tasks: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """The rows of a heatmap with smoothed values. Cells without data stay without; nothing is made up."""
    changed: dict[tuple[int, str, str], Row] = {}
    with one_thread():
        for panel, task in enumerate(tasks):
            if can_smooth(table, task):
                found = smooth(table.samples.take(table.samples.task == task))
                changed |= {(panel, row["length"], row["row"]): row for row in _smoothed_rows(found, task)}
    made = []
    for row in rows:
        new = changed.get((row["panel"], row["length"], row["row"]))
        chosen = row["label"].partition("] ")[0]
        made.append(row | new | {"label": f"{chosen}] {new['words']}"} if new else row)
    return made


def _smoothed_rows(found: SmoothSurface, task: str) -> list[Row]:
    made = []
    for i, length in enumerate(found.lengths.tolist()):
        for j, depth in enumerate(found.depths.tolist()):
            n, right = float(found.raw.n[i, j]), float(found.raw.total[i, j])
            if n:
                mean, low, high = (float(surface[i, j]) for surface in (found.mean, found.low, found.high))
                seen = f"{right:g}/{n:g}"
                where = f"{sanitise(task, 60)}, length {format_length(length)}, depth {format_depth(depth)}"
                label = f"{where}: smoothed {format_percent(mean)}%, 95% interval {format_percent(low)}–{format_percent(high)}%, seen {seen}"
                made.append(
                    {"length": format_length(length), "row": format_depth(depth), "mean": mean, "value": format_percent(mean),
                     "short": seen, "ink": ink(ACCURACY, mean), "words": label}
                )  # fmt: skip
    return made


# --- The heatmap: length across, depth down, colour for accuracy. One definition for page, png, svg and p

FLAT = -1
"""The panel of tasks without a depth."""


def heatmap(run: Run, *, titled: bool = True, narrow: bool = False, smoothed: bool = False, at: int = 0) -> Figure:
    """A panel for every task that has depths; tasks without are drawn as rows of one grid.

    `at` is the number of the run on a page, so that a click finds its samples.
    """
    table = run.table
    deep = [t for t in table.tasks if table.has_depths(t)]
    flat = [t for t in table.tasks if t not in deep]
    columns = columns_for(len(deep), narrow=narrow)
    rows = max((len(table.depths_of(t)) for t in deep), default=1)
    size = Size.of(len(table.lengths), rows, across=columns, narrow=narrow)
    data = _rows(table, deep, flat, at)
    if smoothed:
        data["cells"] = smoothed_cells(table, deep, data["cells"])
    kinds = Kinds.of(data["cells"])
    parts: list[Spec] = []
    for start in range(0, len(deep), columns):
        row = [
            _panel(table, number, deep[number], size, kinds, first=number == start, last=number + columns >= len(deep))
            for number in range(start, min(start + columns, len(deep)))
        ]
        parts.append({"hconcat": row, "spacing": 30} if len(row) > 1 else row[0])
    if flat:
        parts.append(_flat_panel(table, flat, kinds, narrow=narrow))
    words = f"{CAPTION} {caption_words(run)}" if smoothed else caption_words(run)
    small = caption(words, columns * size.width if deep else 500)
    chart: Spec = {"vconcat": [*parts, small], "spacing": 20, "resolve": {"scale": {"fill": "shared"}}}
    if titled:
        chart["title"] = heading(run)
    return Figure(chart, data, f"{CAPTION} {_alternative(run)}" if smoothed else _alternative(run))


def columns_for(panels: int, *, narrow: bool = False) -> int:
    return 1 if panels <= 1 or narrow else 2 if panels <= 4 else 3


def heading(run: Run) -> Spec:
    """What a reader must know before the colours: which model, which tasks, how it was read, how many samples."""
    table, whole = run.table, run.table.whole
    tasks = ", ".join(table.tasks) if len(table.tasks) <= 4 else f"{len(table.tasks)} tasks"
    counts = [format_count(whole.done, "sample")]
    if whole.failed:
        counts.append(f"{whole.failed:,} failed")
    if whole.missing:
        counts.append(f"{whole.missing:,} not asked yet")
    facts = [sanitise(tasks, 90), f"{run.reading} reading", ", ".join(counts), run.date]
    return {"text": sanitise(run.label, 60), "subtitle": " · ".join(facts)}


# --- panels -------------------------------------------------------------------------------------


def _panel(table: Table, number: int, task: str, size: Size, kinds: Kinds, *, first: bool, last: bool) -> Spec:
    """One task: the strip of means above, the cells below. Outer panels alone carry axis titles."""
    lengths, depths = table.lengths, table.depths_of(task)
    strip, cells = _drawn(
        tuple(map(format_length, lengths)), tuple(map(format_depth, depths)), size, kinds, first, last
    )
    panel: Spec = {"vconcat": [strip | rows_of("means", number), cells | rows_of("cells", number)], "spacing": 8}
    if len(table.tasks) > 1:
        panel["title"] = {"text": sanitise(task, 60), "fontSize": 13, "offset": 8}
    return panel


@lru_cache(maxsize=64)
def _drawn(
    lengths: tuple[str, ...], depths: tuple[str, ...], size: Size, kinds: Kinds, first: bool, last: bool
) -> tuple[Spec, Spec]:
    """Strip and cells of a panel without their rows. Making definitions takes altair a while, and panels are alike."""
    # A title longer than its panel is tall would push the rows of the figure out of line.
    where = "where the fact stands (0% = start)" if size.height >= 240 else "depth"
    cells = heatmap_cells(across(list(lengths), titled=last), down(list(depths), where if first else None), size, kinds)
    return _strip(list(lengths), size, titled=first), cells


def _flat_panel(table: Table, tasks: Sequence[str], kinds: Kinds, *, narrow: bool) -> Spec:
    """Tasks without a depth: tasks down, lengths across."""
    lengths = [format_length(n) for n in table.lengths]
    wide = min(62.0, max(13.0, (330 if narrow else 620) / len(lengths)))
    size = Size.exactly(len(lengths), len(tasks), wide, 31.0, narrow=narrow)
    cells = heatmap_cells(across(lengths), down([sanitise(t, 40) for t in tasks], None), size, kinds)
    return cells | rows_of("cells", FLAT)


def _strip(lengths: list[str], size: Size, *, titled: bool) -> Spec:
    """All depths together, with the interval that a cell of three samples cannot show."""
    tall = 62 if size.height >= 240 else 40
    known = alt.Chart().transform_filter(f"!({NO_DATA})").encode(across(lengths, axis=False))
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


# --- rows and words -----------------------------------------------------------------------------


def _rows(table: Table, deep: Sequence[str], flat: Sequence[str], at: int) -> dict[str, list[Row]]:
    number = {task: i for i, task in enumerate(table.tasks)}
    cells = [
        cell_row(place, tally, selection(at, number[place.task], place.length, place.depth))
        | {"panel": deep.index(place.task)}
        for place, tally in table.cells.items()
        if place.task in deep
    ]
    means = []
    for (task, length), tally in table.by_task_and_length.items():
        chosen = selection(at, number[task], length)
        if task in flat:
            cell = cell_row(Place(task, length, None), tally, chosen)
            cells.append(cell | {"panel": FLAT, "row": sanitise(task, 40)})
        else:
            means.append(_mean_row(task, length, tally, chosen) | {"panel": deep.index(task)})
    return {"cells": cells, "means": means}


def _mean_row(task: str, length: int, tally: Tally, chosen: str) -> Row:
    row: Row = {"length": format_length(length), "mean": tally.mean, "low": None, "high": None}
    if tally.interval is not None and tally.mean is not None:
        row |= {"low": tally.interval.low, "high": tally.interval.high, "colour": colour_at(ACCURACY, tally.mean)}
        value = f"{format_percent(tally.mean)}%, 95% interval {format_percent_range(tally.interval)}%, {tally.done} answered"
        row["label"] = f"[{chosen}] {sanitise(task, 60)}, length {format_length(length)}, all depths: {value}"
    return row


def caption_words(run: Run) -> str:
    """The small print that makes the picture hard to read wrongly."""
    tallies = list(run.table.cells.values())
    sizes = sorted({t.planned for t in tallies}) or [0]
    planned = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    counted = "asked" if run.rule else "planned"
    parts = [f"Cells: accuracy in percent, {planned} samples {counted} in each. Bars: {format_interval_kind(run)}."]
    if any(t.estimate is None for t in tallies):
        parts.append("Dashed: no data.")
    if any(t.failed for t in tallies):
        parts.append("Failed samples got no answer and are in no mean.")
    if run.manifest.sessions:
        parts.append(f"Leadline\u00a0{run.manifest.sessions[-1].leadline}.")
    return " ".join(parts)


def _alternative(run: Run) -> str:
    """The picture in a sentence or two, for those who cannot see it."""
    table = run.table
    known = {n: t for n, t in sorted(table.by_length.items()) if t.estimate is not None}
    parts = ", ".join(f"{format_length(n)} {format_percent(t.mean)}%" for n, t in known.items())
    words = f"Heatmap of accuracy by length and depth for {sanitise(run.label, 60)}. By length: {parts or 'no data'}."
    scored = [(t.mean, p) for p, t in table.cells.items() if t.mean is not None]
    mean, place = min(scored, default=(1.0, None), key=lambda found: found[0])
    if place is not None and mean < 1:
        words += f" Lowest cell: {format_cell(place, table.cells[place])}."
    return words
