"""A growing run as one screen of a terminal: how far it is, its map so far, and what failed last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as Grid
from rich.text import Text

from leadline.report.live.standing import Failed, Progress
from leadline.report.load import Run
from leadline.report.terminal import block, has_colours, heading, heatmaps
from leadline.report.words import inert, length_words, time_words

SHOWN_FAILURES = 4
_OTHER_LINES = 8
"""Of a screen: heading, bar, hint, and room around them."""


def screen(run: Run, progress: Progress, failures: Sequence[Failed], console: Console, hint: str = "") -> Group:
    """Never taller than the terminal, for what scrolls out of it cannot be redrawn."""
    told = list(failures)[-SHOWN_FAILURES:]
    room = console.height - _OTHER_LINES - (len(told) + 2 if told else 0)
    parts: list[RenderableType] = [heading(run), bar(progress)]
    if run.table.whole.done:
        parts += maps(run, room, colourful=has_colours(console))
    if told:
        parts += [Text(), Text("failed last", style="bold")]
        parts += [Text(failure_line(one), style="red", no_wrap=True, overflow="ellipsis") for one in told]
    if hint:
        parts += [Text(), Text(hint, style="dim")]
    return Group(*parts)


def bar(progress: Progress) -> RenderableType:
    words = Text(progress.words(), no_wrap=True, overflow="ellipsis")
    if progress.planned is None:
        return words
    grid = Grid.grid(expand=True, padding=(0, 1))
    grid.add_column(ratio=1)
    grid.add_column(justify="right")
    grid.add_row(ProgressBar(total=max(1, progress.planned), completed=progress.asked), words)
    return grid


def maps(run: Run, room: int, *, colourful: bool) -> list[RenderableType]:
    """The maps of all tasks where they fit; else a row for each task, as many as fit."""
    table = run.table
    deep = [task for task in table.tasks if table.has_depths(task)]
    if len(deep) == len(table.tasks) and sum(len(table.depths_of(t)) + 3 for t in deep) <= room:
        return list(heatmaps(run, colourful=colourful))
    return list(_task_rows(run, max(3, room - 4), colourful=colourful))


def _task_rows(run: Run, rows: int, *, colourful: bool) -> Iterator[RenderableType]:
    table = run.table
    yield Text()
    yield Text("accuracy in percent, tasks down, length across", style="bold")
    grid = Grid(box=None, padding=(0, 0 if colourful else 1), show_header=False, pad_edge=False)
    grid.add_column(no_wrap=True)
    for _ in table.lengths:
        grid.add_column(justify="left" if colourful else "right", no_wrap=True)
    for task in table.tasks[:rows]:
        cells = [block(table.by_task_and_length.get((task, n)), colourful=colourful) for n in table.lengths]
        grid.add_row(Text(f"{inert(task, 24)} "), *cells)
    grid.add_row(Text(), *(Text(f"{length_words(n):^6}" if colourful else length_words(n)) for n in table.lengths))
    yield grid
    if len(table.tasks) > rows:
        yield Text(f"and {len(table.tasks) - rows} more tasks", style="dim")


def failure_line(failed: Failed) -> str:
    return f"{time_words(failed.at)}  {failed}"
