"""Putting a document together piece by piece while its exact token count stays known.

Text is added at the end. Where the tokenizer is proven to split at a joint, both sides keep their known tokens; where
it does not, they are tokenised together. So the tokens are always those that the tokenizer gives for the whole text,
and only a few sentences of it are ever tokenised again.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from leadline.text.fitting.bank import CountedBank

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
    open_ids: Ids | None
    open_piece: int


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
    tokens: int = 0
    """Settled tokens."""
    characters: int = 0
    """Settled characters."""
    open_text: str = ""
    spans: list[Span] = field(default_factory=list)
    _open_ids: Ids | None = None
    """The open group's tokens when more text follows, once they are known."""
    _open_piece: int = -1
    """The bank piece that the open group ends with, or -1."""
    _chunks: list[Ids] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)
    _groups: list[tuple[int, int, str]] = field(default_factory=list)
    """(first token, first character, text) of what did not come from the bank, to find spans in."""

    @property
    def length(self) -> int:
        """Characters, the open group included."""
        return self.characters + len(self.open_text)

    @property
    def token_count(self) -> int:
        """Tokens, the open group included, when more text follows."""
        return self.tokens + len(self._open())

    def ends_with_space(self) -> bool:
        return self.open_text[-1:].isspace()

    def trailing_space(self) -> str:
        return self.open_text[len(self.open_text.rstrip()) :]

    def add_text(self, text: str, span: str = "") -> None:
        """Text that is not in the bank; `span` names it, to be found again."""
        if not text:
            return
        if span:
            self.spans.append(Span(span, self.length, self.length + len(text)))
        ids = self.counted.encode(text, first=self.length == 0, followed=True)
        if self._splits_before(text, ids):
            self._settle()
            self.open_text, self._open_ids = text, ids
        else:
            self.open_text += text
            self._open_ids = None if self.length > len(text) else ids
        self._open_piece = -1

    def add_pieces(self, order: Indices) -> None:
        """Pieces of the bank, in order. Those between which the tokenizer does not split are a group of its own."""
        if len(order) == 0:
            return
        sound = self.counted.joints(order)
        if sound.all():
            first = 0 if self._splits_before_piece(int(order[0])) else 1
            for piece in order[:first].tolist():
                self._join(piece)
            self._add_sound(order[first:])
            return
        groups = np.concatenate(([0], np.flatnonzero(sound) + 1, [len(order)]))
        if not self._splits_before_piece(int(order[0])):
            for piece in order[: groups[1]].tolist():
                self._join(piece)
            order, groups = order[groups[1] :], groups[1:] - groups[1]
        if len(order):
            self._add_groups(order, groups)

    def _add_groups(self, order: Indices, groups: Indices) -> None:
        """Groups of pieces with sound joints between them: all but the last are settled in one go."""
        self._settle()
        bounds, pieces = groups.tolist(), self.counted.texts(order)
        texts = ["".join(pieces[a:b]) for a, b in itertools.pairwise(bounds)]
        together = [n for n in range(len(texts) - 1) if bounds[n + 1] - bounds[n] > 1]
        encoded = dict(zip(together, self.counted.encode_many([texts[n] for n in together]), strict=True))
        ids = [encoded[n] if n in encoded else self.counted.piece(int(order[bounds[n]])) for n in range(len(texts) - 1)]
        if ids:
            self._push(np.concatenate(ids), "".join(texts[:-1]))
        for piece in order[bounds[-2] :].tolist():
            self._join(piece)

    def _splits_before_piece(self, piece: int) -> bool:
        if self._open_piece >= 0:
            return bool(self.counted.joints(np.array([self._open_piece, piece]))[0])
        return self._splits_before(self.counted.bank.pieces[piece], self.counted.piece(piece))

    def _splits_before(self, text: str, ids: Ids) -> bool:
        """Whether the open group and `text` may stand side by side with the tokens they have."""
        return bool(self.open_text) and self.counted.splits(self.open_text, self._open(), text, ids)

    def _add_sound(self, order: Indices) -> None:
        """Pieces whose joints are all proven: all but the last are settled in one go."""
        if len(order) == 0:
            return
        self._settle()
        if len(order) > 1:
            self._push(*self.counted.gather(order[:-1]))
        self._join(int(order[-1]))

    def _join(self, piece: int) -> None:
        alone = not self.open_text and self.tokens > 0
        self.open_text += self.counted.bank.pieces[piece]
        self._open_ids = self.counted.piece(piece) if alone else None
        self._open_piece = piece

    def _open(self) -> Ids:
        if self._open_ids is None:
            self._open_ids = self.counted.encode(self.open_text, first=self.tokens == 0, followed=True)
        return self._open_ids

    def _settle(self) -> None:
        """The open group's tokens are final: what follows it cannot change them."""
        if not self.open_text:
            return
        self._groups.append((self.tokens, self.characters, self.open_text))
        self._push(self._open(), self.open_text)
        self.open_text, self._open_ids, self._open_piece = "", None, -1

    def _push(self, ids: Ids, text: str) -> None:
        self._chunks.append(ids)
        self._texts.append(text)
        self.tokens += len(ids)
        self.characters += len(text)

    def closed_with(self, text: str, leave_off: int = 0) -> Ids:
        """The tokens from the last settled one on, if `text` ended the whole, some characters before it left off."""
        if not leave_off:
            ids = self.counted.encode(text)
            if self._splits_before(text, ids):
                return np.concatenate([self._open(), ids])
        kept = self.open_text[: len(self.open_text) - leave_off]
        return self.counted.encode(kept + text, first=self.tokens == 0)

    def mark(self) -> Mark:
        return Mark(
            len(self._chunks), len(self._groups), len(self.spans), self.tokens, self.characters,
            self.open_text, self._open_ids, self._open_piece,
        )  # fmt: skip

    def back_to(self, mark: Mark) -> None:
        del self._chunks[mark.chunks :]
        del self._texts[mark.chunks :]
        del self._groups[mark.groups :]
        del self.spans[mark.spans :]
        self.tokens, self.characters, self.open_text = mark.tokens, mark.characters, mark.open_text
        self._open_ids, self._open_piece = mark.open_ids, mark.open_piece

    def finish(self) -> tuple[str, Ids]:
        """The whole text and its tokens."""
        self._settle()
        ids = np.concatenate(self._chunks) if self._chunks else np.empty(0, np.int32)
        return "".join(self._texts), ids

    def token_at(self, character: int) -> int:
        """The first token that reaches past a character where a text was added (after `finish`)."""
        for first_token, first_character, text in reversed(self._groups):
            if first_character <= character < first_character + len(text):
                if character == first_character:
                    return first_token
                return first_token + self._tokens_before(text, character - first_character, first=first_token == 0)
        nearest = bisect_right([g[1] for g in self._groups], character) - 1
        first_token, first_character, text = self._groups[nearest]
        return first_token + self._tokens_before(text, len(text), first=first_token == 0)

    def _tokens_before(self, text: str, character: int, *, first: bool) -> int:
        if character == len(text):
            return len(self.counted.encode(text, first=first, followed=True))
        ends = self.counted.ends(text, first=first)
        if ends is None:
            return len(self.counted.encode(text[:character], first=first))
        return bisect_right(ends, character)
