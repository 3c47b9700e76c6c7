"""`leadline watch` and `leadline view`: a run seen from another process, and clear words where there is none."""

from __future__ import annotations

import builtins
import os
import pty
import select
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from leadline.cli import watch as watch_module
from leadline.cli.main import run_command
from leadline.console import progress as faces
from leadline.console.progress import ProgressListener
from leadline.core.records import Record
from leadline.report.serve import listen_on
from leadline.run.events import Answered, Started
from support.growing_runs import begun_run, of_now, writing
from support.leadline_process import PROGRAM
from support.planted_runs import cliff, failed_record, lost_in_the_middle, planted_records, write_run


@pytest.fixture
def records() -> list[Record]:
    return list(planted_records(lost_in_the_middle, lengths=[1024, 65536], depths=[0.0, 1.0]))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(faces, "LINE_SECONDS", 0.0)


# --- watch --------------------------------------------------------------------------------------


def test_lines_follow_a_run_to_its_end(
    tmp_path: Path, records: list[Record], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun_run(tmp_path / "run", records, first=4)
    coming = iter([*records[4:-1], failed_record(records[-1].cell)])
    with ExitStack() as session:
        writer = session.enter_context(writing(folder))

        def write_one(seconds: float) -> None:
            """In place of waiting: between two looks a record comes, and after the last one the end."""
            record = next(coming, None)
            if record is None:
                session.close()
            else:
                writer.append(of_now(record))

        monkeypatch.setattr(watch_module, "sleep", write_one)
        assert run_command(["watch", str(folder)]) == 1, "a sample failed"
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert [line.partition(",")[0] for line in out.splitlines()[:3]] == [f"{n} of 12 samples" for n in (4, 5, 6)]
    assert "tokens/s" in out.splitlines()[1]
    assert out.count("failed: 20") == 1
    assert "niah, length 64k, depth 100%, sample 2: timeout: no answer within 600 s" in out
    assert out.splitlines()[-1] == "12 of 12 samples, 1 failed"
    assert "| niah |" in out, "the final screen is the run's own"


def test_a_finished_run_is_shown_at_once(
    tmp_path: Path, records: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["watch", str(write_run(tmp_path / "run", records))]) == 0
    assert "12 of 12 samples" in capsys.readouterr().out


def test_a_run_that_measured_nothing_has_the_exit_code_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    grid = ["--lengths", "1k,2k", "--depths", "2", "--samples", "2", "--no-figure", "--out", folder]
    assert run_command(["run", "niah", "--model", "sim:empty", *grid]) == 1
    said = capsys.readouterr().err.partition("error:")[2]
    assert "the model was not measured" in said
    assert run_command(["watch", folder]) == 1
    assert capsys.readouterr().err.partition("error:")[2] == said


def test_a_stopped_run_has_its_exit_code(
    tmp_path: Path, records: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begun_run(tmp_path / "run", records, first=4)
    with pytest.raises(KeyboardInterrupt), writing(folder):
        raise KeyboardInterrupt
    assert run_command(["watch", str(folder)]) == 75
    assert "stopped after 4 of 12 samples" in capsys.readouterr().err


def test_a_folder_without_a_run_cannot_be_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["watch", str(tmp_path)]) == 74
    assert "holds no run" in capsys.readouterr().err


def test_ctrl_c_leaves_quietly(
    tmp_path: Path, records: list[Record], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun_run(tmp_path / "run", records, first=4)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_module, "sleep", interrupt)
    with writing(folder):
        assert run_command(["watch", str(folder)]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_terminal_gets_a_live_screen_with_blocks_of_colour(tmp_path: Path, records: list[Record]) -> None:
    """In a real terminal, with the real program, until the run ends."""
    folder = begun_run(tmp_path / "run", records, first=8)
    ours, theirs = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "CI")}
    env |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "100", "LINES": "40"}
    with writing(folder) as writer:
        process = subprocess.Popen([str(PROGRAM), "watch", str(folder)], stdout=theirs, stderr=theirs, env=env)
        os.close(theirs)
        seen = read_until(ours, "8 of 12 samples")
        for record in records[8:]:
            writer.append(of_now(record))
        seen += read_until(ours, "12 of 12 samples")
    seen += read_until(ours, None)
    assert process.wait(120) == 0
    os.close(ours)
    assert "48;2;198;245;218" in seen, "all right, in the colour of the scale"
    assert "Ctrl-C leaves; the run continues." in seen
    assert seen.rstrip().endswith("12 of 12 samples")


