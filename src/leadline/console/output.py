"""Terminal output: errors as what / where / fix, notes, lines, tables and JSON. Only results go to stdout.

Nothing else in the package writes to the terminal. Names, answers and messages come from files and servers, so every
text is made harmless here: escape sequences, bells and characters that change the direction of text become visible.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer

from leadline.core.errors import LeadlineError, UsageError
from leadline.core.format import sanitise, sanitise_lines
from leadline.core.secrets import redact, redact_used


def show_error(error: LeadlineError, command: str = "leadline") -> None:
    """Three lines: what, where, fix."""
    fix = error.fix or (f"see `{command} --help`" if isinstance(error, UsageError) else "")
    lines = (("error:", "red", error.what), ("where:", "cyan", error.where or command), ("fix:  ", "green", fix))
    for label, colour, text in lines:
        if text or label == "error:":
            say(sanitise(text, None), label=label, colour=colour)


def echo(text: object = "", *, bold: bool = False, colour: str | None = None) -> None:
    """Prints a result to stdout. Colours are dropped where stdout is not a terminal."""
    shown = redact_used(sanitise_lines(str(text)))
    typer.echo(typer.style(shown, bold=bold, fg=colour) if bold or colour else shown)


def say(text: str = "", *, label: str = "", colour: str | None = None) -> None:
    """Prints to stderr, after a coloured label where there is one."""
    shown = redact(sanitise_lines(text))
    typer.echo(f"{typer.style(label, fg=colour, bold=True)} {shown}" if label else shown, err=True)


def warn(text: str) -> None:
    say(sanitise(text, None), label="note: ", colour="yellow")


def discard_stdout() -> None:
    """Sends further output to /dev/null, when the reader has closed stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def continue_if_unread() -> Iterator[None]:
    """Around output that is printed before files are written: after `| head` the files are written all the same."""
    try:
        yield
    except BrokenPipeError:
        discard_stdout()


LEAST_ROOM = 24
"""Characters for a column that is wrapped; in a narrower terminal it is left as it is."""


def print_json(value: Any) -> None:
    """Harmful characters can only be in strings, where JSON has escapes for them."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode()
    sys.stdout.write(re.sub(r"[^\n -~]", _json_escape, text) + "\n")


def _json_escape(escaped: re.Match[str]) -> str:
    character = escaped[0]
    if sanitise_lines(character) == character:
        return character
    return "".join(f"\\u{unit:04x}" for unit in memoryview(character.encode("utf-16-le")).cast("H"))


def print_table(rows: Sequence[tuple[str, ...]], header: tuple[str, ...], right: frozenset[int] = frozenset()) -> None:
    """Prints columns separated by two spaces. `right` lists the right-aligned columns. In a terminal the last column is
    wrapped to its width; in a pipe every row is one line."""
    rows = [tuple(sanitise(cell, None) for cell in row) for row in (header, *rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    indent = sum(widths[:-1]) + 2 * (len(widths) - 1)
    room = shutil.get_terminal_size().columns - indent if sys.stdout.isatty() else 0
    for number, row in enumerate(rows):
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        if room >= LEAST_ROOM and len(row[-1]) > room:
            cells[-1], *more = textwrap.wrap(row[-1], room)
            cells[-1] = "\n".join([cells[-1], *(" " * indent + line for line in more)])
        echo("  ".join(cells).rstrip(), bold=number == 0)


# --- options of several commands

DEFAULT_THRESHOLD = 85.6  # that of stats.effective, without importing numpy for a help text
ThresholdOption = Annotated[
    float,
    typer.Option(min=0, max=100, help="Score in percent that a length must reach to count as effective; RULER's."),
]
FailedSamplesOption = Annotated[
    Literal["excluded", "zero"], typer.Option(help="Whether failed samples are left out or count as wrong.")
]

TrustOption = Annotated[
    bool, typer.Option("--trust", help="Import the Python files that the run folder names: this runs their code.")
]
PricesOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Prices of tokens: a TOML file (docs/price-files.md) or LiteLLM's JSON table."),
]
TierOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Tier of the prices, such as batch. [default: standard]")
]
BudgetOption = Annotated[
    str | None,
    typer.Option(
        metavar="MONEY",
        help="Stop before the run and its judges cost more together, such as 20usd; without --samples measure what "
        "it allows. Needs --prices.",
    ),
]


def price_file(prices: str | None, tier: str | None) -> Path | None:
    """The file of --prices, which --tier needs."""
    if tier and not prices:
        raise UsageError("a tier needs prices", where="--tier", fix="add --prices FILE, or leave out --tier")
    return Path(prices) if prices else None


def show_money(paid: str, to_judges: str) -> None:
    """Prints the cost of a run, and apart from it that of its judges; nothing without prices."""
    for text in filter(None, (paid, to_judges)):
        echo(f"money     {text}")


def threshold_share(percent: float) -> float:
    """The threshold as a share. A number up to 1 was probably meant as one already, and is refused."""
    if 0 < percent <= 1:
        raise UsageError(f"a threshold of {percent:g} percent", where="--threshold", fix=f"write {100 * percent:g}")
    return round(percent / 100, 12)
