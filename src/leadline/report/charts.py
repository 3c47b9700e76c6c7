"""The heatmap: length across, depth down, colour for accuracy. One definition for page, png, svg and pdf."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import altair as alt

from leadline.report.colours import ACCURACY, colour_at
from leadline.report.load import Run, interval_words
from leadline.report.selection import selection
from leadline.report.smoothed import CAPTION, smoothed_cells
from leadline.report.table import Place, Table, Tally
from leadline.report.theme import HEAD, MUTED, QUIET, TEXT, Figure, Row, Spec, caption, layered, rows_of
from leadline.report.tiles import NO_DATA, Kinds, Size, across, cell_row, down, tiles
from leadline.report.words import cell_words, count_words, depth_words, inert, length_words, percent, percent_range

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
    counts = [count_words(whole.done, "sample")]
    if whole.failed:
        counts.append(f"{whole.failed:,} failed")
    if whole.missing:
        counts.append(f"{whole.missing:,} not asked yet")
    facts = [inert(tasks, 90), f"{run.reading} reading", ", ".join(counts), run.date]
    return {"text": inert(run.label, 60), "subtitle": " · ".join(facts)}


# --- panels -------------------------------------------------------------------------------------


def _panel(table: Table, number: int, task: str, size: Size, kinds: Kinds, *, first: bool, last: bool) -> Spec:
    """One task: the strip of means above, the cells below. Outer panels alone carry axis titles."""
    lengths, depths = table.lengths, table.depths_of(task)
    strip, cells = _drawn(tuple(map(length_words, lengths)), tuple(map(depth_words, depths)), size, kinds, first, last)
    panel: Spec = {"vconcat": [strip | rows_of("means", number), cells | rows_of("cells", number)], "spacing": 8}
    if len(table.tasks) > 1:
        panel["title"] = {"text": inert(task, 60), "fontSize": 13, "offset": 8}
    return panel


@lru_cache(maxsize=64)
def _drawn(
    lengths: tuple[str, ...], depths: tuple[str, ...], size: Size, kinds: Kinds, first: bool, last: bool
) -> tuple[Spec, Spec]:
    """Strip and cells of a panel without their rows. Making definitions takes altair a while, and panels are alike."""
    # A title longer than its panel is tall would push the rows of the figure out of line.
    where = "where the fact stands (0% = start)" if size.height >= 240 else "depth"
    cells = tiles(across(list(lengths), titled=last), down(list(depths), where if first else None), size, kinds)
    return _strip(list(lengths), size, titled=first), cells


def _flat_panel(table: Table, tasks: Sequence[str], kinds: Kinds, *, narrow: bool) -> Spec:
    """Tasks without a depth: tasks down, lengths across."""
    lengths = [length_words(n) for n in table.lengths]
    wide = min(62.0, max(13.0, (330 if narrow else 620) / len(lengths)))
    size = Size.exactly(len(lengths), len(tasks), wide, 31.0, narrow=narrow)
    cells = tiles(across(lengths), down([inert(t, 40) for t in tasks], None), size, kinds)
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
            cells.append(cell | {"panel": FLAT, "row": inert(task, 40)})
        else:
            means.append(_mean_row(task, length, tally, chosen) | {"panel": deep.index(task)})
    return {"cells": cells, "means": means}


def _mean_row(task: str, length: int, tally: Tally, chosen: str) -> Row:
    row: Row = {"length": length_words(length), "mean": tally.mean, "low": None, "high": None}
    if tally.interval is not None and tally.mean is not None:
        row |= {"low": tally.interval.low, "high": tally.interval.high, "colour": colour_at(ACCURACY, tally.mean)}
        value = f"{percent(tally.mean)}%, 95% interval {percent_range(tally.interval)}%, {tally.done} answered"
        row["label"] = f"[{chosen}] {inert(task, 60)}, length {length_words(length)}, all depths: {value}"
    return row


def caption_words(run: Run) -> str:
    """The small print that makes the picture hard to read wrongly."""
    tallies = list(run.table.cells.values())
    sizes = sorted({t.planned for t in tallies}) or [0]
    planned = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    counted = "asked" if run.rule else "planned"
    parts = [f"Cells: accuracy in percent, {planned} samples {counted} in each. Bars: {interval_words(run)}."]
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
    parts = ", ".join(f"{length_words(n)} {percent(t.mean)}%" for n, t in known.items())
    words = f"Heatmap of accuracy by length and depth for {inert(run.label, 60)}. By length: {parts or 'no data'}."
    scored = [(t.mean, p) for p, t in table.cells.items() if t.mean is not None]
    mean, place = min(scored, default=(1.0, None), key=lambda found: found[0])
    if place is not None and mean < 1:
        words += f" Lowest cell: {cell_words(place, table.cells[place])}."
    return words
