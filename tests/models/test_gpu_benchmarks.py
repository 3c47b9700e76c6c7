"""The benchmarks for a GPU run on a CPU with tiny models, so that they do not fail on a GPU for silly reasons."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"


def run(script: str, *words: str) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, str(GPU / script), *words], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_calls_for_a_gpu_are_listed_with_times_that_fit() -> None:
    calls = [line for line in run("tables.py", "--list").splitlines() if line.startswith("call")]
    seconds = [int(line.split("about ")[1].split(" s")[0]) for line in calls]
    assert max(seconds) <= 600
    assert sum(seconds) <= 25 * 60


def test_every_shape_has_the_tokens_of_the_documents_and_a_tiny_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(GPU))
    import shapes

    for shape in shapes.SHAPES:
        whole, tiny = shapes.config_of(shape), shapes.config_of(shape, tiny=True)
        assert whole.vocab_size >= shapes.VOCABULARY
        assert tiny.vocab_size == 1000
        assert set(getattr(tiny, "layer_types", None) or ()) == set(getattr(whole, "layer_types", None) or ())


@pytest.mark.slow
def test_a_step_leaves_its_figures_and_a_picture(tmp_path: Path) -> None:
    assert "| million-gemma | 2,048 tokens |" in run("tables.py", "--tiny", "--out", str(tmp_path), "million-gemma")
    found = json.loads((tmp_path / "results.json").read_text())["million-gemma"]
    assert found["answered"] == [4, 4]
    assert found["read"][-1][0] > 1900
    pytest.importorskip("vl_convert")
    run("figure.py", str(tmp_path))
    assert (tmp_path / "reading.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "parts"), [("gemma-3-4b", 3), ("granite-4-h", 3), ("qwen3-next", 4)])
def test_every_part_of_the_engine_is_left_out_in_turn(shape: str, parts: int) -> None:
    lines = [line for line in run("left_out.py", shape, "1024", "--tiny").splitlines() if ": reading " in line]
    assert len(lines) == parts  # those of a CPU
    assert lines[0].startswith(f"{shape}, 1024, everything: reading ")
    assert all("%), 2 probes " in line for line in lines)
