"""What a task writes: a haystack, facts to plant in it, and questions about them. No tokens yet.

Filler, Composer   a haystack: an order of pieces, or pieces that it composes to an exact number of tokens
PieceBank          its distinct pieces
Draft              one document before fitting: haystack, facts, questions
DraftQuestion      a question of it, which becomes the `Question` of a probe when the document is fitted
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from leadline.core.errors import UsageError
from leadline.core.types import Cell, KeptSession, Mistakes, Question, Tool

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
    """Tokens for a composer to fill; `retry` counts attempts with another order, when tokens merged across joints."""

    tokens: int
    retry: int = 0


@dataclass(frozen=True, slots=True)
class PieceBank:
    """Distinct pieces of text with a name and a digest of their content."""

    name: str
    digest: str
    pieces: Sequence[str]
    contiguous: bool = True
    """Whether piece i + 1 follows piece i in a real text, so that all joints can be checked at once."""
    ends_sentence: Sequence[bool] | None = None
    """Which pieces end a sentence or a line, so that a fact may follow them; None if all do."""
    ending: str = ""
    """For facts on separate lines: the line breaks between a piece that was cut and a fact after it."""
    has_own_spacing: bool = False
    """Whether pieces and facts have all the white space that they need, so that none is added between them."""
    uniform_joints: bool = False
    """Whether all joints are alike, as between the words and numbers of a list, so that a sample of some thousands is
    enough to check them."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A sentence to plant so that it starts `depth` of the way into the first `length` tokens."""

    id: str
    text: str
    depth: float
    length: int


class DraftQuestion(Question, frozen=True, kw_only=True):
    """The question of one cell, as a task writes it: before its document is fitted.

    Its `text` follows the document and so includes the white space between them.
    """

    cell: Cell
    count_targets: Callable[[str], tuple[str, ...]] | None = None
    """The targets as a function of the document text that is sent, for tasks whose answer is counted there."""
    count_mistakes: Callable[[str], Mistakes] | None = None
    """The mistakes as such a function."""
    fixed_allowance: bool = False
    """Whether the allowance stays as it is where the answer has more tokens, as in a published protocol."""
    question_before_document: str = ""
    """The question itself, where it comes before the document and `text` only asks for the answer."""
    correction: int = 0
    """Tokens that its prompt has by the provider's count beyond those in the tokenizer that lays it out."""

    def resolve(self, document_text: str) -> Question:
        """The question with what is counted in the document text that it is about."""
        values = {name: getattr(self, name) for name in Question.__struct_fields__}
        values["text"] = (self.question_before_document or self.text).strip()
        if self.count_targets is not None:
            values["targets"] = self.count_targets(document_text)
            values["whole_document"] = True
        if self.count_mistakes is not None:
            values["mistakes"] = self.count_mistakes(document_text)
        return Question(**values)

    @property
    def is_counted(self) -> bool:
        """Whether `resolve` needs the document text."""
        return self.count_targets is not None or self.count_mistakes is not None


EXTRA_ALLOWANCE = "extra_allowance"
"""The label with the tokens that a question is allowed beyond its answer, for thinking."""

OnOverflow = Literal["send", "middle", "refuse", "drop"]
ToolDeclaration = Literal["auto", "template", "text"]
"""Send the prompt unchanged; cut its middle; count it as failed; leave it out."""


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
    questions: tuple[DraftQuestion, ...]
    on_overflow: OnOverflow = "send"
    """Without a filler: what happens to a prompt that is longer than its cell's length."""
    shared_end: bool = False
    """Whether all questions of a length end the document at one place. A shorter question then has as many tokens more
    for its answer, so that prompt and allowance still add up to the length."""
    conversation: bool = False
    """Whether head, pieces, facts and questions are turns of a conversation, with the marks of `leadline.core.turns`:
    it begins with a user's turn, and every question is the last one."""
    templated: bool = True
    """False sends the text without chat template where the model allows it."""
    tools: tuple[Tool, ...] = ()
    """Tools that are declared to the model."""
    kept: KeptSession | None = None
    """The part of a session that its provider retained, if that is no text."""
    declare: ToolDeclaration = "auto"
    """Where tools are declared: in the model's own chat template, in the text, or in the text where the template
    declares none."""

    def with_questions(self, change: Callable[[DraftQuestion], DraftQuestion]) -> Draft:
        """The same document with every question changed."""
        return replace(self, questions=tuple(map(change, self.questions)))

    def without_document(self) -> Draft:
        """The same questions without the document, labelled `no_context`."""
        return replace(
            self, head="", filler=None, facts=(), tools=(), questions=tuple(map(_from_memory, self.questions))
        )


def _from_memory(question: DraftQuestion) -> DraftQuestion:
    if question.count_targets is not None:
        raise UsageError(
            "the answer is counted from the document, so it cannot be asked without one",
            where=question.cell.task,
            fix="leave out --no-context for this task",
        )
    labels = {**question.labels, "no_context": "true"}
    return msgspec.structs.replace(
        question, text=question.text.lstrip(), facts=(), order_facts=(), distractors=(), whole_document=False,
        labels=labels,
    )  # fmt: skip
