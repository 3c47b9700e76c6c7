"""The samples of a plan in the order of a run, for a harness that asks them itself.

Documents are made by the run's own planner and fitter and come in its order: the longest first, the questions of one
document after each other and as many documents at once as the server's prefix cache holds. With a stopping rule they
come in the rule's rounds, which need the answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from leadline.core.answers import Answer, Completion
from leadline.core.errors import UsageError
from leadline.core.lengths import AUTO
from leadline.core.records import Record
from leadline.core.types import Document, Probe
from leadline.results.sentences import format_step
from leadline.run.documents import cells_of, planned_documents, with_drafts
from leadline.run.plan import Plan
from leadline.run.queue import Queue, Work
from leadline.run.recording import Recorder
from leadline.run.retry import Asked
from leadline.run.until import RoundChooser, StoppingRule


@dataclass(frozen=True, slots=True)
class NextSample:
    """One question to ask, and the document that it is about."""

    document: Document
    probe: Probe


class SampleFeed:
    """Hands out the samples of a plan, some at a time, and takes their answers. For one thread at a time."""

    def __init__(self, plan: Plan) -> None:
        _refuse_what_no_harness_asks(plan)
        self._plan = plan
        self._recorder = Recorder(plan.spec.model, plan.spec.reading)
        self._at_once = plan.at_once if plan.model.asked_per == "probe" else plan.spec.limits.workers
        self._in_flight: dict[str, tuple[Work, Probe]] = {}
        self._records: dict[str, Record] = {}
        rule = StoppingRule.of(plan.spec, None, "") if plan.spec.until else None
        self._rounds = RoundChooser(rule.look_for(plan), plan) if rule else None
        plan.fitter.share_text(plan.spec.depths)
        self._keys = frozenset(cell.key for cell in cells_of(plan.spec, plan.tasks))
        self._queue = self._queue_of(self._keys)
        self._ended = False
        if self._rounds is not None:
            self._next_round()

    @property
    def outcome(self) -> str:
        """The result of the stopping rule; empty without one, and before its first look."""
        return format_step(self._rounds.step) if self._rounds else ""

    def ready(self) -> list[NextSample]:
        """The samples that may be asked now. Empty while all the others wait for answers, and at the end."""
        samples: list[NextSample] = []
        with self._queue.turn:
            while len(self._in_flight) < self._at_once and (work := self._queue.take_now()) is not None:
                samples += [NextSample(work.document, probe) for probe in work.probes]
                self._in_flight |= {probe.cell.key: (work, probe) for probe in work.probes}
        return samples

    def answered(self, key: str, answer: Answer) -> None:
        """Notes the answer to a sample that was handed out; a second answer to the same sample changes nothing."""
        work, probe = self._in_flight.pop(key, (None, None))
        if work is None or probe is None:
            return
        cacheable = probe.cut if work.reuses_prefix else 0
        exchange = Asked(probe, answer, attempts=1, started=time.time() - answer.seconds)
        record = self._recorder.record(work.document, exchange, cacheable=cacheable)
        self._records[key] = record
        with self._queue.turn:
            if cacheable and isinstance(record.outcome, Completion):
                self._limit.learn(cacheable, record.outcome.cached_tokens)
            self._queue.finished(work)

    def after_all(self) -> list[NextSample]:
        """When nothing is in flight: the samples of the next round. Empty when it is over."""
        self._in_flight.clear()  # a harness that asks fewer samples than it is given never answers the others
        while not self._ended:
            samples = self.ready()
            if samples or self._rounds is None or not self._next_round():
                return samples
        return []

    def _next_round(self) -> bool:
        """Whether there is another round; its samples are then in the queue."""
        assert self._rounds is not None
        keys = self._rounds.next(self._records)
        self._ended = keys is None
        self._queue = self._queue_of(keys or frozenset())
        return not self._ended

    def _queue_of(self, keys: frozenset[str]) -> Queue:
        plan = self._plan
        planned = planned_documents(plan.spec, plan.tasks, self._keys - keys)
        self._limit = plan.document_limit()
        return Queue(
            with_drafts(planned, plan.spec.seed),
            lambda document: document.document_or_failures(plan.spec.seed, plan.fitter),
            "probe",
            limit=self._limit,
        )


def _refuse_what_no_harness_asks(plan: Plan) -> None:
    """Raises for what a task of another harness cannot do, before anything is asked."""
    if measures := [title for title, task in plan.tasks.items() if task.request == "logprobs"]:
        raise UsageError(
            f"{measures[0]} asks for log-probabilities, and other harnesses are asked for answers",
            where=measures[0],
            fix="measure it with `leadline run`",
        )
    if plan.spec.allowance == AUTO:
        raise UsageError("the allowance is found by asking again", where="allowance", fix="give a number of tokens")


def iterate_texts(document: Document, probe: Probe) -> Iterator[tuple[str, str]]:
    """The role and the text of each message, the begun answer last where the model continues one."""
    for turn in document.turns(probe):
        yield str(turn.role), turn.text
    if document.prefix_place(probe) == "prefill":
        yield "assistant", probe.question.answer_prefix
