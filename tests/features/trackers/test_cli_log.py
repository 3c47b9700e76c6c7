"""`leadline log` and `run --log-to`: results reach the tracker, and a tracker that fails never harms a run."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from leadline.cli.main import run_command
from support.leadline_process import write_haystack
from support.planted_runs import cliff, planted_records, write_run

pytestmark = pytest.mark.skipif(  # found and not imported: MLflow takes seconds, in every process that collects tests
    find_spec("tensorboardX") is None or find_spec("mlflow") is None, reason="needs tensorboardX and MLflow"
)


@pytest.fixture
def checkpoints(tmp_path: Path) -> list[str]:
    """Two checkpoints of one training, measured."""
    made = []
    for step in (1000, 2000):
        records = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0], model=f"hf:out/ckpt-{step}"))
        made.append(str(write_run(tmp_path / f"run-{step}", records)))
    return made


@pytest.mark.slow
def test_several_checkpoints_go_to_several_trackers_in_one_command(
    checkpoints: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    books = ["--to", f"tensorboard:{tmp_path / 'tb'}", "--to", f"mlflow:{tmp_path / 'mlruns'}"]
    assert run_command(["log", *checkpoints, *books, "--step", "auto", "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert [(w["step"], w["name"]) for w in written] == [(s, "hf:out/ckpt") for s in (1000, 1000, 2000, 2000)]
    assert len({w["where"] for w in written}) == 2, "one folder and one run for both steps"


def test_two_runs_cannot_be_the_same_step(checkpoints: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["log", *checkpoints, "--to", "tensorboard:x", "--step", "5", "--run-name", "mine"]) == 64
    assert "--step auto" in capsys.readouterr().err


def test_a_tracker_that_fails_has_its_own_exit_code(
    checkpoints: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run_command(["log", checkpoints[0], "--to", f"tensorboard:{tmp_path / 'file'}"]) == 76
    err = capsys.readouterr().err
    assert err.startswith("error:")
    assert "fix:" in err


def run_words(tmp_path: Path, name: str, *more: str) -> list[str]:
    hay = write_haystack(tmp_path)
    grid = ["--lengths", "1k,2k", "--depths", "2", "--samples", "1", "--set", f"haystack={hay}", "--no-figure"]
    return ["run", "niah", "--model", "sim:perfect?tokenizer=bytes", *grid, "--out", str(tmp_path / name), *more]


def test_a_run_logs_at_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = run_words(tmp_path, "run", "--log-to", f"tensorboard:{tmp_path / 'tb'}", "--step", "7", "--json")
    assert run_command(words) == 0
    said = capsys.readouterr()
    json.loads(said.out)
    assert "step 7 of sim:perfect" in said.err
    assert list((tmp_path / "tb" / "sim-perfect").glob("*.leadline-step-7"))


def test_a_run_succeeds_even_if_it_cannot_be_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*anything: object) -> str:
        raise RuntimeError("the tracker fell over")

    monkeypatch.setattr("leadline.features.trackers.mlflow.find_spec", lambda package: None)
    monkeypatch.setattr("leadline.features.trackers.tensorboard.TensorBoard.write", broken)
    books = ["--log-to", f"mlflow:{tmp_path / 'mlruns'}", "--log-to", f"tensorboard:{tmp_path / 'tb'}"]
    assert run_command(run_words(tmp_path, "run", *books)) == 0
    said = capsys.readouterr()
    assert said.err.count('pip install "leadline[mlflow]"') == 2, "told before the run and after it"
    assert "RuntimeError: the tracker fell over" in said.err
    assert "4 planned, 4 answered" in said.out
    assert (tmp_path / "run" / "records.jsonl").read_text().count("\n") == 4


@pytest.mark.parametrize(
    "words", [["--log-to", "mlfow:x"], ["--log-to", "mlflow:x", "--step", "twelve"], ["--log-to", "wandb:x?mod=1"]]
)
def test_wrong_tracker_options_stop_a_run_before_any_request(tmp_path: Path, words: list[str]) -> None:
    assert run_command(run_words(tmp_path, "run", *words)) == 64
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("flag", "value"), [("--step", "12000"), ("--step", "0"), ("--run-name", "mine")])
def test_a_step_without_a_tracker_is_refused_before_any_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str
) -> None:
    assert run_command(run_words(tmp_path, "run", flag, value)) == 64
    said = capsys.readouterr().err
    assert f"where: {flag}" in said
    assert "--log-to" in said
    assert not (tmp_path / "run").exists()
