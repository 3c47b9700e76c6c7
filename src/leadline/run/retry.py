"""Retries: whether, when and how often a sample is asked again.

Models classify failures (`Failure.transient`, `retry_after`); this module decides. A transient failure is asked again,
up to `limits.attempts` times, after a wait that doubles and is drawn at random. When a server names the time itself
(Retry-After), all workers wait for it. A rate-limited sample (429) has not used up an attempt while the server answers
others: there are more workers than the server takes requests. Building a document that needs a server to count its
tokens is retried in the same way.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from leadline.core.errors import LeadlineError, ServerAway
from leadline.core.spec import Limits
from leadline.core.types import Answer, Document, Failure, Probe
from leadline.run.events import Waiting
from leadline.run.stopping import Stop

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A probe with its final answer, the number of attempts, and when the last of them began."""

    probe: Probe
    answer: Answer
    attempts: int
    started: float


class Answering(Protocol):
    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]: ...


class Retrier:
    """Asks one model from any number of threads."""

    def __init__(self, model: Answering, limits: Limits, stop: Stop, notify: Callable[[Waiting], None]) -> None:
        self._model = model
        self._limits = limits
        self._stop = stop
        self._notify = notify
        self._pause = Pause()
        self._answered = 0
        """Samples answered so far, by any thread."""

    def ask(self, document: Document, probes: Sequence[Probe]) -> list[Asked]:
        """One final answer per probe, in order. Probes abandoned because the run stops are left out; they are asked
        again when the run is resumed."""
        final: dict[str, Asked] = {}
        transient: dict[str, Asked] = {}
        attempt = used = 0
        before = self._answered
        while True:
            attempt += 1
            self._pause.wait(self._stop)
            if self._stop.is_set:
                transient = {}
                break
            pending = [p for p in probes if p.cell.key not in final]
            transient = {}
            for asked in self._attempt(document, pending, attempt):
                (transient if self._may_retry(asked.answer) else final)[asked.probe.cell.key] = asked
            failures = [a.answer.outcome for a in transient.values() if isinstance(a.answer.outcome, Failure)]
            # Being rate-limited uses no attempt while the server answers other samples.
            only_limited = all(failure.why == "rate_limited" for failure in failures)
            used += not only_limited or self._answered == before
            before = self._answered
            if not transient or used >= self._limits.attempts:
                break
            self._stop.wait(self._seconds_to_wait(failures, attempt))
        final |= transient
        return [final[p.cell.key] for p in probes if p.cell.key in final]

    def patiently(self, make: Callable[[], T]) -> T:
        """Calls `make` again while the server that it needs is away, as often as a sample is asked. Raises the last
        error, and does so at once when the run stops."""
        for attempt in range(1, self._limits.attempts):
            try:
                return make()
            except ServerAway as away:
                seconds = _backoff(attempt)
                self._notify(Waiting(seconds, away.what, everyone=True))
                if self._stop.wait(seconds):
                    raise
        return make()

    def _attempt(self, document: Document, probes: Sequence[Probe], attempt: int) -> list[Asked]:
        started = time.time()
        answers = self._model.answer(document, probes)
        if len(answers) != len(probes):
            raise LeadlineError(f"the model gave {len(answers)} answers to {len(probes)} questions", where=document.id)
        self._answered += sum(not isinstance(a.outcome, Failure) for a in answers)
        return [Asked(probe, answer, attempt, started) for probe, answer in zip(probes, answers, strict=True)]

    def _may_retry(self, answer: Answer) -> bool:
        """A server that asks for a longer wait than a request may take is not waited for."""
        failure = answer.outcome
        if not isinstance(failure, Failure) or not failure.transient:
            return False
        return failure.retry_after is None or failure.retry_after <= self._limits.timeout

    def _seconds_to_wait(self, failures: Sequence[Failure], attempt: int) -> float:
        why = f"{failures[0].why} (status {failures[0].status})" if failures[0].status else failures[0].why
        retry_after = max((f.retry_after for f in failures if f.retry_after is not None), default=None)
        if retry_after is not None:
            self._pause.ask_for(retry_after)
            self._notify(Waiting(retry_after, why, everyone=True))
            return retry_after + random.uniform(0, min(1.0, 0.1 + retry_after / 10))
        seconds = _backoff(attempt)
        self._notify(Waiting(seconds, why, everyone=False))
        return seconds


class Pause:
    """A time before which no thread asks, as named by the server."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._until = 0.0

    def ask_for(self, seconds: float) -> None:
        with self._guard:
            self._until = max(self._until, time.monotonic() + seconds)

    def wait(self, stop: Stop) -> None:
        while (left := self._until - time.monotonic()) > 0:
            if stop.wait(left):
                return


def _backoff(attempt: int) -> float:
    """Seconds to wait after this attempt."""
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
    return random.uniform(longest / 2, longest)
