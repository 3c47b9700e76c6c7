"""One document of up to a million tokens on one GPU, nested at 9 lengths x 11 depths, with keys and values that spill.

    PYTHONPATH=src python benchmarks/gpu/million.py llama-8b                        1,048,576 tokens, some ten minutes
    PYTHONPATH=src python benchmarks/gpu/million.py gemma-3-4b
    PYTHONPATH=src python benchmarks/gpu/million.py llama-8b 262144 resident=8      a forced spill, and equality
    PYTHONPATH=src python benchmarks/gpu/million.py llama-8b 1048576 fp8

Random weights in bfloat16, 16 new tokens a probe. Prints the plan, progress every 65,536 tokens, then reading, probes,
the memory of device and host, and with `resident=` whether the answers equal those of the resident store.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import shapes
import torch
from shapes import DEPTHS, NEW

from leadline.models.hf.engine import Engine, EngineRequest
from leadline.models.hf.memory import GIB, DecoderShape, DocumentReading, forecast

LENGTHS = 9


def say(text: str) -> None:
    print(text, flush=True)


def show_progress(engine: Engine) -> None:
    """Print the time of every 65,536 tokens read."""
    run, begin, read = engine.reader.run, time.perf_counter(), [0]

    def counted(step: Any, ids: Any, positions: Any, *states: Any) -> Any:
        before = read[0]
        read[0] += ids.shape[1] if ids.shape[0] == 1 else 0
        if before // 65536 < read[0] // 65536:
            torch.cuda.synchronize()
            say(f"  {read[0]:>9,} tokens after {time.perf_counter() - begin:.1f} s")
        return run(step, ids, positions, *states)

    setattr(engine.reader, "run", counted)  # noqa: B010


def main(shape: str, tokens: int = 1 << 20, resident: int | None = None, fp8: bool = False) -> None:
    begin = time.perf_counter()
    model = shapes.model_of(shape)
    weights = torch.cuda.memory_allocated()
    engine = Engine(model, [], resident=resident, fp8=fp8)
    say(f"{shape}, opened in {time.perf_counter() - begin:.1f} s, {engine.support}")
    lengths = tuple(tokens >> power for power in reversed(range(LENGTHS)))
    ends = shapes.closings(0, LENGTHS * DEPTHS)
    cuts, document = shapes.cuts(lengths, ends), shapes.document(0, tokens)
    asks = [EngineRequest(cut, end, NEW) for cut, end in zip(cuts, ends, strict=True)]
    probes = tuple((cut, len(end), NEW) for cut, end in zip(cuts, ends, strict=True))
    plan = forecast(
        DecoderShape.of(model.config.to_dict()), [DocumentReading(probes)], lambda: engine.measure_speed(tokens),
        dtype="bfloat16", weights=weights, chunk=engine.chunk, devices=[engine.reader.device], where=shape, fp8=fp8,
        resident=resident,
    )  # fmt: skip
    for line in plan:
        say(f"plan: {line}")
    torch.cuda.reset_peak_memory_stats()
    show_progress(engine)
    begin = time.perf_counter()
    answers = engine.answer(document, asks)
    torch.cuda.synchronize()
    whole = time.perf_counter() - begin
    begin = time.perf_counter()
    again = engine.answer(document, asks)  # the document is in the store
    probing = time.perf_counter() - begin
    store = engine.reader.store
    assert store is not None
    say(f"| {shape}, {tokens:,} tokens, {LENGTHS} x {DEPTHS} | {whole:.1f} s in all | probes alone {probing:.1f} s |")
    peak, most = torch.cuda.max_memory_allocated() / GIB, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    extra = peak - (weights + store.bytes) / GIB
    say(
        f"store {store.bytes / GIB:.1f} GiB on the device, {store.host_bytes / GIB:.1f} GiB on the host; peak "
        f"{peak:.1f} GiB ({extra:.2f} beyond weights and store); host process {most:.1f} GiB"
    )
    say(f"notes: {answers[0].notes}; answered {sum(one.answer is not None for one in answers)} of {len(answers)}; "
        f"the same twice: {sum(a.answer == b.answer for a, b in zip(answers, again, strict=True))}")  # fmt: skip
    if resident is not None:
        engine.close()
        engine.resident = None
        same = sum(a.answer == b.answer for a, b in zip(answers, engine.answer(document, asks), strict=True))
        say(f"answers equal to those of the resident store: {same} of {len(asks)}")


if __name__ == "__main__":
    words = sys.argv[2:]
    limits = [float(word.partition("=")[2]) for word in words if word.startswith("resident=")]
    main(
        sys.argv[1],
        next((int(word) for word in words if word.isdigit()), 1 << 20),
        int(limits[0] * GIB) if limits else None,
        "fp8" in words,
    )
