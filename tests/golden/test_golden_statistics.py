"""Frozen records and tables give the numbers they gave: intervals, effective lengths, diagnoses, smoothing,
comparisons, gates, power, correlations, agreement, RULER's averages. Numbers only, since sentences may be reworded."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from golden.doors import (
    agreement,
    beta_binomial_sequence,
    diagnose,
    entry_of,
    from_memory,
    measured,
    observations,
    projection_outliers,
    read_records,
    smooth,
)
from golden.tools import FROZEN, check, json_of, numbers, thaw

RUNS = sorted(folder.name for folder in FROZEN.iterdir())
MAPS = ("fresh", "middle", "recency", "nested", "shared", "until", "flaky")
"""Runs of one task with lengths and depths."""
GATES = {
    "strict": "overall >= -1; task:* >= -3; length:* >= -5; depth:* >= -5; effective >= -10%",
    "loose": "overall >= -90; length:1k >= -95",
    "near": "overall >= -18; length:4k >= -40",
    "relative": "overall >= -60%; effective >= -99%",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name in RUNS:
        thaw(name, folder / name)
    return folder


def plain(value: Any) -> Any:
    """Dataclasses, arrays and mappings as what `numbers` reads."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return value


# --- one run ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_the_report_of_a_frozen_run_has_the_same_numbers(
    name: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check("reports", name, numbers(json_of(capsys, "report", runs / name)))


