"""Does a cheap score rank models as an expensive one does? Correlations over a handful of models.

Pearson, Spearman, Kendall (tau-b) and skipped Spearman: drop bivariate outliers, then Spearman. A point is an
outlier when, on the line from the centre through any other point, its projection lies further out than the median
plus sqrt(chi2(0.975, 2)) times the interquartile range by ideal fourths (Wilcox 2012; Pernet, Wilcox and
Rousselet 2013). The centre is the pair of medians; the minimum covariance determinant is an option. Intervals are
percentile bootstraps over models, and outliers are looked for anew in every resample: otherwise the interval
would ignore that another draw of models has other outliers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import Interval
from leadline.stats.observations import BoolArray, FloatArray, IntArray

# --- Bivariate outliers by projection, for many data sets at once. Used by skipped correlations.

Centre = Literal["median", "mcd"]
_FAR = 2.7162030  # sqrt of the 0.975 quantile of chi-square with two degrees of freedom
_CHI2_975, _CHI2_MEDIAN = 7.3777589, 1.3862944


def projection_outliers(x: FloatArray, y: FloatArray, centre: Centre, *, thorough: bool) -> BoolArray:
    """Which points of each row are outliers. `thorough` spends more starts on the determinant's search."""
    points = np.stack([x, y], axis=-1)
    if centre == "median":
        middle = np.median(points, axis=1, keepdims=True)
    else:
        middle = mcd_centre(points, starts=1200 if thorough else 20)[:, None, :]
    away = points - middle
    length = np.sqrt(np.sum(away**2, axis=2))
    onto = np.abs(np.einsum("bik,bjk->bij", away, away))  # of point j, on the line through point i
    projected = np.divide(onto, length[:, :, None], out=np.zeros_like(onto), where=length[:, :, None] > 0)
    ordered = np.sort(projected, axis=2)
    limit = np.median(ordered, axis=2) + _FAR * _ideal_fourths_range(ordered)
    return np.asarray(np.any((projected > limit[:, :, None]) & (length[:, :, None] > 0), axis=1))


def _ideal_fourths_range(ordered: FloatArray) -> FloatArray:
    """The interquartile range by ideal fourths (Frigge, Hoaglin and Iglewicz 1989), along the last axis."""
    n = ordered.shape[-1]
    place = n / 4 + 5 / 12
    j = int(place)
    part = place - j
    lower = (1 - part) * ordered[..., j - 1] + part * ordered[..., j]
    upper = (1 - part) * ordered[..., n - j] + part * ordered[..., n - j - 1]
    return np.asarray(upper - lower)


def mcd_centre(points: FloatArray, starts: int) -> FloatArray:
    """Of each set (sets x points x 2), the reweighted mean of the half with the smallest covariance determinant.

    Rousseeuw and van Driessen 1999, with their median correction before reweighting. Newer scikit-learn corrects by a
    consistency factor instead and gives other centres; on public test data this one gives the Matlab toolbox's values.
    """
    sets, n, _ = points.shape
    half = int(np.ceil(0.5 * (n + 3)))
    triples = _triples(n, starts)
    chosen = np.zeros((len(triples), n), dtype=np.bool_)
    np.put_along_axis(chosen, triples, True, axis=1)
    chosen = np.tile(chosen, (sets, 1))
    spread = np.repeat(points, len(triples), axis=0)
    for _ in range(6):  # concentration steps: keep the half nearest to the present ellipse
        nearest = np.argsort(_distances(spread, chosen), axis=1, kind="stable")[:, :half]
        chosen = np.zeros_like(chosen)
        np.put_along_axis(chosen, nearest, True, axis=1)
    determinant = np.linalg.det(_covariance(spread, chosen)[1]).reshape(sets, len(triples))
    best = np.argmin(determinant, axis=1)
    support = chosen.reshape(sets, len(triples), n)[np.arange(sets), best]
    distance = _distances(points, support)
    distance = distance * (_CHI2_MEDIAN / np.maximum(np.median(distance, axis=1, keepdims=True), 1e-300))
    return _covariance(points, distance < _CHI2_975)[0]


