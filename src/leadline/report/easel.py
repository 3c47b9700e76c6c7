"""Where definitions become pictures: here, or on an easel, a process of its own that draws while this one goes on.

vl-convert takes most of a second to start and holds the interpreter's lock while it draws, so threads would only wait
for each other.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO, Any

import msgspec

Definition = dict[str, Any]
GRACE_SECONDS = 10.0


def drawn(definition: Definition) -> Future[str]:
    """The svg of a Vega-Lite definition: at once, or in a while where there is an easel."""
    easel = _EASEL.get()
    if easel is not None:
        return easel.draw(definition)
    done: Future[str] = Future()
    done.set_result(_svg(definition))
    return done


@contextmanager
def easel_beside() -> Iterator[None]:
    """What is drawn in this block is drawn by a process of its own, which starts now."""
    easel = Easel()
    token = _EASEL.set(easel)
    try:
        yield
    finally:
        _EASEL.reset(token)
        easel.close()


class Easel:
    """Draws in the order of asking. What it cannot, since it does not start or has died, is drawn in this process."""

    def __init__(self) -> None:
        self._turns = ThreadPoolExecutor(1, thread_name_prefix="easel")
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # -P: a json.py where the command was typed must not be taken for the library's.
            command = [sys.executable, "-P", "-m", __name__]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError:
            pass

    def draw(self, definition: Definition) -> Future[str]:
        return self._turns.submit(self._drawn, definition)

    def _drawn(self, definition: Definition) -> str:
        reply = self._asked(msgspec.json.encode(definition)) if self._process is not None else b""
        return msgspec.json.decode(reply, type=str) if reply.endswith(b"\n") else _svg(definition)

    def _asked(self, line: bytes) -> bytes:
        """The reply as a whole line; nothing where the definition is wrong, which is told when it is drawn here."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()
            return self._process.stdout.readline()
        except OSError:
            return b""

    def close(self) -> None:
        self._turns.shutdown(cancel_futures=True)
        if self._process is None:
            return
        try:
            self._process.communicate(timeout=GRACE_SECONDS)  # the end of what it is given is its end
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


_EASEL: ContextVar[Easel | None] = ContextVar("easel", default=None)


def _svg(definition: Definition) -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(definition))


def serve(asked: IO[bytes], replies: IO[bytes]) -> None:
    """The process on the other side: a definition a line in, an svg as a JSON string a line out. A definition that
    cannot be drawn ends it, and whoever asked finds out why."""
    _svg({"data": {"values": []}, "mark": "point"})  # starts the engine before there is anything to draw
    for line in asked:
        replies.write(msgspec.json.encode(_svg(msgspec.json.decode(line))) + b"\n")
        replies.flush()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever gave the work decides when it is over
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer)
    except ValueError:
        sys.exit(1)
