"""What a run says about questions without an answer: false alarms and false abstentions, beside accuracy, by length.

Only for tasks with the option `absent`, whose records are labelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leadline.core.records import FailureClass, Record
from leadline.stats.intervals import Estimate, mean_interval


@dataclass(frozen=True, slots=True)
class AbsentRates:
    """One task at one length. Failed samples are not counted."""

    task: str
    length: int
    accuracy: Estimate | None
    """Over the questions that have an answer."""
    false_abstentions: Estimate | None
    """Share of the questions that have an answer for which the model says that there is none."""
    false_alarms: Estimate | None
    """Share of the questions without an answer for which the model gives one."""


def absent_rates(records: Iterable[Record]) -> list[AbsentRates]:
    """By task and length, in that order; empty where no task has the option."""
    found: dict[tuple[str, int], tuple[list[Record], list[Record]]] = {}
    for record in records:
        if "absent" in record.labels and not record.failed:
            both = found.setdefault((record.cell.task, record.cell.length), ([], []))
            both[record.labels["absent"] == "true"].append(record)
    return [
        AbsentRates(
            task,
            length,
            accuracy=_mean(present, [r.score or 0.0 for r in present]),
            false_abstentions=_share(present, "false_abstention"),
            false_alarms=_share(absent, "false_alarm"),
        )
        for (task, length), (present, absent) in sorted(found.items())
    ]


def _share(records: Sequence[Record], wanted: FailureClass) -> Estimate | None:
    return _mean(records, [float(r.failure_class == wanted) for r in records])


def _mean(records: Sequence[Record], values: Sequence[float]) -> Estimate | None:
    return mean_interval(values, [r.cluster for r in records]) if records else None
