"""The demo falls back on a simulated model, and says why; the tiny model of docs/tiny-model.md runs."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from leadline.cli import demo
from leadline.core.errors import MissingExtra, SourceError
from leadline.core.spec import make_spec
from leadline.models import hf
from leadline.models.hf import smollm2
from leadline.store.runs import read_records
from support.commands import Say

PAGE = Path(__file__).parents[2] / "docs" / "tiny-model.md"


def test_the_demo_asks_a_real_model_as_published_protocols_do() -> None:
    spec = make_spec(demo.SPEC)
    assert spec.model == "hf:smollm2"
    assert spec.reading == "fresh"
    assert max(spec.lengths) >= 8 * min(spec.lengths)


@pytest.mark.slow
def test_the_tiny_model_of_the_page_is_planned_and_run_as_the_page_says(say: Say, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    page = PAGE.read_text()
    [script] = re.findall(r"```python\n# tiny.py\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"^leadline (.*)$", page, re.MULTILINE)
    (tmp_path / "tiny.py").write_text(script)
    runpy.run_path(str(tmp_path / "tiny.py"))
    assert len(commands) == 4
    for command in commands:
        words = shlex.split(command)
        result = say(*words, *(["--no-figure"] if words[0] == "run" else []))
        assert result.code == 0, result.err
    shared, plain = ({r.cell: r.outcome for r in read_records(tmp_path / "runs" / n)} for n in ("tiny", "plain"))
    assert shared == plain
    assert len(shared) == 6


@pytest.mark.parametrize(
    "error", [SourceError("pip could not get it", fix="check the network"), MissingExtra("torch", "hf")]
)
def test_the_reason_for_a_simulated_model_is_shown(
    error: SourceError | MissingExtra, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> Path:
        raise error

    monkeypatch.setattr(hf, "require_torch", lambda where: None)
    monkeypatch.setattr(smollm2, "ensure_folder", fail)
    assert demo._real_model_is_here() is False
    said = capsys.readouterr().err
    assert error.what in said
    assert error.fix in said
    assert "simulated" in said


def test_a_model_folder_that_another_process_has_made_meanwhile_is_used(tmp_path: Path) -> None:
    folder, needed = tmp_path / "folder", ("config.json",)
    with smollm2.written_whole(folder, needed) as made:
        (made / "config.json").write_text("{}")
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "theirs").touch()
    assert (folder / "theirs").exists()
    assert not made.exists()


def test_a_damaged_model_folder_is_replaced_and_one_that_was_not_finished_is_not_kept(tmp_path: Path) -> None:
    folder, needed = tmp_path / "folder", ("config.json",)
    folder.mkdir()
    (folder / "leftover").touch()
    with smollm2.written_whole(folder, needed) as made:
        (made / "config.json").write_text("{}")
    assert [file.name for file in folder.iterdir()] == ["config.json"]
    (ordinary := tmp_path / "ordinary").mkdir()
    assert folder.stat().st_mode == ordinary.stat().st_mode
    stopped = smollm2.written_whole(tmp_path / "other", needed)
    (stopped.__enter__() / "config.json").write_text("{}")
    assert not stopped.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "ordinary"}
