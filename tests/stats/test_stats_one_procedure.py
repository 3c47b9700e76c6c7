"""Runs that stop by themselves: rule, table and effective length are one procedure, and documents are read where the
answer is not known yet."""

from __future__ import annotations

import numpy as np
import pytest

from leadline.core.types import Reading
from leadline.stats.allocate import LengthSearch, SamplingStep
from leadline.stats.effective import effective_length
from leadline.stats.marginals import marginals
from leadline.stats.observations import Observations
from leadline.stats.sequential import Rounds, anytime, anytime_effective, statuses
from support.read_documents import LENGTHS, search_length

PERFECT = (1.0,) * 8
CLIFF = (0.98,) * 4 + (0.05,) * 4
SLOW = (0.99, 0.985, 0.97, 0.95, 0.92, 0.87, 0.80, 0.70)
EARLY = (0.96, 0.93, 0.90, 0.86, 0.82, 0.78, 0.72, 0.65)
SLOWER = (0.98, 0.97, 0.96, 0.94, 0.92, 0.90, 0.87, 0.84)


def agree(step: SamplingStep, data: Observations) -> None:
    """The ends of the effective length are those of the rule, and so are the rows of the table."""
    search = step.found
    assert isinstance(search, LengthSearch)
    found = anytime_effective(data, effective_length(data), LENGTHS)
    assert (None if found.low_open else int(found.low)) == search.last_above
    assert (None if found.high_open else int(found.high)) == search.first_below
    assert found.decided == (step.outcome == "decided")
    table = {m.key[0]: anytime(data.take(data.length == m.key[0]), m.estimate) for m in marginals(data, ("length",))}
    if search.last_above is not None:
        assert table[search.last_above].interval.low >= 0.856
    if search.first_below is not None:
        assert table[search.first_below].interval.high < 0.856
    for length in search.between:
        assert table[length].interval.holds(0.856)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["fresh", "nested"])
@pytest.mark.parametrize("chances", [CLIFF, EARLY], ids=["cliff", "decay"])
def test_rule_table_and_effective_length_say_one_thing(chances: tuple[float, ...], reading: Reading) -> None:
    agree(*search_length(chances, reading))


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["fresh", "shared", "nested"])
@pytest.mark.parametrize("chances", [PERFECT, CLIFF, SLOW, EARLY, SLOWER])
def test_they_agree_on_any_curve_in_any_reading_mode(chances: tuple[float, ...], reading: Reading) -> None:
    for seed in range(4):
        agree(*search_length(chances, reading, seed))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("chances", "reading", "least"),
    [(PERFECT, "shared", 4.0), (PERFECT, "nested", 4.0), (EARLY, "fresh", 4.0), (CLIFF, "nested", 20.0)],
    ids=["perfect, shared", "perfect, nested", "decay, fresh", "cliff, nested"],
)
def test_documents_are_read_where_the_answer_is_not_known(
    chances: tuple[float, ...], reading: Reading, least: float
) -> None:
    step, _ = search_length(chances, reading)
    assert step.saving >= least


@pytest.mark.slow
@pytest.mark.parametrize("chances", [SLOW, EARLY, SLOWER], ids=["slow", "early", "slower"])
def test_slow_decays_cost_a_quarter_of_the_fixed_design(chances: tuple[float, ...]) -> None:
    assert np.mean([1 / search_length(chances, "fresh", seed)[0].saving for seed in range(6)]) <= 1 / 4


def test_nested_documents_are_read_no_further_than_what_is_open() -> None:
    _, data = search_length(CLIFF, "nested")
    longest = {n: int(np.sum(data.length == n)) for n in LENGTHS}
    assert longest[LENGTHS[3]] > longest[LENGTHS[4]] > 0
    assert longest[LENGTHS[7]] <= longest[LENGTHS[4]]


@pytest.mark.slow
@pytest.mark.parametrize("answers", [5, 11])
@pytest.mark.parametrize("kind", ["alike", "harder and easier", "some lost whole"])
def test_looking_at_shared_documents_after_each_rarely_shuts_out_the_truth(kind: str, answers: int) -> None:
    """The true score is the threshold; errors of both sides together, at 200 looks."""
    rng = np.random.default_rng(answers)
    shape = (1500, 200)
    chance = np.full(shape, 0.856)
    if kind == "harder and easier":
        chance = np.where(rng.random(shape) < 0.6, 0.96, 0.7)
        chance = chance + 0.856 - (0.6 * 0.96 + 0.4 * 0.7)
        chance = np.clip(chance, 0, 1)
    elif kind == "some lost whole":
        chance = np.where(rng.random(shape) < 1 - 0.856 / 0.99, 0.0, 0.99)
    means = (rng.random((*shape, answers)) < chance[..., None]).mean(axis=2)
    rounds = Rounds(4096, means[0], 1.0, float(answers))
    signs = statuses(means, 1.0, 0.856, assumed_prompts=rounds.assumed_prompts, burn_in=rounds.burn_in)
    assert (signs != 0).any(axis=1).mean() <= 0.08
