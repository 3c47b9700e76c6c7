"""Replicas of a fake engine as Ray actors on this machine: a run ends complete when a replica or its engine dies."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

ray = pytest.importorskip("ray")

import leadline  # noqa: E402
from leadline.core.answers import Completion  # noqa: E402
from leadline.core.spec import make_spec  # noqa: E402
from support.fake_engines import PYTHONPATH, model_folder  # noqa: E402
from support.served_process import is_alive  # noqa: E402

pytestmark = [pytest.mark.real, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True)
def _engines_are_fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return model_folder(tmp_path / "model")


@pytest.mark.parametrize("fault", ["kills_its_parent", "core_dies_once", "core_killed_once"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_a_run_ends_complete_when_a_replica_dies(
    fault: str, replicas: int, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAULT", fault)
    monkeypatch.setenv("FAKE_MARK", str(tmp_path / "mark"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    spec = make_spec(
        {
            "model": f"vllm:{folder}", "tasks": [{"name": "niah"}], "lengths": "300,400", "depths": 3, "samples": 4,
            "reading": "nested", "limits": {"ray": replicas},
        }
    )  # fmt: skip
    ray.init(address="local", num_cpus=2, num_gpus=0, include_dashboard=False, log_to_driver=False)
    try:
        run = leadline.measure(spec, tmp_path / "run", checks=False)
    finally:
        ray.shutdown()
    assert (tmp_path / "mark").exists()
    records = list(run.records)
    assert len(records) == 24
    assert all(isinstance(r.outcome, Completion) and r.receipt.ok for r in records)
    engines = {int(line.split()[1]) for line in (tmp_path / "log").read_text().splitlines()}
    # One was started in place of that which died, unless the other replica had answered everything by then.
    assert len(engines) in ((2,) if replicas == 1 else (2, 3))
    while any(map(is_alive, engines)):  # and none is left
        time.sleep(0.1)
