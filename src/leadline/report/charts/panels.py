"""Panels of curves with bands: estimates by any label on the horizontal axis, one line for each series."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from leadline.core.format import format_percent, sanitise
from leadline.report.charts.curves import ACCURACY_SCALE, band_layers, length_axis, share_axis
from leadline.report.charts.theme import (
    QUIET,
    SERIES,
    ChartRow,
    ChartSpec,
    Figure,
    captioned,
    layered,
    panel_title,
    unchecked,
)
from leadline.stats.intervals import Estimate


@dataclass(frozen=True, slots=True)
class CurvePanel:
    """`series` has, by the name of each line, estimates by their label on the horizontal axis."""

    title: str
    x_title: str
    labels: Sequence[str]
    """In the order in which they stand on the axis."""
    series: Mapping[str, Mapping[str, Estimate]]
    y_title: str = "accuracy"
    """What the shares are of, where they are no differences."""
    difference: bool = False
    """Whether the numbers are differences of shares, from -1 to 1, drawn in points on a scale of their own."""


@unchecked
def panel_figure(panels: Sequence[CurvePanel], note: str, title: str, *, narrow: bool) -> Figure:
    """All panels, two in a row where there is room."""
    columns = 1 if narrow or len(panels) == 1 else 2
    width = 300 if narrow else 560 if columns == 1 else 300
    data: dict[str, list[ChartRow]] = {}
    drawn: list[ChartSpec] = []
    for number, panel in enumerate(panels):
        name = f"panel{number}"
        data[name] = [
            _row(series, label, estimate, difference=panel.difference) | {"alone": len(by_label) == 1}
            for series, by_label in panel.series.items()
            for label, estimate in by_label.items()
        ]
        drawn.append(layered(_layers(panel, name), width, 220) | panel_title(sanitise(panel.title, 60)))
    resolve = {"scale": {"color": "independent", "x": "independent", "y": "independent"}}
    grid: ChartSpec = {"concat": drawn, "columns": columns, "spacing": 28, "resolve": resolve}
    labels = "; ".join(str(row["label"]) for rows in data.values() for row in rows)
    return Figure(captioned(grid, note, width * columns), data, sanitise(f"{title}. {labels}.", 4000))


def _layers(panel: CurvePanel, rows: str) -> list[alt.Chart]:
    names = [sanitise(name, 40) for name in panel.series]
    colours = alt.Scale(domain=names, range=[SERIES[i % len(SERIES)] for i in range(len(names))])
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolType="circle", symbolOpacity=1)
    colour = alt.Color("series:N", scale=colours, legend=legend if len(names) > 1 else None)
    base = alt.Chart(alt.NamedData(rows)).encode(length_axis(list(panel.labels), panel.x_title), colour)
    opacity = 0.16 if len(names) <= 3 else 0.08
    if not panel.difference:
        shares = share_axis(panel.y_title)
        return [*band_layers(base, ACCURACY_SCALE, shares, opacity), _interval_alone(base, ACCURACY_SCALE, shares)]
    axis = alt.Axis(format="+.0f", grid=True, title="points", tickCount=5, **QUIET)
    scale = alt.Scale(zero=True, nice=True)
    return [*band_layers(base, scale, axis, opacity), _interval_alone(base, scale, axis)]


def _interval_alone(base: alt.Chart, scale: alt.Scale, axis: alt.Axis) -> alt.Chart:
    """The interval of a series with one point, where a band has no width."""
    rule = base.transform_filter("datum.alone").mark_rule(strokeWidth=2, opacity=0.5, aria=False)
    drawn: alt.Chart = rule.encode(alt.Y("low:Q", scale=scale, axis=axis), alt.Y2("high:Q"))
    return drawn


def _row(series: str, label: str, estimate: Estimate, *, difference: bool) -> ChartRow:
    low, high = estimate.interval.low, estimate.interval.high
    bounded = math.isfinite(low) and math.isfinite(high)
    unit = 100.0 if difference else 1.0
    number = f"{100 * estimate.mean:+.1f} points" if difference else f"{format_percent(estimate.mean)}%"
    return {
        "series": sanitise(series, 40),
        "length": label,
        "mean": unit * estimate.mean,
        "low": unit * (low if bounded else estimate.mean),
        "high": unit * (high if bounded else estimate.mean),
        "label": f"{sanitise(series, 40)}, {label}: {number}, {estimate.n} answers",
    }
