"""RULER's own summary of a row: the mean, and two means that lean towards long or short prompts.

wAvg (inc) weighs the lengths 1, 2, 3 ... from the shortest up, for people who use long prompts; wAvg (dec) the
other way round (Hsieh et al. 2024). Least squares on the published table recovers these weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leadline.core.errors import UsageError
from leadline.stats.intervals import Estimate, Interval, few_clusters_warning, t_quantile
from leadline.stats.marginals import GroupMeans, group_means
from leadline.stats.observations import Failures, FloatArray, Observations


@dataclass(frozen=True, slots=True)
class RulerAverage:
    """Three summaries of one row of scores by length."""

    average: float
    increasing: float
    decreasing: float


@dataclass(frozen=True, slots=True)
class RulerAverageEstimate:
    average: Estimate
    increasing: Estimate
    decreasing: Estimate


def ruler_average(scores: Mapping[int, float]) -> RulerAverage:
    """From the score of each length, on whatever scale they are."""
    if not scores:
        raise UsageError("a row without a score has no average", where="wAvg")
    row = np.array([scores[length] for length in sorted(scores)])
    flat, up, down = _weights(len(row))
    return RulerAverage(float(flat @ row), float(up @ row), float(down @ row))


def ruler_average_estimate(
    data: Observations, *, failures: Failures = "excluded", confidence: float = 0.95
) -> RulerAverageEstimate:
    """The same from samples, with intervals; documents that serve several lengths are counted once."""
    counted = data.counted(failures)
    lengths, code = np.unique(counted.length, return_inverse=True)
    if len(lengths) == 0:
        raise UsageError("no sample has a score", where="wAvg")
    groups = group_means(counted, code.astype(np.int64), len(lengths))
    whole = group_means(counted, np.zeros(len(counted), dtype=np.int64), 1)
    made = [_weighted(groups, weights, whole, confidence) for weights in _weights(len(lengths))]
    return RulerAverageEstimate(*made)


def _weights(count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    rising = np.arange(1, count + 1) / (count * (count + 1) / 2)
    return np.full(count, 1 / count), rising, rising[::-1]


def _weighted(groups: GroupMeans, weights: FloatArray, whole: GroupMeans, confidence: float) -> Estimate:
    mean = float(weights @ groups.means)
    deviation = float(np.sqrt(weights @ groups.covariance @ weights))
    half = t_quantile(confidence, max(float(whole.degrees[0]), 1.0)) * deviation
    interval = Interval(mean - half, mean + half, confidence, "t over documents")
    clusters = int(whole.n_clusters[0])
    return Estimate(mean, interval, int(whole.n[0]), clusters, few_clusters_warning(clusters))
