"""Retries: whether, how often and after which wait a failed request is asked again. For samples, judges, checks of a
server and small questions about it.

Failures are classified where they are met (`Failure.transient`, `why`, `retry_after`). One that may pass is asked again
until the attempts are used up, after a wait that doubles and is drawn at random, or after the time that the server
names (Retry-After) if the limits allow it. A rate limit (429) is waited for: it uses up no attempt until the server has
answered nothing at all for `rate_limit_wait` seconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leadline.core.answers import Failure, Outcome
from leadline.core.format import format_duration

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
_DOUBLINGS = 20
"""More make no difference."""


@dataclass(frozen=True, slots=True)
class RetryWait:
    """The time before another attempt."""

    seconds: float
    is_named: bool = False
    """Whether the server named it; then it holds for all threads that ask the server."""

    def drawn_out(self) -> float:
        """Named times are extended at random by up to a tenth and 0.1 s, at most 1 s, so that threads do not return at
        once."""
        return self.seconds + (random.uniform(0, min(1.0, 0.1 + self.seconds / 10)) if self.is_named else 0.0)


class RateLimit:
    """The time for which a server has answered all requests with 429, in any thread."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._since: float | None = None

    def met(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    def lifted(self) -> None:
        """Something was answered."""
        self._since = None

    @property
    def is_over(self) -> bool:
        """Whether the wait has lasted as long as the limits allow."""
        since = self._since
        return since is not None and time.monotonic() - since >= self._limit

    def __str__(self) -> str:
        since = self._since
        lasted = 0.0 if since is None else time.monotonic() - since
        so_far = f", for {format_duration(lasted)} so far" if lasted >= 1 else ""
        return f"rate limit of the server{so_far}"


class Backoff:
    """The limits of asking one server again, and its rate limit. Shared by all threads that ask it."""

    def __init__(self, attempts: int, *, timeout: float, rate_limit_wait: float) -> None:
        self.attempts = attempts
        self.rate_limit = RateLimit(rate_limit_wait)
        self._timeout = timeout
        self._rate_limit_wait = rate_limit_wait

    def note(self, outcomes: Iterable[Outcome]) -> None:
        """Notes the results of one attempt, which show how long a rate limit has lasted."""
        failures = [outcome if isinstance(outcome, Failure) else None for outcome in outcomes]
        if None in failures:
            self.rate_limit.lifted()
        elif any(failure is not None and failure.why == "rate_limited" for failure in failures):
            self.rate_limit.met()

    def may_pass(self, outcome: Outcome) -> bool:
        """Whether asking again may help. A server that wants a longer wait than the limits allow is not waited for."""
        if not isinstance(outcome, Failure) or not outcome.transient:
            return False
        longest = self._rate_limit_wait if outcome.why == "rate_limited" else self._timeout
        return outcome.retry_after is None or outcome.retry_after <= longest


class Attempts:
    """The failed attempts of one request."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._failed = 0
        self._limited = 0

    def wait_after(self, failures: Sequence[Failure]) -> RetryWait | None:
        """The wait after an attempt that ended with these failures, all of them transient; None after the last
        attempt."""
        if all(failure.why == "rate_limited" for failure in failures):
            self._limited += 1
        else:
            self._failed += 1
        most = self._backoff.attempts
        if self._failed >= most or (self._limited >= most and self._backoff.rate_limit.is_over):
            return None
        retry_after = max((f.retry_after for f in failures if f.retry_after is not None), default=0.0)
        if retry_after >= FIRST_WAIT_SECONDS:  # 0 would retry a rate limit without a pause
            return RetryWait(retry_after, is_named=True)
        return RetryWait(_growing_wait(self._failed + self._limited))


def _growing_wait(attempt: int) -> float:
    """Seconds to wait after this attempt, if the server names no time."""
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(attempt - 1, _DOUBLINGS))
    return random.uniform(longest / 2, longest)
