"""Which quantity goes with wrong answers? The concordance of a quantity is the share of pairs, one right and one wrong
answer of the same task, in which the wrong answer has the larger value; ties count half. 0.5 says nothing.

It is the area under the ROC curve (Hanley and McNeil 1982), for one task the Mann-Whitney statistic over the number of
pairs. Its variance comes from sums of placement values by document, as in Obuchowski (Biometrics 53, 1997), so that
answers about one document may be correlated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.stats.intervals import Interval, t_quantile

if TYPE_CHECKING:
    from leadline.core.types import Nats

CONFIDENCE = 0.95
METHOD = "placements by document"


@dataclass(frozen=True, slots=True)
class Concordance:
    """`value` with what each document adds to its error."""

    value: float
    errors: tuple[float, ...]
    """By document, in the order of their first answer."""
    pairs: int
    documents: int
    """With right answers, or with wrong ones, whichever are fewer."""

    @property
    def interval(self) -> Interval:
        """On the logit scale, so that it stays inside 0 and 1. Without a single exception, the bound that as many
        documents without exception give."""
        if self.value in (0.0, 1.0):
            far = 1 - (1 - CONFIDENCE) ** (1 / self.documents)
            low, high = (0.0, far) if self.value == 0 else (1 - far, 1.0)
            return Interval(low, high, CONFIDENCE, "no exception")
        return _on_logit_scale(self.value, self.errors)

    def minus(self, other: Concordance) -> Interval:
        """The difference to the concordance of another quantity, measured on the same answers."""
        difference = [mine - theirs for mine, theirs in zip(self.errors, other.errors, strict=True)]
        half = _half_width(difference)
        middle = self.value - other.value
        return Interval(max(-1.0, middle - half), min(1.0, middle + half), CONFIDENCE, METHOD)


def concordance(
    values: Sequence[float], right: Sequence[bool], tasks: Sequence[str], clusters: Sequence[str]
) -> Concordance | None:
    """None where no task has both right and wrong answers. Answers of different tasks are never paired."""
    numbers: dict[str, int] = {}
    document = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.int64)
    value, is_right, task = np.array(values, dtype=np.float64), np.array(right, dtype=bool), np.array(tasks)
    parts = []
    for name in dict.fromkeys(tasks):
        won, lost = (task == name) & is_right, (task == name) & ~is_right
        if won.any() and lost.any():
            parts.append((won, lost, int(won.sum()) * int(lost.sum())))
    pairs = sum(weight for *_, weight in parts)
    if not pairs:
        return None
    total, errors = 0.0, np.zeros(len(numbers))
    for won, lost, weight in parts:
        of_wrong = _placements(value[lost], value[won])
        of_right = 1 - _placements(value[won], value[lost])
        area = float(of_wrong.mean())
        share = weight / pairs
        total += share * area
        errors += share * np.bincount(document[lost], of_wrong - area, len(numbers)) / len(of_wrong)
        errors += share * np.bincount(document[won], of_right - area, len(numbers)) / len(of_right)
    paired = [np.any([part[side] for part in parts], axis=0) for side in (0, 1)]
    fewest = min(len(np.unique(document[kind])) for kind in paired)
    return Concordance(min(max(total, 0.0), 1.0), tuple(errors.tolist()), pairs, fewest)


def _placements(values: Nats, others: Nats) -> Nats:
    """For each value, the share of the others below it; equal ones count half."""
    ordered = np.sort(others)
    below = np.searchsorted(ordered, values, side="left")
    not_above = np.searchsorted(ordered, values, side="right")
    return np.asarray((below + not_above) / (2 * len(ordered)), dtype=np.float64)


def _half_width(errors: Sequence[float]) -> float:
    count = len(errors)
    if count < 2:
        return math.inf
    variance = count / (count - 1) * math.fsum(error * error for error in errors)
    return t_quantile(CONFIDENCE, count - 1) * math.sqrt(variance)


def _on_logit_scale(value: float, errors: Sequence[float]) -> Interval:
    half = _half_width(errors)
    if not math.isfinite(half):
        return Interval(0.0, 1.0, CONFIDENCE, METHOD)
    centre, width = math.log(value / (1 - value)), half / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-min(max(end, -700.0), 700.0))) for end in (centre - width, centre + width))
    return Interval(low, high, CONFIDENCE, METHOD)
