"""Effective context length: the longest prompts at which the score still reaches a threshold, and how sure that is.

Estimate: the means of the lengths get a falling (isotonic) fit, and the effective length is the longest measured length
whose fit reaches the threshold; its own score then does too, and the score of the next length does not. Where between
the two the curve crosses is interpolated on log2 length and the logit of the score, and only ever shown beside it:
powers of two are what everybody measures, and a window of 4k and one of 7k look alike there.

Interval: what lies between two measured lengths is not known, so the interval runs from the last length that is surely
above the threshold to the first that is surely below it. Lengths are tested one after the other, from the shortest up
and from the longest down, and the first that cannot be decided ends its row: a wrong end then has at most the error
of one test, however many lengths there are. A test may also use the scores of longer lengths (to show that a length
is above) or of shorter ones (to show that it is below), since longer is not easier. Tests are binomial (mid-p) at the
effective sample size (Korn and Graubard 1998), with the design effect of shared documents pooled over lengths.

Both assume that scores fall with length. Where the scores reach the threshold again after they failed to, and no
falling curve explains that as chance, `falls` is False: every length is then judged alone, no curve is fitted, and the
effective length is the longest length that reaches the threshold, as published tables have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import CONFIDENCE, normal_quantile, t_quantile
from leadline.stats.marginals import GroupMeans, length_means, overall_means, row_weights
from leadline.stats.observations import BoolArray, FloatArray, IntArray, Observations

VERSION = 4
"""Of the statistic. 2: intervals between measured lengths, and curves that rise again are not smoothed away. 3: the
estimate is a measured length, with the interpolated crossing beside it. 4: a few partial scores that happen to be alike
no longer make an interval sure."""
RULER_THRESHOLD = 0.856
"""The score of Llama-2-7B at 4k, which RULER (Hsieh et al. 2024) takes as the threshold."""
STEEP = 0.7
"""A drop between neighbouring lengths from which the estimate is placed in the middle between them."""
ERROR_PER_SIDE = 0.7
"""Of the error of the interval: what each end may have. Both ends are seldom at risk at once."""
OWN_SHARE_OF_ERROR = 0.5
"""Of the error allowed to the test of a length: spent on its own scores; the rest on means with its neighbours."""
SCATTER_PRIOR = 2.0
"""Documents that the scatter of yes/no scores counts for beside the measured scatter of partial scores."""
RISE_ERROR = 0.02
"""The chance that a falling curve is taken for one that rises again."""
RISE_DRAWS = 500

Bound = Literal["crossing", "at least", "below"]
LengthState = Literal["above", "below", "open"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a score must reach: a fixed `value`, or a `share` of the model's own score at its shortest length.

    `error` is the standard error of a threshold that was itself measured (0.0034 for RULER's).
    """

    value: float = RULER_THRESHOLD
    share: float | None = None
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class LengthScore:
    """One measured length. `state` says whether it is surely above the threshold or surely below it."""

    length: int
    mean: float
    fitted: float
    state: LengthState
    n: int
    n_clusters: int


