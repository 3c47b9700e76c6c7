"""Effective context length: the longest prompts at which the score still reaches a threshold, and how sure that is.

Estimate: the means of the lengths get a falling (isotonic) fit, and the effective length is the longest measured length
whose fit reaches the threshold; its own score then does too, and the score of the next length does not. Where between
the two the curve crosses is interpolated on log2 length and the logit of the score, and only ever shown beside it:
powers of two are what everybody measures, and a window of 4k and one of 7k look alike there.

Interval: what lies between two measured lengths is not known, so the interval runs from the last length that is surely
above the threshold to the first that is surely below it. Lengths are tested one after the other, from the shortest up
and from the longest down, and the first that cannot be decided ends its row: a wrong end then has at most the error
of one test, however many lengths there are. A length is tested by its own documents alone, since scatter, correlation
and loss may differ between lengths: its interval in the table must lie on one side of the threshold, and so must the
bound for scores of any distribution (`Evidence.guarded`), which allows for documents lost whole of which none is among
the measured ones. Only a length between the ends may be passed over, for two longer ones that are above.

Both assume that scores fall with length. Where the scores reach the threshold again after they failed to, and no
falling curve explains that as chance, `falls` is False: every length is then judged alone, no curve is fitted, and the
effective length is the longest length that reaches the threshold, as published tables have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.core.seeds import bulk_rng
from leadline.stats.intervals import CONFIDENCE, Evidence, Interval, answers_behind, normal_quantile
from leadline.stats.marginals import evidence_by
from leadline.stats.observations import FloatArray, Observations

VERSION = 6
"""Of the statistic. 2: intervals between measured lengths, and curves that rise again are not smoothed away. 3: the
estimate is a measured length, with the interpolated crossing beside it. 4: a few partial scores that happen to be alike
no longer make an interval sure. 5: every length is judged by its own documents, never surer than its own interval. 6:
also where scores do not fall, and an end that is sure is said where the other is not."""
RULER_THRESHOLD = 0.856
"""The score of Llama-2-7B at 4k, which RULER (Hsieh et al. 2024) takes as the threshold."""
STEEP = 0.7
"""A drop between neighbouring lengths from which the estimate is placed in the middle between them."""
RISE_ERROR = 0.02
"""The chance that a falling curve is taken for one that rises again."""
RISE_DRAWS = 500
MOST_MORE = 200.0
"""Times the documents of a length beyond which more samples are not said to decide it."""

NOT_DECIDED = "not decided"

Bound = Literal["crossing", "at least", "below"]
LengthState = Literal["above", "below", "open"]


@dataclass(frozen=True, slots=True)
class Threshold:
    """The score to reach: a fixed `value`, or a `share` of the model's own score at its shortest length.

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
    evidence: Evidence
    """The evidence behind its interval."""


@dataclass(frozen=True, slots=True)
class EffectiveLength:
    """`length` is the longest measured length that reaches the threshold, or the shortest measured when none does
    ("below").

    `low` and `high` are kept inside what was measured; `low_open` says that the true low end may lie below the
    shortest length, `high_open` that the high end lies beyond the longest.
    """

    rule: Threshold
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
    unasked: tuple[int, ...] = ()
    """Lengths that a stopping rule has not asked and that the others do not decide."""
    by_rule: bool = False
    """Whether a stopping rule chose the samples, so that ends are those of confidence sequences."""
    falls: bool = True
    """False when the scores fail the threshold and reach it again at longer lengths: then `length` is the longest
    length that reaches it, and no curve is fitted."""

    @property
    def decided(self) -> bool:
        """Whether scores fall with length, and every length measured is surely above the threshold or surely below."""
        return self.falls and not self.open_lengths

    @property
    def open_lengths(self) -> tuple[int, ...]:
        """The lengths that may be on either side of the threshold, in order."""
        return tuple(sorted([*(score.length for score in self.scores if score.state == "open"), *self.unasked]))

    @property
    def surely_reached(self) -> int | None:
        """The longest length that surely reaches the threshold, as do all shorter ones."""
        return None if self.low_open else round(self.low)

    @property
    def surely_failed(self) -> int | None:
        """The shortest length that surely fails the threshold, as do all longer ones."""
        beaten = self.high_open or (self.bound != "below" and self.high <= self.length)
        return None if beaten else round(self.high)

    def __str__(self) -> str:
        """`32k (95%: at least 16k, below 64k)`, `at least 128k`, `below 4k`, `below 4k (95%; 2k not decided)`."""
        joint = ";" if self.is_partly_decided else ":"
        return f"{self.point} ({100 * self.confidence:g}%{joint} {self.ends})" if self.ends else self.point

    @property
    def is_partly_decided(self) -> bool:
        """Whether some length may be on either side of the threshold and an end is sure all the same."""
        return self.falls and not self.decided and bool(self._sure)

    @property
    def point(self) -> str:
        """`32k`, `at least 128k` or `below 4k`. Where some length may be on either side, what is sure all the same:
        `below 4k`, `at least 4k`, `at least 4k, below 16k`, or `not decided`. `up to 128k, not steadily` where scores
        reach the threshold again."""
        if not self.falls:
            return f"up to {format_tokens(self.length)}, not steadily"
        if not self.decided:
            return self._sure or NOT_DECIDED
        return format_tokens(self.length) if self.bound == "crossing" else f"{self.bound} {format_tokens(self.length)}"

    @property
    def _sure(self) -> str:
        """`at least 16k, below 64k`; empty where neither end is sure."""
        ends = {"at least": self.surely_reached, "below": self.surely_failed}
        return ", ".join(f"{side} {format_tokens(end)}" for side, end in ends.items() if end is not None)

    @property
    def ends(self) -> str:
        """The text beside `point`: `at least 16k, below 64k`, `2k not decided`, or, where nothing is decided, `anything
        from below 1k to above 4k`. Empty when the whole interval lies outside the lengths measured."""
        shortest, longest = self.scores[0].length, max(self.scores[-1].length, self.high)
        if self.is_partly_decided:
            return f"{format_lengths(self.open_lengths)} not decided"
        if self.low_open and self.high_open:
            return f"anything from below {format_tokens(shortest)} to above {format_tokens(longest)}"
        surely_below = self.low_open and self.high <= shortest
        surely_beyond = self.high_open and self.low >= longest
        if surely_below or surely_beyond:
            return ""
        # The high end is a length that surely fails, or the estimate itself where that failed at an earlier look.
        high = "below" if self.high > self.length else "at most"
        ends = [] if self.low_open else [f"at least {format_tokens(self.low)}"]
        return ", ".join(ends if self.high_open else [*ends, f"{high} {format_tokens(self.high)}"])


