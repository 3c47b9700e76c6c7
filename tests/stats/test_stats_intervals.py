"""Intervals: golden values, the choice of method, and coverage of planted truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from leadline.stats.intervals import mean_interval, t_quantile, wilson


@pytest.mark.parametrize(("successes", "n", "low"), [(3, 3, 0.4385), (10, 10, 0.7225)])
def test_all_right_leaves_room_below_one(successes: int, n: int, low: float) -> None:
    made = wilson(successes, n)
    assert made.low == pytest.approx(low, abs=5e-5)
    assert made.high == 1.0


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (1, 5), (7, 12), (44, 50), (93, 93)])
def test_wilson_agrees_with_scipy(successes: int, n: int) -> None:
    expected = binomtest(successes, n).proportion_ci(method="wilson")
    made = wilson(successes, n)
    assert (made.low, made.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_no_samples_leave_everything_open() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    nothing = mean_interval([], [])
    assert math.isnan(nothing.mean)
    assert (nothing.n, nothing.interval.low, nothing.interval.high) == (0, 0.0, 1.0)


def test_more_successes_than_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="not a share"):
        wilson(4, 3)


def test_independent_yes_no_answers_get_wilson() -> None:
    made = mean_interval([1, 0, 1, 1, 1], list("abcde"))
    assert made.interval.method == "wilson"
    assert (made.interval.low, made.interval.high) == pytest.approx((wilson(4, 5).low, wilson(4, 5).high))


def test_answers_from_one_document_are_not_taken_for_independent() -> None:
    alone = mean_interval([1, 1, 0, 1] * 5, [str(i) for i in range(20)])
    shared = mean_interval([1, 1, 0, 1] * 5, list("abcd") * 5)
    assert shared.n_clusters == 4
    assert shared.interval.half_width > alone.interval.half_width


def test_one_document_says_nothing_about_others() -> None:
    made = mean_interval([1, 1, 0, 1], ["a"] * 4)
    assert (made.interval.low, made.interval.high, made.interval.method) == (0.0, 1.0, "one document")


def test_fractional_recall_counts_prompts_not_needles() -> None:
    values = [1.0, 0.75, 1.0, 0.5, 1.0, 0.75, 1.0, 1.0]
    made = mean_interval(values, [str(i) for i in range(8)])
    assert made.interval.method == "bound for any scores"
    variance = float(np.var(values, ddof=1)) / 8
    effective = made.mean * (1 - made.mean) / variance
    t = t_quantile(0.95, 7)
    low = (made.mean + t * t / (2 * effective)) / (1 + t * t / effective)
    low -= t / (1 + t * t / effective) * math.sqrt(variance + t * t / (4 * effective**2))
    assert made.interval.low < low  # one more document, of which nothing was right, may be among those not seen
    many = mean_interval(values * 20, [str(i) for i in range(160)]).interval
    assert many.half_width < 0.04


def test_scores_off_the_unit_scale_get_a_t_interval() -> None:
    values = [2.1, 1.9, 2.4, 2.0, 2.2]
    made = mean_interval(values, list("abcde"))
    half = t_quantile(0.95, 4) * float(np.std(values, ddof=1)) / math.sqrt(5)
    assert made.interval.method == "t over documents"
    assert (made.interval.low, made.interval.high) == pytest.approx((made.mean - half, made.mean + half))


def test_equal_fractions_do_not_give_a_certain_mean() -> None:
    made = mean_interval([0.75] * 6, list("abcdef"))
    assert made.interval.low < 0.75 < made.interval.high


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("documents", "probes", "correlation"), [(1, 1, 0.0), (8, 11, 0.2), (25, 4, 0.4)])
def test_intervals_cover_the_truth(documents: int, probes: int, correlation: float) -> None:
    rng = np.random.default_rng(documents)
    held = 0
    runs = 400
    for run in range(runs):
        truth = rng.uniform(0.3, 0.97)
        groups = documents if documents > 1 else 20
        spread = (1 - correlation) / correlation if correlation else 1e6
        shares = rng.beta(truth * spread, (1 - truth) * spread, size=groups)
        values = (rng.random((groups, probes)) < shares[:, None]).astype(float)
        names = [f"{run}.{g}" for g in range(groups) for _ in range(probes)]
        held += mean_interval(values.ravel().tolist(), names).interval.holds(truth)
    assert 0.915 <= held / runs <= (0.99 if documents == 1 else 1.0)  # few documents: wide


@pytest.mark.slow
@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_intervals_hold_where_documents_differ_on_the_logit_scale(spread: float) -> None:
    rng = np.random.default_rng(9)
    grid = np.linspace(-5, 5, 2001)
    weight = np.exp(-(grid**2) / 2)
    truth = float(np.sum(weight / (1 + np.exp(-2 - spread * grid))) / weight.sum())
    held = 0
    for _ in range(400):
        chance = 1 / (1 + np.exp(-2 - spread * rng.standard_normal(10)))
        values = (rng.random((10, 11)) < chance[:, None]).astype(float)
        held += mean_interval(values.ravel().tolist(), [str(d) for d in range(10) for _ in range(11)]).interval.holds(
            truth
        )
    assert held / 400 >= 0.92
