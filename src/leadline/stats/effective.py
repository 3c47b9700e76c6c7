"""Effective context length: how long a prompt may be before the score falls below a line, and how sure that is.

The scores of the lengths are fitted by a falling (isotonic) curve. Between the last length that clears the line
and the first that does not, the crossing is interpolated on log2 length and the logit of the score. A bootstrap
over documents gives the interval: every draw gives each document a random weight, so lengths that share
documents move together, and turns the result into a score through a Beta distribution of the effective sample
size, so that 5 right out of 5 is not taken for certain. With normal weights this is a draw from a normal
distribution whose covariance the documents give, and it is made as such.

A steep fall says that the crossing lies between two measured lengths, not where. Each draw therefore mixes the
interpolated place with a random one, the more so the larger the drop; without that an interval on a cliff would be
narrow and wrong (studies/calibration measures both).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import few_clusters_warning, normal_quantile, t_quantile
from leadline.stats.marginals import GroupMeans, group_means
from leadline.stats.observations import Failures, FloatArray, IntArray, Observations

RULER_THRESHOLD = 0.856
"""The score of Llama-2-7B at 4k, which RULER (Hsieh et al. 2024) takes as the line."""
STEEP = 0.7
"""A drop between neighbouring lengths of this much or more leaves the place of the crossing entirely open."""

Bound = Literal["crossing", "at least", "below"]


@dataclass(frozen=True, slots=True)
class Line:
    """What a score must reach: a fixed `threshold`, or a `share` of the model's own score at its shortest length.

    `threshold_error` is the standard error of a threshold that was itself measured (0.0034 for RULER's).
    """

    threshold: float = RULER_THRESHOLD
    share: float | None = None
    threshold_error: float = 0.0

    def __str__(self) -> str:
        if self.share is not None:
            return f"{100 * self.share:g} % of the score at the shortest length"
        return f"score {100 * self.threshold:g}"


@dataclass(frozen=True, slots=True)
class LengthScore:
    """One measured length. `clears` is the share of bootstrap draws in which its fitted score reached the line."""

    length: int
    mean: float
    fitted: float
    clears: float
    n: int
    n_clusters: int


@dataclass(frozen=True, slots=True)
class EffectiveLength:
    """`length` is the crossing, or the longest length measured when it is at least that, or the shortest when below.

    `low` and `high` are kept inside what was measured; `low_open` says that the true low end may lie below the
    shortest length, `high_open` that the high end lies beyond the longest.
    """

    line: Line
    threshold: float
    bound: Bound
    length: float
    low: float
    high: float
    low_open: bool
    high_open: bool
    largest_measured: int | None
    """The largest measured length such that it and all shorter ones clear the line: RULER's definition."""
    scores: tuple[LengthScore, ...]
    confidence: float
    claimed: int | None = None
    warning: str = ""

    def __str__(self) -> str:
        return words(self)


def effective_length(
    data: Observations,
    line: Line | None = None,
    *,
    claimed: int | None = None,
    failures: Failures = "excluded",
    confidence: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> EffectiveLength:
    """The effective length of everything in `data`; tasks weigh alike. Hand in a part for a task or a depth band."""
    from scipy.optimize import isotonic_regression  # half a second of start-up for everybody else

    line = line or Line()
    counted = data.counted(failures)
    if len(counted) == 0:
        raise UsageError("no sample has a score", where="effective length", fix="failed samples can count as zero")
    lengths, code = np.unique(counted.length, return_inverse=True)
    groups = group_means(counted, code.astype(np.int64), len(lengths))
    degrees = float(group_means(counted, np.zeros(len(counted), dtype=np.int64), 1).degrees[0])
    weights = groups.n.astype(np.float64)
    fitted = np.asarray(isotonic_regression(groups.means, weights=weights, increasing=False).x)
    rng = bulk_rng(seed, "effective")
    curves = falling(draw_means(groups, degrees, draws, rng, confidence), weights)
    threshold = fitted[0] * line.share if line.share is not None else line.threshold
    thresholds = _thresholds(line, curves, rng)
    places = np.log2(lengths)
    at = crossings(fitted[None, :], places, np.array([threshold]), np.array([0.5]), weights)[0]
    drawn = np.sort(crossings(curves, places, thresholds, rng.random(draws), weights))
    tail = int((1 - confidence) / 2 * draws)
    low, high = drawn[tail], drawn[draws - 1 - tail]
    cleared = int(np.sum(fitted >= threshold))
    return EffectiveLength(
        line=line,
        threshold=float(threshold),
        bound="crossing" if np.isfinite(at) else ("at least" if at > 0 else "below"),
        length=float(2.0 ** np.clip(at, places[0], places[-1])),
        low=float(2.0 ** np.clip(low, places[0], places[-1])),
        high=float(2.0 ** np.clip(high, places[0], places[-1])),
        low_open=bool(low == -np.inf),
        high_open=bool(high == np.inf),
        largest_measured=int(lengths[cleared - 1]) if cleared else None,
        scores=_scores(lengths, groups, fitted, np.mean(curves >= thresholds[:, None], axis=0)),
        confidence=confidence,
        claimed=claimed,
        warning=_warning(data, counted, groups),
    )


def effective_lengths(
    parts: Mapping[str, Observations], line: Line | None = None, *, draws: int = 2000, seed: int = 0
) -> dict[str, EffectiveLength]:
    """One for each part, as made by parts_by_task, parts_by_category or parts_by_depth."""
    return {name: effective_length(part, line, draws=draws, seed=seed) for name, part in parts.items()}


def draw_means(
    groups: GroupMeans, degrees: float, draws: int, rng: np.random.Generator, confidence: float = 0.95
) -> FloatArray:
    """Bootstrap over documents: `draws` rows of what the means of the groups might be.

    The design effect (how much more a mean varies because samples share documents) is pooled over the groups: five
    documents a length are too few to estimate it for each, and where all answers were right nothing can be seen.
    """
    from scipy.special import betaincinv, ndtr  # as scipy.optimize above

    variances, rows = groups.variances, groups.row_variances
    if rows.sum() > 0:
        design_effect = max(1.0, variances.sum() / rows.sum())
    else:
        design_effect = groups.n.sum() / groups.n_clusters.sum()
    calm = rows <= 1e-12
    shrink = (normal_quantile(confidence) / t_quantile(confidence, max(degrees, 1.0))) ** 2
    means = groups.means
    size = np.where(
        calm, groups.n / design_effect, shrink * means * (1 - means) / np.where(calm, 1.0, rows) / design_effect
    )
    z = rng.standard_normal((draws, len(means))) @ _root_of_correlation(groups.covariance)
    return np.asarray(betaincinv(size * means + 0.5, size * (1 - means) + 0.5, ndtr(z)))


def _root_of_correlation(covariance: FloatArray) -> FloatArray:
    """A matrix that gives independent normal draws the correlation of the means. Five documents say little about the
    correlation of eight means, and the matrix may be singular: hence eigenvectors, not Cholesky."""
    spread = np.sqrt(np.diag(covariance))
    still = spread <= 1e-6
    scale = np.where(still, 1.0, spread)
    correlation = covariance / np.outer(scale, scale)
    correlation[still, :], correlation[:, still] = 0.0, 0.0
    np.fill_diagonal(correlation, 1.0)
    values, vectors = np.linalg.eigh(correlation)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))).T)


