"""Intervals of means: of cells, marginals and any other average of scores.

The unit is the document: answers about one document are correlated. Four kinds of evidence have an interval each:

- yes/no answers, each from a document of its own: Wilson's interval, at the number of answers whose mean would vary as
  much where several cells are averaged (the effective sample size, with a t quantile);
- partial scores, each from a document of its own: the wider, at each end, of Wilson's interval at the effective sample
  size and of a bound that holds for scores of any distribution between 0 and 1 (Learned-Miller and Thomas 2020): what
  the documents would average with one more that scored nothing (for the low end) or everything, under random weights.
  It is Clopper and Pearson's where scores are 0 or 1;
- several answers a document: the wider of Wilson's interval at the effective sample size and of a beta-binomial
  interval, in which the correlation inside documents is estimated from them with a prior (`CORRELATION_PRIOR`);
- scores off the unit scale: Student's t over documents.

Sources: Wilson 1927; Brown, Cai and DasGupta 2001; Korn and Graubard 1998 for the effective sample size with a t
quantile; Rubin 1981 for random weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.stats.observations import FloatArray, IntArray

VERSION = 2
"""Of the intervals. 2: partial scores and shared documents; see the module's text."""
CONFIDENCE = 0.95
"""Of every interval that is not asked for at another."""
FEW_CLUSTERS = 5
"""Below this many documents a number is shown with a warning."""
BOUND_ERROR = 0.05
"""Of each end of the bound for scores of any distribution. It is reached only if nearly all documents score alike and
a few score nothing, or everything; in all other cases the error is far smaller (studies/calibration)."""
CORRELATION_PRIOR = 2.0
"""The correlation inside documents has the prior Beta(1, this): 0.33 in the mean, with no value ruled out."""
CORRELATIONS = 12
"""Values of the correlation that are tried: the middles of as many equally likely parts of its prior."""
ANGLES = 80
"""Values of the mean that are tried, twice: over the whole scale, then where the posterior is."""


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


