"""Every command that a page shows has the names and values that the command line takes. Nothing is run here: pages of
which all commands run have tests of their own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import dropwhile, groupby
from pathlib import Path
from typing import Any

import pytest
import typer

from leadline.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]


def commands(page: Path) -> Iterator[list[str]]:
    """What follows `leadline` in the shell blocks of a page: `A && B`, `A > FILE` and `VARIABLE=1 A` are split."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.shlex(line, posix=True, punctuation_chars=True)
            words.whitespace_split = True
            for of_shell, group in groupby(words, lambda word: set(word) <= set("();<>|&")):
                command = list(dropwhile(re.compile(r"\w+=").match, group))
                if not of_shell and command[:1] == ["leadline"]:
                    yield command[1:]


SHOWN = [(page.name, command) for page in PAGES for command in commands(page)]


def test_there_are_commands_to_read() -> None:
    assert len(SHOWN) > 100
    assert {"run", "plan", "report", "judge", "doctor", "follow"} <= {command[0] for _, command in SHOWN}


@pytest.mark.parametrize(("page", "command"), SHOWN, ids=[f"{page}: {' '.join(words)}" for page, words in SHOWN])
def test_a_command_has_the_options_that_the_program_has(page: str, command: list[str]) -> None:
    group: Any = typer.main.get_command(app)
    context = group.make_context("leadline", list(command))
    while hasattr(group, "resolve_command"):
        name, group, rest = group.resolve_command(context, [*context._protected_args, *context.args])
        context = group.make_context(name, rest, parent=context)


def test_what_a_command_writes_is_o_or_out_everywhere() -> None:
    group: Any = typer.main.get_command(app)
    context = group.make_context("leadline", ["--help"], resilient_parsing=True)
    names = {
        name: tuple(parameter.opts)
        for name in group.list_commands(context)
        for parameter in group.get_command(context, name).params
        if {"-o", "--out", "--output"} & set(parameter.opts)
    }
    assert names.keys() >= {"run", "report", "build", "certify", "export", "card", "follow", "demo"}
    assert set(names.values()) == {("-o", "--out")}
