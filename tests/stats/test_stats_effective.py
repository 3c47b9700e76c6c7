"""Effective length: words, definition, and an interval that covers planted crossings."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import isotonic_regression
from scipy.special import betaincinv, expit, logit

from leadline.core.errors import UsageError
from leadline.core.format import format_tokens
from leadline.results.sentences import effective_warning, reached_lengths
from leadline.stats.effective import EffectiveLength, Threshold, effective_length, isotonic_decreasing
from leadline.stats.marginals import marginals
from leadline.stats.observations import Observations, parts_by_depth
from leadline.stats.ruler_summary import ruler_average, ruler_average_estimate
from support.planted import DEPTHS, LENGTHS, planted

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
    assert (made.low, made.high) == (32768, 65536)
    assert made.length == 32768
    assert made.interpolated is not None
    assert 32768 < made.interpolated < 65536
    assert str(made) == "32k (95%: at least 32k, below 64k)"
    assert made.largest_measured == 32768


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("samples", [2, 3, 5, 10])
def test_a_few_partial_scores_that_are_alike_do_not_make_a_length_sure(samples: int) -> None:
    """The true score is the threshold: at most 3.5% of runs may be sure that the shortest length is above it."""
    rng = np.random.default_rng(samples)
    lengths = np.repeat([1024, 4096], samples)
    sure = 0
    for _ in range(300):
        data = Observations(
            task=np.full(2 * samples, "t"),
            length=lengths,
            depth=np.full(2 * samples, np.nan),
            sample=np.tile(np.arange(samples), 2),
            cluster=np.array([str(i) for i in range(2 * samples)]),
            value=rng.beta(12, 12 * (1 / 0.856 - 1), 2 * samples),
            failed=np.zeros(2 * samples, dtype=np.bool_),
        )
        sure += not effective_length(data).low_open
    assert sure <= 0.035 * 300


def test_an_interval_says_that_its_high_end_is_a_length_that_fails() -> None:
    found = effective_length(falling_run([0.99, 0.98, 0.96, 0.93, 0.75, 0.5]))
    assert found.ends == "at least 32k, below 64k"
    assert replace(found, low_open=True).ends == "below 64k"
    assert replace(found, high_open=True).ends == "at least 32k"
    assert replace(found, low_open=True, high_open=True).ends == "anything from below 4k to above 128k"
    assert replace(found, high=found.length).ends == "at least 32k, at most 32k"


def test_a_model_that_never_falls_reaches_at_least_the_longest_length() -> None:
    made = effective_length(falling_run([0.99] * 6))
    assert str(made) == "at least 128k"
    assert made.scores[-1].state == "above"


def test_a_length_of_few_samples_is_not_surely_above_for_the_many_of_the_next() -> None:
    """4 samples at 4k and 400 at 8k, both below the threshold: all four are right in half of the runs."""
    wrong = 0
    for seed in range(60):
        data = falling_run([0.85, 0.80], 400, seed)
        data = data.take((data.depth == 0) & ((data.length > LENGTHS[0]) | (data.sample < 4)))
        wrong += effective_length(data).scores[0].state == "above"
    assert wrong <= 4


def test_a_model_that_never_clears_is_below_the_shortest() -> None:
    made = effective_length(falling_run([0.5] * 6))
    assert str(made) == "below 4k"
    assert made.largest_measured is None


def test_few_samples_say_so_and_leave_the_end_open() -> None:
    made = effective_length(falling_run([0.99, 0.95, 0.93, 0.92, 0.9, 0.88], samples=2))
    assert made.high_open
    assert str(made) == "not decided (95%: anything from below 4k to above 128k)"
    one_document = planted(0.9 * FLAT, 3, np.random.default_rng(0), reading="nested")
    assert "only 3 documents" in effective_warning(effective_length(one_document))


def test_a_share_of_the_own_short_score_is_another_line() -> None:
    data = falling_run([0.8, 0.8, 0.79, 0.78, 0.4, 0.2])
    assert str(effective_length(data)) == "below 4k"
    own = effective_length(data, Threshold(share=0.8))
    assert own.threshold == pytest.approx(0.8 * own.scores[0].fitted)
    assert own.largest_measured == 32768


def test_a_measured_threshold_widens_the_interval() -> None:
    data = falling_run([0.99, 0.98, 0.95, 0.9, 0.82, 0.7])
    sharp, vague = effective_length(data), effective_length(data, Threshold(error=0.02))
    assert vague.high / vague.low >= sharp.high / sharp.low
    assert [s.state for s in vague.scores].count("open") > [s.state for s in sharp.scores].count("open")


def test_a_cliff_admits_that_it_lies_anywhere_between_two_lengths() -> None:
    made = effective_length(falling_run([0.99, 0.99, 0.99, 0.02, 0.02], samples=50))
    assert (made.low, made.high) == (16384, 32768)


def test_each_part_of_a_run_has_its_own_length() -> None:
    surface = np.where((np.arange(8)[:, None] >= 3) & (DEPTHS[None, :] > 0.3) & (DEPTHS[None, :] < 0.7), 0.2, 0.98)
    data = planted(surface, 20, np.random.default_rng(4))
    bands = {name: effective_length(part) for name, part in parts_by_depth(data).items()}
    assert str(bands["first third"]) == "at least 512k"
    assert bands["middle third"].largest_measured == 16384


def test_a_rise_is_flattened_by_the_fit() -> None:
    made = effective_length(falling_run([0.9, 0.8, 0.9, 0.9, 0.4, 0.3]))
    fitted = [s.fitted for s in made.scores]
    assert fitted == sorted(fitted, reverse=True)


def test_the_fit_of_many_curves_equals_scipys_one_by_one() -> None:
    rng = np.random.default_rng(0)
    curves, weights = rng.random((50, 7)), rng.uniform(1, 5, 7)
    ours = isotonic_decreasing(curves, weights)
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
        made = effective_length(planted(surface, 5, rng))
        low, high = np.log2(made.low / 4096), np.log2(made.high / 4096)
        held += (made.low_open or low <= truth) and (made.high_open or truth <= high)
    assert held / runs >= 0.92


def _crossing(means: np.ndarray, line: float) -> float:
    fine = np.interp(np.linspace(0, 7, 7001), np.arange(8.0), means)
    return float(np.linspace(0, 7, 7001)[np.argmax(fine < line)]) if (fine < line).any() else np.inf


# --- curves that are none of the code's own: free scores, tasks that fall off, scores that rise again


def free_run(
    scores: np.ndarray, samples: int, rng: np.random.Generator, *, correlation: float = 0.0, depths: int = 5
) -> Observations:
    """Answers of several tasks (tasks x lengths) without any curve: each document has its own chance, from a beta
    distribution about the score of its length."""
    tasks, lengths = scores.shape
    task, length, depth, sample = (a.ravel() for a in np.indices((tasks, lengths, depths, samples)))
    document = (task * lengths + length) * samples + sample
    chance = scores[task, length]
    if correlation:
        spread = (1 - correlation) / correlation
        shares = rng.random(document.max() + 1)[document]
        inside = np.clip(chance, 1e-6, 1 - 1e-6)
        chance = betaincinv(inside * spread, (1 - inside) * spread, shares)
    names = np.char.add("d", document.astype(np.str_))
    return Observations(
        task=np.char.add("task", task.astype(np.str_)),
        length=4096 * 2**length,
        depth=depth / max(depths - 1, 1),
        sample=sample,
        cluster=names if correlation else np.arange(len(task)).astype(np.str_),
        value=(rng.random(len(task)) < chance).astype(np.float64),
        failed=np.zeros(len(task), dtype=np.bool_),
    )


def covers(made: EffectiveLength, truth: float) -> bool:
    low, high = np.log2(made.low / 4096), np.log2(made.high / 4096)
    return bool((made.low_open or low <= truth) and (made.high_open or truth <= high))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("samples", [3, 25])
@pytest.mark.parametrize("correlation", [0.0, 0.3])
@pytest.mark.parametrize("kind", ["cliff to .5", "cliff to .7", "three tasks of thirteen", "just below", "just above"])
def test_the_interval_holds_the_truth_on_partial_falls_and_flat_curves(
    kind: str, correlation: float, samples: int
) -> None:
    rng = np.random.default_rng(17)
    octaves, runs, held = np.arange(8.0), 60, 0
    for _ in range(runs):
        truth = rng.uniform(0.0, 7.0)
        tasks = 13 if kind.startswith("three") else 1
        scores = np.full((tasks, 8), 0.96)
        if kind.startswith("cliff"):
            scores[:, octaves > truth] = float(kind.split()[-1])
        elif tasks == 13:
            scores[:3, octaves > truth] = 0.1
        else:
            scores[:] = 0.852 if kind == "just below" else 0.86
            truth = -np.inf if kind == "just below" else np.inf
        made = effective_length(free_run(scores, samples, rng, correlation=correlation, depths=1 if tasks > 1 else 5))
        held += covers(made, truth)
    assert held / runs >= 0.92


def test_more_samples_make_the_interval_narrow_but_never_narrower_than_the_grid() -> None:
    scores = np.where(np.arange(8) < 4, 0.97, 0.6)[None, :]
    few, many = (effective_length(free_run(scores, n, np.random.default_rng(1))) for n in (3, 100))
    assert (many.low, many.high) == (32768, 65536)
    assert few.high / few.low >= many.high / many.low


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ([0.99, 0.04, 0.99, 0.99, 0.99, 0.99], "clears the threshold at 4k and from 16k to 128k, not at 8k"),
        ([0.05, 0.99, 0.99, 0.99, 0.99, 0.99], "clears the threshold from 8k to 128k, not at 4k"),
        ([0.1, 0.2, 0.3, 0.5, 0.97, 1.0], "clears the threshold from 64k to 128k, not from 4k to 32k"),
        (
            [0.99, 0.1, 0.99, 0.1, 0.99, 0.1],
            "clears the threshold at 4k, at 16k and at 64k, not at 8k, at 32k and at 128k",
        ),
    ],
)
def test_scores_that_rise_again_are_said_and_not_smoothed_away(scores: list[float], said: str) -> None:
    made = effective_length(free_run(np.array([scores]), 10, np.random.default_rng(3)))
    assert not made.falls
    assert reached_lengths(made) == said
    assert "reach it again" in effective_warning(made)
    longest = max(s.length for s in made.scores if s.mean >= made.threshold)
    assert made.length == longest
    first_bad = next(s.length for s in made.scores if s.mean < made.threshold)
    assert made.low_open or made.low < first_bad


@pytest.mark.slow
@pytest.mark.parametrize("correlation", [0.0, 0.3])
def test_falling_and_flat_curves_are_rarely_said_to_rise(correlation: float) -> None:
    rng = np.random.default_rng(5)
    curves = [np.linspace(0.98, 0.7, 8), np.full(8, 0.856), np.full(8, 0.9), np.where(np.arange(8) < 3, 0.95, 0.8)]
    rises = [
        not effective_length(free_run(curve[None, :], n, rng, correlation=correlation)).falls
        for curve in curves for n in (3, 10) for _ in range(25)
    ]  # fmt: skip
    assert np.mean(rises) <= 0.04


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


@pytest.mark.parametrize("chance", [0.6, 0.95, 0.99])
def test_intervals_of_averages_hold_near_a_perfect_score_too(chance: float) -> None:
    truth = chance * np.array([1.0, 0.97, 0.9, 0.8])
    rising = np.array([1, 2, 3, 4]) / 10
    right = np.zeros(3)
    for number in range(100):
        surface = np.repeat(truth[:, None], 11, axis=1)
        found = ruler_average_estimate(planted(surface, 4, np.random.default_rng(number), lengths=LENGTHS[:4]))
        right += [
            e.interval.holds(t)
            for e, t in zip(found, (truth.mean(), rising @ truth, rising[::-1] @ truth), strict=True)
        ]
    assert (right >= 88).all()  # 95 expected


def test_averages_of_perfect_scores_have_an_interval_within_the_scale() -> None:
    surface = np.ones((4, 11))
    for found in ruler_average_estimate(planted(surface, 3, np.random.default_rng(0), lengths=LENGTHS[:4])):
        assert (found.mean, found.interval.high, found.n) == (1.0, 1.0, 132)
        assert 0.9 < found.interval.low < 0.99
    one = planted(surface[:1], 3, np.random.default_rng(0), lengths=LENGTHS[:1])
    assert ruler_average_estimate(one).average == marginals(one, ("length",))[0].estimate
