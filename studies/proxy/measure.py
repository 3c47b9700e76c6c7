"""Measures the zoo: every variant by retrieval accuracy and by every proxy, at the same lengths.

    python studies/proxy/measure.py OUT                             all of it, on a GPU: some 25 minutes on an H200
    python studies/proxy/measure.py OUT --size quick                a smaller grid: some six minutes
    python studies/proxy/measure.py OUT --size tiny --processes 1   to see whether it works

Each variant is measured in a process of its own, several at a time; a variant that fails is named and the others go on.
What is written: OUT/runs with every record, and OUT/records.jsonl.gz, which holds all of them in a compact form.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from zoo import ZOO, Variant, named

EVALUATOR = "native"
EVALUATED = 8192
"""The length at which LongPPL is measured, on key tokens that each variant finds and on those of the native model."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: documents of each length, and samples of each needle, depth and length."""

    documents: dict[int, int]
    samples: dict[int, int]
    depths: int
    evaluated: int

    def asked(self, length: int) -> dict[str, dict[str, Any]]:
        """By name, what is asked at a length."""
        needles = [
            {"name": "niah", "label": "prose", "haystack": "prose", "answer_tokens": 16},
            {"name": "niah", "label": "keys", "haystack": "prose", "keys": 4, "answer_tokens": 16},
        ]
        metrics = ["retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head"]
        proxies: dict[str, Any] = {"name": "proxies", "metrics": metrics}
        if length == self.evaluated:
            proxies |= {"metrics": [*metrics, "longppl"], **({} if length > 5120 else {"short": 512, "step": 256})}
        grid = {"depths": self.depths, "samples": self.samples[length]}
        return {
            "proxies": {"tasks": [proxies], "depths": "0.1..0.6:4", "samples": self.documents[length]},
            "accuracy": {"tasks": needles, **grid},
            "needle_gain": {"tasks": [{"name": "needle_gain", "keys": 4}], **grid},
        }


