"""Sampling while looking: sequences that stay true, a search that ends, and a run that spends where it matters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betaln

from leadline.core.errors import UsageError
from leadline.core.types import Cell
from leadline.results.sentences import format_saving, format_step
from leadline.stats.allocate import Design, SamplingStep, parse_until, until_cells, until_effective, until_verdict
from leadline.stats.effective import Threshold
from leadline.stats.gate import parse_gate
from leadline.stats.observations import FloatArray, Observations
from leadline.stats.sequential import (
    Rounds,
    asymptotic_half_width,
    asymptotic_p,
    beta_binomial_sequence,
    length_status,
    next_length,
    rounds_by_length,
    statuses,
)
from support.planted import DEPTHS, LENGTHS, planted

LINE = 0.85


# --- confidence sequences -----------------------------------------------------------------------


def test_the_beta_binomial_sequence_is_where_the_evidence_reaches_its_limit() -> None:
    made = beta_binomial_sequence(27, 30)
    for edge in (made.low, made.high):
        evidence = betaln(27.5, 3.5) - betaln(0.5, 0.5) - 27 * np.log(edge) - 3 * np.log(1 - edge)
        assert evidence == pytest.approx(np.log(20), abs=1e-6)
    assert made.half_width == pytest.approx(0.170, abs=0.003)


def test_nothing_and_all_right_are_open_towards_their_end() -> None:
    assert (beta_binomial_sequence(0, 0).low, beta_binomial_sequence(0, 0).high) == (0.0, 1.0)
    assert beta_binomial_sequence(0, 12).low == 0.0
    assert beta_binomial_sequence(12, 12).high == 1.0


@pytest.mark.parametrize("lost", [1e-16, 3e-14, 1e-10, 1e-6, 0.02, 0.09, 1.0])
@pytest.mark.parametrize("n", [3.0, 11.0, 187.0, 4000.0])
def test_a_small_fraction_of_failures_or_successes_has_bounds_like_any_other(lost: float, n: float) -> None:
    good, bad = beta_binomial_sequence(n - lost, n), beta_binomial_sequence(lost, n)
    assert 0 < good.low < 1 - lost / n <= good.high <= 1
    assert 0 <= bad.low <= lost / n < bad.high < 1
    assert (good.low, good.high) == pytest.approx((1 - bad.high, 1 - bad.low), abs=1e-9)


def test_rounds_of_nearly_perfect_answers_can_be_judged_at_every_look() -> None:
    """Scores that are elevenths, thirteenths and tenths leave a failed mass that no float holds exactly."""
    rng = np.random.default_rng(2)
    for prompts in (1, 3, 10, 11, 13):
        for chance in (0.0, 0.02, 0.2):
            means = 1 - rng.binomial(10 * prompts, chance, size=120) / (10 * prompts)
            for rounds in range(1, 121, 7):
                found = length_status(Rounds(4096, means[:rounds], float(prompts)), LINE)
                assert 0 <= found.interval.low <= found.mean <= found.interval.high <= 1


def test_the_asymptotic_sequence_and_its_p_value_are_one_thing() -> None:
    half = float(asymptotic_half_width(0.3, 57, 0.95))
    assert asymptotic_p(half, 0.3, 57) == pytest.approx(0.05)
    assert asymptotic_p(0.0, 0.3, 57) == 1.0


@pytest.mark.parametrize("prompts", [1, 11])
def test_looking_after_every_round_rarely_shuts_out_the_truth(prompts: int) -> None:
    rng = np.random.default_rng(prompts)
    # Prompts of a round may differ in difficulty; the line is exactly their mean.
    shares = np.linspace(0.75, 0.95, prompts) if prompts > 1 else np.array([LINE])
    rounds = (rng.random((1500, 200, prompts)) < shares).mean(axis=2)
    false = (statuses(rounds, prompts, float(shares.mean())) != 0).any(axis=1).mean()
    assert false <= 0.05
    naive = np.abs(np.cumsum(rounds, axis=1) / np.arange(1, 201) - LINE)
    width = 1.96 * np.sqrt(LINE * (1 - LINE) / prompts / np.arange(1, 201))
    assert (naive > width)[:, 4:].any(axis=1).mean() > 0.25  # what an ordinary interval would do


def test_a_clear_length_is_settled_after_few_rounds() -> None:
    rng = np.random.default_rng(0)
    good = statuses((rng.random((200, 30, 11)) < 0.98).mean(axis=2), 11, LINE)
    bad = statuses((rng.random((200, 30, 11)) < 0.2).mean(axis=2), 11, LINE)
    assert (np.argmax(good != 0, axis=1) + 1).mean() < 8
    assert (good[:, -1] == 1).mean() > 0.95
    assert (np.argmax(bad != 0, axis=1) + 1).mean() < 2


def test_rounds_weigh_tasks_alike_and_leave_failures_out() -> None:
    first = planted(np.ones((1, 11)), 4, np.random.default_rng(0), lengths=LENGTHS[:1])
    second = replace(
        planted(np.zeros((1, 1)), 4, np.random.default_rng(0), lengths=LENGTHS[:1], depths=DEPTHS[:1], task="other"),
        cluster=np.array(["w", "x", "y", "z"]),
    )
    both = first.joined(second)
    [rounds] = rounds_by_length(both)
    assert rounds.means == pytest.approx([0.5] * 4)
    assert rounds.prompts == pytest.approx(2.0)  # the lone prompt of the other task carries half a round
    failed = np.zeros(len(both), dtype=np.bool_)
    failed[:44:4] = True  # sample 0 of every cell of the first task
    [fewer] = rounds_by_length(replace(both, failed=failed, value=np.where(failed, np.nan, both.value)))
    assert len(fewer.means) == 3


def test_shared_documents_count_as_one_prompt_a_round() -> None:
    data = planted(np.full((8, 11), 0.9), 5, np.random.default_rng(0), reading="shared")
    assert {r.prompts for r in rounds_by_length(data)} == {1.0}


# --- the search ---------------------------------------------------------------------------------


def test_the_search_halves_when_all_cost_alike_and_starts_short_when_long_is_dear() -> None:
    nothing = ["open"] * 7
    assert next_length(nothing, [False] * 7, [1.0] * 7) == 3  # type: ignore[arg-type]
    dear = next_length(nothing, [False] * 7, [10.0**i for i in range(7)])  # type: ignore[arg-type]
    assert dear is not None
    assert dear < 3


def test_the_search_ends_between_a_length_above_and_one_below() -> None:
    assert next_length(["open", "above", "below", "open"], [False] * 4, [1.0] * 4) is None
    assert next_length(["above", "open", "below"], [False, True, False], [1.0] * 3) is None
    assert next_length(["above", "open", "open", "below"], [False, True, False, False], [1.0] * 4) == 2


# --- whole runs ---------------------------------------------------------------------------------


class Sampler:
    """Answers cells from a surface: sample i of a cell is the same whenever it is asked for."""

    def __init__(self, surface: FloatArray, seed: int = 0) -> None:
        self.surface = surface
        self.seed = seed
        self.data = planted(surface, 1, np.random.default_rng(0)).take(np.zeros(0, dtype=np.int64))

    def ask(self, cells: tuple[Cell, ...]) -> None:
        rows = np.array([int(np.log2(c.length / 4096)) for c in cells])
        columns = np.array([round((c.depth or 0.0) * 10) for c in cells])
        draws = [
            np.random.default_rng([self.seed, r, c, cell.sample]).random()
            for r, c, cell in zip(rows, columns, cells, strict=True)
        ]
        asked = Observations(
            task=np.array([c.task for c in cells]),
            length=np.array([c.length for c in cells]),
            depth=np.array([c.depth for c in cells], dtype=np.float64),
            sample=np.array([c.sample for c in cells]),
            cluster=np.array([c.key for c in cells]),
            value=(np.array(draws) < self.surface[rows, columns]).astype(np.float64),
            failed=np.zeros(len(cells), dtype=np.bool_),
        )
        self.data = self.data.joined(asked)


def design(cap: int = 100, depths: int = 11) -> Design:
    step = 10 // (depths - 1)
    places = tuple(("planted", int(length), float(DEPTHS[d])) for length in LENGTHS for d in range(0, 11, step))
    return Design(places, cap=cap, fixed=100)


def run_effective(surface: FloatArray, plan: Design, line: Threshold | None = None) -> SamplingStep:
    sampler = Sampler(surface)
    while True:
        step = until_effective(sampler.data, plan, line or Threshold(LINE))
        if step.done:
            return step
        sampler.ask(step.next)


def test_a_cliff_is_found_for_a_fraction_of_the_fixed_cost() -> None:
    step = run_effective(np.where(np.arange(8)[:, None] < 5, 0.98, 0.03) * np.ones((1, 11)), design())
    assert step.outcome == "decided"
    assert format_step(step) == "64k reaches a score of 85, 128k does not (95% at every look)"
    assert step.saving > 10
    assert format_saving(step, 100).startswith("took up to ")


def test_a_model_on_the_line_ends_undecided_and_says_what_more_would_cost() -> None:
    surface = np.where(np.arange(8)[:, None] < 2, 0.98, np.where(np.arange(8)[:, None] < 3, LINE, 0.1)) * np.ones(
        (1, 11)
    )
    step = run_effective(surface, design(cap=60))
    assert step.outcome == "undecided"
    assert format_step(step) == (
        "at least 8k, below 32k, 16k is too close to a score of 85 to tell with so many samples (95% at every look)"
    )
    assert step.more is None or step.more > 0


def test_good_and_bad_models_end_at_the_ends_of_the_grid() -> None:
    assert format_step(run_effective(np.full((8, 11), 0.99), design())).startswith("at least 512k")
    assert format_step(run_effective(np.full((8, 11), 0.1), design())).startswith("below 4k")


def test_a_share_of_the_own_score_can_be_the_line() -> None:
    surface = np.where(np.arange(8)[:, None] < 4, 0.7, 0.2) * np.ones((1, 11))
    step = run_effective(surface, design(), Threshold(share=0.8))
    assert step.outcome == "decided"
    assert format_step(step).startswith("32k reaches 80% of the score at the shortest length, 64k does not")


def test_a_stopped_run_goes_on_from_its_records_alone() -> None:
    sampler = Sampler(np.full((8, 11), 0.9))
    step = until_effective(sampler.data, design(), Threshold(LINE))
    half = step.next[: len(step.next) // 2]
    sampler.ask(half)
    resumed = until_effective(sampler.data, design(), Threshold(LINE))
    assert not set(half) & set(resumed.next)
    sampler.ask(resumed.next)
    assert len(np.unique([c.key for c in (*half, *resumed.next)])) == len(half) + len(resumed.next)


def test_nested_documents_answer_every_length_before_the_one_they_are_read_up_to() -> None:
    plan = replace(design(), reading="nested")
    step = until_effective(Sampler(np.full((8, 11), 0.9)).data, plan)
    asked = {c.length for c in step.next}
    assert asked == {n for n in LENGTHS.tolist() if n <= max(asked)}


def test_cells_are_sampled_until_each_is_narrow_enough() -> None:
    surface = np.full((8, 11), 0.99)
    surface[0, 0] = 0.6
    sampler, plan = Sampler(surface), design(cap=400, depths=3)
    while not (step := until_cells(sampler.data, plan, 0.10)).done:
        sampler.ask(step.next)
    assert step.outcome == "decided"
    counts = np.bincount(sampler.data.code(("length", "depth")))
    assert counts[0] > 2 * np.median(counts)  # the uncertain cell took the samples
    truth = np.array([surface[i, j] for i in range(8) for j in (0, 5, 10)])
    keys, code = sampler.data.codes(("length", "depth"))
    shares = np.bincount(code, weights=sampler.data.value) / np.bincount(code)
    assert len(keys) == 24
    assert np.mean(np.abs(shares - truth) <= 0.1) > 0.95


def test_cells_that_stay_wide_at_the_cap_are_counted() -> None:
    sampler, plan = Sampler(np.full((8, 11), 0.5)), design(cap=20, depths=2)
    while not (step := until_cells(sampler.data, plan, 0.10)).done:
        sampler.ask(step.next)
    assert step.outcome == "undecided"
    assert format_step(step) == "16 of 16 cells are wider than +-0.1 at 20 samples"
    assert step.more is not None


def test_a_cell_with_failed_samples_is_not_asked_beyond_its_cap() -> None:
    sampler, plan = Sampler(np.full((8, 11), 0.5)), design(cap=20, depths=2)
    sampler.ask(tuple(Cell(*point, n) for point in plan.points for n in range(18)))
    failed = sampler.data.sample >= 9
    data = replace(sampler.data, failed=failed, value=np.where(failed, np.nan, sampler.data.value))
    assert {cell.sample for cell in until_cells(data, plan, 0.10).next} == {18, 19}


def test_a_verdict_stops_sampling_a_bad_candidate_early() -> None:
    base, bad = Sampler(np.full((8, 11), 0.95)), Sampler(np.full((8, 11), 0.6))
    plan = design(cap=40, depths=3)
    base.ask(tuple(Cell(t, length, d, s) for t, length, d in plan.points for s in range(40)))
    clauses = parse_gate("overall >= -2")
    while not (step := until_verdict(bad.data, base.data, plan, clauses)).done:
        bad.ask(step.next)
    assert format_step(step) == "fail: overall"
    assert len(bad.data) < 0.5 * len(base.data)


def test_a_verdict_asks_nothing_that_the_base_was_not_asked() -> None:
    base, same = Sampler(np.full((8, 11), 0.9)), Sampler(np.full((8, 11), 0.9), seed=1)
    plan = design(cap=100, depths=3)
    base.ask(tuple(Cell(t, length, d, s) for t, length, d in plan.points for s in range(3)))
    while not (step := until_verdict(same.data, base.data, plan, parse_gate("overall >= -1"))).done:
        same.ask(step.next)
    assert step.outcome == "undecided"
    assert format_step(step).endswith("the base has no more samples to compare with")
    assert len(same.data) == len(base.data)


@pytest.mark.parametrize(
    ("text", "rule", "number"),
    [
        ("effective", "effective", 0.95),
        ("cell +-0.10", "cell", 0.1),
        ("cell ±0.05", "cell", 0.05),
        ("verdict 0.9", "verdict", 0.9),
    ],
)
def test_stopping_rules_read_as_written(text: str, rule: str, number: float) -> None:
    made = parse_until(text)
    assert (made.rule, made.number) == (rule, number)


@pytest.mark.parametrize("text", ["forever", "cell", "cell +-0.7", "verdict 0.3", "cell +-10"])
def test_other_stopping_rules_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_until(text)
