"""Figures of log-probability metrics: a panel for each metric over length or distance, and perplexity beside retrieval.

Perplexity is an average over all tokens, few of which need the far context: it can stay flat while accuracy falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import altair as alt

from leadline.core.format import format_length, sanitise
from leadline.report.charts.curves import MANY, band_layers, length_axis
from leadline.report.charts.theme import (
    QUIET,
    SERIES,
    ChartRow,
    ChartSpec,
    Figure,
    captioned,
    layered,
    panel_title,
    rows_of,
)
from leadline.results.run import MetricName, Run
from leadline.stats.intervals import Estimate
from leadline.stats.logprobs import metric_of

ByLength = Mapping[int, Estimate]

# --- one panel for each metric ------------------------------------------------------------------

NOTE = "Bands: 95% intervals over documents. Every panel has its own scale."
SHARE = "share"


@dataclass(frozen=True, slots=True)
class MetricPanel:
    """One metric over lengths or distances. A loss is shown as its exponential, the perplexity."""

    title: str
    unit: str
    is_loss: bool
    estimates: Mapping[int, Estimate]

    @classmethod
    def of(cls, metric: MetricName, estimates: Mapping[int, Estimate]) -> MetricPanel:
        known = metric_of(metric.name)
        unit = "perplexity" if known.is_loss else known.unit or metric.unit
        name = metric.name if metric.task == metric.name else f"{metric.task}: {metric.name}"
        return cls(f"{name} ({known.better} is better)", unit, known.is_loss, estimates)


def logprob_curves(run: Run, *, narrow: bool = False) -> Figure:
    """A panel for accuracy and one for every metric, each on its own scale."""
    accuracy = {n: t.estimate for n, t in run.table.by_length.items() if t.estimate is not None}
    panels = [MetricPanel("accuracy", SHARE, False, accuracy)] if accuracy else []
    panels += [MetricPanel.of(metric, estimates) for metric, estimates in run.logprobs.estimates.items()]
    return _figure(panels, "context length (tokens)", "Log-probabilities over length beside accuracy", narrow=narrow)


def distance_curves(run: Run, *, narrow: bool = False) -> Figure:
    """Metrics by the distance from the question back to the answer, where that is known."""
    panels = [MetricPanel.of(metric, estimates) for metric, estimates in run.logprobs.by_distance.items()]
    return _figure(panels, "tokens back to the answer", "Log-probabilities over distance", narrow=narrow)


def _figure(panels: Sequence[MetricPanel], x_title: str, title: str, *, narrow: bool) -> Figure:
    places = [format_length(n) for n in sorted({n for panel in panels for n in panel.estimates})]
    wide = 300 if narrow else 270
    parts: list[ChartSpec] = []
    rows: list[ChartRow] = []
    for number, panel in enumerate(panels):
        rows += [_row(number, panel, n, estimate) for n, estimate in sorted(panel.estimates.items())]
        drawn = layered(_layers(places, panel.unit, x_title, SERIES[number % MANY]), wide, 120)
        named = panel_title(sanitise(panel.title, 60), fontSize=12, offset=6, frame="group")
        parts.append(drawn | rows_of("metrics", number) | named)
    resolve = {"scale": {"y": "independent"}}
    grid: ChartSpec = {"concat": parts, "columns": 1 if narrow else 2, "spacing": 24, "resolve": resolve}
    return Figure(
        captioned(grid, NOTE, wide), {"metrics": rows}, f"{title}. {'; '.join(row['label'] for row in rows)}."
    )


def _layers(places: list[str], unit: str, x_title: str, colour: str) -> list[alt.Chart]:
    scale = alt.Scale(domain=[0, 1]) if unit == SHARE else alt.Scale(zero=False, nice=True)
    form = ".0%" if unit == SHARE else "~r"
    axis = alt.Axis(format=form, tickCount=4, grid=True, title="" if unit == SHARE else sanitise(unit, 24), **QUIET)
    return band_layers(alt.Chart().encode(length_axis(places, x_title), color=alt.value(colour)), scale, axis)


def _row(number: int, panel: MetricPanel, length: int, estimate: Estimate) -> ChartRow:
    mean, low, high = estimate.mean, estimate.interval.low, estimate.interval.high
    if panel.is_loss:
        mean, low, high = (math.exp(min(nats, 700.0)) for nats in (mean, low, high))
    bounded = math.isfinite(estimate.interval.low) and math.isfinite(estimate.interval.high)
    interval = f", 95% interval {low:.4g} to {high:.4g}" if bounded else ", one document"
    where = f"{sanitise(panel.title, 60)} at {format_length(length)}"
    return {
        "panel": number, "length": format_length(length), "mean": mean,
        "low": low if bounded else mean, "high": high if bounded else mean,
        "label": f"{where}: {mean:.4g} {sanitise(panel.unit, 24)}{interval}",
    }  # fmt: skip


# --- perplexity beside retrieval ----------------------------------------------------------------
#
# Gain has no natural scale: it is drawn as a share of its largest mean.

Transform = Callable[[float], float]
PERPLEXITY, ACCURACY, GAIN = "perplexity", "retrieval accuracy", "retrieval gain"
COLOURS = {PERPLEXITY: SERIES[1], ACCURACY: SERIES[0], GAIN: SERIES[3]}
AXES_NOTE = (
    "Left axis: perplexity of whole documents. Right axis: share of needles found, and retrieval gain as a share of "
    "its largest mean. Bands: 95% intervals over documents."
)


def perplexity_figure(losses: ByLength, accuracy: ByLength, gains: ByLength) -> Figure:
    """Perplexity on the left axis, accuracy and gain on the right one: mean NLL in nats, the share of needles found and
    gain in nats, each by length."""
    left = [_axis_row(PERPLEXITY, n, e, math.exp) for n, e in losses.items()]
    right = [_axis_row(ACCURACY, n, e, lambda share: share) for n, e in accuracy.items()]
    most = max((e.mean for e in gains.values()), default=0.0)
    if most > 0:
        right += [
            _axis_row(GAIN, n, e, lambda nats: max(nats / most, 0.0), unit=" of its maximum") for n, e in gains.items()
        ]
    places = [format_length(n) for n in sorted({int(row["tokens"]) for row in [*left, *right]})]
    wide = 520
    shown = [name for name in COLOURS if any(row["series"] == name for row in [*left, *right])]
    low = min(row["low"] for row in left)
    scale = alt.Scale(domainMin=min(1.0, low), domainMax=2 * max(row["mean"] for row in left), clamp=True)
    axis = alt.Axis(title=PERPLEXITY, tickCount=5, grid=False, titleColor=COLOURS[PERPLEXITY], **QUIET)
    share = alt.Axis(title="share", format=".0%", values=[0, 0.25, 0.5, 0.75, 1], orient="right", grid=True, **QUIET)
    charts = [
        layered(_lines("left", places, shown, scale, axis), wide, 260),
        layered(_lines("right", places, shown, alt.Scale(domain=[0, 1], clamp=True), share), wide, 260),
    ]
    both: ChartSpec = {
        "layer": [{"layer": chart["layer"]} for chart in charts],
        "width": wide,
        "height": 260,
        "resolve": {"scale": {"y": "independent"}},
    }
    chart = captioned(both, AXES_NOTE, wide)
    labels = "; ".join(row["label"] for row in [*left, *right])
    return Figure(chart, {"left": left, "right": right}, f"Perplexity and retrieval over length. {labels}.")


def _lines(data: str, places: list[str], names: list[str], scale: alt.Scale, axis: alt.Axis) -> list[alt.Chart]:
    legend = alt.Legend(title=None, orient="bottom", symbolType="circle", symbolOpacity=1)
    colours = alt.Scale(domain=names, range=[COLOURS[name] for name in names])
    colour = alt.Color("series:N", scale=colours, legend=legend)
    return band_layers(alt.Chart(alt.NamedData(data)).encode(length_axis(places), colour), scale, axis)


def _axis_row(series: str, tokens: int, estimate: Estimate, shown: Transform, *, unit: str = "") -> ChartRow:
    low, high = estimate.interval.low, estimate.interval.high
    bounded = math.isfinite(low) and math.isfinite(high)
    mean = shown(estimate.mean)
    return {
        "series": series, "tokens": tokens, "length": format_length(tokens), "mean": mean,
        "low": shown(low) if bounded else mean, "high": shown(high) if bounded else mean,
        "label": f"{series} at {format_length(tokens)}: {mean:.3g}{unit}",
    }  # fmt: skip
