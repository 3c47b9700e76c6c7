"""Where the words that count stand in a list: all over it, or close together around a depth."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leadline.core.types import Indices


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
