"""A server that Leadline starts for a measurement, waits for, and stops together with everything it started."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from leadline.core.errors import ServerError, UsageError
from leadline.core.format import format_duration
from leadline.core.secrets import redact
from leadline.run import server_guard
from leadline.run.server_guard import STOP_SECONDS

HEALTH_SECONDS = 1800.0
"""The longest time for loading a large model."""
LOOK_SECONDS = 0.5
SAY_SECONDS = 10.0
GUARD_SECONDS = STOP_SECONDS + 15.0
"""The time for the guard to end the server and itself."""
LAST_LINES = 12


@dataclass
class StartedServer:
    """One server process and its children. A context manager: whatever happens inside, all of them are ended.

    `address` is the base URL of the API (`http://127.0.0.1:8000/v1`); it is healthy when `address/models` answers.
    """

    command: str
    address: str
    log: Path
    say: Callable[[str], None] = lambda text: None
    patience: float = HEALTH_SECONDS
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        words = self._words()
        if self._answers():
            raise UsageError(
                f"something answers at {self.address} already",
                where=self.command,
                fix="stop that server, or give this one another port and its address in the model's base_url",
            )
        self.log.parent.mkdir(parents=True, exist_ok=True)
        guard = [sys.executable, "-I", "-S", str(server_guard.__file__), *words]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                guard, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            self._wait_for_health()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def died(self) -> bool:
        """Whether the process has ended by itself."""
        return self._process is not None and self._process.poll() is not None

    def last_lines(self) -> list[str]:
        """The end of its output, without secrets."""
        try:
            text = self.log.read_bytes()[-16_384:].decode("utf-8", "replace")
        except OSError:
            return []
        return [redact(line.rstrip()) for line in text.splitlines() if line.strip()][-LAST_LINES:]

    def death(self) -> ServerError:
        """The error of a server that ended although it was needed."""
        code = self._process.returncode if self._process is not None else None
        said = " | ".join(self.last_lines()[-3:]) or "it printed nothing"
        return ServerError(
            f"the server ended with exit code {code}: {said}"[:600],
            where=self.command,
            fix=f"its output is in {self.log}; start it by hand to see more",
        )

    def stop(self) -> None:
        """Ends the server and everything it started; its guard does it when its input ends."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(timeout=GUARD_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _words(self) -> list[str]:
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise UsageError(
                f"the command cannot be read: {error}", where=self.command, fix="check its quotes"
            ) from None
        if not words:
            raise UsageError("the command is empty", where="--serve", fix='write --serve "vllm serve NAME --port 8000"')
        if shutil.which(words[0]) is None:
            raise UsageError(f"there is no program {words[0]}", where=self.command, fix="check its name and path")
        return words

    def _wait_for_health(self) -> None:
        begin = time.monotonic()
        said = begin
        while not self._answers():
            if self.died:
                raise self.death()
            waited = time.monotonic() - begin
            if waited > self.patience:
                raise ServerError(
                    f"the server did not answer at {self.address} within {format_duration(self.patience)}",
                    where=self.command,
                    fix=f"check the port in its command and in base_url; its output is in {self.log}",
                )
            if time.monotonic() - said >= SAY_SECONDS:
                said = time.monotonic()
                last = self.last_lines()[-1:]
                self.say(f"waiting for the server, {format_duration(waited)}{': ' + last[0][:100] if last else ''}")
            time.sleep(LOOK_SECONDS)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address.rstrip('/')}/models", timeout=5):
                return True
        except urllib.error.HTTPError as error:
            return error.code in (401, 403, 404, 405)  # it is up, and wants a key or has no such route
        except (OSError, ValueError):
            return False
