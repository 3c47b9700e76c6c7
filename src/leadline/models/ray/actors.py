"""Copies of one model: opened in their places, asked when free, replaced when they die.

A question goes to one free copy. If that copy dies over it, another is asked, so many times and no more; the dead one
is opened again in its place while the others work on. A place where one copy after another dies is given up, and
when all are, the run stops with what is recorded.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from leadline.core.contracts import Continuation, Forecasting, LogprobModel, Model, ModelCard, Tokenizer, TokenNLL
from leadline.core.errors import LeadlineError, RunStopped
from leadline.core.types import Answer, Document, Failure, Frame, Probe
from leadline.models.ray.cluster import WHERE, Fleet

if TYPE_CHECKING:
    from concurrent.futures import Future

    from leadline.core.types import Ids

Opener = Callable[[], Model]
ASKED = 2
"""Copies that may die over one question before it has failed."""
DEATHS = 3
"""Copies that may die in one place without an answer between them."""


@dataclass(frozen=True, slots=True)
class Described:
    """What a copy says of itself, for the process that makes the documents."""

    card: ModelCard
    tokenizer: Tokenizer
    frame: Frame
    plain: Frame | None
    """Of a model that can say how surprised it is."""
    leadline: str

    def difference(self, other: Described) -> str:
        """Why answers of the two must not be mixed; nothing where they may."""
        mine, theirs = ({**one.card.fingerprints, "leadline": one.leadline} for one in (self, other))
        return "; ".join(
            f"{name} is {mine.get(name)} here and {theirs.get(name)} there"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        )


class ModelActor:
    """One copy of the model, in an actor's process."""

    _model: Model

    def open(self, opener: Opener, folder: str) -> Described:
        """In the folder that the run was started in, where this machine has it: names may be relative paths."""
        from leadline import __version__

        with suppress(OSError):
            os.chdir(folder)
        model = self._model = opener()
        plain = model.plain if isinstance(model, LogprobModel) else None
        return Described(model.card, model.tokenizer, model.frame, plain, __version__)

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        return self._model.answer(document, probes)

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]
    ) -> TokenNLL | Failure:
        assert isinstance(self._model, LogprobModel)
        return self._model.nll(ids, continuations, spans)

    def forecast(self, documents: Iterable[Sequence[tuple[int, int, int]]]) -> tuple[str, ...]:
        return self._model.forecast(documents) if isinstance(self._model, Forecasting) else ()


@dataclass(slots=True)
class _Place:
    number: int
    actor: Any = None
    deaths: int = 0
    """In a row."""


@dataclass(frozen=True, slots=True)
class Lost:
    """In place of an answer: every copy that was asked died."""

    why: str


@dataclass(slots=True)
class _State:
    """Where every place stands, under one lock: free, busy, being opened, to be opened, or given up."""

    change: threading.Condition = field(default_factory=threading.Condition)
    free: deque[_Place] = field(default_factory=deque)
    empty: list[_Place] = field(default_factory=list)
    """Places whose copy has died, to be opened again by the next who wants one."""
    opening: int = 0
    left: int = 0
    """Places that are not given up."""
    closed: bool = False
    why: BaseException | None = None
    """The latest reason for which a copy was lost."""


