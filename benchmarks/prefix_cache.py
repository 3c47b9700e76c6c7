"""How much of what could come from a server's prefix cache does, and what that is worth in time.

    python benchmarks/prefix_cache.py                    llama.cpp (xllamacpp)
    python benchmarks/prefix_cache.py --vllm PYTHON      vLLM, from the environment of that interpreter
    python benchmarks/prefix_cache.py --url URL          a server that runs already and serves the model `smollm2`

SmolLM2-135M-Instruct, one run in each reading mode over the same grid and server, `fresh` first. Each mode has another
seed, so that no mode finds in the cache what another has read.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from leadline.core.spec import make_spec
from leadline.core.types import READINGS
from leadline.models.hf.smollm2 import ensure_folder, fetch_gguf
from leadline.results.totals import Totals
from leadline.run.measure import measure
from support.llama_server import MODEL, LlamaServer

GOAL = 0.85
WINDOW = 2048
START_SECONDS = 600


@contextmanager
def llama() -> Iterator[str]:
    with LlamaServer(fetch_gguf(), window=WINDOW) as server:
        yield server.base_url


@contextmanager
def vllm(python: str) -> Iterator[str]:
    """`vllm serve` on a free port, with receipts of the cache."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        python, "-m", "vllm.entrypoints.cli.main", "serve", str(ensure_folder()), "--served-model-name", MODEL,
        "--dtype", "float32", "--enforce-eager", "--max-model-len", str(WINDOW), "--port", str(port),
        "--host", "127.0.0.1", "--enable-prompt-tokens-details",
    ]  # fmt: skip
    settings = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, env={**os.environ, **settings}, stdout=log, stderr=log)
        try:
            _wait(f"http://127.0.0.1:{port}/health", server)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait(60)


def _wait(url: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and server.poll() is None:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    raise SystemExit("the server did not start")


def measured(base_url: str, reading: str, seed: int, args: argparse.Namespace) -> tuple[float, Totals]:
    spec = make_spec(
        {
            "model": f"openai:{MODEL}?base_url={base_url}", "tasks": ["niah"], "lengths": args.lengths,
            "depths": args.depths, "samples": args.samples, "reading": reading, "seed": seed,
        }
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        run = measure(spec, folder)
        return time.monotonic() - begin, run.totals


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", metavar="PYTHON", help="an interpreter with vllm or vllm-cpu")
    parser.add_argument("--url", metavar="URL", help="of a server that runs already, such as http://127.0.0.1:8000/v1")
    parser.add_argument("--lengths", default="512,1024")
    parser.add_argument("--depths", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found: list[dict[str, Any]] = []
    running = nullcontext(args.url) if args.url else vllm(args.vllm) if args.vllm else llama()
    with running as base_url:
        measured(base_url, "fresh", 99, argparse.Namespace(lengths="512", depths=1, samples=1))  # the first is slow
        for seed, reading in enumerate(READINGS, 1):
            seconds, totals = measured(base_url, reading, seed, args)
            use = totals.cache
            times = found[0]["seconds"] / seconds if found else 1.0
            row = {"reading": reading, "seconds": seconds, "times": times, "answers": totals.done, **use.values()}
            found.append(row)
            share = "-" if use.hit_share is None else f"{100 * use.hit_share:.1f}%"
            print(
                f"{reading:7} {seconds:7.1f} s  {times:5.1f} x  {use.prompt_tokens:8,} prompt tokens, "
                f"{use.prompt_tokens - use.cached_tokens:8,} read, {share} of what could come from the cache",
                flush=True,
            )
    if args.json:
        print(json.dumps(found))
    shares = [row["hit_share"] for row in found[1:]]
    if any(share is None or share < GOAL for share in shares):
        raise SystemExit(f"less than {GOAL:.0%} of what could come from the cache did")


if __name__ == "__main__":
    main()
