"""Words out: errors as what / where / fix, notes, numbers people can read. Everything but results goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from leadline.core.errors import LeadlineError


def show_error(error: LeadlineError) -> None:
    """Three lines: what, where, fix."""
    say(f"{_bold('error:', 'red')} {harmless(error.what)}")
    if error.where:
        say(f"{_bold('where:', 'cyan')} {harmless(error.where)}")
    if error.fix:
        say(f"{_bold('fix:', 'green')}   {harmless(error.fix)}")


def harmless(text: str) -> str:
    """One line without control characters: errors quote servers, and a terminal obeys what it is sent."""
    return "".join(c if c.isprintable() else " " for c in text)


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


def seconds_words(seconds: float) -> str:
    """`45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours / 24:.1f} days"


def _bold(text: str, colour: str) -> str:
    return typer.style(text, fg=colour, bold=True)
