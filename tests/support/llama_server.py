"""llama.cpp's OpenAI-compatible server (package xllamacpp) with a GGUF file.

As a script it prints its address when it is ready, and ends when its standard input ends, or with --port when it is
ended. `LlamaServer` starts the script in a separate process; `command` is what to give to --serve.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

MODEL = "smollm2"


def half_weights() -> Path:
    """SmolLM2-135M-Instruct with its 4-bit weights written out in 16 bits, which llama.cpp reads a prompt with in less
    than half of the time: it has no fast product for Q4_1. Made once and kept beside the download."""
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import dequantize

    from leadline.models.hf.smollm2 import fetch_gguf

    packed = fetch_gguf()
    kept = packed.with_name(packed.name.replace("Q4_1", "F16"))
    if kept.is_file():
        return kept
    model = GGUFReader(packed)
    with tempfile.TemporaryDirectory(dir=kept.parent) as folder:
        writer = GGUFWriter(Path(folder) / kept.name, model.fields["general.architecture"].contents())
        for name, field in model.fields.items():
            if name == "general.file_type":
                writer.add_file_type(LlamaFileType.MOSTLY_F16)
            elif name != "general.architecture" and not name.startswith("GGUF."):
                inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
                writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
        for tensor in model.tensors:
            values = dequantize(tensor.data, tensor.tensor_type)
            half = tensor.tensor_type != GGMLQuantizationType.F32
            writer.add_tensor(tensor.name, values.astype(np.float16 if half else np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        (Path(folder) / kept.name).replace(kept)  # atomic: a file with this name is always complete
    return kept


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
