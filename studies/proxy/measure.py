"""Measures the zoo: every variant by retrieval accuracy and by every proxy, at the same lengths.

    python studies/proxy/measure.py OUT --seconds 400               proxies and needles, on a GPU
    python studies/proxy/measure.py OUT --seconds 400 --no-proxies --size targets --tasks kv,vt,fwe,qa,cwe
                                                                    targets of another kind
    python studies/proxy/measure.py OUT --seconds 300 --no-proxies --size maps --tasks map      nested maps to 32k
    python studies/proxy/measure.py OUT --size tiny --rounds 0-0    to see whether it works

Each variant is measured in a process of its own, all of them side by side; one that fails is named, the others go on.
Proxies come first. Then answers are asked for in rounds, each with samples of its own, until there is no time left:
what is compared in the end are the rounds that every variant has finished. What is written: OUT/runs with every record,
and OUT/records.jsonl.gz, which holds all of them in a compact form and is made anew every minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from zoo import ZOO, Variant, named

EVALUATOR = "native"
"""Its key tokens are the ones on which LongPPL is measured a second time."""
METRICS = ["retrieval_gain", "retrieval_nll", "mean_nll", "tail_loss", "tail_vs_head"]
ANCHORS = [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
DEPTHS = [0.05, 0.35, 0.65, 0.95]
MAP_LENGTHS = [1024, 2048, 4096, 8192, 16384, 32768]
NEEDLE = {"name": "niah_single", "haystack": "prose", "answer_tokens": 12}
TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "single": ({**NEEDLE, "label": "single"}, "fresh"),
    "keys": ({**NEEDLE, "label": "keys"}, "shared"),
    "kv": ({"name": "kv", "key_kind": "words", "value_kind": "numbers", "answer_tokens": 12}, "shared"),
    "vt": ({"name": "vt", "hops": 1}, "fresh"),
    "fwe": ({"name": "fwe", "placement": "anywhere"}, "fresh"),
    "qa": ({"name": "qa_fiction_1", "label": "qa", "namesakes": 0, "answer_tokens": 16}, "shared"),
    "cwe": ({"name": "cwe", "placement": "anywhere", "num_cw": 5, "answer_tokens": 50}, "fresh"),
    "map": ({"name": "niah", "label": "map", "answer_tokens": 12}, "nested"),
    "single_map": ({**NEEDLE, "label": "single_map"}, "nested"),
}
"""What is asked, and how it is read. A map is one document with a needle for each length and depth. In shared reading a
document carries four needles and is asked for each of them: a needle among three others, as in RULER's multi-key task,
for a quarter of the reading. The targets of another kind have options that this model can do something with: with
RULER's it finds next to nothing even at 1k."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: documents of each length for proxies, and samples of each task and depth in a round."""

    documents: dict[int, int]
    samples: dict[int, int]
    evaluated: int
    """The length at which LongPPL is measured, on key tokens that each variant finds and on those of the evaluator."""

    @property
    def lengths(self) -> list[int]:
        """Longest first, so that running out of memory is found at once."""
        return sorted(self.documents, reverse=True)


