"""Confidence sequences: intervals that keep their coverage when one looks after every sample and may stop.

An ordinary 95 % interval that is checked after every sample excludes the truth in a third of runs or more. A
confidence sequence covers it at all sample sizes at once. Where a document answers several prompts, bets are made on
documents (`leadline.stats.betting`). Where each prompt has its own, two are used together and share the allowed error:

- a beta-binomial mixture (Robbins 1970), exact for scores between 0 and 1. It takes prompts one by one: within a
  complete round the prompts may differ in difficulty, since by the inequality of means the product of their
  likelihood ratios can only be smaller than if all were alike;
- an asymptotic sequence over rounds (Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas 2024), which uses the scatter
  that is really there and is the narrower one after some tens of rounds.

A round is one sample of every cell of a length. Which length to sample next is found by a search that weighs what
each length costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy  # loads its parts when they are first used

from leadline.stats.betting import betting_sequence, decisions
from leadline.stats.effective import RULER_THRESHOLD, Bound, EffectiveLength, LengthState, Threshold
from leadline.stats.intervals import Estimate, Interval
from leadline.stats.observations import CELL, BoolArray, FloatArray, IntArray, Observations

SHARPEST = 40
"""The round at which the asymptotic sequence is narrowest, roughly; fixed before any data is seen."""
BURN_IN = 8
"""Rounds before an estimated scatter is trusted."""
BURN_IN_SHARED = 24
"""The same for a low end where a round is one document and no bets are made, since scores do not lie between 0 and 1.
If one document in seven were lost whole, this many would have none in 2 of 100 cases."""
ASSUMED_CORRELATION = 1 / 3
"""Of the answers of a document before any is seen: the mean of the prior of `leadline.stats.intervals`."""

PRIOR_WEIGHT = 2.5
"""The scatter that is assumed before any is seen, as a sum of yes/no variances: that of ten fair coins."""
EXACT_SHARE = 0.2
"""The exact sequence's part of the allowed error. It decides the clear cases."""
BEFORE_GIVING_UP = 16
"""Rounds of a length before it can be given up."""
HOPELESS = 0.35
"""A length is given up when the chance to decide it before its cap has fallen to this."""

LineStatus = Literal["above", "below", "open"]


@dataclass(frozen=True, slots=True)
class LengthStatus:
    """Whether one length is above the threshold after some rounds. `interval` holds at all times at once."""

    length: int
    rounds: int
    mean: float
    interval: Interval
    status: LineStatus
    threshold: float
    scatter: float
    """Standard deviation of a round."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of one length: their means, and the number of independent prompts that each represents (1 when
    shared)."""

    length: int
    means: FloatArray
    prompts: float
    answers: float = 0.0
    """The prompts of a round if they share a document; else 0."""

    @property
    def is_shared(self) -> bool:
        return self.answers > 1

    @property
    def assumed_prompts(self) -> float:
        """Independent prompts that a round is assumed to be worth before its scatter is seen."""
        if not self.is_shared:
            return self.prompts
        return self.answers / (1 + (self.answers - 1) * ASSUMED_CORRELATION)

    @property
    def burn_in(self) -> int:
        return BURN_IN_SHARED if self.is_shared else BURN_IN


def beta_binomial_sequence(successes: float, n: float, confidence: float = 0.95) -> Interval:
    """The confidence sequence of a share after `n` samples; fractional scores count as part successes."""
    if n == 0:
        return Interval(0.0, 1.0, confidence, "beta-binomial sequence")
    s, f = successes, n - successes
    # The mixture's share of the evidence does not depend on the share that is tried.
    mixture = math.lgamma(s + 0.5) + math.lgamma(f + 0.5) - math.lgamma(n + 1) - math.log(math.pi)
    limit = mixture + math.log1p(-confidence)

    def inside(share: float) -> bool:
        if not 0 < share < 1:  # a share of 0 or 1 excludes any success or failure, however small a fraction it is
            return False
        return s * math.log(share) + f * math.log1p(-share) >= limit

    def edge(near: float, far: float) -> float:
        for _ in range(50):
            middle = (near + far) / 2
            near, far = (middle, far) if inside(middle) else (near, middle)
        return far

    mean = min(max(s / n, 1e-12), 1 - 1e-12)
    # Round means times prompts leave rounding errors of about 1e-15 where every answer was right or wrong.
    negligible = 1e-9 * max(n, 1.0)
    low = 0.0 if s <= negligible else edge(mean, 0.0)
    high = 1.0 if f <= negligible else edge(mean, 1.0)
    return Interval(low, high, confidence, "beta-binomial sequence")


