"""How sure a mean is: intervals for cells, marginals and any other average of scores.

A binary cell gets Wilson's interval. Scores between 0 and 1 that are fractions, or that share documents, get
Wilson's interval too, at the number of independent yes/no answers that would scatter as much (the effective
sample size), with a t quantile because that number is itself estimated. Scores off the unit scale get a plain
t interval over documents. Sources: Wilson 1927; Brown, Cai and DasGupta 2001; Korn and Graubard 1998 for the
effective sample size with a t quantile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import scipy  # loads its parts when they are first used

PRIOR_DOCUMENTS = 4
"""How many documents the assumption weighs that a document is right or wrong as a whole."""
CONFIDENCE = 0.95
"""Of every interval that is not asked for at another."""
FEW_CLUSTERS = 5
"""Below this many documents a number is shown with a warning."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A range and how it was made. `confidence` is its nominal coverage."""

    low: float
    high: float
    confidence: float
    method: str

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean with its interval. `n` counts values, `n_clusters` the independent documents behind them."""

    mean: float
    interval: Interval
    n: int
    n_clusters: int


def normal_quantile(confidence: float) -> float:
    """The two-sided quantile: 1.96 for 0.95."""
    return NormalDist().inv_cdf(0.5 + confidence / 2)


def t_quantile(confidence: float, degrees: float) -> float:
    """The two-sided quantile of Student's t: 2.776 for 0.95 with 4 degrees of freedom."""
    return float(scipy.special.stdtrit(degrees, 0.5 + confidence / 2))


def wilson(successes: float, n: float, confidence: float = CONFIDENCE) -> Interval:
    """The default for a share of independent answers. `n` may be an effective sample size."""
    if not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n} is not a share")
    return _wilson(successes / n if n else 0.5, n, normal_quantile(confidence), confidence, "wilson")


def mean_interval(values: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """The mean of scores and the interval that fits how they came about.

    `clusters` names the document (haystack) behind each value; equal names mean correlated values.
    """
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values but {len(clusters)} clusters")
    n = len(values)
    if n == 0:
        return Estimate(math.nan, Interval(0.0, 1.0, CONFIDENCE, "none"), 0, 0)
    mean = math.fsum(values) / n
    residuals: dict[str, float] = {}
    for value, cluster in zip(values, clusters, strict=True):
        residuals[cluster] = residuals.get(cluster, 0.0) + (value - mean)
    return Estimate(mean, _choose(values, mean, list(residuals.values())), n, len(residuals))


def _choose(values: Sequence[float], mean: float, residuals: Sequence[float]) -> Interval:
    n, groups = len(values), len(residuals)
    unit = all(0 <= v <= 1 for v in values)
    binary = unit and all(v in (0, 1) for v in values)
    independent = groups == n
    if binary and independent:
        return _wilson(mean, n, normal_quantile(CONFIDENCE), CONFIDENCE, "wilson")
    if groups == 1:
        # One document says nothing about how documents differ.
        low, high = (0.0, 1.0) if unit else (-math.inf, math.inf)
        return Interval(low, high, CONFIDENCE, "one document")
    # The cluster-robust variance of a mean: squared sums of residuals by document.
    variance = groups / (groups - 1) * math.fsum(r * r for r in residuals) / n**2
    if unit:
        return effective_wilson(mean, variance, groups, groups - 1, None if independent else mean * (1 - mean))
    half = t_quantile(CONFIDENCE, groups - 1) * math.sqrt(variance)
    return Interval(mean - half, mean + half, CONFIDENCE, "t over documents")


def effective_wilson(
    mean: float, variance: float, groups: float, degrees: float, scatter: float | None = None
) -> Interval:
    """Wilson's interval at the number of yes/no answers whose mean would vary as much as this one does.

    `scatter` is given when several answers come from one document: the variance of an answer about its cell. A few
    documents do not show how much documents differ: one that is lost whole may not be among them. Their variance is
    therefore averaged with that of documents of which each is one answer, which weighs as much as `PRIOR_DOCUMENTS`
    of them (studies/calibration).
    """
    label = "effective-n wilson"
    if variance <= 1e-12:
        # Nothing was seen to vary, so nothing can be estimated: count each document as one yes/no answer.
        return _wilson(mean, groups, normal_quantile(CONFIDENCE), CONFIDENCE, label)
    size = mean * (1 - mean) / variance
    if scatter is not None:
        unseen = PRIOR_DOCUMENTS / 2 / (groups + PRIOR_DOCUMENTS)
        pulled = (mean * groups + PRIOR_DOCUMENTS / 2) / (groups + PRIOR_DOCUMENTS)
        worst = min(pulled * (1 - pulled), scatter + unseen * (1 - unseen)) / groups
        variance = (degrees * variance + PRIOR_DOCUMENTS * worst) / (degrees + PRIOR_DOCUMENTS)
        size = min(size, max(mean * (1 - mean) / variance, groups))
    return _wilson(mean, size, t_quantile(CONFIDENCE, degrees), CONFIDENCE, label)


def _wilson(mean: float, n: float, z: float, confidence: float, method: str) -> Interval:
    if n == 0:
        return Interval(0.0, 1.0, confidence, method)
    z2 = z * z
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(mean * (1 - mean) / n + z2 / (4 * n * n))
    low = 0.0 if mean == 0 else max(0.0, centre - half)
    high = 1.0 if mean == 1 else min(1.0, centre + half)
    return Interval(low, high, confidence, method)
