"""A command of the command line, as an entry point of `leadline.commands` names it.

The description is apart from the code that runs, so that `leadline --help` lists a command without importing it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
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
        with _quick_imports():
            return getattr(import_module(module), name)


BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")


@contextmanager
def _quick_imports() -> Iterator[None]:
    """Saves 30 ms of looking for garbage, since what modules make stays, and the threads of numpy's matrix products.

    These threads, one for each core, wait at full speed for 0.1 s: when numpy is imported and after every product. Our
    matrices are small. Libraries imported later, such as torch, and programs that are started choose for themselves."""
    alone = not any(name in os.environ for name in BLAS_THREADS)
    if alone:
        os.environ[BLAS_THREADS[0]] = "1"  # read when the library is loaded
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        if alone:
            del os.environ[BLAS_THREADS[0]]