@dataclass(frozen=True, slots=True)
class Documents:
    """The evidence of each document for one mean."""

    deviations: FloatArray
    """Of its score from the mean, with the differences between cells taken out."""
    weights: FloatArray
    """Its share in the mean; they add up to one."""
    answers: FloatArray
    """The number of independent yes/no answers with the information of its score, if all documents were alike."""

    @property
    def count(self) -> float:
        """Documents of equal weight that the mean would vary as much with."""
        return 1 / float(np.sum(self.weights**2))


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that an interval of a mean is made of."""

    mean: float
    variance: float
    """Of the mean, from the scatter of documents."""
    degrees: float
    """Degrees of freedom of `variance`."""
    n: int
    n_clusters: int
    documents: Documents
    unit: bool
    """Whether all scores lie between 0 and 1."""
    binary: bool
    """Whether all scores are 0 or 1."""
    one_cell: bool

    @property
    def shared(self) -> bool:
        """Whether a document has several answers."""
        return self.n_clusters < self.n

    def estimate(self) -> Estimate:
        return Estimate(self.mean, self.interval(), self.n, self.n_clusters)

    def interval(self, factor: float = 1.0) -> Interval:
        """The interval, or the one that `factor` times as many documents with the same scores would give."""
        if self.n == 0:
            return Interval(0.0, 1.0, CONFIDENCE, "none")
        if self.unit and self.binary and not self.shared and self.one_cell:
            return _wilson(self.mean, self.n * factor, normal_quantile(CONFIDENCE), "wilson")
        degrees = factor * (self.degrees + 1) - 1
        if degrees < 1:
            # One document says nothing about how documents differ.
            low, high = (0.0, 1.0) if self.unit else (-math.inf, math.inf)
            return Interval(low, high, CONFIDENCE, "one document")
        if not self.unit:
            half = t_quantile(CONFIDENCE, degrees) * math.sqrt(self.variance / factor)
            return Interval(self.mean - half, self.mean + half, CONFIDENCE, "t over documents")
        seen = self._from_scatter(degrees, factor)
        if self.shared:
            return _hull(seen, self._beta_binomial(factor), self.mean)
        return seen if self.binary and seen else _hull(seen, self.bound(factor), self.mean)

    def guarded(self, factor: float = 1.0) -> Interval:
        """The interval, widened for documents lost whole of which none may be among these."""
        interval = self.interval(factor)
        return _hull(interval, self.bound(factor), self.mean) if self.unit and self.n else interval

    def bound(self, factor: float = 1.0) -> Interval:
        """Ends that hold for documents whose scores have any distribution between 0 and 1."""
        documents, mean = self.documents, self.mean
        # Squares of scores between 0 and 1 are not above the scores.
        square = min(mean**2 + float(np.sum(documents.weights * documents.deviations**2)), mean)
        count = documents.count * factor
        low, high = _lowest(mean, square, count), 1 - _lowest(1 - mean, 1 - 2 * mean + square, count)
        return Interval(low, high, CONFIDENCE, "bound for any scores")

    def _from_scatter(self, degrees: float, factor: float) -> Interval | None:
        """Wilson's interval at the number of yes/no answers whose mean would vary as much as this one does. None where
        nothing was seen to vary, so that nothing can be estimated; each yes/no document is then one answer."""
        if self.variance <= 1e-12:
            if self.binary and not self.shared:
                count = factor * self.documents.count
                return _wilson(self.mean, count, normal_quantile(CONFIDENCE), "effective-n wilson")
            return None
        size = factor * self.mean * (1 - self.mean) / self.variance
        return _wilson(self.mean, size, t_quantile(CONFIDENCE, degrees), "effective-n wilson")

    def _beta_binomial(self, factor: float) -> Interval:
        """The beta-binomial interval of the mean of documents, by a grid over the mean and the correlation inside
        documents, with Jeffreys' prior for the mean."""
        documents = self.documents
        scores = np.clip(self.mean + documents.deviations, 0.0, 1.0)
        table = np.round(np.stack([scores * documents.answers, documents.answers]), 6)
        (right, answers), which = np.unique(table, axis=1, return_inverse=True)
        counts = np.asarray(
            np.bincount(which.ravel(), weights=documents.weights) * documents.count * factor, np.float64
        )
        levels = (np.arange(CORRELATIONS) + 0.5) / CORRELATIONS
        correlations = 1 - (1 - levels) ** (1 / CORRELATION_PRIOR)
        low, high = 0.0, math.pi / 2
        for _ in range(2):  # Jeffreys' prior is flat over the angle whose squared sine is the mean
            step = (high - low) / ANGLES
            angles = low + (np.arange(ANGLES) + 0.5) * step
            mass = _posterior(np.sin(angles) ** 2, correlations, right, answers, counts)
            within = np.flatnonzero(mass > 1e-7)
            ends = np.interp(((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2), np.cumsum(mass) - mass / 2, angles)
            low, high = max(angles[within[0]] - step, 0.0), min(angles[within[-1]] + step, math.pi / 2)
        least, most = (float(end) for end in np.sin(ends) ** 2)
        ends_at = (0.0 if self.mean <= 0 else least, 1.0 if self.mean >= 1 else most)
        return Interval(*ends_at, CONFIDENCE, "beta-binomial")


def _posterior(
    means: FloatArray, correlations: FloatArray, right: FloatArray, answers: FloatArray, counts: FloatArray
) -> FloatArray:
    """The posterior mass of each mean, with the correlation integrated out."""
    log_gamma = scipy.special.gammaln
    size = (1 - correlations) / correlations
    alpha, beta = means[:, None] * size, (1 - means)[:, None] * size
    likelihood = -counts.sum() * (log_gamma(alpha) + log_gamma(beta) - log_gamma(size))
    for hits, total, count in zip(right, answers, counts, strict=True):
        likelihood += count * (log_gamma(hits + alpha) + log_gamma(total - hits + beta) - log_gamma(total + size))
    mass = np.exp(likelihood - likelihood.max()).sum(axis=1)
    return np.asarray(mass / mass.sum())


def _lowest(mean: float, square: float, count: float) -> float:
    """The lower bound of a mean of `count` scores between 0 and 1, from their mean and mean square: a low quantile of
    their mean under random weights together with one more score, of 0. The quantile is that of a beta distribution."""
    if mean <= 0:
        return 0.0
    centre = mean * count / (count + 1)
    spread = (square * count / (count + 1) - centre**2) / (count + 2)
    size = centre * (1 - centre) / spread - 1
    return float(scipy.special.betaincinv(centre * size, (1 - centre) * size, BOUND_ERROR))


def _hull(first: Interval | None, second: Interval, mean: float) -> Interval:
    """The wider end of both on each side; the name is that of the one with the farther end."""
    if first is None:
        return second
    low, high = min(first.low, second.low), max(first.high, second.high)
    widest = first if first.high - first.low >= second.high - second.low else second
    return Interval(min(low, mean), max(high, mean), CONFIDENCE, widest.method)


def answers_behind(mean: float, interval: Interval) -> float:
    """The number of independent yes/no answers of which Wilson's interval would have these ends, about."""
    low, high = min(interval.low, mean), max(interval.high, mean)
    share, product = (mean, low * high) if mean >= 0.5 else (1 - mean, (1 - low) * (1 - high))
    return normal_quantile(CONFIDENCE) ** 2 / max(share**2 / product - 1, 1e-9) if product > 0 else 0.0


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
    return _wilson(successes / n if n else 0.5, n, normal_quantile(confidence), "wilson", confidence)


def mean_interval(values: Sequence[float], clusters: Sequence[str]) -> Estimate:
    """The mean of scores and the interval that fits how they came about.

    `clusters` names the document (haystack) behind each value; equal names mean correlated values.
    """
    if len(values) != len(clusters):
        raise ValueError(f"{len(values)} values but {len(clusters)} clusters")
    numbers: dict[str, int] = {}
    document = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.int64)
    return cell_evidence(np.array(values, dtype=np.float64), document).estimate()


