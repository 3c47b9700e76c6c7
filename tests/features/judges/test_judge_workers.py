"""Judges ask with the threads of a run: as many as there can be."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leadline.features.judges.asking import judge_run
from leadline.run.events import Event, Note
from support.judged_runs import record_run


def test_a_judge_on_a_machine_without_more_threads_grades_with_those_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = {"name": "niah", "haystack": "noise"}
    run = record_run(tmp_path, bare_every=8, model="sim:decay?window=1k", tasks=[task], samples=2)
    start = threading.Thread.start

    def meagre(thread: threading.Thread) -> None:
        if thread.name.startswith("asker") and thread.name != "asker-0":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", meagre)
    monkeypatch.setattr("leadline.features.judges.asking.asked_at_once", lambda model, limits: 4)
    events: list[Event] = []
    result = judge_run(run, ["sim:judge?seed=1"], min_accuracy=0, listen=events.append)
    assert result.failed == 0
    assert any(isinstance(event, Note) and "1 worker instead of 4" in event.text for event in events)
