"""The type of the `say` fixture: `leadline WORDS` in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class CommandResult(NamedTuple):
    code: int
    out: str
    err: str


Say = Callable[..., CommandResult]
