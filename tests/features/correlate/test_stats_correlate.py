"""Correlations: scipy's values, golden values of skipped Spearman, outliers, and bootstrap intervals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr

from leadline.core.errors import UsageError
from leadline.features.correlate.correlation import correlation_difference, correlations, projection_outliers, spearman


def thirty_points() -> tuple[np.ndarray, np.ndarray]:
    """Correlated normal points of public discussions of skipped correlations: numpy's old generator, seed 123."""
    x, y = np.random.RandomState(123).multivariate_normal([4, 6], [(1, 0.6), (0.6, 1)], 30).T
    return x, y


def models(n: int, seed: int, correlation: float = 0.75) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    return x, correlation * x + np.sqrt(1 - correlation**2) * rng.standard_normal(n)


def skipped_spearman(x: np.ndarray, y: np.ndarray) -> tuple[float, tuple[int, ...]]:
    made = correlations(x, y, resamples=10)["skipped spearman"]
    return made.value, made.outliers


def test_plain_correlations_are_scipys_with_ties_too() -> None:
    x, y = models(17, 0)
    for xs, ys in ((x, y), (np.round(x), np.round(y))):
        made = correlations(xs, ys, resamples=10)
        assert spearman(xs, ys) == made["spearman"].value == pytest.approx(spearmanr(xs, ys)[0])
        assert made["pearson"].value == pytest.approx(pearsonr(xs, ys)[0])
        assert made["kendall"].value == pytest.approx(kendalltau(xs, ys)[0])


def test_skipped_spearman_gives_the_toolbox_value_on_gross_outliers() -> None:
    x, y = thirty_points()
    x[3], y[5] = 12, -8
    value, outliers = skipped_spearman(x, y)
    assert (round(value, 4), outliers) == (0.5123, (3, 5))


def test_mild_outliers_are_measured_from_the_medians() -> None:
    x, y = thirty_points()
    x[3], y[5] = 7, 2.6
    assert skipped_spearman(x, y)[0] == pytest.approx(0.5611, abs=5e-5)


def test_two_gross_outliers_do_not_fool_the_skipped_correlation() -> None:
    x, y = models(17, 2, 0.9)
    clean = spearman(x, y)
    x[0], y[0], x[1], y[1] = 8, -8, 9, -7
    value, outliers = skipped_spearman(x, y)
    assert {0, 1} <= set(outliers)
    assert spearman(x, y) < clean - 0.2
    assert value == pytest.approx(clean, abs=0.15)


def test_clean_points_lose_one_in_a_third_of_data_sets() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1000, 17))
    y = 0.75 * x + np.sqrt(1 - 0.75**2) * rng.standard_normal((1000, 17))
    flagged = projection_outliers(x, y).any(axis=1)
    assert flagged.mean() == pytest.approx(0.38, abs=0.05)


def test_every_method_comes_with_an_interval_from_the_same_resamples() -> None:
    x, y = models(17, 3)
    made = correlations(x, y, seed=4)
    assert set(made) == {"spearman", "pearson", "kendall", "skipped spearman"}
    assert all(
        c.resamples == 5000 and c.seed == 4 and c.interval.low < c.value < c.interval.high for c in made.values()
    )
    assert correlations(x, y, seed=4) == made
    assert made["skipped spearman"].interval.half_width >= made["spearman"].interval.half_width - 0.1


@pytest.mark.slow
def test_the_bootstrap_interval_covers_the_planted_correlation() -> None:
    truth = 6 / np.pi * np.arcsin(0.75 / 2)  # Spearman's of a normal pair
    held = 0
    runs = 60
    for seed in range(runs):
        x, y = models(17, seed)
        made = correlations(x, y, resamples=400, seed=seed)
        held += made["spearman"].interval.holds(truth)
    assert held / runs >= 0.9


def test_two_proxies_can_be_told_apart_or_not() -> None:
    x, y = models(40, 1, 0.95)
    noise = np.random.default_rng(9).standard_normal(40)
    gap, interval = correlation_difference(x, noise, y, resamples=1000)
    assert gap > 0.5
    assert interval.low > 0
    same, around = correlation_difference(x, x + 1e-9 * noise, y, resamples=500)
    assert same == pytest.approx(0, abs=0.01)
    assert around.holds(0.0)


@pytest.mark.parametrize("n", [4, 5, 6, 8])
def test_a_few_models_in_one_order_are_not_certain(n: int) -> None:
    found = correlations(range(n), [3 * i for i in range(n)], resamples=200)
    assert found["spearman"].value == pytest.approx(1.0)
    assert found["spearman"].interval.high == 1.0
    assert found["spearman"].interval.low < (0.3 if n <= 5 else 0.95)


@pytest.mark.slow
def test_intervals_of_few_models_cover_the_planted_correlation() -> None:
    """Heavy-tailed scores with a shared part, six models: nothing of the normal pair that theory assumes."""
    rng = np.random.default_rng(2)
    crowd = rng.standard_t(3, (200_000, 2)) + 1.5 * rng.standard_t(3, (200_000, 1))
    truth = spearman(*crowd[:3000].T)
    held = 0
    for run in range(200):
        x, y = crowd[run * 6 : run * 6 + 6].T
        held += correlations(x, y, resamples=200, seed=run)["spearman"].interval.holds(truth)
    assert held / 200 >= 0.92


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([1, 2, 3], [1, 2, 3], "too few"),
        ([1, 2, 3, 4], [1, 2, 3], "needs both"),
        ([1, 2, 3, float("nan")], [1, 2, 3, 4], "not finite"),
    ],
)
def test_scores_that_cannot_be_correlated_are_refused(x: list[float], y: list[float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        correlations(x, y)
