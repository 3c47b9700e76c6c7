"""Certification: kept, lost and undecided on planted truth; servers that are started and stopped; prompts replayed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from leadline.core.errors import UsageError
from leadline.features.certify.decide import (
    ALPHA,
    _drawn_ratios,
    decide,
    looks,
    only_look,
    parse_margin,
)
from leadline.features.certify.sizing import part_power, parts_of, samples_needed
from leadline.stats.compare import Pairs
from leadline.stats.observations import Observations
from support.commands import Say

MODEL = "sim:perfect?window=40k"


# --- the decision, on planted pairs


TASKS, LENGTHS, DEPTHS = ("niah", "vt", "mrcr2", "mrcr8"), (4096, 32768), (0.0, 0.5, 1.0)
BANDS = {0.0: "first third", 0.5: "middle third", 1.0: "last third"}
Lost = dict[tuple[str, object], float]


def planted(rng: np.random.Generator, samples: int, flips: float, lost: Lost) -> Pairs:
    """Yes/no answers of two sides that are right nine times in ten: `flips` of them differ at random, half each way;
    `lost` has the share of further losses by stratum."""
    grid = [(t, n, d, s) for t in TASKS for n in LENGTHS for d in DEPTHS for s in range(samples)]
    task, length, depth, sample = (np.array(column) for column in zip(*grid, strict=True))
    base = (rng.random(len(grid)) < 0.9).astype(float)
    candidate = np.where(rng.random(len(grid)) < flips, (rng.random(len(grid)) < 0.9).astype(float), base)
    strata = {"task": task, "length": length, "depth": np.array([BANDS[d] for d in depth.tolist()])}
    for (scope, key), share in lost.items():
        inside = np.ones(len(grid), bool) if scope == "overall" else strata[scope] == key
        candidate = np.where(inside & (rng.random(len(grid)) < share), 0.0, candidate)
    cluster = np.array(["/".join(map(str, row)) for row in grid])
    sides = [
        Observations(task, length, depth, sample, cluster, value, np.zeros(len(grid), bool))
        for value in (base, candidate)
    ]
    return Pairs(sides[0], sides[1], 0, 0, 0)


def run_looks(rng: np.random.Generator, samples: int, flips: float, lost: Lost) -> tuple[str, list[str], int]:
    """Outcome, blamed parts and samples used, as a certification looks."""
    whole = planted(rng, samples, flips, lost)
    for look in looks(samples):
        rows = whole.base.sample < look.samples
        pairs = Pairs(whole.base.take(rows), whole.candidate.take(rows), 0, 0, 0)
        decision = decide(pairs, 0.05, look)
        if decision.is_settled:
            break
    return decision.outcome, [d.name for d in decision.blamed], look.samples


def test_the_looks_share_the_errors_and_never_spend_more() -> None:
    for samples in (2, 4, 7, 22, 35, 64, 400):
        steps = looks(samples)
        assert steps[-1].samples == samples
        assert [look.is_last for look in steps] == [False] * (len(steps) - 1) + [True]
        assert sum(look.alpha for look in steps) == pytest.approx(ALPHA)
        assert sum(look.kept_alpha for look in steps) == pytest.approx(ALPHA)


def test_looks_come_early_however_many_samples_there_may_be() -> None:
    assert [[look.samples for look in looks(samples)] for samples in (4, 22, 37, 400)] == [
        [4], [4, 9, 15, 22], [4, 6, 15, 26, 37], [4, 16, 67, 160, 280, 400],
    ]  # fmt: skip


def test_a_loss_past_a_length_is_named_and_nothing_else() -> None:
    outcome, blamed, _ = run_looks(np.random.default_rng(1), 32, 0.02, {("length", 32768): 0.4})
    assert (outcome, blamed) == ("lost", ["length:32k"])


def test_a_loss_everywhere_blames_the_whole() -> None:
    outcome, blamed, used = run_looks(np.random.default_rng(2), 64, 0.02, {("overall", None): 0.3})
    assert (outcome, blamed) == ("lost", ["overall"])
    assert used == 4, "an obvious loss is seen at the first look"


def test_equal_sides_are_kept() -> None:
    outcome, blamed, _ = run_looks(np.random.default_rng(3), 64, 0.02, {})
    assert (outcome, blamed) == ("kept", [])


@pytest.mark.slow
@pytest.mark.parametrize("flips", [0.0, 0.01, 0.05])
def test_equal_sides_are_rarely_called_changed(flips: float) -> None:
    outcomes = [run_looks(np.random.default_rng([7, n]), 32, flips, {})[0] for n in range(100)]
    assert outcomes.count("lost") <= 9  # 5 % of 100 and two standard deviations; studies/certify has 400


@pytest.mark.slow
@pytest.mark.parametrize(("scope", "key", "name"), [
    ("task", "mrcr8", "task:mrcr8"), ("length", 32768, "length:32k"), ("depth", "middle third", "depth:middle third"),
])  # fmt: skip
def test_a_fault_of_eight_points_in_one_part_is_found_there(scope: str, key: object, name: str) -> None:
    found = [run_looks(np.random.default_rng([11, n]), 64, 0.02, {(scope, key): 0.08 / 0.9}) for n in range(40)]
    named = [name in blamed for _, blamed, _ in found]
    others = sum(bool(set(blamed) - {name}) for _, blamed, _ in found)
    assert sum(named) >= 32  # studies/certify has 400 pairs
    assert others <= 4  # 5 % of 40 and two standard deviations


@pytest.mark.parametrize(("near_lost", "blamed"), [(3, ["length:32k"]), (20, ["overall"])])
def test_everything_is_blamed_only_where_each_part_loses_alike(near_lost: int, blamed: list[str]) -> None:
    """One answer in six is lost at 32k; at 4k two are gained, and three or as many as at 32k lost."""
    pairs = planted(np.random.default_rng(0), 10, 0.0, {})
    far, number = pairs.base.length == 32768, np.arange(len(pairs))
    near = np.flatnonzero(~far)
    base, candidate = np.ones(len(pairs)), np.where(far & (number % 6 == 0), 0.0, 1.0)
    candidate[near[:: len(near) // near_lost][:near_lost]] = 0.0
    extra = near[1 :: len(near) // 3][:2]
    base[extra], candidate[extra] = 0.0, 1.0
    assert [d.name for d in decide(paired_like(pairs, base, candidate), 0.05, only_look(10)).blamed] == blamed


def paired_like(pairs: Pairs, base: np.ndarray, candidate: np.ndarray) -> Pairs:
    sides = [dataclasses.replace(pairs.base, value=value) for value in (base, candidate)]
    return Pairs(sides[0], sides[1], 0, 0, 0)


def test_a_loss_that_stays_in_no_part_alone_is_lost_and_blames_none() -> None:
    """Lost where a task meets a length: neither loses anything without the other."""
    pairs = planted(np.random.default_rng(0), 32, 0.0, {})
    both = (pairs.base.task == "mrcr8") & (pairs.base.length == 32768)
    base = np.ones(len(pairs))
    decision = decide(paired_like(pairs, base, np.where(both, 0.0, base)), 0.05, looks(64)[0])
    assert (decision.outcome, decision.blamed) == ("lost", ())
    assert decision.is_settled, "more samples would not place it better"


def test_parts_that_only_share_the_prompts_of_another_are_not_blamed() -> None:
    """With eight needles a third is lost. Every length and depth third has a quarter of those prompts, and is worse."""
    pairs = planted(np.random.default_rng(0), 40, 0.0, {})
    number = np.arange(len(pairs))
    base = np.ones(len(pairs))
    lost = np.where((pairs.base.task == "mrcr8") & (number % 3 == 0), 0.0, base)
    decision = decide(paired_like(pairs, base, lost), 0.05, only_look(40))
    worse = [d.name for d in decision.comparison.differences if d.verdict == "worse"]
    assert {"overall", "length:4k", "length:32k", "depth:first third"} < set(worse)
    assert [d.name for d in decision.blamed] == ["task:mrcr8"]


@pytest.mark.parametrize(("lost", "outcome"), [(0, "kept"), (2, "undecided")])
def test_sides_are_kept_early_only_where_hardly_anything_is_lost(lost: int, outcome: str) -> None:
    """The smallest part has 54 prompts here. If 7.5 % are lost, none is lost with a chance of 1.5 %, at most two with
    22 %."""
    grid = [(t, n, d, s) for t, n, d in PLACES for s in range(6)]
    task, length, depth, sample = (np.array(column) for column in zip(*grid, strict=True))
    cluster = np.array(["/".join(map(str, row)) for row in grid])
    ones = np.ones(len(grid))
    candidate = ones.copy()
    candidate[np.flatnonzero(task == "mrcr8")[:lost]] = 0.0
    sides = [
        Observations(task, length, depth, sample, cluster, value, np.zeros(len(grid), bool))
        for value in (ones, candidate)
    ]
    first, second = looks(37)[:2]
    assert (first.samples, second.samples) == (4, 6)
    pairs = Pairs(sides[0], sides[1], 0, 0, 0)
    assert decide(pairs, 0.05, second).outcome == outcome
    assert decide(pairs, 0.05, first).outcome == "undecided", "the first look is for losses"


def test_a_bootstrap_in_blocks_draws_what_it_draws_at_once() -> None:
    sums = np.random.default_rng(3).random((2, 97))
    drawn = [_drawn_ratios(sums, 200, at_once) for at_once in (97 * 200, 97 * 7, 1)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[2])
    chosen = np.random.default_rng(0).integers(0, 97, (200, 97))
    np.testing.assert_allclose(drawn[0], sums[1][chosen].sum(-1) / sums[0][chosen].sum(-1), rtol=1e-12)


PLACES = [(task, length, depth) for task in TASKS for length in (4096, 16384, 65536) for depth in DEPTHS]


@pytest.mark.slow
def test_enough_samples_are_planned_for_a_loss_in_one_part_and_for_equal_sides() -> None:
    parts = parts_of(PLACES)
    assert [(part.scope, len(part.cells)) for part in parts] == [("task", 9)] * 4 + [("length", 12)] * 3 + [
        ("depth", 12)
    ] * 3
    assert parts_of([("kv", 4096, None)]) == []
    needed = samples_needed(PLACES, 0.05)
    assert 30 <= needed <= 42
    assert part_power(parts[0], parts, needed, 0.075) >= 0.8 > part_power(parts[0], parts, needed // 2, 0.075)
    assert samples_needed(PLACES, 0.10) < needed < samples_needed(PLACES, 0.05, power=0.95)


def test_a_margin_is_in_points() -> None:
    assert parse_margin("5pt") == parse_margin("5") == 0.05
    for bad in ("", "five", "0", "60", "-1pt"):
        with pytest.raises(UsageError):
            parse_margin(bad)


# --- the command


def test_two_models_are_certified_and_the_same_command_asks_nothing_again(say: Say, tmp_path: Path) -> None:
    words = ["certify", MODEL, "sim:perfect?window=40k&seed=1", "--task", "niah", "--lengths", "1k,2k", "--depths", "3",
             "--samples", "24", "--out", str(tmp_path), "--json"]  # fmt: skip
    first = say(*words)
    assert first.code == 0, first.err
    values = json.loads(first.out)
    assert values["outcome"] == "kept"
    assert {"recovery", "flip rate", "same top-1", "mean KLD", "MRCR AUC ratio"} <= values["figures"].keys()
    records = (tmp_path / "base" / "records.jsonl").read_bytes()
    again = say(*words)
    assert json.loads(again.out)["outcome"] == "kept"
    assert (tmp_path / "base" / "records.jsonl").read_bytes() == records
    assert "Kept:" in (tmp_path / "certify.html").read_text()


def test_a_lost_prompt_is_written_and_replayed(say: Say, tmp_path: Path) -> None:
    lost = tmp_path / "lost"
    found = say("certify", MODEL, "sim:cliff?window=1500", "--task", "niah", "--lengths", "1k,2k", "--depths", "3",
                "--samples", "8", "--out", str(tmp_path / "c"), "--keep-failures", str(lost), "--markdown")  # fmt: skip
    assert found.code == 1, found.err
    assert "Lost: length:2k" in found.out
    files = sorted(lost.glob("*.json"))
    prompt = json.loads(files[0].read_text())
    assert prompt["base_score"] > prompt["candidate_score"]
    assert prompt["targets"][0] in prompt["prompt"]
    assert 0 <= prompt["first_token"] <= prompt["first_difference"]
    right = say("certify", MODEL, "--replay", str(files[0]))
    assert right.code == 0
    assert "the answer of the base" in right.out
    wrong = say("certify", "sim:cliff?window=1500", "--replay", str(files[0]))
    assert wrong.code == 1
    assert f"first different token: {prompt['first_token'] + 1} " in wrong.out
    (lost / "bad.json").write_text("{}")
    assert say("certify", MODEL, "--replay", str(lost / "bad.json")).code == 66


@pytest.mark.slow
def test_finished_runs_are_compared_and_a_run_gives_the_other_side_its_spec(say: Say, tmp_path: Path) -> None:
    base, wide = tmp_path / "base-run", ("--json", "--detect", "20pt", "--out")
    grid = ("--lengths", "1k", "--depths", "3", "--samples", "24")
    assert say("run", "niah", "--model", MODEL, *grid, "--out", str(base), "--no-figure").code == 0
    found = say("certify", str(base), "sim:perfect?window=40k&seed=2", *wide, str(tmp_path / "c"))
    assert found.code == 0, found.err
    assert json.loads(found.out)["base"] == str(base)
    both = say("certify", str(base), str(tmp_path / "c" / "candidate"), *wide, str(tmp_path / "d"))
    assert json.loads(both.out)["outcome"] == "kept"


def test_sides_with_other_texts_are_refused_with_the_reason_or_compared_if_asked(say: Say, tmp_path: Path) -> None:
    words = ("certify", MODEL, f"{MODEL}&tokenizer=bytes", "--task", "niah", "--lengths", "2k", "--depths", "2",
             "--samples", "2", "--no-repeat", "--no-logprobs", "--out", str(tmp_path))  # fmt: skip
    refused = say(*words)
    assert refused.code == 64
    assert "the sides cannot be sent the same prompts: tokenizer differs (whitespace / bytes)" in refused.err
    assert "--anyway" in refused.err
    asked = (tmp_path / "base" / "records.jsonl").exists()
    assert not asked, "the reason comes before anything is asked"
    compared = say(*words, "--anyway")
    assert compared.code in (0, 2), compared.err
    assert "text of 4 of 4 paired prompts differs" in compared.err + compared.out
    after_base = say(*words, "--one-at-a-time")
    assert after_base.code == 64, "the records of the base have the texts"


def test_a_side_that_answers_nothing_is_an_error_and_no_loss(say: Say, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def silent(prompt):\n    raise RuntimeError('no memory left')\n")
    grid = ("--task", "niah", "--lengths", "1k", "--depths", "1", "--samples", "2", "--no-repeat", "--no-logprobs")
    silent = f"{tmp_path}/mine.py:silent"
    found = say("certify", "sim:perfect", silent, *grid, "--out", str(tmp_path / "c"))
    assert found.code not in (0, 1, 2)
    assert "the candidate answered none of its prompts" in found.err
    assert "no memory left" in found.err
    assert "fix:" in found.err


@pytest.mark.parametrize(("words", "said"), [
    ((MODEL,), "two sides are needed"),
    ((MODEL, MODEL, "--detect", "lots"), "is not a margin"),
    ((MODEL, MODEL, "--serve-base", "true"), "the address of the server is not known"),
    (("--replay", "nowhere.json"), "cannot be read"),
])  # fmt: skip
def test_bad_input_is_what_where_fix(say: Say, words: tuple[str, ...], said: str) -> None:
    found = say("certify", *words)
    assert found.code in (64, 66)
    assert said in found.err
    assert "fix:" in found.err
