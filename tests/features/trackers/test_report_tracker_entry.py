"""Entries for trackers: what is there is named, what is not is left out, and a checkpoint finds its step and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.core.contracts import TrackerEntry
from leadline.core.errors import UsageError
from leadline.features.trackers.entry import series_name, step_of, tracker_entry
from leadline.results.run import load_run
from support.planted_runs import Surface, cliff, failed_record, perfect, planted_records, write_run


def entry(folder: Path, surface: Surface, tasks: tuple[str, ...] = ("niah",), **settings: object) -> TrackerEntry:
    records = list(planted_records(surface, tasks=tasks, depths=[0.0, 0.5, 1.0], samples=5))
    records[0] = failed_record(records[0].cell)
    return tracker_entry(load_run(write_run(folder / "run", records, samples=5)), 12000, **settings)  # type: ignore[arg-type]


def test_numbers_say_reach_averages_and_failures(tmp_path: Path) -> None:
    made = entry(tmp_path, cliff, ("niah", "vt[keys=4]"))
    run = load_run(tmp_path / "run")
    numbers = made.numbers
    assert 32768 <= numbers["leadline/effective_length"] <= 65536
    low, high = numbers["leadline/effective_length_low"], numbers["leadline/effective_length_high"]
    assert low <= numbers["leadline/effective_length"] <= high
    assert numbers["leadline/effective_length_bound"] == 0
    assert numbers["leadline/effective_length_decided"] == 1
    assert numbers["leadline/accuracy"] == run.table.whole.mean
    assert numbers["leadline_length/1k"] == run.table.by_length[1024].mean
    assert numbers["leadline_task/niah"] == run.table.by_task["niah"].mean
    assert numbers["leadline_task_length/vt_keys_4/128k"] == run.table.by_task_and_length["vt[keys=4]", 131072].mean
    assert (numbers["leadline/failed"], numbers["leadline/answered"]) == (1, 239)
    assert sum(v for name, v in numbers.items() if name.startswith("leadline_outcome/")) == pytest.approx(1)
    assert set(made.figures) == {"heatmap", "tasks"}
    assert all(png.startswith(b"\x89PNG") for png in made.figures.values())
    assert made.facts["digest"] == run.manifest.digest


def test_an_end_beyond_what_was_measured_is_left_out(tmp_path: Path) -> None:
    numbers = entry(tmp_path, perfect).numbers
    assert numbers["leadline/effective_length_bound"] == 1
    assert "leadline/effective_length_high" not in numbers


def test_a_run_without_an_answer_has_no_accuracy_rather_than_zero(tmp_path: Path) -> None:
    records = [failed_record(r.cell) for r in planted_records(cliff, lengths=[1024], depths=[0.5])]
    numbers = tracker_entry(load_run(write_run(tmp_path / "run", records)), 0).numbers
    assert not any("accuracy" in name or name.startswith("leadline_task") for name in numbers)
    assert numbers["leadline/failed"] == 3


def test_names_that_become_one_are_told_apart(tmp_path: Path) -> None:
    numbers = entry(tmp_path, cliff, ("vt[k=1]", "vt k=1")).numbers
    assert {"leadline_task/vt_k_1", "leadline_task/vt k_1"} <= set(numbers)
    numbers = entry(tmp_path / "other", cliff, ("vt[k=1]", "vt(k=1)")).numbers
    assert {"leadline_task/vt_k_1", "leadline_task/vt_k_1-2"} <= set(numbers)


@pytest.mark.parametrize(
    ("model", "step", "line"),
    [
        ("hf:out/checkpoint-12000", 12000, "hf:out/checkpoint"),
        ("hf:out/step_400/model", 400, "hf:out/step/model"),
        ("hf:Llama-3.1-8B/ckpt.300?dtype=bf16", 300, "hf:Llama-3.1-8B/ckpt?dtype=bf16"),
        ("openai:m-step-7?top=9", 7, "openai:m-step?top=9"),
        ("hf:runs/Qwen2.5-7B/global_step500", 500, "hf:runs/Qwen2.5-7B/global_step"),
        ("hf:out/smollm2-iter_0001000", 1000, "hf:out/smollm2-iter"),
        ("hf:out/3000", 3000, "hf:out"),
        ("hf:out/run-12000", 12000, "hf:out/run"),
        ("hf:out/epoch=3-step=1200/model", 1200, "hf:out/epoch=3-step/model"),
    ],
)
def test_auto_reads_the_step_and_the_series_is_the_rest(model: str, step: int, line: str) -> None:
    assert step_of(model, "auto") == step
    assert series_name(model, step) == line
    assert series_name(model, step + 1) == model, "another step leaves the name alone"


@pytest.mark.parametrize(
    ("model", "step"),
    [
        ("hf:qwen2.5", "auto"),
        ("hf:model?rope=4", "auto"),
        ("hf:smollm2", "auto"),
        ("hf:microsoft/phi-4", "auto"),
        ("hf:org/Llama-3.1-8B-Instruct", "auto"),
        ("openai:gpt-4-0613", "auto"),
        ("openai:claude-20240307", "auto"),
        ("openai:gpt-4o-mini-2024-07-18", "auto"),
        ("hf:google/gemma-2-9b-it", "auto"),
        ("hf:google/gemma-2-9b-it-4bit", "auto"),
        ("m", "1.5"),
        ("m", "-1"),
    ],
)
def test_a_step_that_is_none_is_a_usage_error(model: str, step: str) -> None:
    with pytest.raises(UsageError) as error:
        step_of(model, step)
    assert error.value.fix
