"""What a run will cost on this very device: its memory, and how fast it was just measured to be."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from leadline.models.in_process.memory import GIB, OVERHEAD, Cost, Reading, Shape, cost, refuse_what_cannot_fit


@dataclass(frozen=True, slots=True)
class Rates:
    """Operations and bytes a second, as measured."""

    flops: float
    bytes: float


def measure_rates(device: torch.device, dtype: torch.dtype) -> Rates:
    """A matrix product and a copy, large enough to keep the device busy and small enough not to be noticed."""
    size = 4096 if device.type == "cuda" else 768
    a = torch.randn(size, size, device=device).to(dtype)
    flops = 2 * size**3 / _seconds(lambda: a @ a, device)
    block = torch.zeros((1 << 28) if device.type == "cuda" else (1 << 25), dtype=torch.uint8, device=device)
    return Rates(flops, block.numel() * 2 / _seconds(block.clone, device))


def _seconds(work: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    def settled() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    work()
    begin = settled()
    for _ in range(repeats):
        work()
    return (settled() - begin) / repeats


def device_memory(device: torch.device) -> int | None:
    """Bytes that a process could have on the device, what this one holds counted in."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device))
    if device.type == "cpu":
        try:
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        except (ValueError, OSError, AttributeError):
            return None
    return None


def forecast(
    shape: Shape,
    documents: Iterable[Sequence[tuple[int, int, int]]],
    *,
    dtype: str,
    weights: int,
    chunk: int,
    devices: Sequence[torch.device],
    where: str,
) -> tuple[Cost, tuple[str, ...]]:
    """The cost of documents given as (prompt tokens, closing tokens, new tokens) per probe, and that in words.

    Layers lie on `devices` with their part of the cache, and run one after another: memory is that of all, speed
    that of one. Raises when the longest does not fit, saying what would.
    """
    readings = [Reading(tuple((prompt - own, own, new) for prompt, own, new in probes)) for probes in documents]
    has = [device_memory(device) for device in devices]
    memory = None if None in has else sum(filter(None, has))
    if memory is not None and readings:
        lengths = sorted({reading.longest for reading in readings})
        refuse_what_cannot_fit(shape, lengths, dtype=dtype, weights=weights, memory=memory, where=where)
    total = cost(shape, readings, dtype=dtype, weights=weights, chunk=chunk)
    rates = measure_rates(devices[0], getattr(torch, dtype))
    of = f" of {memory / GIB:.0f}" if memory else ""
    of += f" on {len(devices)} devices" if len(devices) > 1 else ""
    seconds = total.seconds(flops_per_second=rates.flops, bytes_per_second=rates.bytes)
    return total, (
        f"memory {total.memory / GIB:.1f} GiB{of}: weights {total.weights / GIB:.1f}, cache {total.cache / GIB:.1f} "
        f"({shape.kv_bytes(dtype) / 1024:.0f} KiB a token), {_worth_saying('activations', total.activations)}"
        f"{_worth_saying('rows of answers', total.rows)}all else {OVERHEAD / GIB:.1f}",
        f"arithmetic {total.flops:.2g} operations, about {_duration(seconds)} at the {_rate(rates.flops)} "
        f"measured on {devices[0]}",
    )


def _worth_saying(name: str, size: int) -> str:
    """A part of the memory, unless it would be said to be 0.0."""
    return f"{name} {size / GIB:.1f}, " if size >= 0.05 * GIB else ""


def _duration(seconds: float) -> str:
    if seconds > 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.0f} min" if seconds > 90 else f"{seconds:.0f} s"


def _rate(flops: float) -> str:
    return f"{flops / 1e12:.0f} TFLOP/s" if flops > 1e13 else f"{flops / 1e9:.0f} GFLOP/s"
