"""The heatmap: length across, depth down, colour for accuracy. One definition for page, png, svg and pdf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from leadline.report.colours import ACCURACY, colour_at, ink_on
from leadline.report.load import Run
from leadline.report.table import Place, Table, Tally
from leadline.report.theme import ACCURACY_SCALE, HEAD, MUTED, QUIET, TEXT, Figure, Row, Spec, caption, layered, rows_of
from leadline.report.words import cell_words, count_words, depth_words, inert, length_words, percent, percent_range

NO_DATA = "datum.mean === null"
FLAT = -1
"""The panel of tasks without a depth."""
TILES = alt.Scale(paddingInner=0.05, paddingOuter=0)
TILE: dict[str, Any] = {"cornerRadius": 2, "ariaRoleDescription": "cell"}


@dataclass(frozen=True, slots=True)
class Size:
    """Of one panel of cells, in pixels of a png at scale 1."""

    width: float
    height: float
    digits: float
    """Font size of the numbers in cells; 0 leaves them out."""
    curve: float
    """Height of the strip above with means and intervals over all depths."""

    @classmethod
    def of(cls, lengths: int, depths: int, panels: int) -> Size:
        across = columns_for(panels)
        width = min(62.0, max(13.0, (560 if across == 1 else 960 / across - 70) / lengths))
        height = min(31.0, max(8.0, (352 if across == 1 else 190) / depths))
        digits = min(12.0, width / 2.8, height * 0.62)
        return cls(width * lengths, height * depths, digits if digits >= 6.5 else 0.0, 62 if across == 1 else 40)


def columns_for(panels: int) -> int:
    return 1 if panels == 1 else 2 if panels <= 4 else 3


def heatmap(run: Run, *, titled: bool = True) -> Figure:
    """A panel for every task that has depths; tasks without are drawn as rows of one grid."""
    table = run.table
    deep = [t for t in table.tasks if table.has_depths(t)]
    flat = [t for t in table.tasks if t not in deep]
    size = Size.of(len(table.lengths), max((len(table.depths_of(t)) for t in deep), default=1), len(deep))
    across = columns_for(len(deep))
    parts: list[Spec] = []
    for start in range(0, len(deep), across):
        row = [
            _panel(table, at, deep[at], size, first=at == start, last=at + across >= len(deep))
            for at in range(start, min(start + across, len(deep)))
        ]
        parts.append({"hconcat": row, "spacing": 30} if len(row) > 1 else row[0])
    if flat:
        parts.append(_flat_panel(table, flat))
    caption = caption_of(run, across * size.width if deep else 500)
    chart: Spec = {"vconcat": [*parts, caption], "spacing": 20, "resolve": {"scale": {"fill": "shared"}}}
    if titled:
        chart["title"] = heading(run)
    return Figure(chart, _rows(table, deep, flat), _alternative(run))


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
    return {"text": inert(run.model, 60), "subtitle": " · ".join(facts)}


# --- panels -------------------------------------------------------------------------------------


def _panel(table: Table, at: int, task: str, size: Size, *, first: bool, last: bool) -> Spec:
    """One task: the strip of means above, the cells below. Outer panels alone carry axis titles."""
    lengths = [length_words(n) for n in table.lengths]
    depths = [depth_words(d) for d in table.depths_of(task)]
    across = alt.X("length:O", sort=lengths, scale=TILES)
    axis = alt.Axis(labelAngle=0, labelOverlap=True, title="context length (tokens)" if last else None, **QUIET)
    # A title longer than its panel is tall would push the rows of the figure out of line.
    where = "where the fact stands (0% = start)" if size.height >= 240 else "depth"
    depth_axis = alt.Axis(labelOverlap=True, title=where if first else None, **QUIET)
    panel: Spec = {
        "vconcat": [
            _curve(across, size, titled=first) | rows_of("means", at),
            _cells(across.axis(axis), alt.Y("row:O", sort=depths, scale=TILES, axis=depth_axis), size)
            | rows_of("cells", at),
        ],
        "spacing": 8,
    }
    if len(table.tasks) > 1:
        panel["title"] = {"text": inert(task, 60), "fontSize": 13, "offset": 8}
    return panel


def _flat_panel(table: Table, tasks: Sequence[str]) -> Spec:
    """Tasks without a depth: tasks down, lengths across."""
    lengths = [length_words(n) for n in table.lengths]
    wide = min(62.0, max(13.0, 620 / len(lengths)))
    size = Size(wide * len(lengths), 31.0 * len(tasks), min(12.0, wide / 2.8), 0)
    axis = alt.Axis(labelAngle=0, labelOverlap=True, title="context length (tokens)", **QUIET)
    names = alt.Axis(title=None, **QUIET)
    cells = _cells(
        alt.X("length:O", sort=lengths, scale=TILES, axis=axis),
        alt.Y("row:O", sort=[inert(t, 40) for t in tasks], scale=TILES, axis=names),
        size,
    )
    return cells | rows_of("cells", FLAT)


def _cells(x: alt.X, y: alt.Y, size: Size) -> Spec:
    base = alt.Chart().encode(x, y)
    known, unknown = base.transform_filter(f"!({NO_DATA})"), base.transform_filter(NO_DATA)
    legend = alt.Legend(
        title="accuracy", format=".0%", values=[0, 0.25, 0.5, 0.75, 1],
        gradientLength=min(200, max(80, size.height)), gradientThickness=11,
    )  # fmt: skip
    fill = alt.Fill("mean:Q", scale=ACCURACY_SCALE, legend=legend)
    empty = alt.MarkDef("rect", fill="transparent", stroke=MUTED, strokeDash=[3, 3], **TILE)
    layers = [
        unknown.encode(description="label:N").properties(mark=empty),
        known.encode(fill, description="label:N").properties(mark=alt.MarkDef("rect", **TILE)),
    ]
    if size.digits:
        layers += _numbers(known, unknown, size.digits)
    return layered(layers, size.width, size.height)


def _numbers(known: alt.Chart, unknown: alt.Chart, digits: float) -> list[alt.Chart]:
    """The mean in every cell, and under it how many samples answered where some did not."""
    ink = alt.Color("ink:N", scale=None)
    whole, short = known.transform_filter("!datum.short"), known.transform_filter("datum.short")
    return [
        unknown.mark_text(text="no data", fontSize=digits * 0.72, fontStyle="italic", color=MUTED, aria=False),
        whole.mark_text(fontSize=digits, aria=False).encode(ink, text="value:N"),
        short.mark_text(fontSize=digits * 0.92, dy=-digits * 0.36, aria=False).encode(ink, text="value:N"),
        short.mark_text(fontSize=digits * 0.66, dy=digits * 0.6, aria=False).encode(ink, text="short:N"),
    ]


def _curve(x: alt.X, size: Size, *, titled: bool) -> Spec:
    """All depths together, with the interval that a cell of three samples cannot show."""
    known = alt.Chart().transform_filter(f"!({NO_DATA})").encode(x.axis(None))
    axis = alt.Axis(
        format=".0%",
        values=[0, 0.5, 1],
        title=("all depths" if size.curve >= 60 else "all") if titled else None,
        **QUIET,
    )
    y = alt.Y("mean:Q", scale=alt.Scale(domain=[0, 1]), axis=axis)
    layers = [
        known.mark_line(color=MUTED, strokeWidth=1, opacity=0.6, aria=False).encode(y),
        known.mark_rule(color=TEXT, strokeWidth=1.6, aria=False).encode(alt.Y("low:Q"), alt.Y2("high:Q")),
        known.mark_circle(size=66, opacity=1, stroke=HEAD, strokeWidth=1, ariaRoleDescription="mean").encode(
            y, alt.Color("colour:N", scale=None), description="label:N"
        ),
    ]
    return layered(layers, size.width, size.curve)


# --- rows and words -----------------------------------------------------------------------------


def _rows(table: Table, deep: Sequence[str], flat: Sequence[str]) -> dict[str, list[Row]]:
    cells = [
        _cell_row(place, tally) | {"panel": deep.index(place.task)}
        for place, tally in table.cells.items()
        if place.task in deep
    ]
    means = []
    for (task, length), tally in table.by_task_and_length.items():
        if task in flat:
            cell = _cell_row(Place(task, length, None), tally)
            cells.append(cell | {"panel": FLAT, "row": inert(task, 40)})
        else:
            means.append(_mean_row(length, tally) | {"panel": deep.index(task)})
    return {"cells": cells, "means": means}


def _cell_row(place: Place, tally: Tally) -> Row:
    mean = tally.mean
    return {
        "length": length_words(place.length),
        "row": depth_words(place.depth),
        "mean": mean,
        "value": percent(mean),
        "short": "" if tally.done >= tally.planned else f"{tally.done} of {tally.planned}",
        "ink": "" if mean is None else ink_on(colour_at(ACCURACY, mean)),
        "label": cell_words(place, tally),
    }


def _mean_row(length: int, tally: Tally) -> Row:
    row: Row = {"length": length_words(length), "mean": tally.mean, "low": None, "high": None}
    if tally.interval is not None and tally.mean is not None:
        row |= {"low": tally.interval.low, "high": tally.interval.high, "colour": colour_at(ACCURACY, tally.mean)}
        spread = percent_range(tally.interval)
        row["label"] = f"length {length_words(length)}, all depths: {percent(tally.mean)}%, 95% interval {spread}%"
    return row


def caption_of(run: Run, width: float) -> Spec:
    """The small print that makes the picture hard to read wrongly."""
    tallies = list(run.table.cells.values())
    sizes = sorted({t.planned for t in tallies}) or [0]
    planned = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    parts = [f"Cells: accuracy in percent, {planned} samples planned in each. Bars: 95% intervals over documents."]
    if any(t.estimate is None for t in tallies):
        parts.append("Dashed: no data.")
    if any(t.failed for t in tallies):
        parts.append("Failed samples got no answer and are in no mean.")
    if run.manifest.sessions:
        parts.append(f"Leadline {run.manifest.sessions[-1].leadline}.")
    return caption(" ".join(parts), width)


def _alternative(run: Run) -> str:
    """The picture in a sentence or two, for those who cannot see it."""
    table = run.table
    known = {n: t for n, t in sorted(table.by_length.items()) if t.estimate is not None}
    parts = ", ".join(f"{length_words(n)} {percent(t.mean)}%" for n, t in known.items())
    words = f"Heatmap of accuracy by length and depth for {inert(run.model, 60)}. By length: {parts or 'no data'}."
    scored = [(t.mean, p) for p, t in table.cells.items() if t.mean is not None]
    mean, place = min(scored, default=(1.0, None), key=lambda found: found[0])
    if place is not None and mean < 1:
        words += f" Lowest cell: {cell_words(place, table.cells[place])}."
    return words
