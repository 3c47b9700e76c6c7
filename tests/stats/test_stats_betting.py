"""Bets on documents: exact where whole documents are lost, and about as quick as sequences that assume a scatter."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.stats.betting import STAKES, betting_sequence, decisions, log_capital
from leadline.stats.observations import FloatArray
from leadline.stats.sequential import Rounds, length_status

LINE = 0.856
ANSWERS = 5


def documents(mean: float, lost_whole: float, runs: int, rounds: int, rng: np.random.Generator) -> FloatArray:
    """Means of documents of five answers; some are lost whole, and the others make up for it."""
    kept = rng.random((runs, rounds, 1)) >= lost_whole
    right = rng.random((runs, rounds, ANSWERS)) < mean / (1 - lost_whole)
    return np.asarray((kept & right).mean(axis=2))


def test_capital_is_what_the_stakes_multiply_to() -> None:
    """Worked out by hand for one stake: 1, 1 and 0 at a mean of 0.5 turn 1 into (1 + c)(1 + c)(1 - c)."""
    above, below = log_capital(np.array([[1.0, 1.0, 0.0]]), 0.5)
    by_hand = np.array([(1 + c) * (1 + c) * (1 - c) for c in STAKES])
    against = np.array([(1 - c) * (1 - c) * (1 + c) for c in STAKES])
    weights = np.array([0.35 / 9] * 9 + [0.15, 0.5])
    assert above[0, -1] == pytest.approx(np.log(by_hand @ weights))
    assert below[0, -1] == pytest.approx(np.log(against.mean()))


def test_the_interval_ends_where_a_bet_wins() -> None:
    scores = documents(0.8, 0.1, 1, 60, np.random.default_rng(1))[0]
    found = betting_sequence(scores)
    above, below = log_capital(scores[None, :], found.low), log_capital(scores[None, :], found.high)
    assert above[0][0, -1] == pytest.approx(-np.log(0.04), abs=1e-6)
    assert below[1][0, -1] == pytest.approx(-np.log(0.01), abs=1e-6)
    assert found.low < scores.mean() < found.high


@pytest.mark.parametrize("scores", [np.ones(30), np.zeros(30), np.full(1, 0.5)], ids=["all right", "all wrong", "one"])
def test_ends_stay_between_0_and_1(scores: FloatArray) -> None:
    found = betting_sequence(scores)
    assert 0 <= found.low <= scores.mean() <= found.high <= 1


def test_a_length_of_shared_documents_is_decided_by_bets_and_its_interval_agrees() -> None:
    rng = np.random.default_rng(3)
    for mean in (0.98, 0.5, 0.86):
        means = documents(mean, 0.0, 1, 40, rng)[0]
        status = length_status(Rounds(4096, means, 1.0, float(ANSWERS)), LINE)
        decided = decisions(means[None, :], LINE)[0]
        sign = int(decided[np.flatnonzero(decided)[0]]) if decided.any() else 0
        assert status.status == {1: "above", -1: "below", 0: "open"}[sign]
        assert (status.interval.low > LINE - 1e-9, status.interval.high < LINE + 1e-9) == (sign > 0, sign < 0)


@pytest.mark.slow
@pytest.mark.parametrize("lost_whole", [0.0, 0.05, 0.1, 1 - LINE], ids=["none", "some", "most", "all of the loss"])
def test_a_score_on_the_line_is_decided_in_at_most_5_of_100_runs(lost_whole: float) -> None:
    """Looked at after each of 200 documents. Sequences that estimate the scatter decided in 7 to 8."""
    signs = decisions(documents(LINE, lost_whole, 2500, 200, np.random.default_rng(4)), LINE)
    assert (signs != 0).any(axis=1).mean() <= 0.05


@pytest.mark.slow
@pytest.mark.parametrize(("mean", "most"), [(1.0, 25), (0.97, 34), (0.95, 42), (0.75, 40), (0.5, 10)])
def test_a_clear_length_takes_few_documents(mean: float, most: int) -> None:
    signs = decisions(documents(mean, 0.0, 300, 200, np.random.default_rng(5)), LINE)
    assert (signs != 0).any(axis=1).mean() > 0.98
    assert (np.argmax(signs != 0, axis=1) + 1).mean() <= most
