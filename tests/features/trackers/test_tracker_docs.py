"""The page on trackers says what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leadline.core import registry
from leadline.features.trackers.entry import tracker_entry
from leadline.results.run import load_run
from support.planted_runs import cliff, planted_records, write_run

PAGE = Path(__file__).parents[3] / "docs" / "exchange-formats.md"


@pytest.mark.parametrize("name", registry.names("trackers"))
def test_every_tracker_and_option_is_explained(name: str) -> None:
    line = next(line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}:` |"))
    for option in registry.find("trackers", name).model_fields:
        assert f"`{option}" in line


def test_every_kind_of_number_is_explained(tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", list(planted_records(cliff, depths=[0.0, 1.0]))))
    kinds = {name.partition("/")[0] for name in tracker_entry(run, 1).numbers}
    kinds |= {name for name in tracker_entry(run, 1).numbers if name.startswith("leadline/")}
    text = PAGE.read_text()
    for kind in kinds:
        assert re.search(rf"`{kind.removesuffix('_low').removesuffix('_high')}", text) or f"`{kind[9:]}`" in text, kind


def test_the_program_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboardX")
    write_run(tmp_path / "my-run", list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0])))
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(program, {"__name__": "docs"})
    assert list((tmp_path / "logs" / "sim-planted").glob("events.*"))
