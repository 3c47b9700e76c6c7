"""The interfaces of plugins. One file and one entry-point line add a task, a model, a scorer or a haystack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import msgspec
from pydantic import BaseModel, ConfigDict, Field, model_validator

from leadline.core.answers import Answer, Completion, Failure
from leadline.core.drafts import Draft, Filler
from leadline.core.errors import UsageError
from leadline.core.records import Score
from leadline.core.seeds import Split, digest, seed_of
from leadline.core.types import (
    AnswerTime,
    Cell,
    Cluster,
    Continuation,
    Document,
    Frame,
    KeptSession,
    NextToken,
    Probe,
    Question,
    Reading,
    TokenNLL,
    Tool,
)

if TYPE_CHECKING:
    from leadline.core.types import Ids

Placement = Literal["depth", "anywhere"]
Request = Literal["answer", "logprobs"]
BatchUnit = Literal["probe", "document"]


class Options(BaseModel):
    """Typed, frozen options of a plugin. An unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids. `encode` adds no special tokens."""

    @property
    def fingerprint(self) -> str:
        """Changes when any text could be tokenised differently."""
        ...

    def encode(self, text: str) -> Ids: ...

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]: ...

    def ends(self, text: str) -> Sequence[int] | None:
        """The character at which each token of `text` ends, or None if it is not known."""
        ...


class TextOrigin(Protocol):
    """Text that documents come from, by name, with a digest of all that is in it."""

    @property
    def name(self) -> str: ...

    @property
    def digest(self) -> str: ...


class Source(TextOrigin, Protocol):
    """A haystack: gives a filler for each document, drawn from a seed."""

    def filler(self, *, seed: int) -> Filler: ...


class DocumentFitter(Protocol):
    """Makes documents of an exact length for one model. `leadline.text.fitting.Fitter` is the implementation."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def frame(self) -> Frame: ...

    @property
    def plain(self) -> Frame | None:
        """The frame of a text without chat template, if the model gives log-probabilities."""
        ...

    @property
    def raw_frame(self) -> Frame | None:
        """The frame of a question that is put without chat template; None where the model takes messages only."""
        ...

    def fit(self, draft: Draft) -> Document: ...


