"""Curves of accuracy over length and against thinking, and the effective length beside the claimed one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from leadline.core.format import (
    format_length,
    format_number,
    format_percent,
    format_tokens,
    sanitise,
)
from leadline.report.charts.theme import (
    QUIET,
    SERIES,
    ChartRow,
    ChartSpec,
    Figure,
    captioned,
    layered,
    panel_title,
    selectable,
    unchecked,
)
from leadline.report.colours import HEAD, LINE, MUTED, accuracy_scale, colour_at
from leadline.report.heatmap_data import selection, short_name
from leadline.results.breakdowns import Stratum
from leadline.results.run import Run, format_interval_kind
from leadline.results.table import Tally, format_mean
from leadline.stats.effective import EffectiveLength
from leadline.stats.intervals import Estimate

# --- tasks that differ in the value of an option, as in vt[hops=2] and vt[hops=4] ---------------

_LABEL = re.compile(r"(?P<family>[^\[\]]+)\[(?P<set>[A-Za-z_]\w*=.*)\]")
_BETWEEN = re.compile(r",(?=[A-Za-z_]\w*=)")
DARKEST, LIGHTEST = 0.12, 0.82
"""The part of the accuracy scale used for lines, which must be visible on white and on black."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """One task over the values of one option, or of several options that change together."""

    family: str
    options: tuple[str, ...]
    values: tuple[str, ...]
    tasks: tuple[str, ...]
    """The task for each value."""

    @property
    def title(self) -> str:
        return f"{self.family} by {', '.join(self.options)}"

    @property
    def is_ordered(self) -> bool:
        """Whether the values are numbers of one option."""
        return len(self.options) == 1 and all(map(_is_number, self.values))

    def colours(self) -> list[str]:
        """From dark to light for numbers, else the colours of lines in turn."""
        count = len(self.values)
        if not self.is_ordered:
            return [SERIES[i % len(SERIES)] for i in range(count)]
        return _dark_to_light(count)


def _dark_to_light(count: int) -> list[str]:
    steps = (DARKEST + (LIGHTEST - DARKEST) * i / max(count - 1, 1) for i in range(count))
    return [colour_at(accuracy_scale(), step) for step in steps]


def sweeps_of(tasks: Sequence[str]) -> list[Sweep]:
    """The options that were run with two values or more; numbers are sorted."""
    members_of: dict[tuple[str, tuple[str, ...]], list[tuple[str, str]]] = {}
    for task in tasks:
        label = _LABEL.fullmatch(task)
        if label is None:
            continue
        pairs = [pair.partition("=") for pair in _BETWEEN.split(label["set"])]
        options, values = tuple(p[0] for p in pairs), ", ".join(p[2] for p in pairs)
        members_of.setdefault((label["family"], options), []).append((values, task))
    return [_sweep(*key, members) for key, members in members_of.items() if len(members) > 1]


def _sweep(family: str, options: tuple[str, ...], members: list[tuple[str, str]]) -> Sweep:
    if all(_is_number(value) for value, _ in members):
        members = sorted(members, key=lambda member: float(member[0]))
    return Sweep(family, options, tuple(value for value, _ in members), tuple(task for _, task in members))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# --- accuracy over length -----------------------------------------------------------------------

MANY = len(SERIES)
ACCURACY_SCALE = alt.Scale(domain=[0, 1])


def share_axis(title: str) -> alt.Axis:
    return alt.Axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1], grid=True, title=title, **QUIET)


ACCURACY_AXIS = share_axis("accuracy")


@unchecked
def curves(run: Run, *, narrow: bool = False, at: int = 0) -> Figure:
    """A line for each task; beyond six tasks, thin grey lines and their average in front. An option that was run with
    several values has its own panel, with a line for each value."""
    table = run.table
    swept = sweeps_of(table.tasks)
    if swept or run.strata:
        return _with_sweeps(run, swept, narrow=narrow, at=at)
    lines, average = _task_points(run, table.tasks, at), _average_points(run, at)
    wide = 300 if narrow else 560
    layers, note = _plain(run, table.tasks)
    chart = captioned(layered(layers, wide, 240), note, wide)
    shown = average if len(table.tasks) > MANY else lines
    return Figure(chart, {"lines": lines, "average": average}, f"Accuracy over length: {_points_text(shown)}.")


def _plain(run: Run, tasks: Sequence[str]) -> tuple[list[alt.Chart], str]:
    lengths = [format_length(n) for n in run.table.lengths]
    if len(tasks) > MANY:
        layers = [*_thin(lengths), *_banded(lengths, ["average"], "average")]
        return layers, f"Grey: single tasks. Coloured: average over tasks. Band: {format_interval_kind(run)}."
    return _banded(lengths, list(map(short_name, tasks)), "lines"), f"Bands: {format_interval_kind(run)}."


def _with_sweeps(run: Run, swept: Sequence[Sweep], *, narrow: bool, at: int) -> Figure:
    lengths = [format_length(n) for n in run.table.lengths]
    others = [t for t in run.table.tasks if not any(t in sweep.tasks for sweep in swept)]
    stratified = list(dict.fromkeys((s.task, s.label) for s in run.strata))
    columns = 1 if narrow or len(swept) + len(stratified) + bool(others) == 1 else 2
    wide = 300 if narrow else 560 if columns == 1 else 360
    data: dict[str, list[ChartRow]] = {}
    panels: list[ChartSpec] = []
    for number, sweep in enumerate(swept):
        name, values = f"sweep{number}", [short_name(value) for value in sweep.values]
        data[name] = [
            row
            for task, value in zip(sweep.tasks, values, strict=True)
            for row in _task_points(run, [task], at, series=value)
        ]
        layers = _banded(lengths, values, name, sweep.colours(), title=sanitise(", ".join(sweep.options), 40))
        panels.append(layered(layers, wide, 240) | panel_title(sanitise(sweep.title, 60)))
    for number, (task, label) in enumerate(stratified):
        name, mine = f"strata{number}", [s for s in run.strata if (s.task, s.label) == (task, label)]
        data[name] = [row for stratum in mine for row in _stratum_points(run, stratum, at)]
        layers = _banded(lengths, [short_name(s.value) for s in mine], name, title=sanitise(label, 40))
        panels.append(layered(layers, wide, 240) | panel_title(sanitise(f"{task} by {label}", 60)))
    note = f"One line for each value. Bands: {format_interval_kind(run)}."
    if others:
        data |= {"lines": _task_points(run, others, at), "average": _average_points(run, at)}
        layers, about = _plain(run, others)
        panels.append(
            layered(layers, wide, 240) | panel_title("other tasks" if len(others) > 1 else sanitise(others[0], 60))
        )
        note = f"{note} {about}" if "Grey" in about else note
    drawn: ChartSpec = {
        "concat": panels,
        "columns": columns,
        "spacing": 30,
        "resolve": {"scale": {"color": "independent"}},
    }
    chart = captioned(drawn, note, wide * columns)
    titled = [(s.title, f"sweep{n}") for n, s in enumerate(swept)]
    titled += [(f"{task} by {label}", f"strata{n}") for n, (task, label) in enumerate(stratified)]
    text = "; ".join(f"{title}: {_points_text(data[name])}" for title, name in titled)
    return Figure(chart, data, f"Accuracy over length, {sanitise(text, 4000)}.")


def _task_points(run: Run, tasks: Sequence[str], at: int, *, series: str = "") -> list[ChartRow]:
    table = run.table
    return [
        _point(series or short_name(task), length, tally, selection(at, table.tasks.index(task), length))
        for (task, length), tally in table.by_task_and_length.items()
        if task in tasks
    ]


def _stratum_points(run: Run, stratum: Stratum, at: int) -> list[ChartRow]:
    task = run.table.tasks.index(stratum.task)
    return [
        _point(short_name(stratum.value), n, estimate, selection(at, task, n))
        for n, estimate in stratum.by_length.items()
    ]


def _average_points(run: Run, at: int) -> list[ChartRow]:
    return [_point("average", n, t, selection(at, None, n)) for n, t in sorted(run.table.by_length.items())]


def _points_text(rows: Sequence[ChartRow]) -> str:
    return "; ".join(f"{p['series']} {p['length']} {format_percent(p['mean'])}%" for p in rows if p["mean"] is not None)


@unchecked
def run_curves(runs: Sequence[Run], names: Sequence[str], *, narrow: bool = False) -> Figure:
    """The average over tasks, a line for each run."""
    lines = [
        _point(name, length, tally, selection(at, None, length))
        for at, (run, name) in enumerate(zip(runs, names, strict=True))
        for length, tally in sorted(run.table.by_length.items())
    ]
    lengths = [format_length(n) for n in sorted({n for run in runs for n in run.table.lengths})]
    wide = 300 if narrow else 560
    layers = _banded(lengths, list(names), "lines")
    note = f"Average over tasks. Bands: {format_interval_kind(*runs)}."
    chart = captioned(layered(layers, wide, 240), note, wide)
    return Figure(chart, {"lines": lines}, f"Accuracy over length by run: {_points_text(lines)}.")


def _banded(
    lengths: list[str], names: list[str], rows: str, colours: Sequence[str] = SERIES, *, title: str = ""
) -> list[alt.Chart]:
    scale = alt.Scale(domain=names, range=[colours[i % len(colours)] for i in range(len(names))])
    across_legend = 3 if max(map(len, names)) > 6 else 7
    legend = (
        alt.Legend(title=title or None, orient="bottom", columns=across_legend, symbolType="circle", symbolOpacity=1)
        if len(names) > 1
        else None
    )
    colour = alt.Color("series:N", scale=scale, legend=legend)
    base = alt.Chart(alt.NamedData(rows)).transform_filter("datum.mean !== null").encode(length_axis(lengths))
    faint = 0.16 if len(names) <= 3 else 0.08 if len(names) <= MANY else 0.05
    return band_layers(base.encode(colour), ACCURACY_SCALE, ACCURACY_AXIS, faint)


def band_layers(base: alt.Chart, scale: alt.Scale, axis: alt.Axis, opacity: float = 0.16) -> list[alt.Chart]:
    """The interval as a band, the mean as a line with a point for each length."""
    y = alt.Y("mean:Q", scale=scale, axis=axis)
    return [
        base.mark_area(opacity=opacity, aria=False).encode(alt.Y("low:Q", scale=scale, axis=axis), alt.Y2("high:Q")),
        base.mark_line(strokeWidth=2, aria=False).encode(y),
        base.mark_circle(size=50, opacity=1, ariaRoleDescription="mean").encode(y, alt.Description("label:N")),
    ]


def _thin(lengths: list[str]) -> list[alt.Chart]:
    y = alt.Y("mean:Q", scale=ACCURACY_SCALE, axis=ACCURACY_AXIS)
    base = alt.Chart(alt.NamedData("lines")).transform_filter("datum.mean !== null").encode(length_axis(lengths), y)
    return [
        base.mark_line(strokeWidth=1, color=MUTED, opacity=0.5, aria=False).encode(alt.Detail("series:N")),
        base.mark_circle(size=14, color=MUTED, opacity=0.7, ariaRoleDescription="mean").encode(
            alt.Description("label:N")
        ),
    ]


def length_axis(lengths: list[str], title: str = "context length (tokens)") -> alt.X:
    axis = alt.Axis(labelAngle=0, labelOverlap=True, title=title, **QUIET)
    return alt.X("length:O", sort=lengths, scale=alt.Scale(type="point", padding=0.3, domain=lengths), axis=axis)


def _point(series: str, length: int, tally: Tally | Estimate, select: str) -> ChartRow:
    interval, done = tally.interval, tally.done if isinstance(tally, Tally) else tally.n
    return {
        "series": series,
        "length": format_length(length),
        "mean": tally.mean,
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "label": selectable(select, f"{series}, length {format_length(length)}: {format_mean(tally)}, {done} answered"),
    }


# --- accuracy against thinking ------------------------------------------------------------------

THINKING_NOTE = "Each point is a run at one length; thinking is the mean over its answers, cut-off ones too."


@unchecked
def thinking_curves(runs: Sequence[Run], names: Sequence[str], *, narrow: bool = False) -> Figure:
    """Whether more thinking helps, and at which lengths."""
    rows = [
        _thinking_point(name, length, run, at)
        for at, (run, name) in enumerate(zip(runs, names, strict=True))
        for length in sorted(run.totals.thinking)
        if run.totals.thinking[length].answers
    ]
    lengths = [format_length(n) for n in sorted({n for run in runs for n in run.totals.thinking})]
    colours = alt.Scale(domain=lengths, range=_dark_to_light(len(lengths)))
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
    chart = captioned(layered(layers, wide, 240), THINKING_NOTE, wide)
    return Figure(chart, {"points": rows}, f"Accuracy against thinking: {'; '.join(str(r['label']) for r in rows)}.")


def _thinking_point(name: str, length: int, run: Run, at: int) -> ChartRow:
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


# --- effective length ---------------------------------------------------------------------------

REACHED = "#3291b4"


@unchecked
def effective_length_bar(run: Run, effective: EffectiveLength, *, narrow: bool = False) -> Figure:
    """A bar up to the effective length, with its interval and a mark at the claimed window. Where the length is not
    decided, the bar ends at what is surely reached."""
    shortest, longest = effective.scores[0].length, effective.scores[-1].length
    end = float(max(longest, run.window or 0))  # JSON has no integers as large as a damaged manifest may state
    start = shortest / 2
    shown = effective.length if effective.decided or not effective.falls else effective.surely_reached
    reached = float(shown) if shown and not (effective.decided and effective.bound == "below") else start
    value = effective.point
    if effective.decided:
        value = f"< {format_tokens(shortest)}" if effective.bound == "below" else format_tokens(effective.length)
    align: Any = "left" if reached == start else "right" if reached == end and not effective.decided else "center"
    row: ChartRow = {
        "start": start, "end": end, "reached": reached,
        "low": start if effective.low_open else effective.low,
        "high": end if effective.high_open else effective.high,
        "value": value,
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
        base.mark_text(dy=-17, fontSize=13, fontWeight="bold", color=HEAD, aria=False, align=align).encode(
            alt.X("reached:Q", scale=scale), alt.Text("value:N")
        ),
    ]
    if not effective.decided:
        del layers[-2]  # a dot is an estimate
    if run.window:
        row["window"] = float(run.window)
        layers.append(
            base.mark_tick(height=16, thickness=2, color=MUTED, aria=False).encode(alt.X("window:Q", scale=scale))
        )
        room = 1.5 if effective.decided else (end / start) ** 0.4  # else the labels would overlap
        if run.window > room * reached or run.window < 0.9 * reached / room:
            side: Any = "right" if run.window == end else "center"
            claimed = base.mark_text(dy=-17, fontSize=11, align=side, color=MUTED, text="claimed", aria=False)
            layers.append(claimed.encode(alt.X("window:Q", scale=scale)))
    chart = layered(layers, 330 if narrow else 470, 40) | {"data": {"name": "bar"}}
    claim = f" of {format_length(run.window)} claimed" if run.window else ""
    text = f"Effective length of {sanitise(run.label, 60)}: {effective}{claim}."
    return Figure({"vconcat": [chart]}, {"bar": [row]}, text)