SIZES = {
    "full": Size({2048: 16, 4096: 16, 8192: 12, 16384: 8}, {2048: 6, 4096: 6, 8192: 4, 16384: 2}, 8192),
    "targets": Size({1024: 0, 2048: 0, 4096: 0, 8192: 0}, {1024: 6, 2048: 6, 4096: 4, 8192: 2}, 8192),
    "maps": Size(dict.fromkeys(MAP_LENGTHS, 0), dict.fromkeys(MAP_LENGTHS, 1), 8192),
    "tiny": Size({512: 2, 1024: 2}, {512: 1, 1024: 1}, 1024),
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one variant, under the name of its folder."""

    name: str
    length: int
    values: dict[str, Any]


def proxy_runs(size: Size) -> Iterator[Run]:
    for length in size.lengths:
        task: dict[str, Any] = {"name": "proxies", "metrics": METRICS}
        if length == size.evaluated:
            task |= {"metrics": [*METRICS, "longppl"], **({} if length > 5120 else {"short": 256, "step": 128})}
        grid = {"depths": ANCHORS, "samples": size.documents[length]}
        yield Run(f"proxies-{length}", length, {"tasks": [task], **grid})
        # Its label gives it other documents than accuracy's: what both share would look like agreement.
        needle = {"name": "needle_gain", "label": "needle_gain"}
        grid = {"depths": "0.05..0.95:8", "samples": max(2, size.documents[length] // 2), "reading": "shared"}
        yield Run(f"needle_gain-{length}", length, {"tasks": [needle], **grid})


def accuracy_runs(size: Size, tasks: list[str], number: int) -> Iterator[Run]:
    """A round: every task at every length, with samples that no other round has."""
    for name in tasks:
        task, reading = TASKS[name]
        if reading == "nested":
            grid = {"lengths": size.lengths[::-1], "depths": 11, "samples": 1, "reading": reading, "seed": number}
            yield Run(f"{name}-{number}", size.lengths[0], {"tasks": [task], **grid})
            continue
        for length in size.lengths:
            samples = size.samples[length] * (len(DEPTHS) if task.get("placement") == "anywhere" else 1)
            grid = {"depths": DEPTHS, "samples": samples, "reading": reading, "seed": number}
            yield Run(f"accuracy-{length}-{name}-{number}", length, {"tasks": [task], **grid})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="smollm2", help="a folder, or smollm2, which is fetched")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--seconds", type=float, default=3600.0, help="nothing is begun after so long")
    parser.add_argument("--rounds", default="0-99", help="of answers: the first and the last")
    parser.add_argument("--no-proxies", action="store_true", help="answers only")
    parser.add_argument("--tasks", default="single,keys", help="what is asked, with commas between")
    parser.add_argument("--variants", default="", help="names, with commas between; all when empty")
    parser.add_argument("--size", default="full", choices=SIZES)
    given = parser.parse_args()
    first, _, last = given.rounds.partition("-")
    given.rounds = range(int(first), int(last) + 1)
    given.until = time.time() + given.seconds
    chosen = named(given.variants.split(",")) if given.variants else list(ZOO)
    spread(chosen, given)
    print(f"{pack(given.out)} records in {given.out / 'records.jsonl.gz'}", flush=True)


def spread(variants: list[Variant], given: argparse.Namespace) -> None:
    """A process for each variant. They are forked, so that what takes long to import is imported once."""
    import views  # noqa: F401

    import leadline.run.measure  # noqa: F401

    (given.out / "runs").mkdir(parents=True, exist_ok=True)
    forks = multiprocessing.get_context("fork")
    running = {v.name: forks.Process(target=measure_variant, args=(v, given)) for v in variants}
    for process in running.values():
        process.start()
    packed = time.time()
    while running:
        time.sleep(0.5)
        for name, process in list(running.items()):
            if not process.is_alive():
                print(f"{name}: {'done' if process.exitcode == 0 else 'FAILED'}", flush=True)
                if process.exitcode:
                    print(log_file(given.out, name).read_text()[-1500:], flush=True)
                del running[name]
        if time.time() > packed + 60:
            pack(given.out)
            packed = time.time()


def folder_name(name: str) -> str:
    return name.replace(" ", "-").replace("%", "")


def log_file(out: Path, name: str) -> Path:
    return out / "runs" / f"{folder_name(name)}.log"


# --- in a process of its own --------------------------------------------------------------------


def measure_variant(variant: Variant, given: argparse.Namespace) -> None:
    with log_file(given.out, variant.name).open("a", buffering=1) as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            Measuring(variant, given).everything()
        except BaseException:
            traceback.print_exc()
            raise


class Measuring:
    """One variant, opened once for all its runs."""

    def __init__(self, variant: Variant, given: argparse.Namespace) -> None:
        from views import open_variant

        from leadline.run import plan as planning

        self.variant, self.given = variant, given
        self.size = SIZES[given.size]
        self.place = given.out / "runs" / folder_name(variant.name)
        self.place.mkdir(parents=True, exist_ok=True)
        self.model = open_variant(variant, given.model, dtype=given.dtype)
        self.model.close = lambda: None  # type: ignore[method-assign]
        planning.open_model = lambda *_, **__: self.model

    def everything(self) -> None:
        for run in () if self.given.no_proxies else proxy_runs(self.size):
            self.measure(run)
        for number in self.given.rounds:
            for run in accuracy_runs(self.size, self.given.tasks.split(","), number):
                self.measure(run)
            if number == 0 and not self.given.no_proxies:
                self.evaluated_longppl()

    def measure(self, run: Run) -> None:
        """A run, unless it is done or there is no time for it. What it took is noted beside it."""
        from views import stretch_for

        from leadline.core.spec import make_spec
        from leadline.run.measure import measure

        begin = time.time()
        if (self.place / run.name / "cost.json").exists() or begin > self.given.until:
            return
        stretch_for(self.model, self.variant, run.length)
        read = self.model.engine.reader.tokens_read
        spec = make_spec({"model": f"hf:{self.given.model}", "lengths": run.length, **run.values})
        answered = measure(spec, self.place / run.name).totals.done
        seconds, tokens = time.time() - begin, self.model.engine.reader.tokens_read - read
        cost = {"length": run.length, "seconds": round(seconds, 3), "tokens": tokens}
        (self.place / run.name / "cost.json").write_text(json.dumps(cost))
        print(f"{run.name}: {answered} in {seconds:.1f} s, {self.given.until - time.time():.0f} s left", flush=True)

    def evaluated_longppl(self) -> None:
        """LongPPL on the key tokens of the evaluator, whose run is waited for."""
        length, samples = self.size.evaluated, self.size.documents[self.size.evaluated]
        evaluator = self.given.out / "runs" / folder_name(EVALUATOR) / f"proxies-{length}"
        while not (evaluator / "cost.json").exists():
            if time.time() > self.given.until:
                return
            time.sleep(1)
        task = {"name": "proxies", "metrics": ["longppl"], "evaluator": str(evaluator), "label": "evaluated"}
        self.measure(Run(f"evaluated-{length}", length, {"tasks": [task], "samples": samples}))


# --- everything in one file ---------------------------------------------------------------------


def pack(out: Path) -> int:
    """Lines of [variant, run, task, length, depth, sample, document, numbers or score], and one with the cost of each
    run that was finished. What is still being written is left out."""
    from leadline.core.answers import Measurement
    from leadline.store.runs import read_records

    count, made = 0, out / "records.jsonl.gz"
    with gzip.open(made.with_suffix(".part"), "wt") as file:
        for variant in ZOO:
            for cost in sorted((out / "runs" / folder_name(variant.name)).glob("*/cost.json")):
                run = cost.parent
                file.write(json.dumps([variant.name, run.name, "cost", json.loads(cost.read_text())]) + "\n")
                for r in read_records(run):
                    value: Any = r.score
                    if isinstance(r.outcome, Measurement):
                        value = {k: round(v, 4) for k, v in r.outcome.numbers.items() if not k.endswith("_bits")}
                    row = [variant.name, run.name, r.cell.task, r.cell.length, r.cell.depth, r.cell.sample, r.cluster,
                           value]  # fmt: skip
                    file.write(json.dumps(row) + "\n")
                    count += 1
    made.with_suffix(".part").replace(made)
    return count


if __name__ == "__main__":
    main()
