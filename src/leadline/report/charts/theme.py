"""What a click on a part of a figure asks for, as a short word that travels inside the figure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from leadline.core.types import FailureClass
from leadline.report.colours import ACCURACY, DIFFERENCE, INK

# --- How every figure looks: one font that is the same on every machine, quiet axes, our colours.
#
# Liberation Sans travels inside vl-convert and has the metrics of Arial and Helvetica, so a figure is laid out the same
# wherever it is made or opened.

Row = dict[str, Any]
Spec = dict[str, Any]

FONT: Final = "Liberation Sans, Arial, Helvetica, sans-serif"
# Each of these four is used for nothing else, so that the page can exchange them for its own light or dark ones.
HEAD: Final = "#17212b"
TEXT: Final = "#3b4855"
MUTED: Final = "#667381"
LINE: Final = "#e1e5ea"

ACCURACY_SCALE: Final = alt.Scale(domain=[0, 1], range=list(ACCURACY), clamp=True)
DIFFERENCE_SCALE: Final = alt.Scale(domain=[-50, 50], range=list(DIFFERENCE), clamp=True)

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
    """A Vega-Lite definition, the named rows it is drawn from, and what it shows in words."""

    chart: Spec
    data: Mapping[str, list[Row]]
    alternative: str

    def spec(self, *, background: str = "white") -> Spec:
        """The finished definition. Rows are named once, so that panels can share them."""
        return self.chart | {
            "$schema": alt.SCHEMA_URL,
            "datasets": dict(self.data),
            "config": _CONFIG,
            "background": background,
            "padding": 2 if background == "transparent" else 14,
            "description": self.alternative,
        }


def layered(layers: Sequence[alt.Chart], width: float, height: float) -> Spec:
    """Layers over one another as a plain definition. Panels are put together as plain definitions too: altair
    copies everything inside a chart each time it is put into another, which takes seconds for a dozen panels."""
    plain = [layer.to_dict(validate=False, context={"top_level": False}) for layer in layers]
    for layer in plain:
        if layer.get("data") == {"name": "empty"}:  # altair's placeholder, which would hide the rows of the panel
            del layer["data"]
    return {"layer": plain, "width": width, "height": height}


def rows_of(name: str, panel: int) -> Spec:
    """The rows of one panel, to be joined to its definition."""
    return {"data": {"name": name}, "transform": [{"filter": f"datum.panel === {panel}"}]}


def caption(words: str, width: float) -> Spec:
    """Small print under a figure, wrapped to its width."""
    lines = textwrap.wrap(words, max(30, int(width / 4.7)))
    text = alt.Chart().mark_text(
        text=lines, align="left", baseline="top", fontSize=10, lineHeight=14, color=MUTED, aria=False
    )
    spec = layered([text.encode(x=alt.value(0), y=alt.value(0))], 10, 14 * len(lines))
    return spec | {"data": {"values": [{}]}}


# --- What a click on a part of a figure asks for, as a short word that travels inside the figure.

ANY = "*"


def selection(
    run: int,
    task: int | None = None,
    length: int | None = None,
    depth: float | str | None = ANY,
    failure_class: FailureClass | None = None,
) -> str:
    """`run/task/length/depth/class`: numbers of run and task, tokens, depth (`-` for none); `*` for any."""
    parts = (run, _or_any(task), _or_any(length), "-" if depth is None else depth, _or_any(failure_class))
    return "/".join(map(str, parts))


def _or_any(value: object) -> object:
    return ANY if value is None else value
