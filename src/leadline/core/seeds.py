"""Randomness from coordinates: the same cell of the grid draws the same numbers, in any order.

Two generators from one seed. `rng` is the standard library's, whose streams are fixed across Python
versions and which reads well for single draws; `bulk_rng` is numpy's, for thousands of draws at once.
"""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np


Coordinate = int | float | str | None
Split = Literal["test", "train"]
TRAIN_SHARE = 4
"""One word in TRAIN_SHARE is kept for training."""


def seed_of(*coordinates: Coordinate) -> int:
    """A 128-bit seed from the coordinates."""
    name = "\x1f".join(map(_spell, coordinates))
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=16).digest(), "big")


def rng(*coordinates: Coordinate) -> random.Random:
    return random.Random(seed_of(*coordinates))


def bulk_rng(*coordinates: Coordinate) -> np.random.Generator:
    import numpy as np

    return np.random.Generator(np.random.PCG64(seed_of(*coordinates)))


def _spell(coordinate: Coordinate) -> str:
    # 1 and 1.0 must not collide by accident, and 0.1 + 0.2 must equal 0.3 on a depth grid.
    if type(coordinate) is str:
        return f"s{coordinate}"
    if isinstance(coordinate, float):
        return f"f{coordinate:.6f}"
    return f"{type(coordinate).__name__[0]}{coordinate}"


def split_of(text: str) -> Split:
    """The split of a word, name or value: a fixed hash of its letters."""
    return "train" if zlib.crc32(text.encode()) % TRAIN_SHARE == 0 else "test"


def of_split(pool: Iterable[str], split: Split) -> tuple[str, ...]:
    """The part of a pool that belongs to a split; the two parts are disjoint."""
    return tuple(text for text in pool if split_of(text) == split)


# --- digests: one canonical way to turn a value into a short, stable name


def canonical(value: Any) -> bytes:
    """The same bytes for equal values, whatever order their keys came in."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def digest(value: Any, characters: int = 16) -> str:
    """A hex digest of a JSON-like value."""
    return digest_bytes(canonical(value), characters)


def digest_text(text: str, characters: int = 16) -> str:
    return digest_bytes(text.encode("utf-8", "surrogatepass"), characters)


def digest_bytes(data: bytes, characters: int = 16) -> str:
    return hashlib.sha256(data).hexdigest()[:characters]


def digest_prompt(prompt: str | bytes) -> str:
    """A hex digest of what a model is sent. Long prompts take a sixth of the time of SHA-256 where the processor has no
    instructions for that."""
    data = prompt.encode("utf-8", "surrogatepass") if isinstance(prompt, str) else prompt
    return hashlib.blake2b(data, digest_size=8).hexdigest()
