"""One page of a training run: accuracy and effective length over steps with their bands, gates, and what it cost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import altair as alt
from markupsafe import Markup

from leadline import __version__
from leadline.core.format import format_length, format_number, format_percent, format_percent_range, sanitise
from leadline.features.follow.history import StepResult
from leadline.report.charts.curves import ACCURACY_AXIS, ACCURACY_SCALE, band_layers
from leadline.report.charts.render import PageFigure
from leadline.report.charts.theme import QUIET, SERIES, ChartRow, Figure, captioned, layered
from leadline.report.heatmap_data import short_name
from leadline.report.page import page_style, policy, template
from leadline.results.run import MetricName, format_interval_kind
from leadline.results.verdict import verdict
from leadline.stats.effective import NOT_DECIDED, EffectiveLength
from leadline.store.files import replace_file

PACKAGE = "leadline.features.follow"
WIDTH, HEIGHT = 640, 220
AVERAGE = "average"


def write_history_page(results: Sequence[StepResult], title: str, waiting: Sequence[str], out: Path) -> Path:
    """Writes index.html; `waiting` are checkpoints without a run, with the reason."""
    figures: list[tuple[str, PageFigure]] = []
    if any(result.run.table.lengths for result in results):
        figures = [("Accuracy over steps", PageFigure(accuracy_over_steps(results), "accuracy"))]
        figures.append(("Effective length over steps", PageFigure(effective_over_steps(results), "effective")))
    for number, metric in enumerate(_metrics(results)):
        heading = f"{metric.task}: {metric.name} over steps"
        figures.append((sanitise(heading, 80), PageFigure(metric_over_steps(results, metric), f"metric{number}")))
    style = page_style()
    text = template("history.html", PACKAGE).render(
        policy=policy(style, ""), style=Markup(style), title=title, figures=figures, waiting=waiting,
        rows=[_row(result, out) for result in reversed(results)], version=__version__,
    )  # fmt: skip
    page = out / "index.html"
    out.mkdir(parents=True, exist_ok=True)
    replace_file(page, text.encode("utf-8", "replace"))
    return page


def _row(result: StepResult, out: Path) -> dict[str, object]:
    run, overall = result.run, result.run.table.whole
    effective = verdict(run).effective
    return {
        "step": f"{result.checkpoint.step:,}",
        "name": sanitise(result.checkpoint.name, 60),
        "folder": os.path.relpath(run.folder, out),
        "effective": "–" if effective is None else effective.point,
        "ends": "" if effective is None or effective.point == NOT_DECIDED else effective.ends,
        "mean": f"{format_percent(overall.mean)}%" if overall.mean is not None else "–",
        "interval": format_percent_range(overall.interval) if overall.interval else "",
        "answered": f"{overall.done:,} of {overall.planned:,}",
        "tokens": format_number(run.totals.prompt_tokens),
        "gates": [(str(gate), gate.verdict or "none", [sanitise(line, 200) for line in gate.details])
                  for gate in result.gates],
    }  # fmt: skip


def accuracy_over_steps(results: Sequence[StepResult]) -> Figure:
    """A line for each task with its band, and the average of all where there are several."""
    rows: list[ChartRow] = []
    for result in results:
        table = result.run.table
        tallies = {short_name(task): tally for task, tally in table.by_task.items()}
        if len(tallies) > 1:
            tallies = {AVERAGE: table.whole, **tallies}
        for series, tally in tallies.items():
            if tally.estimate is not None:
                interval = tally.estimate.interval
                label = f"step {result.checkpoint.step:,}, {series}: {format_percent(tally.mean)}%"
                rows.append({"step": result.checkpoint.step, "series": series, "mean": tally.estimate.mean,
                             "low": interval.low, "high": interval.high, "label": label})  # fmt: skip
    names = list(dict.fromkeys(str(row["series"]) for row in rows)) or [AVERAGE]
    scale = alt.Scale(domain=names, range=[SERIES[i % len(SERIES)] for i in range(len(names))])
    legend = alt.Legend(title=None, orient="bottom", columns=5) if len(names) > 1 else None
    base = alt.Chart(alt.NamedData("rows")).encode(_step_axis(), alt.Color("series:N", scale=scale, legend=legend))
    layers = band_layers(base, ACCURACY_SCALE, ACCURACY_AXIS, 0.12 if len(names) < 4 else 0.05)
    note = f"Bands: {format_interval_kind(*(result.run for result in results))}."
    text = "; ".join(str(row["label"]) for row in rows)
    return Figure(captioned(layered(layers, WIDTH, HEIGHT), note, WIDTH), {"rows": rows}, f"Accuracy by step: {text}.")


def _metrics(results: Sequence[StepResult]) -> list[MetricName]:
    """The log-probability metrics of all checkpoints, the first of each task: it is the task's own."""
    firsts: dict[str, MetricName] = {}
    for result in results:
        for metric in result.run.logprobs.estimates:
            firsts.setdefault(metric.task, metric)
    return list(firsts.values())


