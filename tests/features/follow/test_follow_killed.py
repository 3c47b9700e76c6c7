"""`leadline follow` in a process of its own, killed in the middle of a checkpoint, while checkpoints keep appearing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.features.follow.command import STEP_RUNS
from leadline.store.manifest import read_manifest
from leadline.store.runs import every_record
from support.commands import Say
from support.leadline_process import PATIENCE_SECONDS
from support.tiny_models import model_folder

pytestmark = pytest.mark.slow

STEPS = 20
SIMULATED = """
import sys
from leadline.features.follow import command
command.model_string = lambda checkpoint, options: f"sim:cliff?window={400 + 40 * checkpoint.step}&latency_seconds=0.02"
from leadline.cli.main import main
sys.argv = ["leadline", *sys.argv[1:]]
main()
"""
"""Checkpoints as simulated models, whose window grows with the step and that take their time."""


def write_checkpoint(folder: Path) -> None:
    """The weights last, as a training run writes them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w")


def start(training: Path, out: Path) -> subprocess.Popen[bytes]:
    words = ("follow", str(training), "--spec", "niah", "--lengths", "512,1k", "--samples", "4", "--out", str(out),
             "--settle", "0.2", "--poll", "0.2", "--patience", "600s", "--gate", "overall >= -60")  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-c", SIMULATED, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def wait_until(holds: Callable[[], bool]) -> None:
    for _ in range(PATIENCE_SECONDS * 20):
        if holds():
            return
        time.sleep(0.05)
    pytest.fail("it did not happen")


def lines_of(run: Path) -> int:
    return (run / "records.jsonl").read_bytes().count(b"\n") if (run / "records.jsonl").exists() else 0


def runs_in(out: Path) -> list[Path]:
    return sorted((out / STEP_RUNS).iterdir()) if (out / STEP_RUNS).is_dir() else []


def half_done(out: Path, planned: int) -> bool:
    return any(0 < lines_of(run) < planned for run in runs_in(out))


def test_twenty_checkpoints_that_appear_over_two_kills_are_each_measured_once(tmp_path: Path) -> None:
    training, out = tmp_path / "training", tmp_path / "out"
    training.mkdir()
    planned, written = 40, 0
    for share in (6, 13):  # a process is killed in the middle of a checkpoint, after so many have appeared
        process = start(training, out)
        while written < share:
            written += 1
            write_checkpoint(training / f"checkpoint-{written}")
        wait_until(lambda: half_done(out, planned))
        process.kill()
        process.wait()
        assert half_done(out, planned), "the kill came in the middle"
    process = start(training, out)
    try:
        while written < STEPS:
            written += 1
            write_checkpoint(training / f"checkpoint-{written}")
        page = out / "index.html"
        wait_until(
            lambda: (
                page.exists() and all(f"{STEP_RUNS}/checkpoint-{n}<" in page.read_text() for n in range(1, STEPS + 1))
            )
        )
    finally:
        process.terminate()
        process.wait()
    assert len(runs_in(out)) == STEPS
    for run in runs_in(out):
        seen = Counter(record.cell.key for record in every_record(run))
        assert len(seen) == read_manifest(run).planned == planned
        assert set(seen.values()) == {1}, "no answer is there twice"
    assert "pass against checkpoint-19" in page.read_text()


def test_weights_that_were_cut_off_are_named_and_keep_no_other_checkpoint(say: Say, tmp_path: Path) -> None:
    """As a training run that was killed while it saved leaves them: every file is there, and no longer changes."""
    model_folder(tmp_path / "training" / "checkpoint-1")
    (weights,) = model_folder(tmp_path / "training" / "checkpoint-2").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1000])
    said = say("follow", str(tmp_path / "training"), "--spec", "passkey", "--lengths", "256,512", "--samples", "1",
               "--settle", "0", "--once", "-o", str(tmp_path / "out"))  # fmt: skip
    assert said.code == 1
    assert "checkpoint-2 was not measured: its weights could not be read" in said.err
    assert "step 1  measured" in said.out
    assert "checkpoint-2" in (tmp_path / "out" / "index.html").read_text()