def test_samples_that_failed_count_as_wrong_when_asked_to(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("reports", "flaky, failures zero", numbers(json_of(capsys, "report", runs / "flaky", "--failures", "zero")))


@pytest.mark.parametrize("name", MAPS)
def test_the_diagnosis_of_a_frozen_map_is_the_same(name: str, runs: Path) -> None:
    found = diagnose(observations(read_records(runs / name)))
    check("diagnoses", name, numbers(plain(found)))


@pytest.mark.parametrize("name", MAPS[:4])
def test_a_frozen_map_is_smoothed_to_the_same_values(name: str, runs: Path) -> None:
    found = smooth(observations(read_records(runs / name)))
    check("smoothed", name, numbers(plain(found)), tolerance=1e-6)


@pytest.mark.parametrize("name", ["proxies", "trap", "chance"])
def test_log_probabilities_have_the_same_means_and_intervals(name: str, runs: Path) -> None:
    found = measured(r for r in read_records(runs / name) if r.wants_logprobs)
    estimates = {f"{m.task} {m.name}": plain(lengths) for m, lengths in found.estimates.items()}
    distances = {f"{m.task} {m.name}": plain(octaves) for m, octaves in found.by_distance.items()}
    check("measures", name, numbers({"length": estimates, "distance": distances, "failed": found.failed}))


@pytest.mark.parametrize("name", ["proxies", "trap", "base", "flaky"])
def test_the_entry_of_a_frozen_run_in_a_submission_is_the_same(name: str, runs: Path) -> None:
    check("entries", name, numbers(msgspec.to_builtins(entry_of(name, "sim:any", runs / name))))


def test_answers_from_memory_are_counted_the_same(runs: Path) -> None:
    check("memory", "memory", numbers(plain(from_memory(read_records(runs / "memory")))))


# --- two runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("correction", ["holm", "bh"])
def test_two_frozen_runs_differ_by_the_same_numbers(
    correction: str, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", runs / "base", runs / "candidate", "--cells", "--correction", correction)
    check("comparisons", correction, numbers(json_of(capsys, *words)))


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_over_two_frozen_runs_says_the_same(gate: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("compare", runs / "base", runs / "candidate", "--gate", GATES[gate])
    found = json_of(capsys, *words, codes=(0, 1, 2))
    check("gates", gate, numbers({key: found[key] for key in ("exit code", "gate")}))


def test_runs_with_failures_and_other_models_compare_to_the_same_numbers(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("compare", runs / "fresh", runs / "recency", "--gate", "overall >= -5")
    check("comparisons", "fresh, recency", numbers(json_of(capsys, *words, codes=(0, 1, 2))))
    other = ("compare", runs / "fresh", runs / "flaky", "--anyway", "--failures", "zero")
    check("comparisons", "fresh, flaky", numbers(json_of(capsys, *other)))


# --- planning -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("drop", "like"), [("1pt", ""), ("5pt", ""), ("5pt", "base"), ("20pt", "shared")])
def test_a_plan_needs_the_same_samples_for_a_drop(
    drop: str,
    like: str,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [
        "plan",
        "niah",
        "--set",
        "haystack=noise",
        "--model",
        "sim:perfect",
        "--lengths",
        "512,1k",
        "--detect",
        drop,
    ]
    found = json_of(capsys, *words, *(("--noise-from", str(runs / like)) if like else ()))
    check("plans", f"{drop} {like}".strip(), numbers({"detection": found["detection"], "total": found["total"]}))


def test_confidence_sequences_are_the_same() -> None:
    found = {
        "sequences": [plain(beta_binomial_sequence(k, n)) for k, n in ((0, 3), (3, 3), (7, 20), (18.5, 20), (90, 100))],
    }
    check("plans", "sizes", numbers(found))


# --- many models --------------------------------------------------------------------------------


def test_tasks_correlate_over_frozen_runs_as_they_did(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [runs / name for name in RUNS if name.startswith("model-")]
    for each in ("length", "model"):
        words = ("correlate", "--tasks", *folders, "--each", each, "--figure", tmp_path / "tree", "--resamples", "200")
        check("correlations", f"tasks by {each}", numbers(json_of(capsys, *words)))


def test_tasks_correlate_over_a_table_as_they_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = random.Random("table")
    lines = ["model,vt,cwe,fwe,niah_single_1,qa_1"]
    for model in range(9):
        level = draw.uniform(30, 95)
        scores = [min(100, max(0, level + draw.gauss(0, spread))) for spread in (2, 6, 14, 25, 40)]
        lines.append(",".join([f"m{model}", *(f"{score:.1f}" for score in scores)]))
    (tmp_path / "table.csv").write_text("\n".join(lines) + "\n")
    words = ("correlate", "--tasks", tmp_path / "table.csv", "--figure", tmp_path / "tree", "--resamples", "300")
    check("correlations", "tasks of a table", numbers(json_of(capsys, *words)))


def test_scores_of_models_correlate_as_they_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proxy, target = scores_of_models()
    entries = [
        {"name": f"m{n}", "model": f"sim:m{n}", "score": value, "scores": {"gain": {"value": value}}}
        for n, value in enumerate(proxy)
    ]
    submission = {"version": 1, "metric": "gain", "better": "higher", "spec": {}, "created": "", "leadline": "0",
                  "entries": entries}  # fmt: skip
    (tmp_path / "submission.json").write_text(json.dumps(submission))
    (tmp_path / "targets.json").write_text(json.dumps({f"m{n}": value for n, value in enumerate(target)}))
    words = ("correlate", tmp_path / "submission.json", tmp_path / "targets.json")
    found = json_of(capsys, *words, "--resamples", "200", "--figure", tmp_path / "scatter")
    check("correlations", "models, median", numbers(found))


def scores_of_models() -> tuple[list[float], list[float]]:
    """Two scores that go together, with two models that do not fit."""
    draw = random.Random("scores")
    proxy = [round(draw.uniform(0, 3), 3) for _ in range(16)]
    target = [round(20 * x + draw.gauss(0, 4), 3) for x in proxy]
    target[3], target[11] = 95.0, -30.0
    return proxy, target


def test_outliers_are_the_same() -> None:
    proxy, target = (np.array([values]) for values in scores_of_models())
    found = {"median": projection_outliers(proxy, target)}
    check("correlations", "outliers", numbers(plain(found)))


def test_raters_agree_as_they_did() -> None:
    draw = random.Random("raters")
    truth = [draw.choice(("right", "right", "right", "wrong", "unsure")) for _ in range(40)]
    two = [(t, t if draw.random() < 0.8 else "unsure") for t in truth]
    three = [(t, t if draw.random() < 0.7 else "right", None if draw.random() < 0.1 else t) for t in truth]
    marks = [(m, min(5, max(1, m + draw.choice((-1, 0, 0, 1))))) for m in (draw.randrange(1, 6) for _ in range(30))]
    found = {
        "two": agreement(two, resamples=200),
        "three": agreement(three, resamples=200),
        "ordinal": agreement(marks, level="ordinal", resamples=200),
        "interval": agreement(marks, level="interval", resamples=200),
        "nearly all alike": agreement([("right", "right")] * 38 + [("right", "wrong")] * 2, resamples=200),
    }
    check("agreement", "agreement", numbers(plain(found)))


# --- RULER's tables and files -------------------------------------------------------------------


def test_published_scores_sum_up_to_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text(
        "model,4k,8k,16k,32k,64k,128k,avg\n"
        "one,96.6,96.3,95.2,93.2,87.0,81.2,91.6\n"
        "two,94.7,93.7,91.3,84.7,74.0,60.0,83.1\n"
        "three,80.0,75.0,88.0,50.0,40.0,30.0,60.5\n"
        "four,99.0,98.0,,97.0,90.0,86.0,94.0\n"
    )
    check("ruler", "models", numbers(json_of(capsys, "summarize", table)))
    check(
        "ruler",
        "models, other lines",
        numbers(json_of(capsys, "summarize", table, "--threshold", "90", "--share", "95")),
    )
    table.write_text("task,4k,8k,16k\nniah_single_1,100,100,99\nvt,97.5,80,60.25\ncwe,88,44.4,10\nqa_1,70,66,61\n")
    check("ruler", "tasks", numbers(json_of(capsys, "summarize", table)))


def test_predictions_of_ruler_are_graded_to_the_same_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for length in (4096, 8192):
        for task, lines in predictions(length).items():
            file = tmp_path / str(length) / "pred" / f"{task}.jsonl"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = json_of(capsys, "score", tmp_path)
    check("ruler", "predictions", numbers(found) | {"nulls": [task["nulls"] for task in found["tasks"]]})


def predictions(length: int) -> dict[str, list[dict[str, Any]]]:
    draw = random.Random(f"predictions {length}")
    question = "Some text.\nWhat are all the special magic numbers for x mentioned in the provided text?"
    made: dict[str, list[dict[str, Any]]] = {}
    for task, wanted in (("niah_single_1", 1), ("niah_multivalue", 4), ("vt", 5), ("cwe", 10), ("qa_1", 2)):
        for index in range(12):
            outputs = [str(draw.randrange(10**6, 10**7)) for _ in range(wanted)]
            kept = [o for o in outputs if draw.random() < (0.9 if length == 4096 else 0.6)]
            said = draw.choice((" ".join(kept), ", ".join(kept) + ".", f"x{''.join(kept)}", "", f"{kept} 1234567\x00"))
            line = {"index": index, "input": question, "outputs": outputs, "pred": said, "length": length}
            made.setdefault(task, []).append(line)
    return made
