"""Correlations: a proxy against a target with a point for each model, and between tasks with their cluster tree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from leadline.core.format import NO_NUMBER, format_count, sanitise
from leadline.features.correlate.correlation import Correlation, Method, TaskCorrelation
from leadline.report.charts.theme import QUIET, SERIES, ChartRow, ChartSpec, Figure, captioned, layered
from leadline.report.colours import DIFFERENCE, LINE, MUTED, TEXT, colour_at, ink_on
from leadline.report.heatmap_data import short_name

# --- a proxy against a target -------------------------------------------------------------------

PLAIN, OUTLIER = "model", "outlier"


def scatter(
    names: Sequence[str],
    proxy: Sequence[float],
    target: Sequence[float],
    correlations: Mapping[Method, Correlation],
    *,
    proxy_name: str,
    target_name: str,
) -> Figure:
    """A named point for each model. Outliers, those that skipped Spearman leaves out, are hollow."""
    outliers = set(correlations["skipped spearman"].outliers)
    rows: list[ChartRow] = [
        {
            "name": sanitise(name, 40),
            "x": x,
            "y": y,
            "kind": OUTLIER if number in outliers else PLAIN,
            "label": f"{sanitise(name, 40)}: {x:.4g}, {y:.4g}{', an outlier' if number in outliers else ''}",
        }
        for number, (name, x, y) in enumerate(zip(names, proxy, target, strict=True))
    ]
    wide = 520
    plot = PlotArea(span_with_margin(proxy), span_with_margin(target), wide, wide * 0.72)
    plot.place_names(rows)
    text = format_correlations(correlations)
    drawn = layered(_layers(plot, proxy_name, target_name), plot.width, plot.height)
    chart = captioned(drawn | {"data": {"name": "models"}}, text, wide)
    labels = "; ".join(row["label"] for row in rows)
    return Figure(
        chart, {"models": rows}, f"{sanitise(target_name, 60)} against {sanitise(proxy_name, 60)}. {text} {labels}."
    )


def format_correlations(correlations: Mapping[Method, Correlation]) -> str:
    """`Spearman 0.72 [0.35, 0.89], ... over 17 models; 1 outlier by projection.`"""
    parts = [
        f"{method[0].upper()}{method[1:]} {result.value:.3f} [{result.interval.low:.3f}, {result.interval.high:.3f}]"
        for method, result in correlations.items()
    ]
    first = next(iter(correlations.values()))
    count = len(correlations["skipped spearman"].outliers)
    marked = f"; {format_count(count, 'outlier')} by projection, drawn hollow" if count else ""
    return f"{', '.join(parts)} over {first.n} models{marked}. Intervals: 95%, {first.resamples:,} resamples."


AxisRange = tuple[float, float]
_LETTER, _LINE = 5.2, 11.0
"""Width of a letter and height of a line of names, in pixels."""


def span_with_margin(values: Sequence[float]) -> AxisRange:
    """Smallest and largest value, with some room around them."""
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 0.1 * abs(high) or 1.0
    return low - room, high + room


@dataclass(frozen=True, slots=True)
class PlotArea:
    """The area inside the axes: the values it spans, and its size in pixels."""

    x: AxisRange
    y: AxisRange
    width: float
    height: float

    def place_names(self, rows: list[ChartRow]) -> None:
        """Puts each name where it covers no other name or point: right of its point, left of it, then further away."""
        points = [self._pixels(row["x"], row["y"]) for row in rows]
        taken = [(px - 5, py - 5, px + 5, py + 5) for px, py in points]
        for row, (px, py) in sorted(zip(rows, points, strict=True), key=lambda pair: pair[1]):
            size = _LETTER * len(row["name"])
            for side, dx, dy in _PLACES:
                left = px + dx if side == "left" else px - dx - size
                box = (left, py + dy - _LINE / 2, left + size, py + dy + _LINE / 2)
                inside = box[0] >= 0 and box[2] <= self.width and box[1] >= 0 and box[3] <= self.height
                if inside and not any(_overlap(box, other) for other in taken):
                    break
            taken.append(box)
            at = left if side == "left" else left + size
            row |= {"side": side, "nx": self._number(at, self.x, self.width), "far": abs(dy) > _LINE,
                    "ny": self._number(self.height - py - dy, self.y, self.height)}  # fmt: skip

    def _pixels(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / (self.x[1] - self.x[0]) * self.width
        return across, self.height - (y - self.y[0]) / (self.y[1] - self.y[0]) * self.height

    def _number(self, pixels: float, span: AxisRange, size: float) -> float:
        return span[0] + pixels / size * (span[1] - span[0])


_PLACES = [
    ("left", 7.0, 0.0), ("right", 7.0, 0.0), ("left", 3.0, -10.0), ("left", 3.0, 10.0),
    *((side, 14.0, sign * 12.0 * step) for step in range(1, 16) for sign in (-1, 1) for side in ("left", "right")),
]  # fmt: skip
"""Positions of a name: which of its edges is near the point, and how far away, in pixels."""


def _overlap(box: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _layers(plot: PlotArea, proxy_name: str, target_name: str) -> list[alt.Chart]:
    across: dict[str, Any] = {"scale": alt.Scale(domain=list(plot.x), nice=False), "axis": _axis(proxy_name)}
    up: dict[str, Any] = {"scale": alt.Scale(domain=list(plot.y), nice=False), "axis": _axis(target_name)}
    base = alt.Chart().encode(alt.X("x:Q", **across), alt.Y("y:Q", **up))
    names = alt.Chart().encode(alt.X("nx:Q", **across), alt.Y("ny:Q", **up), alt.Text("name:N"))
    leads = base.transform_filter("datum.far").encode(alt.X2("nx:Q"), alt.Y2("ny:Q"))
    plain = base.transform_filter(f"datum.kind === '{PLAIN}'")
    outlier = base.transform_filter(f"datum.kind === '{OUTLIER}'")
    described = alt.Description("label:N")
    return [
        leads.mark_rule(color=LINE, strokeWidth=1, aria=False),
        plain.mark_circle(size=64, opacity=0.9, color=SERIES[0], ariaRoleDescription="model").encode(described),
        outlier.mark_point(size=80, strokeWidth=2, color=SERIES[4], ariaRoleDescription="outlier").encode(described),
        *(
            names.transform_filter(f"datum.side === '{side}'").mark_text(
                align=side, fontSize=9.5, color=TEXT, aria=False
            )
            for side in ("left", "right")
        ),
    ]


def _axis(title: str) -> alt.Axis:
    return alt.Axis(title=sanitise(title, 80), grid=True, tickCount=6, **QUIET)


# --- correlations between tasks -----------------------------------------------------------------

CELL = 34
TREE_WIDTH = 130
SCALE = alt.Scale(domain=[-1, 1], range=list(DIFFERENCE), clamp=True)


def task_tree(correlation: TaskCorrelation) -> Figure:
    """The correlation matrix in the order of the cluster tree, with the tree to its right."""
    names = list(map(short_name, correlation.tasks))
    side = max(15.0, min(CELL, 560 / len(names)))
    wide = side * len(names)
    matrix = layered(_cells(names, side), wide, wide) | {"data": {"name": "pairs"}}
    tree = layered(_branches(correlation, len(names)), TREE_WIDTH, wide) | {"data": {"name": "branches"}}
    text = _tree_caption(correlation)
    drawn: ChartSpec = {"hconcat": [matrix, tree], "spacing": 6}
    chart = captioned(drawn, text, wide + TREE_WIDTH)
    groups = "; ".join(", ".join(cluster) for cluster in correlation.clusters)
    return Figure(
        chart, {"pairs": _pairs(correlation, names), "branches": _lines(correlation)}, f"{text} Clusters: {groups}."
    )


def _tree_caption(correlation: TaskCorrelation) -> str:
    clusters = format_count(len(correlation.clusters), "cluster")
    return (
        f"Spearman correlation of scores over {correlation.models} models ({correlation.points} points). "
        f"Tree: average linkage of 1 - correlation, cut at {correlation.cut:g} (dashed): {clusters}."
    )


def format_correlation(value: float) -> str:
    """`.72`, with a real minus sign."""
    if not math.isfinite(value):
        return NO_NUMBER
    return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".").replace("-", "−")  # + 0.0: no minus before a zero


def _pairs(correlation: TaskCorrelation, names: list[str]) -> list[ChartRow]:
    rows: list[ChartRow] = []
    for i, down in enumerate(names):
        for j, right in enumerate(names):
            value = float(correlation.matrix[i, j])
            known = math.isfinite(value)
            low, high = correlation.low[i, j], correlation.high[i, j]
            text = f"{value:.2f}, 95% interval {low:.2f} to {high:.2f}" if known else "unknown"
            rows.append(
                {
                    "down": down,
                    "across": right,
                    "value": value if known else None,
                    "text": "" if i == j else format_correlation(value),
                    "ink": ink_on(colour_at(DIFFERENCE, (value + 1) / 2)) if known else MUTED,
                    "label": f"{down} and {right}: {text}",
                }
            )
    return rows


def _cells(names: list[str], side: float) -> list[alt.Chart]:
    x = alt.X("across:N", sort=names, scale=alt.Scale(padding=0.04), axis=_names_axis(-45))
    y = alt.Y("down:N", sort=names, scale=alt.Scale(padding=0.04), axis=_names_axis())
    base = alt.Chart().encode(x, y)
    fill = alt.Fill(
        "value:Q",
        scale=SCALE,
        legend=alt.Legend(title=None, orient="top", direction="horizontal", gradientLength=160, values=[-1, 0, 1]),
    )
    layers = [
        base.transform_filter("datum.value !== null")
        .mark_rect(cornerRadius=2, ariaRoleDescription="correlation")
        .encode(fill, alt.Description("label:N"))
    ]
    if side >= 24:
        layers.append(
            base.mark_text(fontSize=9.5, aria=False).encode(alt.Text("text:N"), alt.Color("ink:N", scale=None))
        )
    return layers


def _names_axis(angle: int = 0) -> alt.Axis:
    return alt.Axis(title=None, labelLimit=200, labelAngle=angle, **QUIET)


def _lines(correlation: TaskCorrelation) -> list[ChartRow]:
    """Each merge of two clusters is a bracket of three lines."""
    rows: list[ChartRow] = []
    at: dict[tuple[int, ...], tuple[float, float]] = {(i,): (i + 0.5, 0.0) for i in range(len(correlation.tasks))}
    for merge in correlation.merges:
        (left, near), (right, far) = at[merge.left], at[merge.right]
        end = merge.distance
        rows += [
            {"x": near, "x2": end, "y": left, "y2": left},
            {"x": far, "x2": end, "y": right, "y2": right},
            {"x": end, "x2": end, "y": left, "y2": right},
        ]
        at[merge.tasks] = ((left + right) / 2, end)
    return rows


def _branches(correlation: TaskCorrelation, count: int) -> list[alt.Chart]:
    furthest = max([1.0, *(merge.distance for merge in correlation.merges)])
    axis = alt.Axis(title="1 - correlation", values=[0, 0.5, 1, 1.5, 2], grid=False, format=".1f", **QUIET)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, furthest], nice=False), axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, count], reverse=True, nice=False), axis=None)
    cut = alt.Chart().mark_rule(color=MUTED, strokeDash=[3, 3], strokeWidth=1, aria=False)
    return [
        alt.Chart().mark_rule(color=TEXT, strokeWidth=1.4, aria=False).encode(x, alt.X2("x2:Q"), y, alt.Y2("y2:Q")),
        cut.encode(alt.XDatum(correlation.cut)),
    ]
