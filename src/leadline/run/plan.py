"""The plan of a run: everything that can be checked before the first question, and its cost.

Names resolve, the model opens, the reading mode fits task and model, lengths fit the window, haystacks exist, and the
smallest and the largest document of every task are built. Nothing is sent beyond opening the model.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
import numpy as np

from leadline.core import registry
from leadline.core.answers import Failure
from leadline.core.batches import Batches, batches_of
from leadline.core.contracts import (
    CompactsSessions,
    CountsPrompts,
    DeclaresTools,
    HasPrefixCache,
    LogprobModel,
    Model,
    ModelCard,
    ModelProvider,
    Remote,
    SeveralDocuments,
    Task,
    logprob_model,
)
from leadline.core.errors import LengthError, SourceError, StoreError, UsageError
from leadline.core.format import format_count, format_length, format_list
from leadline.core.lengths import AUTO
from leadline.core.money import Tariff, check_budget
from leadline.core.secrets import HIDDEN, holds_secret
from leadline.core.spec import Limits, Spec
from leadline.core.types import Cell, Continuation, Document
from leadline.run.allowance import first_allowances
from leadline.run.auto_design import resolve_auto
from leadline.run.documents import (
    TRIED_DOCUMENTS,
    check_memory,
    count_cells,
    depths_of,
    first_rows,
    overlap_notes,
    planned_documents,
    sentence_notes,
    with_possible_length,
)
from leadline.run.estimate import Cost, allowances, cost_of, forecast, prompts_of
from leadline.run.events import Listener, StepProgress, ignore, reporting_waits
from leadline.run.identity import manifest_for
from leadline.run.interrupt import Stop
from leadline.run.queue import DocumentLimit
from leadline.run.retry import Retrier
from leadline.store.manifest import Manifest
from leadline.store.prices import batch_tariff, tariff_of
from leadline.text.fitting import Fitter
from leadline.text.fitting.counted import ProviderCounts
from leadline.text.fitting.question_sizes import MOST_TOKENS, QuestionSizes

OpenModel = Callable[[Spec], Model]
Item = TypeVar("Item")
RUNS = Path("runs")
BYTES_PER_RECORD = 4096
TRIED_TOKENS = 1 << 15
"""At most this many tokens of documents are built to check whether a chosen length holds them."""


@dataclass(frozen=True)
class Plan:
    """A checked spec with its tasks, its open model, its costs and its manifest. Close it, or use it as a context."""

    spec: Spec
    tasks: dict[str, Task]
    model: Model
    fitter: Fitter
    """Makes the documents in the model's tokens; owns all caches of tokens."""
    manifest: Manifest
    costs: dict[str, Cost]
    """By task title."""
    allowed: dict[str, dict[int, int]]
    """By task title and length: the longest allowed answer in tokens."""
    notes: tuple[str, ...]
    """Notes for the user, with the lines of `forecast` among them."""
    prompts: dict[str, tuple[dict[int, int], int]] = field(default_factory=dict)
    """By task title: the tokens of prompts by length, and of those a question's own."""
    tariff: Tariff | None = None
    """The prices of the model, where the spec names a file of them."""
    forecast: tuple[str, ...] = ()
    """Memory and time on this machine, where the model is in this process."""

    @property
    def planned(self) -> int:
        return self.manifest.planned

    @property
    def cost(self) -> Cost:
        return sum(self.costs.values(), Cost())

    @property
    def points(self) -> tuple[tuple[str, int, float | None], ...]:
        """Task, length and depth of every cell whose answers enter a mean."""
        return tuple(
            (title, length, depth)
            for title, task in self.tasks.items()
            if task.is_aggregated
            for length in self.spec.lengths
            if length
            for depth in depths_of(self.spec, task)
        )

    @property
    def at_once(self) -> int:
        return asked_at_once(self.model, self.spec.limits)

    def document_limit(self) -> DocumentLimit:
        """The number of documents that are asked at once. If it matters, the server is asked for the size of its
        cache."""
        if (
            (self.spec.reading == "fresh" and all(task.request == "answer" for task in self.tasks.values()))
            or self.model.asked_per != "probe"
            or not isinstance(self.model, HasPrefixCache)
        ):
            return DocumentLimit.none()
        return DocumentLimit(self.model.prefix_cache)

    def with_notes(self, notes: Sequence[str]) -> Plan:
        """With more notes for the user and for readers of the run's folder."""
        if not notes:
            return self
        model = {**self.manifest.model, "notes": [*self.manifest.model.get("notes", ()), *notes]}
        manifest = msgspec.structs.replace(self.manifest, model=model)
        return dataclasses.replace(self, manifest=manifest, notes=(*self.notes, *notes))

    def __str__(self) -> str:
        """Tokens of each task and of the run, and the notes: the output of `leadline plan`, without money."""
        costs = self.costs | ({"total": self.cost} if len(self.costs) > 1 else {})
        lines = (
            f"{title}: {format_count(cost.requests, 'request')}, {cost.prompt_tokens:,} prompt tokens, "
            f"{cost.tokens_read:,} tokens read ({self.spec.reading}), at most {cost.output_tokens:,} output tokens"
            for title, cost in costs.items()
        )
        return "\n".join([self.spec.model, *lines, *self.notes])

    def close(self) -> None:
        self.model.close()

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def prepare(spec: Spec, open_: OpenModel | None = None, *, listen: Listener = ignore, planning: bool = False) -> Plan:
    """Checks a spec and returns its plan, or raises the first error. `open_` replaces `open_model`; the listener gets
    events of waiting. A model that cannot be asked is allowed only with `planning`."""
    with reporting_waits(listen):
        return _prepare(spec, open_, listen, planning)


