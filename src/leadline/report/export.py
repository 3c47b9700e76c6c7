"""What a report writes besides the page: every figure as a file, and a summary in Markdown."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from leadline.core.format import escape_markdown
from leadline.report.charts.curves import curves, effective_length_bar, run_curves
from leadline.report.charts.grid import class_bars, difference_map, task_grid
from leadline.report.charts.heatmap import can_smooth, heatmap
from leadline.report.charts.render import write_figure
from leadline.report.charts.theme import Figure
from leadline.report.comparison import differences_from_first, folder_names, leaderboards, titles
from leadline.report.score_tables import suite_table
from leadline.report.sections import sections_of
from leadline.report.terminal import footnotes
from leadline.report.text_table import markdown as markdown_lines
from leadline.results.run import Run, format_interval_kind
from leadline.results.verdict import format_missing, verdict
from leadline.store.runs import slug

COLUMN_PANELS = 4
"""Panels that fit into one column of a paper."""


def export_figures(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Png, svg and pdf of every figure, one column of a paper wide, or two for many tasks. Several runs get a folder
    each."""
    written = []
    places = [slug(name) for name in folder_names([run.folder for run in runs])]
    for run, run_folder in zip(runs, places, strict=True):
        for name, figure in figures_of(run):
            written += write_figure(figure, (folder if len(runs) == 1 else folder / run_folder) / name, column=True)
    if len(runs) > 1:
        names = titles(runs)
        written += write_figure(run_curves(runs, names, narrow=True), folder / "curves", column=True)
        narrow = all(fits_column(run) for run in runs)
        for run_folder, item in zip(places[1:], differences_from_first(runs, names), strict=True):
            if item.comparison is not None:
                figure = difference_map(item.comparison, item.names, narrow=narrow, titled=True)
                written += write_figure(figure, folder / f"difference-{run_folder}", column=True)
    return written


def fits_column(run: Run) -> bool:
    """Whether the panels of all tasks, one below the other, fit into a column."""
    return len(run.table.tasks) <= COLUMN_PANELS


def figures_of(run: Run) -> Iterator[tuple[str, Figure]]:
    """Each figure with the name of its file."""
    run_verdict, narrow = verdict(run), fits_column(run)
    if run.table.tasks:
        yield "heatmap", heatmap(run, narrow=narrow)
        if any(can_smooth(run.table, task) for task in run.table.tasks):
            yield "heatmap-smoothed", heatmap(run, narrow=narrow, smoothed=True)
    if run_verdict.effective is not None:
        yield "effective-length", effective_length_bar(run, run_verdict.effective, narrow=True)
    if len(run.table.tasks) > 1:
        yield "tasks", task_grid(run, run_verdict, narrow=True)
    for section in sections_of(run).values():
        yield from ((figure.name, figure.draw(True)) for figure in section.figures)
    if run.table.whole.done + run.table.whole.failed:
        yield "curves", curves(run, narrow=True)
        yield "outcomes", class_bars(run, narrow=narrow)


def markdown(runs: Sequence[Run], written: Container[Path]) -> str:
    """For a pull request: verdicts, leaderboards, differences from the first run, footnotes, and the heatmaps of runs
    among the files `written`."""
    names, verdicts = titles(runs), [verdict(run) for run in runs]
    lines = ["### Leadline", ""]
    for run, run_verdict in zip(runs, verdicts, strict=True):
        lines.append(f"- {escape_markdown(' '.join(filter(None, [run_verdict.headline, format_missing(run)])))}")
    for board in leaderboards(runs, verdicts, names):
        lines += ["", *markdown_lines(board)]
    lines += ["", f"Accuracy in percent with {format_interval_kind(*runs)}."]
    for run, name in zip(runs, names, strict=True):
        if len(run.table.tasks) > 1 and run.suite:
            title = [f"**{escape_markdown(name)}**", ""] if len(runs) > 1 else []
            lines += ["", *title, *markdown_lines(suite_table(run))]
    for item in differences_from_first(runs, names):
        lines += ["", f"**{escape_markdown(item.name)}.** {escape_markdown(item.sentence)}"]
        lines += [f"> {escape_markdown(warning)}" for warning in item.warnings]
    for run, name in zip(runs, names, strict=True):
        if (path := run.folder / "heatmap.png") in written:
            lines += ["", f"![Accuracy by length and depth, {escape_markdown(name)}](<{path.as_posix()}>)"]
    notes = list(dict.fromkeys(note for run in runs for note in footnotes(run)))
    lines += ["", "<details><summary>How to read this</summary>", ""]
    lines += [f"- {escape_markdown(note)}" for note in notes]
    return "\n".join([*lines, "", "</details>", ""])
