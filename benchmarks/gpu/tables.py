"""Everything that is stated about reading once on one GPU, in calls of at most ten minutes each.

    PYTHONPATH=src python benchmarks/gpu/tables.py --list                      the calls, and how long they take
    PYTHONPATH=src python benchmarks/gpu/tables.py --out DIR gemma gpt-oss     some steps: one call
    PYTHONPATH=src python benchmarks/gpu/figure.py DIR                         the figure for the README, no GPU needed
    PYTHONPATH=src python benchmarks/gpu/tables.py --out DIR --tiny            all steps on a CPU with tiny models

Figures are added to DIR/results.json after every part of a step, so that a call that is ended keeps what it has. The
plain loop is one `generate` per probe, timed once per length (twice below 32k, the second kept) in the same process and
multiplied by the probes of that length.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import delta
import engine
import million
import shapes
import torch
import transformers
from engine import GPU, Bench
from shapes import LENGTHS

from leadline.models.hf.memory import GIB

TINY = (256, 512)
Save = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Step:
    """A part of the tables, the call it belongs to, and about how many seconds it takes on an H200."""

    call: int
    seconds: int
    run: Callable[[bool, Save], None]
    what: str


def _bench(shape: str, lengths: tuple[int, ...], parts: Sequence[str]) -> Callable[[bool, Save], None]:
    def run(tiny: bool, save: Save) -> None:
        bench = Bench(shape, lengths=TINY if tiny else lengths, tiny=tiny)
        failures: list[Exception] = []
        for part in parts:
            try:
                delta.main(bench) if part == "delta" else getattr(bench, part)()
            except Exception as error:  # the next part may still be measured
                if tiny:
                    raise
                failures.append(error)
                print(f"{shape}, {part}: {type(error).__name__}: {str(error)[:500]}", flush=True)
            save(bench.figures)
        bench.engine.close()
        if failures:
            raise failures[0]

    return run


def _million(shape: str, tokens: int, *, twice: bool, resident: int | None = None) -> Callable[[bool, Save], None]:
    def run(tiny: bool, save: Save) -> None:
        limit = 0 if tiny and resident is not None else resident
        save(million.main(shape, 2048 if tiny else tokens, limit, twice=twice, tiny=tiny))

    return run


STEPS = {
    "delta": Step(4, 60, _bench("qwen3-next", LENGTHS[:5], ("delta", "long_reading")),
                  "Qwen 3 Next shape: the gated delta rule by kernels and by plain torch, launches, 128k, 88 probes"),
    "gemma-reading": Step(4, 40, _bench("gemma-3-4b", LENGTHS, ("reading",)), "Gemma-3-4B shape: 128k, 88 probes"),
    "gpt-oss-reading": Step(4, 60, _bench("gpt-oss-20b", LENGTHS, ("reading",)), "gpt-oss-20b shape: the same"),
    "gemma": Step(1, 90, _bench("gemma-3-4b", LENGTHS, ("baseline", "nested", "reading")),
                  "Gemma-3-4B shape: plain loop, 8 x 11 x 3 nested, reading 128k, memory"),
    "gpt-oss": Step(1, 100, _bench("gpt-oss-20b", LENGTHS, ("baseline", "nested", "reading")),
                    "gpt-oss-20b shape: the same, plain loop with flex_attention"),
    "hybrid": Step(1, 90, _bench("granite-4-h", LENGTHS[:5], ("baseline", "nested", "reading", "long_reading")),
                   "Granite 4 H Micro shape, torch's own kernels: the same, as far as the plain loop has memory"),
    "llama": Step(1, 110, _bench("llama-8b", LENGTHS, ("baseline", "nested", "reading", "equality")),
                  "Llama-8B shape: the same, and float32 answers compared with the plain path"),
    "million-8b": Step(2, 520, _million("llama-8b", 1 << 20, twice=False),
                       "one million tokens of the 8B shape, 9 lengths x 11 depths, with keys and values on the host"),
    "million-gemma": Step(3, 60, _million("gemma-3-4b", 1 << 20, twice=True), "one million tokens of the Gemma shape"),
    "spill": Step(3, 60, _million("llama-8b", 1 << 17, twice=False, resident=4 * GIB),
                  "128k tokens of the 8B shape with 4 GiB on the device: answers equal to those of the resident one"),
    "qwen3-next": Step(3, 60, _bench("qwen3-next", LENGTHS[:5], ("baseline", "nested", "reading", "long_reading")),
                       "Qwen 3 Next shape (12 of 48 layers, 128 of 512 experts), torch's own kernels, to 16k"),
}  # fmt: skip


def list_steps() -> str:
    lines = []
    for call in sorted({step.call for step in STEPS.values()}):
        names = [name for name, step in STEPS.items() if step.call == call]
        seconds = sum(STEPS[name].seconds for name in names)
        lines.append(f"call {call}, about {seconds} s: benchmarks/gpu/tables.py --out DIR {' '.join(names)}")
        lines.extend(f"    {name:14} {STEPS[name].seconds:4} s  {STEPS[name].what}" for name in names)
    total = sum(step.seconds for step in STEPS.values())
    return "\n".join([*lines, f"in all about {total / 60:.0f} minutes"])


def run_steps(names: Sequence[str], out: Path, *, tiny: bool) -> None:
    out.mkdir(parents=True, exist_ok=True)
    file = out / "results.json"
    results: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    machine = {"torch": torch.__version__, "transformers": transformers.__version__, "tiny": tiny,
               "device": torch.cuda.get_device_name() if GPU else "cpu"}  # fmt: skip
    for name in names:
        begin = time.perf_counter()

        def save(figures: dict[str, Any], name: str = name, begin: float = begin) -> None:
            results[name] = {**figures, **machine, "step_seconds": time.perf_counter() - begin}
            file.write_text(json.dumps(results, indent=1))

        try:
            STEPS[name].run(tiny, save)
        except Exception as error:  # the next step may still be measured
            if tiny:
                raise
            save({**results.get(name, {}), "error": f"{type(error).__name__}: {str(error)[:500]}"})
            print(f"{name}: {type(error).__name__}: {str(error)[:500]}", flush=True)
        gc.collect()
        if GPU:
            torch.cuda.empty_cache()
        print(f"{name}: {time.perf_counter() - begin:.0f} s in all", flush=True)
    print(table(results))


def table(results: dict[str, Any]) -> str:
    """What the steps found, as a table."""
    lines = [
        "| step | reading | nested | plain loop | times faster | beyond weights and KV cache |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in results.items():
        if "nested" in found and "plain" in found:
            plain, nested, read = found["plain"]["seconds"], found["nested"], found.get("reading")
            extra = max(nested["extra_gib"], (read or nested)["extra_gib"])
            reading = read and f"{read['tokens']:,} in {read['seconds']:.2f} s, {read['of_floor']:.2f} of the floor"
            figures = f"{nested['seconds']:.1f} s | {plain:.0f} s | {nested['times_faster']:.1f} | {extra:.2f} GiB"
            lines.append(f"| {name} | {reading or ''} | {figures} |")
        elif "read" in found:
            equal = found.get("equal_to_resident")
            more = f"; {equal[0]} of {equal[1]} equal to the resident KV cache" if equal else ""
            lines.append(f"| {name} | {found['tokens']:,} tokens | {found['seconds']:.1f} s{more} | | "
                         f"| {found['extra_gib']:.2f} GiB; host {found['host_gib']:.1f} GiB |")  # fmt: skip
        elif reading := found.get("reading", found.get("long_reading")):
            again = found.get("probes_again", found.get("long_probes_again"))
            probes = again and f"; {again['probes']} probes {again['seconds']:.2f} s"
            lines.append(f"| {name} | {reading['tokens']:,} in {reading['seconds']:.2f} s{probes or ''} | | | "
                         f"| {reading['extra_gib']:.2f} GiB |")  # fmt: skip
            ways = found.get("readings", {})
            for way, figures in ways.items():
                launches, spent = figures.get("launches", 0), figures.get("kernel_seconds", 0.0)
                shown = f"{figures['seconds']:.3f} s, {launches:,} launches of {spent:.3f} s"
                lines.append(f"| {name}, {way} | {shown} | | | | |")
        else:
            lines.append(f"| {name} | {found.get('error', 'not complete')} | | | | |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", choices=[*STEPS, []], help="all if none is named")
    parser.add_argument("--out", type=Path, default=Path("gpu-results"), help="folder for results.json")
    parser.add_argument("--list", action="store_true", help="show the calls and how long they take")
    parser.add_argument("--tiny", action="store_true", help="tiny models and lengths: a trial of the script itself")
    given = parser.parse_args()
    if given.list:
        print(list_steps())
        return
    if given.tiny:
        for module in (engine, million):
            setattr(module, "DEPTHS", 2)  # noqa: B010
        shapes.VOCABULARY = 1000
        engine.SAMPLES = 1
    run_steps(given.steps or list(STEPS), given.out, tiny=given.tiny)


if __name__ == "__main__":
    main()