def _prepare(spec: Spec, open_: OpenModel | None, listen: Listener, planning: bool) -> Plan:
    refuse_secrets(spec)
    tasks = {t.title: registry.task(t) for t in spec.tasks}
    _check_readings(spec, tasks)
    _check_length_zero(spec, tasks)
    _check_allowance(spec)
    _check_batch(spec, tasks)
    tariff = _tariff(spec, planning=planning)
    model = open_(spec) if open_ else open_model(spec, planning=planning)
    try:
        if model.card.plan_only and not planning:
            fix = "`leadline plan` works with it; to run it, put its weights there"
            raise SourceError(model.card.plan_only, where=spec.model, fix=fix)
        batches = batches_of(model, spec.model) if spec.limits.batch else None
        are_chosen = not spec.lengths
        spec, chosen = resolve_auto(spec, tasks, model)
        fitter = _make_fitter(spec, tasks, model)
        if not planning:
            _ask_for_logprobs(tasks, model)
        notes = (*model.card.notes, *chosen, *_check_card(spec, model.card), *_fewer_workers(spec.limits, model.card))
        check_memory(spec, tasks, model.tokenizer)
        fitter.extra_allowance = first_allowances(spec.allowance, spec.lengths)
        patient = Retrier(model, spec.limits, Stop(), listen)
        if are_chosen:
            spec, left_out = _without_short_lengths(spec, tasks, fitter, patient, listen)
            chosen, notes = (*chosen, *left_out), (*notes, *left_out)
        allowed = {title: allowances(spec, title, task, fitter.extra_allowance) for title, task in tasks.items()}
        built, unbuilt = _build_first(spec, tasks, fitter, patient, model.card, listen)
        _allow_what_was_built(allowed, built)
        costs = {title: cost_of(spec, task, allowed[title], built[title]) for title, task in tasks.items()}
        if batches is not None:
            notes += _batch_notes(batches, sum(costs.values(), Cost()), built)
        expected = forecast(spec, tasks, model, allowed, fitter)
        notes += (*unbuilt, *_short_allowances(built, fitter), *expected)
        texts = (*sentence_notes(tasks), *overlap_notes(spec, tasks, built, fitter))
        if fitter.tools_note:
            texts = (fitter.tools_note, *texts)
        manifest = manifest_for(
            spec, tasks, model, fitter, planned=count_cells(spec, tasks), built=built, notes=(*chosen, *texts)
        )
        notes += texts
        prompts = {title: prompts_of(task, allowed[title], built[title]) for title, task in tasks.items()}
        return Plan(spec, tasks, model, fitter, manifest, costs, allowed, notes, prompts, tariff, expected)
    except BaseException:
        model.close()
        raise


