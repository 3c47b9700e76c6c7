"""Plain documents: a text of a corpus as the first so many tokens of one tokenizer, never decoded and encoded again."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.errors import SourceError, TokenizerError
from leadline.core.types import Frame
from leadline.text.corpora import Corpus

if TYPE_CHECKING:
    from leadline.core.types import Ids

_CHARACTERS_PER_TOKEN = 8
_EDGE = 32
"""Tokens at the end of a piece of text that might be others if the text went on."""


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text's own tokens after those that the tokenizer begins any text with, and where each of its own ends.

    `ids[before:]` are its own; `ends` are characters of `text`, one for each of them, or None when it cannot be told.
    """

    number: int
    """Of the document in its corpus."""
    text: str
    ids: Ids
    ends: tuple[int, ...] | None
    before: int

    @property
    def tokens(self) -> int:
        return len(self.ids) - self.before

    @property
    def own(self) -> Ids:
        return self.ids[self.before :]

    def cut(self, tokens: int) -> PlainText:
        """Its first tokens."""
        kept = min(tokens, self.tokens)
        ends = None if self.ends is None else self.ends[:kept]
        text = self.text[: ends[-1]] if ends else self.text
        return PlainText(self.number, text, self.ids[: self.before + kept], ends, self.before)

    def characters(self, start: int, stop: int) -> tuple[int, int]:
        """Where tokens from `start` to `stop` stand; (0, 0) when it cannot be told."""
        if self.ends is None:
            return 0, 0
        return (self.ends[start - 1] if start else 0), self.ends[stop - 1]

    def words(self, start: int, stop: int) -> str:
        first, last = self.characters(start, stop)
        return self.text[first:last]

    def utf8(self, start: int, stop: int) -> int:
        """Bytes of these tokens' text; 0 when it cannot be told."""
        return len(self.words(start, stop).encode("utf-8", "surrogatepass"))

    def tokens_in(self, marks: Iterable[tuple[int, int]]) -> list[int]:
        """The tokens that end inside stretches of characters."""
        if self.ends is None:
            raise TokenizerError(
                "this tokenizer does not say where its tokens end, so marked words cannot be found in it",
                where="tokenizer",
                fix="use the model's own tokenizer.json",
            )
        ends = self.ends
        return [t for start, stop in marks for t in range(bisect_right(ends, start), bisect_right(ends, stop))]


class Shelf:
    """The documents of a corpus that are long enough in a tokenizer, in their order, each encoded once.

    A document counts when it has at least `least` tokens; of longer ones the first `most` are kept.
    """

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, plain: Frame, *, least: int, most: int, seed: int) -> None:
        self._corpus = corpus
        self.tokenizer = tokenizer
        self._plain = plain
        self._least, self._most, self._seed = least, most, seed
        self._found: list[PlainText] = []
        self._more = self._search()
        self._guard = threading.Lock()
        self.passed_over = 0
        """Documents that were too short, so far."""

    def document(self, number: int) -> PlainText:
        with self._guard:
            while len(self._found) <= number:
                one = next(self._more, None)
                if one is None:
                    raise self._too_few(number + 1)
                self._found.append(one)
            return self._found[number]

    def _search(self) -> Iterator[PlainText]:
        number = 0
        while (text := self._corpus.text(number, tokens=self._most, seed=self._seed)) is not None:
            made = encode_plain(text, self.tokenizer, self._plain, most=self._most, number=number)
            if made.tokens >= self._least:
                yield made
            else:
                self.passed_over += 1
            number += 1

    def _too_few(self, wanted: int) -> SourceError:
        few = len(self._found)
        return SourceError(
            f"{self._corpus.name!r} has {few:,} document{'s' if few != 1 else ''} of {self._least:,} tokens or more "
            f"({self.passed_over:,} are shorter), and {wanted:,} are wanted",
            where="documents",
            fix=f"ask for {few:,} or fewer (--samples), for a shorter length, or give more text",
        )


_shelves: dict[tuple[object, ...], Shelf] = {}
_shelves_guard = threading.Lock()
_MOST_SHELVES = 8


def open_shelf(corpus: Corpus, tokenizer: Tokenizer, plain: Frame, *, least: int, most: int, seed: int) -> Shelf:
    """The shelf, the same one for equal arguments, so that no document is encoded twice in a run."""
    key = (corpus.name, corpus.digest, tokenizer.fingerprint, plain.fingerprint, least, most, seed)
    with _shelves_guard:
        if key not in _shelves:
            if len(_shelves) >= _MOST_SHELVES:
                del _shelves[next(iter(_shelves))]
            _shelves[key] = Shelf(corpus, tokenizer, plain, least=least, most=most, seed=seed)
        found = _shelves[key]
        found.tokenizer = tokenizer  # an equal one from an earlier run may be a server that is there no more
        return found


def encode_plain(text: str, tokenizer: Tokenizer, plain: Frame, *, most: int, number: int = 0) -> PlainText:
    """At most `most` tokens of a text. A very long one is not encoded much further than needed."""
    beginning = tokenizer.encode(plain.before)
    before = len(beginning)
    size = (most + _EDGE) * _CHARACTERS_PER_TOKEN
    while True:
        whole = plain.before + text[:size]
        ids = tokenizer.encode(whole)
        if size >= len(text) or len(ids) >= before + most + _EDGE:
            break
        size *= 2
    if not np.array_equal(ids[:before], beginning):
        raise TokenizerError(
            f"this tokenizer does not set {plain.before!r} apart from the text after it", where=tokenizer.fingerprint
        )
    ends = tokenizer.ends(whole)
    kept = np.ascontiguousarray(ids[: before + most])
    if ends is None or len(ends) != len(ids):
        return PlainText(number, text[:size], kept, None, before)
    own = tuple(end - len(plain.before) for end in ends[before : len(kept)])
    return PlainText(number, text[: own[-1]] if own else "", kept, own, before)
