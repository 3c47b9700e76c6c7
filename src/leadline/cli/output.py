"""Terminal output: errors as what / where / fix, notes, tables and JSON. Only results go to stdout."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
import typer

from leadline.core.errors import LeadlineError
from leadline.core.format import sanitise
from leadline.core.secrets import redact


def show_error(error: LeadlineError) -> None:
    """Up to three lines: what, where, fix."""
    lines = (("error:", "red", error.what), ("where:", "cyan", error.where), ("fix:  ", "green", error.fix))
    for label, colour, text in lines:
        if text or label == "error:":
            say(f"{_bold(label, colour)} {sanitise(text, None)}")


def say(text: str = "") -> None:
    """Prints to stderr. Colours are dropped where stderr is not a terminal."""
    typer.echo(redact(text), err=True)


def warn(text: str) -> None:
    say(f"{_bold('note:', 'yellow')}  {sanitise(text, None)}")


def print_json(value: Any) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode() + "\n")


def print_table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...], right: frozenset[int] = frozenset()) -> None:
    """Prints columns separated by two spaces. `right` lists the right-aligned columns."""
    rows = [tuple(sanitise(cell, None) for cell in row) for row in (header, *rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    for number, row in enumerate(rows):
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        typer.secho("  ".join(cells).rstrip(), bold=number == 0)


def _bold(text: str, colour: str) -> str:
    return typer.style(text, fg=colour, bold=True)
