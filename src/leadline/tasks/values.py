"""Keys and values that no model can have seen: pairs of words, seven-digit numbers, random UUIDs."""

from __future__ import annotations

import random
import uuid
from typing import Literal

from leadline.core.seeds import Split, side_of
from leadline.tasks.words import ADJECTIVES, NOUNS

Kind = Literal["words", "numbers", "uuids"]
SINGULAR: dict[Kind, str] = {"words": "word", "numbers": "number", "uuids": "code"}
PLURAL: dict[Kind, str] = {"words": "words", "numbers": "numbers", "uuids": "codes"}


def draw(kind: Kind, rng: random.Random) -> str:
    """One key or value, of either side of the split. Numbers have exactly 7 digits, UUIDs are version 4, as in RULER
    (arXiv 2404.06654)."""
    if kind == "words":
        return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"
    if kind == "numbers":
        return str(rng.randrange(1_000_000, 10_000_000))
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def side(value: str) -> Split:
    """The side of the split that a key or value is on: its last part's, so that lines can be made of parts."""
    return side_of(value.rpartition("-")[2])


def draw_new(kind: Kind, rng: random.Random, taken: set[str], split: Split = "test") -> str:
    """A value that is not taken yet and is on this side of the split; it is taken then."""
    for _ in range(4000):
        value = draw(kind, rng)
        if value not in taken and side(value) == split:
            taken.add(value)
            return value
    raise ValueError(f"more than {len(taken)} different {kind} were asked for")


def listed(names: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
