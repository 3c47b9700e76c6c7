"""No more workers than a server has slots, and what Ctrl-C says and does."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from leadline.core.errors import Interrupted
from leadline.core.spec import make_spec
from leadline.run.events import Answered, Event, Note, Started, Stopping
from leadline.run.measure import measure_spec
from support import fake_kinds
from support.commands import Say
from support.fake_server import FakeServer, Faults, numbers_in

GRID = {"tasks": "niah", "lengths": "1k", "depths": 3, "samples": 4}


@pytest.fixture
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake llama.cpp says that it has two slots."""
    written = fake_kinds.pages

    def pages(kind: fake_kinds.Kind, window: int | None) -> dict[str, Any]:
        found = written(kind, window)
        if "/props" in found:
            found["/props"]["total_slots"] = 2
        return found

    monkeypatch.setattr("support.fake_server.pages", pages)


@pytest.mark.usefixtures("two_slots")
@pytest.mark.parametrize("workers", [None, 1, 8])
def test_a_server_is_asked_no_more_at_once_than_it_has_slots(workers: int | None, tmp_path: Path) -> None:
    heard: list[Event] = []
    with FakeServer(kind="llamacpp", window=8192, faults=Faults(delay_seconds=0.02)) as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
        limits = {} if workers is None else {"limits": {"workers": workers}}
        spec = make_spec({"model": model, **GRID, **limits}, where="test")
        measure_spec(spec, tmp_path / "run", listen=heard.append)
        assert server.peak_in_flight == min(2, workers or 2)
    notes = [note for event in heard if isinstance(event, Started) for note in event.notes]
    told = "2 workers instead of 8: the server has 2 slots" in notes
    assert told == (workers == 8)


def test_the_first_ctrl_c_says_how_many_answers_it_waits_for(tmp_path: Path) -> None:
    heard: list[Event] = []
    answered, released = threading.Event(), threading.Event()

    def answer(prompt: str) -> str:
        if len(prompt) > 500:
            if answered.is_set():
                released.wait(60)
            answered.set()
        return numbers_in(prompt)

    def listen(event: Event) -> None:
        heard.append(event)
        if isinstance(event, Answered) and not released.is_set():
            signal.raise_signal(signal.SIGINT)
        if isinstance(event, Stopping):
            released.set()

    with FakeServer(kind="vllm", window=8192, answer=answer) as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
        spec = make_spec({"model": model, **GRID, "limits": {"workers": 3}}, where="test")
        with pytest.raises(Interrupted):
            measure_spec(spec, tmp_path / "run", listen=listen)
    [stopping] = [event for event in heard if isinstance(event, Stopping)]
    assert 2 <= stopping.in_flight <= 3


def test_a_note_says_how_a_second_ctrl_c_ends_it(say: Say, capsys: pytest.CaptureFixture[str]) -> None:
    from leadline.console.progress import ProgressListener

    with ProgressListener() as listener:
        listener(Stopping("interrupted", 3))
        listener(Note("end"))
    assert "stopping: interrupted. Waiting for 3 answers in flight; Ctrl-C again ends it at once." in (
        capsys.readouterr().err
    )
