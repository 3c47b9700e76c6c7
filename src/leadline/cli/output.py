"""Words out: errors as what / where / fix, notes, numbers people can read. Everything but results goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from leadline.core.errors import LeadlineError
from leadline.core.format import sanitise


def show_error(error: LeadlineError) -> None:
    """Three lines: what, where, fix."""
    say(f"{_bold('error:', 'red')} {sanitise(error.what, None)}")
    if error.where:
        say(f"{_bold('where:', 'cyan')} {sanitise(error.where, None)}")
    if error.fix:
        say(f"{_bold('fix:', 'green')}   {sanitise(error.fix, None)}")


def say(text: str = "") -> None:
    """To stderr, so that stdout holds results only. Colours are left out where nobody sees them."""
    typer.echo(text, err=True)


def warn(text: str) -> None:
    say(f"{_bold('note:', 'yellow')}  {text}")


def print_json(value: Any) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode() + "\n")


def print_table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...], right: frozenset[int] = frozenset()) -> None:
    """Columns set apart by two spaces. `right` names the columns of numbers."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]

    def line(row: tuple[str, ...]) -> str:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        return "  ".join(cells).rstrip()

    typer.secho(line(header), bold=True)
    for row in rows:
        typer.echo(line(row))


def _bold(text: str, colour: str) -> str:
    return typer.style(text, fg=colour, bold=True)
