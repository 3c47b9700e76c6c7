"""Paired comparison of two runs of the same prompts: differences, intervals, tests.

Records are paired by their coordinates, so that the difficulty of a prompt cancels. Differences are candidate less
base. Tasks weigh alike, and cells within a task, in a difference, its interval over documents and its test: yes/no
answers from one document each are tested by McNemar's mid-p and others by flipping the sign of each document's
difference where every cell has as many samples, and by Student's t where not. Verdicts come from pooled, per-length,
per-task and depth-third tests, corrected together; at ten samples a single cell has no power, so cells are only
described.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import CONFIDENCE, Estimate, Interval, t_quantile
from leadline.stats.marginals import GroupMeans, group_means, row_weights
from leadline.stats.observations import (
    CELL,
    DEPTH_BANDS,
    BoolArray,
    Failures,
    FloatArray,
    GroupKey,
    IntArray,
    Observations,
    distinct_codes,
)
from leadline.stats.sequential import asymptotic_half_width

EXACT_UP_TO = 12
"""Up to this many documents all sign patterns are tried."""


def mcnemar_midp(lost: IntArray, gained: IntArray) -> FloatArray:
    """Two-sided mid-p of McNemar's test on the prompts whose answer changed (Fagerland et al. 2013), pair by pair."""
    n, fewer = lost + gained, np.minimum(lost, gained)
    log_gamma = scipy.special.gammaln
    point = np.exp(log_gamma(n + 1) - log_gamma(fewer + 1) - log_gamma(n - fewer + 1) - n * np.log(2))
    return np.where(lost == gained, 1.0, np.minimum(1.0, 2 * scipy.special.bdtr(fewer, n, 0.5) - point))


