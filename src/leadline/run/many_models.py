"""One spec, many models: a run for each, one after another or in parallel on a Ray cluster, and a submission of all.

An error of one model is its own result, and the others go on. Every run has its own folder and is resumed like any run.
"""

from __future__ import annotations

import math
import queue
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from leadline.core import registry
from leadline.core.contracts import Model
from leadline.core.errors import Interrupted, LeadlineError, StoreError
from leadline.core.lengths import AUTO
from leadline.core.records import Record
from leadline.core.spec import Spec
from leadline.core.workers import start_workers
from leadline.results.breakdowns import NO_CONTEXT
from leadline.results.run import load_run
from leadline.run.after_run import check_steps, steps_of, take_steps
from leadline.run.events import Listener, ManyModelsEvent, ModelEnded, ModelRun, ModelRunResult, ModelStarted, Note
from leadline.run.interrupt import RESUME, Stop, stopping_on_signals
from leadline.run.measure import CheckModel, measure_spec
from leadline.run.plan import OpenModel, open_model
from leadline.stats.intervals import Estimate
from leadline.stats.logprobs import estimate, metric_of
from leadline.stats.marginals import marginals
from leadline.stats.observations import observations
from leadline.store.manifest import read_manifest
from leadline.store.runs import count_done, read_records
from leadline.store.submissions import MetricScore, SubmissionEntry

ACCURACY = "accuracy"
POLL_SECONDS = 0.2
"""A thread that waits without a timeout does not handle signals."""


ManyModelsListener = Callable[[ManyModelsEvent], None]


def measure_all(
    model_runs: Sequence[ModelRun],
    *,
    listen: ManyModelsListener = lambda event: None,
    keep_prompts: bool = False,
    check: CheckModel | None = None,
) -> list[ModelRunResult]:
    """One result for each model, in their order. Raises only if the whole run was stopped or there is no cluster."""
    for model_run in model_runs:
        check_steps(model_run.spec)
    complete = {e.name: _completed(e, listen) for e in model_runs if is_complete(e)}
    missing = [e for e in model_runs if e.name not in complete]
    for result in complete.values():
        listen(ModelEnded(result))
    with _capacity(missing) as (at_once, open_):
        pool = _ModelPool(missing, partial(_measure, open_=open_, keep_prompts=keep_prompts, check=check))
        by_name = {**complete, **pool.run(min(at_once, len(missing)), listen)}
    return [by_name[e.name] for e in model_runs]


def is_complete(model_run: ModelRun) -> bool:
    """Whether the folder has all answers of the spec, so that the model need not be opened. Where the allowance is
    found, answers that were cut off may have to be asked again, unless the run has ended."""
    try:
        manifest, (done, _) = read_manifest(model_run.folder), count_done(model_run.folder)
    except StoreError:
        return False  # there is no run, or what is wrong with it is reported when it is opened
    if manifest.digest != model_run.spec.digest or done != manifest.planned:
        return False
    return model_run.spec.allowance != AUTO or any(session.ended for session in manifest.sessions[-1:])


def _completed(model_run: ModelRun, listen: ManyModelsListener) -> ModelRunResult:
    """The result of a model that need not be opened. Steps after the run may be new."""
    errors = take_steps(steps_of(model_run.spec), model_run.folder, model_run.spec, listen)
    return ModelRunResult(model_run, load_run(model_run.folder), was_complete=True, step_errors=errors)


def _measure(
    model_run: ModelRun, listen: Listener, stop: Stop, *, open_: OpenModel, keep_prompts: bool, check: CheckModel | None
) -> ModelRunResult:
    name = "" if model_run.name == model_run.spec.model else model_run.name
    measured = measure_spec(
        model_run.spec, model_run.folder, listen=listen, keep_prompts=keep_prompts, check=check, name=name,
        open_model=open_, stop=stop,
    )  # fmt: skip
    return ModelRunResult(model_run, measured.run, step_errors=measured.errors)


@contextmanager
def _capacity(model_runs: Sequence[ModelRun]) -> Iterator[tuple[int, OpenModel]]:
    """The number of models that run in parallel, and the way each is opened.

    The GPUs of a Ray cluster are held until all models are done. Each model gets one of them, or an equal share where
    there are more GPUs than models. Without a cluster, and for served models, it is one model after another.
    """
    replicated = [e for e in model_runs if e.spec.limits.ray is not None and _in_process(e.spec)]
    if not replicated:
        yield 1, partial(_open, None)
        return
    from leadline.models.ray.cluster import Reservation
    from leadline.models.ray.model import open_named, replicas_of

    least = max(registry.provider(registry.ModelName.parse(e.spec.model)).devices for e in replicated)
    reserved = Reservation(replicated[0].spec.limits.ray or 0, least)
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
        return False  # reported when the model is opened