def _triples(n: int, starts: int) -> IntArray:
    every = np.array(list(combinations(range(n), 3)), dtype=np.int64) if n <= 20 else None
    if every is not None and len(every) <= starts:
        return every
    rng = bulk_rng(0, "mcd", n)
    return np.array([rng.choice(n, 3, replace=False) for _ in range(starts)], dtype=np.int64)


def _covariance(points: FloatArray, chosen: BoolArray) -> tuple[FloatArray, FloatArray]:
    weight = chosen[:, :, None].astype(np.float64)
    n = np.maximum(weight.sum(axis=1), 1.0)
    mean = np.sum(points * weight, axis=1) / n
    away = (points - mean[:, None, :]) * weight
    return mean, np.einsum("bni,bnj->bij", away, away) / n[:, :, None]


def _distances(points: FloatArray, chosen: BoolArray) -> FloatArray:
    mean, covariance = _covariance(points, chosen)
    # Repeated or collinear points have no inverse; a ridge far below the data's own scale gives them one.
    scale = np.trace(covariance, axis1=1, axis2=2) * 1e-10 + 1e-300
    inverse = np.linalg.inv(covariance + scale[:, None, None] * np.eye(2))
    away = points - mean[:, None, :]
    return np.asarray(np.einsum("bni,bij,bnj->bn", away, inverse, away))


# --- Does a cheap score rank models as an expensive one does? Correlations over a handful of models.

Method = Literal["spearman", "pearson", "kendall", "skipped spearman"]
METHODS: tuple[Method, ...] = ("spearman", "pearson", "kendall", "skipped spearman")
Scores = Sequence[float] | FloatArray
RESAMPLES = 5000
FEWEST = 4

_Batch = Callable[[FloatArray, FloatArray, BoolArray], FloatArray]


@dataclass(frozen=True, slots=True)
class Correlation:
    """`outliers` are the places in the input that skipped Spearman left out."""

    method: Method
    value: float
    interval: Interval
    n: int
    resamples: int
    seed: int
    outliers: tuple[int, ...] = ()


def correlations(
    x: Scores,
    y: Scores,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
    centre: Centre = "median",
    confidence: float = 0.95,
) -> dict[Method, Correlation]:
    """All four, from the same resamples."""
    xs, ys = _paired(x, y)
    rows = bulk_rng(seed, "correlate").integers(0, len(xs), size=(resamples, len(xs)))
    found: dict[Method, Correlation] = {}
    for method in METHODS:
        value, outliers = _estimate(method, xs, ys, centre)
        drawn = _resampled(method, xs[rows], ys[rows], centre)
        interval = _percentile(drawn, confidence)
        found[method] = Correlation(method, value, interval, len(xs), resamples, seed, outliers)
    return found


def correlation_difference(
    better: Scores,
    worse: Scores,
    target: Scores,
    *,
    method: Method = "spearman",
    resamples: int = RESAMPLES,
    seed: int = 0,
    centre: Centre = "median",
    confidence: float = 0.95,
) -> tuple[float, Interval]:
    """How much more closely one proxy follows the target than another does, over the same models."""
    first, ys = _paired(better, target)
    second, _ = _paired(worse, target)
    rows = bulk_rng(seed, "correlate").integers(0, len(ys), size=(resamples, len(ys)))
    gap = _estimate(method, first, ys, centre)[0] - _estimate(method, second, ys, centre)[0]
    drawn = _resampled(method, first[rows], ys[rows], centre) - _resampled(method, second[rows], ys[rows], centre)
    return gap, _percentile(drawn, confidence)


def spearman(x: Scores, y: Scores) -> float:
    return _estimate("spearman", *_paired(x, y), "median")[0]


def pearson(x: Scores, y: Scores) -> float:
    return _estimate("pearson", *_paired(x, y), "median")[0]


def kendall(x: Scores, y: Scores) -> float:
    return _estimate("kendall", *_paired(x, y), "median")[0]


def skipped_spearman(x: Scores, y: Scores, *, centre: Centre = "median") -> tuple[float, tuple[int, ...]]:
    """The correlation, and the places of the points left out."""
    return _estimate("skipped spearman", *_paired(x, y), centre)


