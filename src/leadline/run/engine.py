"""The pass: every missing cell is built, asked, scored, classed and written, whatever happens on the way.

One thread pool, here and nowhere else. A worker takes a document and a probe, asks, and writes the record before
it takes the next; so at any moment what could be lost is what is in flight. Writing and taking are one turn, and
workers take turns: those that wait for a lock sleep, while those that wait for the interpreter fight for it, and
sixty-four of them spent more on that than on their records. The calling thread listens, forces records to disk and
waits.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Container, Sequence, Set
from pathlib import Path

from leadline.core.contracts import Remote
from leadline.core.errors import Interrupted, LeadlineError, RunStopped, ServerError
from leadline.core.types import Document, Failure, Record
from leadline.run.documents import Job, jobs
from leadline.run.events import Answered, Event, Listener, Started, Stopping, ignore
from leadline.run.logprobs import LogprobAdapter
from leadline.run.plan import Plan
from leadline.run.queue import Queue, Work
from leadline.run.recording import Recorder
from leadline.run.retry import Asked, Retrier
from leadline.run.stopping import Breaker, Stop, stopping_on_signals
from leadline.run.summary import Summary, summarise
from leadline.run.threads import share_core, share_heap
from leadline.scorers.failure import classify
from leadline.store.files import SYNC_SECONDS
from leadline.store.runs import RunWriter


def execute(
    plan: Plan,
    writer: RunWriter,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    only: Set[str] | None = None,
    stop: Stop | None = None,
) -> Summary:
    """Asks what the writer's folder does not have yet, or the cells of `only` whatever it has. Raises RunStopped when
    it had to stop early, as it has when `stop` is set from elsewhere."""
    done = writer.done if only is None else _AllBut(only)
    engine = _Engine(plan, writer, listen, keep_prompts, done, stop or Stop())
    with stopping_on_signals(engine.stop, _interrupted(writer.folder)):
        engine.run()
    return summarise(writer.folder, planned=plan.planned)


class _AllBut:
    """Every key but some: what need not be asked in one round of a run that stops by itself."""

    def __init__(self, only: Set[str]) -> None:
        self._only = only

    def __contains__(self, key: object) -> bool:
        return key not in self._only


class _Engine:
    def __init__(
        self,
        plan: Plan,
        writer: RunWriter,
        listen: Listener,
        keep_prompts: bool,
        done: Container[str],
        stop: Stop,
    ) -> None:
        self._plan = plan
        self._done = done
        self._writer = writer
        self._listen = listen
        self._keep_prompts = keep_prompts
        self._news: deque[Event] = deque()
        self._at_work = 0
        self._all_left = threading.Event()
        self._guard = threading.Lock()
        self.stop = stop
        self._breaker = Breaker(plan.spec.limits.breaker)
        self._asker = Retrier(LogprobAdapter(plan.model), plan.spec.limits, self.stop, self._news.append)
        self._recorder = Recorder(plan.spec.model, plan.spec.reading, classify)
        counts_elsewhere = isinstance(plan.model.tokenizer, Remote)
        self._feed = Queue(jobs(plan.spec, plan.tasks, done), self._build, plan.model.grain, waits=counts_elsewhere)

    def run(self) -> None:
        writer, plan = self._writer, self._plan
        left = plan.planned - len(writer.done)
        self._listen(
            Started(
                folder=writer.folder,
                planned=plan.planned,
                done=len(writer.done),
                failed_before=len(writer.failed),
                prompt_tokens_left=plan.tokens_left(self._done),
                torn_bytes=writer.torn_bytes,
                notes=plan.notes,
            )
        )
        count = min(plan.at_once, left)
        if plan.model.grain == "probe":
            share_heap()
        workers = [threading.Thread(target=self._work, name=f"asker-{n}", daemon=True) for n in range(count)]
        self._at_work = len(workers)
        try:
            for worker in workers:
                worker.start()
            if workers:
                self._attend()
        except BaseException as error:  # a second Ctrl-C, a listener's defect, no more threads: none may go on alone
            self.stop.because(error)
            self._feed.close()
            raise
        if self.stop.error is not None:
            raise self.stop.error

    def _attend(self) -> None:
        """Passes on what workers say until the last has left. Looks ten times a second rather than at every record,
        which would cost as much as the records do. Daemon threads: a second Ctrl-C need not wait for them."""
        said_stopping = False
        while not self._all_left.wait(SYNC_SECONDS):
            self._pass_on()
            if self.stop.is_set and not said_stopping:
                said_stopping = True
                self._listen(Stopping(str(self.stop.error).partition("\n")[0]))
                self._feed.close()
            self._writer.sync()
        self._pass_on()

    def _pass_on(self) -> None:
        while self._news:
            self._listen(self._news.popleft())

    # --- in the workers -------------------------------------------------------------------------

    def _work(self) -> None:
        if isinstance(self._plan.model, Remote):
            share_core()
        try:
            work = self._turn()
            while work is not None:
                work = self._turn(work, self._asker.ask(work.document, work.probes))
        except ServerError as error:  # one that counts our tokens, for a document, and was there when we began
            self.stop.because(RunStopped(error.what, where=error.where, fix=self._later()))
            self._feed.close()
        except BaseException as error:
            self.stop.because(error)
            self._feed.close()
        finally:
            with self._guard:
                self._at_work -= 1
                if not self._at_work:
                    self._all_left.set()

    def _turn(self, work: Work | None = None, answers: Sequence[Asked] = ()) -> Work | None:
        """Records what came of one piece of work and takes the next; None when there is no more."""
        with self._feed.turn:
            if work is not None:
                self._record(work, answers)
            following = None if self.stop.is_set else self._feed.take()
            if following is not None and self._keep_prompts:
                for probe in following.probes:
                    self._writer.keep_prompt(probe.cell, following.document.prompt_text(probe))
            return following

    def _record(self, work: Work, answers: Sequence[Asked]) -> None:
        for left, asked in zip(range(len(answers) - 1, -1, -1), answers, strict=True):
            record = self._recorder.record(work.document, asked)
            self._writer.append(record)
            self._news.append(Answered(record, more=left > 0))
            if self._breaker.note(record):
                self.stop.because(self._dead_server(record))
        self._feed.finished(work)

    def _build(self, job: Job) -> Document:
        seed, fitter = self._plan.spec.seed, self._plan.fitter
        return self._asker.patiently(lambda: job.task.document(job.cells, seed=seed, fitter=fitter))

    def _dead_server(self, record: Record) -> LeadlineError:
        assert isinstance(record.outcome, Failure)
        return RunStopped(
            f"{self._plan.spec.limits.breaker} samples in a row got no answer; the last one: "
            f"{record.outcome.why}: {record.outcome.message}",
            where=record.cell.key,
            fix=self._later(),
        )

    def _later(self) -> str:
        return f"see to the server, then run the same command again: it goes on in {self._writer.folder}"


def _interrupted(folder: Path) -> Interrupted:
    return Interrupted(
        "interrupted", where=str(folder), fix="run the same command again to go on: only what is missing is asked"
    )
