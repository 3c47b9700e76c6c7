"""Tasks down, lengths across: the table that long-context papers print, with intervals behind every number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from leadline.report.load import Run, interval_words
from leadline.report.selection import selection
from leadline.report.table import Place, Tally
from leadline.report.theme import HEAD, MUTED, QUIET, Figure, Row, Spec, caption, layered, rows_of
from leadline.report.tiles import TILES, Kinds, Size, across, cell_row, down, tiles
from leadline.report.verdict import Verdict, length_range
from leadline.report.words import inert, length_words, percent, percent_range

AVERAGE = "average"


def task_grid(run: Run, found: Verdict, *, narrow: bool = False, at: int = 0) -> Figure:
    """A band for each category, an average column and row, and the effective length of every row."""
    table = run.table
    lengths = [length_words(n) for n in table.lengths]
    bands = by_category(run)
    wide = min(54.0, max(13.0, (300 if narrow else 500) / (len(lengths) + 1)))
    groups = [*bands.items(), ("", [AVERAGE])]
    rows: list[Row] = [
        row | {"panel": number}
        for number, (_, tasks) in enumerate(groups)
        for task in tasks
        for row in _row(run, task, at)
    ]
    kinds = Kinds.of(rows)
    parts: list[Spec] = []
    for number, (category, tasks) in enumerate(groups):
        names = [_name(t) for t in tasks]
        size = Size.exactly(len(lengths), len(tasks), wide, 26.0, narrow=narrow)
        last = number == len(bands)
        body = tiles(across(lengths, titled=last, axis=last), down(names, None), size, kinds)
        body |= _rows_where(number, f"datum.length !== '{AVERAGE}'")
        if category and len(bands) > 1:
            body["title"] = _small_title(category)
        right = [_averages(names, Size.exactly(1, len(tasks), wide, 26.0, narrow=narrow), kinds, number, axis=last)]
        if not narrow:
            right.append(_effective(names, 26.0 * len(tasks), number, titled=number == 0))
        parts.append({"hconcat": [body, *right], "spacing": 8})
    note = "Accuracy in percent; tasks weigh alike in averages."
    if not narrow:
        note += " Effective length with its 95% interval."
    if run.rule:
        note += f" Intervals: {interval_words(run)}."
    chart: Spec = {
        "vconcat": [*parts, caption(note, max(330.0, wide * len(lengths)))],
        "spacing": 8,
        "resolve": {"scale": {"fill": "shared"}},
    }
    return Figure(chart, {"cells": rows, "effective": _effective_rows(bands, found)}, _alternative(run, found))


def by_category(run: Run) -> dict[str, list[str]]:
    """Tasks in the order of the plan, those of one category together."""
    bands: dict[str, list[str]] = {}
    for task in run.table.tasks:
        bands.setdefault(run.category(task), []).append(task)
    return bands


def _row(run: Run, task: str, at: int) -> list[Row]:
    """The cells of one task and their average; of all tasks together for the last row."""
    table = run.table
    if task == AVERAGE:
        tallies, whole, number = table.by_length, table.whole, None
    else:
        tallies = {n: t for (name, n), t in table.by_task_and_length.items() if name == task}
        whole, number = table.by_task[task], table.tasks.index(task)
    rows = [_cell(task, n, t, selection(at, number, n)) for n, t in sorted(tallies.items())]
    label = f"{_name(task)}, all lengths: {percent(whole.mean)}%, 95% interval {percent_range(whole.interval)}%"
    average = cell_row(Place(task, 0, None), whole, "") | {"length": AVERAGE, "row": _name(task), "short": ""}
    return [*rows, average | {"label": f"[{selection(at, number)}] {label}"}]


def _cell(task: str, length: int, tally: Tally, chosen: str) -> Row:
    return cell_row(Place(task, length, None), tally, chosen) | {"row": _name(task)}


def _name(task: str) -> str:
    return inert(task, 40)


def _averages(names: list[str], size: Size, kinds: Kinds, number: int, *, axis: bool) -> Spec:
    bottom = alt.Axis(title=None, labelAngle=0, **QUIET) if axis else None
    x = alt.X("length:O", scale=TILES, axis=bottom)
    y = alt.Y("row:O", sort=names, scale=TILES, axis=None)
    return tiles(x, y, size, kinds) | _rows_where(number, f"datum.length === '{AVERAGE}'")


def _effective(names: list[str], height: float, number: int, *, titled: bool) -> Spec:
    text = alt.Chart().mark_text(align="left", fontSize=11, color=HEAD, ariaRoleDescription="effective length")
    y = alt.Y("row:O", sort=names, scale=TILES, axis=None)
    spec = layered([text.encode(y, alt.Text("words:N"), x=alt.value(6))], 150, height)
    if titled:
        spec["title"] = _small_title("effective length")
    return spec | rows_of("effective", number)


def _rows_where(number: int, test: str) -> Spec:
    rows = rows_of("cells", number)
    rows["transform"].append({"filter": test})
    return rows


def _small_title(text: str) -> Spec:
    words = inert(text, 40)
    return {"text": words, "fontSize": 11, "fontWeight": "normal", "color": MUTED, "offset": 4, "frame": "group"}


def _effective_rows(bands: Mapping[str, Sequence[str]], found: Verdict) -> list[Row]:
    rows = [
        {"panel": number, "row": _name(task), "words": length_range(found.by_task[task])}
        for number, tasks in enumerate(bands.values())
        for task in tasks
        if task in found.by_task
    ]
    if found.effective is not None:
        rows.append({"panel": len(bands), "row": AVERAGE, "words": length_range(found.effective)})
    return rows


def _alternative(run: Run, found: Verdict) -> str:
    rows = []
    for task, tally in run.table.by_task.items():
        reach = f", effective length {length_range(found.by_task[task])}" if task in found.by_task else ""
        rows.append(f"{_name(task)} {percent(tally.mean)}%{reach}")
    return f"Accuracy by task and length for {inert(run.label, 60)}. {'; '.join(rows)}."
