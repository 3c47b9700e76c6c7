"""Exports say what the run says: the same means, the same intervals, nothing where nothing was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.features.exchange.exported import model_id
from leadline.results.run import load_run
from support.commands import Say


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "run"
    spec = leadline.Spec(model="sim:cliff?window=3000", tasks="niah", lengths="1k,2k,4k", depths=2, samples=18)
    leadline.measure(spec, folder, keep_prompts=True)
    return folder


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_every_eval_ever_has_each_score_with_its_interval_and_the_decided_length(
    run: Path, say: Say, tmp_path: Path
) -> None:
    said = say("export", str(run), "--as", "every-eval-ever", "-o", str(tmp_path), "--model-id", "maker/model-1")
    assert said.code == 0, said.err
    (path,) = _files(tmp_path)
    assert path.relative_to(tmp_path).parts[:4] == ("data", "leadline", "maker", "model-1")
    values = json.loads(path.read_text())
    *scores, effective = values["evaluation_results"]
    opened = load_run(run)
    for result, ((task, length), tally) in zip(scores, opened.table.by_task_and_length.items(), strict=True):
        assert tally.estimate is not None
        interval = result["score_details"]["uncertainty"]["confidence_interval"]
        assert result["metric_config"]["metric_parameters"]["length"] == length
        assert result["source_data"]["dataset_name"] == f"leadline/{task}"
        assert result["score_details"]["score"] == tally.estimate.mean
        assert (interval["lower"], interval["upper"]) == (tally.estimate.interval.low, tally.estimate.interval.high)
    assert effective["score_details"]["score"] == 2048
    assert all(isinstance(text, str) for text in _leaves_of_details(values)), "free maps hold strings only"


def _leaves_of_details(value: Any, inside: bool = False) -> list[Any]:
    if isinstance(value, dict):
        return [
            leaf
            for key, inner in value.items()
            for leaf in _leaves_of_details(inner, inside or key in ("details", "additional_details"))
        ]
    if isinstance(value, list):
        return [leaf for inner in value for leaf in _leaves_of_details(inner, inside)]
    return [value] if inside else []


def test_the_same_export_has_the_same_name(run: Path, say: Say, tmp_path: Path) -> None:
    for _ in range(2):
        assert say("export", str(run), "--as", "every-eval-ever", "-o", str(tmp_path)).code == 0
    assert len(_files(tmp_path)) == 1


def test_hugging_face_gets_percents_with_the_interval_in_the_notes(run: Path, say: Say, tmp_path: Path) -> None:
    said = say("export", str(run), "--as", "hf-eval-results", "--dataset", "owner/name", "-o", str(tmp_path))
    assert said.code == 0, said.err
    text = (tmp_path / ".eval_results" / "leadline.yaml").read_text()
    entries = text.split("- dataset:\n")[1:]
    assert [entry.partition("task_id: ")[2].splitlines()[0] for entry in entries] == [
        '"niah_1k"', '"niah_2k"', '"niah_4k"',
    ]  # fmt: skip
    assert "value: 100\n" in entries[0]
    assert "value: 0\n" in entries[2]
    assert all("95% interval" in entry and "36 of 36 samples answered" in entry for entry in entries)


def test_lm_eval_files_are_graded_to_the_same_scores(run: Path, say: Say, tmp_path: Path) -> None:
    assert say("export", str(run), "--as", "lm-eval", "-o", str(tmp_path)).code == 0
    (results,) = tmp_path.rglob("results_*.json")
    values = json.loads(results.read_text())["results"]
    assert {name: row["match.all,none"] for name, row in values.items()} == {"niah_1k": 1, "niah_2k": 1, "niah_4k": 0}
    said = say("score", str(tmp_path), "--json")
    assert said.code == 0, said.err
    graded = {row["length"]: row["score"] for row in json.loads(said.out)["tasks"]}
    assert graded == {1024: 100, 2048: 100, 4096: 0}
    assert "cuts prompts" in said.err, "what the log cannot tell is said"
    line = json.loads(next(tmp_path.rglob("samples_niah_1k_*.jsonl")).read_text().splitlines()[0])
    assert len(line["arguments"][0][0]) > 1000, "the prompt that was kept"


def test_a_folder_is_no_developer_of_a_model(run: Path) -> None:
    opened = load_run(run)
    assert str(model_id(opened, None)) == "unknown/cliff"
    opened.manifest.spec["model"] = "hf:/data/models/mine"
    assert str(model_id(opened, None)) == "unknown/mine"
    opened.manifest.spec["model"] = "hf:Qwen/Qwen3-4B?dtype=bf16"
    assert str(model_id(opened, None)) == "Qwen/Qwen3-4B"


@pytest.mark.parametrize(
    ("words", "what", "fix"),
    [
        (["--as", "hf-eval-results"], "belongs to a data set", "--dataset OWNER/NAME"),
        (["--as", "lm-eval", "--dataset", "a/b"], "says nothing to lm-eval", "leave it out"),
        (["--as", "lm-eval", "--model-id", "no owner"], "is not the id of a model", "DEVELOPER/MODEL"),
    ],
)
def test_a_wrong_export_says_what_is_missing(
    run: Path, say: Say, tmp_path: Path, words: list[str], what: str, fix: str
) -> None:
    said = say("export", str(run), *words, "-o", str(tmp_path))
    assert said.code != 0
    assert what in said.err
    assert fix in said.err
    assert not _files(tmp_path)


def test_a_run_without_a_graded_answer_exports_nothing(say: Say, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    say("run", "mean_nll", "--model", "sim:perfect", "--lengths", "512", "--samples", "1", "--out", str(folder))
    said = say("export", str(folder), "--as", "lm-eval", "-o", str(tmp_path / "out"))
    assert said.code != 0
    assert "no graded answers" in said.err
    assert not (tmp_path / "out").exists()
