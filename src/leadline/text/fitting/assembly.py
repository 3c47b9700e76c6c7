"""Assembling a document piece by piece while its exact token count stays known, and the probes that end it.

Text is added at the end. Where the joint is sound, both sides keep their known tokens; elsewhere they are tokenised
together. So the tokens are always those that the tokenizer gives for the whole text, and only a few sentences of it are
ever tokenised again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leadline.core.drafts import DraftQuestion
from leadline.core.types import Frame, Probe
from leadline.text.fitting.bank import CountedBank

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids, Indices


class Span(NamedTuple):
    """A named stretch of text, by characters of the whole."""

    id: str
    start: int
    end: int


class Checkpoint(NamedTuple):
    """A state of an assembly to return to."""

    chunks: tuple[tuple[Ids, str] | Indices, ...]
    firsts: tuple[int, ...]
    groups: tuple[tuple[int, int, str], ...]
    spans: tuple[Span, ...]
    tokens: int
    characters: int
    open_text: str
    open_ids: Ids | None
    open_piece: int


@dataclass(slots=True)
class Assembly:
    """A growing text. The tokens before the open group are final; those of the open group depend on what follows."""

    counted: CountedBank
    tokens: int = 0
    """Final tokens."""
    characters: int = 0
    """Characters of the final tokens."""
    open_text: str = ""
    spans: list[Span] = field(default_factory=list)
    _open_ids: Ids | None = None
    """The open group's tokens if more text follows, once they are known."""
    _open_piece: int = -1
    """The bank piece that the open group ends with, or -1."""
    _chunks: list[tuple[Ids, str] | Indices] = field(default_factory=list)
    """Tokens with their text, or pieces of the bank whose tokens and text are put together at the end."""
    _firsts: list[int] = field(default_factory=list)
    """The number of the first token of each chunk."""
    _groups: list[tuple[int, int, str]] = field(default_factory=list)
    """(first token, first character, text) of text that did not come from the bank, to locate spans."""

    @property
    def length(self) -> int:
        """Characters, including the open group."""
        return self.characters + len(self.open_text)

    @property
    def token_count(self) -> int:
        """Tokens, including the open group, if more text follows."""
        return self.tokens + len(self._open())

    def ends_with_space(self) -> bool:
        return self.open_text[-1:].isspace()

    def trailing_space(self) -> str:
        return self.open_text[len(self.open_text.rstrip()) :]

    def add_text(self, text: str, span: str = "") -> None:
        """Adds text that is not in the bank. `span` is the name under which it is located later."""
        if not text:
            return
        if span:
            self.spans.append(Span(span, self.length, self.length + len(text)))
        ids = self.counted.context.encode(text, first=self.length == 0, followed=True)
        if self._splits_before(text, ids):
            self._close_group()
            self.open_text, self._open_ids = text, ids
        else:
            self.open_text += text
            self._open_ids = None if self.length > len(text) else ids
        self._open_piece = -1

    def add_pieces(self, order: Indices, sound: npt.NDArray[np.bool_]) -> None:
        """Adds pieces of the bank, in order. `sound` has for each but the last whether its joint with the next one is.
        Pieces with an unsound joint are tokenised together, as a group."""
        if len(order) == 0:
            return
        if not self._splits_before_piece(int(order[0])):
            first = int(sound.argmax()) + 1 if sound.any() else len(order)  # pieces of the open group
            for piece in order[:first].tolist():
                self._extend_group(piece)
            order, sound = order[first:], sound[first:]
            if len(order) == 0:
                return
        self._close_group()
        if sound.all():
            if len(order) > 1:
                whole = order[:-1]
                self._chunks.append(whole)
                self._firsts.append(self.tokens)
                self.tokens += int(self.counted.counts[whole].sum())
                self.characters += int(self.counted.lengths[whole].sum())
            self._extend_group(int(order[-1]))
        else:
            self._add_groups(order, np.concatenate(([0], sound.nonzero()[0] + 1, [len(order)])))

    def _add_groups(self, order: Indices, groups: Indices) -> None:
        """Adds groups of pieces with sound joints between them; all but the last are final."""
        if len(groups) > 2:
            self._push(*self.counted.gather_groups(order, groups[:-1]))
        for piece in order[groups[-2] :].tolist():
            self._extend_group(piece)

    def _splits_before_piece(self, piece: int) -> bool:
        if self._open_piece >= 0:
            return bool(self.counted.joints(np.array([self._open_piece, piece]))[0])
        return self._splits_before(self.counted.bank.pieces[piece], self.counted.piece(piece))

    def _splits_before(self, text: str, ids: Ids) -> bool:
        """Whether the joint of the open group and `text` is sound."""
        return bool(self.open_text) and self.counted.splits(self.open_text, self._open(), text, ids)

    def _extend_group(self, piece: int) -> None:
        alone = not self.open_text and self.tokens > 0
        self.open_text += self.counted.bank.pieces[piece]
        self._open_ids = self.counted.piece(piece) if alone else None
        self._open_piece = piece

    def _open(self) -> Ids:
        if self._open_ids is None:
            self._open_ids = self.counted.context.encode(self.open_text, first=self.tokens == 0, followed=True)
        return self._open_ids

    def _close_group(self) -> None:
        """Makes the open group's tokens final, as what follows cannot change them."""
        if not self.open_text:
            return
        self._groups.append((self.tokens, self.characters, self.open_text))
        self._push(self._open(), self.open_text)
        self.open_text, self._open_ids, self._open_piece = "", None, -1

    def _push(self, ids: Ids, text: str) -> None:
        self._chunks.append((ids, text))
        self._firsts.append(self.tokens)
        self.tokens += len(ids)
        self.characters += len(text)

    def suffix_ids(self, text: str, leave_off: int = 0) -> Ids:
        """The tokens after the final ones if `text` ended the prompt, after leaving off some characters before it."""
        if not leave_off:
            ids = self.counted.context.encode(text)
            if self._splits_before(text, ids):
                return np.concatenate([self._open(), ids])
        kept = self.open_text[: len(self.open_text) - leave_off]
        return self.counted.context.encode(kept + text, first=self.tokens == 0)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            tuple(self._chunks), tuple(self._firsts), tuple(self._groups), tuple(self.spans), self.tokens,
            self.characters, self.open_text, self._open_ids, self._open_piece,
        )  # fmt: skip

    def restore(self, state: Checkpoint) -> None:
        self._chunks, self._firsts = list(state.chunks), list(state.firsts)
        self._groups, self.spans = list(state.groups), list(state.spans)
        self.tokens, self.characters, self.open_text = state.tokens, state.characters, state.open_text
        self._open_ids, self._open_piece = state.open_ids, state.open_piece

    def finish(self) -> str:
        """The whole text."""
        self._close_group()
        texts: list[str] = []
        for chunk in self._chunks:
            texts += (chunk[1],) if isinstance(chunk, tuple) else self.counted.texts(chunk)
        return "".join(texts)

    def ids(self) -> Ids:
        """The tokens of the whole text (after `finish`)."""
        return self._joined(self._chunks)

    def ids_from(self, start: int, count: int) -> Ids:
        """Some tokens of the whole text, from number `start` on (after `finish`)."""
        first = bisect_right(self._firsts, start) - 1
        last, start = first + 1, start - self._firsts[first]
        while len(ids := self._joined(self._chunks[first:last])) < start + count and last < len(self._chunks):
            last += 1
        return ids[start : start + count]

    def _joined(self, chunks: Sequence[tuple[Ids, str] | Indices]) -> Ids:
        ids: list[bytes] = []
        for chunk in chunks:
            ids += (chunk[0].tobytes(),) if isinstance(chunk, tuple) else self.counted.id_parts(chunk)
        return np.frombuffer(bytearray().join(ids), np.int32)

    def token_at(self, character: int) -> int:
        """The first token that ends after a character at which a text was added (after `finish`)."""
        nearest = bisect_right(self._groups, character, key=itemgetter(1)) - 1
        first_token, first_character, text = self._groups[nearest]
        within = min(character - first_character, len(text))
        return first_token + (self._tokens_before(text, within, first=first_token == 0) if within else 0)

    def _tokens_before(self, text: str, character: int, *, first: bool) -> int:
        context = self.counted.context
        if character == len(text):
            return len(context.encode(text, first=first, followed=True))
        ends = context.ends(text, first=first)
        if ends is None:
            return len(context.encode(text[:character], first=first))
        return bisect_right(ends, character)


