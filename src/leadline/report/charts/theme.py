"""How every figure looks: font, colours and axes, and the parts that all figures are made of.

Liberation Sans comes with vl-convert and has the metrics of Arial, Arimo, Helvetica and Nimbus Sans, so figures have
the same layout on every machine. Where a reader has none of them, the widths in the svg keep the layout (`render`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from threading import RLock
from typing import Any, Final, ParamSpec

import altair as alt
from altair.utils.schemapi import debug_mode

from leadline.report.colours import HEAD, INK, LINE, MUTED, TEXT

ChartRow = dict[str, Any]
ChartSpec = dict[str, Any]

FONT: Final = "Liberation Sans, Arial, Arimo, Helvetica, Nimbus Sans, sans-serif"
SERIES: Final = ("#3174a7", "#e69f00", "#7b3294", "#009e73", "#d55e00", "#56b4e9")
"""Colours of lines: after Okabe and Ito's set, which all kinds of colour vision can tell apart."""

QUIET: Final[dict[str, Any]] = {"ticks": False, "domain": False, "labelPadding": 6, "titlePadding": 10}

_CONFIG: Final[dict[str, Any]] = {
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": TEXT, "titleColor": TEXT, "titleFontWeight": "normal",
        "labelFontSize": 11, "labelLimit": 0, "titleFontSize": 11.5,
        "gridColor": LINE, "domainColor": LINE, "tickColor": LINE,
    },
    "title": {
        "fontSize": 19, "color": HEAD, "subtitleColor": MUTED, "subtitleFontSize": 12, "subtitlePadding": 6,
        "subtitleLineHeight": 17, "anchor": "start", "offset": 16,
    },
    "header": {"labelColor": HEAD, "labelFontSize": 13, "labelFontWeight": "bold", "title": None},
    "legend": {
        "labelColor": TEXT, "titleColor": TEXT, "titleFontWeight": "normal",
        "labelFontSize": 11, "titleFontSize": 11.5, "titlePadding": 8, "labelLimit": 260,
    },
    "text": {"color": INK},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Figure:
    """A Vega-Lite definition, the named rows it is drawn from, and a text alternative."""

    chart: ChartSpec
    data: Mapping[str, list[ChartRow]]
    alternative: str

    def spec(self, *, background: str = "white") -> ChartSpec:
        """The complete definition. Data sets are named, so that panels can share them."""
        return self.chart | {
            "$schema": alt.SCHEMA_URL,
            "datasets": dict(self.data),
            "config": _CONFIG,
            "background": background,
            "padding": 2 if background == "transparent" else 14,
            "description": self.alternative,
        }


P = ParamSpec("P")
_DRAWING = RLock()


def unchecked(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draws without altair's check of every part against its schema as it is made, which takes as long as making it.

    The tests check whole definitions. The switch is one of the process: it is put back, and one thread draws at a time.
    """

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with _DRAWING, debug_mode(False):
            return draw(*args, **kwargs)

    return drawn


def layered(layers: Sequence[alt.Chart], width: float, height: float) -> ChartSpec:
    """Layers as a plain definition. Panels are combined as plain definitions too: altair copies a chart each time it
    is put into another, which takes seconds for a dozen panels."""
    plain = [layer.to_dict(validate=False, context={"top_level": False}) for layer in layers]
    for layer in plain:
        if layer.get("data") == {"name": "empty"}:  # altair's placeholder, which would hide the rows of the panel
            del layer["data"]
    return {"layer": plain, "width": width, "height": height}


def rows_of(name: str, panel: int) -> ChartSpec:
    """The rows of one panel, to be joined to its definition."""
    return {"data": {"name": name}, "transform": [{"filter": f"datum.panel === {panel}"}]}


def panel_title(text: str, **changes: Any) -> ChartSpec:
    return {"title": {"text": text, "fontSize": 13, "offset": 8} | changes} if text else {}


def caption(text: str, width: float) -> ChartSpec:
    """Small print under a figure, wrapped to its width."""
    lines = textwrap.wrap(text, max(30, int(width / 4.7)))
    mark = alt.Chart().mark_text(
        text=lines, align="left", baseline="top", fontSize=10, lineHeight=14, color=MUTED, aria=False
    )
    spec = layered([mark.encode(x=alt.value(0), y=alt.value(0))], 10, 14 * len(lines))
    return spec | {"data": {"values": [{}]}}


def captioned(panel: ChartSpec, text: str, width: float) -> ChartSpec:
    """A panel above its caption."""
    return {"vconcat": [panel, caption(text, width)], "spacing": 12}


def selectable(select: str, label: str) -> str:
    """The description of a mark. `render` takes the selection out again."""
    return f"[{select}] {label}"