def log_evidence(successes: FloatArray | float, n: FloatArray | float, share: float) -> FloatArray:
    """Log of how much better a mixture of all shares explains the samples than `share` does."""
    s, f = np.asarray(successes, dtype=np.float64), np.asarray(n, dtype=np.float64) - successes
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.where(s > 0, s * np.log(share), 0.0) + np.where(f > 0, f * np.log1p(-share), 0.0)
    return np.asarray(scipy.special.betaln(s + 0.5, f + 0.5) - scipy.special.betaln(0.5, 0.5) - explained)


def asymptotic_half_width(deviation: FloatArray | float, n: FloatArray | float, confidence: float = 0.95) -> FloatArray:
    """Half the width of the asymptotic confidence sequence of a mean of `n` rounds that scatter by `deviation`."""
    rounds = np.asarray(n, dtype=np.float64)
    scaled = rounds / SHARPEST
    factor = 2 * (scaled + 1) / (rounds * scaled) * (np.log(scaled + 1) / 2 - np.log1p(-confidence))
    return np.asarray(deviation * np.sqrt(factor))


def asymptotic_p(gap: float, deviation: float, n: float) -> float:
    """The smallest error at which the sequence's half-width is below `gap`: an anytime-valid p-value."""
    scaled = n / SHARPEST
    log_p = np.log(scaled + 1) / 2 - (gap / deviation) ** 2 * n * scaled / (2 * (scaled + 1))
    return float(np.exp(min(0.0, log_p)))


def statuses(
    means: FloatArray,
    prompts: float,
    threshold: float,
    confidence: float = 0.95,
    *,
    unit: bool = True,
    assumed_prompts: float = 0.0,
    burn_in: int = BURN_IN,
) -> IntArray:
    """-1, 0 or 1 after each round of each row of `means` (runs x rounds): below the threshold, open, above it.

    `assumed_prompts` is for the scatter, where it is not `prompts`. `unit` says that scores lie between 0 and 1;
    otherwise only the asymptotic sequence can be used.
    """
    n = np.arange(1, means.shape[1] + 1)
    totals = np.cumsum(means, axis=1)
    running = totals / n
    assumed = assumed_prompts or prompts
    scatter = scatter_of(totals, np.cumsum(means**2, axis=1), n, assumed, threshold if unit else None)
    exact, asymptotic = _split(confidence, unit)
    seen = n >= np.where(running > threshold, burn_in, BURN_IN)
    apart = seen & (np.abs(running - threshold) > asymptotic_half_width(scatter, n, asymptotic))
    if unit and 0 < threshold < 1:
        apart |= log_evidence(totals * prompts, n * prompts, threshold) > -np.log1p(-exact)
    return np.where(apart, np.sign(running - threshold), 0.0).astype(np.int64)


def length_status(rounds: Rounds, threshold: float, confidence: float = 0.95, *, unit: bool = True) -> LengthStatus:
    """The status of one length now. A decision at an earlier look is kept, and with it what its interval excluded."""
    n = len(rounds.means)
    if n == 0:
        nothing = Interval(0.0, 1.0, confidence, "confidence sequence")
        return LengthStatus(rounds.length, 0, float("nan"), nothing, "open", threshold, float("nan"))
    signs = _signs(rounds, threshold, confidence, unit=unit)
    decided = np.flatnonzero(signs)
    sign = int(signs[decided[0]]) if len(decided) else 0
    interval, scatter = _sequence(rounds, n, threshold, confidence, unit=unit)
    if sign:
        first, _ = _sequence(rounds, int(decided[0]) + 1, threshold, confidence, unit=unit)
        low, high = max(first.low, interval.low), min(first.high, interval.high)
        # Ends that do not meet are an error that the sequence allows for; the earlier look decided.
        interval = replace(first, low=low, high=high) if low <= high else first
    word: LineStatus = "above" if sign > 0 else "below" if sign < 0 else "open"
    return LengthStatus(rounds.length, n, float(rounds.means.mean()), interval, word, threshold, scatter)


