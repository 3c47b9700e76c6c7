"""Gate 2, sense: everything that can be known to be wrong before the first question is asked, and what it will cost.

Names resolve, the model opens, the reading mode fits task and model, lengths fit the window, haystacks are there,
the smallest and the largest document of every task are built for real. Nothing is sent beyond opening the model.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from leadline.core import registry
from leadline.core.contracts import (
    Forecasting,
    LogprobModel,
    Model,
    ModelCard,
    ModelProvider,
    Replicated,
    Task,
    options_of,
)
from leadline.core.digest import digest_bytes
from leadline.core.errors import LengthError, StoreError, UsageError
from leadline.core.logprobs import LogprobDocument, LogprobTask
from leadline.core.spec import Spec, TaskSpec
from leadline.core.types import Cell, Document, Frame
from leadline.run.documents import build, count_cells, depths_of, first_rows, jobs
from leadline.store.manifest import Manifest, holds_secret, now, redact, session
from leadline.store.runs import plain_place, slug

# --- What a run costs, before it runs: requests, tokens, time, money. Exact where lengths are, since lengths are exact.


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a task or a whole run."""

    requests: int = 0
    prompt_tokens: int = 0
    """Sum over all prompts as they are sent; what a provider bills."""
    tokens_read: int = 0
    """What has to be read when a document's common beginning is read once: in process, or from a prefix cache."""
    output_tokens: int = 0
    """At most: every answer as long as it may be."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.requests + other.requests,
            self.prompt_tokens + other.prompt_tokens,
            self.tokens_read + other.tokens_read,
            self.output_tokens + other.output_tokens,
        )

    def seconds(self, tokens_per_second: float) -> float:
        """At a speed of reading; writing counts as reading, which is right for short answers."""
        return (self.tokens_read + self.output_tokens) / tokens_per_second

    def money(self, price_in: float, price_out: float) -> float:
        """At prices per million tokens, without discounts for cached input."""
        return (self.prompt_tokens * price_in + self.output_tokens * price_out) / 1e6


def allowances(spec: Spec, title: str, task: Task) -> dict[int, int]:
    """By length: the tokens an answer may have, from drafts, which need no tokenizer."""
    if isinstance(task, LogprobTask):
        return dict.fromkeys(spec.lengths, 0)
    found: dict[int, int] = {}
    for row in first_rows(spec, title, task):
        for question in task.write(row, seed=spec.seed).questions:
            length = question.cell.length
            found[length] = max(found.get(length, 0), question.allowance)
    return found


def cost_of(spec: Spec, task: Task, allowed: Mapping[int, int], built: Sequence[Document]) -> Cost:
    """`built` are documents of the task: how long their questions are says what a shared document adds per probe."""
    if isinstance(task, LogprobTask):
        return _measure_cost(spec, task, built)
    closing = max((p.prompt_tokens - p.cut for d in built for p in d.probes), default=0)
    probes = len(depths_of(spec, task)) * spec.samples
    prompts = {length: length - allowance for length, allowance in allowed.items()}
    if task.no_context:  # the question alone, whatever the length
        prompts = dict.fromkeys(prompts, max((p.prompt_tokens for d in built for p in d.probes), default=0))
    total = sum(prompts.values()) * probes
    return Cost(
        requests=probes * len(prompts),
        prompt_tokens=total,
        tokens_read=_tokens_read(spec, total, list(prompts.values()), probes, closing),
        output_tokens=sum(allowed.values()) * probes,
    )


def _measure_cost(spec: Spec, task: LogprobTask, built: Sequence[Document]) -> Cost:
    """Documents as requests, each with what it takes in proportion to one that was built."""
    tried = max((d for d in built if isinstance(d, LogprobDocument)), key=lambda d: len(d.ids))
    share = sum(p.tokens for p in tried.passages) / max(p.cell.length for p in tried.probes)
    once = spec.reading == "nested"
    fresh = 1 if task.reads_once or spec.reading != "fresh" else len(depths_of(spec, task))
    lengths = [max(spec.lengths)] if once else list(spec.lengths)
    tokens = round(share * sum(lengths)) * spec.samples * fresh
    return Cost(len(lengths) * spec.samples * fresh, tokens, tokens, 0)


def _tokens_read(spec: Spec, total: int, prompts: list[int], probes: int, closing: int) -> int:
    if spec.reading == "fresh":
        return total
    read_once = sum(prompts) if spec.reading == "shared" else max(prompts)
    documents = spec.samples * (len(prompts) if spec.reading == "shared" else 1)
    return read_once * spec.samples + (probes * len(prompts) - documents) * closing


# --- What makes two runs the same run: the spec, and the fingerprints of everything it names.


def manifest_for(spec: Spec, tasks: Mapping[str, Task], model: Model, *, planned: int) -> Manifest:
    return Manifest(
        digest=spec.digest,
        spec=spec.identity(),
        planned=planned,
        fingerprints=dict(sorted(fingerprints(spec, tasks, model))),
        model=model.card.model_dump(mode="json"),
        frame=_frame_words(model.frame),
        tasks={t.title: _task_words(t, tasks[t.title], model) for t in spec.tasks},
        created=now(),
        sessions=(session(),),
    )


def folder_name(spec: Spec) -> str:
    """`niah-openai-NAME-1a2b3c4d`: the same for the same spec, wherever it came from. Of a path the last part."""
    first, *others = (t.title for t in spec.tasks)
    task = f"{slug(first)}+{len(others)}" if others else slug(first)
    provider, _, name = spec.model.partition("?")[0].partition(":")
    model = slug(f"{provider}-{name.rstrip('/').rpartition('/')[2]}")
    return f"{task[:60]}-{model[:60]}-{spec.digest[:8]}"


def fingerprints(spec: Spec, tasks: Mapping[str, Task], model: Model) -> Iterator[tuple[str, str]]:
    """Everything beyond the spec that can change an answer, each under a name that an error can say."""
    for name, value in model.card.fingerprints.items():
        yield f"model.{name}", value
    yield "model.frame", model.frame.fingerprint
    if isinstance(model, LogprobModel) and any(isinstance(task, LogprobTask) for task in tasks.values()):
        yield "model.plain", model.plain.fingerprint
    for asked in spec.tasks:
        task = tasks[asked.title]
        yield f"task.{asked.title}.version", task.version
        for name, value in options_of(task).items():
            yield f"task.{asked.title}.{name}", json.dumps(value, sort_keys=True, ensure_ascii=False)
        code = _plugin_file(asked.name)
        if code is not None:
            yield f"task.{asked.title}.code", digest_bytes(code.read_bytes())
        for scorer in task.scorers:
            if (code := _plugin_file(scorer)) is not None:
                yield f"scorer.{registry.scorer_title(scorer)}.code", digest_bytes(code.read_bytes())
        for source in task.sources():
            yield f"source.{source.name}", source.digest


def _plugin_file(name: str) -> Path | None:
    """The file of a plugin given as `file.py:Name`: it has no release whose version could stand for its text."""
    path, colon, _ = name.rpartition(":")
    return Path(path) if colon and path.endswith(".py") else None


def _task_words(asked: TaskSpec, task: Task, model: Model) -> dict[str, Any]:
    return {
        "name": asked.name,
        "version": task.version,
        "category": task.category,
        "has_depth": task.has_depth,
        "options": options_of(task),
        **(_measure_words(task, model) if isinstance(task, LogprobTask) else {}),
    }


def _measure_words(task: LogprobTask, model: Model) -> dict[str, Any]:
    """That a task wants log-probabilities, and how everything was decided that their definitions leave open."""
    assert isinstance(model, LogprobModel)  # gate 2
    before = model.plain.before
    return {
        "kind": "measure",
        "choices": {
            **task.choices(),
            "beginning of text": repr(before) if before else "none: the tokenizer adds none",
            "model numbers": model.card.fingerprints.get("dtype", "unknown"),
        },
    }


def _frame_words(frame: Frame) -> dict[str, Any]:
    return dataclasses.asdict(frame)


# --- Gate 2, sense: everything that can be known to be wrong before the first question is asked, and what

Opening = Callable[[Spec], Model]
RUNS = Path("runs")
BYTES_PER_RECORD = 4096
CLOSING = 64
"""Tokens of a question with its template, for a forecast that need not be exact."""


@dataclass(frozen=True)
class Plan:
    """A spec that makes sense, with its tasks made and its model open. Close it, or use it as a context."""

    spec: Spec
    tasks: dict[str, Task]
    model: Model
    manifest: Manifest
    costs: dict[str, Cost]
    """By task title."""
    allowed: dict[str, dict[int, int]]
    """By task title and length: the tokens an answer may have."""
    notes: tuple[str, ...]

    @property
    def planned(self) -> int:
        return self.manifest.planned

    @property
    def cost(self) -> Cost:
        return sum(self.costs.values(), Cost())

    @property
    def at_once(self) -> int:
        """How much is asked at the same time: requests of a server, documents of a model in process."""
        if self.model.grain == "probe":
            return self.spec.limits.workers
        return self.model.copies if isinstance(self.model, Replicated) else 1

    @property
    def folder(self) -> Path:
        """Where the run goes unless told otherwise: the same spec, the same folder."""
        return plain_place(RUNS / folder_name(self.spec))

    def tokens_left(self, done: Container[str]) -> int:
        """Prompt tokens of the cells that have no answer yet."""
        open_jobs = (job for job in jobs(self.spec, self.tasks, done) if not job.task.no_context)
        missing = (c for job in open_jobs for c in job.missing)
        return sum(c.length - self.allowed[c.task][c.length] for c in missing)

    def close(self) -> None:
        self.model.close()

    def __enter__(self) -> Plan:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def prepare(spec: Spec, open_: Opening | None = None) -> Plan:
    """The plan of a spec, or the first thing that is wrong with it. `open_` opens its model in a way of its own."""
    _refuse_secrets(spec)
    tasks = {t.title: registry.task(t) for t in spec.tasks}
    _check_readings(spec, tasks)
    model = (open_ or open_model)(spec)
    try:
        notes = (*model.card.notes, *_check_card(spec, model.card))
        allowed = {title: allowances(spec, title, task) for title, task in tasks.items()}
        costs = {
            title: cost_of(spec, task, allowed[title], _smallest_and_largest(spec, title, task, model))
            for title, task in tasks.items()
        }
        notes += _forecast(spec, tasks, model, allowed)
        manifest = manifest_for(spec, tasks, model, planned=count_cells(spec, tasks))
        return Plan(spec, tasks, model, manifest, costs, allowed, notes)
    except BaseException:
        model.close()
        raise


def open_model(spec: Spec) -> Model:
    """The model, with the spec's time limit where the provider has one and the name does not set it."""
    name = registry.ModelName.parse(spec.model)
    provider = registry.provider(name)
    if spec.limits.ray is not None:
        return _open_copies(spec.model, provider, spec.limits.ray)
    if "timeout" in type(provider).model_fields and "timeout" not in provider.model_fields_set:
        provider = provider.model_copy(update={"timeout": spec.limits.timeout})
    return provider.open(name.name)


