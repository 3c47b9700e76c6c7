"""Coloured cells with numbers in them: what heatmap, task grid and difference map are made of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt

from leadline.report.colours import ACCURACY, Scale, colour_at, ink_on
from leadline.report.table import Place, Tally
from leadline.report.theme import ACCURACY_SCALE, DIFFERENCE_SCALE, MUTED, QUIET, Row, Spec, layered
from leadline.report.words import cell_words, depth_words, length_words, percent

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


def tiles(x: alt.X, y: alt.Y, size: Size, kinds: Kinds, hue: Hue = ACCURACY_HUE) -> Spec:
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
        "length": length_words(place.length),
        "row": depth_words(place.depth),
        "mean": mean,
        "value": percent(mean),
        "short": "" if tally.done >= tally.planned else f"{tally.done} of {tally.planned}",
        "ink": ink(ACCURACY, mean),
        "label": f"[{selection}] {cell_words(place, tally)}",
    }


def ink(scale: Scale, share: float | None) -> str:
    return "" if share is None else ink_on(colour_at(scale, share))
