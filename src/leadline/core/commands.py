"""A command of the command line, as an entry point of `leadline.commands` names it.

The description is apart from the code that runs, so that `leadline --help` lists a command without importing it.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

CommandGroup = Literal["measure", "look", "check", "compare", "exchange", "list"]
GROUPS: tuple[CommandGroup, ...] = get_args(CommandGroup)


@dataclass(frozen=True, slots=True)
class Command:
    """`implementation` is `MODULE:NAME`: a function with typer's annotations, or a `typer.Typer` with subcommands."""

    summary: str
    implementation: str
    group: CommandGroup = "measure"

    def load(self) -> Any:
        module, _, name = self.implementation.partition(":")
        gc.disable()  # what modules make stays: looking through it a hundred times takes 30 ms
        try:
            return getattr(import_module(module), name)
        finally:
            gc.enable()
