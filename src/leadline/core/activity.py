"""The things that the program waits for now, for messages about progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

_waits: dict[int, tuple[Callable[[], str], float]] = {}
_numbers = count()


@dataclass(frozen=True, slots=True)
class Wait:
    what: str
    seconds: float


@contextmanager
def waiting_for(what: Callable[[], str]) -> Iterator[None]:
    """Names what the calling thread waits for, in any thread. `what` is called by `longest_wait`."""
    number = next(_numbers)
    _waits[number] = (what, time.monotonic())
    try:
        yield
    finally:
        del _waits[number]


def longest_wait() -> Wait | None:
    """The wait that began first; None if no thread waits."""
    begun = min([*_waits.values()], key=lambda wait: wait[1], default=None)
    return None if begun is None else Wait(begun[0](), time.monotonic() - begun[1])
