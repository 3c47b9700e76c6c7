"""Effective length: words, definition, and an interval that covers planted crossings."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from scipy.special import expit, logit

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.stats.effective import Line, claim_words, effective_length, effective_lengths, falling
from leadline.stats.observations import Observations, parts_by_depth
from leadline.stats.planted import DEPTHS, LENGTHS, planted
from leadline.stats.ruler_summary import ruler_average, ruler_average_estimate

TABLE = Path(__file__).parents[2] / "studies" / "calibration" / "ruler_table.csv"
FLAT = np.ones((8, 11))


def falling_run(scores: list[float], samples: int = 40, seed: int = 0) -> Observations:
    surface = np.array(scores)[:, None] * np.ones((1, 11))
    return planted(surface, samples, np.random.default_rng(seed), lengths=LENGTHS[: len(scores)])


@pytest.mark.parametrize(
    ("tokens", "words"),
    [(131072, "128k"), (44000, "43k"), (4096, "4k"), (3482, "3.4k"), (1024 * 1024, "1M"), (900, "900"), (10200, "10k")],
)
def test_lengths_read_as_people_write_them(tokens: int, words: str) -> None:
    assert format_tokens(tokens) == words


def test_a_crossing_is_stated_with_its_interval() -> None:
    made = effective_length(falling_run([0.99, 0.98, 0.96, 0.93, 0.75, 0.5]))
    assert made.bound == "crossing"
    assert 32768 < made.low < made.length < made.high < 65536
    assert str(made) == f"{format_tokens(made.length)} (95 %: {format_tokens(made.low)} to {format_tokens(made.high)})"
    assert made.largest_measured == 32768


def test_a_model_that_never_falls_reaches_at_least_the_longest_length() -> None:
    made = effective_length(falling_run([0.99] * 6))
    assert str(made) == "at least 128k"
    assert made.scores[-1].clears == 1.0


def test_a_model_that_never_clears_is_below_the_shortest() -> None:
    made = effective_length(falling_run([0.5] * 6))
    assert str(made) == "below 4k"
    assert made.largest_measured is None


def test_the_claimed_window_stands_beside_it() -> None:
    data = falling_run([0.99, 0.98, 0.96, 0.93, 0.3, 0.2])
    made = effective_length(data, claimed=131072)
    share = round(100 * made.length / 131072)
    assert claim_words(made) == f"{made}, {share} % of the 128k claimed"
    assert claim_words(effective_length(data)) == str(effective_length(data))
    beyond = effective_length(falling_run([0.99] * 4), claimed=131072)
    assert claim_words(beyond).endswith("at least 25 % of the 128k claimed")


def test_few_samples_say_so_and_leave_the_end_open() -> None:
    made = effective_length(falling_run([0.99, 0.95, 0.93, 0.92, 0.9, 0.88], samples=2))
    assert made.high_open
    assert str(made).startswith("at least 128k (95 %: ") or "or more" in str(made)
    one_document = planted(0.9 * FLAT, 3, np.random.default_rng(0), reading="nested")
    assert "only 3 documents" in effective_length(one_document).warning


def test_a_share_of_the_own_short_score_is_another_line() -> None:
    data = falling_run([0.8, 0.8, 0.79, 0.78, 0.4, 0.2])
    assert str(effective_length(data)) == "below 4k"
    own = effective_length(data, Line(share=0.8))
    assert own.threshold == pytest.approx(0.8 * own.scores[0].fitted)
    assert own.largest_measured == 32768


def test_a_measured_threshold_widens_the_interval() -> None:
    data = falling_run([0.99, 0.98, 0.95, 0.9, 0.82, 0.7])
    sharp, vague = effective_length(data), effective_length(data, Line(threshold_error=0.02))
    assert vague.high / vague.low > sharp.high / sharp.low


def test_a_cliff_admits_that_it_lies_anywhere_between_two_lengths() -> None:
    made = effective_length(falling_run([0.99, 0.99, 0.99, 0.02, 0.02], samples=50))
    assert 16384 < made.low < 17500
    assert 30000 < made.high < 32768


def test_each_part_of_a_run_has_its_own_length() -> None:
    surface = np.where((np.arange(8)[:, None] >= 3) & (DEPTHS[None, :] > 0.3) & (DEPTHS[None, :] < 0.7), 0.2, 0.98)
    data = planted(surface, 12, np.random.default_rng(4))
    bands = effective_lengths(parts_by_depth(data))
    assert str(bands["first third"]) == "at least 512k"
    assert bands["middle third"].largest_measured == 16384


def test_a_rise_is_flattened_by_the_fit() -> None:
    made = effective_length(falling_run([0.9, 0.8, 0.9, 0.9, 0.4, 0.3]))
    fitted = [s.fitted for s in made.scores]
    assert fitted == sorted(fitted, reverse=True)


def test_the_fit_of_many_curves_equals_scipys_one_by_one() -> None:
    rng = np.random.default_rng(0)
    curves, weights = rng.random((50, 7)), rng.uniform(1, 5, 7)
    ours = falling(curves, weights)
    for row, curve in zip(ours, curves, strict=True):
        assert row == pytest.approx(isotonic_regression(curve, weights=weights, increasing=False).x)


def test_no_scores_are_refused() -> None:
    data = falling_run([0.9, 0.9])
    empty = data.take(np.zeros(len(data), dtype=np.bool_))
    with pytest.raises(UsageError, match="no sample has a score"):
        effective_length(empty)


@pytest.mark.parametrize("kind", ["decay", "cliff", "middle"])
def test_the_interval_covers_the_planted_crossing(kind: str) -> None:
    rng = np.random.default_rng(11)
    octave, line = np.arange(8.0)[:, None], 0.856
    held = 0
    runs = 30
    for _ in range(runs):
        truth = rng.uniform(1.0, 6.0)
        if kind == "decay":
            slope = rng.uniform(0.6, 4)
            surface = 0.98 * expit(-slope * (octave - truth) + logit(line / 0.98)) * np.ones((1, 11))
        elif kind == "cliff":
            surface = np.where(octave <= truth, 0.98, 0.05) * np.ones((1, 11))
        else:
            dip = 1 - (2 * DEPTHS[None, :] - 1) ** 2
            surface = 0.98 - np.clip((octave - 0.5) / (truth - 0.5), 0, None) * (0.98 - line) * dip / dip.mean()
            surface = np.clip(surface, 0.01, 0.98)
            truth = _crossing(surface.mean(axis=1), line)
        made = effective_length(planted(surface, 5, rng), draws=500)
        low, high = np.log2(made.low / 4096), np.log2(made.high / 4096)
        held += (made.low_open or low <= truth) and (made.high_open or truth <= high)
    assert held / runs >= 0.86


def _crossing(means: np.ndarray, line: float) -> float:
    fine = np.interp(np.linspace(0, 7, 7001), np.arange(8.0), means)
    return float(np.linspace(0, 7, 7001)[np.argmax(fine < line)]) if (fine < line).any() else np.inf


# --- RULER's own table --------------------------------------------------------------------------


def ruler_rows() -> list[dict[str, str]]:
    with TABLE.open() as file:
        return [row for row in csv.DictReader(file) if row["128k"] not in ("", "-")]


def test_weighted_averages_reproduce_the_published_table() -> None:
    errors = []
    for row in ruler_rows():
        if row["wavg_inc"] in ("", "TBD"):
            continue
        scores = {4096 * 2**i: float(row[name]) for i, name in enumerate(("4k", "8k", "16k", "32k", "64k", "128k"))}
        made = ruler_average(scores)
        errors += [made.increasing - float(row["wavg_inc"]), made.decreasing - float(row["wavg_dec"])]
    assert len(errors) == 68
    assert max(abs(e) for e in errors) < 0.08  # the inputs are rounded to 0.1


def test_llama_70b_has_its_published_averages() -> None:
    scores = dict(zip((4096 * 2**i for i in range(6)), (96.5, 95.8, 95.4, 94.8, 88.4, 66.6), strict=True))
    made = ruler_average(scores)
    assert (made.average, made.increasing, made.decreasing) == pytest.approx((89.58, 85.48, 93.69), abs=0.005)


def test_averages_from_samples_come_with_intervals() -> None:
    data = falling_run([0.95, 0.9, 0.85, 0.8], samples=20)
    made = ruler_average_estimate(data)
    assert made.increasing.mean < made.average.mean < made.decreasing.mean
    assert made.average.interval.holds(0.875)
    nested = planted(
        np.full((4, 11), 0.8), 20, np.random.default_rng(1), reading="nested", correlation=0.3, lengths=LENGTHS[:4]
    )
    fresh = planted(np.full((4, 11), 0.8), 20, np.random.default_rng(1), lengths=LENGTHS[:4])
    wide, narrow = ruler_average_estimate(nested).average, ruler_average_estimate(fresh).average
    assert wide.interval.half_width > 2 * narrow.interval.half_width
