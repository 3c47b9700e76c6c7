"""Events of a run. Listeners are called from one thread at a time, in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.core.activity import longest_wait
from leadline.core.errors import LeadlineError
from leadline.core.records import Record

if TYPE_CHECKING:
    from leadline.core.spec import Spec
    from leadline.results.run import Run

FIRST_SECONDS = 5.0
"""The time without an event after which a wait is reported; then after twice that time, and so on."""


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
    """A note for readers about the model or the plan."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A record was written: an answer or a failure."""

    record: Record
    more: bool = False
    """Whether other records of the same document follow at once, so that a display need not update yet."""
    replaces: Record | None = None
    """The record of the same sample that counts no more, where it was asked again with a larger allowance."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """One sample, or with `everyone` the whole run, waits before it is asked again."""

    seconds: float
    why: str
    everyone: bool


@dataclass(frozen=True, slots=True)
class Pending:
    """Nothing has happened for a while: the program waits for `what`, such as a request."""

    seconds: float
    what: str


@dataclass(frozen=True, slots=True)
class Note:
    """A note for the user about a run in progress."""

    text: str


@dataclass(frozen=True, slots=True)
class Stopping:
    """No new request is sent; those in flight are finished."""

    why: str
    in_flight: int = 0
    """Answers that are waited for."""


@dataclass(frozen=True, slots=True)
class RuleChecked:
    """A stopping rule has looked at the records and wants `asks` more samples."""

    sentence: str
    asks: int


@dataclass(frozen=True, slots=True)
class StepProgress:
    """How far a step before or after the questions is, such as compacting or a judge."""

    text: str
    done: int
    total: int


Event = Started | Answered | Waiting | Pending | Note | Stopping | RuleChecked | StepProgress
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does nothing."""


def without_started(listen: Listener) -> Listener:
    """Without Started events: later rounds are not new runs."""

    def heard(event: Event) -> None:
        if not isinstance(event, Started):
            listen(event)

    return heard


class PendingWatch:
    """Reports that the program waits, after 5 s without an event, 10 s, 20 s and so on."""

    def __init__(self, listen: Listener) -> None:
        self._listen = listen
        self.reset()

    def reset(self) -> None:
        """Something has happened."""
        self._since, self._next = time.monotonic(), FIRST_SECONDS

    def look(self) -> None:
        wait = longest_wait()
        quiet = time.monotonic() - self._since
        if wait is not None and min(quiet, wait.seconds) >= self._next:
            self._next = 2 * min(quiet, wait.seconds)
            self._listen(Pending(wait.seconds, wait.what))


@contextmanager
def reporting_waits(listen: Listener) -> Iterator[None]:
    """Looks from a thread while the caller prepares a run."""
    watch, done = PendingWatch(listen), threading.Event()

    def look() -> None:
        while not done.wait(FIRST_SECONDS / 10):
            watch.look()

    thread = threading.Thread(target=look, name="waits", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


# --- of a run of many models


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A model under its name, its spec, and the folder of its run."""

    name: str
    spec: Spec
    folder: Path


@dataclass(frozen=True, slots=True)
class ModelRunResult:
    """The run of a model, or the error that kept it from being measured."""

    model_run: ModelRun
    run: Run | None = None
    error: LeadlineError | None = None
    step_errors: tuple[LeadlineError, ...] = ()
    """Of steps after the run, such as judges: it has its answers all the same."""
    was_complete: bool = False
    """Whether the run was already complete, so that the model was not opened."""


@dataclass(frozen=True, slots=True)
class ModelStarted:
    model_run: ModelRun


@dataclass(frozen=True, slots=True)
class ModelEnded:
    result: ModelRunResult


ManyModelsEvent = Event | ModelStarted | ModelEnded
