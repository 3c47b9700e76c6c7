"""Randomness from coordinates: the same cell of the grid draws the same numbers, in any order.

Two generators from one seed. `rng` is the standard library's, whose streams are fixed across Python
versions and which reads well for single draws; `bulk_rng` is numpy's, for thousands of draws at once.
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

Coordinate = int | float | str | None
Split = Literal["test", "train"]
TRAIN_SHARE = 4
"""One word in TRAIN_SHARE is kept for training."""


def seed_of(*coordinates: Coordinate) -> int:
    """A 128-bit seed from the coordinates."""
    name = "\x1f".join(_spell(c) for c in coordinates)
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "big")


def rng(*coordinates: Coordinate) -> random.Random:
    return random.Random(seed_of(*coordinates))


def bulk_rng(*coordinates: Coordinate) -> np.random.Generator:
    import numpy as np

    return np.random.Generator(np.random.PCG64(seed_of(*coordinates)))


def _spell(coordinate: Coordinate) -> str:
    # 1 and 1.0 must not collide by accident, and 0.1 + 0.2 must equal 0.3 on a depth grid.
    if isinstance(coordinate, float):
        return f"f{coordinate:.6f}"
    return f"{type(coordinate).__name__[0]}{coordinate}"


def side_of(text: str) -> Split:
    """The split of a word, name or value: a fixed hash of its letters."""
    return "train" if zlib.crc32(text.encode()) % TRAIN_SHARE == 0 else "test"


def part_of(pool: Iterable[str], split: Split) -> tuple[str, ...]:
    """The part of a pool that belongs to a split; the two parts are disjoint."""
    return tuple(text for text in pool if side_of(text) == split)
