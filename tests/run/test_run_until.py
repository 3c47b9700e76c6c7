"""Runs that stop by themselves: they ask where it matters, resume, and never guess."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from leadline.cli.main import run_command
from leadline.core.errors import UsageError
from leadline.core.spec import Spec, make_spec
from leadline.results.run import load_run
from leadline.results.verdict import verdict
from leadline.run.measure import measure, measure_spec
from leadline.run.until import RuleResult
from leadline.store.runs import read_records


def spec(model: str, until: str, *, samples: int = 60, lengths: str = "512,1k,2k") -> dict[str, object]:
    return {
        "model": model, "tasks": [{"name": "niah", "haystack": "noise"}], "lengths": lengths, "depths": 3,
        "samples": samples, "until": until, "limits": {"workers": 8},
    }  # fmt: skip


def measure_until(asked: Spec, folder: Path) -> RuleResult:
    rule = measure_spec(asked, folder).rule
    assert rule is not None
    return rule


def test_a_cliff_is_found_with_a_fraction_of_the_samples(tmp_path: Path) -> None:
    stopped = measure_until(make_spec(spec("sim:cliff?window=1100", "effective")), tmp_path / "run")
    assert stopped.step.outcome == "decided"
    assert "1k reaches" in stopped.sentence
    assert "2k does not" in stopped.sentence
    assert stopped.step.saving > 2
    assert "60 samples a cell would take" in stopped.saving
    totals = load_run(tmp_path / "run").totals
    assert totals.planned == totals.done < 3 * 3 * 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "until"),
    [
        ("sim:cliff?window=1100", "effective"),
        ("sim:perfect?noise=0.1&seed=3", "effective"),
        ("sim:perfect?noise=0.2&seed=4", "cell +-0.20"),
    ],
)
def test_a_killed_run_ends_on_the_samples_of_an_uninterrupted_one(tmp_path: Path, model: str, until: str) -> None:
    """Killed in mid-round, with answers that came in any order, and killed twice."""
    asked = make_spec(spec(model, until, samples=40))
    whole = measure_until(asked, tmp_path / "run")
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines(keepends=True)
    scores = {r.cell.key: r.score for r in read_records(tmp_path / "run")}
    draw = random.Random(5)
    for number, share in enumerate((0.15, 0.4, 0.7, 0.95)):
        parts = tmp_path / f"killed {number}"
        shutil.copytree(tmp_path / "run", parts)
        first = int(share * len(lines))
        in_flight = draw.sample(lines[first : first + 12], min(5, len(lines) - first))
        (parts / "records.jsonl").write_text("".join([*lines[:first], *in_flight]))
        again = measure_until(asked, parts)
        assert again.sentence == whole.sentence
        assert {r.cell.key: r.score for r in read_records(parts)} == scores


@pytest.mark.slow
def test_a_rule_looks_at_no_question_without_its_document_and_asks_it_as_often(tmp_path: Path) -> None:
    common = {
        "model": "sim:cliff?window=2k",
        "lengths": "1k,2k,4k,8k",
        "depths": 3,
        "samples": 40,
        "until": "effective",
    }
    alone = {"name": "qa_fiction_1", "label": "alone", "options": {"no_context": True}}
    with_both = measure_until(make_spec({**common, "tasks": ["qa_fiction_1", alone]}), tmp_path / "both")
    with_one = measure_until(make_spec({**common, "tasks": ["qa_fiction_1"]}), tmp_path / "one")
    assert with_both.sentence == with_one.sentence
    asked = {(c.length, c.depth, c.sample) for c in (r.cell for r in read_records(tmp_path / "one"))}
    for task in ("qa_fiction_1", "alone"):
        cells = (record.cell for record in read_records(tmp_path / "both"))
        assert {(c.length, c.depth, c.sample) for c in cells if c.task == task} == asked


def test_a_rule_without_anything_to_look_at_is_refused(tmp_path: Path) -> None:
    alone = {"name": "qa_fiction_1", "no_context": True}
    with pytest.raises(UsageError, match="no task has answers"):
        measure_until(make_spec({**spec("sim:perfect", "effective"), "tasks": [alone]}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_cells_are_sampled_until_each_is_narrow_enough(tmp_path: Path) -> None:
    asked = make_spec(spec("sim:perfect", "cell +-0.20", lengths="512"))
    stopped = measure_until(asked, tmp_path / "run")
    assert stopped.step.outcome == "decided"
    counts = [r.cell.depth for r in read_records(tmp_path / "run")]
    assert 3 * 4 <= len(counts) < 3 * 60


def test_a_model_on_the_line_ends_undecided_and_not_in_a_guess(tmp_path: Path) -> None:
    # Right in 85.6 of 100 prompts everywhere, by construction.
    model = "sim:perfect?high=0.856"
    stopped = measure_until(make_spec(spec(model, "effective", samples=30, lengths="512")), tmp_path / "run")
    assert stopped.step.outcome == "undecided"
    assert "too close to a score of" in stopped.sentence


def test_a_verdict_needs_a_base_and_a_gate(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs another run and a gate"):
        measure_until(make_spec(spec("sim:perfect", "verdict 0.95")), tmp_path / "run")


@pytest.mark.slow
def test_a_candidate_is_sampled_until_the_gate_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["--lengths", "512,1k", "--depths", "3", "--set", "haystack=noise", "--no-figure", "--json"]
    base, candidate = tmp_path / "base", tmp_path / "candidate"
    assert run_command(["run", "niah", "--model", "sim:perfect", *common, "--samples", "60", "--out", str(base)]) == 0
    capsys.readouterr()
    words = ["run", "niah", "--model", "sim:cliff?window=600", *common, "--samples", "60", "--out", str(candidate)]
    rule = ["--until", "verdict 0.95", "--base", str(base), "--gate", "overall >= -5"]
    assert run_command([*words, *rule]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["until"]["outcome"] == "decided"
    assert found["until"]["sentence"].startswith("fail")
    assert found["done"] < 360


def test_a_verdict_against_other_questions_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    base, candidate = tmp_path / "base", tmp_path / "candidate"
    measure(make_spec({**spec("sim:perfect", ""), "samples": 2}), base)
    other = {**spec("sim:perfect", "verdict 0.95"), "tasks": [{"name": "niah", "haystack": "code"}]}
    with pytest.raises(UsageError, match="the base run had other questions"):
        measure_spec(make_spec(other), candidate, base=base, gate="overall >= -5")
    assert not candidate.exists()


@pytest.mark.parametrize("rule", ["soon", "cell", "cell +-0.7", "verdict 0.3"])
def test_a_rule_that_is_none_says_how_to_write_one(rule: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        measure_until(make_spec(spec("sim:perfect", rule)), tmp_path / "run")


@pytest.mark.slow
def test_a_nearly_perfect_model_is_measured_resumed_and_reported(tmp_path: Path) -> None:
    """Eleven depths a round: the failed mass is a sum of elevenths, which no float holds exactly."""
    asked = make_spec(spec("sim:perfect?noise=0.02&seed=2", "effective", lengths="256,512") | {"depths": 11})
    stopped = measure_until(asked, tmp_path / "run")
    assert stopped.step.done
    assert measure_until(asked, tmp_path / "run").sentence == stopped.sentence
    found = verdict(load_run(tmp_path / "run")).effective
    assert found is not None
    assert found.high_open
