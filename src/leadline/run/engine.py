"""Executing a run: every missing cell is built, asked, scored, classed and recorded.

This module has the only thread pool. A worker takes a document and a probe, asks, and writes the record before it takes
the next one, so only requests in flight can be lost. Recording and taking happen under one lock (`Queue.turn`), because
workers that wait for a lock sleep, while workers that compete for the interpreter burn CPU time. The calling thread
passes events on to the listener and syncs records to disk.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path

from leadline.core.contracts import Caching, Model, Remote
from leadline.core.errors import Interrupted, RunStopped, ServerError, UnreadableRecord
from leadline.core.format import format_count
from leadline.core.records import Completion, Failure, Record
from leadline.core.spec import Spec
from leadline.core.types import Document
from leadline.features.judges.asking import check_judges, judge_as_asked
from leadline.results.run import Run, load_run
from leadline.run.allowance import AUTO, find_allowance
from leadline.run.costs import budget_of
from leadline.run.documents import PlannedDocument, cells_of, documents_fit, drafted, planned_documents
from leadline.run.events import Answered, Event, Listener, Note, PendingWatch, Started, Stopping, ignore, saying_waits
from leadline.run.plan import Plan, check_room, prepare
from leadline.run.queue import Queue, Work
from leadline.run.recording import Recorder
from leadline.run.retry import Asked, LogprobAdapter, Retrier
from leadline.run.stopping import RESUME, Breaker, Stop, stopping_on_signals
from leadline.store.files import SYNC_SECONDS
from leadline.store.manifest import MANIFEST
from leadline.store.run_prices import save_prices
from leadline.store.runs import RunWriter, count_done, open_run

if sys.platform == "win32":
    resource = None
else:
    import resource

NAMED_LINES = 5
"""Unreadable lines that are named when a run is resumed."""
M_ARENA_MAX = -8  # malloc.h of glibc


def execute(
    plan: Plan,
    writer: RunWriter,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    only: Set[str] | None = None,
    stop: Stop | None = None,
) -> None:
    """Asks every cell that has no answer in the writer's folder, or exactly the cells of `only`.

    Raises RunStopped when it had to stop early; `stop` ends it from another thread.
    """
    plan.fitter.share_text(plan.spec.depths, writer.manifest.added_depths)
    done = writer.done
    if only is not None:
        done = frozenset(cell.key for cell in cells_of(plan.spec, plan.tasks)) - only
    if plan.tariff is not None:
        save_prices(writer.folder, {plan.spec.model: plan.tariff})
    engine = _Engine(plan, writer, listen, keep_prompts, done, stop or Stop())
    with stopping_on_signals(engine.stop, Interrupted("interrupted", where=str(writer.folder), fix=RESUME)):
        engine.run()


class _Engine:
    def __init__(
        self,
        plan: Plan,
        writer: RunWriter,
        listen: Listener,
        keep_prompts: bool,
        done: Set[str],
        stop: Stop,
    ) -> None:
        self._plan = plan
        self._writer = writer
        self._listen = listen
        self._keep_prompts = keep_prompts
        self._events: deque[Event] = deque()
        self.stop = stop
        self._breaker = Breaker(plan.spec.limits.breaker)
        self._retrier = Retrier(LogprobAdapter(plan.model), plan.spec.limits, self.stop, self._events.append)
        self._recorder = Recorder(plan.spec.model, plan.spec.reading)
        counts_remotely = isinstance(plan.model.tokenizer, Remote)
        self._budget = budget_of(plan.spec.limits, writer.folder, plan.spec.model, plan.tariff)
        self._limit = plan.document_limit()
        planned = partial(planned_documents, plan.spec, plan.tasks, done)
        self._missing = [cell for document in planned() for cell in document.missing]
        """The cells to ask."""
        self._queue = Queue(
            drafted(planned(), plan.spec.seed),
            self._build,
            plan.model.asked_per,
            waits=counts_remotely,
            limit=self._limit,
        )

    def run(self) -> None:
        writer, plan = self._writer, self._plan
        self._listen(
            Started(
                folder=writer.folder,
                planned=plan.planned,
                done=len(writer.done),
                failed_before=len(writer.failed),
                tokens_left=sum(cell.length for cell in self._missing),
                torn_bytes=writer.torn_bytes,
                notes=(
                    *plan.notes,
                    *(f"{line}; its sample is asked again" for line in writer.unreadable[:NAMED_LINES]),
                ),
            )
        )
        workers = min(plan.at_once, len(self._missing))
        if isinstance(plan.model, Remote) and (allowed := connections_allowed(workers)) < workers:
            fewer = f"{format_count(allowed, 'worker')} instead of {workers}"
            self._listen(Note(f"{fewer}: this process may open no more files (ulimit -n)"))
            workers = allowed
        if plan.model.asked_per == "probe":
            _share_heap()
        if said := self._limit.describe(max(plan.spec.lengths), workers):
            self._listen(Note(said))
        try:
            self._attend(self._start(workers))
        except BaseException as error:  # a second Ctrl-C, an error of the listener
            self.stop.because(error)
            self._queue.close()
            raise
        if self.stop.error is not None:
            raise self.stop.error
        self._compare_with_plan()

    def _start(self, workers: int) -> list[threading.Thread]:
        """As many workers as can be started; at least one."""
        started: list[threading.Thread] = []
        for number in range(workers):
            # Daemon threads, so that a second Ctrl-C does not wait for them.
            thread = threading.Thread(target=self._work, name=f"asker-{number}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads
                if not started:
                    raise RunStopped(
                        "no thread can be started", where="ulimit -u, ulimit -v", fix="allow more memory or processes"
                    ) from None
                fewer = f"{format_count(number, 'worker')} instead of {workers}"
                self._listen(Note(f"{fewer}: no more threads (ulimit -u, ulimit -v)"))
                break
            started.append(thread)
        return started

    def _compare_with_plan(self) -> None:
        """Planned against recorded, so that no run with missing samples looks finished."""
        if missing := {cell.key for cell in self._missing} - self._writer.recorded:
            raise RunStopped(
                f"{len(missing):,} of {self._plan.planned:,} planned samples have no record",
                where=str(self._writer.folder),
                fix=RESUME,
            )

    def _attend(self, workers: Sequence[threading.Thread]) -> None:
        """Passes events on until the last worker has ended. Polls, since waking for every record costs too much."""
        announced, watch = False, PendingWatch(self._listen)
        for worker in workers:
            while worker.is_alive():
                worker.join(SYNC_SECONDS)
                if self._pass_on():
                    watch.reset()
                watch.look()
                if self.stop.is_set and not announced:
                    announced = True
                    self._listen(Stopping(str(self.stop.error).partition("\n")[0]))
                    self._queue.close()
                self._writer.sync()
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
                self._record(work, answers)
            following = None if self.stop.is_set else self._affordable(self._queue.take())
            if following is not None and self._keep_prompts:
                for probe in following.probes:
                    self._writer.keep_prompt(probe.cell, following.document.prompt_text(probe))
            return following

    def _affordable(self, work: Work | None) -> Work | None:
        """The work if the budget has the most it can cost, now or when others are answered; else the run stops."""
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
        for number, asked in enumerate(answers, 1):
            cacheable = asked.probe.cut if work.follows and isinstance(self._plan.model, Caching) else 0
            record = self._recorder.record(work.document, asked, cacheable=cacheable)
            if cacheable and isinstance(record.outcome, Completion):
                self._limit.learn(cacheable, record.outcome.cached_tokens)
            try:
                self._writer.append(record)
            except UnreadableRecord as error:
                record = self._recorder.malformed(record, error.what)
                self._writer.append(record)
            records.append(record)
            self._events.append(Answered(record, more=number < len(answers)))
            if self._breaker.note(record.outcome):
                self.stop.because(self._no_server(record))
        if self._budget is not None:
            self._budget.answered(work.probes, records)
            self._queue.turn.notify_all()
        self._queue.finished(work)

    def _build(self, planned: PlannedDocument) -> Document:
        seed, fitter = self._plan.spec.seed, self._plan.fitter
        return self._retrier.patiently(lambda: planned.document_or_failures(seed, fitter))

    def _no_server(self, record: Record) -> RunStopped:
        assert isinstance(record.outcome, Failure)
        return RunStopped(
            f"{self._plan.spec.limits.breaker} samples in a row got no answer; the last one: "
            f"{record.outcome.why}: {record.outcome.message}",
            where=record.cell.key,
            fix=self._fix(),
        )

    def _fix(self) -> str:
        return f"check the server, then run the same command again: it continues in {self._writer.folder}"


FILES_KEPT_FREE = 16
"""Files that may be open at the same time as the connections of workers: records, modules, a server's tokenizer."""