def format_lengths(lengths: Sequence[int]) -> str:
    """`512`, `512 and 1k`, `512 to 4k` for more than two, which follow each other."""
    shown = [format_tokens(length) for length in lengths]
    return " and ".join(shown) if len(shown) < 3 else f"{shown[0]} to {shown[-1]}"


def effective_length(
    data: Observations,
    rule: Threshold | None = None,
    *,
    claimed: int | None = None,
) -> EffectiveLength:
    """The effective length of everything in `data`; tasks weigh alike. Hand in a part for a task or a depth band."""
    rule = rule or Threshold()
    counted = data.counted()
    if len(counted) == 0:
        raise UsageError("no sample has a score", where="effective length", fix="failed samples can count as zero")
    evidence = tuple(mine for _, mine in evidence_by(counted, ("length",)))
    lengths, means = counted.lengths, np.array([mine.mean for mine in evidence])
    weights = np.array([float(mine.n) for mine in evidence])
    fitted = isotonic_decreasing(means[None, :], weights)[0]
    threshold = float(fitted[0] * rule.share if rule.share is not None else rule.value)
    intervals = [mine.guarded() for mine in evidence]
    falls = not _rises_again(
        means, np.array([answers_behind(*pair) for pair in zip(means, intervals, strict=True)]), threshold
    )
    states = _states(means, intervals, threshold, rule, falls=falls)
    if falls:
        octaves = np.log2(lengths)
        at = float(crossings(fitted[None, :], octaves, np.array([threshold]), np.array([0.5]), weights)[0])
        interpolated = float(2.0**at) if np.isfinite(at) else None
        reached = fitted >= threshold
    else:
        interpolated = None
        reached = means >= threshold
    last = int(np.max(np.flatnonzero(reached), initial=-1))
    bound: Bound = "below" if last < 0 else "at least" if last == len(lengths) - 1 else "crossing"
    length = float(lengths[max(last, 0)])
    sure = int(np.argmin([*(s == "above" for s in states), False]))  # lengths above, from the shortest up
    clear = int(np.argmin([*(s == "below" for s in states[::-1]), False]))  # lengths below, from the longest down
    run_of_reached = int(np.argmin([*reached, False]))
    wanted = len(data.codes(("task", "length"))[0])
    return EffectiveLength(
        rule=rule,
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
                lengths.tolist(), means.tolist(), fitted.tolist(), states, (mine.n for mine in evidence),
                (mine.n_clusters for mine in evidence), evidence, strict=True,
            )
        ),
        confidence=CONFIDENCE,
        claimed=claimed,
        n_clusters=min(mine.n_clusters for mine in evidence),
        missing=wanted - len(counted.codes(("task", "length"))[0]),
        wanted=wanted,
        interpolated=interpolated,
        falls=falls,
    )  # fmt: skip


# --- Tests of single lengths against the threshold


def _states(
    means: FloatArray, intervals: Sequence[Interval], threshold: float, rule: Threshold, *, falls: bool
) -> list[LengthState]:
    """Which lengths are surely above the threshold, from the shortest up, and surely below it, from the longest down.
    The shortest length is above a threshold that is a share of its own score. A length that its own documents leave
    open does not end the row if two longer ones are above by theirs (or two shorter ones below): that two are wrong at
    once is rare. Where scores do not fall with length, each is on the side where it is by its own documents."""
    vague = _vague_ends(intervals[0], float(means[0]), threshold, rule)
    sides = [side_of(float(m), interval, threshold, vague) for m, interval in zip(means, intervals, strict=True)]
    if rule.share is not None:
        sides[0] = "above"
    if not falls:
        return sides
    states: list[LengthState] = ["open"] * len(sides)
    for i, side in enumerate(sides):
        if side != "above" and not (side == "open" and sides[i + 1 :].count("above") > 1):
            break
        states[i] = "above"
    for i, side in reversed(list(enumerate(sides))):
        ended = side != "below" and not (side == "open" and sides[:i].count("below") > 1)
        if states[i] == "above" or ended:
            break
        states[i] = "below"
    return states


