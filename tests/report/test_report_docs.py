"""The pages on reports say what the command does."""

from __future__ import annotations

import inspect
import re
import shlex
from pathlib import Path

import pytest

from leadline.cli.report import report
from support.commands import Say
from support.planted_runs import cliff, planted_records, write_run

PAGE = Path(__file__).parents[2] / "docs" / "reports.md"
CONTENTS = PAGE.parent / "report-contents.md"


def test_every_option_is_explained() -> None:
    text = CONTENTS.read_text()
    for name in set(inspect.signature(report).parameters) - {"runs"}:
        assert re.search(rf"^\| .*`--{name}[ `]", text, re.MULTILINE), name


def test_every_picture_is_there() -> None:
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", PAGE.read_text() + CONTENTS.read_text())
    assert len(pictures) == 4
    assert all((PAGE.parent / name).stat().st_size > 10_000 for name in pictures)


@pytest.mark.slow
def test_the_summary_shown_is_that_of_the_run(say: Say) -> None:
    (run,) = re.findall(r"^leadline (run .*)$", PAGE.read_text(), re.MULTILINE)
    (summary,) = re.findall(r"```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    done = say(*shlex.split(run, comments=True), "--no-figure")
    assert " ".join(summary.split()) in " ".join(done.out.split())


def test_the_program_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path / "my-run", list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0])))
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(program, {"__name__": "docs"})
    assert (tmp_path / "my-run" / "heatmap.pdf").exists()
    assert (tmp_path / "my-run" / "report.html").exists()
