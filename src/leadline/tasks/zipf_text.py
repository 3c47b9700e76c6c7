"""A text of coded words whose frequencies fall off as a power of their rank, written to measure.

The word of rank k stands floor(N k^-alpha / zeta(alpha)) times among N words, as in RULER (arXiv 2404.06654, section
3.3). The first rank is noise. Every cut of the text follows the same law with the N it has there, so the most frequent
words are the same at every cut, and none of the others ever stands as often as the last of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from string import ascii_lowercase
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.digest import digest_text
from leadline.core.seeds import Split, bulk_rng, rng, side_of
from leadline.core.types import PieceBank, Room
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
"""What is left over at the end of a stretch is made up with noise and words that stand once: at most so many, from so
many, and with a text shorter by so many words where that takes it. Where all of these have an even number of tokens,
as bytes may, a few dots end the stretch."""
LEAST_COUNT = 2
"""The last of the most frequent words stands at least so often, so that a word that stands once is never its equal."""


@cache
def zeta(alpha: float) -> float:
    """Riemann's zeta function for alpha > 1, by the Euler-Maclaurin formula: scipy takes longer to import than a
    document takes to write."""
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
        if side_of(code) == split:
            codes[code] = None
    pieces = [noise, f" {noise}", ".", *(f" {code}" for code in codes)]
    return PieceBank(
        f"coded words of {letters} letters", digest_text("\n".join(pieces)), pieces, contiguous=False, alike=True
    )


@dataclass(frozen=True, slots=True)
class _Filling:
    """How often each rank stands up to the end of a stretch, and what makes up the tokens left over."""

    stands: Indices
    noise: int
    singles: Indices


@dataclass(frozen=True, slots=True)
class ZipfText:
    """The text of one document."""

    ranks: int
    """How many different words there may be, noise included."""
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

    def stands(self, size: float) -> Indices:
        """How often each rank stands in a text of about `size` words."""
        ranks = np.arange(1, self.ranks + 1, dtype=np.float64)
        times = np.floor(size * ranks**-self.alpha / zeta(self.alpha)).astype(np.int64)
        times[self.top + 1 :] = np.minimum(times[self.top + 1 :], max(int(times[self.top]) - 1, 0))
        return times

    @property
    def _least_size(self) -> float:
        """Words that a text needs for the last of the most frequent ones to stand often enough."""
        return float(np.ceil(LEAST_COUNT * zeta(self.alpha) * (self.top + 1) ** self.alpha)) + 1

    def least(self, counts: Indices) -> int:
        pieces = np.concatenate(([NOISE], self._codes()[: self.ranks - 1]))
        return int(self.stands(self._least_size + GIVEN_BACK) @ counts[pieces])

    def compose(self, rooms: Sequence[Room], counts: Indices) -> list[Indices] | None:
        codes = self._codes()
        pieces = np.concatenate(([NOISE], codes[: self.ranks - 1]))
        spare = codes[self.ranks - 1 :]
        stretches = []
        before = np.zeros(self.ranks, np.int64)
        for number, (room, again) in enumerate(rooms):
            if number == 0:
                room += int(counts[NOISE] - counts[BARE_NOISE])
            sizes, singles, dot = counts[pieces], counts[spare[:SPARE]], int(counts[DOT])
            fillings = (self._fill(before, room - dots * dot, sizes, singles) for dots in range(MOST_DOTS + 1))
            dots, filling = next(((n, f) for n, f in enumerate(fillings) if f is not None), (0, None))
            if filling is None:
                return None
            further = np.concatenate([np.full(filling.noise, NOISE), spare[filling.singles]])
            laid = self._laid(pieces, filling.stands - before, further, number, again)
            stretches.append(np.concatenate([laid, np.full(dots, DOT)]))
            before, spare = filling.stands, np.delete(spare, filling.singles)
        return stretches

    def _fill(self, before: Indices, room: int, sizes: Indices, spare: Indices) -> _Filling | None:
        """The longest text that fits, or one a little shorter where the tokens left over cannot be made up for."""
        longest = self._longest(room + int(before @ sizes), sizes)
        for size in range(longest, longest - GIVEN_BACK, -1):
            now = np.maximum(self.stands(size), before)
            rest = room - int((now - before) @ sizes)
            if rest < 0 or int(now[self.top]) < LEAST_COUNT:
                return None
            made_up = _make_up(rest, int(sizes[0]), spare)
            if made_up is not None:
                return _Filling(now, *made_up)
        return None

    def _codes(self) -> Indices:
        """The words of this text in the order of their ranks, and then those that it does not use."""
        return bulk_rng(self.seed, "codes").permutation(len(self.bank.pieces) - FIRST_WORD) + FIRST_WORD

    def _longest(self, room: int, sizes: Indices) -> int:
        """The words of the longest text that has no more than `room` tokens."""
        low, high = 0, 2 * room + 64  # rounding down leaves words out, so a text of N has fewer than N
        while high - low > 1:
            middle = (low + high) // 2
            if int(self.stands(middle) @ sizes) <= room:
                low = middle
            else:
                high = middle
        return low

    def _laid(self, pieces: Indices, times: Indices, further: Indices, stretch: int, again: int) -> Indices:
        """A stretch in a drawn order. What makes up the tokens is strewn in last, so that one word more or less leaves
        all others where they are."""
        draw = bulk_rng(self.seed, "order", stretch, again)
        asked = slice(1, self.top + 1)
        others = np.concatenate(
            [np.repeat(pieces[:1], times[0]), np.repeat(pieces[self.top + 1 :], times[self.top + 1 :])]
        )
        order = mix_around_depth(np.repeat(pieces[asked], times[asked]), others, self.depth, self.spread, draw)
        order = np.insert(order, draw.integers(0, len(order) + 1, len(further)), further)
        if stretch == 0:
            first = int(np.flatnonzero(order == NOISE)[0])
            order[first] = order[0]
            order[0] = BARE_NOISE
        return order


def _make_up(rest: int, noise: int, sizes: Indices) -> tuple[int, Indices] | None:
    """Noise, and where noise alone cannot do it some words that stand once, to make up so many tokens."""
    for count in range(MOST_CHOSEN + 1):
        for times in range(rest // noise, -1, -1):
            singles = pick_sizes(sizes, count, rest - times * noise)
            if singles is not None:
                return times, singles
    return None
