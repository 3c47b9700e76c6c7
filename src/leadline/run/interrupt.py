"""Early ends of a run: Ctrl-C, a signal, a server that does not answer, an error."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from leadline.core.answers import Failure, FailureKind, Outcome

RESUME = "run the same command again to continue: only what is missing is asked"


class Stop:
    """Set once, with the first reason. All waiting is done with `wait`, so that it ends at once."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._guard = threading.RLock()  # a signal may arrive while another is handled in the same thread
        self._inner: list[Stop] = []
        self.error: BaseException | None = None
        """Raised when all requests in flight have ended."""

    def because(self, error: BaseException) -> None:
        with self._guard:
            if self.error is None:
                self.error = error
            inner = [*self._inner]
        self._event.set()
        for stop in inner:
            stop.because(error)

    def inner(self) -> Stop:
        """A Stop for one of several runs: can be set alone, and is set when this one is."""
        stop = Stop()
        with self._guard:
            self._inner.append(stop)
        if self.error is not None:
            stop.because(self.error)
        return stop

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps unless the run stops; returns whether it does."""
        return self._event.wait(seconds)


SERVER_FAILURES: frozenset[FailureKind] = frozenset(
    {"connection", "timeout", "rate_limited", "server", "malformed", "empty_body", "unexpected_status", "aborted"}
)
"""Failures that are due to the server, not to the sample (as a refused length is)."""
LOCKED_OUT_STATUSES = frozenset({401, 402, 403, 404})
"""Wrong key, no credit, wrong name: every sample would be refused."""
NO_CREDIT = "the provider answers no more questions, since the account has no credit"


class Breaker:
    """Counts failures in a row that are due to the server. Used with a lock held."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._streak = 0

    def note(self, outcome: Outcome) -> bool:
        """Whether this outcome reaches the limit. An account without credit gets no answer at all."""
        is_broken = isinstance(outcome, Failure) and (
            outcome.why in SERVER_FAILURES or outcome.status in LOCKED_OUT_STATUSES
        )
        self._streak = self._streak + 1 if is_broken else 0
        is_without_credit = isinstance(outcome, Failure) and outcome.why == "no_credit"
        return self._streak >= self._limit or is_without_credit


@contextmanager
def stopping_on_signals(stop: Stop, error: BaseException) -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP (a closed terminal) sets `stop`; the second raises KeyboardInterrupt.

    Python handles signals in the main thread only; in any other thread this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.error is not None:  # not is_set: a signal may arrive while another is handled
            raise KeyboardInterrupt
        stop.because(error)

    hangup = getattr(signal, "SIGHUP", None)  # not on Windows, and ignored under nohup
    hangups = [hangup] if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN else []
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, *hangups)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
