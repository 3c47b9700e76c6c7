"""Planned rates against the procedures themselves, on pairs that another generator draws."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from scipy.special import ndtr

from leadline.core.errors import UsageError
from leadline.stats import compare as comparison
from leadline.stats.compare import compare, pair
from leadline.stats.gate import check_gate, parse_gate
from leadline.stats.observations import Observations
from leadline.stats.power import (
    CAUSES,
    Cause,
    Grid,
    Noise,
    Sharing,
    compare_rates,
    fewest_samples,
    gate_rates,
    seen_noise,
    smallest_drop,
)
from support.planted import planted

NIAH = tuple(("niah", n, d) for n in (4096, 8192, 16384) for d in (0.0, 0.5, 1.0))
FOUR_BY_FIVE = tuple(("niah", 4096 * 2**i, j / 4) for i in range(4) for j in range(5))
FRESH_DESIGNS = [(4, 5, 0.1, 0.1), (4, 10, 0.1, 0.1), (6, 3, 0.15, 0.1), (4, 10, 0.05, 0.05), (6, 10, 0.05, 0.02)]
"""Lengths (of five depths each), samples a cell, drop, noise."""
SHARED_DESIGNS: list[tuple[Sharing, int, float]] = [("length", 10, 0.1), ("task", 20, 0.1), ("task", 30, 0.1)]
SEVERAL = tuple((t, n, d) for t in ("a", "b") for n in (4096, 8192) for d in ((0.0, 1.0) if t == "a" else (None,)))


@pytest.fixture(autouse=True)
def _no_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells are described and not tested, and take half of the time of a comparison."""
    of_any = comparison._differences
    monkeypatch.setattr(comparison, "_differences", lambda *asked: [] if asked[1] == "cell" else of_any(*asked))


COPULA = 1.7
"""The correlation of normal scores that correlates the differences of answers by one, where some 20 of 100 flip."""


def drawn_pair(
    grid: Grid, samples: int, drop: float, noise: Noise, rng: np.random.Generator
) -> tuple[Observations, Observations]:
    """Two runs of which one lost `drop`. Answers of one haystack correlate because a share of haystacks is decided
    whole, or because each haystack shifts what is drawn for its prompts (a Gaussian copula)."""
    keys = [p if grid.sharing == "nothing" else p[:2] if grid.sharing == "length" else p[:1] for p in grid.points]
    keys = [key[:2] if key[0] in grid.common else key for key in keys]
    haystack = np.unique([str(key) for key in keys], return_inverse=True)[1]
    shape = (int(haystack.max()) + 1, samples)
    shared = 0.0 if len(set(haystack)) == len(keys) else noise.correlation
    if noise.cause == "all_or_none":
        own = rng.random((len(keys), samples))
        drawn = np.where((rng.random(shape) < shared)[haystack], rng.random(shape)[haystack], own)
    else:
        inside = COPULA * shared
        latent = np.sqrt(inside) * rng.standard_normal(shape)[haystack]
        drawn = ndtr(latent + np.sqrt(1 - inside) * rng.standard_normal((len(keys), samples)))
    lost, gained = noise.discordance / 2 + drop, noise.discordance / 2
    change = np.where(drawn < lost, -1.0, np.where(drawn > 1 - gained, 1.0, 0.0))
    before = np.where(change != 0, change < 0, rng.random(change.shape) < 0.9).astype(np.float64)
    cell, sample = (part.ravel() for part in np.indices(change.shape))
    tasks, lengths, depths = zip(*grid.points, strict=True)
    base = Observations(
        task=np.array(tasks)[cell],
        length=np.array(lengths)[cell],
        depth=np.array([np.nan if d is None else d for d in depths])[cell],
        sample=sample,
        cluster=np.char.add(np.char.add(haystack[cell].astype(np.str_), "/"), sample.astype(np.str_)),
        value=before.ravel(),
        failed=np.zeros(len(cell), dtype=np.bool_),
    )
    return base, replace(base, value=(before + change).ravel())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("places", "sharing", "samples", "drop"),
    [
        (NIAH, "nothing", 40, 0.065),
        (NIAH, "length", 40, 0.07),
        (NIAH, "task", 30, 0.1),
        (NIAH, "common", 30, 0.08),
        (SEVERAL, "nothing", 40, 0.08),
    ],
    ids=["own haystacks", "shared", "nested", "common haystacks", "two tasks"],
)
def test_the_stated_rates_are_those_of_compare_and_gate(
    places: tuple[tuple[str, int, float | None], ...], sharing: Sharing | Literal["common"], samples: int, drop: float
) -> None:
    """80 pairs, so their rates have a standard error of up to 6 points."""
    common = frozenset({"niah"} if sharing == "common" else ())
    grid = Grid(places, "nothing" if sharing == "common" else sharing, common)
    noise, runs, rng = Noise(0.1, 0.08, cause="all_or_none"), 80, np.random.default_rng(3)
    clauses = parse_gate("overall >= -2; length:* >= -5; task:* >= -4")
    worse = failed = passed = 0
    for _ in range(runs):
        pairs = pair(*drawn_pair(grid, samples, drop, noise, rng))
        worse += compare(pairs, resamples=1000).overall.verdict == "worse"
        failed += check_gate(pairs, clauses).verdict == "fail"
        passed += check_gate(pair(*drawn_pair(grid, samples, 0.0, noise, rng)), clauses).verdict == "pass"
    plan = compare_rates(grid, samples, drop, noise)
    assert plan.worse == pytest.approx(worse / runs, abs=0.15)
    assert gate_rates(grid, samples, drop, noise, clauses).failed == pytest.approx(failed / runs, abs=0.15)
    assert gate_rates(grid, samples, 0.0, noise, clauses).passed == pytest.approx(passed / runs, abs=0.15)


