"""How a run comes to an early end: Ctrl-C, a signal, a dead server, an error. Decided here, obeyed everywhere."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from leadline.core.types import Failure, FailureKind, Record


class Stop:
    """Set once, with the first reason. Whoever waits, waits on this, and so wakes at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._guard = threading.RLock()  # a signal may come while another is being handled, in the same thread
        self._inner: list[Stop] = []
        self.error: BaseException | None = None
        """What to raise when everything in flight has ended."""

    def because(self, error: BaseException) -> None:
        with self._guard:
            if self.error is None:
                self.error = error
            inner = [*self._inner]
        self._event.set()
        for stop in inner:
            stop.because(error)

    def inner(self) -> Stop:
        """One for a part: it can stop by itself, and stops with the whole."""
        made = Stop()
        with self._guard:
            self._inner.append(made)
        if self.error is not None:
            made.because(self.error)
        return made

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps that long unless the run stops; says whether it does."""
        return self._event.wait(seconds)


SERVER_FAILURES: frozenset[FailureKind] = frozenset(
    {"connection", "timeout", "rate_limited", "server", "malformed", "empty_body"}
)
"""Failures that say nothing about the sample. A refused length, for one, is about the sample."""
LOCKED_OUT = frozenset({401, 402, 403, 404})
"""Wrong key, no money, wrong name: every other sample would be refused too."""


class Breaker:
    """Counts samples that failed in a row for the server's sake; opens when there are too many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._guard = threading.Lock()
        self._streak = 0

    def note(self, record: Record) -> bool:
        """Whether this record is the one too many."""
        outcome = record.outcome
        with self._guard:
            if isinstance(outcome, Failure) and is_server_failure(outcome):
                self._streak += 1
            else:
                self._streak = 0
            return self._streak >= self._limit


def is_server_failure(failure: Failure) -> bool:
    return failure.why in SERVER_FAILURES or failure.status in LOCKED_OUT


@contextmanager
def stopping_on_signals(stop: Stop, error: BaseException) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM stops the run in good order; the second leaves at once.

    Signals reach the main thread only; in any other the caller keeps whatever handling it has.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.error is not None:  # rather than is_set: a signal may come while another sets that, in the same thread
            raise KeyboardInterrupt
        stop.because(error)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