@dataclass(frozen=True, slots=True)
class EffectiveLength:
    """`length` is the longest measured length that reaches the threshold, or the shortest measured when none does
    ("below").

    `low` and `high` are kept inside what was measured; `low_open` says that the true low end may lie below the
    shortest length, `high_open` that the high end lies beyond the longest.
    """

    line: Threshold
    threshold: float
    bound: Bound
    length: float
    low: float
    high: float
    low_open: bool
    high_open: bool
    largest_measured: int | None
    """The largest measured length such that it and all shorter ones reach the threshold."""
    scores: tuple[LengthScore, ...]
    confidence: float
    claimed: int | None = None
    n_clusters: int = 0
    """Documents behind the length that has the fewest."""
    missing: int = 0
    """Combinations of task and length that have no answer and are left out, of `wanted`."""
    wanted: int = 0
    interpolated: float | None = None
    """Where the curve crosses the threshold between `length` and the next measured length, if it does."""
    falls: bool = True
    """False when the scores fail the threshold and reach it again at longer lengths: then `length` is the longest
    length that reaches it, and no curve is fitted."""

    def __str__(self) -> str:
        """`32k (95%: at least 16k, below 64k)`, `at least 128k`, `below 4k`."""
        return f"{self.point} ({100 * self.confidence:g}%: {self.ends})" if self.ends else self.point

    @property
    def point(self) -> str:
        """`32k`, `at least 128k` or `below 4k`; `up to 128k, not steadily` where scores reach the threshold again."""
        point = format_tokens(self.length)
        if not self.falls:
            return f"up to {point}, not steadily"
        return point if self.bound == "crossing" else f"{self.bound} {point}"

    @property
    def ends(self) -> str:
        """`at least 16k, below 64k`; empty when the whole interval lies outside the lengths measured."""
        shortest, longest = self.scores[0].length, self.scores[-1].length
        surely_below = self.low_open and not self.high_open and self.high <= shortest
        surely_beyond = self.high_open and not self.low_open and self.low >= longest
        if surely_below or surely_beyond:
            return ""
        if self.low_open and self.high_open:
            return f"may be below {format_tokens(shortest)} or beyond {format_tokens(longest)}"
        # The high end is a length that surely fails, or the estimate itself where that failed at an earlier look.
        high = "below" if self.high > self.length else "at most"
        ends = [] if self.low_open else [f"at least {format_tokens(self.low)}"]
        return ", ".join(ends if self.high_open else [*ends, f"{high} {format_tokens(self.high)}"])


def effective_length(
    data: Observations,
    line: Threshold | None = None,
    *,
    claimed: int | None = None,
) -> EffectiveLength:
    """The effective length of everything in `data`; tasks weigh alike. Hand in a part for a task or a depth band."""
    line = line or Threshold()
    counted = data.counted()
    if len(counted) == 0:
        raise UsageError("no sample has a score", where="effective length", fix="failed samples can count as zero")
    lengths, code, groups = length_means(counted)
    evidence = _evidence(counted, code, groups)
    weights = groups.n.astype(np.float64)
    fitted = isotonic_decreasing(groups.means[None, :], weights)[0]
    threshold = float(fitted[0] * line.share if line.share is not None else line.value)
    falls = not _rises_again(groups.means, evidence.sizes(), threshold)
    thresholds = _thresholds(line, evidence)
    states = _states(
        evidence, threshold, thresholds, ERROR_PER_SIDE * (1 - CONFIDENCE), falls=falls, own=line.share is not None
    )
    if falls:
        octaves = np.log2(lengths)
        at = float(crossings(fitted[None, :], octaves, np.array([threshold]), np.array([0.5]), weights)[0])
        interpolated = float(2.0**at) if np.isfinite(at) else None
        reached = fitted >= threshold
    else:
        interpolated = None
        reached = groups.means >= threshold
    last = int(np.max(np.flatnonzero(reached), initial=-1))
    bound: Bound = "below" if last < 0 else "at least" if last == len(lengths) - 1 else "crossing"
    length = float(lengths[max(last, 0)])
    sure = int(np.argmin([*(s == "above" for s in states), False]))  # lengths above, from the shortest up
    clear = int(np.argmin([*(s == "below" for s in states[::-1]), False]))  # lengths below, from the longest down
    run_of_reached = int(np.argmin([*reached, False]))
    wanted = len(data.codes(("task", "length"))[0])
    return EffectiveLength(
        line=line,
        threshold=threshold,
        bound=bound,
        length=length,
        low=min(length, float(lengths[max(sure - 1, 0)])),
        high=max(length, float(lengths[min(len(lengths) - clear, len(lengths) - 1)])),
        low_open=sure == 0,
        high_open=clear == 0,
        largest_measured=int(lengths[run_of_reached - 1]) if run_of_reached else None,
        scores=tuple(
            LengthScore(*row)
            for row in zip(
                lengths.tolist(), groups.means.tolist(), fitted.tolist(), states, groups.n.tolist(),
                groups.n_clusters.tolist(), strict=True,
            )
        ),
        confidence=CONFIDENCE,
        claimed=claimed,
        n_clusters=int(groups.n_clusters.min()),
        missing=wanted - len(counted.codes(("task", "length"))[0]),
        wanted=wanted,
        interpolated=interpolated,
        falls=falls,
    )  # fmt: skip


