"""Gate 2, sense: everything that can be known to be wrong before the first question is asked, and what it will cost.

Names resolve, the model opens, the reading mode fits task and model, lengths fit the window, haystacks are there,
the smallest and the largest document of every task are built for real. Nothing is sent beyond opening the model.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Container
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from leadline.core import registry
from leadline.core.contracts import Forecasting, Model, ModelCard, ModelProvider, Replicated, Task
from leadline.core.errors import LengthError, StoreError, UsageError
from leadline.core.soundings import Measure
from leadline.core.spec import Spec
from leadline.core.types import Cell, Document
from leadline.run.building import build
from leadline.run.cost import Cost, allowances, cost_of
from leadline.run.grid import count_cells, first_rows, jobs
from leadline.run.identity import folder_name, manifest_for
from leadline.store.manifest import Manifest
from leadline.store.provenance import holds_secret, redact
from leadline.store.runs import plain_place

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
    from leadline.models.replicas.model import open_replicas

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
    if isinstance(task, Measure):  # a corpus may have too few documents for all samples
        tried.append(tuple(msgspec.structs.replace(cell, sample=spec.samples - 1) for cell in tried[-1]))
    return [build(task, row, model, seed=spec.seed) for row in tried]
