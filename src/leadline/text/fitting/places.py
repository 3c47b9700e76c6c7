"""Where facts go in a stretch of whole pieces, and the cut piece beside them: at boundaries, found by bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

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

        The cut piece is at the last boundary. If a fact goes to `end`, next to it, the cut piece is at an earlier
        boundary instead: where the worst placed fact misses its position least.
        """
        last = len(self.tokens) - 1
        if not self.free:
            tokens = self.tokens.tolist()
            return _ascending(_nearest(tokens, want, 0, last + 1) for want in wanted), last
        tail = bisect_left(self.free, end)
        taken = _ascending(self.free[self._nearest_free(want, cut_tokens, tail, tail)] for want in wanted)
        if not cut_tokens:
            return taken, last
        before = self.free[max(tail - CUT_PLACES - len(wanted), 0) : tail] if end in taken else []
        candidates = [place for place in reversed(before) if place not in taken][:CUT_PLACES]
        if not candidates:
            return self._places_beside(last, wanted, cut_tokens)[1], last
        # Facts before all candidates have their places, wherever the cut piece is.
        first = bisect_left(self.free, candidates[-1])
        early = len(list(takewhile(lambda want: bisect_left(self.free_tokens, want) < first, wanted)))
        missed = max(
            (abs(self.tokens[place] - want) for place, want in zip(taken[:early], wanted, strict=False)), default=0
        )
        found = [(self._places_beside(place, wanted[early:], cut_tokens), place) for place in candidates]
        (_, places), cut_place = min(found, key=lambda one: max(one[0][0], missed))
        return (*taken[:early], *places), cut_place

    def _places_beside(self, cut_place: int, wanted: Sequence[float], cut_tokens: int) -> tuple[float, tuple[int, ...]]:
        """By how much the worst placed fact misses its position, and the places of facts, when the cut piece is at
        `cut_place`. No fact is there, nor at the next free boundary: one whole sentence after a cut one would read as
        its end."""
        near = bisect_left(self.free, cut_place)
        if near == 0 and len(self.free) <= 2:  # no free boundary is left
            starts = [int(n) + cut_tokens * (place > cut_place) for place, n in enumerate(self.tokens)]
            places = _ascending(_nearest(starts, want, 0, len(starts)) for want in wanted)
        else:
            places = _ascending(self.free[self._nearest_free(want, cut_tokens, near, near + 2)] for want in wanted)
        starts = [int(self.tokens[place]) + cut_tokens * (place > cut_place) for place in places]
        return max((abs(start - want) for start, want in zip(starts, wanted, strict=True)), default=0.0), places

    def _nearest_free(self, want: float, cut_tokens: int, stop: int, start: int) -> int:
        """The number of the free boundary nearest to a wanted position, before number `stop` or from `start` on, where
        the cut piece precedes it. There is one."""
        tokens = self.free_tokens
        if start >= len(tokens):
            return _nearest(tokens, want, 0, stop)
        high = _nearest(tokens, want - cut_tokens, start, len(tokens))
        if not stop:
            return high
        low = _nearest(tokens, want, 0, stop)
        return high if abs(tokens[high] + cut_tokens - want) < abs(tokens[low] - want) else low


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