def _paired(x: Scores, y: Scores) -> tuple[FloatArray, FloatArray]:
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if xs.shape != ys.shape or xs.ndim != 1:
        raise UsageError(f"{len(xs)} scores against {len(ys)}: every model needs both", where="correlation")
    if len(xs) < FEWEST:
        raise UsageError(
            f"{len(xs)} models are too few to correlate", where="correlation", fix=f"give {FEWEST} or more"
        )
    if not (np.isfinite(xs).all() and np.isfinite(ys).all()):
        raise UsageError("a score is missing or not finite", where="correlation", fix="leave that model out by name")
    return xs, ys


def _estimate(method: Method, x: FloatArray, y: FloatArray, centre: Centre) -> tuple[float, tuple[int, ...]]:
    keep = np.ones((1, len(x)), dtype=np.bool_)
    if method == "skipped spearman":
        keep = ~projection_outliers(x[None], y[None], centre, thorough=True)
    return float(_BATCHES[method](x[None], y[None], keep)[0]), tuple(np.flatnonzero(~keep[0]).tolist())


def _resampled(method: Method, x: FloatArray, y: FloatArray, centre: Centre) -> FloatArray:
    # Pairwise comparisons take n * n numbers a resample; a few megabytes at a time keep them in cache.
    step = max(1, 400_000 // x.shape[1] ** 2)
    parts = []
    for start in range(0, len(x), step):
        xs, ys = x[start : start + step], y[start : start + step]
        keep = np.ones(xs.shape, dtype=np.bool_)
        if method == "skipped spearman":
            keep = ~projection_outliers(xs, ys, centre, thorough=False)
        parts.append(_BATCHES[method](xs, ys, keep))
    return np.concatenate(parts)


def _percentile(drawn: FloatArray, confidence: float) -> Interval:
    fine = drawn[np.isfinite(drawn)]  # a resample of one repeated value has no correlation
    if len(fine) == 0:
        return Interval(-1.0, 1.0, confidence, "none")
    low, high = np.quantile(fine, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(float(low), float(high), confidence, "percentile bootstrap over models")


def _pearson(x: FloatArray, y: FloatArray, keep: BoolArray) -> FloatArray:
    n = np.maximum(keep.sum(axis=1, keepdims=True), 1)
    dx = np.where(keep, x - np.where(keep, x, 0.0).sum(axis=1, keepdims=True) / n, 0.0)
    dy = np.where(keep, y - np.where(keep, y, 0.0).sum(axis=1, keepdims=True) / n, 0.0)
    spread = np.sqrt(np.sum(dx * dx, axis=1) * np.sum(dy * dy, axis=1))
    scale = np.sqrt(np.sum(x * x, axis=1) * np.sum(y * y, axis=1))
    return _over(np.sum(dx * dy, axis=1), spread, 1e-14 * scale)


def _over(top: FloatArray, spread: FloatArray, least: FloatArray) -> FloatArray:
    """The ratio, or NaN where there is no spread to speak of."""
    return np.asarray(np.divide(top, spread, out=np.full(len(top), np.nan), where=spread > least))


def _ranks(x: FloatArray, keep: BoolArray) -> FloatArray:
    """Ranks among the kept values, ties sharing their mean; what was not kept gets a rank that is never used."""
    other = x[:, None, :]
    smaller = np.sum((other < x[:, :, None]) & keep[:, None, :], axis=2)
    equal = np.sum((other == x[:, :, None]) & keep[:, None, :], axis=2)
    return np.asarray(smaller + (equal + 1) / 2)


def _spearman(x: FloatArray, y: FloatArray, keep: BoolArray) -> FloatArray:
    return _pearson(_ranks(x, keep), _ranks(y, keep), keep)


def _kendall(x: FloatArray, y: FloatArray, keep: BoolArray) -> FloatArray:
    both = (keep[:, :, None] & keep[:, None, :]).astype(np.float64)
    sx = np.sign(x[:, :, None] - x[:, None, :]) * both
    sy = np.sign(y[:, :, None] - y[:, None, :]) * both
    spread = np.sqrt(np.sum(np.abs(sx), axis=(1, 2)) * np.sum(np.abs(sy), axis=(1, 2)))
    return _over(np.sum(sx * sy, axis=(1, 2)), spread, np.zeros(len(x)))


_BATCHES: dict[Method, _Batch] = {
    "spearman": _spearman,
    "pearson": _pearson,
    "kendall": _kendall,
    "skipped spearman": _spearman,
}
