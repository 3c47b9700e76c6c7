"""How much a score depends on the wording: the spread over the wordings of a sweep (`--set wording=all`), by length.

All wordings are asked with the same samples, so what differs is the wording and the model's own noise.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from leadline.results.table import Table
from leadline.stats.intervals import Estimate
from leadline.stats.marginals import marginals

_WORDING = re.compile(r"(?P<task>[^\[\]]+)\[(?P<before>(?:.*,)?)wording=(?P<number>[^,\]]+)(?P<after>(?:,.*)?)\]")


@dataclass(frozen=True, slots=True)
class WordingSpread:
    """One task at one length, or at all of them (None)."""

    task: str
    length: int | None
    mean: Estimate
    """Over the samples of all wordings, clustered by haystack."""
    means: dict[str, float]
    """By the number of the wording, from 1."""

    @property
    def lowest(self) -> tuple[str, float]:
        return min(self.means.items(), key=lambda item: item[1])

    @property
    def highest(self) -> tuple[str, float]:
        return max(self.means.items(), key=lambda item: item[1])

    @property
    def deviation(self) -> float:
        """The standard deviation of the wordings' means."""
        centre = sum(self.means.values()) / len(self.means)
        return math.sqrt(sum((m - centre) ** 2 for m in self.means.values()) / (len(self.means) - 1))


def wording_spreads(table: Table) -> list[WordingSpread]:
    """By task and length; empty where no task was asked in several wordings."""
    members: dict[str, dict[str, str]] = {}
    for task in table.tasks:
        label = _WORDING.fullmatch(task)
        if label is not None:
            others = f"{label['before']}{label['after']}".strip(",")
            name = f"{label['task']}[{others}]" if others else label["task"]
            members.setdefault(name, {})[label["number"]] = task
    found: list[WordingSpread] = []
    for name, tasks in members.items():
        if len(tasks) > 1:
            lengths = table.lengths_of(next(iter(tasks.values())))
            spreads = (_spread(table, name, tasks, at) for at in (*lengths, *([None] if len(lengths) > 1 else [])))
            found += [spread for spread in spreads if spread is not None]
    return found


def _spread(table: Table, name: str, tasks: dict[str, str], length: int | None) -> WordingSpread | None:
    tallies = {
        number: table.by_task[task] if length is None else table.by_task_and_length[task, length]
        for number, task in tasks.items()
    }
    means = {number: tally.mean for number, tally in tallies.items() if tally.mean is not None}
    samples = table.samples
    mine = np.isin(samples.task, list(tasks.values()))
    if length is not None:
        mine &= samples.length == length
    if len(means) < 2:
        return None
    [whole] = marginals(samples.take(mine), (), failures=table.failures)
    return WordingSpread(name, length, whole.estimate, means)
