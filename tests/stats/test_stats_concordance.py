"""Concordance: the Mann-Whitney statistic of each task, with intervals that hold over documents."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, norm

from leadline.stats.concordance import concordance


def test_it_is_the_share_of_pairs_in_which_the_wrong_answer_has_more() -> None:
    """Worked by hand: wrong answers 5 and 3, right ones 1, 3 and 4; pairs 5>1, 5>3, 5>4, 3>1, 3=3, 3<4."""
    found = concordance([5, 3, 1, 3, 4], [False, False, True, True, True], ["t"] * 5, list("abcde"))
    assert found is not None
    assert found.value == pytest.approx(4.5 / 6)
    assert found.pairs == 6


def test_it_is_scipys_statistic() -> None:
    draw = np.random.default_rng(3)
    values, right = draw.integers(0, 30, 200), draw.random(200) < 0.6
    found = concordance(values.tolist(), right.tolist(), ["t"] * 200, [str(n) for n in range(200)])
    expected = mannwhitneyu(values[~right], values[right]).statistic / ((~right).sum() * right.sum())
    assert found is not None
    assert found.value == pytest.approx(expected)


def test_answers_of_different_tasks_are_never_paired() -> None:
    values, right = [1.0, 2.0, 100.0, 200.0], [False, True, True, False]
    found = concordance(values, right, ["easy", "easy", "hard", "hard"], list("abcd"))
    assert found is not None
    assert found.value == pytest.approx(0.5)  # once below and once above; across tasks it would be otherwise
    assert found.pairs == 2


def test_without_an_exception_the_interval_is_that_of_as_many_documents() -> None:
    """Five documents with wrong answers and ten with right ones: 0.05 ** (1 / 5) = 0.549."""
    values, right = [*range(10), *range(20, 25)], [True] * 10 + [False] * 5
    found = concordance(values, right, ["t"] * 15, [str(n) for n in range(15)])
    assert found is not None
    assert found.value == 1.0
    assert found.interval.low == pytest.approx(0.5493, abs=1e-4)
    assert found.interval.high == 1.0


def test_nothing_is_said_where_all_are_right() -> None:
    assert concordance([1, 2, 3], [True] * 3, ["t"] * 3, list("abc")) is None


@pytest.mark.slow
@pytest.mark.parametrize(("shift", "shared"), [(0.0, 0.0), (0.7, 0.0), (0.7, 0.6), (1.5, 0.6)])
def test_intervals_hold_the_planted_truth(shift: float, shared: float) -> None:
    """Normal values with a shift for wrong answers: the truth is Phi(shift / sqrt 2). Four answers a document have a
    part of their value in common."""
    draw, hits, rounds = np.random.default_rng(11), 0, 400
    truth = float(norm.cdf(shift / np.sqrt(2)))
    for _ in range(rounds):
        document = np.repeat(np.arange(30), 4)
        common = np.repeat(draw.normal(size=30), 4)
        right = draw.random(120) < 0.6
        values = np.sqrt(shared) * common + np.sqrt(1 - shared) * draw.normal(size=120) + shift * ~right
        found = concordance(values.tolist(), right.tolist(), ["t"] * 120, [str(n) for n in document])
        assert found is not None
        hits += found.interval.holds(truth)
    assert 0.92 <= hits / rounds <= 0.985
