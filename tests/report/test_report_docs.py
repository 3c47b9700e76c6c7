"""The page on reports says what the command does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from leadline.cli.report import report
from support.planted_runs import cliff, planted_records, write_run

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"


def test_every_option_is_explained() -> None:
    text = PAGE.read_text()
    for name in set(inspect.signature(report).parameters) - {"runs"}:
        assert re.search(rf"^\| .*`--{name}[ `]", text, re.MULTILINE), name


def test_every_picture_is_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE.read_text())
    assert len(pictures) == 4
    assert all((PAGE.parent / name).stat().st_size > 10_000 for name in pictures)


def test_the_program_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "my-run", list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0])))
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(program, {"__name__": "docs"})
    assert (tmp_path / "my-run" / "heatmap.pdf").exists()
    assert (tmp_path / "my-run" / "report.html").exists()