def connections_allowed(wanted: int) -> int:
    """How many of these connections this process may open; at least one. Raises its own limit where it may."""
    if resource is None:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + open_files() + FILES_KEPT_FREE
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - open_files() - FILES_KEPT_FREE))


def open_files() -> int:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return FILES_KEPT_FREE


def _share_heap() -> None:
    """One heap for threads started from now on. With glibc's heap per thread, sixteen workers with documents of 128k
    tokens hold 60 MB of gaps, although Python runs them one at a time."""
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_ARENA_MAX, 1)


# --- one call to measure, one to see what it would cost


CheckModel = Callable[[Model], Sequence[str]]
"""Looks at an open model before a run, and returns what the user should know about it."""


def measure(
    spec: Spec,
    out: Path | str | None = None,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    check: CheckModel | None = None,
) -> Run:
    """Asks everything the spec wants that the folder does not have yet, and returns the run.

    Failed samples are in the run's totals and records and are asked again by the next call. A run that stops early
    raises RunStopped, a wrong spec raises an error of its own; what was recorded is kept. Judges of the spec grade the
    answers at the end.
    """
    check_judges(spec)
    with prepare(spec, listen=listen) as made:
        folder = carry_out(checked(made, out, check, listen), out, listen=listen, keep_prompts=keep_prompts)
    if spec.judges.models:
        judge_as_asked(folder, spec)
    return load_run(folder)