# --- Tests of single lengths against the threshold


@dataclass(frozen=True, slots=True)
class _LengthEvidence:
    """The mean of each length, and how many independent yes/no answers it is worth."""

    groups: GroupMeans
    samples: FloatArray
    """Samples of each length that would weigh alike: fewer than there are where cells have unequal numbers."""
    design_effect: float
    answers_per_sample: float
    """1 for yes/no scores; more where scores are fractions, which scatter less."""
    shrink: float
    """For the design effect being an estimate, by Student's t."""
    documents: BoolArray
    """Documents x lengths: which document serves which length."""

    def window(self, first: int, last: int) -> tuple[float, float]:
        """The mean over neighbouring lengths, and the number of answers it is worth."""
        part = slice(first, last + 1)
        n = float(self.samples[part].sum())
        # By samples: in a plain mean of lengths, the few samples of one would count as many as the others have.
        mean = float(np.average(self.groups.means[part], weights=self.samples[part]))
        # A document that serves several lengths counts once.
        distinct = float(self.documents[:, part].any(axis=1).sum() / self.documents[:, part].sum())
        return mean, self.shrink * self.answers_per_sample * n / self.design_effect * distinct

    def sizes(self) -> FloatArray:
        return np.array([self.window(i, i)[1] for i in range(len(self.groups.means))])


def _evidence(data: Observations, code: IntArray, groups: GroupMeans) -> _LengthEvidence:
    """Where no answer varies within a cell nothing can be estimated, and a document counts as one answer."""
    samples = 1 / np.bincount(code, weights=row_weights(data, code) ** 2)
    documents = np.zeros((int(groups.shares.document.max()) + 1, len(groups.means)), dtype=np.bool_)
    documents[groups.shares.document, groups.shares.group] = True
    design_effect = groups.design_effect
    if design_effect is None:
        return _LengthEvidence(groups, samples, float(samples.sum() / groups.n_clusters.sum()), 1.0, 1.0, documents)
    degrees = float(overall_means(data).degrees[0])
    shrink = 1.0
    if design_effect > 1 and groups.n.sum() > groups.n_clusters.sum():
        shrink = (normal_quantile(CONFIDENCE) / t_quantile(CONFIDENCE, max(degrees, 1.0))) ** 2
    binary = bool(np.isin(data.value, (0.0, 1.0)).all())
    scatter = float(np.sum(groups.row_variances * groups.n**2) / groups.n.sum())
    whole = float(np.sum(groups.n * groups.means * (1 - groups.means)) / groups.n.sum())
    # A few scores that happen to be alike say little of how far others scatter.
    free = float(groups.n_clusters.sum() - len(groups.means))
    scatter = (free * scatter + SCATTER_PRIOR * whole) / (free + SCATTER_PRIOR)
    return _LengthEvidence(
        groups, samples, design_effect, 1.0 if binary else max(1.0, whole / scatter), shrink, documents
    )


def _states(
    evidence: _LengthEvidence, threshold: float, thresholds: FloatArray, error: float, *, falls: bool, own: bool
) -> list[LengthState]:
    """Which lengths are surely above the threshold, from the shortest up, and surely below it, from the longest down.
    `own` says that the threshold is a share of the score at the shortest length, which therefore is above it."""
    count = len(evidence.groups.means)
    states: list[LengthState] = ["open"] * count
    for i in range(count):
        widths = sorted({w for w in (2, 4, count - i) if falls and 1 < w <= count - i})
        sure = _p(evidence, [(i, i), *((i, i + w - 1) for w in widths)], thresholds, above=True) <= error
        if not (own and i == 0) and not (sure and evidence.groups.means[i] >= threshold):
            break
        states[i] = "above"
    for i in reversed(range(count)):
        widths = sorted({w for w in (2, 4, i + 1) if falls and 1 < w <= i + 1})
        sure = _p(evidence, [(i, i), *((i - w + 1, i) for w in widths)], thresholds, above=False) <= error
        if states[i] == "above" or not (sure and evidence.groups.means[i] < threshold):
            break
        states[i] = "below"
    return states


