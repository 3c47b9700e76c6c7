"""Means over parts of the grid: one cell, a length, a depth, a task, everything.

Tasks weigh alike in a group, and cells alike in a task, however many samples each got. The grid is fixed, the
documents are drawn: so the error of a mean comes from samples scattering about their own cell, added up by
document, and not from cells that differ because the model does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import Documents, Estimate, Evidence, answers_worth, cell_evidence
from leadline.stats.observations import (
    CELL,
    BoolArray,
    Column,
    Failures,
    FloatArray,
    GroupKey,
    IntArray,
    Observations,
    compact,
    distinct,
    distinct_codes,
)


@dataclass(frozen=True, slots=True)
class Marginal:
    """The mean of one group of cells, with its interval and what it was made from."""

    key: GroupKey
    estimate: Estimate
    done: int
    failed: int
    mean_if_failures_were_zero: float


@dataclass(frozen=True, slots=True)
class DocumentShares:
    """What every document added to the error of every mean it served: document, group and amount, one row each."""

    document: IntArray
    group: IntArray
    amount: FloatArray
    weight: FloatArray
    """Of the document in the mean."""
    squares: FloatArray
    """The sum of the squared weights of its samples."""


@dataclass(frozen=True, slots=True)
class VarianceParts:
    """The variance of every mean by the documents that serve the same tasks and lengths: group, amount, what it would
    be if all documents scattered alike (without unit), and degrees of freedom, one row each."""

    group: IntArray
    variance: FloatArray
    if_alike: FloatArray
    degrees: FloatArray


@dataclass(frozen=True, slots=True)
class GroupMeans:
    """Means of groups and their errors. The variance of a mean is the sum of its documents' squared shares;
    documents that serve several groups make those means correlated."""

    means: FloatArray
    variances: FloatArray
    shares: DocumentShares
    row_variances: FloatArray
    """The variances there would be if no two samples shared a document."""
    degrees: FloatArray
    n: IntArray
    n_clusters: IntArray
    unit: BoolArray
    """Whether all scores of a group lie between 0 and 1."""
    binary: BoolArray
    """Whether all are 0 or 1."""
    parts: VarianceParts

    def carried_degrees(self, j: int, known: float = 0.0) -> float:
        """Degrees of freedom of the variance of mean `j`, from the documents that carry it (Satterthwaite 1946): twelve
        documents of a quiet length say nothing about the scatter of three at another. Three documents may look quiet by
        chance, so there are no more degrees than if all documents scattered alike. `known` is variance that was added
        and not estimated."""
        mine = self.parts.group == j
        degrees, carried = np.maximum(self.parts.degrees[mine], 1.0), float(self.degrees[j])
        for variance, more in ((self.parts.variance[mine], known), (self.parts.if_alike[mine], 0.0)):
            uncertain = float(np.sum(variance**2 / degrees))
            carried = min(carried, (float(variance.sum()) + more) ** 2 / uncertain) if uncertain > 0 else carried
        return carried

    @property
    def design_effect(self) -> float | None:
        """How much more the means vary because samples share documents, pooled over the groups: five documents a length
        are too few to estimate it for each. None where no answer varies within its cell."""
        rows = float(self.row_variances.sum())
        return max(1.0, float(self.variances.sum()) / rows) if rows > 1e-12 else None

    @property
    def covariance(self) -> FloatArray:
        shares, count = self.shares, len(self.means)
        table = np.zeros((int(shares.document.max(initial=-1)) + 1, count))
        table[shares.document, shares.group] = shares.amount
        return table.T @ table


def marginals(data: Observations, by: Sequence[Column], *, failures: Failures = "excluded") -> list[Marginal]:
    """A mean with an interval for every distinct value of the columns `by`; of everything when there are none."""
    keys, code = data.codes(by)
    counted = data.counted(failures)
    mine = code if len(counted) == len(data) else code[~data.failed]
    groups = group_means(counted, mine, len(keys))
    failed = np.bincount(code[data.failed], minlength=len(keys))
    done = np.bincount(code, minlength=len(keys)) - failed
    zeros = groups.means
    if data.failed.any():
        zeros = _sums(code, row_weights(data, code) * data.counted("zero").value, len(keys))
    rows = zip(keys, _evidence_of_groups(counted, mine, groups), done, failed, zeros, strict=True)
    return [
        Marginal(key, evidence.estimate(), int(answered), int(missed), float(zero))
        for key, evidence, answered, missed, zero in rows
    ]


def evidence_by(data: Observations, by: Sequence[Column]) -> list[tuple[GroupKey, Evidence]]:
    """What the interval of every marginal is made of; only rows with a value."""
    keys, code = data.codes(by)
    return list(zip(keys, _evidence_of_groups(data, code, group_means(data, code, len(keys))), strict=True))


def _evidence_of_groups(data: Observations, code: IntArray, groups: GroupMeans) -> Iterator[Evidence]:
    cells, cluster = _distinct(code, data.code(CELL), len(groups.means)), data.code(("cluster",))
    for j, count in enumerate(cells.tolist()):
        if count <= 1:
            rows = np.flatnonzero(code == j)
            yield cell_evidence(data.value[rows], _in_order_of_appearance(cluster[rows]))
        else:
            yield evidence_of(groups, j)


def group_means(data: Observations, group: IntArray, count: int) -> GroupMeans:
    """Means of `count` groups of rows, and the contributions of documents to their errors; found once."""
    for known, means in data.known_means:
        if len(means.means) == count and np.array_equal(known, group):
            return cast(GroupMeans, means)
    found = _group_means(data, group, count)
    data.known_means.append((group, found))
    return found


def _group_means(data: Observations, group: IntArray, count: int) -> GroupMeans:
    n = len(data)
    means = np.full(count, np.nan)
    if n == 0:
        empty = np.zeros(count, dtype=np.int64)
        nothing = DocumentShares(empty[:0], empty[:0], np.zeros(0), np.zeros(0), np.zeros(0))
        parts = VarianceParts(empty[:0], np.zeros(0), np.zeros(0), np.zeros(0))
        zeros, scale = np.zeros(count), np.ones(count, dtype=np.bool_)
        return GroupMeans(means, zeros, nothing, zeros, zeros, empty, empty, scale, scale, parts)
    task, cluster = data.code(("task",)), data.code(("cluster",))
    cell = _pairs(group, data.code(CELL))
    weight = _weights(group, task, cell)
    total, mass = _sums(group, weight * data.value, count), _sums(group, weight, count)
    np.divide(total, mass, out=means, where=mass > 0)
    stratum = _strata(data, group, task, cell, cluster)
    residual = _residuals(data, group, stratum, cluster, means)
    error = weight * residual
    degrees, n_clusters = _degrees(group, stratum, cluster, count)
    shares = _shares(cluster, group, error, weight)
    value = data.value
    return GroupMeans(
        means=means,
        variances=_sums(shares.group, shares.amount**2, count),
        shares=shares,
        row_variances=_sums(group, error**2, count),
        degrees=degrees,
        n=np.bincount(group, minlength=count),
        n_clusters=n_clusters,
        unit=_sums(group, ((value < 0) | (value > 1)).astype(np.float64), count) == 0,
        binary=_sums(group, ((value != 0) & (value != 1)).astype(np.float64), count) == 0,
        parts=_variance_parts(data, shares, weight, group, stratum, cluster),
    )


def overall_means(data: Observations) -> GroupMeans:
    """Everything as one group."""
    return group_means(data, np.zeros(len(data), dtype=np.int64), 1)


def length_means(data: Observations) -> tuple[IntArray, IntArray, GroupMeans]:
    """The distinct lengths, which of them each row has, and the mean of each."""
    lengths, code = data.lengths, data.code(("length",))
    return lengths, code, group_means(data, code, len(lengths))


@dataclass(frozen=True, slots=True)
class DesignEffect:
    """The factor by which shared documents raise the variance of a mean."""

    samples: int
    documents: int
    size: float
    """Samples a document, those that weigh more counting for more."""
    correlation: float | None
    """Of two answers from one document about the means of their cells, at least 0; None where no answer varies."""
    lost: int = 0
    """Documents of several samples that were all wrong."""

    @property
    def unseen(self) -> float | None:
        """The share of documents that could be lost whole without one among these, in 5 of 100 runs; None where one
        was, or where no two samples share a document. Intervals do not allow for all of it (studies/calibration)."""
        return None if self.lost or self.documents == self.samples else 1 - float(0.05 ** (1 / self.documents))

    @property
    def effect(self) -> float:
        """The variance as a multiple of that of independent samples. Where it cannot be estimated, a document counts
        as one answer."""
        return 1 + (self.size - 1) * (1.0 if self.correlation is None else self.correlation)


def design_effect(data: Observations) -> DesignEffect:
    """Estimated from what documents add to the error of the overall mean."""
    counted = data.counted()
    if len(counted) == 0:
        return DesignEffect(0, 0, 1.0, None)
    groups, weight = overall_means(counted), row_weights(counted, np.zeros(len(counted), dtype=np.int64))
    cluster, documents = counted.code(("cluster",)), counted.documents
    size = float(np.sum(np.bincount(cluster, weights=weight) ** 2) / np.sum(weight**2))
    if documents == len(counted):
        return DesignEffect(documents, documents, 1.0, 0.0)
    rows = float(groups.row_variances[0])
    right, count = np.bincount(cluster, weights=counted.value), np.bincount(cluster)
    lost = int(np.sum((right == 0) & (count > 1)))
    correlation = None
    if rows > 1e-12 and size > 1:
        correlation = float(np.clip((groups.variances[0] / rows - 1) / (size - 1), 0.0, 1.0))
    return DesignEffect(len(counted), documents, size, correlation, lost)


def row_weights(data: Observations, group: IntArray) -> FloatArray:
    """The weight of each row in the mean of its group: the weights of a group add up to one."""
    return _weights(group, data.code(("task",)), _pairs(group, data.code(CELL)))


def estimate_of(groups: GroupMeans, j: int) -> Estimate:
    """One group's mean with its interval."""
    return evidence_of(groups, j).estimate()


