"""A run by batches whose process is killed (SIGKILL) at ten places, by the provider at the moment of a request."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from leadline.results.run import load_run
from leadline.store.runs import every_record
from support.batch_server import BatchServer, Fate
from support.leadline_process import PATIENCE_SECONDS

QUESTIONS = 6
PROGRAM = """
import sys
from dataclasses import replace
from leadline.models.batch_limits import BATCH_LIMITS
from leadline.run import batches
batches.SETTLE_SECONDS, batches.FIRST_LOOK_SECONDS = 0.5, 0.05
BATCH_LIMITS["openai"] = replace(BATCH_LIMITS["openai"], requests=4)
from leadline.cli.main import main
sys.argv[0] = "leadline"
main()
"""
"""`leadline` with short waits, and batches of four questions."""
PLACES = [
    ("POST", "/v1/files", 1, False),
    ("POST", "/v1/files", 1, True),
    ("POST", "/v1/batches", 1, False),
    ("POST", "/v1/batches", 1, True),
    ("POST", "/v1/batches", 2, True),
    ("GET", "/v1/batches/batch_0", 1, False),
    ("GET", "/v1/batches/batch_1", 1, True),
    ("GET", "/v1/files", 1, True),
    ("GET", "/v1/files", 2, True),
    ("POST", "/v1/batches", 3, True),
]


def one_expires(line: dict[str, object], times: int) -> Fate:
    return "expired" if times == 1 and str(line["custom_id"]).endswith("-1") else "ok"


def start(base_url: str, folder: Path) -> subprocess.Popen[str]:
    words = [
        "run", "passkey", "--model", f"openai:fake?base_url={base_url}&tokenizer=bytes", "--lengths", "1k,2k",
        "--depths", "3", "--samples", "1", "--batch", "--no-figure", "--no-checks", "--out", str(folder),
    ]  # fmt: skip
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "path", "at", "after"), PLACES)
def test_a_killed_process_is_continued_with_nothing_lost_and_nothing_asked_twice(
    method: str, path: str, at: int, after: bool, tmp_path: Path
) -> None:
    server = BatchServer(one_expires)
    running: list[subprocess.Popen[str]] = []
    calls = 0

    def kill(asked: str, asked_path: str) -> None:
        nonlocal calls
        if asked == method and asked_path.startswith(path):
            calls += 1
            if calls == at:
                running[0].kill()
                running[0].wait(PATIENCE_SECONDS)

    if after:
        server.after = kill
    else:
        server.before = kill
    with server.on_socket() as base_url:
        running.append(start(base_url, tmp_path / "run"))
        running[0].communicate(timeout=PATIENCE_SECONDS)
        assert running[0].returncode == -9
        again = start(base_url, tmp_path / "run")
        said, _ = again.communicate(timeout=PATIENCE_SECONDS)
    assert again.returncode == 0, said
    run = load_run(tmp_path / "run")
    assert (run.totals.done, run.totals.failed) == (QUESTIONS, 0)
    assert Counter(server.asked.values()) == {1: QUESTIONS}
    assert len([*every_record(tmp_path / "run")]) == QUESTIONS
