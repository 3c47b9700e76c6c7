"""Certifications that start both servers: nothing of them is left, whatever ends the command, and errors have their
last lines."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from support import leadline_process
from support.commands import Say
from support.served_process import command, free_port, is_alive, is_gone

GRID = ("--task", "niah", "--lengths", "1k", "--depths", "2", "--no-repeat", "--no-logprobs")


def served(*words: str, ports: tuple[int, int] | None = None) -> tuple[str, ...]:
    base, candidate = ports or (free_port(), free_port())
    return ("--serve-base", command(base, *words[:2], kind="vllm", window=8192),
            "--serve-candidate", command(candidate, *words[2:], kind="vllm", window=8192))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("turn", [(), ("--one-at-a-time",)])
def test_both_servers_are_started_asked_and_stopped(turn: tuple[str, ...], say: Say, tmp_path: Path) -> None:
    pids = [tmp_path / role for role in ("b", "c")]
    words = served("--child", str(pids[0]), "--child", str(pids[1]))
    result = say("certify", *words, *GRID, *turn, "--samples", "4", "--out", str(tmp_path / "out"), "--json")
    assert result.code in (0, 1, 2), result.err
    found = json.loads(result.out)
    assert found["samples_a_cell"] == 4
    page = (tmp_path / "out" / "certify.html").read_text()
    assert "base server" in page
    assert "served_process.py" in page
    for role, file in zip(("base", "candidate"), pids, strict=True):
        assert "ready" in (tmp_path / "out" / f"{role}-server.log").read_text()
        assert all(is_gone(int(pid)) for pid in file.read_text().split())


@pytest.mark.slow
def test_a_candidate_that_dies_in_the_middle_is_blamed_and_the_same_command_goes_on(say: Say, tmp_path: Path) -> None:
    ports, pid = (free_port(), free_port()), tmp_path / "b"
    words = ("certify", *GRID, "--samples", "16", "--workers", "1", "--out", str(tmp_path / "out"), "--json")
    died = say(*words, *served("--child", str(pid), "--answers", "8", ports=ports))
    assert died.code == 69, died.err
    assert "out of memory in layer 7" in died.err
    assert all(is_gone(int(number)) for number in pid.read_text().split()), "the base's server is stopped too"
    kept = (tmp_path / "out" / "base" / "records.jsonl").read_bytes()
    assert kept
    again = say(*words, *served(ports=ports))
    assert again.code in (0, 1, 2), again.err
    assert (tmp_path / "out" / "base" / "records.jsonl").read_bytes().startswith(kept), "nothing was asked again"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_of_both_servers_is_left_when_the_command_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    pids, records = [tmp_path / role for role in ("b", "c")], tmp_path / "out" / "base" / "records.jsonl"
    words = served("--child", str(pids[0]), "--child", str(pids[1]))
    grid = ("--task", "niah", "--lengths", "4k", "--depths", "11", "--samples", "200", "--out", str(tmp_path / "out"))
    process = leadline_process.start("certify", *words, *grid)
    end = time.monotonic() + 240
    while not (records.exists() and records.stat().st_size) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    started = [int(pid) for file in pids for pid in file.read_text().split()]
    assert len(started) == 4
    assert all(map(is_alive, started))
    process.send_signal(number)
    try:
        process.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    assert process.returncode == {signal.SIGKILL: -9}.get(number, 130)
    assert all(map(is_gone, started))
