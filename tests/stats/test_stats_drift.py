"""Drift of next-token distributions: against the whole distributions, and intervals on planted means."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import entropy

from leadline.core.types import NextToken
from leadline.stats.drift import clustered_mean, summarise_drift, token_drift, top_margin


def listed(p: np.ndarray, count: int, actual: int | None = None) -> NextToken:
    """The likeliest tokens of a whole distribution, as a server lists them."""
    top = np.argsort(-p)[:count]
    return NextToken({str(i): math.log(p[i]) for i in top}, None if actual is None else math.log(p[actual]))


def test_kl_of_whole_lists_is_scipys_and_of_parts_never_above_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        p, q = rng.dirichlet(np.full(40, 0.3)) + 1e-9, rng.dirichlet(np.full(40, 0.3)) + 1e-9
        p, q = p / p.sum(), q / q.sum()
        whole = float(entropy(p, q))
        assert token_drift(listed(p, 40), listed(q, 40)).kl == pytest.approx(whole, abs=1e-6)
        assert 0.0 <= token_drift(listed(p, 8), listed(q, 8)).kl <= whole + 1e-9


@pytest.mark.parametrize(("base", "candidate", "kl", "same", "nll", "largest"), [
    # two tokens that are listed whole: 0.6 log(0.6/0.25) + 0.4 log(0.4/0.75), Kullback and Leibler 1951
    ({"a": 0.6, "b": 0.4}, {"a": 0.25, "b": 0.75}, 0.273838, False, math.log(2.4), math.log(2.4)),
    ({"a": 0.9, "b": 0.1}, {"a": 0.9, "b": 0.1}, 0.0, True, 0.0, 0.0),
    # nothing in common: all is rest on both sides, and nothing can be said
    ({"a": 1.0}, {"b": 1.0}, 0.0, False, None, 0.0),
])  # fmt: skip
def test_the_drift_of_small_lists(
    base: dict[str, float], candidate: dict[str, float], kl: float, same: bool, nll: float | None, largest: float
) -> None:
    sides = [NextToken({t: math.log(p) for t, p in side.items()}, math.log(side["a"]) if "a" in side else None)
             for side in (base, candidate)]  # fmt: skip
    drift = token_drift(*sides)
    assert drift.kl == pytest.approx(kl, abs=1e-5)
    assert drift.same_top == same
    assert (drift.nll is None) == (nll is None)
    if nll is not None:
        assert drift.nll == pytest.approx(nll, abs=1e-6)
    assert drift.largest == pytest.approx(largest, abs=1e-6)


def test_tokens_with_one_text_are_one_and_the_margin_is_between_the_first_two() -> None:
    after = NextToken.of([("x", math.log(0.3)), ("x", math.log(0.2)), ("y", math.log(0.25))])
    assert after.top["x"] == pytest.approx(math.log(0.5))
    assert top_margin(after) == pytest.approx(math.log(2))
    assert top_margin(NextToken({"x": 0.0})) is None


@pytest.mark.slow
def test_intervals_cover_a_planted_mean_where_positions_of_a_text_hang_together() -> None:
    rng, covered = np.random.default_rng(3), 0
    for _ in range(200):
        values = []
        for text in range(24):
            own = rng.normal(0.5, 0.2)
            values += [(str(text), own + rng.normal(0, 0.1)) for _ in range(int(rng.integers(5, 20)))]
        interval = clustered_mean(values).interval
        assert interval is not None
        covered += interval.low <= 0.5 <= interval.high
    assert covered >= 176  # 95 % of 200, less three standard deviations and what a bootstrap of 24 texts lacks


def test_a_summary_without_numbers_has_none() -> None:
    summary = summarise_drift("empty", [])
    assert summary.kl.value is None
    assert summary.texts == 0
