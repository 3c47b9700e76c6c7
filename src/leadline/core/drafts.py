"""What a task writes: a haystack, facts to plant in it, and questions about them. No tokens yet.

Filler, Composer   a haystack: an order of pieces, or pieces that it composes to an exact number of tokens
PieceBank          its distinct pieces
Draft              one document before fitting: haystack, facts, questions
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

from leadline.core.errors import UsageError
from leadline.core.types import Cell, Match, Mistakes, QuestionFamily, ValueKind

if TYPE_CHECKING:
    from leadline.core.types import Indices


@runtime_checkable
class Filler(Protocol):
    """The haystack of one document: a bank of pieces and an endless or finite order of them.

    Each distinct piece is tokenised once per tokenizer, so `bank` must be shared between documents. A piece includes
    its white space: a leading space, trailing line breaks.
    """

    @property
    def bank(self) -> PieceBank: ...

    @property
    def prefix_stable(self) -> bool:
        """Whether arrange(n) is always the beginning of arrange(m), n < m. Nested reading needs it."""
        ...

    @property
    def limit(self) -> int | None:
        """The number of pieces, or None if it is not limited."""
        ...

    def arrange(self, count: int) -> Indices:
        """The first `count` pieces, or all if there are fewer, as indices into the bank."""
        ...


@runtime_checkable
class Composer(Protocol):
    """A haystack that composes an exact number of tokens itself: lists whose items must not be cut or repeated."""

    @property
    def bank(self) -> PieceBank: ...

    def least(self, counts: Indices) -> int:
        """The fewest tokens possible for the first segment, when piece i has counts[i] tokens."""
        ...

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        """For each segment of the document, pieces with exactly `tokens` tokens; None if that is impossible.

        A segment may depend on those before it, never on those after it.
        """
        ...


class SegmentSize(NamedTuple):
    """Tokens for a composer to fill; `again` counts retries with another order, when tokens merged across joints."""

    tokens: int
    again: int = 0


@dataclass(frozen=True, slots=True)
class PieceBank:
    """Distinct pieces of text with a name and a digest of their content."""

    name: str
    digest: str
    pieces: Sequence[str]
    contiguous: bool = True
    """Whether piece i + 1 follows piece i in a real text, so that all joints can be checked at once."""
    closes: Sequence[bool] | None = None
    """Which pieces end a sentence or a line, so that a fact may follow them; None if all do."""
    ending: str = ""
    """For facts on separate lines: the line breaks between a piece that was cut and a fact after it."""
    spaced: bool = False
    """Whether pieces and facts have all the white space that they need, so that none is added between them."""
    alike: bool = False
    """Whether all joints are alike, as between the words and numbers of a list, so that a sample of some thousands is
    enough to check them."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence to plant so that it starts `depth` of the way into the first `length` tokens."""

    id: str
    text: str
    depth: float
    length: int


Targets = tuple[str, ...] | Callable[[str], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Question:
    """The question of one cell. Becomes a Probe when the document is fitted.

    `targets` may be a function of the document text that is sent, for tasks whose answer is counted there.
    """

    cell: Cell
    text: str
    answer_prefix: str
    targets: Targets
    allowance: int
    scorers: tuple[str, ...]
    facts: tuple[str, ...] = ()
    distractors: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    """Notes on the sample (wording number, hops ...) for the record. They decide nothing; the fields below do, and are
    added to the labels as `family`, `value_kind`, `demonstration`, `opening` and `absent`."""
    match: Match = "all"
    """Whether all targets are needed, or any one of them will do."""
    family: QuestionFamily = ""
    """Which mistakes the failure classes look for."""
    value_kind: ValueKind | None = None
    """What the task drew its values as; None where their form has to be read from the targets."""
    demonstration: tuple[str, ...] = ()
    """Values of the solved example before the document."""
    fixed_allowance: bool = False
    """Whether the allowance stays as it is where the answer has more tokens, as in a published protocol."""
    answer_form: str = ""
    """What an answer must look like, with `{answer}` for its values: `Final Answer: [{answer}]`. Empty: any way."""
    asked: str = ""
    """The question itself, where it comes before the document and `text` only asks for the answer."""
    mistakes: Mistakes | Callable[[str], Mistakes] = field(default_factory=dict)
    """May be a function of the document text that is sent, as `targets`."""
    opening: str = ""
    """What the answer must begin with: a code word."""
    absent: bool | None = None
    """Whether the document has no answer, and to say so is right; None where no question is of that kind."""

    def __post_init__(self) -> None:
        noted = {
            "family": self.family,
            "value_kind": self.value_kind or "",
            "demonstration": " ".join(self.demonstration),
            "opening": self.opening,
            "absent": "" if self.absent is None else str(self.absent).lower(),
        }
        object.__setattr__(self, "labels", {**{k: v for k, v in noted.items() if v}, **self.labels})


EXTRA_ALLOWANCE = "extra_allowance"
"""The label with the tokens that a question is allowed beyond its answer, for thinking."""

Overlong = Literal["send", "middle", "refuse", "drop"]
"""Send it all the same; cut its middle; count it as failed; leave it out."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One document before fitting. `cluster` names the haystack: answers over one haystack are correlated.

    Without a filler the head is the whole text and is sent unchanged.
    """

    id: str
    cluster: str
    head: str
    filler: Filler | Composer | None
    facts: tuple[Fact, ...]
    questions: tuple[Question, ...]
    overlong: Overlong = "send"
    """Without a filler: what happens to a prompt that is longer than its cell's length."""
    one_end: bool = False
    """Whether all questions of a length end the document at one place. A shorter question then has as many tokens more
    for its answer, so that prompt and allowance still add up to the length."""
    conversation: bool = False
    """Whether head, pieces, facts and questions are turns of a conversation, with the marks of `leadline.core.turns`:
    it begins with a user's turn, and every question is the last one."""
    templated: bool = True
    """False sends the text without chat template where the model allows it."""

    def without_document(self) -> Draft:
        """The same questions without the document, labelled `no_context`."""
        return replace(self, head="", filler=None, facts=(), questions=tuple(map(_from_memory, self.questions)))


def _from_memory(question: Question) -> Question:
    if callable(question.targets):
        raise UsageError(
            "the answer is counted from the document, so it cannot be asked without one",
            where=question.cell.task,
            fix="leave out --no-context for this task",
        )
    labels = {**question.labels, "no_context": "true"}
    return replace(question, text=question.text.lstrip(), facts=(), distractors=(), labels=labels)