def _signs(rounds: Rounds, threshold: float, confidence: float, *, unit: bool) -> IntArray:
    """The status after every round: by bets where a round is a document of several answers."""
    if unit and rounds.is_shared and 0 < threshold < 1:
        signs = decisions(rounds.means[None, :], threshold, confidence)
    else:
        signs = statuses(
            rounds.means[None, :], rounds.prompts, threshold, confidence,
            unit=unit, assumed_prompts=rounds.assumed_prompts, burn_in=rounds.burn_in,
        )  # fmt: skip
    return np.asarray(signs[0])


def rounds_by_length(data: Observations) -> list[Rounds]:
    """The rounds of every length in order."""
    if len(data) == 0:
        return []
    independent = data.documents == len(data)
    lengths, at = np.unique(data.length, return_inverse=True)
    rounds = []
    for j, length in enumerate(lengths.tolist()):
        mine = data.take(at == j)
        rounds.append(_rounds(length, mine, np.unique(mine.sample, return_inverse=True)[1], independent))
    return rounds


def _rounds(length: int, data: Observations, which: IntArray, independent: bool) -> Rounds:
    """The mean of every round; `which` says to which round a row belongs. Tasks weigh alike, and cells within a task.

    Failed samples are left out of a round, and a round with answers from fewer than half the cells is left out whole.
    """
    cell, task = data.code(CELL), data.code(("task",))
    cells_per_task = np.bincount(task[np.unique(cell, return_index=True)[1]])
    weight = 1.0 / (len(cells_per_task) * cells_per_task[task])
    answered = ~data.failed
    count = int(which.max()) + 1
    mass = np.bincount(which, weights=weight * answered, minlength=count)
    total = np.bincount(which, weights=np.where(answered, weight * data.value, 0.0), minlength=count)
    kept = (np.bincount(which[answered], minlength=count) * 2 >= int(cell.max()) + 1) & (mass > 0)
    worth = 1.0 / float(weight.max())
    return Rounds(length, total[kept] / mass[kept], worth if independent else 1.0, 0.0 if independent else worth)


def statuses_by_length(
    rounds: Sequence[Rounds], lengths: Sequence[int], threshold: Threshold, confidence: float = 0.95
) -> list[LengthStatus]:
    """Every length against the threshold; against a share of the shortest length's score by the gap of paired
    rounds."""
    held = {r.length: r for r in rounds}
    mine = [held.get(length, Rounds(length, np.zeros(0), 1.0)) for length in lengths]  # none: not asked yet
    if threshold.share is None:
        return [length_status(r, threshold.value, confidence) for r in mine]
    base, statuses = mine[0].means, []
    for own in mine:
        n = min(len(own.means), len(base))
        gap = Rounds(own.length, own.means[:n] - threshold.share * base[:n], own.prompts, own.answers)
        statuses.append(length_status(gap, 0.0, confidence, unit=False))
    return statuses