class ActorPool:
    """All copies of one model. `described` is what they say of themselves, all the same."""

    def __init__(self, fleet: Fleet, opener: Opener, count: int) -> None:
        self._fleet = fleet
        self._opener = opener
        self._places = [_Place(number) for number in fleet.take(count)]
        self._state = _State(empty=list(self._places), left=count)
        self._first: Described | None = None
        try:
            self._open_all()
        except BaseException:
            self.close()
            raise

    @property
    def described(self) -> Described:
        assert self._first is not None  # else __init__ raised
        return self._first

    @property
    def count(self) -> int:
        return self._state.left

    @property
    def trouble(self) -> str:
        """Why there are fewer than were asked for, where there are."""
        state = self._state
        missing = len(self._places) - state.left
        return f"{missing} of {len(self._places)} copies could not be opened: {_words(state.why)}" if missing else ""

    def ask(self, method: str, *arguments: Any) -> Any:
        """From a free copy, from another when that one dies; Lost when as many died over it as may."""
        errors = self._fleet.ray.exceptions
        for _ in range(ASKED):
            place = self._take()
            try:
                found = self._fleet.ray.get(getattr(place.actor, method).remote(*arguments))
            except errors.RayTaskError as error:
                if not isinstance(error.cause, RunStopped):  # its GPU is lost to it, but others have theirs
                    self._release(place)
                    raise _own(error) from None
                self._bury(place, error.cause)
            except errors.RayError as error:
                self._bury(place, error)
            else:
                place.deaths = 0
                self._release(place)
                return found
        return Lost(_words(self._state.why))

    def close(self) -> None:
        state = self._state
        with state.change:
            if state.closed:
                return
            state.closed = True
            state.change.notify_all()
        for place in self._places:
            self._kill(place)
        self._fleet.give_back([place.number for place in self._places])

    # --- lives ----------------------------------------------------------------------------------

    def _open_all(self) -> None:
        """Together, so that it takes as long as the slowest does."""
        state = self._state
        while state.empty:
            self._open_empty()
            with state.change:
                state.change.wait_for(lambda: not state.opening)
        if not state.left:
            raise self._dead()

    def _take(self) -> _Place:
        state = self._state
        while True:
            self._open_empty()
            with state.change:
                state.change.wait_for(lambda: state.free or state.empty or state.closed or not state.left)
                if state.closed:
                    raise RunStopped("the copies of the model are gone", where=WHERE)
                if state.free:
                    return state.free.popleft()
                if not state.left:
                    raise self._dead()

    def _open_empty(self) -> None:
        """Begins to open copies where they are missing. Not done where Ray tells of a death: that thread is Ray's own,
        and must not wait for it."""
        state = self._state
        with state.change:
            places, state.empty = state.empty, []
            state.opening += len(places)
        for place in places:
            place.actor = self._fleet.settle(ModelActor, place.number)
            opened: Future[Described] = place.actor.open.remote(self._opener, os.getcwd()).future()
            opened.add_done_callback(partial(self._opened, place))

    def _opened(self, place: _Place, opened: Future[Described]) -> None:
        """Called by Ray when a copy has opened, or has not."""
        state, error = self._state, opened.exception()
        with state.change:
            state.opening -= 1
            if error is None:
                described = opened.result()
                self._first = self._first or described
                difference = self._first.difference(described)
                if difference:
                    error = LeadlineError(f"a copy differs from the others: {difference}", where=WHERE)
            if error is None:
                state.free.append(place)
            elif isinstance(error, self._fleet.ray.exceptions.RayTaskError | LeadlineError):
                self._give_up(_own(error))  # it would be the same again
            else:
                self._mourn(place, error)
            state.change.notify_all()

    def _release(self, place: _Place) -> None:
        with self._state.change:
            self._state.free.append(place)
            self._state.change.notify_all()

    def _bury(self, place: _Place, why: BaseException) -> None:
        self._kill(place)
        with self._state.change:
            self._mourn(place, why)
            self._state.change.notify_all()

    def _mourn(self, place: _Place, why: BaseException) -> None:
        """Under the lock: the place is to be filled again, or is given up."""
        place.deaths += 1
        if place.deaths < DEATHS:
            self._state.why = why
            self._state.empty.append(place)
        else:
            self._give_up(why)

    def _give_up(self, why: BaseException) -> None:
        self._state.why = why
        self._state.left -= 1

    def _kill(self, place: _Place) -> None:
        with suppress(Exception):  # it may be dead already, or never have lived
            self._fleet.ray.kill(place.actor)

    def _dead(self) -> BaseException:
        """What to raise when no copy is left."""
        why = self._state.why
        if self._first is None and isinstance(why, LeadlineError):
            return why  # it never opened: in the model's own words
        count = len(self._places)
        what = f"all {count} copies have died" if self._first else f"none of {count} copies could be opened"
        return RunStopped(
            f"{what}: {_words(why)}",
            where=WHERE,
            fix="see that the model works without --ray, then run the same command again to go on",
        )


def _own(error: BaseException) -> BaseException:
    """What the model itself raised, where it can be told."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, BaseException) else error


def _words(error: BaseException | None) -> str:
    """The part of Ray's long messages that says what happened."""
    if isinstance(error, LeadlineError):
        return error.what
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = next((line for line in lines if line.startswith("The actor is dead because")), lines[0] if lines else "")
    return f"{type(error).__name__}: {told[:300]}"