def evidence_of(groups: GroupMeans, j: int) -> Evidence:
    """The evidence behind the interval of one group's mean."""
    mine = groups.shares.group == j
    weights, squares = groups.shares.weight[mine], groups.shares.squares[mine]
    mean, rows = float(groups.means[j]), float(groups.row_variances[j])
    # The scatter of an answer about its cell, as of samples of equal weight.
    worth = answers_worth(mean, rows / float(squares.sum())) if rows > 1e-12 else 1.0
    return Evidence(
        mean=mean,
        variance=float(groups.variances[j]),
        degrees=float(groups.degrees[j]),
        n=int(groups.n[j]),
        n_clusters=int(groups.n_clusters[j]),
        documents=Documents(groups.shares.amount[mine] / weights, weights, worth * weights**2 / squares),
        unit=bool(groups.unit[j]),
        binary=bool(groups.binary[j]),
        one_cell=False,
    )


def _weights(group: IntArray, task: IntArray, cell: IntArray) -> FloatArray:
    """One over tasks in the group, cells in the task, rows in the cell."""
    shared_task = _pairs(group, task)
    cells_in_task = _distinct(shared_task, cell)
    tasks_in_group = _distinct(group, task)
    rows_in_cell = np.bincount(cell)[cell]
    return 1.0 / (tasks_in_group[group] * cells_in_task[shared_task] * rows_in_cell)