def _vague_ends(shortest: Interval, mean: float, threshold: float, rule: Threshold) -> tuple[float, float]:
    """The distances below and above its estimate that the threshold may have."""
    if rule.share is not None:
        return threshold - rule.share * min(shortest.low, mean), rule.share * max(shortest.high, mean) - threshold
    error = normal_quantile(CONFIDENCE) * rule.error
    return error, error


def side_of(mean: float, interval: Interval, threshold: float, vague: tuple[float, float] = (0.0, 0.0)) -> LengthState:
    """On which side of the threshold a length surely is. The errors of both are added as independent ones are (Zou and
    Donner 2008); without an error of the threshold it is the interval alone that decides."""
    if mean >= threshold and mean - threshold >= math.hypot(mean - interval.low, vague[1]):
        return "above"
    if mean < threshold and threshold - mean > math.hypot(interval.high - mean, vague[0]):
        return "below"
    return "open"


def factors_to_decide(effective: EffectiveLength) -> dict[int, float | None]:
    """For each open length, the multiple of its documents that would put it on one side of the threshold, if its scores
    stayed the same; None if not even `MOST_MORE` times would."""
    return {score.length: _factor(score, effective) for score in effective.scores if score.state == "open"}


def _factor(score: LengthScore, effective: EffectiveLength) -> float | None:
    def decided(factor: float) -> bool:
        shortest = effective.scores[0]
        vague = _vague_ends(shortest.evidence.guarded(factor), shortest.mean, effective.threshold, effective.rule)
        return side_of(score.mean, score.evidence.guarded(factor), effective.threshold, vague) != "open"

    low, high = 1.0, 2.0
    if decided(low):  # held back by a shorter or longer length alone
        return low
    while not decided(high):
        low, high = high, 2 * high
        if low >= MOST_MORE:
            return None
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


def _rises_again(means: FloatArray, sizes: FloatArray, threshold: float) -> bool:
    """Whether scores fail the threshold and reach it again at a longer length, beyond what chance does to a falling
    curve.

    A likelihood-ratio test of the falling fit against free means. Its p-value is simulated from a flat curve on the
    threshold, under which falling fits do worst (Robertson, Wright and Dykstra 1988).
    """
    reached = means >= threshold
    if not np.any(np.diff(reached.astype(np.int64)) > 0):
        return False
    n = np.maximum(np.round(sizes), 1.0)

    def gap(rows: FloatArray) -> FloatArray:
        fit = np.clip(isotonic_decreasing(rows, n), 1e-9, 1 - 1e-9)
        return np.asarray(
            np.sum(
                n * (scipy.special.xlogy(rows, rows / fit) + scipy.special.xlogy(1 - rows, (1 - rows) / (1 - fit))),
                axis=1,
            )
        )

    rng = bulk_rng(0, "rises again")
    drawn = rng.binomial(n.astype(np.int64), threshold, size=(RISE_DRAWS, len(n))) / n
    return bool((1 + np.sum(gap(drawn) >= gap(means[None, :]))) / (RISE_DRAWS + 1) <= RISE_ERROR)


# --- Falling curves and where they cross a threshold


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
    curves: FloatArray, log_lengths: FloatArray, thresholds: FloatArray, chance: FloatArray, weights: FloatArray
) -> FloatArray:
    """The crossing of each falling curve with its threshold, in log2 lengths: -inf when it starts below it, inf when it
    never falls below.

    `chance` in 0..1 places the crossing where the curve does not: at random in a bootstrap, 0.5 for an estimate.
    """
    cleared = np.sum(curves >= thresholds[:, None], axis=1)
    crossing_lengths = np.where(cleared == 0, -np.inf, np.inf)
    inside = np.flatnonzero((cleared > 0) & (cleared < len(log_lengths)))
    after = cleared[inside]
    above, below, limit = curves[inside, after - 1], curves[inside, after], thresholds[inside]
    edge = 0.5 / (weights.mean() + 1)
    high, low = (scipy.special.logit(np.clip(v, edge, 1 - edge)) for v in (above, below))
    fraction = np.clip(
        (high - scipy.special.logit(np.clip(limit, edge, 1 - edge))) / np.maximum(high - low, 1e-12), 0.0, 1.0
    )
    open_share = np.minimum(1.0, ((above - below) / STEEP) ** 2)
    fraction = (1 - open_share) * fraction + open_share * chance[inside]
    crossing_lengths[inside] = log_lengths[after - 1] + fraction * (log_lengths[after] - log_lengths[after - 1])
    return crossing_lengths