def falling(curves: FloatArray, weights: FloatArray) -> FloatArray:
    """The falling isotonic fit of every row at once, by the min-max formula; equal to scipy's row by row."""
    draws, count = curves.shape
    totals = np.concatenate([np.zeros((draws, 1)), np.cumsum(curves * weights, axis=1)], axis=1)
    masses = np.concatenate([[0.0], np.cumsum(weights)])
    fitted = np.full((draws, count), np.inf)
    for first in range(count):
        highest = np.full(draws, -np.inf)
        for last in range(count - 1, first - 1, -1):
            mean = (totals[:, last + 1] - totals[:, first]) / (masses[last + 1] - masses[first])
            highest = np.maximum(highest, mean)
            fitted[:, last] = np.minimum(fitted[:, last], highest)
    return fitted


def crossings(
    curves: FloatArray, places: FloatArray, thresholds: FloatArray, chance: FloatArray, weights: FloatArray
) -> FloatArray:
    """Where each falling curve passes its threshold: -inf when it starts below it, inf when it never gets there.

    `chance` in 0..1 places the crossing where the curve does not: at random in a bootstrap, 0.5 for an estimate.
    """
    from scipy.special import logit

    cleared = np.sum(curves >= thresholds[:, None], axis=1)
    found = np.where(cleared == 0, -np.inf, np.inf)
    inside = np.flatnonzero((cleared > 0) & (cleared < len(places)))
    after = cleared[inside]
    above, below, line = curves[inside, after - 1], curves[inside, after], thresholds[inside]
    edge = 0.5 / (weights.mean() + 1)
    high, low = (logit(np.clip(v, edge, 1 - edge)) for v in (above, below))
    fraction = np.clip((high - logit(np.clip(line, edge, 1 - edge))) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    open_share = np.minimum(1.0, ((above - below) / STEEP) ** 2)
    fraction = (1 - open_share) * fraction + open_share * chance[inside]
    found[inside] = places[after - 1] + fraction * (places[after] - places[after - 1])
    return found


def words(result: EffectiveLength) -> str:
    """`43k (95 %: 35k to 52k)`, `at least 128k`, `below 4k`."""
    shortest, longest = result.scores[0].length, result.scores[-1].length
    point = format_tokens(result.length)
    if result.bound != "crossing":
        point = f"{result.bound} {point}"
    certainly_below = result.low_open and not result.high_open and result.high <= shortest
    certainly_beyond = result.high_open and not result.low_open and result.low >= longest
    if certainly_below or certainly_beyond:
        return point
    low = f"below {format_tokens(shortest)}" if result.low_open else format_tokens(result.low)
    high = f"to {format_tokens(result.high)}"
    if result.high_open:
        high = f"to beyond {format_tokens(longest)}" if result.low_open else "or more"
    return f"{point} ({100 * result.confidence:g} %: {low} {high})"


def claim_words(result: EffectiveLength) -> str:
    """`43k (95 %: 35k to 52k), 34 % of the 128k claimed`."""
    if result.claimed is None:
        return words(result)
    share = 100 * result.length / result.claimed
    sign = {"crossing": "", "at least": "at least ", "below": "less than "}[result.bound]
    return f"{words(result)}, {sign}{share:.0f} % of the {format_tokens(result.claimed)} claimed"


def _thresholds(line: Line, curves: FloatArray, rng: np.random.Generator) -> FloatArray:
    if line.share is not None:
        return line.share * curves[:, 0]
    return line.threshold + line.threshold_error * rng.standard_normal(len(curves))


def _scores(lengths: IntArray, groups: GroupMeans, fitted: FloatArray, clears: FloatArray) -> tuple[LengthScore, ...]:
    return tuple(
        LengthScore(int(length), float(mean), float(fit), float(clear), int(n), int(clusters))
        for length, mean, fit, clear, n, clusters in zip(
            lengths, groups.means, fitted, clears, groups.n, groups.n_clusters, strict=True
        )
    )


def _warning(data: Observations, counted: Observations, groups: GroupMeans) -> str:
    few = few_clusters_warning(int(groups.n_clusters.min()))
    wanted = len(data.codes(("task", "length"))[0])
    missing = wanted - len(counted.codes(("task", "length"))[0])
    gap = f"{missing} of {wanted} task lengths have no answer and are left out" if missing else ""
    return "; ".join(part for part in (few, gap) if part)
