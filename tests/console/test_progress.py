"""Progress in the terminal: scores by length as answers come, for people and for logs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from leadline.console.progress import Bar, LengthScores, ProgressLines, ProgressListener
from leadline.results.progress import RunProgress
from leadline.run.events import Answered, Started, StepProgress
from support.planted_runs import failed_record, planted_records

PROGRESS = RunProgress("running", 3, 0, 36)


def all_to_2k(length: int, depth: float) -> float:
    return 1.0 if length <= 2048 else 0.0


def test_means_are_shown_by_length_with_the_number_of_answers() -> None:
    scores = LengthScores()
    assert scores.describe() == ""
    for record in planted_records(all_to_2k, lengths=[4096, 1024], depths=[0.0, 1.0], samples=2):
        scores.add(record)
    assert scores.describe() == "so far: 1k 100% of 4, 4k 0% of 4"


def test_a_failed_sample_is_in_no_mean_and_a_replaced_one_is_counted_once() -> None:
    [record] = planted_records(all_to_2k, lengths=[1024], depths=[0.5], samples=1)
    scores = LengthScores()
    scores.add(failed_record(record.cell))
    assert scores.describe() == ""
    scores.add(record)
    scores.add(record, record)
    assert scores.describe() == "so far: 1k 100% of 1"


def test_lines_for_logs_end_with_the_scores_so_far() -> None:
    said: list[str] = []
    ProgressLines(said.append).update(PROGRESS, "so far: 1k 100% of 4", force=True)
    assert said == ["3 of 36 samples; so far: 1k 100% of 4"]


def test_the_scores_stand_below_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80)
    monkeypatch.setattr("leadline.console.progress.SanitisingConsole", lambda stderr: console)
    bar = Bar()
    bar.update(PROGRESS, "so far: 1k 100% of 4")
    bar.close()
    lines = screen.getvalue().splitlines()
    assert any("3 of 36 samples" in line for line in lines)
    assert any("so far: 1k 100% of 4" in line and "samples" not in line for line in lines)


def test_a_run_says_its_scores_while_it_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("leadline.console.progress.LINE_SECONDS", 0.0)
    records = planted_records(all_to_2k, lengths=[1024], depths=[0.5], samples=2)
    with ProgressListener() as listener:
        listener(Started(tmp_path, planned=2, done=0, failed_before=0, torn_bytes=0, notes=(), tokens_left=2048))
        for record in records:
            listener(Answered(record))
    assert "so far: 1k 100% of 2" in capsys.readouterr().err


def test_the_bar_of_a_step_is_gone_when_the_step_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    listener = ProgressListener()
    listener(StepProgress("compacting session 1 of 1", 0, 1))
    listener(StepProgress("compacting session 1 of 1", 1, 1))
    shown = screen.getvalue()
    assert "compacting session 1 of 1" in shown
    assert shown.endswith("\x1b[1A\x1b[2K"), "the line is erased, and what follows is printed there"