def next_length(status: Sequence[LineStatus], capped: Sequence[bool], cost: Sequence[float]) -> int | None:
    """Which length to sample next, or None when the search is over. Assumes that longer is not easier.

    Every crossing that is still possible is taken as equally likely, and the order of tests with the smallest expected
    cost is found from the shortest stretch up.
    """
    count = len(status)
    low = max((i for i in range(count) if status[i] == "above"), default=-1)
    high = min((i for i in range(count) if status[i] == "below" and i > low), default=count)
    open_lengths = [i for i in range(low + 1, high) if status[i] == "open" and not capped[i]]
    if not open_lengths:
        return None
    size = len(open_lengths)
    # best[a][b]: expected cost of deciding lengths a .. b - 1, with b - a + 1 possible crossings among them
    best = np.zeros((size + 1, size + 1))
    first = np.zeros((size + 1, size + 1), dtype=np.int64)
    for width in range(1, size + 1):
        for a in range(size - width + 1):
            b = a + width
            options = [
                cost[open_lengths[k]] + ((k - a + 1) * best[a, k] + (b - k) * best[k + 1, b]) / (width + 1)
                for k in range(a, b)
            ]
            first[a, b] = a + int(np.argmin(options))
            best[a, b] = min(options)
    return open_lengths[int(first[0, size])]


def rounds_to_settle(status: LengthStatus, confidence: float = 0.95) -> int | None:
    """The approximate number of rounds in all that would decide this length if its mean stayed the same; None beyond a
    million."""
    gap = abs(status.mean - status.threshold)
    n = max(status.rounds, BURN_IN)
    while n <= 1_000_000:
        if float(asymptotic_half_width(status.scatter, n, _split(confidence, True)[1])) < gap:
            return n
        n = int(n * 1.1) + 1
    return None


def is_futile(
    mean: FloatArray | float,
    scatter: FloatArray | float,
    n: FloatArray | float,
    threshold: float,
    cap: int,
    confidence: float,
) -> BoolArray:
    """Whether sampling on to the cap would almost surely end undecided, given the mean and its error now."""
    rounds = np.asarray(n, dtype=np.float64)
    gap = np.abs(np.asarray(mean) - threshold)
    needed = asymptotic_half_width(scatter, cap, _split(confidence, True)[1])
    drift = np.asarray(scatter) * np.sqrt(np.maximum(1 / rounds - 1 / cap, 1e-12))
    chance = scipy.special.ndtr((gap - needed) / drift) + scipy.special.ndtr((-gap - needed) / drift)
    return np.asarray((rounds >= BEFORE_GIVING_UP) & (chance < HOPELESS))


def _split(confidence: float, unit: bool) -> tuple[float, float]:
    """The confidence of the exact and of the asymptotic sequence, whose errors add up to what is allowed."""
    share = EXACT_SHARE if unit else 0.0
    return 1 - (1 - confidence) * share, 1 - (1 - confidence) * (1 - share)


def scatter_of(
    totals: FloatArray, squares: FloatArray, n: IntArray, prompts: float, threshold: float | None
) -> FloatArray:
    """The standard deviation of a round.

    Some rounds' worth of what yes/no answers on the threshold would scatter are added, so that a few equal rounds are
    not taken for no scatter at all; the more, the fewer prompts a round has and the more lopsided they are, since
    then a round is a coin and not yet a mean.
    """
    coin = threshold * (1 - threshold) if threshold is not None and 0 < threshold < 1 else 0.25
    pretended, prior = max(1.0, PRIOR_WEIGHT / (coin * prompts)), coin / prompts
    spread = np.maximum(squares - totals**2 / n, 0.0)
    return np.asarray(np.sqrt((spread + pretended * prior) / (n + pretended - 1)))


def _sequence(rounds: Rounds, n: int, threshold: float, confidence: float, *, unit: bool) -> tuple[Interval, float]:
    """The interval after the first `n` rounds, and the standard deviation of a round."""
    low, high = (0.0, 1.0) if unit else (-np.inf, np.inf)
    exact, asymptotic = _split(confidence, unit)
    total, squares = float(rounds.means[:n].sum()), float(np.sum(rounds.means[:n] ** 2))
    if unit:
        sure = beta_binomial_sequence(total * rounds.prompts, n * rounds.prompts, exact)
        low, high = sure.low, sure.high
    sums = np.array(total), np.array(squares), np.array(n)
    scatter = float(scatter_of(*sums, rounds.assumed_prompts, threshold if unit else None))
    if unit and rounds.is_shared:
        return betting_sequence(rounds.means[:n], confidence), scatter
    width = float(asymptotic_half_width(scatter, n, asymptotic))
    low = max(low, total / n - width) if n >= rounds.burn_in else low
    high = min(high, total / n + width) if n >= BURN_IN else high
    return Interval(low, high, confidence, "confidence sequence"), scatter