def sign_flip_p(totals: FloatArray, resamples: int, rng: np.random.Generator) -> FloatArray:
    """Two-sided p of each column's sum (documents x groups) when the sign of every document's difference is a coin.

    A document that serves several groups is flipped in all of them at once. Exact for few documents.
    """
    documents = len(totals)
    seen = np.abs(totals.sum(axis=0))
    tolerance = 1e-12 + 1e-9 * np.abs(totals).sum(axis=0)  # equal sums must count as equal, whatever order they add in
    if documents <= EXACT_UP_TO:
        signs = np.array(list(product((-1.0, 1.0), repeat=documents)))
        return np.asarray(np.mean(np.abs(signs @ totals) >= seen - tolerance, axis=0))
    reached = np.zeros(totals.shape[1])
    done, step = 0, max(1, 2_000_000 // documents)
    while done < resamples:
        many = min(step, resamples - done)
        signs = rng.integers(0, 2, size=(many, documents)).astype(np.float64) * 2 - 1
        reached += np.sum(np.abs(signs @ totals) >= seen - tolerance, axis=0)
        done += many
    return np.asarray((reached + 1) / (resamples + 1))


def holm(p: FloatArray) -> FloatArray:
    """Adjusted p-values along the last axis that keep the chance of any false alarm (Holm 1979)."""
    order = np.argsort(p, axis=-1)
    factors = p.shape[-1] - np.arange(p.shape[-1])
    stepped = np.maximum.accumulate(np.minimum(1.0, np.take_along_axis(p, order, -1) * factors), axis=-1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, stepped, -1)
    return adjusted


Scope = Literal["overall", "length", "task", "depth", "cell"]
Correction = Literal["holm", "bh"]
SCOPES: tuple[Scope, ...] = ("overall", "length", "task", "depth")
SETTLED = 20
"""With this many degrees of freedom an anytime interval trusts the observed scatter."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The samples both runs have. The columns of `base` and `candidate` are those of one and the same prompt."""

    base: Observations
    candidate: Observations
    only_base: int
    only_candidate: int
    failed: int
    """Pairs left out because a sample failed in one run or both."""

    def __len__(self) -> int:
        return len(self.base)

    @property
    def same_text(self) -> int:
        """Pairs whose prompts have the same text."""
        return int(np.sum(self._texts_known & (self.base.prompt == self.candidate.prompt)))

    @property
    def other_text(self) -> int:
        """Pairs whose prompts have different texts. Pairs of older runs, without digests, are in neither count."""
        return int(np.sum(self._texts_known & (self.base.prompt != self.candidate.prompt)))

    @property
    def _texts_known(self) -> BoolArray:
        return np.asarray((self.base.prompt != 0) & (self.candidate.prompt != 0))

    @property
    def difference(self) -> Observations:
        return self.base.with_values(self.candidate.value - self.base.value)


@dataclass(frozen=True, slots=True)
class Difference:
    """One part of the grid in both runs. `p` is two-sided, against no difference; NaN for cells, which go untested."""

    scope: Scope
    name: str
    key: GroupKey
    base: float
    candidate: float
    estimate: Estimate
    lost: int
    """Prompts that scored lower than before."""
    gained: int
    test: str
    p: float
    adjusted: float
    verdict: Literal["worse", "better", "not significant", "described only"]


@dataclass(frozen=True, slots=True)
class Comparison:
    differences: tuple[Difference, ...]
    cells: tuple[Difference, ...]
    pairs: int
    documents: int
    """Independent documents behind the pairs."""
    only_base: int
    only_candidate: int
    failed: int
    correction: Correction
    alpha: float
    discordance: float
    """The share of prompts whose score changed: what to plan the next comparison with."""
    same_text: int = 0
    """Pairs whose prompts have the same text; `other_text`, different texts. Older runs have no digests of them."""
    other_text: int = 0

    @property
    def overall(self) -> Difference:
        return self.differences[0]

    def of(self, scope: Scope) -> tuple[Difference, ...]:
        return tuple(d for d in self.differences if d.scope == scope)


def pair(base: Observations, candidate: Observations, *, failures: Failures = "excluded") -> Pairs:
    """The prompts that both runs asked, in one order."""
    there = {key: row for row, key in enumerate(coordinates(base))}
    matched = [(there[key], row) for row, key in enumerate(coordinates(candidate)) if key in there]
    rows = np.array(sorted(matched), dtype=np.int64).reshape(-1, 2)
    first, second = base.take(rows[:, 0]), candidate.take(rows[:, 1])
    lost = first.failed | second.failed
    if failures == "zero":
        first, second = first.counted("zero"), second.counted("zero")
    else:
        first, second = first.take(~lost), second.take(~lost)
    left_out = int(lost.sum()) if failures == "excluded" else 0
    # Documents are the base run's: the same prompt is the same document in both.
    second = replace(second, cluster=first.cluster)
    return Pairs(first, second, len(base) - len(rows), len(candidate) - len(rows), left_out)


def compare(pairs: Pairs, *, correction: Correction = "holm", resamples: int = 5000) -> Comparison:
    """Every difference with its interval and test."""
    if len(pairs) == 0:
        raise UsageError("the runs have no answered prompt in common", where="compare", fix="compare runs of one spec")
    differences = []
    for scope in SCOPES:
        of_scope = _differences(pairs, scope, resamples)
        # The only task or length of a run is the run: testing it again would only dilute the correction.
        differences += of_scope if scope == "overall" or len(of_scope) > 1 else []
    p = np.array([d.p for d in differences])
    adjusted = holm(p) if correction == "holm" else scipy.stats.false_discovery_control(p)
    judged = [_with_verdict(d, float(q), 1 - CONFIDENCE) for d, q in zip(differences, adjusted, strict=True)]
    cells = _differences(pairs, "cell", 0)
    return Comparison(
        differences=tuple(judged),
        cells=tuple(cells),
        pairs=len(pairs),
        documents=pairs.base.documents,
        only_base=pairs.only_base,
        only_candidate=pairs.only_candidate,
        failed=pairs.failed,
        correction=correction,
        alpha=1 - CONFIDENCE,
        discordance=float(np.mean(pairs.base.value != pairs.candidate.value)),
        same_text=pairs.same_text,
        other_text=pairs.other_text,
    )


def difference_interval(
    grouped: Grouped, j: int, confidence: float = CONFIDENCE, *, anytime: bool = False, by_document: bool = False
) -> Interval:
    """The interval of the mean difference of group `j`, at one look or, with `anytime`, at all of them."""
    widest = 1.0 if grouped.unit else float("inf")
    error = grouped.error(j, by_document=by_document)
    if error.degrees < 1:
        return Interval(-widest, widest, confidence, "one document")
    if not anytime:
        half, method = t_quantile(confidence, error.degrees) * error.deviation, "t over documents"
    elif error.degrees < SETTLED:
        half, method = widest, "confidence sequence"
    else:
        scatter = error.deviation * np.sqrt(error.rounds)
        half, method = float(asymptotic_half_width(scatter, error.rounds, confidence)), "confidence sequence"
    return Interval(max(-widest, error.centre - half), min(widest, error.centre + half), confidence, method)


@dataclass(frozen=True, slots=True)
class PairedError:
    """The evidence for a mean difference. `rounds` is samples a cell."""

    centre: float
    deviation: float
    degrees: float
    rounds: float


@dataclass(frozen=True, slots=True)
class Grouped:
    """The pairs of one scope, row by row in groups, with the mean difference of each group."""

    keys: list[tuple[GroupKey, str]]
    code: IntArray
    base: FloatArray
    candidate: FloatArray
    difference: Observations
    weight: FloatArray
    means: GroupMeans
    cells: IntArray
    unit: bool
    """Whether all scores lie between 0 and 1."""

    prompts: FloatArray
    """Prompts of each group that would weigh alike: fewer than there are where cells have unequal numbers."""
    documents: FloatArray
    """Documents of each group that would weigh alike."""

    def error(self, j: int, *, by_document: bool = False) -> PairedError:
        """For scores between 0 and 1 two pretended prompts, one lost and one gained, are added (Bonett and Price 2012):
        a run in which nothing changed does not prove that nothing can. With `by_document` they are whole documents, so
        that a few documents do not prove that none is ever lost."""
        n = float((self.documents if by_document else self.prompts)[j])
        centre, variance, added = float(self.means.means[j]), float(self.means.variances[j]), 0.0
        if self.unit:
            centre, added = centre * n / (n + 2), 2 / (n + 2) ** 2
        rounds = max(int(self.means.n[j]) / float(self.cells[j]), 1.0)
        degrees = self.means.carried_degrees(j, added)
        return PairedError(centre, float(np.sqrt(variance + added)), degrees, rounds)

    def count(self, rows: BoolArray) -> IntArray:
        return np.bincount(self.code[rows], minlength=len(self.keys))


def group_pairs(pairs: Pairs, scope: Scope) -> Grouped:
    data = pairs.difference
    rows = ~np.isnan(data.depth) if scope == "depth" else np.ones(len(data), dtype=np.bool_)
    data = data.take(rows)
    keys, code = _groups(data, scope)
    cell = data.code(CELL)
    base, candidate = pairs.base.value[rows], pairs.candidate.value[rows]
    size = int(cell.max(initial=0)) + 1
    weight = row_weights(data, code) if len(data) else np.zeros(0)
    clusters, document = data.documents, data.code(("cluster",))
    by_document = np.bincount(code * clusters + document, weights=weight, minlength=len(keys) * clusters)
    return Grouped(
        keys=keys,
        code=code,
        base=base,
        candidate=candidate,
        difference=data,
        weight=weight,
        means=group_means(data, code, len(keys)),
        cells=np.bincount(distinct_codes(code * size + cell) // size, minlength=len(keys)),
        unit=all(bool(np.all((side >= 0) & (side <= 1))) for side in (base, candidate)),
        prompts=1 / np.bincount(code, weights=weight**2, minlength=len(keys)),
        documents=1 / np.maximum(np.sum(by_document.reshape(len(keys), clusters) ** 2, axis=1), 1e-300),
    )


def _groups(data: Observations, scope: Scope) -> tuple[list[tuple[GroupKey, str]], IntArray]:
    if scope == "overall":
        return [((), "overall")], np.zeros(len(data), dtype=np.int64)
    if scope == "depth":
        names = list(DEPTH_BANDS)
        edges = np.array([high for _, high in DEPTH_BANDS.values()][:-1])
        kept, code = np.unique(np.searchsorted(edges, data.depth, side="right"), return_inverse=True)
        return [((names[band],), f"depth:{names[band]}") for band in kept.tolist()], code.astype(np.int64)
    if scope == "cell":
        keys, code = data.codes(CELL)
        return [(key, _cell_name(*key)) for key in keys], code
    keys, code = data.codes((scope,))
    return [(key, f"{scope}:{format_tokens(key[0]) if isinstance(key[0], int) else key[0]}") for key in keys], code


def _differences(pairs: Pairs, scope: Scope, resamples: int) -> list[Difference]:
    grouped = group_pairs(pairs, scope)
    if len(grouped.code) == 0:
        return []
    value = grouped.difference.value
    lost, gained = grouped.count(value < 0), grouped.count(value > 0)
    test, p = _tests(grouped, scope, resamples, lost, gained)
    base, candidate = (np.bincount(grouped.code, weights=grouped.weight * v) for v in (grouped.base, grouped.candidate))
    return [
        Difference(
            scope=scope,
            name=name,
            key=key,
            base=float(base[j]),
            candidate=float(candidate[j]),
            estimate=Estimate(
                mean=float(grouped.means.means[j]),
                interval=difference_interval(grouped, j),
                n=int(grouped.means.n[j]),
                n_clusters=int(grouped.means.n_clusters[j]),
            ),
            lost=int(lost[j]),
            gained=int(gained[j]),
            test=test,
            p=float(p[j]),
            adjusted=float("nan"),
            verdict="described only",
        )
        for j, (key, name) in enumerate(grouped.keys)
    ]


def _tests(grouped: Grouped, scope: Scope, resamples: int, lost: IntArray, gained: IntArray) -> tuple[str, FloatArray]:
    if scope == "cell":
        return "none", np.full(len(lost), np.nan)
    binary = bool(np.isin(grouped.base, (0.0, 1.0)).all() and np.isin(grouped.candidate, (0.0, 1.0)).all())
    clusters, document = grouped.difference.documents, grouped.difference.code(("cluster",))
    # McNemar's test and sign flips judge every prompt alike. Where cells have unequal numbers of samples that is not
    # the mean that is reported, whose own error is used instead.
    if not np.allclose(grouped.weight * grouped.means.n[grouped.code], 1.0):
        errors, stdtr = [grouped.error(j) for j in range(len(lost))], scipy.special.stdtr
        p = [2 * stdtr(e.degrees, -abs(e.centre) / e.deviation) if e.degrees >= 1 else 1.0 for e in errors]
        return "t over documents", np.array(p)
    if binary and clusters == len(grouped.code):
        return "mcnemar mid-p", mcnemar_midp(lost, gained)
    totals = np.zeros((clusters, len(lost)))
    np.add.at(totals, (document, grouped.code), grouped.weight * grouped.difference.value)
    return "sign flips by document", sign_flip_p(totals, resamples, bulk_rng(0, "sign flips", scope))


def _with_verdict(difference: Difference, adjusted: float, alpha: float) -> Difference:
    interval = difference.estimate.interval
    if adjusted > alpha or interval.low <= 0 <= interval.high:  # a test and an interval that disagree prove nothing
        return replace(difference, adjusted=adjusted, verdict="not significant")
    return replace(difference, adjusted=adjusted, verdict="worse" if difference.estimate.mean < 0 else "better")


def coordinates(data: Observations) -> Sequence[tuple[str, int, float, int]]:
    """The coordinates of a prompt: task, length, depth (-1 where there is none) and sample."""
    depth = np.where(np.isnan(data.depth), -1.0, np.round(data.depth, 4))
    return list(zip(data.task.tolist(), data.length.tolist(), depth.tolist(), data.sample.tolist(), strict=True))


def _cell_name(task: object, length: object, depth: object) -> str:
    assert isinstance(length, int)
    return f"{task} {format_tokens(length)}" + ("" if depth is None else f" at depth {depth}")
