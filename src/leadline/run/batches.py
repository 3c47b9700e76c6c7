"""Executing a run by batches (--batch): questions are submitted together, and their answers are collected later.

Every batch is written to the run's folder before it is submitted, with a tag that the provider keeps too. Whatever ends
the program, the next start asks the provider about the batches in the folder, collects what they have, and submits only
what is in none of them. A failure that may pass, such as an expired question, goes into a later batch, as often as the
limits of the run allow; records, scores and failures are those of any other run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import msgspec

from leadline.core.answers import NO_CREDIT_FIX, Answer, Failure, FailureKind, Outcome, Sent
from leadline.core.backoff import Backoff
from leadline.core.batches import BatchReply, BatchState, batches_of
from leadline.core.errors import Interrupted, RunStopped
from leadline.core.format import format_count
from leadline.core.records import Record
from leadline.core.types import Document, Probe
from leadline.run.documents import planned_documents, with_drafts
from leadline.run.engine import begin, compare_with_plan, started
from leadline.run.events import Answered, Listener, Note, Waiting, ignore
from leadline.run.interrupt import NO_CREDIT, RESUME, Stop, stopping_on_signals
from leadline.run.money import budget_of
from leadline.run.plan import Plan
from leadline.run.recording import Recorder
from leadline.run.retry import NOTHING_SENT, Asked, LogprobAdapter, Retrier
from leadline.run.time_limit import TimeLimit
from leadline.store.batches import BatchFolder, BatchItem, BatchQuestion, SavedBatch, new_tag, prepared
from leadline.store.runs import RunWriter, every_record

T = TypeVar("T")

FIRST_LOOK_SECONDS = 2.0
LONGEST_LOOK_SECONDS = 60.0
"""Between two looks at the batches."""
MOST_FAILED_LOOKS = 30
"""Failures in a row; with the waits between them they take about an hour."""
SETTLE_SECONDS = 60.0
"""A request that was cut off may still arrive. A batch that is not listed for this long was not submitted."""
MAY_HAVE_ARRIVED: frozenset[FailureKind] = frozenset(
    {"connection", "timeout", "server", "malformed", "empty_body", "unexpected_status"}
)
"""Failures of submitting after which there may be a batch all the same."""
LEFT_OUT = Failure("aborted", "the batch has no result for this question", transient=True)
ENVELOPE_BYTES = 512
"""Bytes of a request around the questions of a batch."""
IN_BATCH = "batch"
"""The field of a record's decoding with the provider's id of its batch."""


def execute_in_batches(
    plan: Plan,
    writer: RunWriter,
    *,
    listen: Listener = ignore,
    keep_prompts: bool = False,
    only: Set[str] | None = None,
    stop: Stop | None = None,
    time: TimeLimit | None = None,
) -> None:
    """As `engine.execute`, by batches. There is no `time`: the provider answers when it does."""
    run = _BatchRun(plan, writer, listen, keep_prompts, begin(plan, writer, only), stop or Stop())
    with stopping_on_signals(run.stop, Interrupted("interrupted", where=str(writer.folder), fix=RESUME)):
        run.run()


class _BatchRun:
    def __init__(
        self, plan: Plan, writer: RunWriter, listen: Listener, keep_prompts: bool, done: Set[str], stop: Stop
    ) -> None:
        self._plan = plan
        self._writer = writer
        self._listen = listen
        self._keep_prompts = keep_prompts
        self.stop = stop
        limits = plan.spec.limits
        self._batches = batches_of(plan.model, plan.spec.model)
        self._folder = BatchFolder(writer.folder)
        self._retrier = Retrier(LogprobAdapter(plan.model), limits, stop, listen)
        self._backoff = Backoff(limits.attempts, timeout=limits.timeout, rate_limit_wait=limits.rate_limit_wait)
        self._recorder = Recorder(plan.spec.model, plan.spec.reading, estimated=plan.model.card.estimates_lengths)
        self._budget = budget_of(limits, writer.folder, plan.spec.model, plan.tariff)
        self._missing = [c for planned in planned_documents(plan.spec, plan.tasks, done) for c in planned.missing]
        self._todo: dict[str, int] = {}
        """The keys of cells to put into batches, with the number of their next attempt."""
        self._again: dict[str, int] = {}
        """The same for cells that are asked again, when all others are in batches."""
        self._source: Iterator[tuple[Document, Probe]] = iter(())
        self._held: tuple[Document, Probe] | None = None
        """A question that did not fit into the last batch."""
        self._open: dict[int, SavedBatch] = {}
        self._answered: dict[int, int] = {}
        """For each open batch, the number of answers that the provider has."""
        self._recorded: Set[tuple[str, str]] = frozenset()
        """Batches and cells whose record was written before the program was ended."""
        self._numbers = 0
        self._most = self._batches.limits.requests
        self._is_blocked = False
        """Whether the provider's queue or the budget has no room until a batch has ended."""
        self._look_seconds = FIRST_LOOK_SECONDS
        self._failed_looks = 0

    def run(self) -> None:
        self._listen(started(self._plan, self._writer, self._missing))
        self._continue()
        while not self.stop.is_set:
            self._submit_all()
            if self.stop.is_set or not self._open:
                break
            self._look()
        self._writer.sync()
        self._raise_if_stopped()
        compare_with_plan(self._plan, self._writer, self._missing)

    # --- what an earlier start has left

    def _continue(self) -> None:
        """Takes over the batches that were submitted and not recorded, and plans the questions that are in none of
        them."""
        saved = self._folder.every()
        self._numbers = max((batch.number for batch in saved), default=0)
        for batch in saved:
            if batch.is_open and (known := self._with_id(batch)) is not None:
                self._open[known.number] = known
                self._reserve(known.items.values())
        if self._open:
            submitted = {batch.id for batch in self._open.values()}
            batch_of = ((str(r.sent.decoding.get(IN_BATCH)), r.cell.key) for r in every_record(self._writer.folder))
            self._recorded = frozenset(pair for pair in batch_of if pair[0] in submitted)
            questions = format_count(sum(len(batch.items) for batch in self._open.values()), "question")
            self._listen(Note(f"{_count(self._open)} of an earlier start, with {questions}: the answers are collected"))
        in_open = {item.cell for batch in self._open.values() for item in batch.items.values()}
        self._todo = {cell.key: 1 for cell in self._missing if cell.key not in in_open}
        self._source = self._probes(self._todo.keys())

    def _with_id(self, batch: SavedBatch) -> SavedBatch | None:
        """The batch with the provider's id; None if it was never submitted."""
        if batch.id:
            return batch
        id = self._looked_up(batch)
        if not id:
            self._folder.forget(batch)
            return None
        return self._folder.save(msgspec.structs.replace(batch, id=id, step="submitted", submitted=batch.prepared))

    def _looked_up(self, batch: SavedBatch) -> str:
        """The id of a batch that may have been submitted; empty once it is certain that it was not."""
        known = {other.id for other in self._folder.every() if other.id}
        look = partial(self._batches.find, batch.tag, batch.items.keys(), batch.prepared, known)
        while True:
            id = self._reply_to(look, f"whether batch {batch.tag} was submitted cannot be found out")
            if not isinstance(id, str):
                self._pause(self._look_seconds, "another batch may be ours, which is seen when it has ended")
                continue
            left = batch.prepared + SETTLE_SECONDS - time.time()
            if id or left <= 0:
                return id
            self._pause(left, "a batch may still arrive at the provider")

    # --- submitting

    def _submit_all(self) -> None:
        self._is_blocked = self._is_blocked and bool(self._open)
        while not self._is_blocked and not self.stop.is_set:
            tag = new_tag(self._plan.manifest.digest)
            new = self._filled(tag)
            if not new.items or self.stop.is_set:
                return
            self._numbers += 1
            batch = prepared(self._numbers, tag, new.items)
            self._folder.save_questions(batch.number, new.questions)
            outcome = self._retrier.request(partial(self._submitted, batch, new.lines))
            if isinstance(outcome, Failure):
                self._folder.forget(batch)
                self._raise_if_stopped()
                if outcome.why == "rate_limited" and self._open:
                    self._again |= {item.cell: item.attempt for item in new.items.values()}
                    self._is_blocked = True
                    for item in new.items.values():
                        self._pay(item)
                    return
                raise self._stopped_by(outcome, "the provider takes no batch")
            now = time.time()
            batch = self._folder.save(msgspec.structs.replace(batch, id=outcome, step="submitted", submitted=now))
            self._open[batch.number] = batch
            size = sum(map(len, new.lines)) / 1e6
            self._listen(
                Note(f"batch {outcome}: {format_count(len(new.items), 'question')}, {size:,.1f} MB, submitted")
            )
            self._look_seconds = FIRST_LOOK_SECONDS

    def _submitted(self, batch: SavedBatch, lines: Sequence[bytes]) -> str | Failure:
        """The id, also where the provider's reply was lost. The batch is in the folder before it is submitted."""
        batch = self._folder.save(msgspec.structs.replace(batch, prepared=time.time()))
        outcome = self._batches.submit(batch.tag, lines)
        if isinstance(outcome, Failure) and outcome.why in MAY_HAVE_ARRIVED:
            return self._looked_up(batch) or outcome
        if isinstance(outcome, Failure) and outcome.why == "rate_limited" and self._open:
            return msgspec.structs.replace(outcome, transient=False)  # tried again when another batch has ended
        return outcome

    def _filled(self, tag: str) -> _NewBatch:
        """The next batch: as many questions as the limits of the provider, and the budget, have room for."""
        new = _NewBatch()
        size, most_bytes = 0, self._batches.limits.bytes - ENVELOPE_BYTES
        while len(new.items) < self._most and not self.stop.is_set and (work := self._next()) is not None:
            document, probe = work
            name = f"{tag}-{len(new.items)}"
            line, sent = self._batches.line(name, document, probe)
            tokens = (probe.prompt_tokens, probe.question.allowance)
            item = BatchItem(probe.cell.key, self._todo[probe.cell.key], tokens)
            if len(line) > most_bytes:
                what = f"the question has {len(line):,} bytes, and a batch of this provider at most {most_bytes:,}"
                self._record_failure(document, probe, sent, Failure("unsupported", what))
                continue
            if size + len(line) > most_bytes or not self._is_affordable(item, waits=bool(new.items or self._open)):
                self._held = work
                break
            if self._keep_prompts:
                self._writer.keep_prompt(probe.cell, document.prompt_text(probe))
            self._reserve([item])
            new.lines.append(line)
            new.items[name] = item
            record = self._recorder.waiting(document, probe, sent)
            span = (document.body_start_characters, probe.cut_characters)
            new.questions.append((document.text, BatchQuestion(name, record, *span)))
            size += len(line)
        return new

    def _next(self) -> tuple[Document, Probe] | None:
        """The next question to put into a batch."""
        work, self._held = self._held, None
        while work is None:
            work = next(self._source, None)
            if work is None:
                if not self._again:
                    return None
                self._todo, self._again = self._again, {}
                self._source = self._probes(self._todo.keys())
                continue
            document, probe = work
            if probe.not_asked is not None:
                self._record_failure(document, probe, NOTHING_SENT, probe.not_asked)
                work = None
        return work

    def _probes(self, keys: Set[str]) -> Iterator[tuple[Document, Probe]]:
        """The questions of these cells, longest documents first, each with its document."""
        plan, wanted = self._plan, frozenset(keys)
        cells = planned_documents(plan.spec, plan.tasks, _AllBut(wanted))
        for planned in with_drafts(cells, plan.spec.seed):
            build = partial(planned.document_or_failures, plan.spec.seed, plan.fitter)
            document = self._retrier.retry_call(build)
            yield from ((document, probe) for probe in document.probes if probe.cell.key in wanted)

    def _is_affordable(self, item: BatchItem, *, waits: bool) -> bool:
        """Whether the budget covers its highest possible cost. If not, the run waits for answers, which may cost less,
        or stops if there are none to wait for."""
        if self._budget is None or self._budget.fits(self._budget.most([item.tokens])):
            return True
        if waits:
            self._is_blocked = True
        else:
            self.stop.because(self._budget.reached(str(self._writer.folder)))
        return False

    def _reserve(self, items: Iterable[BatchItem]) -> None:
        if self._budget is not None:
            self._budget.reserve(self._budget.most(item.tokens for item in items))

    # --- looking and collecting

    def _look(self) -> None:
        """Looks at every open batch once, records those that have ended, and waits where none has."""
        before = len(self._open)
        for batch in [*self._open.values()]:
            if self.stop.is_set:
                return
            state = self._state_of(batch)
            self._answered[batch.number] = max(state.done, self._answered.get(batch.number, 0))
            if state.status != "running":
                self._end(batch, state)
        self._writer.sync()
        if len(self._open) < before or self.stop.is_set:
            return
        questions = sum(len(batch.items) for batch in self._open.values())
        done = sum(self._answered[number] for number in self._open)
        self._pause(self._look_seconds, f"{_count(self._open)} with {done:,} of {questions:,} answers at the provider")
        self._look_seconds = min(LONGEST_LOOK_SECONDS, 1.5 * self._look_seconds)

    def _state_of(self, batch: SavedBatch) -> BatchState:
        """The state of a batch. While the provider does not answer, for about an hour, it counts as in progress."""
        state = self._retrier.request(partial(self._batches.state, batch.id))
        if not isinstance(state, Failure):
            self._failed_looks = 0
            return state
        self._raise_if_stopped()
        self._failed_looks += 1
        if not state.transient or self._failed_looks >= MOST_FAILED_LOOKS:
            raise self._stopped_by(state, f"batch {batch.id} goes on at the provider, and cannot be looked at")
        return BatchState("running")

    def _end(self, batch: SavedBatch, state: BatchState) -> None:
        if state.status == "gone":
            said = f" ({state.message})" if state.message else ""
            raise self._gone(batch, f"the provider has no such batch{said}")
        if state.status == "refused":
            self._close(batch, "refused", state.message)
            raise RunStopped(
                f"the provider refused batch {batch.id}: {state.message}",
                where=str(self._folder.path(batch)),
                fix="no question of it was asked: fix the cause that it names, then run the same command again",
            )
        if state.status == "full":
            self._make_room(batch, state.message)
            return
        self._collect(batch, cancelled=state.status == "cancelled")

    def _make_room(self, batch: SavedBatch, message: str) -> None:
        """The provider's queue was full: its questions wait for another batch to end, or go into smaller ones."""
        self._close(batch, "refused", message)
        for item in batch.items.values():
            self._pay(item)
            self._again[item.cell] = item.attempt
        if self._open:
            self._is_blocked = True
        elif len(batch.items) == 1:
            fix = "run the same command again when the provider's queue has room, or ask for a higher limit there"
            raise RunStopped(f"the provider takes no batch: {message}", where=self._batches.address, fix=fix)
        else:
            self._most = max(1, len(batch.items) // 2)
            self._listen(Note(f"{message}; batches have at most {format_count(self._most, 'question')} from now on"))

    def _collect(self, batch: SavedBatch, *, cancelled: bool) -> None:
        """Records the replies. Questions with transient failures go into a later batch."""
        replies = self._reply_to(
            partial(self._batches.replies, batch.id), f"the results of batch {batch.id} cannot be read", batch
        )
        ended, without_credit = time.time(), None
        for read, question in self._folder.questions(batch):
            if self.stop.is_set:
                return  # the next start reads the results again
            reply = replies.get(question.name)
            if (batch.id, question.record.cell.key) in self._recorded or (reply is None and cancelled):
                continue
            outcome = self._settle(batch, question, read, reply or LEFT_OUT, ended)
            if isinstance(outcome, Failure) and outcome.why == "no_credit":
                without_credit = outcome
        self._close(batch, "recorded")
        self._is_blocked = False
        if cancelled:
            left = format_count(len(batch.items.keys() - replies.keys()), "question")
            raise RunStopped(
                f"batch {batch.id} was cancelled at the provider, with {left} not answered",
                where=str(self._writer.folder),
                fix="run the same command again to ask them; what was answered is recorded",
            )
        if without_credit is not None:
            raise self._stopped_by(without_credit, NO_CREDIT)

    def _settle(
        self, batch: SavedBatch, question: BatchQuestion, read: str, reply: BatchReply | Failure, ended: float
    ) -> Outcome:
        """Records the answer to a question about the text `read`, or has it asked again; returns what it was."""
        waiting, item = question.record, batch.items[question.name]
        outcome: Outcome = reply if isinstance(reply, Failure) else self._read(reply, waiting)
        if self._backoff.may_pass(outcome) and item.attempt < self._backoff.attempts:
            self._pay(item)
            self._again[item.cell] = item.attempt + 1
            return outcome
        sent = msgspec.structs.replace(waiting.sent, decoding={**waiting.sent.decoding, IN_BATCH: batch.id})
        seconds = max(0.0, ended - batch.submitted)
        record = self._recorder.answered(
            waiting, outcome, read, sent=sent, attempts=item.attempt, started=batch.submitted, seconds=seconds
        )
        record = self._recorder.append(record, self._writer)
        self._pay(item, 0.0 if self._plan.tariff is None else self._plan.tariff.cost_of(record))
        self._listen(Answered(record))
        return outcome

    def _read(self, reply: BatchReply, waiting: Record) -> Outcome:
        return self._batches.read(reply, waiting.question, waiting.sent)

    def _record_failure(self, document: Document, probe: Probe, sent: Sent, failure: Failure) -> None:
        """Records the failure of a question that is in no batch."""
        record = self._recorder.record(document, Asked(probe, Answer(sent, failure, 0.0), 1, time.time()))
        self._listen(Answered(self._recorder.append(record, self._writer)))

    def _pay(self, item: BatchItem, cost: float = 0.0) -> None:
        if self._budget is not None:
            self._budget.pay(self._budget.most([item.tokens]), cost)

    def _close(self, batch: SavedBatch, step: str, message: str = "") -> None:
        """Drops a batch that gives no more replies. Its questions are on records, or in a later batch."""
        closed = {"step": step, "message": message, "items": {}, "questions": len(batch.items)}
        self._folder.save(msgspec.structs.replace(batch, **closed))
        self._folder.drop_questions(batch)
        self._open.pop(batch.number, None)

    # --- waiting and errors

    def _pause(self, seconds: float, why: str) -> None:
        """Sleeps; ends early when the run stops."""
        self._listen(Waiting(seconds, why, everyone=True))
        self.stop.wait(seconds)

    def _reply_to(self, ask: Callable[[], T | Failure], what: str, batch: SavedBatch | None = None) -> T:
        """The provider's reply to a question about batches. Raises when there is none, or the run stops."""
        self._raise_if_stopped()
        reply = self._retrier.request(ask)
        if not isinstance(reply, Failure):
            return reply
        self._raise_if_stopped()
        if batch is not None and reply.status == 404:
            raise self._gone(batch, reply.message)
        raise self._stopped_by(reply, what)

    def _raise_if_stopped(self) -> None:
        """Raises the error that ends the run, with the state at the provider."""
        error = self.stop.error
        if error is None:
            return
        if isinstance(error, Interrupted) and self._open:
            questions = format_count(sum(len(batch.items) for batch in self._open.values()), "question")
            goes = "goes" if len(self._open) == 1 else "go"
            raise Interrupted(
                f"interrupted; {_count(self._open)} with {questions} {goes} on at the provider",
                where=error.where,
                fix="run the same command again: it collects the answers and asks what is in no batch",
            )
        raise error

    def _stopped_by(self, failure: Failure, what: str) -> RunStopped:
        status = f" (status {failure.status})" if failure.status else ""
        fix = "run the same command again: it continues, and asks nothing twice"
        if failure.why == "no_credit":
            what, fix = NO_CREDIT, f"{NO_CREDIT_FIX}; then {fix}"
        return RunStopped(f"{what}: {failure.message}{status}", where=self._batches.address, fix=fix)

    def _gone(self, batch: SavedBatch, why: str) -> RunStopped:
        path = self._folder.path(batch)
        return RunStopped(
            f"the answers of batch {batch.id}, {format_count(len(batch.items), 'question')}, are not there: {why}",
            where=self._batches.address,
            fix="use the key of the account and project that submitted it; if it was deleted or is too old, delete "
            f"{path}: its questions are then asked, and paid for, again",
        )


@dataclass(slots=True)
class _NewBatch:
    """The content of a batch: the lines to submit, and their entries in the folder."""

    lines: list[bytes] = field(default_factory=list)
    items: dict[str, BatchItem] = field(default_factory=dict)
    questions: list[tuple[str, BatchQuestion]] = field(default_factory=list)


class _AllBut:
    """The keys of all cells but these."""

    def __init__(self, keys: Set[str]) -> None:
        self._keys = keys

    def __contains__(self, key: object) -> bool:
        return key not in self._keys


def _count(batches: Mapping[int, SavedBatch]) -> str:
    return f"{len(batches):,} batch{'' if len(batches) == 1 else 'es'}"
