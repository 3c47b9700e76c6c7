"""The process of an engine as this process sees it: started, asked, and ended with everything that it started.

An engine has a process of its own, because it spawns processes itself, must not find CUDA initialised, and may need
another Python than this one. When it dies, the cause that it printed is in the error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from leadline.core.activity import waiting_for
from leadline.core.errors import MissingExtra, RunStopped, ServerError, SourceError, UsageError
from leadline.features.engines import messages, worker

EngineName = Literal["vllm", "sglang"]
END_SECONDS = 30
LAST_BYTES = 20_000
LEAKED = ("VLLM_DP_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables of a surrounding launcher that would make an engine wait for others."""


class EngineRefused(Exception):
    """The engine is alive but refused the request. The message is its own."""


@dataclass(eq=False)
class _Order:
    """Prompts that one thread waits for."""

    prompts: Sequence[dict[str, Any]]
    replies: list[Any] | None = None
    error: BaseException | None = None


class EngineProcess:
    """One engine. One message at a time; prompts of several threads go into one, since engines are quick with many."""

    def __init__(self, engine: EngineName, python: str, where: str) -> None:
        self._where = where
        self._engine = engine
        self._guard = threading.Lock()
        self._turn = threading.Lock()
        """Held by the thread that sends the prompts of all waiting threads."""
        self._waiting_guard = threading.Lock()
        self._waiting: list[_Order] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {k: v for k, v in os.environ.items() if not k.startswith(LEAKED)}
        environment |= {
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_COMPUTE_NANS_IN_LOGITS": "1", "PYTHONSAFEPATH": "1",
        }  # fmt: skip
        try:
            self._process = subprocess.Popen(
                [python or sys.executable, str(Path(worker.__file__)), str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            self._log.close()
            fix = "give the path of the Python that has the engine: python=VENV/bin/python"
            raise UsageError(f"no Python can be started: {error}", where=f"{where}, python", fix=fix) from None

    def start(self, model: str, revision: str, options: dict[str, Any]) -> dict[str, Any]:
        """Loads the model; returns what the engine says about itself. Takes minutes for large models."""
        message = {"do": "start", "engine": self._engine, "model": model, "revision": revision, "options": options}
        reply = self._exchange(message)
        if reply is None:
            why = self._end()
            raise SourceError(f"the engine died while it started: {why}", where=self._where, fix=messages.advice(why))
        if "error" not in reply:
            description: dict[str, Any] = reply["ok"]
            return description
        if reply["type"] in ("ModuleNotFoundError", "ImportError") and reply["module"] == self._engine:
            raise MissingExtra(self._engine, self._engine, where=f"{self._where} (or python=VENV/bin/python)")
        why = self._why(reply)
        raise SourceError(f"the engine did not start: {why}", where=self._where, fix=messages.advice(why))

    def ask(self, message: dict[str, Any]) -> Any:
        """Raises EngineRefused with the engine's own message; RunStopped when it died."""
        reply = self._exchange(message)
        if reply is None:
            raise self._died(self._end())
        if "error" not in reply:
            return reply["ok"]
        if reply["dead"]:
            raise self._died(self._why(reply))
        if reply["type"] in ("TypeError", "AttributeError", "KeyError"):
            raise ServerError(
                f"this version of {self._engine} does not take or give what it is asked for: {reply['type']}: "
                f"{reply['error']}",
                where=self._where,
                fix=f"use another version of {self._engine} (pip install --upgrade {self._engine}, or python=VENV/bin/"
                "python), or start its server and measure that with openai:",
            )
        raise EngineRefused(messages.plain(reply["error"]))

    def write(self, prompts: Sequence[dict[str, Any]]) -> list[dict[str, Any] | EngineRefused]:
        """The engine's answers to prompts, or its refusals. Prompts of threads that wait at the same time are sent
        together."""
        order = _Order(prompts)
        with self._waiting_guard:
            self._waiting.append(order)
        with self._turn:
            if order.replies is None and order.error is None:
                with self._waiting_guard:
                    orders, self._waiting = self._waiting, []
                self._write_all(orders)
        if order.error is not None:
            raise order.error
        assert order.replies is not None
        return order.replies

    def _write_all(self, orders: Sequence[_Order]) -> None:
        try:
            replies = iter(self._written([prompt for order in orders for prompt in order.prompts]))
        except BaseException as error:
            for order in orders:
                order.error = error
        else:
            for order in orders:
                order.replies = [next(replies) for _ in order.prompts]

    def _written(self, prompts: Sequence[dict[str, Any]]) -> list[Any]:
        try:
            written: list[Any] = self.ask({"do": "write", "prompts": list(prompts)})
        except EngineRefused as error:  # an error of one prompt; the engine does not say which
            return [error] if len(prompts) == 1 else [self._written([prompt])[0] for prompt in prompts]
        return written

    def _exchange(self, message: dict[str, Any]) -> Any:
        """The reply; None where the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._guard, waiting_for(lambda: f"{self._engine}: {message['do']}"):
            try:
                worker.write_message(self._process.stdin, message)  # type: ignore[arg-type]
                return worker.read_message(self._process.stdout)  # type: ignore[arg-type]
            except (OSError, ValueError):
                return None

    def _died(self, why: str) -> RunStopped:
        return RunStopped(f"the engine died: {why}", where=self._where, fix=messages.advice_after_death(why))

    def _end(self) -> str:
        """How the process ended, and what it printed about it."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        code = self._process.returncode
        how = f"exit code {code}" if code is None or code >= 0 else f"ended by {signal.Signals(-code).name}"
        return f"{how}; {said}" if (said := self._said()) else how

    def _why(self, reply: dict[str, Any]) -> str:
        """An error's message; where it points to what was printed above, that."""
        own = messages.plain(reply["error"] if reply["dead"] else f"{reply['type']}: {reply['error']}")
        printed = self._said() if reply["dead"] or "above" in own else ""
        return printed if printed and "above" in own else f"{own}; {printed}" if printed else own

    def _said(self) -> str:
        """The end of what the engine printed, as far as it says why."""
        self._log.flush()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LAST_BYTES))
        return " | ".join(messages.causes(self._log.read().decode("utf-8", "replace")))

    def close(self) -> None:
        """Ends the engine and every process that it started."""
        assert self._process.stdin is not None
        is_answering = self._guard.locked()  # and nobody waits for it any more: it may hang
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if is_answering else END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()