def _p(evidence: _LengthEvidence, windows: list[tuple[int, int]], thresholds: FloatArray, *, above: bool) -> float:
    """The p-value that the first window's length is on the other side of the threshold, from the means of all
    windows."""
    found = []
    for first, last in windows:
        mean, size = evidence.window(first, last)
        hits, misses = size * mean, size * (1 - mean)
        good, bad, line = (hits, misses, thresholds) if above else (misses, hits, 1 - thresholds)
        # The chance of more than `good`, and half that of just as many, were the score on the threshold (mid-p).
        at_least = scipy.special.betainc(good, bad + 1, line) if good > 0 else np.ones(1)
        more = scipy.special.betainc(good + 1, bad, line) if bad > 0 else np.zeros(1)
        found.append(float(np.mean(at_least + more) / 2))
    if len(found) == 1:
        return found[0]
    others = (1 - OWN_SHARE_OF_ERROR) / (len(found) - 1)
    return min(found[0] / OWN_SHARE_OF_ERROR, *(p / others for p in found[1:]))


def _thresholds(line: Threshold, evidence: _LengthEvidence) -> FloatArray:
    """What the threshold may be: one value, or the quantiles of one that was measured itself."""
    levels = (np.arange(200) + 0.5) / 200
    if line.share is not None:
        mean, size = evidence.window(0, 0)
        return np.asarray(line.share * scipy.special.betaincinv(size * mean + 0.5, size * (1 - mean) + 0.5, levels))
    if line.error:
        return np.clip(line.value + line.error * scipy.special.ndtri(levels), 0.0, 1.0)
    return np.array([line.value])


def _rises_again(means: FloatArray, sizes: FloatArray, threshold: float) -> bool:
    """Whether scores fail the threshold and reach it again at a longer length, beyond what chance does to a falling
    curve.

    A likelihood-ratio test of the falling fit against free means. Its p-value is simulated from a flat curve on the
    line, under which falling fits do worst (Robertson, Wright and Dykstra 1988).
    """
    reached = means >= threshold
    if not np.any(np.diff(reached.astype(np.int64)) > 0):
        return False
    n = np.maximum(np.round(sizes), 1.0)

    def gap(found: FloatArray) -> FloatArray:
        fit = np.clip(isotonic_decreasing(found, n), 1e-9, 1 - 1e-9)
        return np.asarray(
            np.sum(
                n * (scipy.special.xlogy(found, found / fit) + scipy.special.xlogy(1 - found, (1 - found) / (1 - fit))),
                axis=1,
            )
        )

    rng = bulk_rng(0, "rises again")
    drawn = rng.binomial(n.astype(np.int64), threshold, size=(RISE_DRAWS, len(n))) / n
    return bool((1 + np.sum(gap(drawn) >= gap(means[None, :]))) / (RISE_DRAWS + 1) <= RISE_ERROR)


# --- Falling curves and where they cross a line


def isotonic_decreasing(curves: FloatArray, weights: FloatArray) -> FloatArray:
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
    """Where each falling curve passes its threshold: -inf when it starts below it, inf when it never falls below.

    `chance` in 0..1 places the crossing where the curve does not: at random in a bootstrap, 0.5 for an estimate.
    """
    cleared = np.sum(curves >= thresholds[:, None], axis=1)
    found = np.where(cleared == 0, -np.inf, np.inf)
    inside = np.flatnonzero((cleared > 0) & (cleared < len(places)))
    after = cleared[inside]
    above, below, line = curves[inside, after - 1], curves[inside, after], thresholds[inside]
    edge = 0.5 / (weights.mean() + 1)
    high, low = (scipy.special.logit(np.clip(v, edge, 1 - edge)) for v in (above, below))
    fraction = np.clip(
        (high - scipy.special.logit(np.clip(line, edge, 1 - edge))) / np.maximum(high - low, 1e-12), 0.0, 1.0
    )
    open_share = np.minimum(1.0, ((above - below) / STEEP) ** 2)
    fraction = (1 - open_share) * fraction + open_share * chance[inside]
    found[inside] = places[after - 1] + fraction * (places[after] - places[after - 1])
    return found