def read_until(terminal: int, words: str | None) -> str:
    """What the terminal shows until these words, or to its end."""
    text, last = "", time.monotonic() + 120
    while time.monotonic() < last:
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            text += os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:  # the other end is closed
            return text
        if words is not None and words in text:
            return text
    raise AssertionError(f"{words!r} never came: {text[-2000:]}")


# --- what `run` itself shows --------------------------------------------------------------------


def test_progress_shows_samples_speed_time_left_and_failures(
    tmp_path: Path, records: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressListener() as listener:
        left = sum(r.prompt_tokens for r in records)
        listener(Started(tmp_path, len(records), 0, 0, left, 0))
        for record in records[-4:]:
            listener(Answered(record))
        listener(Answered(failed_record(records[0].cell)))
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("5 of 12 samples, ")
    for words in ("tokens/s", " left", "1 failed"):
        assert words in last


def test_simultaneous_answers_are_shown_together(
    tmp_path: Path, records: list[Record], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.console.progress.LINE_SECONDS", 0.0)
    with ProgressListener() as listener:
        listener(Started(tmp_path, len(records), 0, 0, sum(r.prompt_tokens for r in records), 0))
        for number, record in enumerate(records[:4]):
            listener(Answered(record, more=number < 3))
    said = capsys.readouterr().err
    assert "1 of 12 samples" not in said
    assert "4 of 12 samples" in said


def test_a_run_with_a_stopping_rule_shows_no_total(
    tmp_path: Path, records: list[Record], capsys: pytest.CaptureFixture[str]
) -> None:
    with ProgressListener(rule=True) as listener:
        listener(Started(tmp_path, 8800, 0, 0, 10**9, 0))
        listener(Answered(records[0]))
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("1 sample, ")
    assert "left" not in last


# --- view ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_serves_until_it_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path / "cache"))
    write_run(tmp_path / "runs" / "one", list(planted_records(cliff, lengths=[1024], depths=[0.5])))
    process = subprocess.Popen(
        [str(PROGRAM), "view", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with urllib.request.urlopen(address, timeout=120) as page:
        assert b"sim:planted" in page.read()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert err == "Press Ctrl-C to stop.\n"


@pytest.mark.parametrize("words", [["view"], ["view", "nothing/here"]])
def test_a_missing_folder_is_an_error(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(words) == 64
    err = capsys.readouterr().err
    assert f"no such folder: {(words[1:] or ['runs'])[0]!r}" in err
    assert "fix:" in err


def test_a_port_in_use_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    taken = listen_on("127.0.0.1", 0)
    try:
        port = taken.getsockname()[1]
        assert run_command(["view", str(tmp_path), "--port", str(port)]) == 69
        assert f"port {port} is in use" in capsys.readouterr().err
    finally:
        taken.close()


def test_an_address_of_the_network_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["view", str(tmp_path), "--host", "203.0.113.7", "--port", "0"]) == 69
    err = capsys.readouterr().err
    assert "everyone who can reach this address" in err
    assert "cannot listen on 203.0.113.7" in err


@pytest.mark.parametrize("package", ["uvicorn", "starlette"])
def test_a_missing_package_is_named_with_its_pip_command(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest, **more)

    ours = ("leadline.features.dashboard.app", "leadline.report.serve")
    for name in [n for n in sys.modules if n.partition(".")[0] == package or n in ours]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    assert run_command(["view", str(tmp_path)]) == 69
    err = capsys.readouterr().err
    assert f"needs the package {package!r}" in err
    assert 'pip install "leadline[view]"' in err


def test_a_run_that_is_opening_its_model_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, looks = tmp_path / "run", count()

    def sleep(seconds: float) -> None:
        if next(looks) == 2:
            write_run(folder, list(planted_records(cliff, lengths=[1024], depths=[0.5])))

    monkeypatch.setattr("leadline.cli.watch.sleep", sleep)
    assert run_command(["watch", str(folder)]) == 0
    assert "a run has its folder when its model is open" in capsys.readouterr().err
    assert run_command(["watch", str(tmp_path / "never")]) == 74
