"""Which tasks measure the same, drawn: rank correlations between tasks, and the tree that they make."""

from __future__ import annotations

import math

import altair as alt

from leadline.report.colours import DIFFERENCE, colour_at, ink_on
from leadline.report.theme import MUTED, QUIET, TEXT, Figure, Row, Spec, caption, layered
from leadline.report.words import inert
from leadline.stats.task_correlation import TaskCorrelation

CELL = 34
TREE_WIDTH = 130
SCALE = alt.Scale(domain=[-1, 1], range=list(DIFFERENCE), clamp=True)


def task_tree(found: TaskCorrelation, *, narrow: bool = False) -> Figure:
    """The matrix in the order of the tree, the tree to its right."""
    names = [inert(task, 30) for task in found.tasks]
    side = max(15.0, min(CELL, (300 if narrow else 560) / len(names)))
    wide = side * len(names)
    matrix = layered(_cells(names, side), wide, wide) | {"data": {"name": "pairs"}}
    tree = layered(_branches(found, len(names)), TREE_WIDTH, wide) | {"data": {"name": "branches"}}
    words = caption_words(found)
    drawn: Spec = {"hconcat": [matrix, tree], "spacing": 6}
    chart: Spec = {"vconcat": [drawn, caption(words, wide + TREE_WIDTH)], "spacing": 12}
    groups = "; ".join(", ".join(cluster) for cluster in found.clusters)
    return Figure(chart, {"pairs": _pairs(found, names), "branches": _lines(found)}, f"{words} Clusters: {groups}.")


def caption_words(found: TaskCorrelation) -> str:
    left = "1 cluster is" if len(found.clusters) == 1 else f"{len(found.clusters)} clusters are"
    return (
        f"Spearman correlation of scores over {found.models} models ({found.points} points). Tree: average linkage of "
        f"1 - correlation; dashed: {found.cut:g}, where {left} left."
    )


def number_words(value: float) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{round(value, 2) + 0.0:.2f}".replace("0.", ".").replace("-", "−")  # + 0.0: no minus before a zero


def _pairs(found: TaskCorrelation, names: list[str]) -> list[Row]:
    rows: list[Row] = []
    for i, down in enumerate(names):
        for j, right in enumerate(names):
            value = float(found.matrix[i, j])
            known = math.isfinite(value)
            said = f"{value:.2f}, 95% interval {found.low[i, j]:.2f} to {found.high[i, j]:.2f}" if known else "unknown"
            rows.append(
                {
                    "down": down,
                    "across": right,
                    "value": value if known else None,
                    "text": "" if i == j else number_words(value),
                    "ink": ink_on(colour_at(DIFFERENCE, (value + 1) / 2)) if known else MUTED,
                    "label": f"{down} and {right}: {said}",
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


def _lines(found: TaskCorrelation) -> list[Row]:
    """Each merge is a bracket: two arms from its clusters, and the stroke that joins them."""
    rows: list[Row] = []
    at: dict[tuple[int, ...], tuple[float, float]] = {(i,): (i + 0.5, 0.0) for i in range(len(found.tasks))}
    for merge in found.merges:
        (one, near), (other, far) = at[merge.left], at[merge.right]
        end = merge.distance
        rows += [
            {"x": near, "x2": end, "y": one, "y2": one},
            {"x": far, "x2": end, "y": other, "y2": other},
            {"x": end, "x2": end, "y": one, "y2": other},
        ]
        at[merge.tasks] = ((one + other) / 2, end)
    return rows


def _branches(found: TaskCorrelation, count: int) -> list[alt.Chart]:
    furthest = max([1.0, *(merge.distance for merge in found.merges)])
    axis = alt.Axis(title="1 - correlation", values=[0, 0.5, 1, 1.5, 2], grid=False, format=".1f", **QUIET)
    x = alt.X("x:Q", scale=alt.Scale(domain=[0, furthest], nice=False), axis=axis)
    y = alt.Y("y:Q", scale=alt.Scale(domain=[0, count], reverse=True, nice=False), axis=None)
    cut = alt.Chart().mark_rule(color=MUTED, strokeDash=[3, 3], strokeWidth=1, aria=False)
    return [
        alt.Chart().mark_rule(color=TEXT, strokeWidth=1.4, aria=False).encode(x, alt.X2("x2:Q"), y, alt.Y2("y2:Q")),
        cut.encode(alt.XDatum(found.cut)),
    ]
