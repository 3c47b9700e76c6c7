"""The perplexity trap: log-probability metrics over length, beside the accuracy that they may hide.

Perplexity is an average over all tokens, few of which need the far context: it can stay flat while accuracy falls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from leadline.report.curves import MANY, SERIES, length_axis
from leadline.report.load import Run
from leadline.report.measures import Metric
from leadline.report.theme import QUIET, Figure, Row, Spec, caption, layered, rows_of
from leadline.report.words import inert, length_words
from leadline.stats.intervals import Estimate
from leadline.stats.soundings import metric_of

NOTE = "Bands: 95% intervals over documents. Scales differ between panels."
SHARE = "share"


@dataclass(frozen=True, slots=True)
class Panel:
    """One number over lengths or distances. `is_loss` has its exponential shown, which is a perplexity."""

    title: str
    unit: str
    is_loss: bool
    found: Mapping[int, Estimate]

    @classmethod
    def of(cls, metric: Metric, found: Mapping[int, Estimate]) -> Panel:
        known = metric_of(metric.name)
        unit = "perplexity" if known.is_loss else known.unit or metric.unit
        return cls(f"{metric.task}: {metric.name} ({known.better} is better)", unit, known.is_loss, found)


def measure_curves(run: Run, *, narrow: bool = False) -> Figure:
    """A panel for accuracy and one for every metric, each on its own scale."""
    accuracy = {n: t.estimate for n, t in run.table.by_length.items() if t.estimate is not None}
    panels = [Panel("accuracy", SHARE, False, accuracy)] if accuracy else []
    panels += [Panel.of(metric, found) for metric, found in run.measures.estimates.items()]
    return _figure(panels, "context length (tokens)", "Log-probabilities over length beside accuracy", narrow=narrow)


def distance_curves(run: Run, *, narrow: bool = False) -> Figure:
    """The metrics whose answer has a place, by how many tokens back it stands."""
    panels = [Panel.of(metric, found) for metric, found in run.measures.by_distance.items()]
    return _figure(panels, "tokens back to the answer", "Log-probabilities over distance", narrow=narrow)


def _figure(panels: Sequence[Panel], across: str, words: str, *, narrow: bool) -> Figure:
    places = [length_words(n) for n in sorted({n for panel in panels for n in panel.found})]
    wide = 300 if narrow else 270
    parts: list[Spec] = []
    rows: list[Row] = []
    for number, panel in enumerate(panels):
        rows += [_row(number, panel, n, found) for n, found in sorted(panel.found.items())]
        drawn = layered(_layers(places, panel.unit, across, SERIES[number % MANY]), wide, 120)
        title = {"text": inert(panel.title, 60), "fontSize": 12, "offset": 6, "frame": "group"}
        parts.append(drawn | rows_of("measures", number) | {"title": title})
    apart = {"scale": {"y": "independent"}}
    grid: Spec = {"concat": parts, "columns": 1 if narrow else 2, "spacing": 24, "resolve": apart}
    chart: Spec = {"vconcat": [grid, caption(NOTE, wide)], "spacing": 12}
    return Figure(chart, {"measures": rows}, f"{words}. {'; '.join(row['label'] for row in rows)}.")


def _layers(places: list[str], unit: str, across: str, colour: str) -> list[alt.Chart]:
    scale = alt.Scale(domain=[0, 1]) if unit == SHARE else alt.Scale(zero=False, nice=True)
    form = ".0%" if unit == SHARE else "~g"
    axis = alt.Axis(format=form, tickCount=4, grid=True, title="" if unit == SHARE else inert(unit, 24), **QUIET)
    y = alt.Y("mean:Q", scale=scale, axis=axis)
    base = alt.Chart().encode(length_axis(places, across))
    return [
        base.mark_area(opacity=0.16, color=colour, aria=False).encode(alt.Y("low:Q", scale=scale), alt.Y2("high:Q")),
        base.mark_line(strokeWidth=2, color=colour, aria=False).encode(y),
        base.mark_circle(size=40, opacity=1, color=colour, ariaRoleDescription="mean").encode(
            y, alt.Description("label:N")
        ),
    ]


def _row(number: int, panel: Panel, place: int, found: Estimate) -> Row:
    mean, low, high = found.mean, found.interval.low, found.interval.high
    if panel.is_loss:
        mean, low, high = (math.exp(min(nats, 700.0)) for nats in (mean, low, high))
    bounded = math.isfinite(found.interval.low) and math.isfinite(found.interval.high)
    spread = f", 95% interval {low:.4g} to {high:.4g}" if bounded else ", one document"
    return {
        "panel": number, "length": length_words(place), "mean": mean,
        "low": low if bounded else mean, "high": high if bounded else mean,
        "label": f"{inert(panel.title, 60)} at {length_words(place)}: {mean:.4g} {inert(panel.unit, 24)}{spread}",
    }  # fmt: skip
