"""Replicas of a model behind one `Model`: each document goes to one free replica, whole.

A replica is a Ray actor. When its process dies, Ray restarts it while the other replicas go on, and the document it
was reading is sent to another replica. Records are written by the process that started the run, as without Ray.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from leadline import __version__
from leadline.core.answers import Answer, Failure, Sent
from leadline.core.contracts import BatchUnit, Forecasting, LogprobModel, Model, ModelCard, Tokenizer
from leadline.core.errors import LeadlineError, RunStopped
from leadline.core.registry import ModelName, provider
from leadline.core.types import Continuation, Document, Frame, Probe, TokenNLL
from leadline.models.ray.cluster import WHERE, Reservation, SlotLayout

if TYPE_CHECKING:
    from concurrent.futures import Future

    from leadline.core.types import Ids

Opener = Callable[[], Model]
ATTEMPTS = 2
"""Replicas that one document is sent to before it is recorded as failed."""


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """What the process that makes the documents needs to know about the model."""

    card: ModelCard
    tokenizer: Tokenizer
    frame: Frame
    plain: Frame | None
    """None where the model has no log-probabilities."""
    leadline: str

    def difference(self, other: ReplicaInfo) -> str:
        """Why answers of the two must not be mixed; empty where they may."""
        mine, theirs = ({**replica.card.fingerprints, "leadline": replica.leadline} for replica in (self, other))
        return "; ".join(
            f"{name} is {mine.get(name)} here and {theirs.get(name)} there"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        )


class ModelActor:
    """One replica, in a process of its own. `open` comes first after every (re)start of the process."""

    def __init__(self, opener: Opener, folder: str) -> None:
        self._opener = opener
        self._broken = False
        with suppress(OSError):  # model names may be relative paths; another machine may lack the folder
            os.chdir(folder)

    def open(self) -> ReplicaInfo:
        if self._broken:
            os._exit(1)  # Ray restarts the process and calls this again
        self._model = model = self._opener()
        plain = model.plain if isinstance(model, LogprobModel) else None
        return ReplicaInfo(model.card, model.tokenizer, model.frame, plain, __version__)

    def call(self, method: str, arguments: Sequence[Any]) -> Any:
        if method == "forecast" and not isinstance(self._model, Forecasting):
            return ()
        try:
            return getattr(self._model, method)(*arguments)
        except RunStopped:  # its GPU failed: a new process may work
            self._broken = True
            raise


class ReplicasLost(Exception):
    """Every replica that was sent this call died."""


class ReplicaPool:
    """All replicas of one model. `info` is what they report about the model; all report the same."""

    info: ReplicaInfo

    def __init__(self, reservation: Reservation, opener: Opener, count: int) -> None:
        self._ray = reservation.ray
        self._changed = threading.Condition()
        self._free: deque[Any] = deque()
        self._started = self.alive = self._opening = count
        self._closed = False
        self._error: BaseException | None = None
        self._actors = [reservation.create_actor(ModelActor, opener, os.getcwd()) for _ in range(count)]
        try:
            for actor in self._actors:
                self._open(actor)
            with self._changed:
                self._changed.wait_for(lambda: not self._opening)
            if not self.alive:
                raise self._none_left()
        except BaseException:
            self.close()
            raise

    @property
    def problem(self) -> str:
        """Why there are fewer replicas than asked for; empty where there are not."""
        missing = self._started - self.alive
        if not missing:
            return ""
        return f"{missing} of {self._started} replicas could not be opened: {_format_error(self._error)}"

    def call(self, method: str, *arguments: Any) -> Any:
        """The result from a free replica, or from another one if that dies; ReplicasLost after ATTEMPTS deaths."""
        errors = self._ray.exceptions
        for _ in range(ATTEMPTS):
            actor = self._take()
            try:
                result = self._ray.get(actor.call.remote(method, arguments))
            except errors.RayTaskError as error:
                if not isinstance(error.cause, RunStopped):
                    self._release(actor)
                    raise _cause(error) from None
                self._error = error.cause
                self._open(actor)
            except errors.RayError as error:
                self._error = error
                self._open(actor)
            else:
                self._release(actor)
                return result
        raise ReplicasLost(f"the replicas of the model that were asked died: {_format_error(self._error)}")

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for actor in self._actors:
            with suppress(Exception):  # already dead
                self._ray.kill(actor)

    def _open(self, actor: Any) -> None:
        """Open the model in an actor, once Ray has (re)started it; then the actor is free."""
        opened: Future[ReplicaInfo] = actor.open.options(max_task_retries=-1).remote().future()
        opened.add_done_callback(partial(self._opened, actor))

    def _opened(self, actor: Any, opened: Future[ReplicaInfo]) -> None:
        """Called from a thread of Ray's."""
        error = opened.exception()
        with self._changed:
            self._opening -= self._opening > 0
            if error is None:
                if not hasattr(self, "info"):
                    self.info = opened.result()
                if difference := self.info.difference(opened.result()):
                    error = LeadlineError(f"a replica differs from the others: {difference}", where=WHERE)
            if error is None:
                self._free.append(actor)
            else:
                self._error = _cause(error)
                self.alive -= 1
            self._changed.notify_all()

    def _take(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._closed or not self.alive)
            if self._closed:
                raise RunStopped("the replicas of the model were closed", where=WHERE)
            if not self.alive:
                raise self._none_left()
            return self._free.popleft()

    def _release(self, actor: Any) -> None:
        with self._changed:
            self._free.append(actor)
            self._changed.notify_all()

    def _none_left(self) -> BaseException:
        opened = hasattr(self, "info")
        if not opened and isinstance(self._error, LeadlineError):
            return self._error  # the model's own message
        what = f"all {self._started} replicas have died" if opened else f"none of {self._started} replicas opened"
        return RunStopped(
            f"{what}: {_format_error(self._error)}",
            where=WHERE,
            fix="check that the model works without --ray, then run the same command again to continue",
        )


