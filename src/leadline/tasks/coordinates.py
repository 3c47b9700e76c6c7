"""From places in the grid to names and depths that every family of tasks needs alike."""

from __future__ import annotations

import random
from collections.abc import Sequence

from leadline.core.types import Cell


def cluster_of(cells: Sequence[Cell]) -> str:
    """The haystack's name: one for each length and sample, or for each sample when lengths are nested."""
    first = cells[0]
    lengths = {c.length for c in cells}
    return f"{first.task}/{first.length if len(lengths) == 1 else 'nested'}/{first.sample}"


def document_of(cells: Sequence[Cell]) -> str:
    """The document's name: the haystack's, and the depth where a document has only one."""
    name, depth = cluster_of(cells), cells[0].depth
    return name if len(cells) > 1 or depth is None else f"{name}/{depth:.4f}"


def family_of(label: str) -> str:
    """A label without the option values of a sweep: its members draw the same samples, and so can be paired."""
    return label.partition("[")[0]


def is_nested(cells: Sequence[Cell]) -> bool:
    return len({c.length for c in cells}) > 1


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
