"""Putting a document together piece by piece while its exact token count stays known.

Text is added at the end. Pieces whose joint is proven keep their known tokens; whatever stands at an unproven joint
(a planted fact, a cut sentence, the question) is tokenised together with its neighbours. So the tokens are always
those that the tokenizer gives for the whole text, and only a few sentences of it are ever tokenised again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from leadline.text.bank import FOLLOWER, CountedBank, encode_after, encode_between, ends_after, follower_ids

if TYPE_CHECKING:
    from leadline.core.types import Ids, Indices


@dataclass(frozen=True, slots=True)
class Mark:
    """A state to come back to."""

    chunks: int
    groups: int
    spans: int
    tokens: int
    characters: int
    open_text: str
    open_piece: int
    open_is_piece: bool


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of text whose place in tokens is wanted, by characters of the whole."""

    id: str
    start: int
    end: int


@dataclass(slots=True)
class Assembly:
    """A growing text. Everything before the open group is settled; the open group waits for what follows it."""

    counted: CountedBank
    _chunks: list[Ids] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _groups: list[tuple[int, int, str]] = field(default_factory=list)
    """(first token, first character, text) of groups that were tokenised here, to find spans in."""
    tokens: int = 0
    """Settled tokens."""
    characters: int = 0
    """Settled characters."""
    open_text: str = ""
    _open_piece: int = -1
    """The bank piece that the open group ends with, or -1."""
    _open_is_piece: bool = False
    """Whether the open group is that piece alone, whose tokens are known."""
    spans: list[Span] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Characters, the open group included."""
        return self.characters + len(self.open_text)

    def ends_with_space(self) -> bool:
        return self.open_text[-1:].isspace()

    def trailing_space(self) -> str:
        return self.open_text[len(self.open_text.rstrip()) :]

    def add_text(self, text: str, span: str = "") -> None:
        """Text with unproven joints on both sides."""
        if span:
            self.spans.append(Span(span, self.length, self.length + len(text)))
        self.open_text += text
        self._open_piece, self._open_is_piece = -1, False

    def add_pieces(self, order: Indices) -> None:
        """Pieces of the bank, in order."""
        if len(order) == 0:
            return
        if self._open_piece >= 0:
            sound = self.counted.joints(np.concatenate(([self._open_piece], order)))
        else:
            sound = np.concatenate(([False], self.counted.joints(order)))
        done = 0
        for joined in np.flatnonzero(~sound).tolist():  # order[joined] belongs to the group before it
            self._add_sound(order[done:joined])
            self._join(int(order[joined]))
            done = joined + 1
        self._add_sound(order[done:])

    def _add_sound(self, order: Indices) -> None:
        """Pieces whose joints are all proven: all but the last are settled in one go."""
        if len(order) == 0:
            return
        self._settle()
        if len(order) > 1:
            texts = self.counted.bank.pieces
            self._push(self.counted.gather(order[:-1]), "".join([texts[i] for i in order[:-1].tolist()]))
        self._join(int(order[-1]))

    def _join(self, piece: int) -> None:
        self._open_is_piece = not self.open_text and self.tokens > 0
        self.open_text += self.counted.bank.pieces[piece]
        self._open_piece = piece

    def _settle(self) -> None:
        """The open group's tokens are final: what follows it cannot change them."""
        if not self.open_text:
            return
        if self._open_is_piece:
            ids = self.counted.gather(np.array([self._open_piece]))
        else:
            self._groups.append((self.tokens, self.characters, self.open_text))
            ids = self._encode_followed(self.open_text)
        self._push(ids, self.open_text)
        self.open_text, self._open_piece, self._open_is_piece = "", -1, False

    def _push(self, ids: Ids, text: str) -> None:
        self._chunks.append(ids)
        self._texts.append(text)
        self.tokens += len(ids)
        self.characters += len(text)

    def encode_open(self, text: str) -> Ids:
        """The tokens from the last settled one on, if `text` stood there and nothing followed."""
        if self.tokens == 0:
            return self.counted.tokenizer.encode(text)
        return encode_after(self.counted.tokenizer, text)

    def _encode_followed(self, text: str) -> Ids:
        tokenizer = self.counted.tokenizer
        if self.tokens:
            return encode_between(tokenizer, text)
        follower = follower_ids(tokenizer)
        ids = tokenizer.encode(text + FOLLOWER)
        return ids[: -len(follower)] if np.array_equal(ids[-len(follower) :], follower) else tokenizer.encode(text)

    def mark(self) -> Mark:
        return Mark(
            len(self._chunks), len(self._groups), len(self.spans), self.tokens, self.characters,
            self.open_text, self._open_piece, self._open_is_piece,
        )  # fmt: skip

    def back_to(self, mark: Mark) -> None:
        del self._chunks[mark.chunks :]
        del self._texts[mark.chunks :]
        del self._groups[mark.groups :]
        del self.spans[mark.spans :]
        self.tokens, self.characters, self.open_text = mark.tokens, mark.characters, mark.open_text
        self._open_piece, self._open_is_piece = mark.open_piece, mark.open_is_piece

    def finish(self) -> tuple[str, Ids]:
        """The whole text and its tokens."""
        self._settle()
        ids = np.concatenate(self._chunks) if self._chunks else np.empty(0, np.int32)
        return "".join(self._texts), ids

    def token_at(self, character: int) -> int:
        """The first token that reaches past a character inside a group tokenised here (after `finish`)."""
        for first_token, first_character, text in reversed(self._groups):
            if first_character <= character <= first_character + len(text):
                return first_token + self._tokens_before(text, character - first_character, at_start=first_token == 0)
        return self.tokens

    def _tokens_before(self, text: str, character: int, *, at_start: bool) -> int:
        tokenizer = self.counted.tokenizer
        ends = tokenizer.ends(text) if at_start else ends_after(tokenizer, text)
        if ends is None:
            before = text[:character]
            return len(tokenizer.encode(before) if at_start else encode_after(tokenizer, before))
        return sum(1 for end in ends if end <= character)
