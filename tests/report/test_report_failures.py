"""How samples without an answer enter a mean is a choice, and said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.cli.main import answer

ASK = ["--lengths", "512,1k", "--depths", "3", "--samples", "6", "--attempts", "1", "--no-figure"]


def test_failed_samples_are_left_out_or_counted_as_wrong_and_the_report_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    assert answer(["run", "niah", "--model", "sim:flaky?rate=0.4", *ASK, "--out", folder]) == 1
    capsys.readouterr()
    found = {}
    for failures in ("excluded", "zero"):
        assert answer(["report", folder, "--json", "--failures", failures]) == 0
        found[failures] = json.loads(capsys.readouterr().out)
    assert found["excluded"]["failed"] == found["zero"]["failed"] > 0
    assert found["excluded"]["mean"] == 1.0
    assert found["zero"]["mean"] == pytest.approx(found["excluded"]["mean_if_failed_were_wrong"])
    assert found["excluded"]["counting"] != found["zero"]["counting"]


def test_the_report_names_the_shape_and_the_effective_length_of_its_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    assert (
        answer(["run", "niah", "--model", "sim:cliff?window=1100", *ASK, "--lengths", "512,1k,2k,4k", "--out", folder])
        == 0
    )
    capsys.readouterr()
    assert answer(["report", folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "cliff" in found["diagnosis"][0].lower()
    parts = found["effective_length_of_parts"]
    assert set(parts) == {"task", "category", "depth", "own_score"}
    assert parts["category"]["retrieval"]["words"]
    assert set(parts["depth"]) == {"first third", "middle third", "last third"}
