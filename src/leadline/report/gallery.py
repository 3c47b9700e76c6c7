"""Every figure of a report as a file, for papers and slides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from leadline.report.charts import heatmap
from leadline.report.comparison import against_first, titles
from leadline.report.curves import class_bars, curves, run_curves
from leadline.report.figures import write_figure
from leadline.report.gauge import gauge
from leadline.report.grid import task_grid
from leadline.report.load import Run
from leadline.report.smoothed import can_smooth
from leadline.report.theme import Figure
from leadline.report.trap import distance_curves, measure_curves
from leadline.report.verdict import verdict
from leadline.store.runs import slug

FEW = 4
"""Panels that a column of a paper holds."""


def write_gallery(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Png, svg and pdf of every figure, as wide as a column of a paper, or as two where there are many tasks; runs in
    folders of their own if several."""
    written = []
    for run in runs:
        place = folder if len(runs) == 1 else folder / slug(run.name)
        for name, figure in figures_of(run):
            written += write_figure(figure, place / name, column=True)
    if len(runs) > 1:
        names = titles(runs)
        written += write_figure(run_curves(runs, names, narrow=True), folder / "curves", column=True)
        narrow = all(in_column(run) for run in runs)
        for run, item in zip(runs[1:], against_first(runs, names, narrow=narrow, titled=True), strict=True):
            if item.figure is not None:
                written += write_figure(item.figure, folder / f"difference-{slug(run.name)}", column=True)
    return written


def in_column(run: Run) -> bool:
    """Whether a panel for each task fits one under the other into a column: a dozen would be longer than a page."""
    return len(run.table.tasks) <= FEW


def figures_of(run: Run) -> Iterator[tuple[str, Figure]]:
    """Each figure under the name of its file."""
    found, narrow = verdict(run), in_column(run)
    if run.table.tasks:
        yield "heatmap", heatmap(run, narrow=narrow)
        if any(can_smooth(run.table, task) for task in run.table.tasks):
            yield "heatmap-smoothed", heatmap(run, narrow=narrow, smoothed=True)
    if found.effective is not None:
        yield "effective-length", gauge(run, found.effective, narrow=True)
    if len(run.table.tasks) > 1:
        yield "tasks", task_grid(run, found, narrow=True)
    if run.measures:
        yield "log-probabilities", measure_curves(run, narrow=True)
    if run.measures.by_distance:
        yield "log-probabilities-by-distance", distance_curves(run, narrow=True)
    if run.table.whole.done + run.table.whole.failed:
        yield "curves", curves(run, narrow=True)
        yield "outcomes", class_bars(run, narrow=narrow)
