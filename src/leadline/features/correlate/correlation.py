"""Correlations over a handful of models: does a cheap score rank them as an expensive one does, and which tasks measure
the same?

Of two scores: Pearson, Spearman, Kendall (tau-b) and skipped Spearman: drop bivariate outliers, then Spearman. A point
is an outlier when, on the line from the centre through any other point, its projection lies further out than the median
plus sqrt(chi2(0.975, 2)) times the interquartile range by ideal fourths (Wilcox 2012; Pernet, Wilcox and Rousselet
2013). The centre is the pair of medians. Intervals are percentile bootstraps over models. Outliers are searched again
in every resample, because another draw of models has other outliers.

Between tasks, as in appendix C of RULER (arXiv 2404.06654): a task is a vector of scores over models and lengths, and
tasks are clustered by agglomeration with one minus their correlation as distance. Here the correlation is Spearman's,
linkage is by averages, and the bootstrap draws models with all their lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.core.errors import UsageError
from leadline.core.seeds import bulk_rng
from leadline.results.score_files import Point
from leadline.stats.intervals import CONFIDENCE, Interval, normal_quantile
from leadline.stats.observations import BoolArray, FloatArray

_FAR = 2.7162030  # square root of the 0.975 quantile of chi-square with two degrees of freedom

Method = Literal["spearman", "pearson", "kendall", "skipped spearman"]
METHODS: tuple[Method, ...] = ("spearman", "pearson", "kendall", "skipped spearman")
ScoreList = Sequence[float] | FloatArray
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
RESAMPLES = 5000
FEWEST = 4
FEW_MODELS = 12
"""Up to this many models an interval is at least as wide as theory says."""


def projection_outliers(x: FloatArray, y: FloatArray) -> BoolArray:
    """Which points are bivariate outliers, for each row of `x` and `y` (data sets x points)."""
    points = np.stack([x, y], axis=-1)
    away = points - np.median(points, axis=1, keepdims=True)
    length = np.sqrt(np.sum(away**2, axis=2))
    onto = np.abs(np.einsum("bik,bjk->bij", away, away))  # of point j, on the line through point i
    projected = np.divide(onto, length[:, :, None], out=np.zeros_like(onto), where=length[:, :, None] > 0)
    ordered = np.sort(projected, axis=2)
    limit = np.median(ordered, axis=2) + _FAR * _ideal_fourths_range(ordered)
    return np.asarray(np.any((projected > limit[:, :, None]) & (length[:, :, None] > 0), axis=1))


def _ideal_fourths_range(ordered: FloatArray) -> FloatArray:
    """The interquartile range by ideal fourths (Frigge, Hoaglin and Iglewicz 1989), along the last axis."""
    n = ordered.shape[-1]
    rank = n / 4 + 5 / 12
    j = int(rank)
    part = rank - j
    lower = (1 - part) * ordered[..., j - 1] + part * ordered[..., j]
    upper = (1 - part) * ordered[..., n - j] + part * ordered[..., n - j - 1]
    return np.asarray(upper - lower)


@dataclass(frozen=True, slots=True)
class Correlation:
    """`outliers` are the positions in the input that skipped Spearman left out."""

    method: Method
    value: float
    interval: Interval
    n: int
    resamples: int
    seed: int
    outliers: tuple[int, ...] = ()


def correlations(x: ScoreList, y: ScoreList, *, resamples: int = RESAMPLES, seed: int = 0) -> dict[Method, Correlation]:
    """All four, from the same resamples."""
    xs, ys = _paired(x, y)
    rows = bulk_rng(seed, "correlate").integers(0, len(xs), size=(resamples, len(xs)))
    by_method: dict[Method, Correlation] = {}
    for method in METHODS:
        value, outliers = _estimate(method, xs, ys)
        drawn = _resampled(method, xs[rows], ys[rows])
        interval = _percentile(drawn)
        if len(xs) <= FEW_MODELS:
            low, high = few_models_range(value, len(xs))
            interval = replace(interval, low=min(interval.low, low), high=max(interval.high, high))
        by_method[method] = Correlation(method, value, interval, len(xs), resamples, seed, outliers)
    return by_method


def few_models_range(value: float, n: int) -> tuple[float, float]:
    """The interval of a rank correlation by Fisher's z with the error of Bonett and Wright (2000).

    Resamples of a few models in one order are all in that order, so a bootstrap would call their correlation certain. A
    correlation of one is taken to lie halfway to the next smaller one that n ranks can have.
    """
    most = 1 - 6 / (n * (n * n - 1))
    inside = min(max(value, -most), most)
    half = normal_quantile(CONFIDENCE) * math.sqrt((1 + inside**2 / 2) / max(n - 3, 1))
    low, high = math.tanh(math.atanh(inside) - half), math.tanh(math.atanh(inside) + half)
    return min(low, value), max(high, value)


def correlation_difference(
    better: ScoreList, worse: ScoreList, target: ScoreList, *, resamples: int = RESAMPLES
) -> tuple[float, Interval]:
    """How much more closely one proxy follows the target than another does (Spearman), over the same models."""
    first, ys = _paired(better, target)
    second, _ = _paired(worse, target)
    rows = bulk_rng(0, "correlate").integers(0, len(ys), size=(resamples, len(ys)))
    gap = _estimate("spearman", first, ys)[0] - _estimate("spearman", second, ys)[0]
    drawn = _resampled("spearman", first[rows], ys[rows]) - _resampled("spearman", second[rows], ys[rows])
    return gap, _percentile(drawn)


def spearman(x: ScoreList, y: ScoreList) -> float:
    return _estimate("spearman", *_paired(x, y))[0]


def _paired(x: ScoreList, y: ScoreList) -> tuple[FloatArray, FloatArray]:
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


def _estimate(method: Method, x: FloatArray, y: FloatArray) -> tuple[float, tuple[int, ...]]:
    """The correlation, and the positions that were left out."""
    values, keep = _batch(method, x[None], y[None])
    return float(values[0]), tuple(np.flatnonzero(~keep[0]).tolist())


def _resampled(method: Method, x: FloatArray, y: FloatArray) -> FloatArray:
    # Pairwise comparisons take n * n numbers a resample; a few megabytes at a time keep them in cache.
    step = max(1, 400_000 // x.shape[1] ** 2)
    starts = range(0, len(x), step)
    return np.concatenate([_batch(method, x[at : at + step], y[at : at + step])[0] for at in starts])


def _batch(method: Method, x: FloatArray, y: FloatArray) -> tuple[FloatArray, BoolArray]:
    """The correlation of each row of `x` and `y`, and which points are in it."""
    keep = ~projection_outliers(x, y) if method == "skipped spearman" else np.ones(x.shape, dtype=np.bool_)
    return _COEFFICIENTS[method](x, y, keep), keep


def _percentile(drawn: FloatArray) -> Interval:
    fine = drawn[np.isfinite(drawn)]  # a resample of one repeated value has no correlation
    if len(fine) == 0:
        return Interval(-1.0, 1.0, CONFIDENCE, "none")
    low, high = np.quantile(fine, _TAILS)
    return Interval(float(low), float(high), CONFIDENCE, "percentile bootstrap over models")


def _pearson(x: FloatArray, y: FloatArray, keep: BoolArray) -> FloatArray:
    n = np.maximum(keep.sum(axis=1, keepdims=True), 1)
    dx = np.where(keep, x - np.where(keep, x, 0.0).sum(axis=1, keepdims=True) / n, 0.0)
    dy = np.where(keep, y - np.where(keep, y, 0.0).sum(axis=1, keepdims=True) / n, 0.0)
    spread = np.sqrt(np.sum(dx * dx, axis=1) * np.sum(dy * dy, axis=1))
    scale = np.sqrt(np.sum(x * x, axis=1) * np.sum(y * y, axis=1))
    return _over(np.sum(dx * dy, axis=1), spread, 1e-14 * scale)


def _over(top: FloatArray, spread: FloatArray, least: FloatArray) -> FloatArray:
    """The ratio, or NaN where the spread is zero but for rounding."""
    return np.asarray(np.divide(top, spread, out=np.full(len(top), np.nan), where=spread > least))


def _ranks(x: FloatArray, keep: BoolArray) -> FloatArray:
    """Ranks among the kept values; ties share their mean. Other values get a rank that is never used."""
    return np.asarray(scipy.stats.rankdata(np.where(keep, x, np.inf), axis=1))


def _spearman(x: FloatArray, y: FloatArray, keep: BoolArray) -> FloatArray:
    return _pearson(_ranks(x, keep), _ranks(y, keep), keep)


def _kendall(x: FloatArray, y: FloatArray, keep: BoolArray) -> FloatArray:
    both = (keep[:, :, None] & keep[:, None, :]).astype(np.float64)
    sx = np.sign(x[:, :, None] - x[:, None, :]) * both
    sy = np.sign(y[:, :, None] - y[:, None, :]) * both
    spread = np.sqrt(np.sum(np.abs(sx), axis=(1, 2)) * np.sum(np.abs(sy), axis=(1, 2)))
    return _over(np.sum(sx * sy, axis=(1, 2)), spread, np.zeros(len(x)))


_COEFFICIENTS: dict[Method, Callable[[FloatArray, FloatArray, BoolArray], FloatArray]] = {
    "spearman": _spearman,
    "pearson": _pearson,
    "kendall": _kendall,
    "skipped spearman": _spearman,
}


# --- Between tasks

FEWEST_TASKS = 2
TASK_RESAMPLES = 1000
CUT = 0.5
"""Tasks whose clusters are further apart than this stay apart: on average they correlate less than 1 - CUT."""


@dataclass(frozen=True, slots=True)
class TaskScores:
    """A row for each model and length, a column for each task. Rows in which a task is missing are left out."""

    tasks: tuple[str, ...]
    points: tuple[Point, ...]
    values: FloatArray
    left_out: tuple[Point, ...] = ()

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(model for model, _ in self.points))


@dataclass(frozen=True, slots=True)
class Merge:
    """Two clusters that become one: tasks by their position in the order, and the distance of the two."""

    tasks: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    distance: float


@dataclass(frozen=True, slots=True)
class TaskCorrelation:
    """All in the order that puts similar tasks side by side. A task that never varies correlates with nothing (NaN)."""

    tasks: tuple[str, ...]
    matrix: FloatArray
    low: FloatArray
    high: FloatArray
    merges: tuple[Merge, ...]
    clusters: tuple[tuple[str, ...], ...]
    models: int
    points: int
    resamples: int
    cut: float


def task_scores(scores: Mapping[Point, Mapping[str, float]]) -> TaskScores:
    """The table of a number of models, from the score of each task at each point."""
    tasks = tuple(dict.fromkeys(task for row in scores.values() for task in row))
    whole = [point for point, row in scores.items() if all(task in row for task in tasks)]
    values = np.array([[scores[point][task] for task in tasks] for point in whole], np.float64)
    return TaskScores(tasks, tuple(whole), values, tuple(point for point in scores if point not in whole))


def over_lengths(scores: TaskScores) -> TaskScores:
    """A row for each model: the mean over its lengths."""
    names = [model for model, _ in scores.points]
    models = scores.models
    means = np.array([scores.values[[n == model for n in names]].mean(axis=0) for model in models])
    return TaskScores(scores.tasks, tuple((model, None) for model in models), means, scores.left_out)


def task_correlation(scores: TaskScores, *, resamples: int = TASK_RESAMPLES, seed: int = 0) -> TaskCorrelation:
    """Correlations, their intervals, and the tree of tasks."""
    _check_scores(scores)
    matrix = spearman_matrix(scores.values[None])[0]
    drawn = _resampled_models(scores, resamples, seed)
    with np.errstate(invalid="ignore"):
        low, high = _quantiles(drawn)
    if len(scores.models) <= FEW_MODELS:
        low, high = _at_least_theory(matrix, low, high, len(scores.models))
    order, merges, clusters = _tree(matrix)
    square = np.ix_(order, order)
    tasks = tuple(scores.tasks[i] for i in order)
    return TaskCorrelation(
        tasks=tasks,
        matrix=matrix[square],
        low=low[square],
        high=high[square],
        merges=merges,
        clusters=tuple(tuple(scores.tasks[i] for i in cluster) for cluster in clusters),
        models=len(scores.models),
        points=len(scores.points),
        resamples=resamples,
        cut=CUT,
    )


def _check_scores(scores: TaskScores) -> None:
    if len(scores.tasks) < FEWEST_TASKS:
        there = ", ".join(scores.tasks) or "none"
        raise UsageError(
            f"there must be {FEWEST_TASKS} tasks or more to correlate, and there is {there}", where="task correlation"
        )
    if len(scores.models) >= FEWEST:
        return
    have = f"{len(scores.models)} model{'' if len(scores.models) == 1 else 's'} with a score for every task"
    why = f"; {len(scores.left_out)} rows lack a task" if scores.left_out else ""
    raise UsageError(
        f"tasks are correlated over models, and {have} are too few{why}",
        where="task correlation",
        fix=f"give runs of {FEWEST} models or more, each with the same tasks at the same lengths",
    )


def spearman_matrix(values: FloatArray) -> FloatArray:
    """Spearman's correlation of every two columns, for each of a stack of tables; NaN where a column is constant."""
    ranks = scipy.stats.rankdata(values, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.sum(centred * centred, axis=1))
    products = np.einsum("bpi,bpj->bij", centred, centred)
    with np.errstate(invalid="ignore", divide="ignore"):
        matrix = products / (scale[:, :, None] * scale[:, None, :])
    return np.asarray(np.clip(matrix, -1.0, 1.0))


