"""The process of an engine as this process sees it: started, asked, and ended with everything that it started.

An engine has a process of its own, because it spawns processes itself, must not find CUDA initialised, and may need
another Python than this one. When it dies, its last lines are in the error.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from leadline.core.activity import waiting_for
from leadline.core.errors import LeadlineError, MissingExtra, RunStopped, SourceError, UsageError
from leadline.features.engines import worker

EngineName = Literal["vllm", "sglang"]
END_SECONDS = 30
LAST_LINES = 6
LAST_BYTES = 20_000
LEAKED = ("VLLM_DP_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables of a surrounding launcher that would make an engine wait for others."""
MEMORY_WORDS = ("out of memory", "no available memory", "kv cache", "free memory", "gpu_memory_utilization")


class EngineRefused(Exception):
    """The engine is alive, and did not do what it was asked to: its own message."""


class EngineProcess:
    """One engine. One question at a time."""

    def __init__(self, engine: EngineName, python: str, where: str) -> None:
        self._where = where
        self._engine = engine
        self._guard = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        environment = {k: v for k, v in os.environ.items() if not k.startswith(LEAKED)}
        environment |= {
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_COMPUTE_NANS_IN_LOGITS": "1", "PYTHONSAFEPATH": "1",
        }  # fmt: skip
        try:
            self._process = subprocess.Popen(
                [python or sys.executable, str(Path(worker.__file__))],
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
            raise SourceError(
                f"the engine died while it started{self._last_lines()}", where=self._where, fix=_advice("")
            )
        if "error" not in reply:
            found: dict[str, Any] = reply["ok"]
            return found
        if reply["type"] in ("ModuleNotFoundError", "ImportError") and reply["module"] == self._engine:
            raise MissingExtra(self._engine, self._engine, where=f"{self._where} (or python=VENV/bin/python)")
        what = f"the engine did not start: {reply['type']}: {reply['error']}"
        raise SourceError(what + self._last_lines(), where=self._where, fix=_advice(what + self._last_lines()))

    def ask(self, message: dict[str, Any]) -> Any:
        """Raises EngineRefused with the engine's own message; RunStopped when it died."""
        reply = self._exchange(message)
        if reply is None:
            raise RunStopped(
                f"the engine died{self._last_lines()}",
                where=self._where,
                fix="run the same command again: it continues with what is missing",
            )
        if "error" not in reply:
            return reply["ok"]
        if reply["type"] in ("TypeError", "AttributeError", "KeyError"):
            raise LeadlineError(
                f"this version of {self._engine} has other names: {reply['type']}: {reply['error']}",
                where=self._where,
                fix=f"pip install --upgrade {self._engine}, or serve the model and measure it with openai:",
            )
        raise EngineRefused(reply["error"])

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

    def _last_lines(self) -> str:
        """The end of what the engine printed, as a sentence's second half."""
        self._log.flush()
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - LAST_BYTES))
        lines = [line.strip() for line in self._log.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return ". Its last lines: " + " | ".join(line[:300] for line in lines[-LAST_LINES:]) if lines else ""

    def close(self) -> None:
        """Ends the engine and every process that it started."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def _advice(text: str) -> str:
    if any(word in text.lower() for word in MEMORY_WORDS):
        return (
            "give it less to read (max_model_len=), more memory (gpu_memory_utilization=, tensor_parallel_size=), or "
            "smaller keys and values (kv_cache_dtype=fp8)"
        )
    return "try the same model and options with the engine's own command; --debug shows more"