def _tariff(spec: Spec, *, planning: bool) -> Tariff | None:
    """The prices of the model, checked before anything is asked. Those of a plan may also be given as flags."""
    limits = spec.limits
    tariff = None
    if limits.prices and limits.batch and not limits.tier:
        tariff = batch_tariff(Path(limits.prices), spec.model)
    elif limits.prices:
        tariff = tariff_of(Path(limits.prices), spec.model, limits.tier)
    if not planning:
        check_budget(limits.budget, tariff)
        if limits.tier and tariff is None:
            raise UsageError("a tier needs prices", where="--tier", fix="add --prices FILE, or leave out --tier")
    return tariff


def _make_fitter(spec: Spec, tasks: Mapping[str, Task], model: Model) -> Fitter:
    """One for the whole plan. Refuses a model without log-probabilities if a task needs them."""
    for title, task in tasks.items():
        if task.request == "logprobs":
            logprob_model(model, title)
    plain = model.plain if isinstance(model, LogprobModel) else None
    chat = model.frame.form == "chat"
    raw_frame = model.frame if not chat else plain if model.asked_per == "document" else None
    fitter = Fitter(model.tokenizer, model.frame, plain, raw_frame)
    if isinstance(model, DeclaresTools):
        fitter.declare_tools = model.tool_frame
    if isinstance(model, CompactsSessions):
        fitter.kept_reader = model.kept_reader
    if isinstance(model, CountsPrompts):
        most = min(MOST_TOKENS, model.card.window or max(spec.lengths))
        sizes = QuestionSizes(model.count_text, most)
        fitter.provider_counts = ProviderCounts(model.count_prompt, model.tokenizer, sizes)
    fitter.share_text(spec.depths)
    return fitter


def _ask_for_logprobs(tasks: Mapping[str, Task], model: Model) -> None:
    """Raises if a server gives no log-probabilities of a few words, before it reads documents in vain."""
    title = next((title for title, task in tasks.items() if task.request == "logprobs"), "")
    if not title or not isinstance(model, Remote):
        return
    scoring = logprob_model(model, title)
    words = np.concatenate([model.tokenizer.encode(text) for text in (scoring.plain.before, "One two three four.")])
    outcome = scoring.nll(words, (Continuation(len(words), words, 1),))
    if isinstance(outcome, Failure) and not outcome.transient:
        raise UsageError(
            f"{model.card.name} gives no log-probabilities, which {title} needs: {outcome.message}",
            where=model.address,
            fix="measure the model in process (hf:FOLDER), or serve it with vLLM",
        )


def asked_at_once(model: Model, limits: Limits) -> int:
    """The number of workers: requests to a server, or documents for a model in process."""
    if model.asked_per == "probe":
        return min(limits.workers, model.card.slots or limits.workers)
    return model.documents_at_once(limits.workers) if isinstance(model, SeveralDocuments) else 1


def _fewer_workers(limits: Limits, card: ModelCard) -> Iterator[str]:
    """A note if there are more workers than the server has slots."""
    if card.slots and "workers" in limits.model_fields_set and limits.workers > card.slots:
        slots = format_count(card.slots, "slot")
        yield f"{format_count(card.slots, 'worker')} instead of {limits.workers}: the server has {slots}"


