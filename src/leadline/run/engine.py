"""Executing a run: every missing cell is built, asked, scored, classed and recorded.

A worker (leadline.core.workers) takes a document and a probe, asks, and writes the record before it takes
the next one, so only requests in flight can be lost. Recording and taking happen under one lock (`Queue.turn`), because
workers that wait for a lock sleep, while workers that compete for the interpreter burn CPU time. The calling thread
passes events on to the listener and syncs records to disk.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence, Set
from functools import partial

from leadline.core.answers import NO_CREDIT_FIX, Completion, Failure
from leadline.core.contracts import HasPrefixCache, Remote
from leadline.core.errors import Interrupted, RunStopped, ServerError
from leadline.core.records import Record
from leadline.core.types import Cell, Document
from leadline.core.workers import start_workers, within_file_limit
from leadline.run.counts import keep_counts
from leadline.run.documents import PlannedDocument, cells_of, planned_documents, with_drafts
from leadline.run.events import Answered, Event, Listener, Note, PendingWatch, Started, Stopping, ignore
from leadline.run.interrupt import NO_CREDIT, RESUME, Breaker, Stop, stopping_on_signals
from leadline.run.money import budget_of
from leadline.run.plan import Plan
from leadline.run.queue import Queue, Work
from leadline.run.recording import Recorder
from leadline.run.retry import Asked, LogprobAdapter, Retrier
from leadline.run.time_limit import TimeLimit
from leadline.store.files import SYNC_SECONDS
from leadline.store.prices import save_prices
from leadline.store.runs import RunWriter

NAMED_LINES = 5
"""Unreadable lines that are named when a run is resumed."""
INTERRUPTED_SECONDS = 600.0
"""How long an interrupted run waits for the answers in flight; an engine in process may hang for ever."""


def execute(
    plan: Plan,
    writer: RunWriter,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    only: Set[str] | None = None,
    stop: Stop | None = None,
    time: TimeLimit | None = None,
) -> None:
    """Asks every cell that has no answer in the writer's folder, or exactly the cells of `only`.

    Raises RunStopped when it had to stop early, TimeReached at the end of its `time`; `stop` ends it from another
    thread.
    """
    engine = _Engine(plan, writer, listen, keep_prompts, begin(plan, writer, only), stop or Stop(), time)
    with stopping_on_signals(engine.stop, Interrupted("interrupted", where=str(writer.folder), fix=RESUME)):
        engine.run()


def begin(plan: Plan, writer: RunWriter, only: Set[str] | None) -> Set[str]:
    """The keys of the cells that are not asked now. Keeps the prices of the run."""
    plan.fitter.share_text(plan.spec.depths, writer.manifest.added_depths)
    if plan.fitter.provider_counts is not None:
        keep_counts(plan.fitter.provider_counts, writer.folder)
    if plan.tariff is not None:
        save_prices(writer.folder, {plan.spec.model: plan.tariff})
    if only is None:
        return writer.done
    return frozenset(cell.key for cell in cells_of(plan.spec, plan.tasks)) - only


def started(plan: Plan, writer: RunWriter, missing: Sequence[Cell]) -> Started:
    """The notes that are known when the folder is open."""
    return Started(
        folder=writer.folder,
        planned=plan.planned,
        done=len(writer.done),
        failed_before=len(writer.failed),
        tokens_left=sum(cell.length for cell in missing),
        torn_bytes=writer.torn_bytes,
        notes=(
            *plan.notes,
            *(f"{unreadable}; its sample is asked again" for unreadable in writer.unreadable[:NAMED_LINES]),
        ),
    )


def compare_with_plan(plan: Plan, writer: RunWriter, missing: Sequence[Cell]) -> None:
    """Checks planned against recorded samples, so that no run with missing samples looks finished."""
    if lost := {cell.key for cell in missing} - writer.recorded:
        raise RunStopped(
            f"{len(lost):,} of {plan.planned:,} planned samples have no record", where=str(writer.folder), fix=RESUME
        )


class _Engine:
    def __init__(
        self,
        plan: Plan,
        writer: RunWriter,
        listen: Listener,
        keep_prompts: bool,
        done: Set[str],
        stop: Stop,
        time: TimeLimit | None,
    ) -> None:
        self._plan = plan
        self._time = time
        self._writer = writer
        self._listen = listen
        self._keep_prompts = keep_prompts
        self._events: deque[Event] = deque()
        self.stop = stop
        self._breaker = Breaker(plan.spec.limits.breaker)
        self._retrier = Retrier(LogprobAdapter(plan.model), plan.spec.limits, self.stop, self._events.append)
        self._recorder = Recorder(plan.spec.model, plan.spec.reading, estimated=plan.model.card.estimates_lengths)
        counts_remotely = isinstance(plan.model.tokenizer, Remote)
        self._budget = budget_of(plan.spec.limits, writer.folder, plan.spec.model, plan.tariff)
        self._limit = plan.document_limit()
        planned = partial(planned_documents, plan.spec, plan.tasks, done)
        self._in_flight = 0
        """Answers that workers wait for; changed with the lock of the queue held."""
        self._missing = [cell for document in planned() for cell in document.missing]
        """The cells to ask."""
        self._queue = Queue(
            with_drafts(planned(), plan.spec.seed),
            self._build,
            plan.model.asked_per,
            waits=counts_remotely,
            limit=self._limit,
        )

    def run(self) -> None:
        writer, plan = self._writer, self._plan
        self._listen(started(plan, writer, self._missing))
        workers = min(plan.at_once, len(self._missing))
        if isinstance(plan.model, Remote):
            workers = within_file_limit(workers, self._note)
        if said := self._limit.describe(max(plan.spec.lengths), workers):
            self._note(said)
        try:
            self._pump_events(start_workers(self._work, workers, self._note))
        except BaseException as error:  # a second Ctrl-C, an error of the listener
            self.stop.because(error)
            self._queue.close()
            raise
        if self.stop.error is not None:
            raise self.stop.error
        compare_with_plan(plan, writer, self._missing)

    def _note(self, text: str) -> None:
        self._listen(Note(text))

    def _pump_events(self, workers: Sequence[threading.Thread]) -> None:
        """Passes events on until the last worker has ended. Polls, since waking for every record costs too much."""
        announced, patience, watch = False, INTERRUPTED_SECONDS, PendingWatch(self._listen)
        for worker in workers:
            while worker.is_alive():
                worker.join(SYNC_SECONDS)
                if self._pass_on():
                    watch.reset()
                watch.look()
                if self.stop.is_set and not announced:
                    announced = True
                    self._listen(Stopping(str(self.stop.error).partition("\n")[0], self._in_flight))
                    self._queue.close()
                self._writer.sync()
                if announced and isinstance(self.stop.error, Interrupted):
                    patience -= SYNC_SECONDS
                    if patience <= 0:  # a model that hangs: its workers are left behind
                        raise self.stop.error
        self._pass_on()

    def _pass_on(self) -> bool:
        """Whether there was an event."""
        some = bool(self._events)
        while self._events:
            self._listen(self._events.popleft())
        return some

    # --- in the workers

    def _work(self) -> None:
        try:
            work = self._next()
            while work is not None:
                work = self._next(work, self._retrier.ask(work.document, work.probes))
        except ServerError as error:  # the server that counts tokens for us is gone
            self._stop_because(RunStopped(error.what, where=error.where, fix=self._fix()))
        except BaseException as error:
            self._stop_because(error)

    def _stop_because(self, error: BaseException) -> None:
        self.stop.because(error)
        self._queue.close()

    def _next(self, work: Work | None = None, answers: Sequence[Asked] = ()) -> Work | None:
        """Records the answers to `work` and takes the next piece of work; None when there is no more."""
        with self._queue.turn:
            if work is not None:
                self._in_flight -= len(work.probes)
                self._record(work, answers)
            following = None if self.stop.is_set else self._in_time(self._within_budget(self._queue.take()))
            if following is not None:
                self._in_flight += len(following.probes)
                for probe in following.probes if self._keep_prompts else ():
                    self._writer.keep_prompt(probe.cell, following.document.prompt_text(probe))
            return following

    def _in_time(self, work: Work | None) -> Work | None:
        """The work if it can be answered in the time of the run; else the run stops."""
        if work is None or self._time is None or self._time.allows(max(p.prompt_tokens for p in work.probes)):
            return work
        self.stop.because(self._time.reached(str(self._writer.folder)))
        return None

    def _within_budget(self, work: Work | None) -> Work | None:
        """The work if the budget covers its highest possible cost, now or when others are answered; else the run
        stops."""
        budget = self._budget
        if work is None or budget is None:
            return work
        most = budget.most_of(work.probes)
        while not budget.fits(most):
            if not budget.in_flight or self.stop.is_set:
                self.stop.because(budget.reached(str(self._writer.folder)))
                return None
            self._queue.turn.wait()
        budget.reserve(most)
        return work

    def _record(self, work: Work, answers: Sequence[Asked]) -> None:
        records = []
        for number, answered in enumerate(answers, 1):
            cacheable = self._cacheable_tokens(work, answered)
            record = self._recorder.record(work.document, answered, cacheable=cacheable)
            if work.reuses_prefix and cacheable and isinstance(record.outcome, Completion):
                self._limit.learn(cacheable, record.outcome.cached_tokens)
            record = self._recorder.append(record, self._writer)
            records.append(record)
            if self._time is not None:
                self._time.answered(record.prompt_tokens, record.seconds)
            self._events.append(Answered(record, more=number < len(answers)))
            if self._breaker.note(record.outcome):
                self.stop.because(self._no_server(record))
        if self._budget is not None:
            self._budget.answered(work.probes, records)
            self._queue.turn.notify_all()
        self._queue.finished(work)

    def _cacheable_tokens(self, work: Work, answered: Asked) -> int:
        """The first tokens of a prompt that were asked before, so that a server or an engine may have kept them."""
        outcome, tokens = answered.answer.outcome, answered.probe.cut_tokens
        if len(work.probes) > 1:  # by an engine, which asks the longest first, and says what came from its cache
            first = max(work.probes, key=lambda probe: probe.cut)
            states_it = isinstance(outcome, Completion) and outcome.cached_tokens is not None
            return tokens if states_it and answered.probe is not first else 0
        was_read = (work.reuses_prefix or work.resumed) and isinstance(self._plan.model, HasPrefixCache)
        return tokens if was_read and tokens >= self._limit.cache.min_tokens else 0  # a short beginning is not kept

    def _build(self, planned: PlannedDocument) -> Document:
        seed, fitter = self._plan.spec.seed, self._plan.fitter
        return self._retrier.retry_call(lambda: planned.document_or_failures(seed, fitter))

    def _no_server(self, record: Record) -> RunStopped:
        assert isinstance(record.outcome, Failure)
        if record.outcome.why == "no_credit":
            return RunStopped(
                f"{NO_CREDIT}: {record.outcome.message}",
                where=getattr(self._plan.model, "address", "") or self._plan.spec.model,
                fix=f"{NO_CREDIT_FIX}; then {RESUME} (what was answered is in {self._writer.folder})",
            )
        return RunStopped(
            f"{self._plan.spec.limits.breaker} samples in a row got no answer; the last one: "
            f"{record.outcome.why}: {record.outcome.message}",
            where=record.cell.key,
            fix=self._limit_fix() if record.outcome.why == "rate_limited" else self._fix(),
        )

    def _limit_fix(self) -> str:
        return (
            "wait until the provider's limit allows more questions (a daily one until it begins anew), or have it "
            f"raised; then {RESUME} (what was answered is in {self._writer.folder})"
        )

    def _fix(self) -> str:
        return f"check the server, then run the same command again: it continues in {self._writer.folder}"