class RayModel:
    """A `Model` whose documents are answered by several replicas at once."""

    def __init__(self, pool: ReplicaPool, layout: SlotLayout, release: Callable[[], None]) -> None:
        self._pool = pool
        self._release = release
        notes = (*pool.info.card.notes, str(SlotLayout(pool.alive, layout.resource, layout.each)), pool.problem)
        self.card: ModelCard = pool.info.card.model_copy(update={"notes": tuple(note for note in notes if note)})
        self.tokenizer: Tokenizer = pool.info.tokenizer
        self.frame: Frame = pool.info.frame
        self.asked_per: BatchUnit = "document"

    @property
    def replicas(self) -> int:
        return self._pool.alive

    def documents_at_once(self, workers: int) -> int:
        return self.replicas

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        try:
            answers: list[Answer] = self._pool.call("answer", document, tuple(probes))
        except ReplicasLost as error:
            return [Answer(Sent(form="ids", prefix="none"), Failure("server", str(error)), 0.0) for _ in probes]
        return answers

    def forecast(
        self, documents: Iterable[Sequence[tuple[int, int, int]]], kept: Iterable[int] = ()
    ) -> tuple[str, ...]:
        """The forecast of one replica; empty where the model has none. The next document may go to another replica, so
        that none of it is kept."""
        try:
            lines: tuple[str, ...] = self._pool.call("forecast", [tuple(probes) for probes in documents])
        except ReplicasLost:
            return ()
        return (*lines, f"the time is for one replica; {self.replicas} share the documents") if lines else ()

    def close(self) -> None:
        self._pool.close()
        self._release()


class RayLogprobModel(RayModel):
    """Replicas of a model that has log-probabilities."""

    @property
    def plain(self) -> Frame:
        assert self._pool.info.plain is not None  # else the class is RayModel
        return self._pool.info.plain

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        try:
            nll: TokenNLL | Failure = self._pool.call("nll", ids, tuple(continuations), tuple(spans))
        except ReplicasLost as error:
            return Failure("server", str(error))
        return nll


def open_replicas(name: str, wanted: int, devices: int = 1) -> RayModel:
    """Replicas of a named model on resources reserved for it alone; 0 is as many as there are GPUs for, with `devices`
    of them each."""
    reservation = Reservation(wanted, devices)
    try:
        return replicas_of(partial(open_named, name), reservation, reservation.layout.slots, reservation.release)
    except BaseException:
        reservation.release()
        raise


def replicas_of(
    opener: Opener, reservation: Reservation, count: int, release: Callable[[], None] = lambda: None
) -> RayModel:
    """`count` replicas in a reservation that other models may use too. `release` is called when they are closed."""
    pool = ReplicaPool(reservation, opener, count)
    cls = RayModel if pool.info.plain is None else RayLogprobModel
    return cls(pool, reservation.layout, release)


def open_named(name: str) -> Model:
    parsed = ModelName.parse(name)
    return provider(parsed).open(parsed.name)


def _cause(error: BaseException) -> BaseException:
    """The exception that the model raised in the actor, where there is one."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error


def _format_error(error: BaseException | None) -> str:
    """The one line of Ray's long messages that says what happened."""
    if isinstance(error, LeadlineError):
        return error.what
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((cause for cause in lines if cause.startswith("The actor is dead because")), lines[0] if lines else "")
    return f"{type(error).__name__}: {cause[:300]}"