# --- probes: questions at the end of a text


def prompt_suffix(question: DraftQuestion, frame: Frame) -> tuple[str, str]:
    """The end of the user's turn, and the whole prompt from there on: question, template and answer prefix."""
    text, prefix = question.text, question.answer_prefix
    # A line break where no template separates the question from the beginning of its answer.
    gap = "\n" if text and prefix and not (text[-1].isspace() or prefix[0].isspace()) else ""
    if frame.prefill:
        tail = text + ("" if frame.after else gap)
        return tail, tail + frame.after + prefix
    tail = (text + gap + prefix).rstrip()
    return tail, tail + frame.after


def make_probe(
    question: DraftQuestion,
    text: str,
    user_suffix: str,
    suffix_ids: Ids,
    *,
    cut: int,
    cut_characters: int,
    body: int,
    prompt_tokens: int,
    body_tokens: int,
) -> Probe:
    """The probe of a question; `text` from character `body` to the cut is what targets may be counted in."""
    return Probe(
        cell=question.cell,
        question=question.resolve(text[body:cut_characters] if question.is_counted else ""),
        cut=cut,
        cut_characters=cut_characters,
        user_suffix=user_suffix,
        suffix_ids=suffix_ids,
        prompt_tokens=prompt_tokens,
        body_tokens=body_tokens,
        correction=question.correction,
    )


def common_start(left: Ids, right: Ids) -> int:
    """The number of tokens that two texts begin with in common."""
    size = min(len(left), len(right))
    same = left[:size] == right[:size]
    return size if bool(np.all(same)) else int(same.argmin())
