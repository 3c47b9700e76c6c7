"""A second look at a heatmap: cells that borrow strength from their neighbours, with what was seen under each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

import numpy as np

from leadline.report.colours import ACCURACY
from leadline.report.table import Table
from leadline.report.theme import Row
from leadline.report.tiles import ink
from leadline.report.words import depth_words, inert, length_words, percent
from leadline.stats.smooth import SmoothSurface, smooth

CAPTION = (
    "Smoothed: neighbouring lengths and depths inform each other; under each number what was seen, right of answered. "
    "A second look, not the measurement."
)


def can_smooth(table: Table, task: str) -> bool:
    """Whether there are neighbours to borrow from."""
    mine = table.samples.take(table.samples.task == task).counted()
    return len(np.unique(mine.length)) > 1 and len(np.unique(mine.depth[~np.isnan(mine.depth)])) > 1


def one_thread() -> AbstractContextManager[object]:
    """Matrices of a hundred cells are solved several times quicker by one thread than by many that wait for each
    other. Does nothing where threadpoolctl, which comes with scikit-learn, is not installed."""
    if find_spec("threadpoolctl") is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(1)  # type: ignore[no-any-return]


def smoothed_cells(table: Table, tasks: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """The rows of a heatmap with smoothed values. Cells without data stay without; nothing is made up."""
    changed: dict[tuple[int, str, str], Row] = {}
    with one_thread():
        for panel, task in enumerate(tasks):
            if can_smooth(table, task):
                found = smooth(table.samples.take(table.samples.task == task))
                changed |= {(panel, row["length"], row["row"]): row for row in _rows(found, task)}
    made = []
    for row in rows:
        new = changed.get((row["panel"], row["length"], row["row"]))
        chosen = row["label"].partition("] ")[0]
        made.append(row | new | {"label": f"{chosen}] {new['words']}"} if new else row)
    return made


def _rows(found: SmoothSurface, task: str) -> list[Row]:
    made = []
    for i, length in enumerate(found.lengths.tolist()):
        for j, depth in enumerate(found.depths.tolist()):
            n, right = float(found.raw.n[i, j]), float(found.raw.total[i, j])
            if n:
                mean, low, high = (float(surface[i, j]) for surface in (found.mean, found.low, found.high))
                seen = f"{right:g}/{n:g}"
                where = f"{inert(task, 60)}, length {length_words(length)}, depth {depth_words(depth)}"
                label = f"{where}: smoothed {percent(mean)}%, 95% interval {percent(low)}–{percent(high)}%, seen {seen}"
                made.append(
                    {"length": length_words(length), "row": depth_words(depth), "mean": mean, "value": percent(mean),
                     "short": seen, "ink": ink(ACCURACY, mean), "words": label}
                )  # fmt: skip
    return made
