"""Events of a run. Listeners are called from one thread, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leadline.core.types import Record


@dataclass(frozen=True, slots=True)
class Started:
    """The folder is open. `done` cells have an answer already; `torn_bytes` of an incomplete line were cut off."""

    folder: Path
    planned: int
    done: int
    failed_before: int
    tokens_left: int
    """The lengths of the missing cells, added up."""
    torn_bytes: int
    notes: tuple[str, ...] = ()
    """What a reader must know about the model or the plan."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A record was written: an answer or a failure."""

    record: Record
    more: bool = False
    """Whether other records of the same document follow at once, so that a display need not update yet."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One sample, or with `everyone` the whole run, waits before it is asked again."""

    seconds: float
    why: str
    everyone: bool


@dataclass(frozen=True, slots=True)
class Stopping:
    """No new request is sent; those in flight are finished."""

    why: str


@dataclass(frozen=True, slots=True)
class RuleChecked:
    """A stopping rule has looked at the records and wants `asks` more samples."""

    sentence: str
    asks: int


Event = Started | Answered | Waiting | Stopping | RuleChecked
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does nothing."""
