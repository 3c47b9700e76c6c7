"""Strata: the samples of one task by what was asked (an operation, a number of needles), as curves of their own.

Damage often shows in the hardest stratum first while the mean of the task looks level. A stratum is a value of one of
the labels below; a task has strata if its records have two values or more. With them, each task has a verdict: how far
it holds, which stratum is the weakest at the longest length, and what its wrong answers have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from leadline.core.records import Record
from leadline.results.table import Table
from leadline.stats.effective import EffectiveLength
from leadline.stats.intervals import Estimate, mean_interval

STRATA = ("operation", "needles")
"""Labels whose values are strata."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One value of a label, over the lengths."""

    task: str
    label: str
    value: str
    by_length: Mapping[int, Estimate]


@dataclass(slots=True)
class StratumCounter:
    """Collects scores by stratum while the records of a run are read."""

    _found: dict[tuple[str, str, str], dict[int, tuple[list[float], list[str]]]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        if record.score is None:
            return
        for label in STRATA:
            value = record.labels.get(label)
            if value:
                lengths = self._found.setdefault((record.cell.task, label, value), {})
                scores, clusters = lengths.setdefault(record.cell.length, ([], []))
                scores.append(record.score)
                clusters.append(record.cluster)

    def strata(self) -> list[Stratum]:
        """Of every task and label with several values, in their natural order."""
        values: dict[tuple[str, str], int] = {}
        for task, label, _ in self._found:
            values[task, label] = values.get((task, label), 0) + 1
        return [
            Stratum(*key, {n: mean_interval(*found) for n, found in sorted(lengths.items())})
            for key, lengths in sorted(self._found.items(), key=lambda item: _natural(item[0]))
            if values[key[:2]] > 1
        ]


def _natural(key: tuple[str, str, str]) -> tuple[str, str, list[tuple[int, int, str]]]:
    """Numbers inside a value in the order of their size."""
    parts = re.split(r"(\d+)", key[2])
    return key[0], key[1], [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """What a run says about one task, in the fewest numbers."""

    task: str
    effective: EffectiveLength | None
    longest: int
    mean: Estimate | None
    """At the longest length."""
    weakest: Stratum | None
    """The stratum with the lowest mean at the longest length."""
    mistake: str
    """The most frequent detail of its wrong answers; empty if there is none."""
    mistakes: int

    @property
    def weakest_mean(self) -> Estimate | None:
        return self.weakest.by_length.get(self.longest) if self.weakest else None


def task_verdicts(
    table: Table, strata: Sequence[Stratum], effective: Mapping[str, EffectiveLength]
) -> list[TaskVerdict]:
    """One for each task."""
    found = []
    for task in table.tasks:
        longest = max((n for n in table.lengths_of(task) if table.by_task_and_length[task, n].done), default=0)
        here = [s for s in strata if s.task == task and longest in s.by_length]
        details: dict[str, int] = {}
        for (of, _), seen in table.details.items():
            for detail, count in seen.items() if of == task else ():
                details[detail] = details.get(detail, 0) + count
        mistake = max(details, key=lambda d: details[d], default="")
        tally = table.by_task_and_length.get((task, longest))
        found.append(
            TaskVerdict(
                task,
                effective.get(task),
                longest,
                tally.estimate if tally else None,
                min(here, key=lambda s: s.by_length[longest].mean, default=None),
                mistake,
                details.get(mistake, 0),
            )
        )
    return found
