"""Intervals of runs that stop by themselves: true at every look at once, where those for a fixed number are not."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.stats.effective import Threshold, effective_length
from leadline.stats.marginals import marginals
from leadline.stats.observations import FloatArray, Observations
from leadline.stats.sequential import anytime, anytime_effective, complete_rounds


def grid(values: FloatArray, lengths: tuple[int, ...] = (4096,), *, shared: bool = False) -> Observations:
    """Rows from values[length, depth, sample]; NaN is a failed sample."""
    _, depths, samples = values.shape
    at = [(n, d, s) for n in range(len(lengths)) for d in range(depths) for s in range(samples)]
    value = np.array([values[n, d, s] for n, d, s in at])
    document = np.array([f"{n}-{s}" if shared else f"{n}-{d}-{s}" for n, d, s in at])
    return Observations(
        task=np.array(["niah"] * len(at)),
        length=np.array([lengths[n] for n, _, _ in at]),
        depth=np.array([d / max(depths - 1, 1) for _, d, _ in at]),
        sample=np.array([s for _, _, s in at]),
        cluster=document,
        value=value,
        failed=np.isnan(value),
    )


def of(data: Observations) -> tuple[float, float]:
    (plain,) = marginals(data, ())
    interval = anytime(data, plain.estimate).interval
    return interval.low, interval.high


@pytest.mark.slow
@pytest.mark.parametrize(("truth", "depths"), [(0.856, 1), (0.5, 4)])
def test_the_truth_is_never_shut_out_however_often_one_looks(truth: float, depths: int) -> None:
    """60 runs, looked at ten times in 40 rounds: at most a few may ever miss; plain intervals miss in many."""
    rng = np.random.default_rng(1)
    missed = plain_missed = 0
    for _ in range(60):
        values = (rng.random((1, depths, 40)) < truth).astype(float)
        looks = [values[:, :, :n] for n in range(4, 41, 4)]
        missed += any(not low <= truth <= high for low, high in map(of, map(grid, looks)))
        plain = [marginals(grid(look), ())[0].estimate.interval for look in looks]
        plain_missed += any(not interval.holds(truth) for interval in plain)
    assert missed <= 5
    assert plain_missed > 2 * missed + 3


def test_shared_documents_make_a_round_one_answer() -> None:
    values = np.repeat((np.random.default_rng(2).random((1, 1, 6)) < 0.7).astype(float), 5, axis=1)
    apart, together = of(grid(values)), of(grid(values, shared=True))
    assert together[1] - together[0] > apart[1] - apart[0]


def test_only_rounds_that_every_cell_has_are_counted_and_the_mean_lies_inside() -> None:
    values = np.ones((1, 2, 30))
    values[0, 1, :] = 0.0
    data = grid(values)
    fewer = data.take((data.depth == 0) | (data.sample < 5))
    rounds = complete_rounds(fewer)
    assert rounds.means.tolist() == [0.5] * 5
    (plain,) = marginals(fewer, ())
    assert anytime(fewer, plain.estimate).interval.holds(plain.estimate.mean)
    assert anytime(fewer, plain.estimate).mean == plain.estimate.mean


def test_failed_samples_are_left_out_and_a_gap_in_the_numbers_does_no_harm() -> None:
    values = np.ones((1, 2, 12))
    values[0, 0, 3] = np.nan
    data = grid(values)
    rounds = complete_rounds(data.take(data.sample != 5))
    assert rounds.means.tolist() == [1.0] * 11


def test_ends_of_effective_length_are_lengths_that_are_decided() -> None:
    rng = np.random.default_rng(3)
    chance = np.array([0.99, 0.97, 0.5, 0.1])
    values = (rng.random((4, 5, 60)) < chance[:, None, None]).astype(float)
    data = grid(values, (4096, 8192, 16384, 32768))
    found = anytime_effective(data, effective_length(data))
    assert (found.low, found.high, found.low_open, found.high_open) == (8192, 16384, False, False)
    assert found.low <= found.length <= found.high
    own = anytime_effective(data, effective_length(data, Threshold(share=0.85)))
    assert (own.low, own.high) == (8192, 16384)


def test_an_end_that_nothing_decides_is_open() -> None:
    values = np.ones((2, 2, 3))
    data = grid(values, (4096, 8192))
    found = anytime_effective(data, effective_length(data))
    assert (found.low_open, found.high_open) == (True, True)


def test_a_length_that_answered_nothing_is_left_out_of_the_effective_length() -> None:
    values = np.ones((3, 2, 40))
    values[2] = np.nan
    data = grid(values, (4096, 8192, 16384))
    found = anytime_effective(data, effective_length(data))
    assert [score.length for score in found.scores] == [4096, 8192]
    assert (found.bound, found.length, found.low) == ("at least", 8192, 8192)
