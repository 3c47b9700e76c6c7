"""A table as texts, drawn in the terminal, on the page and in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table as Grid
from rich.text import Text


class TextTable(NamedTuple):
    """The terminal and the page draw the same one. A cell may have a second line, which is drawn quietly."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    names: int = 1
    """Columns that hold names; the others hold numbers."""
    wrapped: bool = False
    """Whether numbers may be broken into lines, too."""


def grid_of(*titles: str, plain: bool) -> Grid:
    """A column of names, then columns of numbers. Names are folded where there is not room for both."""
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold", title_justify="left")
    grid.add_column(titles[0], overflow="fold")
    for title in titles[1:]:
        grid.add_column(title, justify="right", no_wrap=True)
    return grid


def draw(table: TextTable, *, plain: bool) -> Grid:
    """For the terminal. Where it is not plain, a name is not repeated in the rows below it."""
    grid = grid_of(*table.columns, plain=plain)
    grid.title = table.title
    for number, column in enumerate(grid.columns[1:], 1):
        column.justify = "left" if number < table.names else "right"
        column.no_wrap = number >= table.names and not table.wrapped
        column.overflow = "fold"
    before = ""
    for name, *cells in table.rows:
        stacked = any("\n" in cell for cell in cells)
        grid.add_row(Text("" if name == before and not plain else name), *map(_cell, cells), end_section=stacked)
        before = name
    return grid


def _cell(text: str) -> Text:
    value, line_break, below = text.partition("\n")
    return Text.assemble((value, "bold"), (f"\n{below}", "dim")) if line_break else Text(text)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], names: int) -> list[str]:
    """The lines of a table whose cells are Markdown. Columns after the first `names` are right-aligned."""
    below = "|" + "---|" * names + "---:|" * (len(header) - names)
    return [f"| {' | '.join(header)} |", below, *(f"| {' | '.join(row)} |" for row in rows)]
