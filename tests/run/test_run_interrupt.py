"""Early ends: the first signal stops in good order, the second leaves, whenever it comes."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from leadline.core.errors import Interrupted
from leadline.core.spec import make_spec
from leadline.run.events import Event, RuleChecked
from leadline.run.interrupt import Stop, stopping_on_signals
from leadline.run.measure import measure
from support.fake_server import FakeServerProcess, Faults
from support.leadline_process import write_haystack

OPEN_FILES = Path("/proc/self/fd")


class Nervous(threading.Event):
    """Meets a signal while it is being set, and cannot be set by that signal, too: its lock is held."""

    setting = False

    def set(self) -> None:
        assert not self.setting, "this would wait for itself for ever"
        self.setting = True
        signal.raise_signal(signal.SIGTERM)
        super().set()


def test_a_signal_that_comes_while_another_is_handled_leaves_at_once() -> None:
    stop = Stop()
    stop._event = Nervous()
    with pytest.raises(KeyboardInterrupt), stopping_on_signals(stop, Interrupted("interrupted")):
        signal.raise_signal(signal.SIGINT)
    assert isinstance(stop.error, Interrupted)


@pytest.mark.slow
@pytest.mark.skipif(not OPEN_FILES.exists(), reason="needs Linux, which lists open files")
def test_rounds_of_a_run_leave_their_connections_to_the_next(tmp_path: Path) -> None:
    rounds: list[Event] = []
    values: dict[str, Any] = {
        "tasks": {"name": "niah", "haystack": str(write_haystack(tmp_path))},
        "lengths": "1k,2k", "depths": 4, "samples": 60, "until": "cell +-0.10", "limits": {"workers": 16},
    }  # fmt: skip
    with FakeServerProcess(Faults(delay_seconds=0.005), kind="vllm") as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
        before = sockets()
        most = 0

        def listen(event: Event) -> None:
            nonlocal most
            rounds.extend([event] if isinstance(event, RuleChecked) else [])
            most = max(most, sockets() - before)

        measure(make_spec({**values, "model": model}), tmp_path / "run", listen=listen)
    assert len(rounds) > 3
    assert most <= 16


def sockets() -> int:
    """The sockets that this process has open."""
    count = 0
    for file in OPEN_FILES.iterdir():
        try:
            count += str(file.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue
    return count
