"""Placing evidence: depths of facts around the cell's depth, and items whose token counts add up to a given total."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.seeds import rng
from leadline.core.types import Cell

if TYPE_CHECKING:
    from leadline.core.types import Indices


def fact_depths(cell: Cell, spread: float, count: int, draw: random.Random) -> list[float]:
    """Depths of the facts that answer a cell: a band around its depth, or anywhere if it has none."""
    if cell.depth is None:
        return [draw.random() for _ in range(count)]
    return depth_band(cell.depth, spread, count)


def depth_band(depth: float, spread: float, count: int) -> list[float]:
    """`count` depths spread evenly over a band of width `spread` around `depth`, inside the document."""
    if count == 1:
        return [depth]
    low = min(max(depth - spread / 2, 0.0), 1.0 - spread)
    return [low + spread * number / (count - 1) for number in range(count)]


def spread_depths(depth: float | None, spread: float, count: int, draw: random.Random) -> list[float]:
    """Depths in order: at random, or one in each part of a band of width `spread` around a depth."""
    if depth is None:
        return sorted(draw.random() for _ in range(count))
    low = min(max(depth - spread / 2, 0.0), 1.0 - spread)
    return [low + spread * (number + draw.random()) / count for number in range(count)]


MOST_GUARDS = 20
LEAST_GUARDS = 3
GUARDED_SHARE = 16
"""The guards of one end are up to MOST_GUARDS and take up to a sixteenth of a document. In a short one they are up to
LEAST_GUARDS, or one where not even these would leave room for what is asked for."""
SENTENCE_TOKENS = 24


def balanced_rank(cell: Cell, seed: int, ranks: int) -> int:
    """How many of the distractors come before what is asked for: each number equally often over the samples of a
    length and depth, so that the first of all is right no more often than any other."""
    return (_first_rank(seed, cell.task_family, cell.length, cell.depth, ranks) + cell.sample) % ranks


@lru_cache(maxsize=1024, typed=True)
def _first_rank(seed: int, task: str, length: int, depth: float | None, ranks: int) -> int:
    """That of sample 0. Kept, as all samples of a cell ask for it; 0 and 0.0 are other coordinates."""
    return rng(seed, "rank", task, length, depth).randrange(ranks)


def depths_on_both_sides(queried: Sequence[float], before: int, count: int, draw: random.Random) -> list[float]:
    """Depths of `count` distractors: the first `before` of them before everything that is asked for, the others after
    it. At an end of the document they share its depth, and the order of the facts decides."""
    low, high = min(queried), max(queried)
    return [low * draw.random() if number < before else high + (1 - high) * draw.random() for number in range(count)]


def most_guards(room: int, tokens: int) -> int:
    """The most guards of about `tokens` tokens at one end of `room` tokens."""
    return max(min(MOST_GUARDS, room // (GUARDED_SHARE * tokens)), min(LEAST_GUARDS, room // (6 * tokens)), 1)


def guard_places(
    cells: Sequence[Cell], seed: int, tokens: int = SENTENCE_TOKENS
) -> tuple[list[tuple[float, int]], list[tuple[float, int]]]:
    """Depth and length of some distractors of about `tokens` tokens at both ends of a document with several facts, or
    of a list: before its first fact, and after the last one of each length. Without them a fact at depth 0 is the first
    of its form. Each number of them is equally likely, so that the second, third ... is as rarely asked for."""
    if any(cell.depth is None for cell in cells):
        return [], []
    lengths = sorted({cell.length for cell in cells})
    after: list[tuple[float, int]] = []
    for shorter, length in zip([0, *lengths[:-1]], lengths, strict=True):
        after += [(1.0, length)] * _guard_count(cells, seed, most_guards(length - shorter, tokens), f"after {length}")
    return [(0.0, lengths[0])] * _guard_count(cells, seed, most_guards(lengths[0], tokens), "before"), after


def _guard_count(cells: Sequence[Cell], seed: int, most: int, end: str) -> int:
    """From 1 to `most`: in turn over the samples, each of which has its own document, otherwise at random."""
    cell = cells[0]
    if len({other.sample for other in cells}) > 1:
        return rng(seed, "guards", end, *cell.coordinates).randint(1, most)
    start = rng(seed, "guards", end, cell.task_family, cell.length, cell.depth).randrange(most)
    turn = cell.sample + (cell.sample // most if end != "before" else 0)
    return 1 + (start + turn) % most


def mix_around_depth(
    special: Indices, others: Indices, depth: float | None, spread: float, draw: np.random.Generator
) -> Indices:
    """Both shuffled together. With a depth, the special items are confined to a band of width `spread` around it, which
    widens if they do not fit."""
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


def mix_between_guards(
    special: Indices,
    others: Indices,
    noise: Indices,
    special_kinds: int,
    depth: float,
    spread: float,
    draw: np.random.Generator,
) -> Indices:
    """Mixed around a depth, between others at both ends: `asked` to twice as many different ones, or as many as there
    are, so that neither the first nor the last items are the special ones."""
    kinds, times = np.unique(others, return_counts=True)
    ends = []
    for _ in range(2):
        guards = draw.permutation(np.flatnonzero(times))[: int(draw.integers(special_kinds, 2 * special_kinds + 1))]
        times[guards] -= 1
        ends.append(kinds[guards])
    between = mix_around_depth(special, np.concatenate([noise, np.repeat(kinds, times)]), depth, spread, draw)
    return np.concatenate([ends[0], between, ends[1]])


CHOSEN = 12
SPARE = 256
PADS = 24
PAD = "...\n"
"""The last lines of a segment are about CHOSEN of SPARE candidates, selected so that the tokens add up. Where they do
not, as when every line has the same number of tokens, up to PADS lines of dots end it."""


_DOTTED = re.compile(r"^[ .,-]+\n", re.MULTILINE)


def without_pads(text: str) -> str:
    """The text of a list without its lines of dots. A question may have taken the line break after the last one."""
    return _DOTTED.sub("", f"{text}\n".replace(PAD, "")).rstrip("\n")


def fill_lines(
    sizes: Indices, room: int, pad: int | None, most: int = CHOSEN, spare: int = SPARE
) -> tuple[int, Indices, int] | None:
    """For `room` tokens: how many lines come whole, which of the next `spare` follow them, about `most`, and how many
    pads of `pad` tokens, if there are pads."""
    reach = np.concatenate(([0], np.cumsum(sizes)))
    for pads in range(1 if pad is None else PADS + 1):
        left = room - pads * (pad or 0)
        if left < 0:
            return None
        fits = int(np.searchsorted(reach, left, side="right")) - 1
        whole = max(fits - most, 0)
        few = fits - whole
        for count in (few, few + 1, few - 1):
            chosen = pick_sizes(sizes[whole : whole + spare], count, left - int(reach[whole])) if count >= 0 else None
            if chosen is not None:
                return whole, chosen, pads
    return None


def pick_sizes(sizes: Indices, count: int, total: int) -> Indices | None:
    """Positions of `count` different items whose sizes add up to `total`, or None.

    Greedy: items near the mean still needed come first and the last two are looked up, which hardly ever fails when
    the sizes have no gaps. Of equal sizes the first position is taken.
    """
    places: dict[int, list[int]] = defaultdict(list)
    for index in range(len(sizes) - 1, -1, -1):
        places[int(sizes[index])].append(index)
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
