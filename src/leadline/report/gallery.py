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


def write_gallery(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Png, svg and pdf of every figure, as wide as a column of a paper; runs in folders of their own if several."""
    written = []
    for run in runs:
        place = folder if len(runs) == 1 else folder / slug(run.name)
        for name, figure in figures_of(run):
            written += write_figure(figure, place / name, column=True)
    if len(runs) > 1:
        names = titles(runs)
        written += write_figure(run_curves(runs, names, narrow=True), folder / "curves", column=True)
        for run, item in zip(runs[1:], against_first(runs, names, narrow=True), strict=True):
            if item.figure is not None:
                written += write_figure(item.figure, folder / f"difference-{slug(run.name)}", column=True)
    return written


def figures_of(run: Run) -> Iterator[tuple[str, Figure]]:
    """Each figure under the name of its file."""
    found = verdict(run)
    if run.table.tasks:
        yield "heatmap", heatmap(run, narrow=True)
        if any(can_smooth(run.table, task) for task in run.table.tasks):
            yield "heatmap-smoothed", heatmap(run, narrow=True, smoothed=True)
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
        yield "outcomes", class_bars(run, narrow=True)
