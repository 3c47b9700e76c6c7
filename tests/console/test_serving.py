"""`--serve`: servers that are started, waited for, asked and stopped, with real processes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leadline.console.serving import served_model, server_address
from leadline.core.errors import ServerError, UsageError
from leadline.run.serving import StartedServer
from support import leadline_process
from support.commands import Say
from support.served_process import command, free_port, is_alive, is_gone

NIAH = ("niah", "--lengths", "2k", "--depths", "2", "--samples", "1", "--no-figure", "--no-checks")


def address_at(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


# --- where a server answers


@pytest.mark.parametrize(("words", "model", "address"), [
    ("vllm serve X --port 8001", "", "http://127.0.0.1:8001/v1"),
    ("llama-server -m x.gguf --port=8080", "", "http://127.0.0.1:8080/v1"),
    ("vllm serve X --port 8001", "http://127.0.0.1:9000", "http://127.0.0.1:9000/v1"),
    ("vllm serve X", "openai:X?base_url=http://127.0.0.1:9000/v1&tokenizer=bytes", "http://127.0.0.1:9000/v1"),
    ("vllm serve X --port 8001", "openai:X?tokenizer=bytes", "http://127.0.0.1:8001/v1"),
])  # fmt: skip
def test_the_address_is_that_of_the_model_or_the_port_of_the_command(words: str, model: str, address: str) -> None:
    assert server_address(words, model) == address


@pytest.mark.parametrize(("words", "model"), [("vllm serve X", ""), ("vllm serve X --port 8001", "sim:perfect")])
def test_an_address_that_is_not_known_is_an_error(words: str, model: str) -> None:
    with pytest.raises(UsageError, match="address of the server is not known"):
        server_address(words, model)


def test_an_address_becomes_a_model_before_its_server_runs() -> None:
    assert served_model("s --port 81", "") == "openai:?base_url=http://127.0.0.1:81/v1"
    assert served_model("s", "http://h:1/v1?tokenizer=bytes") == "openai:?base_url=http://h:1/v1&tokenizer=bytes"
    assert served_model("s", "openai:X?base_url=http://h:1/v1") == "openai:X?base_url=http://h:1/v1"


# --- one server


def test_a_server_is_stopped_with_its_children_and_its_port_is_refused_meanwhile(tmp_path: Path) -> None:
    port, pids = free_port(), tmp_path / "pids"
    words = command(port, "--child", str(pids), "--own-session")
    with StartedServer(words, address_at(port), tmp_path / "log") as started:
        server, child = map(int, pids.read_text().split())
        assert is_alive(server)
        assert is_alive(child)
        assert started.last_lines() == ["ready"]
        with pytest.raises(UsageError, match="answers at"), StartedServer(words, address_at(port), tmp_path / "other"):
            pass
    assert is_gone(server)
    assert is_gone(child), "also what left the server's process group"


def test_a_server_that_ends_at_once_gives_its_last_lines(tmp_path: Path) -> None:
    words = f"{sys.executable} -c \"import sys; print('no such model: X'); sys.exit(3)\""
    with pytest.raises(ServerError, match="exit code 3: no such model: X"):
        StartedServer(words, address_at(free_port()), tmp_path / "log").__enter__()


def test_a_server_that_finds_its_port_in_use_gives_its_last_lines(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nothing listens: it does not answer, and cannot be bound
        port = taken.getsockname()[1]
        words = f"{sys.executable} -m http.server {port} --bind 127.0.0.1"
        with pytest.raises(ServerError, match="Address already in use"):
            StartedServer(words, address_at(port), tmp_path / "log").__enter__()


def test_a_server_that_never_answers_is_stopped(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = f"import os, time; open('{pid}', 'w').write(str(os.getpid())); time.sleep(600)"
    started = StartedServer(f'{sys.executable} -c "{program}"', address_at(free_port()), tmp_path / "log", patience=2.0)
    with pytest.raises(ServerError, match="did not answer"):
        started.__enter__()
    assert not pid.exists() or is_gone(int(pid.read_text()))


@pytest.mark.parametrize(("words", "what"), [
    ("", "the command is empty"), ("vllm 'serve", "cannot be read"), ("no-such-program-1 --port 1", "no program"),
])  # fmt: skip
def test_a_command_that_is_none_is_refused(words: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=what):
        StartedServer(words, address_at(1), tmp_path / "log").__enter__()


# --- commands


def test_run_serves_itself_by_the_port_alone(say: Say, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = say("run", *NIAH, "--serve", command(free_port(), kind="vllm", window=8192), "--out", str(out), "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["done"] == 2
    assert "ready" in (tmp_path / "run-server.log").read_text()


def test_doctor_serves_itself(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    served = ("--serve", command(free_port(), kind="vllm", window=8192))
    result = say("doctor", *served, "--check", "receipts", "--json")
    assert result.code == 0, result.err
    assert json.loads(result.out)["results"][0]["status"] == "ok"
    assert say("doctor", "--check", "receipts").code == 64


@pytest.mark.slow
def test_a_judge_is_served(say: Say, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert say("run", "niah", "--model", "sim:perfect", "--lengths", "1k", "--depths", "2", "--samples", "1",
               "--out", str(run), "--no-figure").code == 0  # fmt: skip
    result = say("judge", str(run), "--serve", command(free_port(), kind="vllm", window=32768), "--min-accuracy", "0")
    assert "no server answers" not in result.err
    assert (run / "verdicts.jsonl").exists(), result.err


def test_a_list_of_models_is_not_served(say: Say, tmp_path: Path) -> None:
    (tmp_path / "models.json").write_text('[{"name": "a", "model": "sim:perfect"}]')
    result = say("run", *NIAH, "--models", str(tmp_path / "models.json"), "--serve", "true --port 1")
    assert result.code == 64
    assert "one server cannot be a list of models" in result.err


@pytest.mark.slow
def test_a_server_that_dies_in_the_middle_of_a_run_gives_its_last_lines_and_nothing_is_lost(
    say: Say, tmp_path: Path
) -> None:
    port, out = free_port(), tmp_path / "run"
    words = ("run", "niah", "--lengths", "1k", "--depths", "5", "--samples", "8", "--workers", "1", "--attempts", "2",
             "--no-figure", "--no-checks", "--out", str(out))  # fmt: skip
    died = say(*words, "--serve", command(port, "--answers", "12", kind="vllm", window=8192))
    assert died.code == 69, died.err
    assert "out of memory in layer 7" in died.err
    kept = sum('"kind":"completion"' in line for line in (out / "records.jsonl").read_text().splitlines())
    assert 0 < kept < 40
    again = say(*words, "--serve", command(port, kind="vllm", window=8192), "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["done"] == 40


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_leadline_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    port, pids = free_port(), tmp_path / "pids"
    served = command(port, "--child", str(pids), kind="vllm", window=8192)
    words = ("run", "niah", "--lengths", "4k", "--depths", "11", "--samples", "200", "--no-figure", "--no-checks")
    process = leadline_process.start(*words, "--serve", served, "--out", str(tmp_path / "run"))
    records = tmp_path / "run" / "records.jsonl"
    end = time.monotonic() + 120
    while not (records.exists() and records.stat().st_size) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    server, child = map(int, pids.read_text().split())
    process.send_signal(number)
    try:
        process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    assert process.returncode == {signal.SIGKILL: -9}.get(number, 130)
    assert is_gone(server)
    assert is_gone(child)
