"""The perplexity trap: log-probability metrics over length, beside the accuracy that they may hide."""

from __future__ import annotations

import math

import altair as alt

from leadline.report.curves import MANY, SERIES, length_axis
from leadline.report.load import Run
from leadline.report.theme import QUIET, Figure, Row, Spec, caption, layered, rows_of
from leadline.report.words import inert, length_words
from leadline.stats.intervals import Estimate

NOTE = "Bands: 95% intervals over documents. Scales differ between panels."


def measure_curves(run: Run, *, narrow: bool = False) -> Figure:
    """A panel for accuracy and one for every metric, each on its own scale.

    A perplexity that stays flat while accuracy falls says that most tokens never needed the far context.
    """
    lengths = sorted({n for found in run.measures.estimates.values() for n in found} | set(run.table.lengths))
    names = [length_words(n) for n in lengths]
    panels: list[Spec] = []
    rows: list[Row] = []
    accuracy = {n: t.estimate for n, t in run.table.by_length.items() if t.estimate is not None}
    shown: list[tuple[str, str, dict[int, Estimate]]] = [("accuracy", "share", accuracy)] if accuracy else []
    shown += [(f"{m.task}: {m.name}", m.unit, dict(found)) for m, found in run.measures.estimates.items()]
    wide = 300 if narrow else 270
    for number, (title, unit, found) in enumerate(shown):
        rows += [_measure_row(number, title, unit, n, estimate) for n, estimate in sorted(found.items())]
        panel = layered(_measure_layers(names, unit, SERIES[number % MANY]), wide, 120) | rows_of("measures", number)
        panels.append(panel | {"title": {"text": inert(title, 60), "fontSize": 12, "offset": 6}})
    apart = {"scale": {"y": "independent"}}
    grid: Spec = {"concat": panels, "columns": 1 if narrow else 2, "spacing": 24, "resolve": apart}
    chart: Spec = {"vconcat": [grid, caption(NOTE, wide)], "spacing": 12}
    words = "; ".join(row["label"] for row in rows)
    return Figure(chart, {"measures": rows}, f"Log-probability metrics over length beside accuracy. {words}.")


def _measure_layers(names: list[str], unit: str, colour: str) -> list[alt.Chart]:
    scale = alt.Scale(domain=[0, 1]) if unit == "share" else alt.Scale(zero=False, nice=True)
    form = ".0%" if unit == "share" else "~g"
    axis = alt.Axis(format=form, tickCount=4, grid=True, title="" if unit == "share" else inert(unit, 24), **QUIET)
    y = alt.Y("mean:Q", scale=scale, axis=axis)
    base = alt.Chart().encode(length_axis(names))
    return [
        base.mark_area(opacity=0.16, color=colour, aria=False).encode(alt.Y("low:Q", scale=scale), alt.Y2("high:Q")),
        base.mark_line(strokeWidth=2, color=colour, aria=False).encode(y),
        base.mark_circle(size=40, opacity=1, color=colour, ariaRoleDescription="mean").encode(
            y, alt.Description("label:N")
        ),
    ]


def _measure_row(number: int, title: str, unit: str, length: int, found: Estimate) -> Row:
    low, high = found.interval.low, found.interval.high
    bounded = math.isfinite(low) and math.isfinite(high)
    spread = f", 95% interval {low:.4g} to {high:.4g}" if bounded else ", one document"
    return {
        "panel": number, "length": length_words(length), "mean": found.mean,
        "low": low if bounded else found.mean, "high": high if bounded else found.mean,
        "label": f"{inert(title, 60)} at {length_words(length)}: {found.mean:.4g} {inert(unit, 24)}{spread}",
    }  # fmt: skip
