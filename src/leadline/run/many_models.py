"""One model's part of a submission: its run, and the scores that come of its records."""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from leadline.core import registry
from leadline.core.contracts import Model
from leadline.core.errors import Interrupted, LeadlineError
from leadline.core.spec import Spec
from leadline.core.types import Record
from leadline.run.events import Event
from leadline.run.measure import carry_out
from leadline.run.plan import Opening, open_model, prepare
from leadline.run.stopping import Stop, stopping_on_signals
from leadline.run.summary import Summary, summarise
from leadline.stats.intervals import Estimate, mean_interval
from leadline.stats.logprobs import estimate, metric_of
from leadline.store.manifest import MANIFEST, read_manifest
from leadline.store.runs import count_done, read_records
from leadline.store.submissions import Entry, Scored

# --- Many models by one spec: a run for each, one after another, or side by side on what a Ray cluster has.
#
# What is wrong with one model is its own outcome, and the others have their turn. Runs keep their folders as any run
# does, so that going on later means asking what is missing of each.


@dataclass(frozen=True, slots=True)
class ModelRun:
    """A model under its name, what is asked of it, and where its run goes."""

    name: str
    spec: Spec
    folder: Path


@dataclass(frozen=True, slots=True)
class ModelRunResult:
    """What came of a model: a summary, or the reason why there is none."""

    entrant: ModelRun
    summary: Summary | None = None
    error: LeadlineError | None = None
    was_there: bool = False
    """Whether it was whole before, so that the model was not opened."""


@dataclass(frozen=True, slots=True)
class Began:
    entrant: ModelRun


@dataclass(frozen=True, slots=True)
class Ended:
    outcome: ModelRunResult


LOOK_SECONDS = 0.2
"""A thread that waits for ever does not hear of a signal that another was given."""

MatrixEvent = Event | Began | Ended
MatrixListener = Callable[[MatrixEvent], None]


def measure_all(
    entrants: Sequence[ModelRun], *, listen: MatrixListener = lambda event: None, keep_prompts: bool = False
) -> list[ModelRunResult]:
    """An outcome for each, in their order. Raises when the whole was stopped, or when there is nowhere to run it."""
    whole = {e.name: ModelRunResult(e, _summary(e), was_there=True) for e in entrants if is_whole(e.folder, e.spec)}
    missing = [e for e in entrants if e.name not in whole]
    for outcome in whole.values():
        listen(Ended(outcome))
    with _room(missing) as (at_once, open_):
        matrix = _Matrix(missing, partial(_measured, open_=open_, keep_prompts=keep_prompts))
        found = {**whole, **matrix.run(min(at_once, len(missing)), listen)}
    return [found[e.name] for e in entrants]


def is_whole(folder: Path, spec: Spec) -> bool:
    """Whether the folder holds all answers of this spec, so that its model need not be opened again."""
    if not (folder / MANIFEST).exists():
        return False
    manifest = read_manifest(folder)
    return manifest.digest == spec.digest and count_done(folder)[0] == manifest.planned


def _summary(entrant: ModelRun) -> Summary:
    return summarise(entrant.folder, planned=read_manifest(entrant.folder).planned)


# --- where models run ---------------------------------------------------------------------------


