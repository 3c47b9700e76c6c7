"""Where facts go in a stretch of whole pieces, and the cut piece beside them: at boundaries, found by bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

CUT_PLACES = 16
"""Boundaries before a fact at the end that are considered for the cut piece."""


def choose_places(
    bounds: npt.NDArray[np.float64], free: Indices, wanted: Sequence[float], cut_tokens: int, end: int
) -> tuple[tuple[int, ...], int]:
    """The boundary of pieces nearest to each wanted position, and one for the cut piece that no fact is at.

    `bounds` has the tokens before each boundary, and `free` the boundaries at which facts may be. The cut piece is at
    the last boundary; if a fact goes to `end`, next to it, the cut piece is at an earlier boundary instead.
    """
    last, places = len(bounds) - 1, free.tolist()
    if not places or not cut_tokens:
        tokens, places = (bounds[free].tolist(), places) if places else (bounds.tolist(), range(last + 1))
        return _ascending(places[_nearest(tokens, want, 0, len(tokens))] for want in wanted), last
    search = _CutSearch(bounds, places, bounds[free].tolist(), wanted, cut_tokens)
    tail = bisect_left(places, end)
    at_end = [*search.tokens[:tail], *(t + cut_tokens for t in search.tokens[tail:])]
    taken = _ascending(places[_nearest(at_end, want, 0, len(at_end))] for want in wanted)
    if end not in taken:
        return search.places_beside(last)[0], last
    before = places[max(tail - CUT_PLACES - len(wanted), 0) : tail]
    return search.best([place for place in reversed(before) if place not in taken][:CUT_PLACES] or [last])


@dataclass(frozen=True, slots=True)
class _CutSearch:
    """The search for a place of the cut piece, with the places of facts beside it."""

    bounds: npt.NDArray[np.float64]
    free: Sequence[int]
    tokens: Sequence[float]
    """Of pieces before each free boundary."""
    wanted: Sequence[float]
    cut_tokens: int

    def best(self, candidates: Sequence[int]) -> tuple[tuple[int, ...], int]:
        """The places of facts, and of the cut piece for which the worst placed fact misses its position least."""
        least, found, chosen = self._least_off(bisect_left(self.free, candidates[-1])), None, candidates[0]
        for cut_place in candidates:
            places, off = self.places_beside(cut_place)
            if found is None or off < found[1]:
                found, chosen = (places, off), cut_place
            if off <= least:
                break
        assert found is not None
        return found[0], chosen

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


def _nearest(tokens: Sequence[float], want: float, start: int, stop: int) -> int:
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
