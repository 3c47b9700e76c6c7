"""A numbered list of words, some of which stand in it far more often than the others, written to measure.

    1. lantern 2. ponder 3. lantern 4. rustic ...

Each common word stands `often` times and each other word `seldom` times; only the last few words of a stretch stand
less often, chosen so that the tokens add up. In a list that is asked at several cuts every cut holds its share of the
common words, more than `seldom` of each, so that they are the most common ones at every cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.digest import digest_text
from leadline.core.seeds import Split, bulk_rng
from leadline.core.types import PieceBank, Room
from leadline.tasks.placement import mix_around_depth, pick_sizes
from leadline.tasks.words import Vocabulary, english_count, list_words

if TYPE_CHECKING:
    from leadline.core.types import Indices

SIZES = (1 << 14, 1 << 17, 1 << 20, 1 << 23)
"""Lengths in tokens for which there is a bank. An entry has at least two tokens in any tokenizer."""
SPARE = 256
GIVEN_BACK = 6
MOST_CHOSEN = 24
"""The last few entries of a stretch give way to some that are chosen for their tokens: from so many words, in place of
about so many entries, and never more than so many."""
PAD = " ..."
PADS = 24
"""Ends a list where no choice of words adds up, as where every word is one token; at most so often."""


@dataclass(frozen=True, slots=True)
class _Bank:
    bank: PieceBank
    entries: int
    """Pieces 0 .. entries - 1 are the numbers; the words follow, and the pad is the last piece."""
    words: int
    english: int


@cache
def _bank(size: int, seldom: int, vocabulary: Vocabulary, split: Split) -> _Bank:
    entries = size // 2
    words = list_words(entries // seldom + 2 * SPARE, vocabulary, split)
    pieces = ["1.", *(f" {n}." for n in range(2, entries + 1)), *(f" {w}" for w in words), PAD]
    name = f"numbered list of {vocabulary} words"
    bank = PieceBank(name, digest_text("\n".join(pieces)), pieces, contiguous=False, alike=True)
    return _Bank(bank, entries, len(words), english_count(vocabulary, split))


@dataclass(frozen=True, slots=True)
class _Spent:
    """What the stretches so far have used up: numbers, the times that each common word may stand, and the other words,
    of which these are left."""

    others: Indices
    entries: int = 0
    often: int = 0


@dataclass(frozen=True, slots=True)
class _Filling:
    """How one stretch is filled: so many of the other words, and a few chosen ones, then pads."""

    whole: int
    chosen: Indices
    pads: int


@dataclass(frozen=True, slots=True)
class WordList:
    """The list of one document."""

    longest: int
    """Tokens of the longest length it is made for."""
    growth: float
    """How many times longer that is than the shortest."""
    stretches: int
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
    def _bank(self) -> _Bank:
        size = next((s for s in SIZES if s >= self.longest), self.longest)
        return _bank(size, self.seldom, self.vocabulary, self.split)

    def _often_by(self, stretch: int) -> int:
        """How often a common word stands up to the end of a stretch."""
        return max(-(-self.often * (stretch + 1) // self.stretches), self.seldom + 1)

    def least(self, counts: Indices) -> int:
        entries = self.common * self._often_by(0)
        words = counts[self._bank.entries :][: max(self._bank.english, SPARE)]
        return int(counts[:entries].sum()) + int(entries * float(words.mean()))

    def compose(self, rooms: Sequence[Room], counts: Indices) -> list[Indices] | None:
        size = self._pool_size(rooms[0].tokens, counts)
        while True:
            stretches = self._composed(size, rooms, counts)
            if stretches is not None or size == self._bank.words:
                return stretches
            size = min(2 * size, self._bank.words)  # too few words after all

    def _pool_size(self, room: int, counts: Indices) -> int:
        """As small a part of the pool as holds enough words: the English ones, or twice as many, or twice that ..."""
        bank = self._bank
        size = min(max(bank.english, SPARE + self.common), bank.words)
        while size < bank.words:
            word = float(counts[bank.entries : bank.entries + size].mean())
            entries = room / (1 + word)
            for _ in range(2):  # numbers grow with the list
                entries = min(room / (float(counts[: max(int(entries), 1)].mean()) + word), bank.entries)
            needed = 1.05 * (entries - self.common * self._often_by(0)) / self.seldom + self.common + SPARE
            if needed * self.growth + MOST_CHOSEN * self.stretches <= size:
                break
            size = min(2 * size, bank.words)
        return size

    def _composed(self, size: int, rooms: Sequence[Room], counts: Indices) -> list[Indices] | None:
        # In a drawn order, the common words first: they are of the same kinds as the others.
        words: Indices = bulk_rng(self.seed, "words", size).permutation(size) + self._bank.entries
        common, spent, stretches = words[: self.common], _Spent(words[self.common :]), []
        for number, (room, again) in enumerate(rooms):
            times = self._often_by(number) - spent.often
            filling = self._fill(common, room, counts, spent, times)
            if filling is None and number:
                times = 0  # too short for its share of the common words: the next stretch makes up for it
                filling = self._fill(common, room, counts, spent, times)
            if filling is None:
                return None
            draw = bulk_rng(self.seed, "order", number, again)
            stretches.append(self._laid(common, filling, spent, times, draw))
            spent = self._after(filling, spent, times)
        return stretches

    def _fitting(self, common: Indices, room: int, counts: Indices, spent: _Spent, times: int) -> Indices | None:
        """Tokens of the common words alone, then with one more of the other words each, as far as they fit."""
        fixed = self.common * times
        numbers = np.concatenate(([0], np.cumsum(counts[spent.entries : self._bank.entries])))[fixed :: self.seldom]
        most = min(len(numbers) - 1 - MOST_CHOSEN, len(spent.others) - SPARE, room // self.seldom)
        if most < 0:
            return None
        total = numbers[: most + 1] + times * int(counts[common].sum())
        total[1:] += self.seldom * np.cumsum(counts[spent.others[:most]])
        fitting: Indices = total[: int(np.searchsorted(total, room, side="right"))]
        return fitting if len(fitting) else None

    def _fill(self, common: Indices, room: int, counts: Indices, spent: _Spent, times: int) -> _Filling | None:
        """As many of the other words as fit beside the common ones, and the choice that makes the tokens add up."""
        fitting = self._fitting(common, room, counts, spent, times)
        if fitting is None:
            return None
        whole = max(len(fitting) - 1 - -(-GIVEN_BACK // self.seldom), 0)
        spare = counts[spent.others[whole : whole + SPARE]]
        entries = spent.entries + self.common * times + self.seldom * whole
        numbers = np.concatenate(([0], np.cumsum(counts[entries : entries + MOST_CHOSEN])))
        return self._choose(whole, spare, numbers, room - int(fitting[whole]), int(counts[-1]))

    def _choose(self, whole: int, spare: Indices, numbers: Indices, rest: int, pad: int) -> _Filling | None:
        """Words to take up the rest of the tokens. `numbers[n]` are the tokens of n further numbers."""
        smallest, largest = int(spare.min()), int(spare.max())
        for pads in range(PADS + 1):
            left = rest - pads * pad - numbers
            possible = (np.arange(len(left)) * smallest <= left) & (left <= np.arange(len(left)) * largest)
            for count in np.flatnonzero(possible).tolist():
                chosen = pick_sizes(spare, count, int(left[count]))
                if chosen is not None:
                    return _Filling(whole, chosen, pads)
        return None

    def _after(self, filling: _Filling, spent: _Spent, times: int) -> _Spent:
        entries = self.common * times + self.seldom * filling.whole + len(filling.chosen)
        left = np.delete(spent.others[filling.whole :], filling.chosen)
        return _Spent(left, spent.entries + entries, spent.often + times)

    def _laid(
        self, common: Indices, filling: _Filling, spent: _Spent, times: int, draw: np.random.Generator
    ) -> Indices:
        """The pieces of a stretch: number and word, number and word ..."""
        listed = mix_around_depth(
            np.repeat(common, times),
            np.repeat(spent.others[: filling.whole], self.seldom),
            self.depth,
            self.spread,
            draw,
        )
        listed = np.concatenate([listed, spent.others[filling.whole :][filling.chosen]])
        pieces = np.empty(2 * len(listed) + filling.pads, np.int64)
        pieces[0 : 2 * len(listed) : 2] = spent.entries + np.arange(len(listed))
        pieces[1 : 2 * len(listed) : 2] = listed
        pieces[2 * len(listed) :] = len(self.bank.pieces) - 1
        return pieces
