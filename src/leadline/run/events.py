"""What happens in a run, as it happens. Listeners are called from one thread, in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leadline.core.types import Record


@dataclass(frozen=True, slots=True)
class Started:
    """The folder is open. `done` cells have an answer already; `torn_bytes` of a torn line were cut off."""

    folder: Path
    planned: int
    done: int
    failed_before: int
    prompt_tokens_left: int
    torn_bytes: int
    notes: tuple[str, ...] = ()
    """What a reader must know about the model or the plan."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A record was written: an answer or a failure."""

    record: Record
    more: bool = False
    """Whether others of the same document come with it, so that one alone says nothing of how fast the run is."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A sample, or the whole run when the server asked for it, waits before it is asked again."""

    seconds: float
    why: str
    everyone: bool


@dataclass(frozen=True, slots=True)
class Stopping:
    """Nothing new is asked; what is in flight is finished."""

    why: str


@dataclass(frozen=True, slots=True)
class Looked:
    """A stopping rule has looked at the records, and wants more of them."""

    sentence: str
    asks: int


Event = Started | Answered | Waiting | Stopping | Looked
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does nothing."""
