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


def test_equal_ratings_do_not_prove_that_raters_never_differ() -> None:
    made = agreement([(1, 1)] * 12 + [(0, 0)] * 8, resamples=200)
    assert made.cohen is not None
    for coefficient in (made.raw, made.cohen, made.fleiss, made.krippendorff, made.gwet):
        assert coefficient.value == pytest.approx(1.0)
        assert coefficient.interval.low < 0.9, "19 of 20 would be no surprise"
        assert coefficient.interval.high == pytest.approx(1.0)
    assert made.raw.interval.low == pytest.approx(0.839, abs=0.001)  # Wilson: 20 of 20
    one_label = agreement([(1, 1)] * 20, resamples=200)
    assert 0.75 < one_label.gwet.interval.low < 0.84
    opposite = agreement([(1, 0), (0, 1)] * 10, resamples=200)
    assert opposite.raw.interval.high > 0.1
    assert opposite.gwet.interval.high > opposite.gwet.value


def test_fleiss_and_gwet_with_missing_ratings_give_the_published_values() -> None:
    """The table of Krippendorff 2011 in Gwet's handbook of inter-rater reliability (2014)."""
    made = agreement(KRIPPENDORFF, resamples=2)
    assert made.fleiss.value == pytest.approx(0.76117, abs=5e-6)
    assert made.gwet.value == pytest.approx(0.77544, abs=5e-6)


def test_items_of_one_document_are_drawn_together() -> None:
    """Six documents of ten items: whole documents are agreed on, or not."""
    ratings = [(1, 1)] * 20 + [(0, 0)] * 20 + [(1, 0), (0, 1)] * 10
    documents = [str(i // 10) for i in range(60)]
    alone, together = agreement(ratings), agreement(ratings, clusters=documents)
    assert alone.cohen is not None
    assert together.cohen is not None
    assert together.cohen.interval.half_width > 1.5 * alone.cohen.interval.half_width
    assert together.raw.interval.half_width > 1.5 * alone.raw.interval.half_width


@pytest.mark.slow
@pytest.mark.parametrize("documents", [8, 20])
@pytest.mark.parametrize("hard", [0.0, 0.4], ids=["items differ", "documents differ"])
def test_intervals_of_agreement_cover_over_documents(documents: int, hard: float) -> None:
    """Ten items a document, of which two raters agree on 85 in 100, or on half in two of five documents and on 98 in
    100 in the others. Both labels are as frequent, so kappa is twice the agreement less one."""
    rng, held, runs = np.random.default_rng(6), {"raw": 0, "kappa": 0}, 150
    rates = (0.5, 0.98) if hard else (0.85, 0.85)
    truth = hard * rates[0] + (1 - hard) * rates[1]
    document = np.repeat(np.arange(documents), 10)
    for run in range(runs):
        rate = np.where(rng.random(documents) < hard, *rates)[document]
        first = rng.integers(0, 2, len(document))
        second = np.where(rng.random(len(document)) < rate, first, 1 - first)
        ratings = list(zip(first.tolist(), second.tolist(), strict=True))
        made = agreement(ratings, clusters=document.astype(str).tolist(), resamples=300, seed=run)
        assert made.cohen is not None
        held["raw"] += made.raw.interval.holds(truth)
        held["kappa"] += made.cohen.interval.holds(2 * truth - 1)
    assert min(held.values()) >= 0.9 * runs, held
