"""What a plugin must be. One file and one entry-point line add a task, a model, a scorer or a haystack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, model_validator

from leadline.core.seeds import Split, seed_of
from leadline.core.types import Answer, Cell, Completion, Document, Draft, Failure, Filler, Frame, Probe, Reading, Score

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from leadline.core.types import Ids

    Nats = npt.NDArray[np.float64]

Placement = Literal["depth", "anywhere"]


class Options(BaseModel):
    """Typed, frozen options of a plugin. An unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and nothing else. No special token is ever added by `encode`."""

    @property
    def fingerprint(self) -> str:
        """Changes when any text could be tokenised differently."""
        ...

    def encode(self, text: str) -> Ids: ...

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]: ...

    def ends(self, text: str) -> Sequence[int] | None:
        """The character at which each token of `text` ends, or None when it cannot be told."""
        ...


class Origin(Protocol):
    """Text that documents come from, by name, with a digest of all that is in it."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...


class Source(Origin, Protocol):
    """A haystack: hands out a filler for a document, drawn from its own seed."""

    def filler(self, *, seed: int) -> Filler: ...


class Task(Options):
    """A family of questions. Fields are its options; a subclass or an instance with other defaults is a preset.

    A task never counts tokens, knows no model, and draws only from coordinates. Words, names and values that end up
    in keys or answers come from `part_of(pool, self.split)` (leadline.core.seeds), or are drawn again until
    `side_of(value) == self.split`, so that what is written for training never meets what is tested.
    """

    version: ClassVar[str] = "1"
    """Raised whenever the same coordinates would give another prompt."""
    readings: ClassVar[tuple[Reading, ...]] = ("fresh",)
    category: ClassVar[str] = ""
    reads_once: ClassVar[bool] = False
    """Whether one document answers all depths in every reading mode, since nothing that is asked changes it."""

    placement: Placement = Field(
        "depth", description="evidence at the depths of the grid, or anywhere, drawn for each sample"
    )
    split: Split = Field("test", description="train draws from other seeds and words than test ever does")
    no_context: bool = Field(False, description="ask without the document: what is answered from memory")
    scorers: tuple[str, ...] = Field(
        (), description="scorers in place of the task's own, the headline first: names, or ./file.py:Name"
    )

    later_options: ClassVar[frozenset[str]] = frozenset({"scorers"})
    """Options that older run folders do not know: left out of a run's identity while they are empty."""

    @model_validator(mode="after")
    def _scorers_need_questions(self) -> Task:
        if self.scorers and type(self).draft is Task.draft:
            raise ValueError("scorers: this task asks no questions, so there is nothing to score")
        return self

    @property
    def has_depth(self) -> bool:
        """False when the evidence has no single place: the grid then has one depth, None."""
        return self.placement == "depth"

    def write(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        """The draft as these options want it: from this side's seeds, with or without its document."""
        made = self.draft(cells, seed=seed if self.split == "test" else seed_of(seed, self.split))
        if self.scorers:
            made = replace(made, questions=tuple(replace(q, scorers=self.scorers) for q in made.questions))
        return made.without_document() if self.no_context else made

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        """One document that answers all of `cells`: one cell when fresh, all depths of a length and sample when
        shared, all lengths and depths of a sample when nested."""
        raise NotImplementedError

    def sources(self) -> Sequence[Origin]:
        """The texts used, for their digests in the manifest."""
        return ()


class ModelCard(Options):
    """What a model says of itself before the first question."""

    name: str
    window: int | None = None
    window_is_hard: bool = True
    """Whether more tokens than the window are refused rather than merely untrained for."""
    fingerprints: dict[str, str] = {}
    """Everything of the model that can change an answer: tokenizer, template, revision, decoding."""
    notes: tuple[str, ...] = ()
    nested_problem: str = ""
    """Why prefixes of one long reading are not the same as short readings, where they are not."""


class Model(Protocol):
    """Something that answers. Never truncates, scores, or retries."""

    @property
    def card(self) -> ModelCard: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def frame(self) -> Frame: ...

    @property
    def grain(self) -> Literal["probe", "document"]:
        """Whether probes are best asked one by one from many workers, or a document's all at once by one."""
        ...

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        """One answer per probe, in order. A probe that got none has a Failure; nothing is raised for a sample."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Continuation:
    """`ids` put after a document's first `cut` tokens. Those from `start` on are scored, the others only read."""

    cut: int
    ids: Ids
    start: int = 0


@dataclass(frozen=True, slots=True)
class TokenNLL:
    """Negative log-probabilities in nats, one number per scored token."""

    continuations: tuple[Nats, ...]
    spans: tuple[Nats, ...]
    notes: tuple[str, ...] = ()


@runtime_checkable
class LogprobModel(Protocol):
    """A model that can say how surprised it is by a text. Everything asked of one document is one reading of it."""

    @property
    def plain(self) -> Frame:
        """A text without any template: after what the tokenizer itself begins a text with, which may be nothing."""
        ...

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        """Surprise at `continuations` of cuts of `ids`, and at the tokens of `ids` in `spans` (start >= 1, stop).

        Gain is a difference of two continuations, one with a cut of 0 (or of the beginning-of-text alone); a curve over
        length is one continuation at several cuts; perplexity is a span; a short context is a call with shorter ids.
        The first token of a text has nothing before it and cannot be scored.
        """
        ...


@runtime_checkable
class Forecasting(Protocol):
    """A model that can say beforehand what a run takes of the machine it is on."""

    def forecast(self, documents: Iterable[Sequence[tuple[int, int, int]]]) -> tuple[str, ...]:
        """Memory and time in words, for documents given as (prompt tokens, closing tokens, new tokens) per probe.

        Raises when the longest cannot fit, saying what would.
        """
        ...


@runtime_checkable
class Remote(Protocol):
    """A model or tokenizer that computes elsewhere, so that whoever asks it waits and needs no processor for that."""

    @property
    def address(self) -> str: ...


@runtime_checkable
class Replicated(Protocol):
    """A model of which there are several copies: so many documents may be asked of it at once."""

    @property
    def copies(self) -> int: ...


class ModelProvider(Options):
    """The part before the colon in `PROVIDER:NAME?key=value`. Fields are its options; `open` makes the model."""

    summary: ClassVar[str] = ""
    in_process: ClassVar[bool] = False
    """Whether it is this machine that reads, so that more machines may read with it."""

    def open(self, name: str) -> Model:
        raise NotImplementedError


class Scorer(Protocol):
    """A pure function from a probe and its answer to a score."""

    @property
    def name(self) -> str: ...

    def score(self, probe: Probe, completion: Completion) -> Score: ...


def options_of(plugin: type[Options] | Options) -> dict[str, Any]:
    """The options of a plugin and their values, for catalogues and manifests."""
    if isinstance(plugin, Task):
        return plugin.model_dump(mode="json", exclude={o for o in plugin.later_options if not getattr(plugin, o)})
    if isinstance(plugin, Options):
        return plugin.model_dump(mode="json")
    return {name: f.get_default(call_default_factory=True) for name, f in plugin.model_fields.items()}