class _ModelPool:
    """Measures models in threads; the calling thread passes on their events and handles signals."""

    def __init__(
        self, model_runs: Sequence[ModelRun], measure: Callable[[ModelRun, Listener, Stop], ModelRunResult]
    ) -> None:
        self._waiting = deque(model_runs)
        self._measure = measure
        self._events: queue.SimpleQueue[ManyModelsEvent | None] = queue.SimpleQueue()
        """None: a thread has ended."""
        self._stop = Stop()

    def run(self, at_once: int, listen: ManyModelsListener) -> dict[str, ModelRunResult]:
        results: dict[str, ModelRunResult] = {}
        with stopping_on_signals(self._stop, Interrupted("interrupted", fix=RESUME)):
            working = len(start_workers(self._work, at_once, lambda fewer: self._events.put(Note(fewer))))
            try:
                while working:
                    try:
                        event = self._events.get(timeout=POLL_SECONDS)
                    except queue.Empty:
                        continue
                    if event is None:
                        working -= 1
                        continue
                    if isinstance(event, ModelEnded):
                        results[event.result.model_run.name] = event.result
                    listen(event)
            except BaseException as error:  # a second Ctrl-C, or an error of the listener
                self._stop.because(error)
                raise
        if self._stop.error is not None:
            raise self._stop.error
        return results

    def _work(self) -> None:
        while not self._stop.is_set:
            try:
                model_run = self._waiting.popleft()
            except IndexError:
                break
            self._events.put(ModelStarted(model_run))
            self._events.put(ModelEnded(self._result(model_run)))
        self._events.put(None)

    def _result(self, model_run: ModelRun) -> ModelRunResult:
        try:
            return self._measure(model_run, self._events.put, self._stop.inner())
        except LeadlineError as error:
            return ModelRunResult(model_run, error=error)
        except BaseException as error:  # code of a checkpoint may even exit, and the others must go on
            wrapped = LeadlineError(f"{type(error).__name__}: {error}", where=model_run.name)
            wrapped.__cause__ = error
            return ModelRunResult(model_run, error=wrapped)


# --- submissions


def submission_entries(results: Sequence[ModelRunResult]) -> list[SubmissionEntry]:
    """The scores of every model, or the reason why it has none."""
    entries = []
    for result in results:
        name, model, folder = result.model_run.name, result.model_run.spec.model, result.model_run.folder
        if result.error is None:
            entries.append(submission_entry(name, model, folder))
        else:
            error = result.error.what
            entries.append(SubmissionEntry(name=name, model=model, score=None, error=error, run=folder.name))
    return entries


def submission_entry(name: str, model: str, folder: Path) -> SubmissionEntry:
    """Every metric that the records of a model have; answers count as accuracy."""
    records = list(read_records(folder))
    scores = _scores(records)
    return SubmissionEntry(
        name=name,
        model=model,
        score=next((score.value for score in scores.values()), None),
        scores=scores,
        error="" if scores else "no sample has a score",
        failed_samples=sum(r.failed for r in records),
        prompt_tokens=sum(r.prompt_tokens for r in records),
        seconds=round(math.fsum(r.seconds for r in records), 3),
        run=folder.name,
    )


def _scores(records: list[Record]) -> dict[str, MetricScore]:
    names = dict.fromkeys(name for r in records if r.wants_logprobs for name in r.scores)
    scores = {name: _metric_score(estimate((r for r in records if r.wants_logprobs), name), name) for name in names}
    answered = [
        r for r in records if not r.wants_logprobs and r.score is not None and NO_CONTEXT not in r.question.labels
    ]
    if answered:
        scores[ACCURACY] = _metric_score(marginals(observations(answered), ())[0].estimate, ACCURACY)
    return scores


def _metric_score(estimated: Estimate, name: str) -> MetricScore:
    low, high = (bound if math.isfinite(bound) else None for bound in (estimated.interval.low, estimated.interval.high))
    return MetricScore(estimated.mean, low, high, estimated.n, estimated.n_clusters, metric_of(name).better)
