"""A model that answers questions about documents as a stopping rule asks for them, in any reading mode.

Its chance is a number for each length; one document in ten is harder, and all answers about it are worse.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leadline.core.types import Cell, Reading
from leadline.stats.allocate import Design, SamplingStep, until_effective
from leadline.stats.observations import Observations

LENGTHS = tuple(4096 * 2**i for i in range(8))
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
Row = tuple[int, float, int, str, float]


def documents_design(reading: Reading, cap: int = 100) -> Design:
    return Design(tuple(("t", n, d) for n in LENGTHS for d in DEPTHS), cap=cap, fixed=100, reading=reading)


def answer(cell: Cell, chances: Sequence[float], reading: Reading, seed: int) -> Row:
    """The same answer whenever a cell is asked for."""
    row, column = LENGTHS.index(cell.length), DEPTHS.index(cell.depth or 0.0)
    document = {"fresh": (cell.sample, row, column), "shared": (cell.sample, row), "nested": (cell.sample,)}[reading]
    harder = reading != "fresh" and np.random.default_rng([seed, 1, *document]).random() < 0.1
    drawn = np.random.default_rng([seed, 2, cell.sample, row, column]).random()
    right = (0.3 + 0.7 * drawn if harder else drawn) < chances[row]
    return cell.length, cell.depth or 0.0, cell.sample, str(document), float(right)


def rows_of(rows: Sequence[Row]) -> Observations:
    length, depth, sample, document, value = zip(*rows, strict=True) if rows else ((),) * 5
    return Observations(
        task=np.full(len(rows), "t"),
        length=np.array(length, dtype=np.int64),
        depth=np.array(depth, dtype=np.float64),
        sample=np.array(sample, dtype=np.int64),
        cluster=np.array(document, dtype=np.str_),
        value=np.array(value, dtype=np.float64),
        failed=np.zeros(len(rows), dtype=np.bool_),
    )


def search_length(chances: Sequence[float], reading: Reading, seed: int = 0) -> tuple[SamplingStep, Observations]:
    """What the rule `effective` ends with, and what it asked."""
    rows: list[Row] = []
    while not (step := until_effective(rows_of(rows), documents_design(reading))).done:
        rows += [answer(cell, chances, reading, seed) for cell in step.next]
    return step, rows_of(rows)
