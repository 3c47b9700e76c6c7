"""The validator of Every Eval Ever itself, in an environment of its own, accepts what `leadline export` writes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import leadline
from support.commands import Say
from support.environments import environment

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    ("model", "samples", "decided"), [("sim:cliff?window=3000", 18, True), ("sim:flaky?rate=0.3", 2, False)]
)
def test_its_validator_accepts_the_export(model: str, samples: int, decided: bool, say: Say, tmp_path: Path) -> None:
    """One run with its effective length decided, one with failed samples and too few answers."""
    python = environment("every-eval-ever", "every_eval_ever==0.3.0", least=(3, 12))
    spec = leadline.Spec(model=model, tasks=("niah", "vt"), lengths="1k,2k,4k", depths=2, samples=samples)
    leadline.measure(spec, tmp_path / "run")
    said = say(
        "export", str(tmp_path / "run"), "--as", "every-eval-ever", "-o", str(tmp_path), "--model-id", "a/model-1"
    )
    assert said.code == 0, said.err
    (path,) = (tmp_path / "data").rglob("*.json")
    assert ("effective_length" in path.read_text()) == decided
    command = [python, "-m", "every_eval_ever", "validate", str(path.relative_to(tmp_path))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed, 0 warning-only, 0 failed" in done.stdout