def _open_copies(name: str, provider: ModelProvider, wanted: int) -> Model:
    if not provider.in_process:
        raise UsageError(
            f"{name} is not read by this machine, so more machines cannot help",
            where="--ray",
            fix="leave it out; --workers says how many requests are in flight",
        )
    from leadline.models.ray.model import open_replicas

    return open_replicas(name, wanted)


def check_room(folder: Path, planned: int) -> None:
    """The folder can be written to and the disk has room for the records."""
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not os.access(place, os.W_OK) or not place.is_dir():
        raise StoreError("this folder cannot be written to", where=str(place), fix="choose another with --out")
    free, needed = shutil.disk_usage(place).free, planned * BYTES_PER_RECORD
    if free < needed:
        raise StoreError(
            f"the disk has {free / 1e6:,.0f} MB left and the records need about {needed / 1e6:,.0f} MB",
            where=str(place),
            fix="make room, or choose a folder on another disk with --out",
        )


def _refuse_secrets(spec: Spec) -> None:
    if holds_secret(spec.model):
        raise UsageError(
            "the model's name holds a secret, and names are written to disk",
            where=redact(spec.model),
            fix="give secrets in the environment, such as OPENAI_API_KEY",
        )


def _check_readings(spec: Spec, tasks: dict[str, Task]) -> None:
    for title, task in tasks.items():
        if spec.reading not in task.readings:
            raise UsageError(
                f"task {title} cannot be read {spec.reading}",
                where="reading",
                fix=f"it knows: {', '.join(task.readings)}",
            )


def _check_card(spec: Spec, card: ModelCard) -> list[str]:
    """What the model says of itself against what is asked; returns what a reader must know."""
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


def _forecast(spec: Spec, tasks: dict[str, Task], model: Model, allowed: dict[str, dict[int, int]]) -> tuple[str, ...]:
    """What the run takes of this machine, where the model is on it; a run that cannot fit is refused here."""
    if not isinstance(model, Forecasting):
        return ()

    def probe(cell: Cell) -> tuple[int, int, int]:
        new = allowed[cell.task][cell.length]
        return cell.length - new, CLOSING, new

    return model.forecast([[probe(c) for c in job.cells] for job in jobs(spec, tasks)])


def _smallest_and_largest(spec: Spec, title: str, task: Task, model: Model) -> list[Document]:
    """Built for real, so that a document that cannot exist is known before anything is sent."""
    rows = first_rows(spec, title, task)
    tried = [rows[0], *rows[1:][-1:]]
    if isinstance(task, LogprobTask):  # a corpus may have too few documents for all samples
        tried.append(tuple(msgspec.structs.replace(cell, sample=spec.samples - 1) for cell in tried[-1]))
    return [build(task, row, model, seed=spec.seed) for row in tried]
