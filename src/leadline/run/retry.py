"""Asking a model until it answers, and for log-probabilities instead of an answer.

Models classify failures; `core.backoff` says whether and when they are asked again, and this module asks. When a server
names the time itself (Retry-After), all workers wait for it. Building a document that needs a server to count its
tokens is retried in the same way.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from leadline.core.activity import waiting_for
from leadline.core.answers import Answer, Failure, Outcome, Sent
from leadline.core.backoff import Attempts, Backoff, RetryWait
from leadline.core.contracts import Model, logprob_model
from leadline.core.errors import LeadlineError, ServerAway, UsageError
from leadline.core.seeds import digest_prompt
from leadline.core.spec import Limits
from leadline.core.types import Document, LogprobRequest, Probe, TokenNLL
from leadline.run.events import Waiting
from leadline.run.interrupt import Stop

T = TypeVar("T")


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
        self._stop = stop
        self._notify = notify
        self._pause = Pause()
        self._backoff = Backoff(limits.attempts, timeout=limits.timeout, rate_limit_wait=limits.rate_limit_wait)

    def ask(self, document: Document, probes: Sequence[Probe]) -> list[Asked]:
        """One final answer per probe, in order. Probes abandoned because the run stops are left out; they are asked
        again when the run is resumed."""
        final: dict[str, Asked] = {}
        transient: dict[str, Asked] = {}
        attempts, number = Attempts(self._backoff), 0
        while True:
            number += 1
            self._pause.wait(self._stop)
            if self._stop.is_set:
                transient = {}
                break
            pending = [p for p in probes if p.cell.key not in final]
            transient = {}
            for answered in self._attempt(document, pending, number):
                (transient if self._backoff.may_pass(answered.answer.outcome) else final)[answered.probe.cell.key] = (
                    answered
                )
            failures = [a.answer.outcome for a in transient.values() if isinstance(a.answer.outcome, Failure)]
            wait = attempts.wait_after(failures) if failures else None
            if wait is None:
                break
            self._wait(wait, self._reason(failures[0]))
        final |= transient
        return [final[p.cell.key] for p in probes if p.cell.key in final]

    def request(self, send: Callable[[], T | Failure]) -> T | Failure:
        """The reply to a request that is no sample of a run, or the failure of the last attempt."""
        attempts = Attempts(self._backoff)
        while True:
            self._pause.wait(self._stop)
            reply = send()
            if not isinstance(reply, Failure):
                self._backoff.rate_limit.lifted()
                return reply
            self._backoff.note([reply])
            wait = attempts.wait_after([reply]) if self._backoff.may_pass(reply) else None
            if wait is None or self._wait(wait, self._reason(reply)):
                return reply

    def retry_call(self, make: Callable[[], T]) -> T:
        """Calls `make` again while the server that it needs is away, as often as a sample is asked. Raises the last
        error, and does so at once when the run stops."""
        attempts = Attempts(self._backoff)
        while True:
            try:
                return make()
            except ServerAway as away:
                failure = Failure("rate_limited" if away.rate_limited else "server", away.what, transient=True)
                self._backoff.note([failure])
                wait = attempts.wait_after([failure])
                if wait is None or self._wait(wait, away.what, everyone=True):
                    raise

    def _attempt(self, document: Document, probes: Sequence[Probe], attempt: int) -> list[Asked]:
        started = time.time()
        answers = self._model.answer(document, probes)
        if len(answers) != len(probes):
            raise LeadlineError(f"the model gave {len(answers)} answers to {len(probes)} questions", where=document.id)
        self._backoff.note(answer.outcome for answer in answers)
        return [Asked(probe, answer, attempt, started) for probe, answer in zip(probes, answers, strict=True)]

    def _reason(self, failure: Failure) -> str:
        what = str(self._backoff.rate_limit) if failure.why == "rate_limited" else failure.why
        return f"{what} (status {failure.status})" if failure.status else what

    def _wait(self, wait: RetryWait, why: str, *, everyone: bool = False) -> bool:
        """Waits until another attempt may be made or the run stops; returns whether it stops."""
        if wait.is_named:
            self._pause.ask_for(wait.seconds)
        self._notify(Waiting(wait.seconds, why, everyone=everyone or wait.is_named))
        what = "the server, which asked for it" if wait.is_named else "another attempt"
        with waiting_for(lambda: f"{what}: {why}"):
            return self._stop.wait(wait.drawn_out())


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


# --- log-probabilities: the one place where probes for them differ from probes for answers

NOTHING_SENT = Sent("completion", "none")


class LogprobAdapter:
    """Gives a model's answers to probes of either kind: passages are scored here, questions go to the model."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._measured = False
        """Whether it gave log-probabilities before."""

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
        read = {index: model.nll(p.ids, p.continuations, p.spans) for index, p in passages.items()}
        self._refuse_unsupported(read.values(), probes[0].cell.task)
        seconds = (time.monotonic() - begin) / len(probes)  # measured together: each is charged its share
        return [Answer(_sent(document, request, read), _outcome(request, read), seconds) for request in requests]

    def _refuse_unsupported(self, read: Iterable[TokenNLL | Failure], task: str) -> None:
        """Stops a run whose model has no such log-probabilities: no other sample would get them."""
        self._measured = self._measured or any(isinstance(nll, TokenNLL) for nll in read)
        why = next((f.message for f in read if isinstance(f, Failure) and f.why == "unsupported"), "")
        if why and not self._measured:
            raise UsageError(
                why,
                where=f"{task}, {self._model.card.name}",
                fix="measure the model in process (hf:FOLDER), or leave out this task",
            )


def _outcome(request: LogprobRequest, read: dict[int, TokenNLL | Failure]) -> Outcome:
    """The numbers; a failure if a passage could not be read or has values that are not finite."""
    nlls = []
    for index in request.passages:
        nll = read[index]
        if isinstance(nll, Failure):
            return nll
        if not all(np.isfinite(nats).all() for nats in (*nll.continuations, *nll.spans)):
            return Failure("not_a_number", "the model's log-probabilities are not finite; try dtype=float32")
        nlls.append(nll)
    return request.numbers(nlls)


def _sent(document: Document, request: LogprobRequest, passages: dict[int, TokenNLL | Failure]) -> Sent:
    ids = b"".join(document.passages[index].ids.astype("<i4").tobytes() for index in request.passages)
    nlls = [passages[index] for index in request.passages]
    read = [nll for nll in nlls if isinstance(nll, TokenNLL)]
    notes = dict.fromkeys(note for nll in read for note in nll.notes)
    counts = Counter[str]()
    for nll in read:
        counts.update(nll.counts)
    return Sent(
        form="ids",
        prefix="none",
        digest=digest_prompt(ids),
        decoding={"method": "log-probabilities", **{f"document_{name}": count for name, count in counts.items()}},
        notes=tuple(notes),
    )
