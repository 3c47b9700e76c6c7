"""The data types of a run, from cell to probe.

    Cell      one position in the grid: task, length, depth, sample
    Question  what is asked and everything that grading its answer needs; part of a probe and of a record
    Document  a draft laid out in one tokenizer: exact token ids, the position of every fact, its probes
    Probe     one question put to a document at a cut: for an answer, or for log-probabilities

What a task writes is in `leadline.core.drafts`, what comes back from a model in `leadline.core.answers`, and what is
written to disk in `leadline.core.records`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from leadline.core.errors import UsageError
from leadline.core.seeds import digest_prompt
from leadline.core.turns import PLAIN_TURNS, Turn, Turns

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from leadline.core.answers import Failure, Measurement

    Ids = npt.NDArray[np.int32]
    Indices = npt.NDArray[np.int64]
    Nats = npt.NDArray[np.float64]

Reading = Literal["fresh", "shared", "nested"]
READINGS: tuple[Reading, ...] = ("fresh", "shared", "nested")


class Cell(msgspec.Struct, frozen=True, order=True, gc=False):
    """One position in the grid. `depth` is None where the evidence of a task has no single depth."""

    task: str
    length: int
    depth: float | None
    sample: int

    @property
    def key(self) -> str:
        depth = "-" if self.depth is None else f"{self.depth:.4f}"
        return f"{self.task}/{self.length}/{depth}/{self.sample}"

    @property
    def task_family(self) -> str:
        """The task's label without the option values of a sweep (`niah[keys=2]` is `niah`)."""
        return _without_sweep(self.task)

    @property
    def coordinates(self) -> tuple[str, int, float | None, int]:
        """Coordinates for random draws. The members of a sweep draw the same samples, so they can be paired."""
        return self.task_family, self.length, self.depth, self.sample


class Cluster(msgspec.Struct, frozen=True):
    """The cells that one haystack answers: a task, a sample, one length, or None for several (nested reading), and one
    depth, or None if the haystack is that of all depths."""

    task: str
    length: int | None
    sample: int
    depth: float | None = None

    @classmethod
    def of(cls, cells: Sequence[Cell], *, common: bool = False) -> Cluster:
        """The cluster of a document that answers `cells`. With `common`, documents that differ only in depth have the
        same haystack."""
        first, lengths = cells[0], {c.length for c in cells}
        depth = first.depth if len(cells) == 1 and not common else None
        return cls(first.task, first.length if len(lengths) == 1 else None, first.sample, depth)

    @property
    def nested(self) -> bool:
        return self.length is None

    @property
    def name(self) -> str:
        """The name on records: answers with the same cluster are correlated."""
        return "/".join((self.task, *self._place))

    @property
    def group(self) -> tuple[str, str]:
        """The task, without the options of a sweep, and the length: what stretches of a text are shared out among."""
        return _without_sweep(self.task), self._place[0]

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Coordinates for random draws of the haystack, the same for all members of a sweep."""
        place = self._place
        return _without_sweep("/".join((self.task, *place))), *place

    @property
    def _place(self) -> tuple[str, ...]:
        """Length and sample, and the depth if there is one."""
        length = "nested" if self.nested else str(self.length)
        return length, str(self.sample), *(() if self.depth is None else (f"{self.depth:.4f}",))


def document_name(cells: Sequence[Cell]) -> str:
    """The id of the document that answers these cells: its task, length and sample, and its depth where it has one."""
    return Cluster.of(cells).name


def _without_sweep(label: str) -> str:
    return label.partition("[")[0]


# --- the question --------------------------------------------------------------------------------

Match = Literal["all", "any"]
Mistakes = Mapping[str, tuple[str, ...]]
"""Wrong answers by the mistake that each would show, such as "stale fact", which becomes the detail of the failure
class."""
QuestionFamily = Literal[
    "", "needle", "tracing", "counting", "questions", "walks", "records", "worlds", "ladder", "copying", "mrcr",
    "items", "calls", "memory",
]  # fmt: skip
ValueKind = Literal["words", "numbers", "uuids"]
Reference = int | float | str | list[int | float | str | list[int | float | str]]
"""The gold answer of a published sample in the form of its file: a value, or a list of values, some of them lists."""


Tool = Mapping[str, object]
"""A tool as OpenAI's API declares it: `{"type": "function", "function": {"name": ..., "parameters": ...}}`."""