def seen_worse(
    grid: Grid, samples: int, drop: float, noise: Noise, pairs: int, rng: np.random.Generator, *, at_once: bool = True
) -> float:
    """How often `compare` calls the candidate worse. Not `at_once`: answers flip first, and of those that are then
    right some are lost, so that a few are gained by chance and lost again."""
    worse = 0
    for _ in range(pairs):
        base, candidate = drawn_pair(grid, samples, drop if at_once else 0.0, noise, rng)
        if not at_once:
            kept = rng.random(len(base)) >= drop / 0.9
            candidate = replace(candidate, value=candidate.value * kept)
        worse += compare(pair(base, candidate), resamples=1000).overall.verdict == "worse"
    return worse / pairs


@pytest.mark.slow
def test_a_drop_does_not_use_up_the_noise() -> None:
    """20 cells of 5 prompts, noise and drop both 10 points: 79 of 100 would be found if one contained the other."""
    grid = Grid(FOUR_BY_FIVE)
    stated = compare_rates(grid, 5, 0.1, Noise(0.1)).worse
    assert stated == pytest.approx(seen_worse(grid, 5, 0.1, Noise(0.1), 150, np.random.default_rng(4)), abs=0.1)
    assert stated < 0.45


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lengths", "samples", "drop", "discordance", "at_once"),
    [*((*design, True) for design in FRESH_DESIGNS), *((*design, False) for design in FRESH_DESIGNS[::4])],
)
def test_the_power_of_fresh_reading_is_that_of_compare(
    lengths: int, samples: int, drop: float, discordance: float, at_once: bool
) -> None:
    """800 pairs: a standard error of up to 1.8 points."""
    grid = Grid(tuple(("niah", 4096 * 2**i, j / 4) for i in range(lengths) for j in range(5)))
    noise = Noise(discordance)
    seen = seen_worse(grid, samples, drop, noise, 800, np.random.default_rng(9), at_once=at_once)
    stated = compare_rates(grid, samples, drop, noise, runs=4000).worse
    assert stated == pytest.approx(seen, abs=0.05 if at_once else 0.08)


@pytest.mark.slow
@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize(("sharing", "samples", "drop"), SHARED_DESIGNS)
def test_the_power_of_shared_and_nested_reading_is_that_of_compare(
    cause: Cause, sharing: Sharing, samples: int, drop: float
) -> None:
    grid, noise = Grid(FOUR_BY_FIVE, sharing), Noise(0.1, 0.08, cause=cause)
    seen = seen_worse(grid, samples, drop, noise, 400, np.random.default_rng(10))
    assert compare_rates(grid, samples, drop, noise, runs=2000).worse == pytest.approx(seen, abs=0.06)


def test_haystacks_that_are_lost_whole_are_easier_to_see_than_those_that_differ_by_degrees() -> None:
    """Of the same correlation. A plan states both rates: it cannot know which it will be."""
    grid = Grid(NIAH, "task")
    assert grid.shares
    rates = [compare_rates(grid, 30, 0.08, Noise(0.1, 0.08, cause=cause)).worse for cause in CAUSES]
    assert rates[1] - rates[0] == pytest.approx(0.15, abs=0.06)


def test_common_haystacks_are_those_of_the_depths_of_a_length() -> None:
    common = Grid(NIAH, "nothing", frozenset({"niah"}))
    assert common.haystacks == Grid(NIAH, "length").haystacks
    assert not Grid(NIAH, "nothing", frozenset({"vt"})).shares
    assert compare_rates(common, 20, 0.06, Noise()) == compare_rates(Grid(NIAH, "length"), 20, 0.06, Noise())


def test_an_earlier_run_says_how_noisy_a_comparison_will_be() -> None:
    data = planted(np.full((8, 11), 0.9), 10, np.random.default_rng(0))
    assert seen_noise(data).discordance == pytest.approx(2 * 0.9 * 0.1, rel=0.15)
    shared = planted(np.full((8, 11), 0.9), 10, np.random.default_rng(0), reading="shared", correlation=0.4)
    assert seen_noise(shared).correlation > 0.1


def test_the_fewest_samples_and_the_smallest_drop_turn_a_rate_round() -> None:
    assert fewest_samples(lambda n: n / 100) == pytest.approx(80, abs=3)
    assert fewest_samples(lambda n: 0.5) is None
    assert smallest_drop(lambda drop: 5 * drop) == pytest.approx(0.16, abs=0.005)
    assert smallest_drop(lambda drop: drop) is None


def test_a_gate_on_parts_that_are_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="nothing is called 'vt'"):
        gate_rates(Grid(NIAH), 5, 0.0, Noise(), parse_gate("task:vt >= -3"))
