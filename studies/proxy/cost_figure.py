"""Ranking against cost: Spearman over tokens read for each model, on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
from cost_curve import DRAWS, Curve
from records import Records

from leadline.report.charts.theme import QUIET, SERIES, ChartRow, ChartSpec, Figure, caption, layered
from leadline.report.colours import MUTED

RULER_SAMPLES = 500
"""Of a task at a length, in the published protocol."""
AIM = 0.9
WIDE, HIGH = 560, 320
ACROSS = alt.Scale(type="log", domain=[2000, 1_100_000], nice=False)
UP = alt.Scale(domain=[0.65, 1.0], clamp=True, nice=False)


def cost_figure(curves: Sequence[Curve], records: Records) -> Figure:
    shown = [c for c in curves if not c.name.endswith("fewer needles")]
    rows: list[ChartRow] = [
        {"series": c.name, "tokens": p.tokens, "mean": p.median, "low": p.low, "high": p.high,
         "label": f"{c.name}, {p.words}: {p.median:.2f} for {p.tokens} tokens"}
        for c in shown
        for p in c.points
    ]  # fmt: skip
    asked = records.tokens_asked(records.common)
    published = sum(records.lengths) * RULER_SAMPLES * len({q.task for q in records.common})
    note = (
        f"Median over {DRAWS} draws of the documents, bars from the 5th to the 95th percentile. Dashed: {AIM}, and a "
        f"hundredth of the {asked:,} tokens that accuracy took here and of the {published:,} that {RULER_SAMPLES} "
        "samples of a task at a length, as published, would take. Accuracy is compared with that of other questions."
    )
    shares = [
        {"tokens": asked / 100, "words": "1% of accuracy here"},
        {"tokens": published / 100, "words": "1% of 500 samples"},
    ]
    layers = [*_marks(), *_lines([c.name for c in shown])]
    chart: ChartSpec = {"vconcat": [layered(layers, WIDE, HIGH), caption(note, WIDE)], "spacing": 12}
    said = "; ".join(str(row["label"]) for row in rows)
    return Figure(chart, {"points": rows, "aim": [{"mean": AIM}], "shares": shares}, f"Ranking against cost. {said}.")


def _marks() -> list[alt.Chart]:
    """The aim, and where a hundredth of the cost lies."""
    shares = alt.Chart(alt.NamedData("shares")).encode(alt.X("tokens:Q", scale=ACROSS))
    return [
        alt.Chart(alt.NamedData("aim")).mark_rule(strokeDash=[4, 4], color=MUTED).encode(alt.Y("mean:Q", scale=UP)),
        shares.mark_rule(strokeDash=[2, 3], color=MUTED),
        shares.mark_text(align="left", dx=4, fontSize=10, color=MUTED).encode(y=alt.value(HIGH - 10), text="words:N"),
    ]


def _lines(names: list[str]) -> list[alt.Chart]:
    axis = alt.Axis(title="tokens read for each model", format="~s", values=[3e3, 1e4, 3e4, 1e5, 3e5, 1e6], **QUIET)
    y = alt.Y("mean:Q", scale=UP, axis=alt.Axis(title="Spearman with accuracy", grid=True, tickCount=7, **QUIET))
    legend = alt.Legend(title=None, orient="bottom", columns=3, symbolType="circle", symbolOpacity=1)
    colours = alt.Scale(domain=names, range=[*SERIES, MUTED][: len(names)])
    base = alt.Chart(alt.NamedData("points")).encode(
        alt.X("tokens:Q", scale=ACROSS, axis=axis), alt.Color("series:N", scale=colours, legend=legend)
    )
    bars = base.encode(alt.Y("low:Q", scale=UP), alt.Y2("high:Q"))
    return [
        bars.mark_rule(strokeWidth=1.5, opacity=0.45),
        base.transform_filter("indexof(datum.series, 'fewer') < 0").mark_line(strokeWidth=2).encode(y),
        base.mark_circle(size=55, opacity=1).encode(y, alt.Description("label:N")),
    ]
