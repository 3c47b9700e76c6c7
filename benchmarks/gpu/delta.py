"""The gated delta rule by kernels and by plain torch, in turn in one process.

    PYTHONPATH=src python benchmarks/gpu/tables.py --out DIR delta          one layer, and Qwen 3 Next's reading of 16k

`trial` makes the comparison that decides whether the kernels are used. `layer` times the rule alone, on random inputs
of one layer of that model; `readings` reads a document in every way, best of three, and then once more under torch's
profiler, which counts launches and their time on the GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import engine
import shapes
import torch
from engine import GPU, Bench, clock

from leadline.models.hf import scans
from leadline.models.hf.reader import rows_of

TIMES = 3


@contextmanager
def without_kernels() -> Iterator[None]:
    """The gated delta rule in plain torch."""
    own = scans.delta_kernels
    scans.delta_kernels = lambda device: None
    try:
        yield
    finally:
        scans.delta_kernels = own


WAYS: dict[str, Callable[[], Any]] = {"kernels": nullcontext, "plain torch": without_kernels}


def profiled(work: Callable[[], Any]) -> dict[str, Any]:
    """Launches and their seconds on the GPU, and those that take longest."""
    if not GPU:
        work()
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        clock(work)
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    events = [event for event in events if event.self_device_time_total > 0]
    for event in events[:20]:
        print(f"{event.self_device_time_total / 1e6:7.4f} s {event.count:6} x {event.key[:110]}", flush=True)
    return {"launches": sum(event.count for event in events),
            "kernel_seconds": sum(event.self_device_time_total for event in events) / 1e6}  # fmt: skip


def trial(figures: dict[str, Any]) -> None:
    """The comparison that decides whether the kernels are used, with what a compiler says if they cannot be."""
    figures["kernels are used"] = scans.delta_kernels(torch.device("cuda" if GPU else "cpu")) is not None
    print(f"kernels are used: {figures['kernels are used']}", flush=True)
    if not GPU:
        return
    from leadline.models.hf import delta_kernels

    given = scans._delta_inputs(torch.device("cuda"))
    kernel = partial(delta_kernels.delta_rule, *given, normed=True)
    plain = partial(scans._delta_products, *given, normed=True, chunk=scans.DELTA_CHUNK)
    with torch.inference_mode():
        pairs = list(zip(kernel(), plain(), strict=True))
        errors = [float((got.float() - want.float()).norm() / want.float().norm()) for got, want in pairs]
        times = [scans._milliseconds(work) for work in (kernel, plain)]
    figures["trial"] = {"errors": errors, "milliseconds": times}
    print(f"errors of outputs and states {errors}; {times[0]:.2f} and {times[1]:.2f} ms", flush=True)


def layer(figures: dict[str, Any]) -> None:
    """The rule alone over 16k tokens."""
    device = torch.device("cuda" if GPU else "cpu")
    query, key, value, decay, rate, state = scans._delta_inputs(device, *((16384,) if GPU else (70, 16)))
    options: dict[str, Any] = {"initial_state": state, "output_final_state": True, "use_qk_l2norm_in_kernel": True}
    work = partial(scans.gated_delta_rule, query, key, value, decay, rate, **options)
    with torch.inference_mode():
        for name, way in WAYS.items():
            with way():
                work()
                seconds = min(clock(work)[0] for _ in range(TIMES))
                figures.setdefault("layer", {})[name] = {"seconds": seconds, **profiled(work)}
            print(f"one layer, {query.shape[1]} tokens, {name}: {1000 * seconds:.2f} ms", flush=True)


def readings(bench: Bench, figures: dict[str, Any]) -> None:
    """Of a document as in a run, where states are kept at the cuts."""
    bench.engine.close()
    reader, document = bench.engine.reader, shapes.document(7, bench.lengths[-1])
    ends = shapes.closings(7, len(bench.lengths) * engine.DEPTHS)  # type: ignore[attr-defined]
    cuts = shapes.cuts(bench.lengths, ends)
    bases = sorted({row.base for row in rows_of(document, cuts, ends)})

    def read() -> None:
        reader.forget()
        reader.read(document[: bases[-1]], cuts=bases)

    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(TIMES + 1):  # the first is a warm-up
        for name, way in WAYS.items():
            with way():
                seconds[name].append(clock(read)[0])
    for name, way in WAYS.items():
        best = min(seconds[name][1:])
        print(f"reading {bases[-1]} tokens, {name}: {best:.3f} s, {reader.chunk} a pass", flush=True)
        with way():
            found = {"seconds": best, "chunk": reader.chunk, **profiled(read)}
        figures.setdefault("readings", {})[name] = found


def main(bench: Bench) -> None:
    """All of them, into the figures of the benchmark; a failure of one does not lose the others."""
    for part in (trial, layer, partial(readings, bench)):
        try:
            part(bench.figures)
        except Exception as error:
            if not GPU:
                raise
            said = f"{type(error).__name__}: {str(error)[:500]}"
            bench.figures.setdefault("delta_errors", []).append(said)
            print(said, flush=True)
