"""The examples are short, run offline, and import nothing of Leadline but `leadline`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from leadline.results.run import load_run

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS = sorted(path.name for path in EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


def test_there_are_five_programs_and_a_notebook() -> None:
    assert (len(PROGRAMS), len(NOTEBOOKS)) == (5, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_is_short_and_runs(name: str, tmp_path: Path) -> None:
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) < 60
    assert "from leadline" not in text
    command = [sys.executable, str(EXAMPLES / name), "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == (1 if name == "compare_with_gate.py" else 0), done.stderr
    for manifest in tmp_path.rglob("manifest.json"):
        totals = load_run(manifest.parent).totals
        assert (totals.missing, totals.failed) == (0, 0)
    assert list(tmp_path.rglob("manifest.json"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((EXAMPLES / name).read_text())["cells"]
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), name, "exec"), names)
    assert (tmp_path / "runs" / "notebook" / "records.jsonl").exists()
