"""One table for terminal, page, Markdown and LaTeX. Its values are text; each of these draws it in its own way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich import box
from rich.table import Table as Grid
from rich.text import Text

from leadline.core.format import escape_markdown
from leadline.report.colours import accuracy_scale, colour_at, ink_on

_PLAIN = box.Box("    \n    \n -- \n    \n -- \n -- \n    \n    \n", ascii=True)
_COLOURED = box.Box("    \n    \n ── \n    \n ── \n ── \n    \n    \n")
_LATEX = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--",
    ">": "$>$", "<": "$<$",
})  # fmt: skip


class TextCell(NamedTuple):
    """A value as text, with what stands quietly below it."""

    text: str
    below: str = ""
    share: float | None = None
    """What it shows, from 0 to 1, where the terminal colours it."""
    is_alarm: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.below})" if self.below else self.text


class TextTable(NamedTuple):
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str | TextCell, ...]]
    names: int = 1
    """Columns that hold names; the others hold numbers."""
    wrapped: bool = False
    """Whether numbers may be broken into lines, too."""
    ends: frozenset[int] = frozenset()
    """Rows that end a group: a line follows them."""
    bold: frozenset[int] = frozenset()
    quiet: frozenset[int] = frozenset()
    notes: tuple[str, ...] = ()

    @property
    def cells(self) -> list[list[TextCell]]:
        return [[cell if isinstance(cell, TextCell) else TextCell(cell) for cell in row] for row in self.rows]


# --- terminal -----------------------------------------------------------------------------------


def draw(table: TextTable, *, plain: bool) -> Grid:
    """For the terminal. Where it is not plain, a name is not repeated in the rows below it."""
    if any(cell.share is not None for row in table.cells for cell in row):
        return _scores(table, plain=plain)
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold", title_justify="left", title=table.title)
    grid.add_column(table.columns[0], overflow="fold")
    for number, column in enumerate(table.columns[1:], 1):
        is_name = number < table.names
        grid.add_column(
            column, justify="left" if is_name else "right", no_wrap=not is_name and not table.wrapped, overflow="fold"
        )
    before = ""
    for number, (name, *cells) in enumerate(table.cells):
        shown = "" if name.text == before and not plain else name.text
        is_end = number in table.ends or any(cell.below for cell in cells)
        grid.add_row(Text(shown), *map(_stacked, cells), style=_style(table, number), end_section=is_end)
        before = name.text
    return grid


def _stacked(cell: TextCell) -> Text:
    """What is below a value in a line of its own, so that eight lengths fit a screen."""
    if cell.below:
        return Text.assemble((cell.text, "bold"), (f"\n{cell.below}", "dim"))
    return Text(cell.text, style="bold red" if cell.is_alarm else "")


def _scores(table: TextTable, *, plain: bool) -> Grid:
    """Without a frame, cells in the colours of heatmaps."""
    padding = (0, 0, 0, 1 if plain else 0)
    grid = Grid(box=_PLAIN if plain else _COLOURED, header_style="bold", padding=padding, pad_edge=False)
    grid.show_edge = False
    grid.add_column(table.columns[0], overflow="fold")
    for title in table.columns[1:]:
        grid.add_column(title.replace(" ", "\n"), justify="right", no_wrap=True)
    for number, (name, *cells) in enumerate(table.cells):
        coloured = [_coloured(cell, plain=plain) for cell in cells]
        grid.add_row(Text(name.text), *coloured, style=_style(table, number), end_section=number in table.ends)
    return grid


def _coloured(cell: TextCell, *, plain: bool) -> Text:
    if plain or cell.share is None:
        return Text(cell.text if plain else f"{cell.text:>5} ")
    background = colour_at(accuracy_scale(), cell.share)
    return Text(f"{cell.text:>5} ", style=f"{ink_on(background)} on {background}")


def _style(table: TextTable, row: int) -> str:
    return "bold" if row in table.bold else "dim" if row in table.quiet else ""


# --- files --------------------------------------------------------------------------------------


def markdown(table: TextTable) -> list[str]:
    """The lines of the table, with its notes."""
    rows = []
    for number, (name, *cells) in enumerate(table.cells):
        texts = [escape_markdown(name.text), *map(str, cells)]
        rows.append([f"**{text}**" for text in texts] if number in table.bold else texts)
    notes = ["", *map(escape_markdown, table.notes)] if table.notes else []
    return [*markdown_table(table.columns, rows, table.names), *notes]


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]], names: int) -> list[str]:
    """The lines of a table whose cells are Markdown. Columns after the first `names` are right-aligned."""
    below = "|" + "---|" * names + "---:|" * (len(header) - names)
    return [f"| {' | '.join(header)} |", below, *(f"| {' | '.join(row)} |" for row in rows)]


def latex(table: TextTable) -> str:
    """For a paper; needs booktabs. Notes are comments."""
    alignment = "l" * table.names + "r" * (len(table.columns) - table.names)
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", _latex_row(table.columns), r"\midrule"]
    for number, row in enumerate(table.cells):
        lines.append(_latex_row([cell.text for cell in row]))
        lines += [r"\midrule"] if number in table.ends and number + 1 < len(table.rows) else []
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", *(f"% {note}" for note in table.notes), ""])


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(cell.translate(_LATEX) for cell in cells) + r" \\"
