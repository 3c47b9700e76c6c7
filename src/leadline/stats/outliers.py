"""Bivariate outliers by projection, for many data sets at once. Used by skipped correlations."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np

from leadline.core.seeds import bulk_rng
from leadline.stats.observations import BoolArray, FloatArray, IntArray

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