SIZES = {
    "full": Size({2048: 16, 4096: 16, 8192: 16, 16384: 12}, {2048: 10, 4096: 8, 8192: 6, 16384: 4}, 5, EVALUATED),
    "quick": Size({2048: 8, 4096: 8, 8192: 8, 16384: 6}, {2048: 6, 4096: 4, 8192: 3, 16384: 2}, 4, EVALUATED),
    "tiny": Size({1024: 1, 2048: 1}, {1024: 1, 2048: 1}, 2, 2048),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument(
        "--seconds", type=float, default=3600.0, help="nothing is begun after so long; run it again to go on"
    )
    parser.add_argument("--variants", default="", help="names, with commas between; all when empty")
    parser.add_argument("--size", default="full", choices=SIZES)
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        measure_variant(named([given.one])[0], given)
        return
    chosen = named(given.variants.split(",")) if given.variants else list(ZOO)
    given.out.mkdir(parents=True, exist_ok=True)
    spread(chosen, given)
    written = pack(given.out)
    print(f"{written} records in {given.out / 'records.jsonl.gz'}", flush=True)


def spread(variants: list[Variant], given: argparse.Namespace) -> None:
    """A process for each variant, so many at a time."""
    until = time.time() + given.seconds
    waiting, running = list(variants), {}
    while waiting or running:
        while waiting and len(running) < given.processes and time.time() < until:
            variant = waiting.pop(0)
            command = [sys.executable, __file__, str(given.out), "--model", given.model, "--one", variant.name]
            command += ["--dtype", given.dtype, "--until", str(until), "--size", given.size]
            log = (given.out / f"{folder_name(variant)}.log").open("w")
            running[variant.name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        if time.time() >= until and waiting:
            print(f"no time for: {', '.join(v.name for v in waiting)}", flush=True)
            waiting = []
        time.sleep(0.2)
        for name, process in list(running.items()):
            if process.poll() is not None:
                left = until - time.time()
                print(f"{name}: {'done' if process.returncode == 0 else 'FAILED'}, {left:.0f} s left", flush=True)
                if process.returncode:
                    print((given.out / f"{folder_name(named([name])[0])}.log").read_text()[-1500:], flush=True)
                del running[name]


def folder_name(variant: Variant) -> str:
    return variant.name.replace(" ", "-").replace("%", "")


# --- in a process of its own --------------------------------------------------------------------


def measure_variant(variant: Variant, given: argparse.Namespace) -> None:
    """Every run of one variant, longest first: what is most worth having comes first when time is short."""
    from views import open_variant, stretch_for

    from leadline.core.spec import make_spec
    from leadline.run import plan as planning
    from leadline.run.measure import measure

    model = open_variant(variant, given.model, dtype=given.dtype)
    model.close = lambda: None  # type: ignore[method-assign]
    planning.open_model = lambda spec: model
    size = SIZES[given.size]
    place = given.out / "runs" / folder_name(variant)
    for length in sorted(size.documents, reverse=True):
        stretch_for(model, variant, length)
        for name, values in size.asked(length).items():
            if time.time() > given.until:
                print(f"{variant.name} {name} {length}: no time", flush=True)
                continue
            begin, read = time.time(), model.engine.reader.tokens_read
            spec = make_spec({"model": f"hf:{given.model}", "lengths": length, **values})
            summary = measure(spec, place / f"{name}-{length}")
            seconds, tokens = time.time() - begin, model.engine.reader.tokens_read - read
            with (place / "costs.jsonl").open("a") as file:
                file.write(json.dumps({"what": name, "length": length, "seconds": seconds, "tokens": tokens}) + "\n")
            print(f"{variant.name} {name} {length}: {summary.done} in {seconds:.1f} s", flush=True)
    evaluated_longppl(variant, given, model)


def evaluated_longppl(variant: Variant, given: argparse.Namespace, model: Any) -> None:
    """LongPPL on the key tokens of the evaluator, whose run is waited for."""
    from views import stretch_for

    from leadline.core.spec import make_spec
    from leadline.run.measure import measure
    from leadline.store.runs import count_done

    size = SIZES[given.size]
    length, samples = size.evaluated, size.documents[size.evaluated]
    evaluator = given.out / "runs" / EVALUATOR / f"proxies-{length}"
    while time.time() < given.until:
        try:
            if count_done(evaluator)[0] == samples * 4:
                break
        except OSError:
            pass
        time.sleep(1)
    else:
        return
    stretch_for(model, variant, length)
    task = {"name": "proxies", "metrics": ["longppl"], "evaluator": str(evaluator), "label": "evaluated"}
    spec = make_spec({"model": f"hf:{given.model}", "lengths": length, "tasks": [task], "samples": samples})
    measure(spec, given.out / "runs" / folder_name(variant) / f"evaluated-{length}")


# --- everything in one file ---------------------------------------------------------------------


def pack(out: Path) -> int:
    """Lines of [variant, run, task, length, depth, sample, cluster, numbers or score, tokens, seconds]."""
    from leadline.core.types import Measured
    from leadline.store.runs import read_records

    count = 0
    with gzip.open(out / "records.jsonl.gz", "wt") as file:
        for variant in ZOO:
            place = out / "runs" / folder_name(variant)
            for run in sorted(p for p in place.glob("*-*") if (p / "records.jsonl").is_file()):
                for r in read_records(run):
                    numbers = (
                        {k: round(v, 5) for k, v in r.outcome.numbers.items()}
                        if isinstance(r.outcome, Measured)
                        else r.score
                    )
                    row = [variant.name, run.name, r.cell.task, r.cell.length, r.cell.depth, r.cell.sample, r.cluster,
                           numbers, r.prompt_tokens, round(r.seconds, 4)]  # fmt: skip
                    file.write(json.dumps(row) + "\n")
                    count += 1
            costs = place / "costs.jsonl"
            if costs.is_file():
                for line in costs.read_text().splitlines():
                    file.write(json.dumps([variant.name, "cost", json.loads(line)]) + "\n")
    return count


if __name__ == "__main__":
    main()
