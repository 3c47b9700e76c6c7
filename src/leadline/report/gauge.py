"""The lead line: how deep the model really reads, drawn against what it claims."""

from __future__ import annotations

from typing import Any

import altair as alt

from leadline.report.load import Run
from leadline.report.theme import HEAD, LINE, MUTED, Figure, Row, layered
from leadline.report.verdict import length_range
from leadline.report.words import inert, length_words
from leadline.stats.effective import EffectiveLength, token_words

REACHED = "#3291b4"


def gauge(run: Run, found: EffectiveLength, *, narrow: bool = False) -> Figure:
    """A bar from the shortest length to the effective one, its interval, and a mark at the claimed window."""
    shortest, longest = found.scores[0].length, found.scores[-1].length
    end = max(longest, run.window or 0)
    start = shortest / 2
    reached = start if found.bound == "below" else found.length
    row: Row = {
        "start": start, "end": end, "reached": reached,
        "low": start if found.low_open else found.low,
        "high": end if found.high_open else found.high,
        "value": f"< {token_words(shortest)}" if found.bound == "below" else token_words(found.length),
    }  # fmt: skip
    ticks = [n for n in (2**k for k in range(7, 27)) if start <= n <= end]
    scale = alt.Scale(type="log", base=2, domain=[start, end], nice=False)
    expression = "datum.value >= 1048576 ? datum.value / 1048576 + 'm' : datum.value / 1024 + 'k'"
    axis = alt.Axis(
        values=ticks, labelExpr=f"datum.value < 1024 ? datum.value : {expression}", labelOverlap=True, grid=False,
        title="context length (tokens)", domain=False, tickColor=LINE, labelPadding=4, titlePadding=6,
    )  # fmt: skip
    x = alt.X("start:Q", scale=scale, axis=axis)
    base = alt.Chart().encode(y=alt.value(24))
    layers = [
        base.mark_bar(height=10, color=LINE, cornerRadius=5, aria=False).encode(x, alt.X2("end:Q")),
        base.mark_bar(height=10, color=REACHED, cornerRadius=5, aria=False).encode(x, alt.X2("reached:Q")),
        base.mark_bar(height=2, color=HEAD, aria=False).encode(alt.X("low:Q", scale=scale), alt.X2("high:Q")),
        base.mark_tick(height=12, thickness=2, color=HEAD, aria=False).encode(alt.X("low:Q", scale=scale)),
        base.mark_tick(height=12, thickness=2, color=HEAD, aria=False).encode(alt.X("high:Q", scale=scale)),
        base.mark_circle(size=90, color=REACHED, stroke=HEAD, strokeWidth=1.5, opacity=1, aria=False).encode(
            alt.X("reached:Q", scale=scale)
        ),
        base.mark_text(dy=-17, fontSize=13, fontWeight="bold", color=HEAD, aria=False).encode(
            alt.X("reached:Q", scale=scale), alt.Text("value:N")
        ),
    ]
    if run.window:
        row["window"] = run.window
        layers.append(
            base.mark_tick(height=16, thickness=2, color=MUTED, aria=False).encode(alt.X("window:Q", scale=scale))
        )
        if run.window > 1.5 * reached or run.window < 0.6 * reached:  # else the two labels would meet
            side: Any = "right" if run.window == end else "center"
            claimed = base.mark_text(dy=-17, fontSize=11, align=side, color=MUTED, text="claimed", aria=False)
            layers.append(claimed.encode(alt.X("window:Q", scale=scale)))
    chart = layered(layers, 330 if narrow else 470, 40) | {"data": {"name": "gauge"}}
    claim = f" of {length_words(run.window)} claimed" if run.window else ""
    words = f"Effective length of {inert(run.label, 60)}: {length_range(found)}{claim}."
    return Figure({"vconcat": [chart]}, {"gauge": [row]}, words)