def cell_evidence(scores: FloatArray, document: IntArray) -> Evidence:
    """The evidence of the scores of one cell. Documents are numbered in the order in which they come."""
    n = len(scores)
    if n == 0:
        nothing = Documents(np.zeros(0), np.zeros(0), np.zeros(0))
        return Evidence(math.nan, math.nan, 0.0, 0, 0, nothing, unit=True, binary=True, one_cell=True)
    mean = math.fsum(scores.tolist()) / n
    answers = np.bincount(document).astype(np.float64)
    residuals = np.bincount(document, weights=scores - mean)
    groups = len(answers)
    # The cluster-robust variance of a mean: squared sums of residuals by document.
    variance = groups / max(groups - 1, 1) * float(residuals @ residuals) / n**2
    unit = bool(np.all((scores >= 0) & (scores <= 1)))
    binary = bool(np.all((scores == 0) | (scores == 1)))
    worth = answers_worth(mean, float(np.mean((scores - mean) ** 2)) * n / max(n - 1, 1)) if not binary else 1.0
    documents = Documents(residuals / answers, answers / n, answers * worth)
    return Evidence(mean, variance, groups - 1.0, n, groups, documents, unit=unit, binary=binary, one_cell=True)


def answers_worth(mean: float, scatter: float) -> float:
    """The number of yes/no answers with the information of one answer whose variance about its cell is `scatter`, at
    most 100."""
    return min(max(mean * (1 - mean) / max(scatter, 1e-9), 1.0), 100.0) if 0 < mean < 1 else 1.0


def _wilson(mean: float, n: float, z: float, method: str, confidence: float = CONFIDENCE) -> Interval:
    if n == 0:
        return Interval(0.0, 1.0, confidence, method)
    z2 = z * z
    centre = (mean + z2 / (2 * n)) / (1 + z2 / n)
    half = z / (1 + z2 / n) * math.sqrt(mean * (1 - mean) / n + z2 / (4 * n * n))
    low = 0.0 if mean == 0 else max(0.0, centre - half)
    high = 1.0 if mean == 1 else min(1.0, centre + half)
    return Interval(low, high, confidence, method)
