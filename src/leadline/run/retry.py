"""Asking a model: whether, when and how often a sample is asked again, and for log-probabilities instead of an answer.

Models classify failures (`Failure.transient`, `retry_after`); this module decides. A transient failure is asked again,
up to `limits.attempts` times, after a wait that doubles and is drawn at random. When a server names the time itself
(Retry-After), all workers wait for it. A rate limit (429) is waited for: it uses up no attempt until the server has
answered nothing at all for `limits.rate_limit_wait` seconds. Building a document that needs a server to count its
tokens is retried in the same way.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import numpy as np

from leadline.core.activity import waiting_for
from leadline.core.contracts import Model, logprob_model
from leadline.core.errors import LeadlineError, ServerAway
from leadline.core.format import format_duration
from leadline.core.records import Answer, Failure, Outcome, Sent
from leadline.core.seeds import digest_bytes
from leadline.core.spec import Limits
from leadline.core.types import Document, LogprobRequest, Probe, TokenNLL
from leadline.run.events import Waiting
from leadline.run.stopping import Stop

T = TypeVar("T")

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
_DOUBLINGS = 20
"""More make no difference."""


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
        self._rate_limit = RateLimit(limits.rate_limit_wait)

    def ask(self, document: Document, probes: Sequence[Probe]) -> list[Asked]:
        """One final answer per probe, in order. Probes abandoned because the run stops are left out; they are asked
        again when the run is resumed."""
        final: dict[str, Asked] = {}
        transient: dict[str, Asked] = {}
        attempt = used = limited = 0
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
            is_limited = all(failure.why == "rate_limited" for failure in failures)
            used, limited = used + (not is_limited), limited + is_limited
            if not transient or self._is_used_up(used, limited):
                break
            self._wait(failures, attempt)
        final |= transient
        return [final[p.cell.key] for p in probes if p.cell.key in final]

    def patiently(self, make: Callable[[], T]) -> T:
        """Calls `make` again while the server that it needs is away, as often as a sample is asked. Raises the last
        error, and does so at once when the run stops."""
        used = limited = 0
        while True:
            try:
                return make()
            except ServerAway as away:
                used, limited = used + (not away.rate_limited), limited + away.rate_limited
                if away.rate_limited:
                    self._rate_limit.met()
                if self._is_used_up(used, limited):
                    raise
                seconds = _backoff(used + limited)
                self._notify(Waiting(seconds, away.what, everyone=True))
                with waiting_for(partial("another attempt: {}".format, away.what)):
                    if self._stop.wait(seconds):
                        raise

    def _is_used_up(self, used: int, limited: int) -> bool:
        """Whether there were enough attempts, of which `limited` met a rate limit and `used` failed otherwise."""
        most = self._limits.attempts
        return used >= most or (limited >= most and self._rate_limit.is_over)

    def _attempt(self, document: Document, probes: Sequence[Probe], attempt: int) -> list[Asked]:
        started = time.time()
        answers = self._model.answer(document, probes)
        if len(answers) != len(probes):
            raise LeadlineError(f"the model gave {len(answers)} answers to {len(probes)} questions", where=document.id)
        outcomes = [answer.outcome for answer in answers]
        if any(not isinstance(outcome, Failure) for outcome in outcomes):
            self._rate_limit.lifted()
        elif any(isinstance(outcome, Failure) and outcome.why == "rate_limited" for outcome in outcomes):
            self._rate_limit.met()
        return [Asked(probe, answer, attempt, started) for probe, answer in zip(probes, answers, strict=True)]

    def _may_retry(self, answer: Answer) -> bool:
        """A server that asks for a longer wait than the limits allow is not waited for."""
        failure = answer.outcome
        if not isinstance(failure, Failure) or not failure.transient:
            return False
        longest = self._limits.rate_limit_wait if failure.why == "rate_limited" else self._limits.timeout
        return failure.retry_after is None or failure.retry_after <= longest

    def _wait(self, failures: Sequence[Failure], attempt: int) -> None:
        """Until the failed samples may be asked again, or the run stops."""
        why = f"{failures[0].why} (status {failures[0].status})" if failures[0].status else failures[0].why
        if failures[0].why == "rate_limited":
            why = f"{self._rate_limit} (status {failures[0].status})"
        retry_after = max((f.retry_after for f in failures if f.retry_after is not None), default=0.0)
        named = retry_after >= FIRST_WAIT_SECONDS  # 0 is no time: with it, a rate limit would be asked without a pause
        seconds = retry_after if named else _backoff(attempt)
        if named:
            self._pause.ask_for(seconds)
        self._notify(Waiting(seconds, why, everyone=named))
        with waiting_for(lambda: f"the server, which asked for it: {why}" if named else f"another attempt: {why}"):
            self._stop.wait(seconds + (random.uniform(0, min(1.0, 0.1 + seconds / 10)) if named else 0.0))


class RateLimit:
    """For how long a server has answered requests with nothing but 429, in any thread."""

    def __init__(self, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._since: float | None = None

    def met(self) -> None:
        if self._since is None:
            self._since = time.monotonic()

    def lifted(self) -> None:
        """A sample was answered."""
        self._since = None

    @property
    def is_over(self) -> bool:
        """Whether it has been waited for as long as the limits allow."""
        since = self._since
        return since is not None and time.monotonic() - since >= self._limit

    def __str__(self) -> str:
        since = self._since
        lasted = 0.0 if since is None else time.monotonic() - since
        so_far = f", for {format_duration(lasted)} so far" if lasted >= 1 else ""
        return f"rate limit of the server{so_far}"


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
    longest = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(attempt - 1, _DOUBLINGS))
    return random.uniform(longest / 2, longest)


# --- log-probabilities: the one place where probes for them differ from probes for answers

NOTHING_SENT = Sent("completion", "none")


class LogprobAdapter:
    """Gives a model's answers to probes of either kind: passages are scored here, questions go to the model."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        if any(probe.not_asked for probe in probes):
            sent = [probe for probe in probes if not probe.not_asked]
            answers = iter(self.answer(document, sent) if sent else ())
            return [Answer(NOTHING_SENT, p.not_asked, 0.0) if p.not_asked else next(answers) for p in probes]
        requests = [probe.logprobs for probe in probes if probe.logprobs is not None]
        if not requests:
            return self._model.answer(document, probes)
        begin = time.monotonic()
        model = logprob_model(self._model, probes[0].cell.task)
        wanted = sorted({index for request in requests for index in request.passages})
        passages = {index: document.passages[index] for index in wanted}
        found = {index: model.nll(p.ids, p.continuations, p.spans) for index, p in passages.items()}
        seconds = (time.monotonic() - begin) / len(probes)  # measured together: each is charged its share
        return [Answer(_sent(document, request, found), _outcome(request, found), seconds) for request in requests]


def _outcome(request: LogprobRequest, found: dict[int, TokenNLL | Failure]) -> Outcome:
    """The numbers; a failure if a passage could not be read or has values that are not finite."""
    nlls = []
    for index in request.passages:
        one = found[index]
        if isinstance(one, Failure):
            return one
        if not all(np.isfinite(nats).all() for nats in (*one.continuations, *one.spans)):
            return Failure("unsupported", "the model's log-probabilities are not finite; try dtype=float32")
        nlls.append(one)
    return request.numbers(nlls)


def _sent(document: Document, request: LogprobRequest, found: dict[int, TokenNLL | Failure]) -> Sent:
    ids = b"".join(document.passages[index].ids.astype("<i4").tobytes() for index in request.passages)
    nlls = [found[index] for index in request.passages]
    notes = dict.fromkeys(note for one in nlls if isinstance(one, TokenNLL) for note in one.notes)
    return Sent(
        form="ids",
        prefix="none",
        digest=digest_bytes(ids),
        decoding={"method": "log-probabilities"},
        notes=tuple(notes),
    )
