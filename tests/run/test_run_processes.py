"""Runs that are killed, interrupted, locked out and starved, as real processes against a real server."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.store.runs import RECORDS
from support.fake_server import FakeServerProcess, Faults
from support.killed_runs import SAMPLES, WORKERS, kill_often, lines, wait_for, words
from support.leadline_process import PATIENCE_SECONDS, call, start

MORE_THAN_ENDS = 4000
"""Samples of a run that is not at its end before a busy machine has sent a signal."""


@pytest.fixture
def server() -> Iterator[FakeServerProcess]:
    with FakeServerProcess(Faults(delay_seconds=0.04), kind="vllm") as running:
        yield running


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_killed_at_random_moments_a_run_loses_nothing_and_repeats_only_what_was_in_flight(
    server: FakeServerProcess, tmp_path: Path, kills: int
) -> None:
    kill_often(server, tmp_path / "run", kills)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_once_a_run_finishes_what_is_in_flight_and_says_how_to_go_on(
    server: FakeServerProcess, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "run"
    process = start(*words(server, folder, MORE_THAN_ENDS))
    wait_for(process, folder, 20)
    process.send_signal(number)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "fix:   run the same command again to continue" in err
    assert "Traceback" not in err
    done = len(lines(folder))
    assert 20 <= done < MORE_THAN_ENDS
    asked = Counter(r.digest for r in server.completions if r.tokens > 900)
    assert asked.total() == done  # what was sent was waited for, and recorded


@pytest.mark.slow
def test_interrupted_twice_a_run_leaves_at_once(server: FakeServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(*words(server, folder))
    wait_for(process, folder, 20)
    server.set_faults(Faults(hang=1.0, attempts=None))
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert process.poll() is None  # it waits for what hangs
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "interrupted; run the same command again to continue" in err
    assert "Traceback" not in err
    assert all(line.endswith(b"}\n") for line in lines(folder))


@pytest.mark.slow
@pytest.mark.parametrize("opening", [True, False])
def test_a_server_that_hangs_while_it_counts_keeps_nobody(
    server: FakeServerProcess, tmp_path: Path, opening: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path / "cache"))  # else nothing is left to count
    folder = tmp_path / "run"
    process = start(*(word.replace("tokenizer=bytes", "tokenizer=server") for word in words(server, folder, 8000)))
    if opening:
        while sum(r.path == "/tokenize" for r in server.requests) < 60:
            time.sleep(0.01)
    else:
        wait_for(process, folder, 20)
    server.set_faults(Faults(tokenize_seconds=3600.0))
    time.sleep(0.2)
    began = time.monotonic()
    while process.poll() is None and time.monotonic() - began < 2:
        process.send_signal(signal.SIGINT)
        time.sleep(0.4)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130
    assert "run the same command again" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_second_run_in_the_folder_is_kept_out(server: FakeServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(*words(server, folder))
    wait_for(process, folder, 5)
    server.set_faults(Faults(delay_seconds=0.5))
    code, _, err = call(*words(server, folder))
    assert code == 75
    assert f"process {process.pid} on " in err
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 130


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_what_was_recorded_is_kept(server: FakeServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code, _, err = call(*words(server, folder, samples=80), limits={resource.RLIMIT_FSIZE: 60_000})
    assert code == 74
    assert "cannot write the record" in err
    kept = lines(folder)
    assert 10 < len(kept) < 80
    assert all(line.endswith(b"}\n") for line in kept)
    assert call(*words(server, folder, samples=80))[0] == 0
    assert lines(folder)[: len(kept)] == kept
    assert len(lines(folder)) == 80


@pytest.mark.slow
def test_a_server_that_dies_stops_the_run_with_an_exit_code(server: FakeServerProcess, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(*words(server, folder), "--attempts", "1")
    wait_for(process, folder, 30)
    server.set_faults(Faults(rate_500=1.0, attempts=None))
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 75
    assert "20 samples in a row got no answer" in err
    assert len(lines(folder)) <= SAMPLES // 2 + 20 + 2 * WORKERS


@pytest.mark.slow
def test_failed_samples_are_never_hidden_behind_exit_code_zero(server: FakeServerProcess, tmp_path: Path) -> None:
    server_faults = Faults(bad_request=0.3)
    process = start(*words(server, tmp_path / "run", samples=80))
    wait_for(process, tmp_path / "run", 1)
    server.set_faults(server_faults)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 1
    assert "samples have no answer" in err
    assert "run the same command again: only these are asked" in err
    assert " failed" in out


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["delete", "truncate", "folder"])
def test_records_that_vanish_in_mid_run_end_it_early_and_not_with_0(
    server: FakeServerProcess, tmp_path: Path, damage: str
) -> None:
    folder = tmp_path / "run"
    process = start(*words(server, folder))
    wait_for(process, folder, 10)
    if damage == "delete":
        (folder / RECORDS).unlink()
    elif damage == "truncate":
        os.truncate(folder / RECORDS, 0)
    else:
        shutil.rmtree(folder)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 74, out + err
    assert RECORDS in err
    assert len(server.completions) < SAMPLES  # noticed before everything was paid for