def open_model(spec: Spec, *, planning: bool = False) -> Model:
    """Opens the model, with the spec's limits that its provider has and its name does not set. A model that cannot be
    asked is allowed only with `planning`."""
    name = registry.ModelName.parse(spec.model)
    provider = registry.provider(name)
    if spec.limits.ray is not None:
        return _open_replicas(spec.model, provider, spec.limits.ray)
    known = type(provider).model_fields.keys() - provider.model_fields_set
    limits: dict[str, Any] = spec.limits.model_dump(include={"timeout", "allow_tokenizer_mismatch", "rate_limit_wait"})
    provider = provider.model_copy(update={option: value for option, value in limits.items() if option in known})
    return provider.open_for_plan(name.name) if planning else provider.open(name.name)


def _open_replicas(name: str, provider: ModelProvider, wanted: int) -> Model:
    if not provider.in_process:
        raise UsageError(
            f"{name} does not run in this process, so it cannot be copied to more machines",
            where="--ray",
            fix="remove --ray; --workers sets the number of requests in flight",
        )
    from leadline.models.ray.model import open_replicas

    return open_replicas(name, wanted, provider.devices)


def check_disk_space(folder: Path, planned: int) -> None:
    """Raises unless the folder is writable and the disk has room for the records."""
    existing = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not os.access(existing, os.W_OK) or not existing.is_dir():
        raise StoreError("this folder is not writable", where=str(existing), fix="choose another with --out")
    disk, needed = shutil.disk_usage(existing), planned * BYTES_PER_RECORD
    free = disk.free
    if not disk.total:  # /proc, /sys
        raise StoreError("no files can be kept there", where=str(existing), fix="choose another folder with --out")
    if free < needed:
        raise StoreError(
            f"the disk has {free / 1e6:,.0f} MB left and the records need about {needed / 1e6:,.0f} MB",
            where=str(existing),
            fix="free some space, or choose a folder on another disk with --out",
        )


def refuse_secrets(spec: Spec) -> None:
    """Raises if the name of the model holds a key, which would be written into every record."""
    if holds_secret(spec.model):
        raise UsageError(
            "the model's name contains a secret, and names are written to disk",
            where=f"{spec.model.partition(':')[0]}:{HIDDEN}",
            fix="set secrets in the environment, such as OPENAI_API_KEY",
        )


def _check_allowance(spec: Spec) -> None:
    if spec.allowance and "max_tokens=" in spec.model.partition("?")[2]:
        raise UsageError(
            "max_tokens in the model's name and an allowance exclude each other",
            where="--allowance",
            fix="leave out max_tokens: the allowance is part of the length, which max_tokens is not",
        )


def _check_batch(spec: Spec, tasks: Mapping[str, Task]) -> None:
    if not spec.limits.batch:
        return
    if spec.limits.time:
        raise UsageError(
            "a batch is answered when its provider does, so a run by batches cannot end in a given time",
            where="--batch",
            fix="leave out --time or --batch",
        )
    if title := next((title for title, task in tasks.items() if task.request == "logprobs"), ""):
        raise UsageError(
            f"task {title} needs log-probabilities, which batches do not give", where="--batch", fix="leave out --batch"
        )


