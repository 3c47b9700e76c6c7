"""The table of thinking: by run and length, tokens, answers cut off, and accuracy."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table as Grid
from rich.text import Text

from leadline.core.format import format_length, format_number, format_percent, sanitise
from leadline.report.score_tables import grid_of
from leadline.results.run import Run
from leadline.results.thinking import is_shown

COLUMNS = ("length", "accuracy", "thinking, mean", "most", "allowance", "cut off")
TITLE = "accuracy against thinking"


def thinking_cells(run: Run) -> list[tuple[str, ...]]:
    """A row for each length; none for a run without thinking."""
    return _rows(run) if is_shown(run.totals.thinking) else []


def _rows(run: Run) -> list[tuple[str, ...]]:
    return [
        (
            format_length(length),
            f"{format_percent(use.accuracy)}%",
            format_number(use.mean_tokens),
            format_number(use.most),
            format_number(use.allowed) if use.allowed else "the task's",
            f"{100 * use.cut_share:.1f}%",
        )
        for length, use in sorted(run.totals.thinking.items())
        if use.answers
    ]


def thinking_grid(runs: Sequence[Run], names: Sequence[str], *, plain: bool) -> Grid | None:
    """For the terminal; None if no run has thinking. Runs of a sweep without thinking are in it too."""
    if not any(is_shown(run.totals.thinking) for run in runs):
        return None
    grid = grid_of("run", *COLUMNS, plain=plain)
    grid.title = TITLE
    for run, name in zip(runs, names, strict=True):
        for number, row in enumerate(_rows(run)):
            grid.add_row(Text(sanitise(name, 40) if plain or not number else ""), *row)
    return grid
