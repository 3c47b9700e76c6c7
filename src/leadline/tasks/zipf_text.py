"""A text of coded words with an exact number of tokens, whose frequencies fall off as a power of their rank.

The word of rank k occurs floor(N k^-alpha / zeta(alpha)) times among N words, as in RULER (arXiv 2404.06654, section
3.3). The first rank is noise. Every cut of the text follows the same law with its own N, so the most frequent words are
the same at every cut, and no other word is ever as frequent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from string import ascii_lowercase
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import PieceBank, SegmentSize
from leadline.core.seeds import Split, bulk_rng, digest_text, rng, split_of
from leadline.tasks.placement import mix_around_depth, pick_sizes

if TYPE_CHECKING:
    from leadline.core.types import Indices

BARE_NOISE, NOISE, DOT, FIRST_WORD = 0, 1, 2, 3
"""Pieces of the bank: the noise at the beginning of a text, the noise elsewhere, a dot without a space, the words."""
WORDS = 4096
"""Words in a bank, unless a text needs more."""
SPARE = 256
MOST_CHOSEN = 8
MOST_DOTS = 7
GIVEN_BACK = 24
"""The remaining tokens of a segment are filled with noise and up to MOST_CHOSEN words that occur once, from SPARE
candidates, if necessary in a text up to GIVEN_BACK words shorter. If all of these have an even number of tokens, as in
bytes, up to MOST_DOTS dots end the segment."""
LEAST_COUNT = 2
"""Least occurrences of the words asked for, so that a word that occurs once is never as frequent."""


@cache
def zeta(alpha: float) -> float:
    """Riemann's zeta function for alpha > 1, by the Euler-Maclaurin formula. Importing scipy for it takes longer than
    building a document."""
    cut = 64.0
    slope = alpha * math.pow(cut, -alpha - 1)
    rest = math.pow(cut, 1 - alpha) / (alpha - 1) + math.pow(cut, -alpha) / 2 + slope / 12
    return (
        sum(math.pow(k, -alpha) for k in range(1, int(cut))) + rest - slope * (alpha + 1) * (alpha + 2) / (720 * cut**2)
    )


@cache
def _bank(words: int, letters: int, noise: str, split: Split) -> PieceBank:
    draw = rng("coded words", letters)
    codes: dict[str, None] = {}
    while len(codes) < words:
        code = "".join(draw.choices(ascii_lowercase, k=letters))
        if split_of(code) == split:
            codes[code] = None
    pieces = [noise, f" {noise}", ".", *(f" {code}" for code in codes)]
    return PieceBank(
        f"coded words of {letters} letters",
        digest_text("\n".join(pieces)),
        pieces,
        contiguous=False,
        uniform_joints=True,
    )


@dataclass(frozen=True, slots=True)
class _TextFilling:
    """Occurrences of each rank up to the end of a segment, and what fills the remaining tokens."""

    occurrences: Indices
    noise: int
    singles: Indices


@dataclass(frozen=True, slots=True)
class ZipfText:
    """The text of one document."""

    ranks: int
    """Number of different words, noise included."""
    alpha: float
    letters: int
    top: int
    """Words asked for: ranks 2 .. top + 1."""
    noise: str
    seed: int
    depth: float | None
    spread: float
    split: Split

    @property
    def bank(self) -> PieceBank:
        words = WORDS
        while words < self.ranks + SPARE:
            words *= 2
        return _bank(words, self.letters, self.noise, self.split)

    def occurrences(self, size: float) -> Indices:
        """Occurrences of each rank in a text of about `size` words."""
        ranks = np.arange(1, self.ranks + 1, dtype=np.float64)
        times = np.floor(size * ranks**-self.alpha / zeta(self.alpha)).astype(np.int64)
        times[self.top + 1 :] = np.minimum(times[self.top + 1 :], max(int(times[self.top]) - 1, 0))
        return times

    @property
    def _least_size(self) -> float:
        """Words that a text needs for the words asked for to occur LEAST_COUNT times."""
        return float(np.ceil(LEAST_COUNT * zeta(self.alpha) * (self.top + 1) ** self.alpha)) + 1

    def least(self, counts: Indices) -> int:
        pieces = np.concatenate(([NOISE], self._codes()[: self.ranks - 1]))
        return int(self.occurrences(self._least_size + GIVEN_BACK) @ counts[pieces])

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        codes = self._codes()
        pieces = np.concatenate(([NOISE], codes[: self.ranks - 1]))
        spare = codes[self.ranks - 1 :]
        segments = []
        before = np.zeros(self.ranks, np.int64)
        for number, (room, again) in enumerate(segment_sizes):
            if number == 0:
                room += int(counts[NOISE] - counts[BARE_NOISE])
            sizes, singles, dot = counts[pieces], counts[spare[:SPARE]], int(counts[DOT])
            fillings = (self._fill(before, room - dots * dot, sizes, singles) for dots in range(MOST_DOTS + 1))
            dots, filling = next(((n, f) for n, f in enumerate(fillings) if f is not None), (0, None))
            if filling is None:
                return None
            further = np.concatenate([np.full(filling.noise, NOISE), spare[filling.singles]])
            laid = self._laid(pieces, filling.occurrences - before, further, number, again)
            segments.append(np.concatenate([laid, np.full(dots, DOT)]))
            before, spare = filling.occurrences, np.delete(spare, filling.singles)
        return segments

    def _fill(self, before: Indices, room: int, sizes: Indices, spare: Indices) -> _TextFilling | None:
        """The longest text that fits, or a slightly shorter one if the remaining tokens cannot be filled."""
        longest = self._longest(room + int(before @ sizes), sizes)
        for size in range(longest, longest - GIVEN_BACK, -1):
            now = np.maximum(self.occurrences(size), before)
            rest = room - int((now - before) @ sizes)
            if rest < 0 or int(now[self.top]) < LEAST_COUNT:
                return None
            rest_filled = _fill_rest(rest, int(sizes[0]), spare)
            if rest_filled is not None:
                return _TextFilling(now, *rest_filled)
        return None

    def _codes(self) -> Indices:
        """The words of this text in the order of their ranks, followed by unused ones."""
        return bulk_rng(self.seed, "codes").permutation(len(self.bank.pieces) - FIRST_WORD) + FIRST_WORD

    def _longest(self, room: int, sizes: Indices) -> int:
        """The words of the longest text that has no more than `room` tokens."""
        low, high = 0, 2 * room + 64  # rounding down drops words, so a text of N has fewer than N
        while high - low > 1:
            middle = (low + high) // 2
            if int(self.occurrences(middle) @ sizes) <= room:
                low = middle
            else:
                high = middle
        return low

    def _laid(self, pieces: Indices, times: Indices, further: Indices, segment: int, again: int) -> Indices:
        """A shuffled segment. The filling is inserted last, so that one word more or less does not move the others."""
        draw = bulk_rng(self.seed, "order", segment, again)
        asked = slice(1, self.top + 1)
        others = np.concatenate(
            [np.repeat(pieces[:1], times[0]), np.repeat(pieces[self.top + 1 :], times[self.top + 1 :])]
        )
        order = mix_around_depth(np.repeat(pieces[asked], times[asked]), others, self.depth, self.spread, draw)
        order = np.insert(order, draw.integers(0, len(order) + 1, len(further)), further)
        if segment == 0:
            first = int(np.flatnonzero(order == NOISE)[0])
            order[first] = order[0]
            order[0] = BARE_NOISE
        return order


def _fill_rest(rest: int, noise: int, sizes: Indices) -> tuple[int, Indices] | None:
    """Noise, and if that is not enough some words that occur once, with `rest` tokens in all."""
    for count in range(MOST_CHOSEN + 1):
        for times in range(rest // noise, -1, -1):
            singles = pick_sizes(sizes, count, rest - times * noise)
            if singles is not None:
                return times, singles
    return None