# --- Intervals for runs that decided by themselves when to stop
#
# An interval for a number of samples fixed beforehand is too narrow when the samples said when to stop. The samples of
# a group of cells are therefore taken in rounds, one sample of every cell, and the confidence sequence of the means of
# those rounds is read off where the run stopped. Sample i of a cell is the same whenever it is asked for, so complete
# rounds are one fixed series and a sequence over it may be read at any time.

THRESHOLD = RULER_THRESHOLD
"""The threshold that the assumed scatter is computed for: that of the rule `effective`, so that table and rule show one
interval."""


def complete_rounds(data: Observations) -> Rounds:
    """The rounds that every cell of `data` has been asked for."""
    cell = data.code(CELL)
    counts = np.bincount(cell)
    order = np.lexsort((data.sample, cell))
    rank = np.empty(len(data), dtype=np.int64)  # position of a row among the samples of its cell
    rank[order] = np.arange(len(data)) - np.repeat(np.cumsum(counts) - counts, counts)
    complete = rank < int(counts.min())
    mine = data.take(complete)
    return _rounds(0, mine, rank[complete], mine.documents == len(mine))


def anytime(data: Observations, estimate: Estimate) -> Estimate:
    """The estimate of a group of cells with an interval that holds at every look.

    The mean stays that of all samples. Where some cells have more of them than others it is not the mean of the
    rounds, and the interval is widened to hold it.
    """
    sequence = length_status(complete_rounds(data), THRESHOLD).interval
    low, high = min(sequence.low, estimate.mean), max(sequence.high, estimate.mean)
    return replace(estimate, interval=replace(sequence, low=low, high=high))


def anytime_effective(
    data: Observations, effective: EffectiveLength, planned: Sequence[int] = (), confidence: float = 0.95
) -> EffectiveLength:
    """The effective length as the stopping rule finds it: the longest length that is surely above the threshold, and
    the first longer one that is surely below, at every look. Assumes that longer is not easier, as the search does.

    `planned` has the lengths that the rule could ask, if some have no answer.
    """
    asked_lengths = {score.length for score in effective.scores}
    lengths = sorted(asked_lengths | set(planned))
    status = [s.status for s in statuses_by_length(rounds_by_length(data), lengths, effective.rule, confidence)]
    last = max((i for i, s in enumerate(status) if s == "above"), default=-1)
    below = min((i for i, s in enumerate(status) if s == "below"), default=len(status))
    falls = effective.falls and below > last
    low = last if falls else max((i for i, s in enumerate(status[:below]) if s == "above"), default=-1)
    high = min((i for i, s in enumerate(status) if s == "below" and i > last), default=len(status))
    length = float(lengths[max(last, 0)])
    if not falls:
        length = float(max((s.length for s in effective.scores if s.mean >= effective.threshold), default=lengths[0]))
    bound: Bound = "below" if last < 0 else "at least" if high == len(lengths) else "crossing"
    ends = (length, float(lengths[min(high, len(lengths) - 1)]))
    states: dict[int, LengthState] = {
        n: "above" if i <= low else "below" if i >= high else status[i] if not falls else "open"
        for i, n in enumerate(lengths)
    }
    return replace(
        effective,
        scores=tuple(replace(score, state=states[score.length]) for score in effective.scores),
        bound=bound,
        length=length,
        interpolated=effective.interpolated if falls and ends[0] < (effective.interpolated or 0.0) < ends[1] else None,
        falls=falls,
        low=min(length, float(lengths[max(low, 0)])),
        high=max(length, ends[1]),
        low_open=low < 0,
        high_open=high == len(lengths),
        confidence=confidence,
        unasked=tuple(n for n, state in states.items() if state == "open" and n not in asked_lengths),
        by_rule=True,
    )
