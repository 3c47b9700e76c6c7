"""Copies of a model as one model: as many documents at once as there are copies, each document whole to one of them.

Records stay with the one writer, in the process that started the run; answers are the same as without Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from leadline.core.contracts import Continuation, Model, ModelCard, Tokenizer, TokenNLL
from leadline.core.registry import ModelName, provider
from leadline.core.types import Answer, Document, Failure, Frame, Probe, Sent
from leadline.models.ray.actors import ActorPool, Lost, Opener
from leadline.models.ray.cluster import Fleet, Share

if TYPE_CHECKING:
    from leadline.core.types import Ids


class RayModel:
    """A model like any other, behind which several copies work."""

    def __init__(self, copies: ActorPool, share: Share, close: Callable[[], None]) -> None:
        self._copies = copies
        self._close = close
        notes = (*copies.described.card.notes, Share(copies.count, share.kind, share.each).words, copies.trouble)
        self._card = copies.described.card.model_copy(update={"notes": tuple(note for note in notes if note)})

    @property
    def card(self) -> ModelCard:
        return self._card

    @property
    def tokenizer(self) -> Tokenizer:
        return self._copies.described.tokenizer

    @property
    def frame(self) -> Frame:
        return self._copies.described.frame

    @property
    def grain(self) -> Literal["probe", "document"]:
        return "document"

    @property
    def copies(self) -> int:
        return self._copies.count

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        answers: list[Answer] | Lost = self._copies.ask("answer", document, tuple(probes))
        if isinstance(answers, Lost):
            return [Answer(Sent(form="ids", prefix="none"), _failure(answers), 0.0) for _ in probes]
        return answers

    def forecast(self, documents: Iterable[Sequence[tuple[int, int, int]]]) -> tuple[str, ...]:
        """What one copy says; nothing where it cannot say."""
        words: tuple[str, ...] | Lost = self._copies.ask("forecast", [tuple(probes) for probes in documents])
        if isinstance(words, Lost) or not words or self.copies == 1:
            return () if isinstance(words, Lost) else words
        return (*words, f"that time is for one copy; {self.copies} share the documents")

    def close(self) -> None:
        self._copies.close()
        self._close()


class RayLogprobModel(RayModel):
    """Of a model that can say how surprised it is."""

    @property
    def plain(self) -> Frame:
        plain = self._copies.described.plain
        assert plain is not None  # this class is for models that have one
        return plain

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        found: TokenNLL | Failure | Lost = self._copies.ask("nll", ids, tuple(continuations), tuple(spans))
        return _failure(found) if isinstance(found, Lost) else found


def open_replicas(name: str, wanted: int) -> RayModel:
    """Copies of the model that a name means, with a fleet of their own; 0 is one for every GPU."""
    fleet = Fleet(wanted)
    try:
        return replicas_of(partial(open_named, name), fleet, fleet.places, close=fleet.close)
    except BaseException:
        fleet.close()
        raise


def replicas_of(opener: Opener, fleet: Fleet, count: int, *, close: Callable[[], None] = lambda: None) -> RayModel:
    """Copies in so many places of a fleet, which others may use too."""
    copies = ActorPool(fleet, opener, count)
    kind = RayModel if copies.described.plain is None else RayLogprobModel
    return kind(copies, fleet.share, close)


def open_named(name: str) -> Model:
    parsed = ModelName.parse(name)
    return provider(parsed).open(parsed.name)


def _failure(lost: Lost) -> Failure:
    return Failure("server", f"the copies of the model that were asked died: {lost.why}")
