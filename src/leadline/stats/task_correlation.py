"""Which tasks measure the same? Rank correlations between tasks over models, and how tasks cluster by them.

As in appendix C of RULER (arXiv 2404.06654), a task is a vector of scores over models and lengths, and tasks are
clustered by agglomeration with one minus their correlation as distance. Here the correlation is Spearman's, linkage is
by averages, and intervals come from a bootstrap over models: the lengths of one model go together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.cluster.hierarchy import fcluster, leaves_list, linkage
from scipy.spatial.distance import squareform
from scipy.stats import rankdata

from leadline.core.errors import UsageError
from leadline.core.seeds import bulk_rng
from leadline.stats.correlate import FEW_MODELS, few_models_range
from leadline.stats.observations import FloatArray
from leadline.stats.ruler_summary import AVERAGES, EMPTY, length_of, read_cells, score_of

FEWEST_MODELS = 4
FEWEST_TASKS = 2
RESAMPLES = 1000
CUT = 0.5
"""Tasks whose clusters are further apart than this stay apart: on average they correlate less than 1 - CUT."""

Point = tuple[str, int | None]
"""A model and a length; None when its lengths are taken together."""


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
    """Two clusters that become one: tasks by their place in the order, and how far apart the two were."""

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


def task_correlation(
    scores: TaskScores, *, resamples: int = RESAMPLES, seed: int = 0, cut: float = CUT, confidence: float = 0.95
) -> TaskCorrelation:
    """Correlations, their intervals, and the tree of tasks."""
    _check(scores)
    found = spearman_matrix(scores.values[None])[0]
    drawn = _resampled(scores, resamples, seed)
    with np.errstate(invalid="ignore"):
        low, high = _quantiles(drawn, confidence)
    if len(scores.models) <= FEW_MODELS:
        low, high = _at_least_theory(found, low, high, len(scores.models), confidence)
    order, merges, clusters = _tree(found, cut)
    square = np.ix_(order, order)
    tasks = tuple(scores.tasks[i] for i in order)
    return TaskCorrelation(
        tasks=tasks,
        matrix=found[square],
        low=low[square],
        high=high[square],
        merges=merges,
        clusters=tuple(tuple(scores.tasks[i] for i in cluster) for cluster in clusters),
        models=len(scores.models),
        points=len(scores.points),
        resamples=resamples,
        cut=cut,
    )


def _check(scores: TaskScores) -> None:
    if len(scores.tasks) < FEWEST_TASKS:
        there = ", ".join(scores.tasks) or "none"
        raise UsageError(
            f"there must be {FEWEST_TASKS} tasks or more to correlate, and there is {there}", where="task correlation"
        )
    if len(scores.models) >= FEWEST_MODELS:
        return
    have = f"{len(scores.models)} model{'' if len(scores.models) == 1 else 's'} with a score for every task"
    why = f"; {len(scores.left_out)} rows lack a task" if scores.left_out else ""
    raise UsageError(
        f"tasks are correlated over models, and {have} are too few{why}",
        where="task correlation",
        fix=f"give runs of {FEWEST_MODELS} models or more, each with the same tasks at the same lengths",
    )


def spearman_matrix(values: FloatArray) -> FloatArray:
    """Spearman's correlation of every two columns, for each of a stack of tables; NaN where a column is constant."""
    ranks = rankdata(values, axis=1)
    centred = ranks - ranks.mean(axis=1, keepdims=True)
    scale = np.sqrt(np.sum(centred * centred, axis=1))
    products = np.einsum("bpi,bpj->bij", centred, centred)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = products / (scale[:, :, None] * scale[:, None, :])
    return np.asarray(np.clip(found, -1.0, 1.0))


def _resampled(scores: TaskScores, resamples: int, seed: int) -> FloatArray:
    """Models drawn with replacement, each with all its lengths."""
    rows = {model: [i for i, (name, _) in enumerate(scores.points) if name == model] for model in scores.models}
    groups = list(rows.values())
    draw = bulk_rng(seed, "task correlation")
    if len({len(group) for group in groups}) == 1:
        chosen = np.array(groups)[draw.integers(0, len(groups), (resamples, len(groups)))].reshape(resamples, -1)
        return spearman_matrix(scores.values[chosen])
    picks = draw.integers(0, len(groups), (resamples, len(groups)))
    tables = (scores.values[[i for number in pick for i in groups[number]]] for pick in picks)
    return np.concatenate([spearman_matrix(table[None]) for table in tables])


