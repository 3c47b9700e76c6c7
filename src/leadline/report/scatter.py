"""A proxy against a target, a point for each model: names beside the points, outliers marked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from leadline.report.curves import SERIES
from leadline.report.theme import MUTED, QUIET, TEXT, Figure, Row, Spec, caption, layered
from leadline.report.words import inert
from leadline.stats.correlate import Correlation, Method

PLAIN, OUTLIER = "model", "outlier"


def scatter(
    names: Sequence[str],
    proxy: Sequence[float],
    target: Sequence[float],
    found: Mapping[Method, Correlation],
    *,
    proxy_name: str,
    target_name: str,
    narrow: bool = False,
) -> Figure:
    """`found` are the correlations of both; skipped Spearman says which points are outliers."""
    outliers = set(found["skipped spearman"].outliers)
    rows: list[Row] = [
        {
            "name": inert(name, 40),
            "x": x,
            "y": y,
            "kind": OUTLIER if number in outliers else PLAIN,
            "label": f"{inert(name, 40)}: {x:.4g}, {y:.4g}{', an outlier' if number in outliers else ''}",
        }
        for number, (name, x, y) in enumerate(zip(names, proxy, target, strict=True))
    ]
    wide = 320 if narrow else 520
    words = correlation_words(found)
    chart: Spec = {
        "vconcat": [
            layered(_layers(proxy_name, target_name), wide, wide * 0.72) | {"data": {"name": "models"}},
            caption(words, wide),
        ],
        "spacing": 12,
    }
    said = "; ".join(row["label"] for row in rows)
    return Figure(chart, {"models": rows}, f"{inert(target_name, 60)} against {inert(proxy_name, 60)}. {words} {said}.")


def correlation_words(found: Mapping[Method, Correlation]) -> str:
    """`Spearman 0.72 [0.35, 0.89], ... over 17 models; 1 outlier by projection.`"""
    parts = [
        f"{method[0].upper()}{method[1:]} {one.value:.3f} [{one.interval.low:.3f}, {one.interval.high:.3f}]"
        for method, one in found.items()
    ]
    first = next(iter(found.values()))
    count = len(found["skipped spearman"].outliers)
    marked = f"; {count} outlier{'s' if count != 1 else ''} by projection, drawn hollow" if count else ""
    return f"{', '.join(parts)} over {first.n} models{marked}. Intervals: 95%, {first.resamples:,} resamples."


def _layers(proxy_name: str, target_name: str) -> list[alt.Chart]:
    x = alt.X("x:Q", scale=alt.Scale(zero=False, nice=True, padding=14), axis=_axis(proxy_name))
    y = alt.Y("y:Q", scale=alt.Scale(zero=False, nice=True, padding=14), axis=_axis(target_name))
    base = alt.Chart().encode(x, y)
    plain = base.transform_filter(f"datum.kind === '{PLAIN}'")
    outlier = base.transform_filter(f"datum.kind === '{OUTLIER}'")
    return [
        plain.mark_circle(size=64, opacity=0.9, color=SERIES[0], ariaRoleDescription="model").encode(
            alt.Description("label:N")
        ),
        outlier.mark_point(size=80, strokeWidth=2, color=SERIES[4], ariaRoleDescription="outlier").encode(
            alt.Description("label:N")
        ),
        plain.mark_text(align="left", dx=7, fontSize=9.5, color=TEXT, aria=False).encode(alt.Text("name:N")),
        outlier.mark_text(align="left", dx=7, fontSize=9.5, color=MUTED, fontStyle="italic", aria=False).encode(
            alt.Text("name:N")
        ),
    ]


def _axis(title: str) -> alt.Axis:
    return alt.Axis(title=inert(title, 80), grid=True, **QUIET)
