"""Where facts go in a stretch of whole pieces, and the cut piece beside them: at boundaries, found by bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leadline.core.types import Indices

CUT_PLACES = 16
"""Boundaries before a fact at the end that are considered for the cut piece."""


class Boundaries:
    """The boundaries of some whole pieces, and those of them at which facts may be."""

    def __init__(self, tokens: Indices, free: Indices) -> None:
        """`tokens` has those of the pieces before each boundary, `free` the numbers of the free boundaries."""
        self.tokens = tokens
        self.free: list[int] = free.tolist()
        self.free_tokens: list[int] = tokens[free].tolist()
        """Of pieces before each free boundary."""

    def choose_places(self, wanted: Sequence[float], cut_tokens: int, end: int) -> tuple[tuple[int, ...], int]:
        """The boundary nearest to each wanted position, and one for the cut piece that no fact is at.

        The cut piece is at the last boundary; if a fact goes to `end`, next to it, the cut piece is at an earlier
        boundary instead.
        """
        last, places, tokens = len(self.tokens) - 1, self.free, self.free_tokens
        if not places:
            tokens = self.tokens.tolist()
            return _ascending(_nearest(tokens, want, 0, last + 1) for want in wanted), last
        if not cut_tokens:
            return _ascending(places[_nearest(tokens, want, 0, len(tokens))] for want in wanted), last
        search = _CutSearch(self.tokens, places, tokens, wanted, cut_tokens)
        tail = bisect_left(places, end)
        taken = _ascending(places[search.nearest_at_end(want, tail)] for want in wanted)
        if end not in taken:
            return search.places_beside(last)[0], last
        before = places[max(tail - CUT_PLACES - len(wanted), 0) : tail]
        return search.best([place for place in reversed(before) if place not in taken][:CUT_PLACES] or [last])


@dataclass(frozen=True, slots=True)
class _CutSearch:
    """The search for a place of the cut piece, with the places of facts beside it."""

    bounds: Indices
    free: Sequence[int]
    tokens: Sequence[int]
    """Of pieces before each free boundary."""
    wanted: Sequence[float]
    cut_tokens: int

    def nearest_at_end(self, want: float, tail: int) -> int:
        """The number of the free boundary nearest to a wanted position when the cut piece is before number `tail`,
        which is the last one or beyond it."""
        low = _nearest(self.tokens, want, 0, tail) if tail else 0
        if tail == len(self.tokens):
            return low
        high = _nearest(self.tokens, want - self.cut_tokens, tail, len(self.tokens))
        if not tail or abs(self.tokens[high] + self.cut_tokens - want) < abs(self.tokens[low] - want):
            return high
        return low

    def best(self, candidates: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The places of facts, and of the cut piece for which the worst placed fact misses its position least."""
        first = bisect_left(self.free, candidates[-1])
        least, found, chosen = self._least_off(first), None, candidates[0]
        # Facts before all candidates have their places, wherever the cut piece is.
        later = (n for n, want in enumerate(self.wanted) if bisect_left(self.tokens, want) >= first)
        count = next(later, len(self.wanted))
        settled, missed = replace(self, wanted=self.wanted[:count]).places_beside(candidates[0])
        others = replace(self, wanted=self.wanted[count:])
        for cut_place in candidates:
            places, off = others.places_beside(cut_place)
            off = max(off, missed)
            if found is None or off < found[1]:
                found, chosen = (places, off), cut_place
            if off <= least:
                break
        assert found is not None
        return (*settled, *found[0]), chosen

    def places_beside(self, cut_place: int) -> tuple[tuple[int, ...], float]:
        """The places of facts when the cut piece is at `cut_place`, and by how much the worst misses its position.
        No fact is there, nor at the next free boundary: one whole sentence after a cut one would read as its end."""
        cut, count, near = self.cut_tokens, len(self.free), bisect_left(self.free, cut_place)
        if near == 0 and count <= 2:  # no boundary is left
            shifted = (self.bounds + cut * (np.arange(len(self.bounds)) > cut_place)).tolist()
            places = _ascending(_nearest(shifted, want, 0, len(shifted)) for want in self.wanted)
        else:
            places = _ascending(self.free[self._beside(want, near)] for want in self.wanted)
        starts = [float(self.bounds[place]) + (cut if place > cut_place else 0) for place in places]
        return places, max((abs(s - want) for s, want in zip(starts, self.wanted, strict=True)), default=0.0)

    def _beside(self, want: float, near: int) -> int:
        """The number of the free boundary nearest to a wanted position when the cut piece is at number `near`."""
        tokens, cut, after, count = self.tokens, self.cut_tokens, near + 2, len(self.free)
        if after >= count:
            return _nearest(tokens, want, 0, near)
        high = _nearest(tokens, want - cut, after, count)
        if near == 0:
            return high
        low = _nearest(tokens, want, 0, near)
        return high if abs(tokens[high] + cut - want) < abs(tokens[low] - want) else low

    def _least_off(self, near: int) -> float:
        """By how much the worst placed fact misses its position at least, if the cut piece is at number `near` or
        later: boundaries before it keep their tokens, those after it have more."""
        tokens, cut, count, least = self.tokens, self.cut_tokens, len(self.free), 0.0
        if count <= 2:
            return -1.0
        for want in self.wanted:
            off = abs(tokens[_nearest(tokens, want, 0, count)] - want)
            if near < count and want > tokens[near]:
                off = min(off, abs(tokens[_nearest(tokens, want - cut, 0, count)] + cut - want))
            least = max(least, off)
        return least


def _nearest(tokens: Sequence[int], want: float, start: int, stop: int) -> int:
    """The number of the value nearest to a wanted one from `start` to `stop`; the first of equally near ones."""
    at = bisect_left(tokens, want, start, stop)
    if at > start and (at == stop or want - tokens[at - 1] <= tokens[at] - want):
        return bisect_left(tokens, tokens[at - 1], start, at)
    return at


def _ascending(places: Iterable[int]) -> tuple[int, ...]:
    """The places, none before the one of the fact before."""
    found: list[int] = []
    for place in places:
        found.append(max(place, found[-1]) if found else place)
    return tuple(found)
