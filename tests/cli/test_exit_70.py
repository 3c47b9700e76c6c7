"""Damaged and odd run folders that had ended commands with exit code 70: each is an error that says what and where."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from leadline.core.spec import make_spec
from leadline.run.measure import measure
from support.commands import Say
from support.judged_runs import put_in_sentences
from support.leadline_process import PROGRAM

JUDGE = "sim:judge?seed=1"
ODD: list[Any] = [None, 1, "x", [], {}, [None], [1], ["x"], [[]], {"a": []}, [{}], [{"name": None}], [{"name": ["x"]}],
                  [{"name": "niah", "options": []}], [{"name": "niah", "options": {"keys": []}}]]  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    task = {"name": "niah", "options": {"haystack": "noise", "keys": 1}}
    values = {"model": "sim:decay?window=1k", "tasks": [task], "lengths": "512,1k", "depths": 2, "samples": 6}
    run = measure(make_spec(values), tmp_path_factory.mktemp("runs") / "run").folder
    put_in_sentences(run)
    return run


@pytest.fixture
def run(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "run"))


def change(run: Path, path: str, value: Any) -> None:
    manifest = inner = json.loads((run / "manifest.json").read_text())
    *outer, last = path.split(".")
    for key in outer:
        inner = inner.setdefault(key, {})
    inner[last] = value
    (run / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("value", ODD, ids=json.dumps)
def test_odd_tasks_in_a_spec_end_no_command_with_70(recorded: Path, run: Path, say: Say, value: Any) -> None:
    change(run, "spec.tasks", value)
    for words in (
        ["compare", str(recorded), str(run), "--anyway", "--json"],
        ["compare", str(run), str(recorded), "--anyway"],
        ["report", str(run), "--json"],
        ["rescore", str(run), "--scorer", "match.exact"],
    ):
        code, _, err = say(*words)
        assert code not in (70, -1), (words[0], err)


@pytest.mark.parametrize("value", [None, 0.5, "x", [1], {"a": []}], ids=json.dumps)
def test_odd_notes_of_a_model_end_no_report_with_70(run: Path, say: Say, value: Any) -> None:
    change(run, "model.notes", value)
    assert say("report", str(run), "--json").code == 0


@pytest.mark.parametrize("option", ["--set=wording=\udcff", "--set=sc\udcff=1", "--lengths=\udcff", "--task=\udcff"])
def test_an_argument_that_is_not_utf_8_is_named(say: Say, option: str) -> None:
    code, _, err = say("plan", "niah", "--model", "sim:perfect", "--lengths", "1k", option)
    assert code == 64, err
    assert "error:" in err
    assert "fix:" in err


@pytest.mark.parametrize("name", ["before", "after", "form", "prefill", "system", "turns", "fingerprint", "no_turns"])
def test_an_odd_frame_ends_no_judge_with_70(run: Path, say: Say, name: str) -> None:
    for value in ([], ["x"], {"a": 1}, {"before": 1, "after": [], "joints": [1]}, 5, None, True, ["x", 1]):
        change(run, f"frame.{name}", value)
        code, _, err = say("judge", str(run), "--with", JUDGE, "--min-accuracy", "0")
        assert code != 70, (name, value, err)


def test_a_draw_of_labels_that_is_not_utf_8_is_drawn_anew(run: Path, say: Say) -> None:
    assert say("judge", str(run), "--with", JUDGE, "--min-accuracy", "0").code == 0
    (run / "labels.draw.json").write_bytes(b'{"rubric": "\xff\xfe", "strata": {}}')
    code, _, err = say("judge", str(run), "--label", "5")
    assert code == 0, err


@pytest.mark.slow
def test_output_that_is_not_utf_8_has_escapes(run: Path) -> None:
    environment = {"PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    for words in (["watch"], ["report", "--json"]):
        done = subprocess.run([str(PROGRAM), *words, str(run)], env=environment, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr
        done.stdout.decode("ascii")


def test_a_run_of_log_probabilities_without_any_answer_is_reported(say: Say, tmp_path: Path) -> None:
    (tmp_path / "hay.jsonl").write_text(json.dumps({"text": "The wind was steady that day. " * 400}) + "\n")
    code, _, err = say(
        "run", "mean_nll", "--model", "sim:decay?tokenizer=bytes", "--lengths", "512", "--samples", "1", "--no-figure",
        "--out", "run", "--set", "documents=hay.jsonl", "--set", "least=100",
    )  # fmt: skip
    assert code == 0, err
    records = tmp_path / "run/records.jsonl"
    failed = []
    for line in records.read_text().splitlines():
        record = json.loads(line)
        record |= {"outcome": {"kind": "failure", "why": "server", "message": "x"}, "scores": {}}
        failed.append(json.dumps(record | {"failure_class": "error"}) + "\n")
    for content in ("".join(failed), ""):
        records.write_text(content)
        for words in (
            ["report", "run"],
            ["report", "run", "--json"],
            ["report", "run", "-o", "p.html"],
            ["watch", "run"],
        ):
            code, _, err = say(*words)
            assert code != 70, (words, err)