def metric_over_steps(results: Sequence[StepResult], metric: MetricName) -> Figure:
    """A log-probability metric over steps, a line for each length."""
    rows: list[ChartRow] = []
    for result in results:
        for length, estimate in sorted(result.run.logprobs.estimates.get(metric, {}).items()):
            series = format_length(length)
            label = f"step {result.checkpoint.step:,}, {series}: {estimate.mean:.3g} {metric.unit}"
            rows.append({"step": result.checkpoint.step, "series": series, "mean": estimate.mean, "label": label,
                         "low": estimate.interval.low, "high": estimate.interval.high})  # fmt: skip
    names = list(dict.fromkeys(str(row["series"]) for row in rows))
    scale = alt.Scale(domain=names, range=[SERIES[i % len(SERIES)] for i in range(len(names))])
    colour = alt.Color("series:N", scale=scale, legend=alt.Legend(title="length", orient="bottom", columns=8))
    base = alt.Chart(alt.NamedData("rows")).encode(_step_axis(), colour)
    axis = alt.Axis(title=sanitise(metric.unit or metric.name, 40), grid=True, **QUIET)
    layers = band_layers(base, alt.Scale(zero=False), axis, 0.12 if len(names) < 4 else 0.05)
    text = "; ".join(str(row["label"]) for row in rows)
    chart = captioned(layered(layers, WIDTH, HEIGHT), "Bands: 95% intervals over documents.", WIDTH)
    return Figure(chart, {"rows": rows}, f"{sanitise(metric.name, 40)} by step: {text}.")


def effective_over_steps(results: Sequence[StepResult]) -> Figure:
    """The effective length of each checkpoint, as a point where it is decided; the bar is its interval."""
    rows: list[ChartRow] = []
    for result in results:
        effective = verdict(result.run).effective
        if effective is not None:
            rows.append(_effective_row(result.checkpoint.step, effective))
    measured = sorted({n for result in results for n in result.run.table.lengths})
    label = " : ".join(f"datum.value == {n} ? '{format_length(n)}'" for n in measured) + " : ''"
    axis = alt.Axis(values=measured, labelExpr=label, title="effective length (tokens)", grid=True, **QUIET)
    scale = alt.Scale(type="log", base=2, domain=[measured[0] / 1.2, measured[-1] * 1.2], clamp=True)
    shapes = alt.Scale(domain=["crossing", "at least", "below"], range=["circle", "triangle-up", "triangle-down"])
    shape = alt.Shape("bound:N", scale=shapes, legend=None)
    base = alt.Chart(alt.NamedData("rows")).encode(_step_axis())
    bar = base.mark_rule(strokeWidth=5, opacity=0.35, color=SERIES[0], aria=False).encode(
        alt.Y("low:Q", scale=scale, axis=axis), alt.Y2("high:Q")
    )
    point = (
        base.mark_point(size=80, filled=True, opacity=1, color=SERIES[0], ariaRoleDescription="effective length")
        .transform_filter("datum.decided")
        .encode(alt.Y("length:Q", scale=scale, axis=axis), shape, alt.Description("label:N"))
    )
    note = (
        "Bar: where the effective length may be, within the lengths measured. Points are decided: a triangle that "
        "points up is at least this length, one that points down is below it."
    )
    text = "; ".join(str(row["label"]) for row in rows)
    chart = captioned(layered([bar, point], WIDTH, HEIGHT), note, WIDTH)
    return Figure(chart, {"rows": rows}, f"Effective length by step: {text}.")


def _effective_row(step: int, effective: EffectiveLength) -> ChartRow:
    return {
        "step": step, "length": effective.length, "low": effective.low, "high": effective.high,
        "bound": effective.bound, "decided": effective.decided,
        "label": f"step {step:,}: {effective}",
    }  # fmt: skip


def _step_axis() -> alt.X:
    axis = alt.Axis(title="step", format=",d", tickMinStep=1, **QUIET)
    return alt.X("step:Q", scale=alt.Scale(zero=False, nice=True, padding=12), axis=axis)
