"""A solved example before the document: what it is put together from, in our words or in a user's."""

from __future__ import annotations

import random
import uuid
from collections.abc import Sequence

from leadline.core.seeds import Split, side_of
from leadline.core.types import Cell, ValueKind
from leadline.tasks.wording import Part
from leadline.tasks.words import ADJECTIVES, NOUNS

# --- From places in the grid to names and depths that every family of tasks needs alike.


def places(cell: Cell, spread: float, count: int, draw: random.Random) -> list[float]:
    """Depths of the facts that answer a cell: a band around its depth, or anywhere when it has none."""
    if cell.depth is None:
        return [draw.random() for _ in range(count)]
    return band(cell.depth, spread, count)


def band(depth: float, spread: float, count: int) -> list[float]:
    """Depths of several facts that belong together: evenly over a band of width `spread` around `depth`."""
    if count == 1:
        return [depth]
    low = min(max(depth - spread / 2, 0.0), 1.0 - spread)
    return [low + spread * number / (count - 1) for number in range(count)]


# --- Keys and values that no model can have seen: pairs of words, seven-digit numbers, random UUIDs.

SINGULAR: dict[ValueKind, str] = {"words": "word", "numbers": "number", "uuids": "code"}
PLURAL: dict[ValueKind, str] = {"words": "words", "numbers": "numbers", "uuids": "codes"}


def draw(kind: ValueKind, rng: random.Random) -> str:
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


def draw_new(kind: ValueKind, rng: random.Random, taken: set[str], split: Split = "test") -> str:
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


# --- A solved example before the document: what it is put together from, in our words or in a user's.

DEMONSTRATION = "{instruction}{document}{question}\n{prefix} {answer}.\n\nThat was an example. Now do the same with "


def demonstration_part(another: str) -> Part:
    """`another` is what the next one is: another text, another list."""
    return Part(
        (f"{DEMONSTRATION}{another}.\n\n",),
        needs=("document", "question", "answer|spaced|numbered"),
        may=("instruction", "prefix"),
        opens=True,
    )


def answers(found: Sequence[str]) -> dict[str, str]:
    """An answer as a demonstration may print it: `a, b and c`, `a b c`, `1. a 2. b 3. c`."""
    return {
        "answer": listed(list(found)),
        "spaced": " ".join(found),
        "numbered": " ".join(f"{number}. {one}" for number, one in enumerate(found, 1)),
    }
