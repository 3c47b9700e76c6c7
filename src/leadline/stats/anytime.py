"""Intervals for runs that decided by themselves when to stop: they hold however often one looked.

An interval for a number of samples fixed beforehand is too narrow when the samples themselves said when to stop. Here
the samples of a group of cells are taken in rounds, one sample of every cell, and the confidence sequence of the means
of those rounds (leadline.stats.sequential) is read off where the run stopped. Sample i of a cell is the same whenever
it is asked for, so complete rounds are one fixed series and a sequence over it may be read at any time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from leadline.stats.effective import EffectiveLength
from leadline.stats.intervals import Estimate, Interval
from leadline.stats.observations import Observations
from leadline.stats.sequential import LengthStanding, Rounds, rounds_by_length, standing_of

LINE = 0.5
"""Where scatter is taken for granted before any is seen: for a mean that is compared with nothing, the widest."""


def complete_rounds(data: Observations) -> Rounds:
    """The rounds that every cell of `data` has been asked for; tasks weigh alike, cells alike in a task.

    Failed samples are left out of a round, and a round of which fewer than half the cells were answered is left out
    whole, as in the search itself.
    """
    cell = data.code(("task", "length", "depth"))
    asked = np.bincount(cell)
    order = np.lexsort((data.sample, cell))
    rank = np.empty(len(data), dtype=np.int64)  # the how manieth sample of its cell a row is
    rank[order] = np.arange(len(data)) - np.repeat(np.cumsum(asked) - asked, asked)
    mine = data.take(rank < int(asked.min()))
    which = rank[rank < int(asked.min())]
    _, task = np.unique(mine.task, return_inverse=True)
    cells = mine.code(("task", "length", "depth"))
    per_task = np.bincount(task[np.unique(cells, return_index=True)[1]])
    weight = 1.0 / (len(per_task) * per_task[task])
    good = ~mine.failed
    count = int(asked.min())
    mass = np.bincount(which, weights=weight * good, minlength=count)
    total = np.bincount(which, weights=np.where(good, weight * mine.value, 0.0), minlength=count)
    kept = (np.bincount(which[good], minlength=count) * 2 >= len(asked)) & (mass > 0)
    independent = len(np.unique(mine.cluster)) == len(mine)
    return Rounds(0, total[kept] / mass[kept], 1.0 / float(weight.max()) if independent else 1.0)


def anytime(data: Observations, estimate: Estimate, confidence: float = 0.95) -> Estimate:
    """The estimate of a group of cells with an interval that holds at every look.

    The mean stays that of all samples. Where some cells have more of them than others it is not the mean of the
    rounds, and the interval is widened to hold it.
    """
    rounds = complete_rounds(data)
    found = standing_of(rounds, LINE, confidence).interval
    low, high = min(found.low, estimate.mean), max(found.high, estimate.mean)
    return replace(estimate, interval=Interval(low, high, confidence, found.method))


def anytime_effective(data: Observations, found: EffectiveLength) -> EffectiveLength:
    """The effective length with ends that hold at every look: the longest length that surely clears the line, and the
    first beyond it that surely does not. Takes for granted that longer is not easier, as the search does."""
    stands = _standings(data, found)
    low = max((i for i, s in enumerate(stands) if s.standing == "above"), default=-1)
    high = min((i for i, s in enumerate(stands) if s.standing == "below" and i > low), default=len(stands))
    shortest, longest = stands[0].length, stands[-1].length
    return replace(
        found,
        low=min(found.length, float(stands[low].length if low >= 0 else shortest)),
        high=max(found.length, float(stands[high].length if high < len(stands) else longest)),
        low_open=low < 0,
        high_open=high == len(stands),
    )


def _standings(data: Observations, found: EffectiveLength) -> list[LengthStanding]:
    """Every length against the line; against a share of the shortest length's score by the gap of paired rounds."""
    held = rounds_by_length(data)
    if found.line.share is None:
        return [standing_of(rounds, found.line.threshold, found.confidence) for rounds in held]
    base = held[0].means
    made = []
    for rounds in held:
        n = min(len(rounds.means), len(base))
        gap = rounds.means[:n] - found.line.share * base[:n]
        made.append(standing_of(Rounds(rounds.length, gap, rounds.prompts), 0.0, found.confidence, unit=False))
    return made