@contextmanager
def _room(entrants: Sequence[ModelRun]) -> Iterator[tuple[int, Opening]]:
    """How many models may run side by side, and how each is opened.

    Places of a cluster are held for the whole matrix. A model has one of them; several when there are more than
    models. Without a cluster, and for models that others serve, it is one after another.
    """
    replicated = [e for e in entrants if e.spec.limits.ray is not None and _in_process(e.spec)]
    if not replicated:
        yield 1, partial(_open, None)
        return
    from leadline.models.ray.cluster import Reservation
    from leadline.models.ray.model import open_named, replicas_of

    reserved = Reservation(replicated[0].spec.limits.ray or 0)
    slots = reserved.layout.slots
    each = max(1, slots // len(replicated))
    try:
        yield slots // each, partial(_open, lambda name: replicas_of(partial(open_named, name), reserved, each))
    finally:
        reserved.release()


def _open(open_replicas: Callable[[str], Model] | None, spec: Spec) -> Model:
    if open_replicas is not None and _in_process(spec):
        return open_replicas(spec.model)
    return open_model(spec.model_copy(update={"limits": spec.limits.model_copy(update={"ray": None})}))


def _in_process(spec: Spec) -> bool:
    try:
        return registry.provider(registry.ModelName.parse(spec.model)).in_process
    except LeadlineError:
        return False  # told when it is this model's turn


# --- one after another, or side by side ---------------------------------------------------------


def _measured(
    entrant: ModelRun, listen: Callable[[Event], None], stop: Stop, *, open_: Opening, keep_prompts: bool
) -> Summary:
    with prepare(entrant.spec, open_) as made:
        name = "" if entrant.name == entrant.spec.model else entrant.name
        named = replace(made, manifest=msgspec.structs.replace(made.manifest, name=name))
        return carry_out(named, entrant.folder, listen=listen, keep_prompts=keep_prompts, stop=stop)


class _Matrix:
    """Runs in threads of their own; the calling thread listens to all of them, and to signals."""

    def __init__(
        self, entrants: Sequence[ModelRun], measure: Callable[[ModelRun, Callable[[Event], None], Stop], Summary]
    ) -> None:
        self._waiting = deque(entrants)
        self._measure = measure
        self._news: queue.SimpleQueue[MatrixEvent | None] = queue.SimpleQueue()
        """None: a thread has ended."""
        self._stop = Stop()

    def run(self, at_once: int, listen: MatrixListener) -> dict[str, ModelRunResult]:
        found: dict[str, ModelRunResult] = {}
        interrupted = Interrupted(
            "interrupted", fix="run the same command again to go on: only what is missing is asked"
        )
        with stopping_on_signals(self._stop, interrupted):
            for number in range(at_once):
                threading.Thread(target=self._work, name=f"model-{number}", daemon=True).start()
            try:
                while at_once:
                    try:
                        event = self._news.get(timeout=LOOK_SECONDS)
                    except queue.Empty:
                        continue
                    if event is None:
                        at_once -= 1
                        continue
                    if isinstance(event, Ended):
                        found[event.outcome.entrant.name] = event.outcome
                    listen(event)
            except BaseException as error:  # a second Ctrl-C, or a listener's defect: runs must not go on alone
                self._stop.because(error)
                raise
        if self._stop.error is not None:
            raise self._stop.error
        return found

    def _work(self) -> None:
        while not self._stop.is_set:
            try:
                entrant = self._waiting.popleft()
            except IndexError:
                break
            self._news.put(Began(entrant))
            self._news.put(Ended(self._outcome(entrant)))
        self._news.put(None)

    def _outcome(self, entrant: ModelRun) -> ModelRunResult:
        try:
            return ModelRunResult(entrant, self._measure(entrant, self._news.put, self._stop.inner()))
        except LeadlineError as error:
            return ModelRunResult(entrant, error=error)
        except BaseException as error:  # a stranger's checkpoint may even exit, and the others should not suffer
            told = LeadlineError(f"{type(error).__name__}: {error}", where=entrant.name)
            told.__cause__ = error
            return ModelRunResult(entrant, error=told)


# --- One model's part of a submission: its run, and the scores that come of its records.

ACCURACY = "accuracy"


def entry_of(name: str, model: str, folder: Path) -> Entry:
    """What a model's records come to: every metric they have, answers as accuracy."""
    records = list(read_records(folder))
    scores = _scores(records)
    return Entry(
        name=name,
        model=model,
        score=next((one.value for one in scores.values()), None),
        scores=scores,
        error="" if scores else "no sample has a score",
        failed_samples=sum(r.failed for r in records),
        prompt_tokens=sum(r.prompt_tokens for r in records),
        seconds=round(math.fsum(r.seconds for r in records), 3),
        run=folder.name,
    )


def _scores(records: list[Record]) -> dict[str, Scored]:
    names = dict.fromkeys(name for r in records if r.is_measure for name in r.scores)
    found = {name: _scored(estimate((r for r in records if r.is_measure), name), name) for name in names}
    asked = [r for r in records if not r.is_measure and r.score is not None]
    if asked:
        answers = mean_interval([r.score for r in asked if r.score is not None], [r.cluster for r in asked])
        found[ACCURACY] = _scored(answers, ACCURACY)
    return found


def _scored(found: Estimate, name: str) -> Scored:
    low, high = (bound if math.isfinite(bound) else None for bound in (found.interval.low, found.interval.high))
    return Scored(found.mean, low, high, found.n, found.n_clusters, metric_of(name).better)