class Task(Options):
    """A family of questions. Fields are its options; a subclass or an instance with other defaults is a preset.

    A task counts no tokens, knows no model, and draws randomness only from coordinates. Words, names and values in keys
    or answers come from `of_split(pool, self.split)` (leadline.core.seeds), or are drawn again until
    `split_of(value) == self.split`, so that training data and test data have none in common.
    """

    version: ClassVar[str] = "1"
    """Increased whenever the same coordinates would give another prompt."""
    readings: ClassVar[tuple[Reading, ...]] = ("fresh",)
    category: ClassVar[str] = ""
    request: ClassVar[Request] = "answer"
    """What its probes ask a model for."""
    options_elsewhere: ClassVar[Mapping[str, str]] = {}
    """Options of related tasks, with the task's name, which the error about such an option names."""
    depth_independent: ClassVar[bool] = False
    """Whether one document answers all depths in every reading mode, because it does not depend on them."""
    has_length_zero: ClassVar[bool] = False
    """Whether it can be asked at length 0: a question alone, once for every sample, with which longer prompts are
    compared. Its answers enter no mean, verdict or comparison."""

    placement: Placement = Field(
        "depth", description="evidence at the depths of the grid, or anywhere, drawn for each sample"
    )
    split: Split = Field("test", description="train draws from other seeds and words than test ever does")
    no_context: bool = Field(False, description="ask without the document: what is answered from memory")
    scorers: tuple[str, ...] = Field(
        (), description="scorers in place of the task's own, the headline first: names, or ./file.py:Name"
    )
    common_haystack: bool = Field(
        False,
        description="in fresh reading, one haystack for all depths of a length and sample",
    )
    fixed_allowance: bool = Field(
        False, description="keep the number of answer tokens, with a warning, even where the right answer has more"
    )

    @model_validator(mode="after")
    def _scorers_need_questions(self) -> Task:
        if self.scorers and type(self).draft is Task.draft:
            raise ValueError("scorers: this task asks no questions, so there is nothing to score")
        return self

    @property
    def has_depth(self) -> bool:
        """False if the evidence has no single depth: the grid then has one depth, None."""
        return self.placement == "depth"

    @property
    def is_aggregated(self) -> bool:
        """Whether its scores enter means, verdicts and comparisons: only answers to questions with their document
        do."""
        return self.request == "answer" and not self.no_context

    @property
    def preparation(self) -> str:
        """What making a document of it waits for, such as `compacting session`: progress is shown then. Empty for a
        task that waits for nothing."""
        return ""

    @property
    def samples_per_document(self) -> int:
        """The number of samples, besides all depths, that one document answers in shared and nested reading."""
        return 1

    def cluster(self, cells: Sequence[Cell]) -> Cluster:
        """Which haystack the document of these cells has."""
        return Cluster.of(cells, common=self.common_haystack)

    def document(self, cells: Sequence[Cell], *, seed: int, fitter: DocumentFitter) -> Document:
        """The document that answers all of `cells`, in the tokens of one model."""
        return fitter.fit(self.write(cells, seed=seed))

    def write(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        """The draft for these options: with the seed of the split, with or without its document."""
        draft = self.draft(cells, seed=seed if self.split == "test" else seed_of(seed, self.split))
        if self.scorers:
            draft = replace(
                draft, questions=tuple(msgspec.structs.replace(q, scorers=self.scorers) for q in draft.questions)
            )
        if self.fixed_allowance:
            draft = replace(
                draft, questions=tuple(msgspec.structs.replace(q, fixed_allowance=True) for q in draft.questions)
            )
        return draft.without_document() if self.no_context else draft

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        """One document that answers all of `cells`: one cell when fresh, all depths of a length and sample when
        shared, all lengths and depths of a sample when nested."""
        raise NotImplementedError

    def max_samples(self) -> int | None:
        """The number of samples there are; None if any number can be made. A run asks for no more than these."""
        return None

    def sources(self) -> Sequence[TextOrigin]:
        """The texts used, for their digests in the manifest."""
        return ()

    def choices(self) -> dict[str, str]:
        """The decisions that the definitions of its metrics leave open, for the manifest."""
        return {}


class LogprobTask(Task):
    """A task whose probes ask for log-probabilities. A subclass overrides `document` and needs no draft.

    Its documents have `passages`, and its probes a `logprobs` request over them and the label `UNIT`.
    """

    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "log-probabilities"
    request: ClassVar[Request] = "logprobs"
    depth_independent: ClassVar[bool] = True

    @model_validator(mode="after")
    def _has_context(self) -> LogprobTask:
        if self.no_context:
            raise ValueError("no_context is for tasks that ask for answers, not for log-probability metrics")
        return self


class ModelCard(Options):
    """A model's description of itself, known before the first question."""

    name: str
    window: int | None = None
    window_is_hard: bool = True
    """Whether more tokens than the window are refused, rather than only outside the training."""
    window_origin: str = ""
    """The source of the window's size, such as config.json."""
    constants: dict[str, int] = {}
    """Sizes of the architecture at which reading may change, in tokens, by what they are: a sliding window, ..."""
    fingerprints: dict[str, str] = {}
    """Everything about the model that can change an answer: tokenizer, template, revision, decoding."""
    notes: tuple[str, ...] = ()
    nested_problem: str = ""
    """Why prefixes of one long reading differ from short readings; empty if they do not."""
    estimates_lengths: bool = Field(False, exclude=True)
    """Whether our counts of prompts are estimates, so that only the model's own counts, its receipts, say how long they
    were."""
    slots: int | None = Field(None, exclude=True)
    """The requests that its server answers at once, if it states them. More would only wait there."""
    plan_only: str = Field("", exclude=True)
    """The reason why it can be planned for but not asked, such as missing weights; empty if it can be asked."""


class Model(Protocol):
    """Answers probes. Never truncates, scores, or retries."""

    @property
    def card(self) -> ModelCard: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def frame(self) -> Frame: ...

    @property
    def asked_per(self) -> BatchUnit:
        """What one call of `answer` gets: a single probe, from many workers, or all probes of a document, from one."""
        ...

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        """One answer per probe, in order. A failed probe has a Failure as its outcome; nothing is raised for it."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class LogprobModel(Protocol):
    """A model that gives log-probabilities of tokens. All requests about one text take one reading of it."""

    @property
    def plain(self) -> Frame:
        """The frame of a text without chat template: only the tokenizer's beginning of text, if it has one."""
        ...

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        """NLLs of `continuations` of cuts of `ids`, and of the tokens of `ids` in `spans` (start >= 1, stop).

        Gain is a difference of two continuations, one with a cut of 0 (or of the beginning-of-text alone); a curve over
        length is one continuation at several cuts; perplexity is a span; a short context is a call with shorter ids.
        The first token of a text has nothing before it and cannot be scored.
        """
        ...


@runtime_checkable
class CountsPrompts(Protocol):
    """A model whose provider counts prompts without answering them, as its tokenizer is not known here."""

    def count_prompt(self, document: Document, probe: Probe) -> int | None:
        """The tokens of a question; None where it is not counted. Raises ServerAway where it may be asked later."""
        ...

    def count_text(self, text: str) -> int | None:
        """The tokens of a text as a prompt of its own."""
        ...


@runtime_checkable
class KnowsDecoding(Protocol):
    """A model that may have no greedy decoding: the same question may get another answer."""

    @property
    def is_greedy(self) -> bool:
        """Whether answers are decoded greedily, as far as known: a later refusal may change it."""
        ...


@runtime_checkable
class DeclaresTools(Protocol):
    """A model whose chat template declares tools."""

    def tool_frame(self, tools: Sequence[Tool]) -> Frame:
        """The frame with these tools declared. Raises TokenizerError where its template declares none."""
        ...


@runtime_checkable
class CompactsSessions(Protocol):
    """A model whose provider may have a compaction of its own."""

    @property
    def kept_reader(self) -> str:
        """The reader of the items that it can use: `KeptSession.reader`."""
        ...

    def compact_session(self, messages: Sequence[Mapping[str, str]], keep: int) -> KeptSession | Failure:
        """The part of messages (role and content) that the provider retains, in about `keep` tokens if it takes a
        number."""
        ...


@runtime_checkable
class NextTokenModel(Protocol):
    """A model that lists the tokens it expects after cuts of a text."""

    def next_tokens(
        self, ids: Ids, cuts: Sequence[int], count: int, *, fresh: bool = False
    ) -> list[NextToken] | Failure:
        """The `count` likeliest next tokens after the first tokens of `ids`, for each of the growing `cuts` >= 1.
        `fresh` reads every token anew, also where a server would take it from its prefix cache."""
        ...


@runtime_checkable
class MarginModel(Protocol):
    """A model that can record how far the first token of each answer was ahead of the second candidate."""

    def keep_margins(self) -> None:
        """From now on completions have their `margin`, if the model gives it."""
        ...


@runtime_checkable
class TimedModel(Protocol):
    """A model whose first token and rate of decoding can be timed."""

    def time_answer(self, ids: Ids, tokens: int) -> AnswerTime | Failure:
        """The times of an answer of `tokens` tokens to a prompt that was not read before."""
        ...


@runtime_checkable
class Forecasting(Protocol):
    """A model that can estimate the memory and time of a run on this machine."""

    def forecast(
        self, documents: Iterable[Sequence[tuple[int, int, int]]], kept: Iterable[int] = ()
    ) -> tuple[str, ...]:
        """Notes on memory and time, for documents given as (prompt tokens, closing tokens, new tokens) per probe.

        `kept` is, for each document, how many of its first tokens are those of the document before it. Raises an error
        with the length that would fit, if the longest does not.
        """
        ...


@runtime_checkable
class Remote(Protocol):
    """A model or tokenizer on a server: a thread that calls it waits without using this processor."""

    @property
    def address(self) -> str: ...


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """A server's statements about its prefix cache; the defaults where it makes none."""

    tokens: int | None = None
    slots: int | None = None
    """The number of slots, if each request is read in a slot that keeps one prompt (llama.cpp)."""
    block: int = 1
    """Tokens that are kept or dropped together."""
    min_tokens: int = 1
    """Shorter beginnings are not kept."""
    off: bool = False
    primes: bool = False
    """Whether a document is written to it by a request of its own, before its questions."""
    hours: float = 0.0
    """The longest time that each cut of a document is kept, if storage is paid by the hour."""


@runtime_checkable
class HasPrefixCache(Protocol):
    """A model on a server that may keep the beginning of a prompt for the next one."""

    @property
    def prefix_cache(self) -> PrefixCache: ...


@runtime_checkable
class SeveralDocuments(Protocol):
    """A model of which several documents may be asked at once: it has replicas, or batches them."""

    def documents_at_once(self, workers: int) -> int:
        """How many, where the run allows this number of workers."""
        ...


class ModelProvider(Options):
    """The part before the colon in `PROVIDER:NAME?key=value`. Fields are its options; `open` makes the model."""

    summary: ClassVar[str] = ""
    names: ClassVar[Mapping[str, str]] = {}
    """The models it has, each with a line about it, if they are known: for the catalogue."""
    in_process: ClassVar[bool] = False
    """Whether the model runs on this machine, and so can have copies on others (--ray)."""

    @property
    def devices(self) -> int:
        """GPUs that one copy of it needs, where its options say so."""
        return 1

    def open(self, name: str) -> Model:
        raise NotImplementedError

    def open_for_plan(self, name: str) -> Model:
        """The same for `leadline plan`, which sends no prompt: it may be a model that cannot be asked now, if its card
        says so (`plan_only`)."""
        return self.open(name)


class PromptFormat(Protocol):
    """A way to write prompts and their answers to files, for `leadline build --as`."""

    @property
    def is_folder(self) -> bool:
        """Whether it writes files in a folder; else one file."""
        ...

    def notes(self, tasks: Mapping[str, Task]) -> Sequence[str]:
        """Notes for the user about these tasks, by title. Raises for tasks that the format cannot hold."""
        ...

    def path(self, output: Path, cell: Cell) -> Path:
        """The file that the prompt of a cell goes to."""
        ...

    def line(self, document: Document, probe: Probe, task: Task, tokenizer: Tokenizer, index: int) -> bytes:
        """One prompt, with its answers, as the line `index` of its file."""
        ...

    def beside(self, lines: Mapping[Path, Sequence[Probe]]) -> Mapping[str, str]:
        """The texts of further files in the folder, by name, once all lines are written: the probes of each file."""
        ...


class Scorer(Protocol):
    """A pure function from a question and its answer to a score."""

    @property
    def name(self) -> str: ...

    def score(self, question: Question, completion: Completion) -> Score: ...


def options_of(task: Task) -> dict[str, Any]:
    """The options of a task and their values, for the manifest."""
    return task.model_dump(mode="json")


def logprob_model(model: Model, task: str) -> LogprobModel:
    """The model as one that gives log-probabilities, or an error that names one that does."""
    if isinstance(model, LogprobModel):
        return model
    raise UsageError(
        f"{model.card.name} gives no log-probabilities, which {task} needs",
        where=f"task {task}",
        fix="measure the model in process (hf:FOLDER), or serve it with vLLM",
    )


# --- experiment trackers


@dataclass(frozen=True, slots=True)
class TrackerEntry:
    """One measured checkpoint. Names of numbers contain only letters, digits and `_-. :/`."""

    name: str
    """The series that the steps belong to, the same for every checkpoint of a training run."""
    step: int
    at: float
    """Time of the last answer."""
    numbers: Mapping[str, float]
    figures: Mapping[str, bytes] = field(default_factory=dict)
    """PNG by name."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Model, spec and version of the numbers."""
    verdict: str = ""
    page: Path | None = None
    """A report to store with the numbers, or None."""

    @property
    def digest(self) -> str:
        """Equal for entries with equal numbers."""
        return digest([self.name, self.step, self.at, dict(self.numbers)])


class Tracker(Options):
    """The part before the colon in `TRACKER:DESTINATION?key=value`. Fields are its options.

    Writing an entry for an existing step replaces it where the tracker can; an equal entry is not written again. A
    tracker must not change the run folder.
    """

    summary: ClassVar[str] = ""

    def check(self, destination: str) -> None:
        """Raises if a package is missing, before anything is written."""

    def write(self, destination: str, entry: TrackerEntry) -> str:
        """Writes the entry and returns where to find it. Raises TrackerError."""
        raise NotImplementedError
