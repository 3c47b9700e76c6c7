"""Agreement: golden tables of published examples, and what prevalence does to kappa."""

from __future__ import annotations

import math

import numpy as np
import pytest

from leadline.core.errors import UsageError
from leadline.features.judges.agreement import Ratings, agreement


def cohen_kappa(ratings: Ratings) -> float:
    made = agreement(ratings, resamples=2).cohen
    assert made is not None
    return made.value


def two_raters(both_yes: int, yes_no: int, no_yes: int, both_no: int) -> list[tuple[int, int]]:
    return [(1, 1)] * both_yes + [(1, 0)] * yes_no + [(0, 1)] * no_yes + [(0, 0)] * both_no


# Fleiss 1971, table 1: ten subjects, fourteen raters, five categories; kappa is 0.210.
FLEISS = [
    (0, 0, 0, 0, 14), (0, 2, 6, 4, 2), (0, 0, 3, 5, 6), (0, 3, 9, 2, 0), (2, 2, 8, 1, 1),
    (7, 7, 0, 0, 0), (3, 2, 6, 3, 0), (2, 5, 3, 2, 2), (6, 5, 2, 1, 0), (0, 2, 2, 3, 7),
]  # fmt: skip

# Krippendorff 2011, section C: twelve units, four observers, with gaps.
KRIPPENDORFF = [
    (1, 1, None, 1), (2, 2, 3, 2), (3, 3, 3, 3), (3, 3, 3, 3), (2, 2, 2, 2), (1, 2, 3, 4),
    (4, 4, 4, 4), (1, 1, 2, 1), (2, 2, 2, 2), (None, 5, 5, 5), (None, None, 1, 1), (None, None, 3, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "kappa", "ac1"),
    [
        (two_raters(475, 25, 25, 475), 0.900, 0.900),
        (two_raters(925, 25, 25, 25), 0.474, 0.945),
        (two_raters(980, 10, 10, 0), -0.010, 0.980),
    ],
)
def test_prevalence_ruins_kappa_but_not_ac1(table: list[tuple[int, int]], kappa: float, ac1: float) -> None:
    assert cohen_kappa(table) == pytest.approx(kappa, abs=5e-4)
    assert agreement(table, resamples=2).gwet.value == pytest.approx(ac1, abs=5e-4)


def test_fleiss_kappa_gives_the_published_value() -> None:
    ratings = [[label for label, count in enumerate(row) for _ in range(count)] for row in FLEISS]
    assert agreement(ratings, resamples=2).fleiss.value == pytest.approx(0.2099, abs=5e-5)


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_krippendorffs_alpha_gives_the_published_values(level: str, alpha: float) -> None:
    made = agreement(KRIPPENDORFF, level=level, resamples=2)  # type: ignore[arg-type]
    assert made.krippendorff.value == pytest.approx(alpha, abs=5e-4)


def test_cohens_kappa_agrees_with_a_table_by_hand() -> None:
    # 20 both yes, 5 yes/no, 10 no/yes, 15 both no: (0.7 - 0.5) / (1 - 0.5)
    assert cohen_kappa(two_raters(20, 5, 10, 15)) == pytest.approx(0.4)


def test_the_interval_of_kappa_is_that_of_theory() -> None:
    made = agreement(two_raters(925, 25, 25, 25), seed=1)
    assert made.cohen is not None
    assert (made.cohen.interval.low, made.cohen.interval.high) == pytest.approx((0.349, 0.598), abs=0.02)
    assert made.raw.value == pytest.approx(0.95)
    assert made.shares[1] == (0.95, 0.95)
    assert made.nearly_one_label


def test_three_judges_have_no_cohens_kappa() -> None:
    made = agreement([("a", "a", "b"), ("a", "a", "a"), ("b", "b", "b"), ("a", None, "a")], resamples=200)
    assert made.cohen is None
    assert made.raters == 3
    assert 0 < made.krippendorff.value < 1


def test_one_label_only_leaves_kappa_undefined() -> None:
    made = agreement([(1, 1)] * 5, resamples=50)
    assert made.cohen is not None
    assert math.isnan(made.cohen.value)
    assert made.raw.value == 1.0


def test_words_have_no_order() -> None:
    with pytest.raises(UsageError, match="has no order"):
        agreement([("good", "bad"), ("bad", "bad")], level="ordinal")


def test_nothing_rated_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing was rated"):
        agreement([(None, None)])


def test_the_bootstrap_covers_the_planted_agreement() -> None:
    rng = np.random.default_rng(3)
    truth, held, runs = 0.6, 0, 60  # two raters, balanced: they agree on a share 0.8 of items, so kappa is 0.6
    for run in range(runs):
        first = rng.integers(0, 2, 150)
        second = np.where(rng.random(150) < 0.8, first, 1 - first)
        made = agreement(list(zip(first.tolist(), second.tolist(), strict=True)), resamples=400, seed=run)
        assert made.cohen is not None
        held += made.cohen.interval.holds(truth)
    assert held / runs >= 0.87
