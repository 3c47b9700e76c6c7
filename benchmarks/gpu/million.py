"""One document of up to a million tokens on one GPU, nested at 9 lengths x 11 depths, with keys and values that spill.

    PYTHONPATH=src python benchmarks/gpu/million.py llama-8b                        1,048,576 tokens, some ten minutes
    PYTHONPATH=src python benchmarks/gpu/million.py gemma-3-4b
    PYTHONPATH=src python benchmarks/gpu/million.py llama-8b 262144 resident=8      a forced spill, and equality
    PYTHONPATH=src python benchmarks/gpu/million.py llama-8b 1048576 fp8

Random weights in bfloat16, 16 new tokens a probe. Prints the plan, progress every 65,536 tokens, then reading, probes,
the memory of device and host, and with `resident=` whether the answers equal those of the resident one.
"""

from __future__ import annotations

import resource
import sys
import time
from typing import Any

import shapes
import torch
from engine import GPU, clock, peak_bytes, synchronize
from shapes import DEPTHS, NEW

from leadline.models.hf.attention import DocumentPass
from leadline.models.hf.engine import Engine, EngineRequest
from leadline.models.hf.forecast import DocumentReading, forecast
from leadline.models.hf.memory import GIB, DecoderShape

LENGTHS = 9


def say(text: str) -> None:
    print(text, flush=True)


def follow_reading(engine: Engine, every: int) -> list[tuple[int, float]]:
    """Print, and return as it grows, after how many seconds how many tokens of the document are read."""
    run, begin, read, found = engine.reader.run, time.perf_counter(), [0], [(0, 0.0)]

    def counted(step: Any, ids: Any, positions: Any, *states: Any) -> Any:
        got = None
        try:
            got = run(step, ids, positions, *states)
        finally:  # a pass may end early
            if isinstance(step, DocumentPass):
                before = read[0]
                read[0] += step.count
                if before // every < read[0] // every:
                    synchronize()
                    found.append((read[0], time.perf_counter() - begin))
                    say(f"  {read[0]:>9,} tokens after {found[-1][1]:.1f} s, peak {peak_bytes() / GIB:.1f} GiB")
        return got

    setattr(engine.reader, "run", counted)  # noqa: B010
    return found


def main(
    shape: str, tokens: int = 1 << 20, resident: int | None = None, fp8: bool = False, *, twice: bool = True,
    tiny: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Returns what was measured. With `twice` the probes are asked again, when the document is in the KV cache."""
    begin = time.perf_counter()
    model = shapes.model_of(shape, "cuda" if GPU else "cpu", tiny=tiny)
    weights = torch.cuda.memory_allocated() if GPU else 0
    engine = Engine(model, [], resident=resident, fp8=fp8)
    say(f"{shape}, opened in {time.perf_counter() - begin:.1f} s, {engine.support}")
    lengths = tuple(tokens >> power for power in reversed(range(2 if tiny else LENGTHS)))
    ends = shapes.closings(0, len(lengths) * DEPTHS)
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
    peak_bytes(reset=True)
    read = follow_reading(engine, 65536 if tokens > 65536 else 512)
    whole, answers = clock(lambda: engine.answer(document, asks))
    probing, again = clock(lambda: engine.answer(document, asks)) if twice else (float("nan"), answers)
    kv_cache = engine.reader.kv_cache
    assert kv_cache is not None
    say(f"| {shape}, {tokens:,} tokens, {len(lengths)} x {DEPTHS} | {whole:.1f} s | probes alone {probing:.1f} s |")
    peak, most = peak_bytes() / GIB, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    extra = peak - (weights + kv_cache.bytes) / GIB if GPU else 0.0
    say(
        f"KV cache {kv_cache.bytes / GIB:.1f} GiB on the device, {kv_cache.host.bytes / GIB:.1f} GiB on the host; peak "
        f"{peak:.1f} GiB ({extra:.2f} beyond weights and KV cache); host process {most:.1f} GiB"
    )
    figures: dict[str, Any] = {
        "shape": shape, "tokens": tokens, "lengths": lengths, "depths": DEPTHS, "seconds": whole,
        "probes_seconds": probing if twice else None, "read": list(read), "plan": plan,
        "store_gib": kv_cache.bytes / GIB, "host_gib": kv_cache.host.bytes / GIB, "peak_gib": peak,
        "extra_gib": extra, "host_process_gib": most,
        "notes": answers[0].notes, "answered": [sum(one.answer is not None for one in answers), len(answers)],
    }  # fmt: skip
    say(f"notes: {answers[0].notes}; answered {figures['answered'][0]} of {len(answers)}; "
        f"the same twice: {sum(a.answer == b.answer for a, b in zip(answers, again, strict=True))}")  # fmt: skip
    if resident is not None:
        engine.close()
        engine.resident = None
        same = sum(a.answer == b.answer for a, b in zip(answers, engine.answer(document, asks), strict=True))
        figures["equal_to_resident"] = [same, len(asks)]
        say(f"answers equal to those of the resident KV cache: {same} of {len(asks)}")
    return figures


if __name__ == "__main__":
    words = sys.argv[2:]
    limits = [float(word.partition("=")[2]) for word in words if word.startswith("resident=")]
    main(
        sys.argv[1],
        next((int(word) for word in words if word.isdigit()), 1 << 20),
        int(limits[0] * GIB) if limits else None,
        "fp8" in words,
    )
