"""One core for workers that ask a server, and for nobody else."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leadline.core.spec import make_spec
from leadline.core.types import Completion, Probe
from leadline.run import plan as planning
from leadline.run.measure import measure
from leadline.run.threads import core_of, share_core
from support.scripted_model import Outcome, ScriptedModel

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2, reason="needs Linux and two cores"
)


class Distant(ScriptedModel):
    address = "http://127.0.0.1:8000/v1"


def cores_while_answering(
    kind: type[ScriptedModel], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> list[frozenset[int]]:
    seen: list[frozenset[int]] = []

    def script(probe: Probe, attempt: int) -> Outcome:
        seen.append(frozenset(os.sched_getaffinity(0)))
        return Completion(probe.targets[0])

    monkeypatch.setattr(planning, "open_model", lambda spec: kind(script))
    spec = {"model": "sim:perfect", "tasks": "niah", "lengths": "1k", "depths": 2, "samples": 6}
    measure(make_spec({**spec, "limits": {"workers": 4}}, where="test"), folder)
    assert len(seen) == 12
    return seen


def test_workers_that_ask_a_server_share_one_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.sched_getaffinity(0)
    [cores] = set(cores_while_answering(Distant, tmp_path / "run", monkeypatch))
    assert len(cores) == 1
    assert os.sched_getaffinity(0) == before


def test_workers_of_a_model_that_may_compute_here_keep_all_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [cores] = set(cores_while_answering(ScriptedModel, tmp_path / "run", monkeypatch))
    assert cores == os.sched_getaffinity(0)


def test_processes_side_by_side_take_different_cores() -> None:
    assert [core_of(process, {4, 7, 9}) for process in range(100, 104)] == [7, 9, 4, 7]


def test_a_sandbox_that_forbids_it_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: int, cores: set[int]) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", refuse)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(share_core).result()