def _strata(data: Observations, group: IntArray, task: IntArray, cell: IntArray, cluster: IntArray) -> IntArray:
    """Where a row's own scatter is measured: its cell; with one document there, its length; else its group."""
    stratum = cell
    for wider in (_pairs(_pairs(group, task), data.code(("length",))), group):
        single = _distinct(stratum, cluster)[stratum] < 2
        stratum = np.where(single, stratum.max() + 1 + wider, stratum)
    return compact(stratum)[1]


def _residuals(
    data: Observations, group: IntArray, stratum: IntArray, cluster: IntArray, means: FloatArray
) -> FloatArray:
    size = np.bincount(stratum)
    centre = np.bincount(stratum, weights=data.value) / size
    clusters = _distinct(stratum, cluster)
    alone = (clusters < 2)[stratum]
    # With g documents in a stratum, deviations from its own mean are too small by (g - 1) / g.
    scale = np.sqrt(clusters / np.maximum(clusters - 1, 1))[stratum]
    return np.where(alone, data.value - means[group], (data.value - centre[stratum]) * scale)


def _shares(document: IntArray, group: IntArray, error: FloatArray, weight: FloatArray) -> DocumentShares:
    base = int(group.max()) + 1
    kept, at = compact(document * base + group)
    amount, mass, squares = (_sums(at, column, len(kept)) for column in (error, weight, weight**2))
    return DocumentShares(kept // base, kept % base, amount, mass, squares)


def _variance_parts(
    data: Observations,
    shares: DocumentShares,
    weight: FloatArray,
    group: IntArray,
    stratum: IntArray,
    cluster: IntArray,
) -> VarianceParts:
    """Documents of one group are of one part if they serve the same tasks and lengths."""
    cell = data.code(("task", "length"))
    base, places = int(group.max()) + 1, int(cell.max()) + 1
    served = distinct_codes((cluster * base + group) * places + cell)
    # Equal sets of cells have equal sums of these numbers.
    numbers = bulk_rng(0, "variance parts").random(places)
    kept, at = compact(served // places)  # in the order of `shares`
    sums = np.round(np.bincount(at, weights=numbers[served % places]), 9)
    part = _pairs(shares.group, np.searchsorted(distinct(sums), sums))
    count = int(part.max()) + 1
    of_share = np.searchsorted(kept, cluster * base + group)
    of_row = part[of_share]
    owner = np.zeros(count, dtype=np.int64)
    owner[part] = shares.group
    return VarianceParts(
        group=owner,
        variance=_sums(part, shares.amount**2, count),
        if_alike=_sums(part, _sums(of_share, weight, len(kept)) ** 2, count),
        degrees=_degrees(of_row, stratum, cluster, count)[0],
    )


def _degrees(group: IntArray, stratum: IntArray, cluster: IntArray, count: int) -> tuple[FloatArray, IntArray]:
    """Documents less the sets of strata they link: samples - 1 when one document serves the whole group,
    samples less cells when each has its own."""
    document = _pairs(group, cluster)
    linked = np.arange(int(stratum.max()) + 1)  # of each stratum, the smallest stratum it is linked to
    while True:
        of_document = np.full(int(document.max()) + 1, len(linked))
        np.minimum.at(of_document, document, linked[stratum])
        lower = linked.copy()
        np.minimum.at(lower, stratum, of_document[document])
        if np.array_equal(lower, linked):
            break
        linked = lower
    n_clusters = _distinct(group, cluster, count)
    return (n_clusters - _distinct(group, linked[stratum], count)).astype(np.float64), n_clusters


def _sums(code: IntArray, amount: FloatArray, count: int) -> FloatArray:
    return np.bincount(code, weights=amount, minlength=count).astype(np.float64)


def _pairs(first: IntArray, second: IntArray) -> IntArray:
    """A code for each pair of codes that occurs."""
    return compact(first * (int(second.max()) + 1) + second)[1]


def _in_order_of_appearance(code: IntArray) -> IntArray:
    """The same codes, numbered in the order in which they come."""
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[number]


def _distinct(outer: IntArray, inner: IntArray, count: int = 0) -> IntArray:
    """The number of different inner codes for each outer code."""
    base = int(inner.max(initial=0)) + 1
    return np.bincount(distinct_codes(outer * base + inner) // base, minlength=count)
