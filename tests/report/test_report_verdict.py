"""The verdict: planted truths come back as sentences."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from leadline.results.run import load_run
from leadline.results.verdict import Verdict, verdict
from support.planted_runs import Surface, cliff, decay, lost_in_the_middle, perfect, planted_records, write_run


def found(folder: Path, surface: Surface, **settings: object) -> Verdict:
    records = planted_records(surface, samples=5, **settings)  # type: ignore[arg-type]
    return verdict(load_run(write_run(folder / "run", list(records), samples=5)))


@pytest.mark.parametrize(
    ("surface", "claim", "shape"),
    [
        (cliff, "Can use about", "Cliff:"),
        (lost_in_the_middle, "Can use about", "Lost in the middle:"),
        (decay, "Can use about", "Smooth decay:"),
        (perfect, "Can use at least 128k of the 128k tokens it claims", "Healthy"),
    ],
    ids=["cliff", "middle", "decay", "perfect"],
)
def test_a_planted_profile_is_named(tmp_path: Path, surface: Surface, claim: str, shape: str) -> None:
    said = found(tmp_path, surface)
    assert said.claim.startswith(claim)
    assert said.findings[0].startswith(shape)
    assert said.headline.startswith("sim:planted ")


def test_the_effective_length_of_a_cliff_lies_where_it_was_planted(tmp_path: Path) -> None:
    said = found(tmp_path, cliff)
    assert said.effective is not None
    assert said.effective.low <= 65536
    assert said.effective.high >= 32768
    assert 32768 <= said.effective.length <= 65536


def test_several_tasks_are_named_together(tmp_path: Path) -> None:
    records = [
        record
        for task, surface in (("a", cliff), ("b", cliff), ("c", decay))
        for record in planted_records(surface, tasks=[task], samples=5)
    ]
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=5)))
    assert "Cliff: a, b." in said.findings
    assert "Smooth decay: c." in said.findings
    assert set(said.by_task) == {"a", "b", "c"}


def test_one_length_gives_a_share_and_no_effective_length(tmp_path: Path) -> None:
    said = found(tmp_path, perfect, lengths=[4096])
    assert said.effective is None
    assert said.claim == "Is right in 100% of 55 samples."


def test_what_lies_beyond_the_measured_lengths_is_said(tmp_path: Path) -> None:
    said = found(tmp_path, perfect, lengths=[4096, 8192])
    assert "Nothing longer than 8k, of 128k claimed." in said.not_measured


def test_a_model_that_reads_further_than_it_claims_is_told_so(tmp_path: Path) -> None:
    records = list(planted_records(perfect, samples=5))
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=5, window=65536)))
    assert said.claim == "Can use at least 128k tokens, more than the 64k it claims."
    records = list(planted_records(cliff, samples=5))
    said = verdict(load_run(write_run(tmp_path / "other", records, samples=5, window=16384)))
    assert said.claim.startswith("Can use about ")
    assert said.claim.endswith("more than the 16k it claims.")


def test_more_than_it_claims_is_not_said_of_a_claim_inside_the_interval(tmp_path: Path) -> None:
    records = list(planted_records(cliff, samples=2))
    said = verdict(load_run(write_run(tmp_path / "run", records, samples=2, window=36000)))
    assert said.effective is not None
    assert said.effective.low < 36000 < said.effective.length
    assert said.claim.endswith("; it claims 36,000.")


def test_a_verdict_is_found_once_for_a_run_and_forgotten_with_it(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", list(planted_records(cliff, lengths=[1024, 65536], depths=[0.5]))))
    first = verdict(run)
    assert verdict(run) is first
    assert verdict(load_run(tmp_path / "run")) is not first
    kept = weakref.ref(run)
    del run
    gc.collect()
    assert kept() is None
