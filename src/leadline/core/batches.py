"""Batches: questions that a provider answers within a day at a lower price, instead of at once.

    BatchLimits       what a provider takes in one batch
    BatchState        how far a batch is
    BatchReply        what came back for one question, as a reply of the server
    Batches           what an adapter gives: the line of a question, submitting, looking, reading
    HasBatches        a model that has them

Adapters ask once and classify failures. `leadline.run.batches` decides what is put into a batch, when it is looked at,
and what is asked again; `leadline.store.batches` keeps what was submitted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from leadline.core.answers import Completion, Failure, Sent
from leadline.core.errors import UsageError
from leadline.core.types import Document, Probe, Question


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What a provider takes in one batch."""

    provider: str
    requests: int
    bytes: int
    hours: int
    """The time in which the provider means to answer; what is not answered then expires."""
    source: str
    """The source of these numbers, with the date it was read."""


BatchStatus = Literal["running", "ended", "cancelled", "refused", "full", "gone"]
"""`ended`: there are results, though some questions may have expired. `cancelled`: by someone at the provider, with the
results so far. `refused`: nothing was asked. `full`: the same, because the provider's queue has no room now. `gone`:
the provider knows no such batch."""


@dataclass(frozen=True, slots=True)
class BatchState:
    """How far a batch is."""

    status: BatchStatus
    done: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class BatchReply:
    """What came back for one question of a batch."""

    status: int
    body: bytes


class Undecided:
    """A batch may be the one searched for. That is certain only when the batch has ended."""


UNDECIDED = Undecided()


class Batches(Protocol):
    """Batches of one model at its provider. Nothing is raised for a failure, and nothing is asked again."""

    @property
    def limits(self) -> BatchLimits: ...

    @property
    def address(self) -> str:
        """The location of the batches, for errors."""
        ...

    def line(self, name: str, document: Document, probe: Probe) -> tuple[bytes, Sent]:
        """A question under its name in the batch, and the part of its record that says what was sent."""
        ...

    def submit(self, tag: str, lines: Sequence[bytes]) -> str | Failure:
        """The provider's id of a new batch. After a transient failure it may have been submitted all the same."""
        ...

    def find(self, tag: str, names: Collection[str], since: float, known: Collection[str]) -> str | Failure | Undecided:
        """The id of the batch that was submitted under this tag; empty if the provider has none. `since` is a time
        before it was submitted, and `known` are the ids of other batches."""
        ...

    def state(self, id: str) -> BatchState | Failure: ...

    def replies(self, id: str) -> Mapping[str, BatchReply | Failure] | Failure:
        """The replies in a batch that has ended, by name. A question without a reply was not answered."""
        ...

    def read(self, reply: BatchReply, question: Question, sent: Sent) -> Completion | Failure:
        """The outcome in the reply to a question. A failure is transient if asking again may help."""
        ...


class QuestionWriter(Protocol):
    """Writes the request of a question and reads the reply to it, for batches. Models implement it."""

    def batch_request(self, document: Document, probe: Probe) -> tuple[str, bytes, Sent]:
        """The path of the endpoint, the body, and the part of the record that says what was sent."""
        ...

    def batch_outcome(self, reply: BatchReply, question: Question, sent: Sent) -> Completion | Failure:
        """A question that was refused for a field that is no longer sent may be asked again: it is transient."""
        ...


@runtime_checkable
class HasBatches(Protocol):
    """A model whose provider may have batches."""

    def open_batches(self) -> Batches:
        """Raises UsageError where there are none."""
        ...


def batches_of(model: object, name: str) -> Batches:
    """The batches of a model, or an error that says which models have them."""
    if isinstance(model, HasBatches):
        return model.open_batches()
    raise no_batches(f"{name} has no batches", where="--batch")


def no_batches(what: str, *, where: str) -> UsageError:
    fix = "leave out --batch, or measure a model whose provider has them: docs/batch.md"
    return UsageError(what, where=where, fix=fix)
