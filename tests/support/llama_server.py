"""llama.cpp's OpenAI-compatible server (package xllamacpp) with a GGUF file.

As a script it prints its address when it is ready, and ends when its standard input ends, or with --port when it is
ended. `LlamaServer` starts the script in a separate process; `command` is what to give to --serve.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

MODEL = "smollm2"


class LlamaServer:
    """A real server with a real model on a free loopback port."""

    def __init__(self, weights: Path, *, window: int = 2048) -> None:
        self._command = [sys.executable, __file__, str(weights), "--window", str(window)]
        self.base_url = ""

    def __enter__(self) -> LlamaServer:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        address = self._process.stdout.readline().strip()
        assert address.startswith("http"), "the server did not start"
        self.base_url = f"{address}/v1"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def command(weights: Path, port: int, *more: str) -> str:
    return " ".join([sys.executable, __file__, str(weights), "--port", str(port), *more])


CACHE_TYPES = {"f16": "GGML_TYPE_F16", "q8_0": "GGML_TYPE_Q8_0", "q4_0": "GGML_TYPE_Q4_0"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("weights")
    parser.add_argument("--window", type=int, default=2048)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--cache-type", choices=CACHE_TYPES, default="f16", help="of keys and of values")
    given = parser.parse_args()
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = given.weights
    settings.model_alias = {MODEL}
    settings.n_ctx = given.window * given.slots
    settings.n_parallel = given.slots
    # One thread: several wait for each other in a loop, which takes minutes on a busy machine.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.port = given.port
    settings.use_jinja = True
    settings.cache_type_k = settings.cache_type_v = getattr(xllamacpp.ggml_type, CACHE_TYPES[given.cache_type])
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    if given.port:
        signal.pause()
    sys.stdin.read()


if __name__ == "__main__":
    main()
