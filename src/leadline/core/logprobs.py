"""Measuring without asking: what is read of a text, which tokens are scored, and how numbers come of it.

    Passage    token ids read once, with the continuations and spans to score on the way
    Sounded    a document with its passages, and for each cell the rule that makes its numbers of their surprise
    Measure    the task that makes such documents; it needs a model that is `Surprised`

A sounded document is a document: its probes say what stood where, so that planning, resuming, records and reports
work as they do for answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import model_validator

from leadline.core.contracts import Continuation, Task, Tokenizer, TokenNLL
from leadline.core.types import Cell, Document, Frame, Measurement, Reading

if TYPE_CHECKING:
    from leadline.core.types import Ids


@dataclass(frozen=True, slots=True)
class Passage:
    """Ids read once. The fields are those of `Surprised.nll`."""

    ids: Ids
    continuations: tuple[Continuation, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that have to be put through the model."""
        return len(self.ids) + sum(len(c.ids) for c in self.continuations)


@dataclass(frozen=True, slots=True)
class CellNumbers:
    """How the numbers of one cell come from the surprise at some of the passages, given in the order of `passages`."""

    passages: tuple[int, ...]
    numbers: Callable[[Sequence[TokenNLL]], Measurement]


@dataclass(frozen=True, slots=True)
class LogprobDocument(Document):
    """A document whose probes are measured instead of asked."""

    passages: tuple[Passage, ...]
    reckonings: Mapping[str, CellNumbers]
    """By the key of the cell."""


class LogprobTask(Task):
    """A task that wants log-probabilities and no answers. Its length is the document's own, in tokens."""

    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "log-probabilities"
    reads_once: ClassVar[bool] = True

    @model_validator(mode="after")
    def _has_context(self) -> LogprobTask:
        if self.no_context:
            raise ValueError("no_context is for tasks that ask; measures have a part without the document already")
        return self

    def sound(
        self, cells: Sequence[Cell], *, seed: int, tokenizer: Tokenizer, frame: Frame, plain: Frame
    ) -> LogprobDocument:
        """One document that gives the numbers of all of `cells`. `frame` is a user's turn, `plain` a bare text."""
        raise NotImplementedError

    def choices(self) -> dict[str, str]:
        """What the metrics' definitions leave open and how it was decided, for the manifest."""
        return {}
