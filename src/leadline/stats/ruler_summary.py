"""RULER's summary of the samples of a run: weighted averages and effective lengths of tasks, categories and the whole.

Effective length is RULER's: the longest length whose score is above a line, 85.6 in the paper (Llama-2-7B-chat at 4k).
Beside it, the longest length that keeps a share of the row's own score at its shortest length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.format import format_length
from leadline.stats.effective import RULER_THRESHOLD
from leadline.stats.intervals import Estimate
from leadline.stats.marginals import DocumentShares, GroupMeans, estimate_of, length_means, marginals, overall_means
from leadline.stats.observations import FloatArray, Observations, distinct_codes, parts_by_category, parts_by_task

# --- RULER's averages: the mean, and two means weighted towards long or short prompts
#
# wAvg (inc) weighs the lengths 1, 2, 3 ... from the shortest up, for people who use long prompts; wAvg (dec) the
# other way round (Hsieh et al. 2024). Least squares on the published table recovers these weights.


Number = TypeVar("Number", float, Estimate)


class RulerAverages(NamedTuple, Generic[Number]):
    """Three summaries of one row of scores by length."""

    average: Number
    increasing: Number
    decreasing: Number


def ruler_average(scores: Mapping[int, float]) -> RulerAverages[float]:
    """From the score of each length, on whatever scale they are."""
    if not scores:
        raise UsageError("a row without a score has no average", where="wAvg")
    row = np.array([scores[length] for length in sorted(scores)])
    flat, up, down = _weights(len(row))
    return RulerAverages(float(flat @ row), float(up @ row), float(down @ row))


def ranks(values: Sequence[float]) -> list[int]:
    """Of each value its rank from the highest, 1; equal values have the same."""
    return [1 + sum(other > value for other in values) for value in values]


def ruler_average_estimate(data: Observations) -> RulerAverages[Estimate]:
    """The same from samples, with intervals; documents that serve several lengths are counted once."""
    counted = data.counted()
    if len(counted) == 0:
        raise UsageError("no sample has a score", where="wAvg")
    lengths, _, groups = length_means(counted)
    if len(lengths) == 1:
        return RulerAverages(*[marginals(counted, ("length",))[0].estimate] * 3)
    whole = overall_means(counted)
    averages = [estimate_of(_weighted(groups, w, whole), 0) for w in _weights(len(lengths))]
    return RulerAverages(*(replace(a, n=int(whole.n[0]), n_clusters=int(whole.n_clusters[0])) for a in averages))


def _weights(count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    rising = np.arange(1, count + 1) / (count * (count + 1) / 2)
    return np.full(count, 1 / count), rising, rising[::-1]


def _weighted(groups: GroupMeans, weights: FloatArray, whole: GroupMeans) -> GroupMeans:
    """The weighted mean of lengths as one group; a document that serves several lengths is one."""
    shares, at = groups.shares, weights[groups.shares.group]
    document = distinct_codes(shares.document)
    amount, weight, squares = (
        np.bincount(shares.document, weights=column)[document].astype(np.float64)
        for column in (at * shares.amount, at * shares.weight, at**2 * shares.squares)
    )
    document_shares = DocumentShares(document, np.zeros_like(document), amount, weight, squares)
    return replace(
        whole,
        means=np.array([round(float(weights @ groups.means), 12)]),  # weights add up to nearly 1
        variances=np.array([weights @ groups.covariance @ weights]),
        shares=document_shares,
        row_variances=np.array([weights**2 @ groups.row_variances]),
        degrees=np.maximum(whole.degrees, 1.0),
    )


# --- Effective length by RULER's rule

THRESHOLD = round(100 * RULER_THRESHOLD, 6)
SHARE = 0.85


@dataclass(frozen=True, slots=True)
class LongestLength:
    """The longest length that is good enough; None when none is. `beyond` when it is the longest of all."""

    length: int | None
    shortest: int
    beyond: bool

    def __str__(self) -> str:
        """`below 4k`, `32k` or `at least 128k`."""
        if self.length is None:
            return f"below {format_length(self.shortest)}"
        return f"{'at least ' if self.beyond else ''}{format_length(self.length)}"


def longest_passing(scores: Mapping[int, float], good: Callable[[float], bool]) -> LongestLength:
    passed = [length for length, score in scores.items() if good(score)]
    longest = max(passed, default=None)
    return LongestLength(longest, min(scores), longest == max(scores))


# --- The samples of a run


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One task, one category or the whole suite: scores by length, where there are any, and what follows from them."""

    name: str
    scores: Mapping[int, Estimate]
    averages: RulerAverages[Estimate] | None
    """None where a length has no answer: an average over other lengths would not be comparable."""
    effective: LongestLength | None
    effective_own: LongestLength | None


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """RULER's summary of a run. `published` is the whole by RULER's own scorer, where every answer has its score."""

    lengths: tuple[int, ...]
    tasks: tuple[SuiteRow, ...]
    """Those of one category follow each other."""
    categories: tuple[SuiteRow, ...]
    whole: SuiteRow
    published: SuiteRow | None
    threshold: float
    """In percent."""


def suite_summary(
    samples: Observations,
    categories: Mapping[str, str],
    *,
    published: Observations | None = None,
    threshold: float = THRESHOLD,
) -> SuiteSummary:
    """`categories` has the category of every task, in the order in which tasks are shown."""
    lengths = tuple(samples.lengths.tolist())

    def row(name: str, data: Observations) -> SuiteRow:
        if not len(data.counted()):
            return SuiteRow(name, {}, None, None, None)
        estimates = {int(m.key[0] or 0): m.estimate for m in marginals(data, ("length",))}
        scores = {length: estimate for length, estimate in estimates.items() if estimate.n}
        percent = {length: 100 * estimate.mean for length, estimate in scores.items()}
        averages = ruler_average_estimate(data) if len(scores) == len(lengths) else None
        own = SHARE * percent[min(percent)]
        above = longest_passing(percent, lambda score: score > threshold)
        return SuiteRow(name, scores, averages, above, longest_passing(percent, lambda score: score >= own - 1e-9))

    by_task = parts_by_task(samples)
    order = list(dict.fromkeys(categories.values()))
    tasks = sorted((task for task in categories if task in by_task), key=lambda task: order.index(categories[task]))
    by_category = parts_by_category(samples, categories)
    return SuiteSummary(
        lengths=lengths,
        tasks=tuple(row(task, by_task[task]) for task in tasks),
        categories=tuple(row(name, by_category[name]) for name in order if name in by_category),
        whole=row("average", samples),
        published=None if published is None else row("ruler.v1", published),
        threshold=threshold,
    )