def checked(made: Plan, out: Path | str | None, check: CheckModel | None, listen: Listener) -> Plan:
    """The plan with what a check of its model found. A run that has all its answers needs none."""
    folder = made.folder if out is None else Path(out)
    if check is None or ((folder / MANIFEST).exists() and count_done(folder)[0] >= made.planned):
        return made
    with saying_waits(listen):
        return made.with_notes(check(made.model))


def carry_out(
    made: Plan,
    out: Path | str | None = None,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    stop: Stop | None = None,
) -> Path:
    """Runs a plan and returns the folder. `stop` ends it from another thread."""
    folder = made.folder if out is None else Path(out)
    check_room(folder, made.planned)
    with open_run(folder, made.manifest) as writer:
        if made.spec.allowance == AUTO:
            ask = partial(execute, made, writer, keep_prompts=keep_prompts, stop=stop)
            cells = list(cells_of(made.spec, made.tasks))
            find_allowance(
                cells,
                made.fitter,
                writer.folder,
                lambda some, heard: ask(only=some, listen=heard),
                partial(documents_fit, made.spec, made.tasks, made.fitter),
                listen,
            )
        else:
            execute(made, writer, listen=listen, keep_prompts=keep_prompts, stop=stop)
    return folder


def plan(spec: Spec) -> Plan:
    """What a run costs and what to know about it. The model is opened to count in its tokens, and closed."""
    with prepare(spec, planning=True) as made:
        return made
