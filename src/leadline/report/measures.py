"""Log-probability metrics by length: means with intervals over documents, in units of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leadline.core.types import Record
from leadline.stats.intervals import Estimate, mean_interval

UNIT = "unit"
"""The label of a record that says what its numbers are counted in."""


class Metric(NamedTuple):
    task: str
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Measures:
    """Every metric of a run at every length; `failed` counts documents that gave no numbers."""

    estimates: Mapping[Metric, Mapping[int, Estimate]]
    failed: int

    def __bool__(self) -> bool:
        return bool(self.estimates)


def measured(records: Iterable[Record]) -> Measures:
    values: dict[Metric, dict[int, list[tuple[float, str]]]] = {}
    failed = 0
    for record in records:
        failed += record.failed
        for name, score in record.scores.items():
            metric = Metric(record.cell.task, name, record.labels.get(UNIT, ""))
            values.setdefault(metric, {}).setdefault(record.cell.length, []).append((score.value, record.cluster))
    estimates = {
        metric: {
            length: mean_interval([v for v, _ in found], [c for _, c in found])
            for length, found in sorted(lengths.items())
        }
        for metric, lengths in sorted(values.items())
    }
    return Measures(estimates, failed)