def _quantiles(drawn: FloatArray, confidence: float) -> tuple[FloatArray, FloatArray]:
    """Of the resamples in which both tasks vary; NaN where there are none."""
    known = np.isfinite(drawn).any(axis=0)
    filled = np.where(known, drawn, 0.0)
    low, high = np.nanquantile(filled, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return np.where(known, low, np.nan), np.where(known, high, np.nan)


def _at_least_theory(
    found: FloatArray, low: FloatArray, high: FloatArray, models: int, confidence: float
) -> tuple[FloatArray, FloatArray]:
    """Intervals of different tasks, widened to those of theory where models are few."""
    wide = np.array([[few_models_range(float(value), models, confidence) for value in row] for row in found])
    pairs = ~np.eye(len(found), dtype=np.bool_)
    return np.where(pairs, np.fmin(low, wide[..., 0]), low), np.where(pairs, np.fmax(high, wide[..., 1]), high)


def _tree(matrix: FloatArray, cut: float) -> tuple[list[int], tuple[Merge, ...], list[list[int]]]:
    """The order of tasks along the tree, its merges in places of that order, and the clusters below the cut."""
    distance = np.where(np.isfinite(matrix), 1.0 - matrix, 1.0)  # a task that never varies is like no other
    np.fill_diagonal(distance, 0.0)
    condensed = squareform((distance + distance.T) / 2, checks=False)
    tree = linkage(condensed, "average", optimal_ordering=True)
    order = [int(i) for i in leaves_list(tree)]
    place = {task: number for number, task in enumerate(order)}
    members: list[tuple[int, ...]] = [(place[task],) for task in range(len(matrix))]
    merges = []
    for left, right, apart, _ in tree:
        one, other = members[int(left)], members[int(right)]
        both = tuple(sorted((*one, *other)))
        merges.append(Merge(both, one, other, float(apart)))
        members.append(both)
    numbers = fcluster(tree, cut, "distance")
    clusters: dict[int, list[int]] = {}
    for task in order:
        clusters.setdefault(int(numbers[task]), []).append(task)
    return order, tuple(merges), list(clusters.values())


# --- Published scores by model and task
#
# model,length,niah_single_1,vt ...      a row for each model (and length, if there is such a column), a column a task
# model,task,4k,8k ...                   a row for each model and task, a column for each length

ScoresByPoint = dict[Point, dict[str, float]]


def read_task_table(path: Path) -> ScoresByPoint:
    """The score of each task, by model and length."""
    (_, header), *body = read_cells(path)
    names = [name.lower() for name in header]
    lengths = {column: length for column, name in enumerate(header) if (length := length_of(name)) is not None}
    if "task" in names:
        return _by_task(header, body, lengths, names.index("task"), path)
    if lengths:
        raise UsageError(
            "the table has a column for each length and none that says which task",
            where=str(path),
            fix="add a column `task`, or give a column for each task",
        )
    return _by_model(header, body, names, path)


def _by_model(header: list[str], body: list[tuple[int, list[str]]], names: list[str], path: Path) -> ScoresByPoint:
    length_column = names.index("length") if "length" in names else None
    kinds = ["".join(c for c in name if c.isalpha()) for name in names]
    columns = [c for c in range(1, len(header)) if c != length_column and kinds[c] not in AVERAGES]
    scores: ScoresByPoint = {}
    for number, line in body:
        where = f"{path}:{number}"
        line += [""] * (len(header) - len(line))
        point = (line[0], _length_in(line[length_column], where) if length_column is not None else None)
        if point in scores:
            raise UsageError(f"{line[0]} is in the table twice", where=where, fix="add a column `length`")
        scores[point] = {
            header[c]: score_of(line[c], f"{where}, column {header[c]}")
            for c in columns
            if c < len(line) and line[c].lower() not in EMPTY
        }
    return scores


def _by_task(
    header: list[str], body: list[tuple[int, list[str]]], lengths: dict[int, int], task: int, path: Path
) -> ScoresByPoint:
    if not lengths:
        raise UsageError("no column of the table is a length", where=str(path), fix="name columns 4k, 8k ...")
    model = header.index("model") if "model" in header else 0
    scores: ScoresByPoint = {}
    for number, line in body:
        line += [""] * (len(header) - len(line))
        for column, length in lengths.items():
            if line[column].lower() not in EMPTY:
                value = score_of(line[column], f"{path}:{number}, column {header[column]}")
                scores.setdefault((line[model], length), {})[line[task]] = value
    return scores


def _length_in(text: str, where: str) -> int:
    length = length_of(text)
    if length is None:
        raise UsageError(f"{text!r} is not a length", where=where, fix="write 4096, 4k or 128k")
    return length
