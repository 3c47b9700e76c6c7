"""`leadline correlate --tasks`: from run folders and from a table, to a table, a figure and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.cli.main import run_command

WINDOWS = ("1k", "2k", "3k", "5k")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four models that lose the text at another length each: every task falls with the same window."""
    folder = tmp_path_factory.mktemp("runs")
    for window in WINDOWS:
        words = [
            "run",
            "niah_single_1",
            "--task",
            "vt",
            "--model",
            f"sim:cliff?window={window}",
            "--lengths",
            "1k,2k,4k",
        ]
        more = ["--set", "placement=anywhere", "--samples", "4", "--no-figure", "--json"]
        assert run_command([*words, *more, "--out", str(folder / window)]) == 0
    return [str(folder / window) for window in WINDOWS]


@pytest.mark.slow
def test_runs_of_several_models_give_a_matrix_clusters_and_a_figure(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run_command(["correlate", "--tasks", *runs, "--figure", str(tmp_path / "tree"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert sorted(said["tasks"]) == ["niah_single_1", "vt"]
    assert said["points"] == 12
    assert len(said["models"]) == 4
    assert said["spearman"][0][1] > 0.6
    assert said["low"][0][1] <= said["spearman"][0][1] <= said["high"][0][1]
    assert said["clusters"] == [said["tasks"]]
    assert {p.suffix for p in tmp_path.glob("tree.*")} == {".png", ".svg", ".pdf"}
    assert "niah_single_1" in (tmp_path / "tree.svg").read_text()


def test_a_table_is_read_and_shown_in_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "\n".join(f"m{n},{50 + 7 * n},{40 + 8 * n},{90 - n}" for n in range(6))
    (tmp_path / "scores.csv").write_text(f"model,vt,cwe,fwe\n{rows}\n")
    assert run_command(["correlate", "--tasks", "scores.csv"]) == 0
    out = capsys.readouterr().out
    assert "−1.00" in out
    assert "cluster 1: fwe" in out
    assert "cluster 2: " in out
    assert (tmp_path / "task-correlation.png").exists()


def test_too_few_runs_and_mixed_reading_are_refused(
    runs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["correlate", "--tasks", *runs[:2]]) == 64
    assert "2 models" in capsys.readouterr().err
    words = ["run", "niah_single_1", "--model", "sim:perfect", "--lengths", "1k", "--reading", "nested", "--json"]
    assert run_command([*words, "--samples", "1", "--no-figure", "--out", str(tmp_path / "nested")]) == 0
    assert run_command(["correlate", "--tasks", *runs, str(tmp_path / "nested")]) == 64
    assert "never mixed" in capsys.readouterr().err
    assert run_command(["correlate", *runs]) == 64
    assert "expected two files, got 4" in capsys.readouterr().err
