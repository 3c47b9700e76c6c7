"""Measures the zoo: every variant by retrieval accuracy and by every proxy, at the same lengths.

    python studies/proxy/measure.py OUT                          all of it, on a GPU (some seven minutes on an H200)
    python studies/proxy/measure.py OUT --processes 1 --tiny     a grid small enough for a laptop

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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from zoo import ZOO, Variant, named

LENGTHS = (2048, 4096, 8192, 16384)
EVALUATOR = "native"
EVALUATED = 8192
"""The length at which LongPPL takes the key tokens that the native model finds."""


def grids(tiny: bool) -> tuple[tuple[int, ...], dict[str, dict[str, Any]]]:
    """Lengths, and by name what is asked at each of them."""
    many = not tiny
    needles = [
        {"name": "niah", "label": "noise", "haystack": "noise", "answer_tokens": 16},
        {"name": "niah", "label": "prose", "haystack": "prose", "answer_tokens": 16},
        {"name": "niah", "label": "keys", "haystack": "prose", "keys": 4, "answer_tokens": 16},
    ]
    proxies = {"name": "proxies", **({} if many else {"short": 512, "step": 256})}
    asked = {
        "proxies": {"tasks": [proxies], "depths": "0.1..0.6:4", "samples": 12 if many else 1},
        "accuracy": {"tasks": needles, "depths": 5 if many else 2, "samples": 5 if many else 1},
        "needle_gain": {"tasks": ["needle_gain"], "depths": 5 if many else 2, "samples": 4 if many else 1},
    }
    return (LENGTHS if many else (1024, 2048)), asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=400.0, help="no length is begun after so long")
    parser.add_argument("--variants", default="", help="names, with commas between; all when empty")
    parser.add_argument("--tiny", action="store_true")
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
            command += ["--dtype", given.dtype, "--until", str(until)] + (["--tiny"] if given.tiny else [])
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
    lengths, asked = grids(given.tiny)
    place = given.out / "runs" / folder_name(variant)
    for length in sorted(lengths, reverse=True):
        stretch_for(model, variant, length)
        for name, values in asked.items():
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

    length = max(grids(True)[0]) if given.tiny else EVALUATED
    evaluator = given.out / "runs" / EVALUATOR / f"proxies-{length}"
    samples = 1 if given.tiny else 12
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
