"""Log-probability metrics by length: means with intervals over documents, in units of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leadline.core.types import UNIT, Record
from leadline.stats.intervals import Estimate
from leadline.stats.soundings import by_distance, by_length, metric_of


class Metric(NamedTuple):
    task: str
    name: str
    unit: str


@dataclass(frozen=True, slots=True)
class Measures:
    """Every metric of a run at every length; `failed` counts documents that gave no numbers."""

    estimates: Mapping[Metric, Mapping[int, Estimate]]
    by_distance: Mapping[Metric, Mapping[int, Estimate]]
    """Where answers stand at a known place: by tokens back to it, in octaves."""
    failed: int

    def __bool__(self) -> bool:
        return bool(self.estimates)


def measured(records: Iterable[Record]) -> Measures:
    """Each metric over all records of its task: where weights differ, one without a score of its own counts too."""
    tasks: dict[str, list[Record]] = {}
    metrics: dict[Metric, None] = {}
    failed = 0
    for record in records:
        failed += record.failed
        tasks.setdefault(record.cell.task, []).append(record)
        first = record.labels.get(UNIT, "")
        metrics |= dict.fromkeys(Metric(record.cell.task, n, metric_of(n).unit or first) for n in record.scores)
    distances = {m: by_distance(tasks[m.task], m.name) for m in sorted(metrics)}
    return Measures(
        estimates={m: by_length(tasks[m.task], m.name) for m in sorted(metrics)},
        by_distance={m: found for m, found in distances.items() if len(found) > 1},
        failed=failed,
    )