class Question(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What is asked, and everything that grading its answer needs, so that a record can be graded again by itself."""

    text: str
    """The question as it is put, without white space around it."""
    answer_prefix: str = ""
    targets: tuple[str, ...] = ()
    allowance: int = 0
    """Tokens for the answer."""
    scorers: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    """The ids of the facts that are needed."""
    order_facts: tuple[str, ...] = ()
    """The ids of facts that are needed only because their order decides which one is asked for, as in "the third"."""
    whole_document: bool = False
    """Whether the answer follows from all of the document, as a count does."""
    distractors: tuple[str, ...] = ()
    labels: Mapping[str, str] = {}
    """Notes on the sample (wording number, hops ...) to break results down by. No scorer reads them."""
    match: Match = "all"
    """Whether all targets are needed, or any one of them will do."""
    family: QuestionFamily = ""
    """Which mistakes the failure classes look for."""
    value_kind: ValueKind | None = None
    """The kind of value that the task drew; None where the form has to be read from the targets."""
    demonstration: tuple[str, ...] = ()
    """Values of the solved example before the document."""
    answer_form: str = ""
    """The required form of an answer, with `{answer}` for its values: `Final Answer: [{answer}]`. Empty: any way."""
    mistakes: Mistakes = {}
    code_word: str = ""
    """What the answer must begin with."""
    absent: bool | None = None
    """Whether the document has no answer, and to say so is right; None where no question is of that kind."""
    dataset: str = ""
    """The published data set whose rule grades the answer."""
    choices: tuple[str, ...] = ()
    """The answers to choose from, where they are a closed list."""
    reference: Reference | None = None
    ordinal: int = 0
    """The number of the text that is asked for among several similar ones, counted from 1."""

    @property
    def tags(self) -> dict[str, str]:
        """The labels and, as text, the fields for the kind of question. Results are broken down by them."""
        tags: dict[str, str] = {}  # for every record of a page: most questions have few of them
        if self.family:
            tags["family"] = self.family
        if self.value_kind:
            tags["value_kind"] = self.value_kind
        if demonstration := " ".join(self.demonstration):
            tags["demonstration"] = demonstration
        if self.code_word:
            tags["code_word"] = self.code_word
        if self.absent is not None:
            tags["absent"] = str(self.absent).lower()
        if self.dataset:
            tags["dataset"] = self.dataset
        if self.ordinal:
            tags["ordinal"] = str(self.ordinal)
        return {**tags, **self.labels}


# --- what a model is given ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Frame:
    """The text that a model puts before and after one user turn, and the place of an answer prefix.

    The prompt a model reads is  before + user text + after + answer prefix.  `form` says what is sent:
    messages (the server applies its template), text (a completion), or ids (in process).
    """

    before: str
    after: str
    form: Literal["chat", "completion"]
    prefill: bool
    """Whether the answer prefix is placed after the assistant header; else it ends the user turn."""
    fingerprint: str
    system: str = ""
    """The system text that the template adds, reported because its tokens are counted."""
    extra_tokens: int = 0
    """Tokens that the server adds beyond the texts above, as measured from its receipts."""
    turns: Turns | None = None
    """How it wraps the turns of a conversation; None if that is not known."""
    no_turns: str = ""
    """Why it is not known."""

    @classmethod
    def load(cls, values: Mapping[str, Any]) -> Frame:
        """From a manifest."""
        turns = values.get("turns")
        return cls(**{**values, "turns": Turns.load(turns) if turns else None})

    def for_conversation(self, where: str) -> Frame:
        """The frame of a conversation. Its `before` ends where the first turn begins, unless that is the same in every
        prompt of this model, where it is the frame's own."""
        turns = self.turns or (PLAIN_TURNS if self.form == "completion" else None)
        if turns is None:
            raise UsageError(
                f"a conversation cannot be laid out: {self.no_turns or 'the chat template is not known'}",
                where=where,
                fix="give template=FILE with the model's chat template, or api=completions",
            )
        if self.form == "completion":
            return replace(self, turns=turns, after=turns.after)
        return replace(self, turns=turns, before=turns.before, after=turns.after)


@dataclass(frozen=True, slots=True)
class Planted:
    """A fact at its actual position, in tokens of the document's body (0 = first)."""

    id: str
    text: str
    start: int
    end: int
    depth_asked: float
    depth: float


@dataclass(frozen=True, slots=True)
class Continuation:
    """`ids` after a document's first `cut` tokens. Those from `start` on are scored, the others only read."""

    cut: int
    ids: Ids
    start: int = 0


@dataclass(frozen=True, slots=True)
class Passage:
    """Token ids that are read once for log-probabilities, with the continuations and the spans of it to score."""

    ids: Ids
    continuations: tuple[Continuation, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens that the model has to read."""
        return len(self.ids) + sum(len(c.ids) for c in self.continuations)


@dataclass(frozen=True, slots=True)
class TokenNLL:
    """Negative log-probabilities in nats, one number per scored token."""

    continuations: tuple[Nats, ...]
    spans: tuple[Nats, ...]
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    """The cost at a server: requests, prompt_tokens, and cached_tokens of those, if it states them."""


@dataclass(frozen=True, slots=True)
class NextToken:
    """The tokens that a model expects after the first tokens of a text."""

    top: Mapping[str, float]
    """Log-probabilities in nats of the likeliest next tokens, by their text."""
    actual: float | None = None
    """The log-probability of the token that follows in the text; None at its end, and for a token that is not
    listed."""
    cached: int | None = None
    """Tokens before it that came from a cache, where the server says."""

    @classmethod
    def of(
        cls, listed: Iterable[tuple[str, float]], actual: float | None = None, cached: int | None = None
    ) -> NextToken:
        """From texts with their log-probabilities; tokens with the same text (parts of a character) count as one."""
        top: dict[str, float] = {}
        for text, logprob in listed:
            top[text] = math.log(math.exp(top[text]) + math.exp(logprob)) if text in top else logprob
        return cls(top, actual, cached)


@dataclass(frozen=True, slots=True)
class AnswerTime:
    """Seconds until the first token of an answer to a text that was not read before, and tokens a second after it."""

    first: float
    rate: float | None
    """None where the answer had too few tokens."""


@dataclass(frozen=True, slots=True)
class LogprobRequest:
    """Some of the document's passages, by index, and the rule that turns their token NLLs into the probe's numbers."""

    passages: tuple[int, ...]
    numbers: Callable[[Sequence[TokenNLL]], Measurement]


@dataclass(frozen=True, slots=True)
class Probe:
    """One question at one cut. The prompt is document.ids[:cut] + suffix_ids, exactly length - allowance tokens."""

    cell: Cell
    question: Question
    cut: int
    cut_characters: int
    user_suffix: str
    """What ends the user's turn, after the document."""
    suffix_ids: Ids
    prompt_tokens: int
    body_tokens: int = 0
    """Tokens of the document before the question, instructions not counted."""
    logprobs: LogprobRequest | None = None
    """What to measure, if the probe asks for log-probabilities; None if it asks for an answer."""
    schema: Mapping[str, object] | None = None
    """A JSON schema of the answer, which a server enforces if it can."""
    not_asked: Failure | None = None
    """The reason why it is not sent, if that was decided when the document was made."""
    correction: int = 0
    """Tokens that the prompt has by the provider's count beyond those in the tokenizer that laid it out."""
    notes: tuple[str, ...] = ()
    """Notes for its record, such as what a provider's count left open."""

    @property
    def cut_tokens(self) -> int:
        """Tokens of the document before the cut, as the model counts them."""
        laid_out = self.prompt_tokens - self.correction
        return (
            self.cut
            if not self.correction
            else min(self.prompt_tokens, round(self.cut * self.prompt_tokens / laid_out))
        )


@dataclass(frozen=True, slots=True)
class KeptSession:
    """The part of a session that a provider's own compaction retained."""

    text: str = ""
    items: tuple[Mapping[str, object], ...] = ()
    """The beginning of later requests in place of a text, if only the provider can read it."""
    reader: str = ""
    """The server and model that made the items, and alone can read them."""
    read: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A draft at its exact length. `text` is frame.before + head + body; `ids` is its tokenisation.

    For every probe: tokenizer.encode(prompt_text(probe)) == prompt_ids(probe).
    """

    id: str
    cluster: str
    frame: Frame
    text: str
    tokens: Ids | Callable[[], Ids]
    """The token ids, or what puts them together: a server that is sent text never needs them."""
    body_start: int
    body_start_characters: int
    facts: tuple[Planted, ...]
    probes: tuple[Probe, ...]
    passages: tuple[Passage, ...] = ()
    """What is read for probes that ask for log-probabilities; empty if all ask for answers."""
    conversation: bool = False
    """Whether its text is a conversation of several turns, up to the question in the last one."""
    tools: tuple[Tool, ...] = ()
    """Tools that a chat server is sent beside the messages; the frame has what its template makes of them."""
    preparation_seconds: float = 0.0
    """The time of preparing the text before it was laid out, such as compacting it."""
    kept: KeptSession | None = None
    """A beginning before the text in a form that only its provider can read. Its tokens are not in `ids`."""

    @property
    def ids(self) -> Ids:
        """The token ids of `text`."""
        if callable(self.tokens):
            object.__setattr__(self, "tokens", self.tokens())
        assert not callable(self.tokens)
        return self.tokens

    def __reduce__(self) -> tuple[Callable[..., Document], tuple[Any, ...]]:
        """With its token ids, since the function that joins them belongs to this process."""
        values = {f.name: getattr(self, f.name) for f in fields(self)} | {"tokens": self.ids}
        return Document, tuple(values.values())

    def turns(self, probe: Probe) -> list[Turn]:
        """The conversation as sent to a chat server. Without prefill the answer prefix ends the last turn."""
        if not self.conversation or self.frame.turns is None:
            return [Turn("user", self.user_text(probe))]
        skipped = len(self.frame.turns.before) if self.frame.form == "completion" else 0
        return self.frame.turns.split(self.user_text(probe)[skipped:])

    def user_text(self, probe: Probe) -> str:
        """The user turn as sent to a chat server. Without prefill the answer prefix ends it.

        Of a conversation: all its turns, as the template writes them."""
        start = len(self.frame.before)
        return self.text[start : probe.cut_characters] + probe.user_suffix

    def prompt_text(self, probe: Probe) -> str:
        """Everything the model reads, template included."""
        prefix = probe.question.answer_prefix if self.frame.prefill else ""
        return self.text[: probe.cut_characters] + probe.user_suffix + self.frame.after + prefix

    def prefix_place(self, probe: Probe) -> Literal["prefill", "appended", "none"]:
        """Where the prompt has the answer prefix: it begins the answer, or ends the question."""
        if not probe.question.answer_prefix:
            return "none"
        return "prefill" if self.frame.prefill else "appended"

    def prompt_ids(self, probe: Probe) -> Ids:
        import numpy as np

        return np.concatenate([self.ids[: probe.cut], probe.suffix_ids])

    def prompt_digest(self, probe: Probe) -> str:
        """The digest of the prompt's text, so the same for every engine that gets the same text."""
        return digest_prompt(self.prompt_text(probe))

    def planted(self, probe: Probe) -> tuple[Planted, ...]:
        """The facts that the probe needs, with their positions."""
        return tuple(f for f in self.facts if f.id in probe.question.facts)
