"""A library call leaves the process of its caller as it was: limits, heap, traces, signals, environment."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from pathlib import Path

import pytest

import leadline
from leadline.core.spec import make_spec
from support.fake_server import FakeServer

SOURCE = Path(leadline.__file__).parent
ITS_OWN_PROCESS = {"cli/process.py", "report/charts/render.py", "text/template_process.py"}
"""The command line's process, and the processes that draw figures and render templates."""


def state() -> dict[str, object]:
    return {
        "limits": {kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)},
        "trace": (sys.gettrace(), threading.gettrace()),
        "signals": {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)},
        "environment": dict(os.environ),
        "folder": Path.cwd(),
        "switch": sys.getswitchinterval(),
    }


def test_measure_leaves_the_process_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError("the limits of a process are its owner's")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    before = state()
    with FakeServer(kind="vllm") as server:
        spec = make_spec(
            {
                "model": f"openai:fake?base_url={server.base_url}&tokenizer=bytes",
                "tasks": [{"name": "niah", "haystack": "noise"}], "lengths": "4k", "depths": 2, "samples": 2,
            }
        )  # fmt: skip
        assert leadline.measure(spec, tmp_path / "run").totals.done == 4
    assert state() == before


def test_what_belongs_to_a_process_is_set_by_programs_only() -> None:
    for path in SOURCE.rglob("*.py"):
        if str(path.relative_to(SOURCE)) not in ITS_OWN_PROCESS:
            words = path.read_text()
            assert not any(name in words for name in ("mallopt", "setrlimit", "settrace", "setprofile")), path
