"""Accuracy against thinking: a line for each length, a point for each run of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from leadline.core.format import format_length, format_number, format_percent
from leadline.report.charts.curves import ACCURACY_AXIS, ACCURACY_SCALE
from leadline.report.charts.theme import QUIET, DataRow, Figure, Spec, caption, layered
from leadline.report.heatmap_data import ACCURACY, colour_at, selection
from leadline.results.run import Run

NOTE = "Each point is a run at one length; thinking is the mean over its answers, cut-off ones too."
DARKEST, LIGHTEST = 0.12, 0.82
"""The part of the accuracy scale used for lines, as in the curves over length."""


def thinking_curves(runs: Sequence[Run], names: Sequence[str], *, narrow: bool = False) -> Figure:
    """Whether more thinking helps, and at which lengths."""
    rows = [
        _point(name, length, run, at)
        for at, (run, name) in enumerate(zip(runs, names, strict=True))
        for length in sorted(run.totals.thinking)
        if run.totals.thinking[length].answers
    ]
    lengths = [format_length(n) for n in sorted({n for run in runs for n in run.totals.thinking})]
    steps = [DARKEST + (LIGHTEST - DARKEST) * i / max(len(lengths) - 1, 1) for i in range(len(lengths))]
    colours = alt.Scale(domain=lengths, range=[colour_at(ACCURACY, step) for step in steps])
    legend = alt.Legend(title="length", orient="bottom", columns=7, symbolType="circle", symbolOpacity=1)
    axis = alt.Axis(title="thinking tokens per answer", format="~s", tickCount=6, **QUIET)
    base = alt.Chart(alt.NamedData("points")).encode(
        alt.X("tokens:Q", scale=alt.Scale(zero=True, nice=True), axis=axis),
        alt.Y("mean:Q", scale=ACCURACY_SCALE, axis=ACCURACY_AXIS),
        alt.Color("series:N", scale=colours, legend=legend),
    )
    layers = [
        base.mark_line(strokeWidth=2, aria=False).encode(alt.Order("tokens:Q")),
        base.mark_circle(size=50, opacity=1, ariaRoleDescription="mean").encode(alt.Description("label:N")),
    ]
    wide = 300 if narrow else 560
    chart: Spec = {"vconcat": [layered(layers, wide, 240), caption(NOTE, wide)], "spacing": 12}
    return Figure(chart, {"points": rows}, f"Accuracy against thinking: {'; '.join(str(r['label']) for r in rows)}.")


def _point(name: str, length: int, run: Run, at: int) -> DataRow:
    use = run.totals.thinking[length]
    shown = f"{format_percent(use.accuracy)}% with {format_number(use.mean_tokens)} tokens of thinking"
    return {
        "series": format_length(length),
        "run": name,
        "tokens": use.mean_tokens,
        "mean": use.accuracy,
        "label": f"{name}, {format_length(length)}: {shown}",
        "select": selection(at, None, length),
    }
