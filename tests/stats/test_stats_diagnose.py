"""Diagnosis and smoothing: planted archetypes are named, and smoothing helps without hiding anything."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.core.errors import UsageError
from leadline.results.sentences import format_finding
from leadline.stats.diagnose import Diagnosis, depth_contrast, diagnose
from leadline.stats.smooth import smooth, smooth_surface
from leadline.stats.surfaces import SHAPES, Surface, fit, surface_of
from support.planted import ARCHETYPES, DEPTHS, LENGTHS, OTHER_MAPS, Archetype, archetype, planted

RNG = np.random.default_rng


def sentence(made: Diagnosis) -> str:
    return format_finding(made.findings[0], made)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", ARCHETYPES)
def test_an_archetype_is_named_right(kind: Archetype) -> None:
    rng = RNG(ARCHETYPES.index(kind))
    named = [diagnose(planted(archetype(kind, rng), 5, rng), permutations=200).kind for _ in range(25)]
    assert named.count(kind) >= 22


def test_a_cliff_comes_with_the_lengths_it_lies_between() -> None:
    surface = np.where(np.arange(8)[:, None] < 5, 0.96, 0.04) * np.ones((1, 11))
    made = diagnose(planted(surface, 5, RNG(0)))
    [finding] = made.findings
    assert sentence(made).startswith("cliff: 9")
    assert "a fall between 64k and 128k (95%; weight" in sentence(made)
    assert (finding.statistic["low"], finding.statistic["high"]) == (65536, 131072)


def test_a_window_comes_with_its_size_in_tokens() -> None:
    far = LENGTHS[:, None] * (1 - DEPTHS[None, :])
    made = diagnose(planted(np.where(far <= 20_000, 0.95, 0.05), 5, RNG(0)))
    assert made.kind == "recency only"
    assert 14_000 < made.findings[0].statistic["window"] < 28_000
    assert sentence(made).startswith("recency only: 9")


def test_a_decay_says_where_it_halves() -> None:
    surface = 0.98 / (1 + np.exp(1.0 * (np.arange(8)[:, None] - 4))) * np.ones((1, 11))
    made = diagnose(planted(surface, 10, RNG(0)))
    statistic = made.findings[0].statistic
    assert sentence(made).startswith("smooth decay: fitted from 9"), "these are not the means of the table"
    assert np.log2(statistic["middle"] / 4096) == pytest.approx(4, abs=0.5)
    assert statistic["octaves_90_to_10"] == pytest.approx(np.log(81), rel=0.35)


def test_a_slope_too_slight_for_a_name_is_not_called_the_same_everywhere() -> None:
    surface = np.where(np.arange(8)[:, None] < 4, 0.80, 0.70) * np.ones((1, 11))
    made = diagnose(planted(surface, 60, RNG(0)), permutations=200)
    assert made.kind == "noise"
    assert sentence(made).startswith("no marked pattern: about 7")
    assert "at every length" not in sentence(made)
    even = diagnose(planted(np.full((8, 11), 0.75), 60, RNG(0)), permutations=200)
    assert "at every length and depth" in sentence(even)


def test_few_right_answers_are_healthy_with_a_doubt_and_many_without() -> None:
    right = np.ones((8, 11))
    few = planted(right, 1, RNG(0)).take(np.arange(4))
    assert sentence(diagnose(few)).endswith("seen in 4 samples, mean 100 (95%: 51 or more)")
    assert sentence(diagnose(planted(right, 1, RNG(0)))).endswith("no length or depth falls behind")


@pytest.mark.parametrize(("last", "said"), [(0.5, "mixed: cliff"), (0.02, "cliff: 9")])
def test_a_fall_at_the_last_length_may_be_a_decay_unless_it_goes_to_the_ground(last: float, said: str) -> None:
    surface = np.where(np.arange(8)[:, None] < 7, 0.96, last) * np.ones((1, 11))
    assert sentence(diagnose(planted(surface, 10, RNG(0)))).startswith(said)


def test_a_model_that_fails_everywhere_is_not_called_noise_in_words() -> None:
    assert "fails nearly everywhere" in sentence(diagnose(planted(np.full((8, 11), 0.01), 5, RNG(0))))


def test_shapes_with_weight_between_them_are_called_mixed() -> None:
    surface = np.where(np.arange(8)[:, None] < 4, 0.95, 0.2) * np.ones((1, 11))
    few = [diagnose(planted(surface[:, ::5], 1, RNG(i), depths=DEPTHS[::5]), permutations=100) for i in range(20)]
    mixed = [d for d in few if d.kind == "mixed"]
    assert mixed
    assert sentence(mixed[0]).startswith("mixed: ")
    assert len(mixed[0].findings) >= 3
    assert sum(mixed[0].weights.values()) == pytest.approx(1.0)


def test_a_task_without_depth_is_diagnosed_by_length() -> None:
    surface = np.where(np.arange(8)[:, None] < 5, 0.96, 0.04)
    data = planted(surface, 30, RNG(0), depths=np.array([np.nan]))
    assert diagnose(data, permutations=50).kind == "cliff"


def test_documents_shared_by_samples_do_not_make_a_pattern() -> None:
    rng = RNG(1)
    called = [
        diagnose(planted(np.full((8, 11), 0.5), 5, rng, reading="shared", correlation=0.3), permutations=50).kind
        for _ in range(15)
    ]
    assert called.count("noise") >= 11


def test_the_contrast_between_ends_and_middle_has_an_honest_p() -> None:
    rng = RNG(2)
    dip = 0.95 - 0.5 * (1 - (2 * DEPTHS[None, :] - 1) ** 2) * np.ones((8, 1))
    found = depth_contrast(surface_of(planted(dip, 5, rng)))
    assert found is not None
    assert found.difference == pytest.approx(0.35, abs=0.1)
    assert found.p < 0.01
    flat = [depth_contrast(surface_of(planted(np.full((8, 11), 0.7), 5, rng)), permutations=300) for _ in range(60)]
    assert sum(c is not None and c.p < 0.05 for c in flat) <= 8
    ends_only = planted(np.full((8, 2), 0.7), 5, rng, depths=np.array([0.0, 1.0]))
    assert depth_contrast(surface_of(ends_only)) is None


def test_a_richer_shape_never_explains_less() -> None:
    surface = surface_of(planted(archetype("smooth decay", RNG(0)), 5, RNG(0)))
    constant = fit(surface, "constant").log_likelihood
    for shape in SHAPES:
        if shape != "bump":  # its ridge may cost a little
            assert fit(surface, shape).log_likelihood >= constant - 1e-9


def test_nothing_to_diagnose_is_refused() -> None:
    data = planted(np.full((8, 11), 0.5), 1, RNG(0))
    with pytest.raises(UsageError, match="no sample has a score"):
        diagnose(data.take(np.zeros(len(data), dtype=np.bool_)))


# --- maps that are none of the shapes: a goodness-of-fit test before any name

FLAT = np.ones((8, 11))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", OTHER_MAPS)
def test_a_map_of_no_known_shape_gets_no_name(name: str) -> None:
    rng = RNG(7)
    called = [diagnose(planted(OTHER_MAPS[name], 5, rng), permutations=100).kind for _ in range(12)]
    slopes = {"a corner": "rises with depth", "end worse": "falls with depth"}  # true of them, if not all of it
    assert set(called) <= {"irregular", "mixed", slopes.get(name, "mixed")}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("one bad length", "none of the known shapes: lowest at 32k ("),
        ("dead last depth", "none of the known shapes: lowest at depth 100% ("),
        ("bad shortest length", "none of the known shapes: lowest at 4k ("),
        ("checkerboard", "none of the known shapes; no single length or depth falls behind"),
    ],
)
def test_a_map_of_no_known_shape_says_where_it_is_lowest(name: str, said: str) -> None:
    assert sentence(diagnose(planted(OTHER_MAPS[name], 5, RNG(3)), permutations=100)).startswith(said)


@pytest.mark.slow
def test_a_decay_to_a_floor_is_seldom_called_a_cliff() -> None:
    rng = RNG(8)
    called = []
    for _ in range(25):
        window, slope = 4096 * 2 ** rng.uniform(2, 5), rng.uniform(1, 2)
        surface = (0.6 + 0.4 / (1 + (LENGTHS[:, None] / window) ** slope)) * FLAT
        called.append(diagnose(planted(surface, 5, rng), permutations=50).kind)
    assert called.count("cliff") <= 2
    assert set(called) <= {"cliff", "smooth decay", "mixed"}


def test_a_decay_is_described_by_the_curve_that_was_fitted() -> None:
    surface = (0.6 + 0.38 / (1 + (LENGTHS[:, None] / 32768) ** 1.5)) * FLAT
    made = diagnose(planted(surface, 30, RNG(0)), permutations=50)
    assert made.kind == "smooth decay"
    assert made.findings[0].statistic["to"] == pytest.approx(0.6, abs=0.08)
    assert "halves" not in sentence(made)


SIX = 1024 * 2 ** np.arange(6)


def drawn_map(scores: np.ndarray, samples: int, rng: np.random.Generator) -> Diagnosis:
    depths = np.linspace(0, 1, scores.shape[1])
    return diagnose(planted(scores, samples, rng, lengths=SIX, depths=depths), permutations=100)


def odd_maps(depths: int, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, set[str]]]:
    """Maps that have no falling shape and no window, and what may be said of each."""
    depth, octave = np.linspace(0, 1, depths)[None, :], np.arange(6)[:, None]
    flat, low, high = np.ones((6, depths)), rng.uniform(0, 0.3), rng.uniform(0.8, 1)
    holes = 0.97 * flat
    for _ in range(rng.integers(1, 4)):
        holes[rng.integers(6), rng.integers(depths)] = 0
    nothing = {"irregular", "mixed"}
    return {
        "one bad length": (np.where(octave == rng.integers(1, 5), low, 0.97) * flat, nothing),
        "rising ramp": ((low + (high - low) * depth) * flat, nothing | {"rises with depth"}),
        "falling ramp": ((high + (low - high) * depth) * flat, nothing | {"falls with depth"}),
        "checkerboard": (np.where((octave + np.arange(depths)[None, :]) % 2 == 0, 0.95, 0.1), nothing),
        "dead cells": (holes, nothing),
    }


@pytest.mark.slow
def test_a_hole_is_no_cliff_and_a_slope_over_depth_no_window() -> None:
    """At the default design: five depths, three samples."""
    rng = RNG(21)
    wrong: dict[str, int] = {}
    for _ in range(8):
        for name, (scores, allowed) in odd_maps(5, rng).items():
            wrong[name] = wrong.get(name, 0) + (drawn_map(scores, 3, rng).kind not in allowed)
    assert sum(wrong.values()) <= 2, wrong


def test_slopes_and_lost_cells_are_said_in_words() -> None:
    depth = np.linspace(0, 1, 5)[None, :] * np.ones((6, 1))
    assert sentence(drawn_map(0.1 + 0.85 * depth, 10, RNG(0))).startswith("scores rise with depth: fitted ")
    assert sentence(drawn_map(0.95 - 0.85 * depth, 10, RNG(0))).startswith("scores fall with depth: fitted ")
    lost = np.full((6, 5), 1.0)
    lost[2, 3] = 0
    assert "lowest at 4k at depth 75% (0)" in sentence(drawn_map(lost, 5, RNG(0)))


def test_a_decay_does_not_say_where_it_halves_beyond_what_was_measured() -> None:
    scores = 0.98 / (1 + np.exp(0.7 * (np.arange(6)[:, None] - 6.6))) * np.ones((1, 5))
    made = drawn_map(scores, 30, RNG(0))
    assert made.kind == "smooth decay"
    assert made.findings[0].statistic["middle"] > SIX[-1]
    assert "halves" not in sentence(made)


@pytest.mark.slow
@pytest.mark.parametrize(("depths", "samples"), [(5, 3), (5, 10), (11, 5)])
def test_odd_maps_are_seldom_called_something_they_are_not(depths: int, samples: int) -> None:
    rng, runs = RNG(22), 60
    wrong: dict[str, int] = {}
    for _ in range(runs):
        for name, (scores, allowed) in odd_maps(depths, rng).items():
            wrong[name] = wrong.get(name, 0) + (drawn_map(scores, samples, rng).kind not in allowed)
    assert max(wrong.values()) <= 0.05 * runs, wrong


# --- smoothing ----------------------------------------------------------------------------------


def counts(surface: np.ndarray, samples: int, rng: np.random.Generator) -> Surface:
    n = np.full(surface.shape, float(samples))
    return Surface(LENGTHS, DEPTHS, n, rng.binomial(samples, surface).astype(np.float64))


@pytest.mark.slow
def test_smoothing_three_samples_beats_the_raw_cells_on_every_archetype() -> None:
    rng = RNG(0)
    for kind in ARCHETYPES:
        raw, smoothed = [], []
        for _ in range(2):
            truth = archetype(kind, rng)
            cells = counts(truth, 3, rng)
            made = smooth_surface(cells)
            raw.append(np.mean((cells.total / cells.n - truth) ** 2))
            smoothed.append(np.mean((made.mean - truth) ** 2))
        assert np.sqrt(np.mean(smoothed)) < 0.75 * np.sqrt(np.mean(raw)), kind


def test_a_diagonal_edge_survives_smoothing() -> None:
    far = LENGTHS[:, None] * (1 - DEPTHS[None, :])
    truth = np.where(far <= 20_000, 0.95, 0.05)
    made = smooth_surface(counts(truth, 3, RNG(1)))
    assert made.scales.end_share > 0
    assert np.sqrt(np.mean((made.mean - truth) ** 2)) < 0.12


def test_smoothed_intervals_cover_the_truth_and_keep_the_raw_counts() -> None:
    rng = RNG(2)
    held = []
    for kind in ("cliff", "smooth decay", "recency only"):
        truth = archetype(kind, rng)
        cells = counts(truth, 5, rng)
        made = smooth_surface(cells)
        held.append(np.mean((made.low <= truth) & (truth <= made.high)))
        assert made.raw is cells
        assert ((made.low <= made.mean) & (made.mean <= made.high)).all()
    assert np.mean(held) > 0.88


def test_an_unasked_cell_gets_a_guess_from_its_neighbours_and_a_wide_interval() -> None:
    cells = counts(archetype("smooth decay", RNG(3)), 5, RNG(3))
    n, total = cells.n.copy(), cells.total.copy()
    n[3, 5] = total[3, 5] = 0
    unasked = smooth_surface(Surface(LENGTHS, DEPTHS, n, total))
    asked = smooth_surface(cells)
    assert unasked.mean[3, 5] == pytest.approx(asked.mean[3, 5], abs=0.15)
    assert unasked.high[3, 5] - unasked.low[3, 5] > asked.high[3, 5] - asked.low[3, 5]


def test_observations_are_smoothed_too_and_nothing_is_refused() -> None:
    data = planted(np.full((8, 11), 0.9), 2, RNG(4))
    assert smooth(data).mean.shape == (8, 11)
    with pytest.raises(UsageError, match="no cell has a sample"):
        smooth_surface(Surface(LENGTHS, DEPTHS, np.zeros((8, 11)), np.zeros((8, 11))))


def test_a_dead_cell_is_not_smoothed_away_once_its_samples_prove_it() -> None:
    truth = np.full((8, 11), 0.97)
    truth[4, 5] = 0.0
    made = smooth_surface(counts(truth, 40, RNG(5)))
    assert made.mean[4, 5] < 0.35
    assert made.low[4, 5] <= made.mean[4, 5] <= made.high[4, 5]
    assert np.delete(made.mean.ravel(), 4 * 11 + 5).min() > 0.7


@pytest.mark.slow
def test_a_faint_checkerboard_of_few_samples_is_not_called_chance() -> None:
    """Cells that alternate between 85 to 100 and 0 to 20, three samples each: a mean of about 50, and no chance."""
    rng = RNG(1)
    row, column = np.indices((6, 5))
    lengths, depths = 1024 * 2 ** np.arange(6), np.arange(5) / 4
    kinds = []
    for _ in range(120):
        good, bad = rng.uniform(0.85, 1), rng.uniform(0, 0.2)
        surface = np.where((row + column) % 2 == 0, good, bad)
        kinds.append(diagnose(planted(surface, 3, rng, lengths=lengths, depths=depths), permutations=50).kind)
    assert sum(kind not in ("irregular", "mixed") for kind in kinds) <= 0.05 * 120