def _batch_notes(batches: Batches, cost: Cost, built: Mapping[str, Sequence[Document]]) -> tuple[str, ...]:
    """The number of batches for the questions, by the size of one that was written."""
    documents = [document for of_task in built.values() for document in of_task]
    sizes = [(len(batches.line("size", d, p)[0]), p.prompt_tokens) for d in documents for p in d.probes]
    if not sizes or not cost.requests:
        return ()
    size, tokens = max(sizes)
    limits, total = batches.limits, size / max(tokens, 1) * cost.prompt_tokens
    count = max(-(-cost.requests // limits.requests), -(-int(total) // limits.bytes), 1)
    of_each = f"at most {limits.requests:,} questions or {limits.bytes / 1e6:,.0f} MB each"
    return (
        f"{format_count(cost.requests, 'question')} with about {total / 1e6:,.1f} MB go into "
        f"{count:,} batch{'' if count == 1 else 'es'} ({of_each}), answered within {limits.hours} hours",
    )


def _check_readings(spec: Spec, tasks: dict[str, Task]) -> None:
    for title, task in tasks.items():
        if spec.reading not in (AUTO, *task.readings):
            raise UsageError(
                f"task {title} does not support --reading {spec.reading}",
                where="reading",
                fix=f"it supports: {', '.join(task.readings)}",
            )


def _check_length_zero(spec: Spec, tasks: dict[str, Task]) -> None:
    for title, task in tasks.items():
        if 0 in spec.lengths and not task.has_length_zero:
            raise UsageError(
                f"task {title} has no length 0, which is a question alone",
                where="lengths",
                fix="leave out 0, or ask from memory with --no-context",
            )
    if 0 in spec.lengths and spec.until:
        raise UsageError(
            "a stopping rule does not decide about length 0", where="--until", fix="leave out 0, or --until"
        )


def _check_card(spec: Spec, card: ModelCard) -> list[str]:
    """Checks lengths and reading mode against the model's card; returns notes for the reader."""
    if spec.reading == "nested" and card.nested_problem:
        raise UsageError(
            f"{card.name} cannot be read nested: {card.nested_problem}", where="reading", fix="use --reading shared"
        )
    beyond = [n for n in spec.lengths if card.window is not None and n > card.window]
    if not beyond or card.window is None:
        return []
    listed = ", ".join(f"{n:,}" for n in beyond)
    if card.window_is_hard:
        raise LengthError(
            f"{card.name} takes at most {card.window:,} tokens; asked for: {listed}",
            where="lengths",
            fix=f"leave out lengths above {card.window:,}",
        )
    return [f"beyond the window of {card.window:,}: {listed}"]


def _allow_what_was_built(allowed: dict[str, dict[int, int]], built: Mapping[str, Sequence[Document]]) -> None:
    """Raises the allowances of drafts to those of documents, which may be more in the model's own tokens."""
    for title, documents in built.items():
        for probe in (p for d in documents for p in d.probes):
            length = probe.cell.length
            allowed[title][length] = max(allowed[title].get(length, 0), probe.question.allowance)


def _short_allowances(built: Mapping[str, Sequence[Document]], fitter: Fitter) -> Iterator[str]:
    """A warning for each task whose right answer does not fit into its allowance."""
    for title, documents in built.items():
        probes = [p for d in documents for p in d.probes if p.logprobs is None]
        short = [(fitter.answer_tokens(p.question.targets, p.question.match), p.question.allowance) for p in probes]
        if short and max(needed - allowance for needed, allowance in short) > 0:
            needed, allowance = max(short, key=lambda pair: pair[0] - pair[1])
            yield (
                f"{title}: a right answer has {needed} tokens in this tokenizer and the allowance is {allowance}, so "
                "even a perfect reader is cut off: set answer_tokens higher, or leave out fixed_allowance"
            )


@dataclass
class _PreparationProgress:
    """Counts the documents that wait for something while they are made."""

    listen: Listener
    total: int
    done: int = 0

    def counting(self, task: Task, documents: Iterable[Item]) -> Iterator[Item]:
        for document in documents:
            if task.preparation:
                self._report(task, self.done + 1)
            yield document
            if task.preparation:
                self.done += 1
                if self.done == self.total:
                    self._report(task, self.done)

    def _report(self, task: Task, number: int) -> None:
        self.listen(StepProgress(f"{task.preparation} {number} of {self.total}", self.done, self.total))


def _build_first(
    spec: Spec, tasks: Mapping[str, Task], fitter: Fitter, patient: Retrier, card: ModelCard, listen: Listener
) -> tuple[dict[str, list[Document]], list[str]]:
    """The smallest and the largest document of each task, built for real before anything is sent, and a warning for
    each that cannot be built or asked: its samples will fail, and the others are asked. Raises if none can."""
    built: dict[str, list[Document]] = {}
    notes: list[str] = []
    unasked: list[str] = []
    first_error: LengthError | None = None
    problem: LengthError | None
    rows = {title: _first_and_last_rows(spec, title, task) for title, task in tasks.items()}
    progress = _PreparationProgress(listen, sum(len(rows[title]) for title, task in tasks.items() if task.preparation))
    for title, task in tasks.items():
        built[title] = []
        for row in progress.counting(task, rows[title]):
            try:
                built[title].append(patient.retry_call(partial(task.document, row, seed=spec.seed, fitter=fitter)))
            except LengthError as error:
                problem = patient.retry_call(partial(with_possible_length, error, spec, title, task, fitter))
                built[title].append(fitter.unbuilt(task.write(row, seed=spec.seed), problem))
            else:
                problem = _without_room(built[title][-1], title, card)
            if problem is not None:
                first_error = first_error or problem
                notes.append(f"{title} at {row[-1].length:,} tokens will fail: {problem.what}; {problem.fix}")
            elif why := _why_not_asked(built[title][-1]):
                unasked.append(f"{title} at {row[-1].length:,} tokens will fail: {why}")
    if first_error and len(notes) == sum(map(len, built.values())):
        raise first_error
    return built, [*notes, *unasked]


def _why_not_asked(document: Document) -> str:
    """Why its samples fail without being asked although it was built, such as a compactor that fails."""
    failures = [probe.not_asked for probe in document.probes if probe.not_asked is not None]
    return next((str(failure.message) for failure in failures if failure.why == "compaction"), "")


def _without_room(document: Document, title: str, card: ModelCard) -> LengthError | None:
    """That a document with what is scored after it, and the token that a server writes, exceeds the window."""
    needed = [max([len(p.ids), *(c.cut + len(c.ids) for c in p.continuations)]) + 1 for p in document.passages]
    most = max(needed, default=0)
    if card.window is None or not card.window_is_hard or most <= card.window:
        return None
    longest = max(len(p.ids) for p in document.passages)
    return LengthError(
        f"log-probabilities need {most - longest} tokens after a document of {longest:,}, and {card.name} takes "
        f"{card.window:,}",
        where=title,
        fix=f"the longest length is {card.window - most + longest:,}",
    )


def _without_short_lengths(
    spec: Spec, tasks: Mapping[str, Task], fitter: Fitter, patient: Retrier, listen: Listener
) -> tuple[Spec, tuple[str, ...]]:
    """Chosen lengths without those that a task cannot hold in this tokenizer, two at least, and a note about them."""
    kept, notes = list(spec.lengths), []
    while len(kept) > 2:
        lengths = tuple(kept) if spec.reading == "nested" else (kept[0],)
        shortest = spec.model_copy(update={"lengths": lengths})
        titles = [
            title for title, task in tasks.items() if not _are_built(shortest, title, task, fitter, patient, listen)
        ]
        if not titles:
            break
        notes.append(f"{format_length(kept.pop(0))} is left out: too short for {format_list(titles)}")
    return spec.model_copy(update={"lengths": tuple(kept)}), tuple(notes)


def _are_built(spec: Spec, title: str, task: Task, fitter: Fitter, patient: Retrier, listen: Listener) -> bool:
    """Whether the first documents can be made. Facts differ in length, so one document is no proof for the others."""
    tried = min(max(TRIED_TOKENS // max(spec.lengths), 1), TRIED_DOCUMENTS)
    documents = list(islice(planned_documents(spec, {title: task}), tried))
    progress = _PreparationProgress(listen, len(documents))
    try:
        for planned in progress.counting(task, documents):
            patient.retry_call(partial(planned.document, spec.seed, fitter))
    except LengthError:
        return False
    return True


def _first_and_last_rows(spec: Spec, title: str, task: Task) -> list[tuple[Cell, ...]]:
    rows = first_rows(spec, title, task)
    alone = [row for row in rows if not row[0].length]
    rows = rows[len(alone) :]
    tried = [*alone, rows[0], *rows[1:][-1:]]
    if task.request == "logprobs":  # a corpus may have too few documents for all samples
        tried.append(tuple(msgspec.structs.replace(cell, sample=spec.samples - 1) for cell in tried[-1]))
    return tried
