"""What each part of the engine brings: a reading and its probes with all of them, and with one left out, in turn.

    PYTHONPATH=src python benchmarks/gpu/left_out.py qwen3-next 16384,131072     a shape, and lengths (128k if none)
    PYTHONPATH=src python benchmarks/gpu/left_out.py gemma-3-4b 1024 --tiny         on a CPU, a trial of the script

    inner states    states at cuts are taken while a pass goes on; without, a pass ends at every cut
    convolution     the kernel for the convolution before a scan
    gated norms     the kernel for norms with a gate
    delta rule      the three kernels of the gated delta rule; without, they are products of matrices in plain torch
    windows         the kernel that leaves out the keys before a window; without, blocks with masks
    rows            the kernels for the attention of rows after cuts

Best of three after a warm-up, in one process. Parts that a shape has no use for are not tried. Answers may differ: with
random weights in bfloat16 another order of rounding often chooses another token.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import delta
import engine
import shapes
from engine import Bench, clock

from leadline.models.hf import attention, partial_attention
from leadline.models.hf.reader import rows_of
from leadline.models.hf.scans import causal_conv

TIMES = 3
Way = Callable[[], AbstractContextManager[Any]]


def ways_of(bench: Bench) -> dict[str, Way]:
    """All parts, then one left out of those that this shape uses."""
    reader = bench.engine.reader
    ways: dict[str, Way] = {"everything": nullcontext}
    if reader.keeper is not None and reader.keeper.takes_inner:
        ways["without inner states"] = lambda: patch.object(reader.keeper, "takes_inner", False)
    others = [each for each in reader.replacements if each.function is not causal_conv]
    if len(others) < len(reader.replacements):
        ways["without convolution"] = lambda: patch.object(reader, "replacements", others)
    gated = [m for m in bench.model.modules() if "Gated" in type(m).__name__ and "forward" in vars(m)]
    if gated:
        ways["without gated norms"] = lambda: own_forward(gated)
    if any("delta" in each.name for each in others):
        ways["without delta rule"] = delta.without_kernels
    if reader.windows:
        ways["without windows"] = lambda: patch.object(partial_attention, "window_kernel_for", lambda *_: None)
    stepped: set[tuple[int, ...]] = set()
    ways["without rows"] = lambda: without_row_kernels(reader, stepped)
    return ways


@contextmanager
def own_forward(modules: list[Any]) -> Iterator[None]:
    """The modules with transformers' own code."""
    fused = [module.forward for module in modules]
    for module in modules:
        module.forward = module.forward.leadline_own
    try:
        yield
    finally:
        for module, forward in zip(modules, fused, strict=True):
            module.forward = forward


@contextmanager
def without_row_kernels(reader: Any, stepped: set[tuple[int, ...]]) -> Iterator[None]:
    """A step is recorded only after one of its shape, with the same kernels, has been made."""
    with patch.object(attention, "rows_kernels", lambda *_: None), patch.object(reader, "stepped", stepped):
        yield


def main(shape: str, lengths: list[int], *, tiny: bool = False) -> dict[str, Any]:
    bench = Bench(shape, lengths=shapes.LENGTHS[:1], tiny=tiny)
    reader, ways = bench.engine.reader, ways_of(bench)
    found: dict[str, Any] = {}
    for longest in lengths:
        grid = tuple(sorted({length for length in (*shapes.LENGTHS, longest) if length <= longest}))
        document, ends = shapes.document(7, longest), shapes.closings(7, len(grid) * engine.DEPTHS)  # type: ignore[attr-defined]
        cuts = shapes.cuts(grid, ends)
        asks = engine.asks_of(cuts, ends)
        bases = sorted({row.base for row in rows_of(document, cuts, ends)})

        def read(document: Any = document, bases: list[int] = bases) -> None:
            reader.forget()
            reader.read(document[: bases[-1]], cuts=bases)

        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(TIMES + 1):
            for name, way in ways.items():
                with way():
                    seconds, _ = clock(read)
                    answering, _ = clock(lambda d=document, a=asks: bench.engine.answer(d, a))  # type: ignore[misc]
                    spent[name].append((seconds, answering))
        best = {name: tuple(map(min, zip(*pairs[1:], strict=True))) for name, pairs in spent.items()}
        for name, (reading, probes) in best.items():
            slower = 100 * (reading / best["everything"][0] - 1)
            print(f"{shape}, {longest}, {name}: reading {reading:.4f} s ({slower:+.1f} %), "
                  f"{len(asks)} probes {probes:.4f} s", flush=True)  # fmt: skip
        print(f"kernels of a reading: {delta.profiled(read)}", flush=True)
        found[str(longest)] = best
    return found


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--tiny"]
    if len(words) < len(sys.argv) - 1:  # a trial of the script itself, on a CPU
        shapes.VOCABULARY = 1000
        setattr(engine, "DEPTHS", 2)  # noqa: B010
    wanted = words[1].split(",") if len(words) > 1 else ["131072"]
    main(words[0], [int(length) for length in wanted], tiny=len(words) < len(sys.argv) - 1)
