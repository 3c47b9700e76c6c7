"""Questions for a hosted model in a form for all APIs: turns of blocks, some of which end a beginning that other
questions of the document share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from leadline.core.seeds import digest_text
from leadline.core.turns import TurnRole
from leadline.core.types import Document, Probe, Tool

SENTENCE_CHARACTERS = 400
"""The end of a sentence is searched for in these characters before the shortest cut: blocks should not break inside
one."""
KEY_CHARACTERS = 4096
_SENTENCE_ENDS = (". ", ".\n", "\n", "! ", "? ")


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a turn."""

    text: str
    shared: bool = False
    """Whether other questions of the document begin with everything up to the end of this block."""


@dataclass(frozen=True, slots=True)
class Message:
    role: TurnRole
    blocks: tuple[Block, ...]

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question with all that precedes it."""

    messages: tuple[Message, ...]
    allowance: int
    """Output tokens, those of thinking included."""
    prefix: str = ""
    """The start of the answer."""
    tools: tuple[Tool, ...] = ()
    schema: Mapping[str, object] | None = None
    key: str = ""
    """The same for all questions of a document: for APIs that send equal keys to one cache."""
    questions: int = 1
    """The number of planned questions of the document."""
    kept: tuple[Mapping[str, object], ...] = ()
    """The result of the provider's own compaction, before the messages."""

    @property
    def characters(self) -> int:
        return sum(len(message.text) for message in self.messages)

    @property
    def _last_shared(self) -> tuple[int, int] | None:
        """The message and the block that end the shared part."""
        ends = [(i, j) for i, m in enumerate(self.messages) for j, block in enumerate(m.blocks) if block.shared]
        return ends[-1] if ends else None

    @property
    def beginning(self) -> Prompt | None:
        """The part up to the last shared block; None where nothing is shared, or where it ends with an answer."""
        end = self._last_shared
        if end is None or self.messages[end[0]].role == "assistant":
            return None
        i, j = end
        last = replace(self.messages[i], blocks=self.messages[i].blocks[: j + 1])
        return replace(self, messages=(*self.messages[:i], last), prefix="", schema=None)

    @property
    def rest(self) -> Prompt:
        """The part after the beginning."""
        if self._last_shared is None:
            return self
        i, j = self._last_shared
        blocks = self.messages[i].blocks[j + 1 :]
        after = (replace(self.messages[i], blocks=blocks),) if blocks else ()
        return replace(self, messages=(*after, *self.messages[i + 1 :]))

    def with_marks(self, most: int) -> Prompt:
        """The same with no more than the last `most` shared blocks named as shared."""
        messages: list[Message] = []
        for message in reversed(self.messages):
            blocks: list[Block] = []
            for block in reversed(message.blocks):
                blocks.append(block if most > 0 else Block(block.text))
                most -= block.shared
            messages.append(replace(message, blocks=tuple(reversed(blocks))))
        return replace(self, messages=tuple(reversed(messages)))


def prompt_of(document: Document, probe: Probe, allowance: int, *, marked: bool = True) -> Prompt:
    """A question as it is sent. With `marked`, blocks end where other questions of the document have the same text."""
    prefix = probe.question.answer_prefix if document.frame.prefill else ""
    turns = document.turns(probe)
    if len(turns) > 1:
        shared = marked and len(document.probes) > 1
        last = len(turns) - 2
        messages = tuple(Message(turn.role, (Block(turn.text, shared and i == last),)) for i, turn in enumerate(turns))
    else:
        start = len(document.frame.before)
        ends = shared_ends(document, probe) if marked else []
        text, begin, blocks = turns[0].text, 0, []
        for end in ends:
            blocks.append(Block(text[begin : end - start], shared=True))
            begin = end - start
        messages = (Message("user", (*blocks, Block(text[begin:]))),)
    return Prompt(
        messages=messages,
        allowance=allowance,
        prefix=prefix,
        tools=document.tools,
        schema=probe.schema,
        key=digest_text(document.cluster + document.text[:KEY_CHARACTERS]),
        questions=len(document.probes),
        kept=document.kept.items if document.kept else (),
    )


def session_messages(messages: Sequence[Mapping[str, str]]) -> list[Message]:
    """Messages of a session as turns that every API takes: results of tools and the system speak to the model too."""
    return [
        Message("assistant" if message["role"] == "assistant" else "user", (Block(message["content"]),))
        for message in messages
        if message["content"].strip()
    ]


def shared_ends(document: Document, probe: Probe) -> list[int]:
    """The characters of the document's text, growing, up to which another question has the same text as this one: one
    for each length that is asked, at the end of a sentence."""
    if len(document.probes) < 2:
        return []
    cuts: dict[int, int] = {}
    for other in document.probes:
        cuts[other.cell.length] = min(cuts.get(other.cell.length, other.cut_characters), other.cut_characters)
    least = document.body_start_characters
    ends = {_sentence_end(document.text, cut, least) for cut in cuts.values() if cut <= probe.cut_characters}
    alone = len(document.probes) == len(
        cuts
    )  # one question at each cut: no other question shares the end of the last one
    longest = max(cuts.values())
    if alone:
        ends.discard(_sentence_end(document.text, longest, least))
    return sorted(end for end in ends if end > least)


def _sentence_end(text: str, cut: int, least: int) -> int:
    """The last end of a sentence shortly before the cut, else the cut."""
    first = max(least, cut - SENTENCE_CHARACTERS)
    ends = [at + len(mark.rstrip(" ")) for mark in _SENTENCE_ENDS if (at := text.rfind(mark, first, cut)) >= 0]
    return max(ends, default=cut)
