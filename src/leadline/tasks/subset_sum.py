"""Where the words that count stand in a list: all over it, or close together around a depth."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leadline.core.types import Indices


# --- Choosing items whose sizes add up to a given number, so that a list ends exactly where it must.


def pick(sizes: Indices, count: int, total: int) -> Indices | None:
    """The places of `count` different items whose sizes add up to `total`, the first of equal ones first; or None.

    Items near the mean that is still needed come first, and the last two are looked up, so that sizes without gaps
    hardly ever fail.
    """
    places: dict[int, list[int]] = defaultdict(list)
    for place in range(len(sizes) - 1, -1, -1):
        places[int(sizes[place])].append(place)
    chosen: list[int] = []
    while len(chosen) < count:
        size = _next(places, count - len(chosen), total)
        if size is None:
            return None
        chosen.append(places[size].pop())
        if not places[size]:
            del places[size]
        total -= size
    return np.array(sorted(chosen), np.int64) if total == 0 else None


def _next(places: dict[int, list[int]], left: int, total: int) -> int | None:
    if left == 1:
        return total if total in places else None
    if left == 2:
        return next((s for s in places if _has_other(places, s, total - s)), None)
    return min(places, key=lambda size: abs(size * left - total), default=None)


def _has_other(places: dict[int, list[int]], size: int, other: int) -> bool:
    return other in places and (other != size or len(places[size]) > 1)


# --- Where the words that count stand in a list: all over it, or close together around a depth.


def mixed(special: Indices, others: Indices, depth: float | None, spread: float, draw: np.random.Generator) -> Indices:
    """Both in a drawn order. With a depth, the special ones stand in a band of width `spread` around it, or in as wide
    a band as it takes to hold them."""
    size = len(special) + len(others)
    if depth is None:
        return draw.permutation(np.concatenate([special, others]))
    width = max(round(spread * size), len(special))
    low = round(min(max(depth * size - width / 2, 0), size - width))
    order = np.empty(size, np.int64)
    band = low + draw.permutation(width)[: len(special)]
    free = np.ones(size, np.bool_)
    free[band] = False
    order[band] = draw.permutation(special)
    order[free] = draw.permutation(others)
    return order
