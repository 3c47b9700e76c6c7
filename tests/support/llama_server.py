"""llama.cpp's OpenAI-compatible server (package xllamacpp) with a GGUF file; it ends when its standard input ends.

As a script it prints its address when it is ready; `LlamaServer` starts the script in a separate process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType

MODEL = "smollm2"


class LlamaServer:
    """A real server with a real model on a free loopback port."""

    def __init__(self, weights: Path, *, window: int = 2048) -> None:
        self._command = [sys.executable, __file__, str(weights), str(window)]
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


def main(weights: str, window: str) -> None:
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = weights
    settings.model_alias = {MODEL}
    settings.n_ctx = int(window)
    settings.n_parallel = 1
    # One thread: several wait for each other in a loop, which takes minutes on a busy machine.
    settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = 1
    settings.port = 0
    settings.use_jinja = True
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