def _resampled_models(scores: TaskScores, resamples: int, seed: int) -> FloatArray:
    """Models drawn with replacement, each with all its lengths."""
    rows = {model: [i for i, (name, _) in enumerate(scores.points) if name == model] for model in scores.models}
    groups = list(rows.values())
    draw = bulk_rng(seed, "task correlation")
    picks = draw.integers(0, len(groups), (resamples, len(groups)))
    tables = (scores.values[[i for number in pick for i in groups[number]]] for pick in picks)
    return np.concatenate([spearman_matrix(table[None]) for table in tables])


def _quantiles(drawn: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Quantiles over the resamples in which both tasks vary; NaN where there are none."""
    known = np.isfinite(drawn).any(axis=0)
    filled = np.where(known, drawn, 0.0)
    low, high = np.nanquantile(filled, _TAILS, axis=0)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def _at_least_theory(
    matrix: FloatArray, low: FloatArray, high: FloatArray, models: int
) -> tuple[FloatArray, FloatArray]:
    """Intervals of different tasks, widened to those of theory where models are few."""
    wide = np.array([[few_models_range(float(value), models) for value in row] for row in matrix])
    pairs = ~np.eye(len(matrix), dtype=np.bool_)
    return np.where(pairs, np.fmin(low, wide[..., 0]), low), np.where(pairs, np.fmax(high, wide[..., 1]), high)


def _tree(matrix: FloatArray) -> tuple[list[int], tuple[Merge, ...], list[list[int]]]:
    """The order of tasks along the tree, its merges by positions in that order, and the clusters below the cut."""
    distance = np.where(np.isfinite(matrix), 1.0 - matrix, 1.0)  # a task that never varies is similar to no other
    np.fill_diagonal(distance, 0.0)
    condensed = scipy.spatial.distance.squareform((distance + distance.T) / 2, checks=False)
    tree = scipy.cluster.hierarchy.linkage(condensed, "average", optimal_ordering=True)
    order = [int(i) for i in scipy.cluster.hierarchy.leaves_list(tree)]
    position = {task: number for number, task in enumerate(order)}
    members: list[tuple[int, ...]] = [(position[task],) for task in range(len(matrix))]
    merges = []
    for left, right, apart, _ in tree:
        left_tasks, right_tasks = members[int(left)], members[int(right)]
        both = tuple(sorted((*left_tasks, *right_tasks)))
        merges.append(Merge(both, left_tasks, right_tasks, float(apart)))
        members.append(both)
    numbers = scipy.cluster.hierarchy.fcluster(tree, CUT, "distance")
    clusters: dict[int, list[int]] = {}
    for task in order:
        clusters.setdefault(int(numbers[task]), []).append(task)
    return order, tuple(merges), list(clusters.values())
