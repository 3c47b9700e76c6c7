"""A copy of a model through Ray on a real GPU: the same answers as in process, also when the copy is killed in mid-run.

    PYTHONPATH=src python benchmarks/gpu/ray_copy.py TOKENIZER_FOLDER

A small Llama with random weights in float32, 16 documents to 32k with five questions each. The baseline is the same run
in this process; what Ray adds is its own start and that of the copy.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from leadline.core.answers import Completion
from leadline.core.spec import make_spec
from leadline.run.events import Answered, Event, ignore
from leadline.run.measure import measure
from leadline.store.runs import read_records

SHAPE = LlamaConfig(
    vocab_size=49152, hidden_size=1024, intermediate_size=2816, num_hidden_layers=16, num_attention_heads=16,
    num_key_value_heads=4, max_position_embeddings=65536, bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def make_model(folder: Path, tokenizer: Path) -> None:
    torch.manual_seed(0)
    LlamaForCausalLM(SHAPE).save_pretrained(folder)
    for file in tokenizer.iterdir():
        shutil.copy(file, folder)


def answers(model: Path, out: Path, *, ray: int | None, listen: Callable[[Event], None] = ignore) -> dict[str, str]:
    spec = {
        "model": f"hf:{model}?dtype=float32", "tasks": [{"name": "niah", "answer_tokens": 16}],
        "lengths": "1k,4k,16k,32k", "depths": 5, "samples": 4, "reading": "shared", "limits": {"ray": ray},
    }  # fmt: skip
    began = time.perf_counter()
    measure(make_spec(spec, where="benchmark"), out, listen=listen)
    found = {r.cell.key: r.outcome.text for r in read_records(out) if isinstance(r.outcome, Completion)}
    print(f"{out.name}: {len(found)} answers in {time.perf_counter() - began:.1f} s", flush=True)
    return found


class Killer:
    """Kills whatever else computes on the GPU, once, when the first answer has come."""

    def __init__(self) -> None:
        self.killed: list[int] = []
        self._begun = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, Answered) and not self._begun:
            self._begun = True
            threading.Thread(target=self._kill).start()

    def _kill(self) -> None:
        asked = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        for pid in map(int, subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()):
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
                self.killed.append(pid)


def main(tokenizer: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model, killer = Path(folder) / "model", Killer()
        make_model(model, tokenizer)
        here = answers(model, Path(folder) / "in process", ray=None)
        torch.cuda.empty_cache()
        for name, listen in (("one copy", ignore), ("a copy that is killed", killer)):
            found = answers(model, Path(folder) / name, ray=0, listen=listen)
            same = sum(found.get(key) == text for key, text in here.items())
            print(f"{name}: {same} of {len(here)} answers as in process", flush=True)
        print(f"processes killed: {len(killer.killed)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
