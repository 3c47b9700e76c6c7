"""Asking again: the one place where it is decided whether, when and how often.

Models classify (`Failure.transient`, `retry_after`); this module decides. A transient failure is asked again, up to
`limits.attempts` times, after a wait that doubles and is drawn at random, so that workers do not return in step.
When a server names the time itself (Retry-After), all workers wait for it, not only the one that was told. A sample
that is put off (429) while the server answers others has not used up an attempt: there are more workers than the server
has places, and its turn comes. A document that needs a server to count its tokens is waited for in the same way.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from leadline.core.errors import LeadlineError, ServerAway
from leadline.core.spec import Limits
from leadline.core.types import Answer, Document, Failure, Probe
from leadline.run.events import Waiting
from leadline.run.stopping import Stop

if TYPE_CHECKING:
    from tenacity import RetryCallState

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A probe with its final answer, how many attempts that took, and when the last began."""

    probe: Probe
    answer: Answer
    attempts: int
    started: float


class Answering(Protocol):
    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]: ...


class Retrier:
    """Asks one model, from any number of threads, with patience."""

    def __init__(self, model: Answering, limits: Limits, stop: Stop, notify: Callable[[Waiting], None]) -> None:
        self._model = model
        self._limits = limits
        self._stop = stop
        self._notify = notify
        self._pause = Pause()
        self._answered = 0
        """Changes whenever a sample is answered."""

    def ask(self, document: Document, probes: Sequence[Probe]) -> list[Asked]:
        """One final answer per probe, in order. A probe given up because the run stops has none: it is asked again
        when the run goes on."""
        round_ = _Round(document, probes, self._answered)
        if _has_open_probes(self._once(round_)):
            self._again(round_)
        settled = round_.settled if round_.abandoned else round_.settled | round_.open
        return [settled[p.cell.key] for p in probes if p.cell.key in settled]

    def patiently(self, make: Callable[[], T]) -> T:
        """What `make` makes with a server's help; made again while the server is away, as often as a sample is asked.
        Raises what was wrong the last time, and at once when the run stops."""
        for attempt in range(1, self._limits.attempts):
            try:
                return make()
            except ServerAway as away:
                seconds = _doubling(attempt)
                self._notify(Waiting(seconds, away.what, everyone=True))
                if self._stop.wait(seconds):
                    raise
        return make()

    def _again(self, round_: _Round) -> None:
        """What a first attempt left open, until nothing is or patience ends."""
        from tenacity import Retrying, retry_if_result  # most runs never need it

        made = iter((round_,))  # the first attempt
        Retrying(
            stop=lambda state: round_.spent >= self._limits.attempts,
            wait=self._wait,
            retry=retry_if_result(_has_open_probes),
            sleep=self._sleep,
            retry_error_callback=lambda state: None,
        )(lambda: next(made, None) or self._once(round_))

    def _once(self, round_: _Round) -> _Round:
        round_.attempt += 1
        self._pause.wait(self._stop)
        if self._stop.is_set:
            round_.abandoned = True
            return round_
        probes = round_.pending()
        started = time.time()
        answers = self._model.answer(round_.document, probes)
        if len(answers) != len(probes):
            raise LeadlineError(
                f"the model gave {len(answers)} answers to {len(probes)} questions", where=round_.document.id
            )
        round_.open = {}
        for probe, answer in zip(probes, answers, strict=True):
            asked = Asked(probe, answer, round_.attempt, started)
            where = round_.open if self._worth_asking_again(answer) else round_.settled
            where[probe.cell.key] = asked
        self._count(round_, answers)
        return round_

    def _count(self, round_: _Round, answers: Sequence[Answer]) -> None:
        """Adds to the attempts that are spent, and to the answers that there are."""
        self._answered += sum(not isinstance(a.outcome, Failure) for a in answers)
        if not round_.is_put_off or self._answered == round_.answered_before:
            round_.spent += 1
        round_.answered_before = self._answered

    def _worth_asking_again(self, answer: Answer) -> bool:
        """A server that wants to be left alone for longer than a request may take is not waited for."""
        failure = answer.outcome
        if not isinstance(failure, Failure) or not failure.transient:
            return False
        return failure.retry_after is None or failure.retry_after <= self._limits.timeout

    def _wait(self, state: RetryCallState) -> float:
        failures = _open_failures(state)
        told = max((f.retry_after for f in failures if f.retry_after is not None), default=None)
        if told is not None:
            self._pause.ask_for(told)
            self._notify(Waiting(told, _words(failures[0]), everyone=True))
            return told + random.uniform(0, min(1.0, 0.1 + told / 10))
        seconds = _doubling(state.attempt_number)
        self._notify(Waiting(seconds, _words(failures[0]), everyone=False))
        return seconds

    def _sleep(self, seconds: float) -> None:
        self._stop.wait(seconds)


class Pause:
    """A time before which nobody asks, set by whoever the server told."""

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


class _Round:
    """The state of one call of `ask`: what is settled and what is still open after the latest attempt."""

    def __init__(self, document: Document, probes: Sequence[Probe], answered_before: int) -> None:
        self.document = document
        self.probes = probes
        self.answered_before = answered_before
        """Samples of anybody that were answered before the latest attempt."""
        self.attempt = 0
        self.spent = 0
        """The attempts that count."""
        self.settled: dict[str, Asked] = {}
        self.open: dict[str, Asked] = {}
        self.abandoned = False

    @property
    def is_put_off(self) -> bool:
        """Whether the server only said that there are too many of us."""
        outcomes = [asked.answer.outcome for asked in self.open.values()]
        return all(isinstance(outcome, Failure) and outcome.why == "rate_limited" for outcome in outcomes)

    def pending(self) -> list[Probe]:
        return [p for p in self.probes if p.cell.key not in self.settled]


def _doubling(attempt: int) -> float:
    """Seconds to wait after so many attempts."""
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
    return random.uniform(longest / 2, longest)


def _has_open_probes(round_: _Round) -> bool:
    return bool(round_.open) and not round_.abandoned


def _open_failures(state: RetryCallState) -> list[Failure]:
    assert state.outcome is not None  # tenacity calls `wait` after an attempt only
    round_: _Round = state.outcome.result()
    return [a.answer.outcome for a in round_.open.values() if isinstance(a.answer.outcome, Failure)]


def _words(failure: Failure) -> str:
    return f"{failure.why} (status {failure.status})" if failure.status else failure.why
