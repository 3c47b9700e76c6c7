"""A numbered list of words with an exact number of tokens, in which some words are far more common than the others.

    1. lantern 2. ponder 3. lantern 4. rustic ...

Each common word occurs `often` times and each other word `seldom` times. Only the last few words of a segment occur
less often; they are selected so that the tokens add up. With several cuts, each cut contains its
share of the common words, more than `seldom` of each, so that they are the most common at every cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import PieceBank, SegmentSize
from leadline.core.seeds import Split, bulk_rng, digest_text
from leadline.tasks.placement import mix_around_depth, pick_sizes
from leadline.tasks.words import Vocabulary, english_count, list_words

if TYPE_CHECKING:
    from leadline.core.types import Indices

SIZES = (1 << 14, 1 << 17, 1 << 20, 1 << 23)
"""Lengths in tokens for which there is a bank. An entry has at least two tokens in every tokenizer."""
SPARE = 256
GIVEN_BACK = 6
MOST_CHOSEN = 24
"""The last GIVEN_BACK entries of a segment are replaced by up to MOST_CHOSEN entries, selected by token count from
SPARE words."""
PAD = " ..."
PADS = 24
"""PAD, at most PADS times, ends a list where no selection of words adds up (for example if every word is one token)."""


@dataclass(frozen=True, slots=True)
class _WordBank:
    bank: PieceBank
    entries: int
    """Pieces 0 .. entries - 1 are the numbers; the words follow, and the pad is the last piece."""
    words: int
    english: int


@cache
def _bank(size: int, seldom: int, vocabulary: Vocabulary, split: Split) -> _WordBank:
    entries = size // 2
    words = list_words(entries // seldom + 2 * SPARE, vocabulary, split)
    pieces = ["1.", *(f" {n}." for n in range(2, entries + 1)), *(f" {w}" for w in words), PAD]
    name = f"numbered list of {vocabulary} words"
    bank = PieceBank(name, digest_text("\n".join(pieces)), pieces, contiguous=False, uniform_joints=True)
    return _WordBank(bank, entries, len(words), english_count(vocabulary, split))


@dataclass(frozen=True, slots=True)
class _Used:
    """State after a segment: the other words that are left, the entries written, and the occurrences of each common
    word."""

    others: Indices
    entries: int = 0
    often: int = 0


@dataclass(frozen=True, slots=True)
class _ListFilling:
    """Content of one segment: `whole` of the other words, a few selected ones, then pads."""

    whole: int
    chosen: Indices
    pads: int


@dataclass(frozen=True, slots=True)
class WordList:
    """The list of one document."""

    longest: int
    """The longest length in tokens."""
    growth: float
    """Longest length divided by the shortest."""
    segments: int
    common: int
    often: int
    seldom: int
    seed: int
    depth: float | None
    spread: float
    vocabulary: Vocabulary
    split: Split

    @property
    def bank(self) -> PieceBank:
        return self._bank.bank

    @property
    def _bank(self) -> _WordBank:
        size = next((s for s in SIZES if s >= self.longest), self.longest)
        return _bank(size, self.seldom, self.vocabulary, self.split)

    def _often_by(self, segment: int) -> int:
        """Occurrences of a common word up to the end of a segment."""
        return max(-(-self.often * (segment + 1) // self.segments), self.seldom + 1)

    def least(self, counts: Indices) -> int:
        entries = self.common * self._often_by(0)
        words = counts[self._bank.entries :][: max(self._bank.english, SPARE)]
        return int(counts[:entries].sum()) + int(entries * float(words.mean()))

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        size = self._pool_size(segment_sizes[0].tokens, counts)
        while True:
            segments = self._composed(size, segment_sizes, counts)
            if segments is not None or size == self._bank.words:
                return segments
            size = min(2 * size, self._bank.words)  # too few words

    def _pool_size(self, room: int, counts: Indices) -> int:
        """The smallest part of the pool with enough words: the English ones, or twice as many, and so on."""
        bank = self._bank
        size = min(max(bank.english, SPARE + self.common), bank.words)
        while size < bank.words:
            word = float(counts[bank.entries : bank.entries + size].mean())
            entries = room / (1 + word)
            for _ in range(2):  # numbers grow with the list
                entries = min(room / (float(counts[: max(int(entries), 1)].mean()) + word), bank.entries)
            needed = 1.05 * (entries - self.common * self._often_by(0)) / self.seldom + self.common + SPARE
            if needed * self.growth + MOST_CHOSEN * self.segments <= size:
                break
            size = min(2 * size, bank.words)
        return size

    def _composed(self, size: int, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        # Shuffled; the common words come first, so they are drawn like all others.
        words: Indices = bulk_rng(self.seed, "words", size).permutation(size) + self._bank.entries
        common, used, segments = words[: self.common], _Used(words[self.common :]), []
        for number, (room, again) in enumerate(segment_sizes):
            times = self._often_by(number) - used.often
            filling = self._fill(common, room, counts, used, times)
            if filling is None and number:
                times = 0  # too short for its share of the common words; the next segment has them
                filling = self._fill(common, room, counts, used, times)
            if filling is None:
                return None
            draw = bulk_rng(self.seed, "order", number, again)
            segments.append(self._laid(common, filling, used, times, draw))
            used = self._after(filling, used, times)
        return segments

    def _fitting(self, common: Indices, room: int, counts: Indices, used: _Used, times: int) -> Indices | None:
        """Tokens of the common words with 0, 1, 2 ... of the other words, as far as they fit."""
        fixed = self.common * times
        numbers = np.concatenate(([0], np.cumsum(counts[used.entries : self._bank.entries])))[fixed :: self.seldom]
        most = min(len(numbers) - 1 - MOST_CHOSEN, len(used.others) - SPARE, room // self.seldom)
        if most < 0:
            return None
        total = numbers[: most + 1] + times * int(counts[common].sum())
        total[1:] += self.seldom * np.cumsum(counts[used.others[:most]])
        fitting: Indices = total[: int(np.searchsorted(total, room, side="right"))]
        return fitting if len(fitting) else None

    def _fill(self, common: Indices, room: int, counts: Indices, used: _Used, times: int) -> _ListFilling | None:
        """As many of the other words as fit, and a selection that makes the tokens add up."""
        fitting = self._fitting(common, room, counts, used, times)
        if fitting is None:
            return None
        whole = max(len(fitting) - 1 - -(-GIVEN_BACK // self.seldom), 0)
        spare = counts[used.others[whole : whole + SPARE]]
        entries = used.entries + self.common * times + self.seldom * whole
        numbers = np.concatenate(([0], np.cumsum(counts[entries : entries + MOST_CHOSEN])))
        return self._choose(whole, spare, numbers, room - int(fitting[whole]), int(counts[-1]))

    def _choose(self, whole: int, spare: Indices, numbers: Indices, rest: int, pad: int) -> _ListFilling | None:
        """Selects words for the remaining tokens. `numbers[n]` are the tokens of n further entry numbers."""
        smallest, largest = int(spare.min()), int(spare.max())
        for pads in range(PADS + 1):
            left = rest - pads * pad - numbers
            possible = (np.arange(len(left)) * smallest <= left) & (left <= np.arange(len(left)) * largest)
            for count in np.flatnonzero(possible).tolist():
                chosen = pick_sizes(spare, count, int(left[count]))
                if chosen is not None:
                    return _ListFilling(whole, chosen, pads)
        return None

    def _after(self, filling: _ListFilling, used: _Used, times: int) -> _Used:
        entries = self.common * times + self.seldom * filling.whole + len(filling.chosen)
        left = np.delete(used.others[filling.whole :], filling.chosen)
        return _Used(left, used.entries + entries, used.often + times)

    def _laid(
        self, common: Indices, filling: _ListFilling, used: _Used, times: int, draw: np.random.Generator
    ) -> Indices:
        """The pieces of a segment: number, word, number, word ..."""
        listed = mix_around_depth(
            np.repeat(common, times),
            np.repeat(used.others[: filling.whole], self.seldom),
            self.depth,
            self.spread,
            draw,
        )
        listed = np.concatenate([listed, used.others[filling.whole :][filling.chosen]])
        pieces = np.empty(2 * len(listed) + filling.pads, np.int64)
        pieces[0 : 2 * len(listed) : 2] = used.entries + np.arange(len(listed))
        pieces[1 : 2 * len(listed) : 2] = listed
        pieces[2 * len(listed) :] = len(self.bank.pieces) - 1
        return pieces
