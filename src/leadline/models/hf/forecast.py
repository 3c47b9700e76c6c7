"""Forecast of a run on a device: its operations, its time at the measured speed, and the lines that a plan prints.

Per token read, a dense layer does 2 operations per weight; attention does 4 x heads x width per query and visible key
(two products). Keys and values in host memory are copied back for every chunk and every decoding step. The speed is
that of the model itself on a few tokens: matrix products of other shapes say little about it on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from leadline.core.format import format_duration, format_flops
from leadline.core.memory import free_host_memory
from leadline.models.hf.host_memory import HOST_RESERVE, device_memory
from leadline.models.hf.memory import GIB, OVERHEAD, ROWS_BYTES, DecoderShape, check_fits, room_for_layers
from leadline.models.hf.reader import shared_bases

GPU_GIGABYTES = (80, 141)
"""GPU sizes for a plan without a device."""
USED_SHARE = 0.92
"""The share of a GPU's memory that engines give to weights and cache."""
MOST_SHARED = 8
"""GPUs that share a layer: those of one machine, and as many as most models have key heads."""
ASSUMED_FLOPS = 1e14
"""Operations per second of the example where none was measured."""


@dataclass(frozen=True, slots=True)
class DocumentReading:
    """One document and its probes as (cut, own tokens, new tokens). `kept` tokens are in the KV cache already."""

    probes: tuple[tuple[int, int, int], ...]
    kept: int = 0

    @property
    def tokens(self) -> int:
        return max((cut for cut, _, _ in self.probes), default=0)

    @property
    def bases(self) -> set[int]:
        """Where rows begin: cuts that are near each other share a prefix of the document."""
        return set(shared_bases(cut if own else cut - 1 for cut, own, _ in self.probes).values()) - {0}

    @property
    def longest(self) -> int:
        return max((cut + own + new for cut, own, new in self.probes), default=0)


@dataclass(frozen=True, slots=True)
class Speed:
    """Operations per second of matrix products and of attention while reading, and bytes per second: while decoding,
    and from host memory to the device."""

    products: float
    attention: float
    decoding: float
    host: float = math.inf


@dataclass(frozen=True, slots=True)
class DeviceCost:
    """Bytes and operations of a run. `attention` is a part of `flops`; `traffic` is the bytes that all decoding steps
    read: the weights, and the cache of their document."""

    weights: int
    cache: int
    activations: int
    rows: int
    flops: float
    attention: float
    traffic: float
    passes: float = 0.0
    """The number of times that the cache of the longest document is read as a whole: for its chunks, and for decoding
    steps."""
    steps: int = 0

    @property
    def memory(self) -> int:
        return self.weights + self.cache + self.activations + self.rows + OVERHEAD

    def seconds(self, speed: Speed, spilled: int = 0) -> tuple[float, float]:
        """For reading, and for answers that use their whole allowance. Host memory is copied while attention works."""
        reading = (self.flops - self.attention) / speed.products
        reading += self.attention / speed.attention if self.attention else 0.0
        copying = spilled * self.passes / speed.host
        return max(reading, copying), self.traffic / speed.decoding + spilled * self.steps / speed.host


def cost(
    shape: DecoderShape,
    readings: Iterable[DocumentReading],
    *,
    dtype: str,
    weights: int,
    chunk: int,
    fp8: bool = False,
) -> DeviceCost:
    """The cost of these readings. Documents are read one after another, so the longest decides the memory."""
    flops, attention, traffic, cache, rows, passes, steps = 0.0, 0.0, 0.0, 0, 0, 0.0, 0
    per_token, per_row = shape.kv_bytes(dtype, fp8=fp8), shape.row_bytes(dtype)
    for reading in readings:
        parts = [(reading.tokens, reading.kept), *((cut + own, cut) for cut, own, _ in reading.probes)]
        flops += sum(shape.flops_read(stop, start=start) for stop, start in parts)
        attention += sum(shape.flops_attention(stop, start=start) for stop, start in parts)
        held = reading.tokens * per_token + shape.window_bytes(dtype, reading.tokens, reading.bases, fp8=fp8)
        longest_answer = max((new for _, _, new in reading.probes), default=0)
        traffic += longest_answer * (weights + held)
        cache = max(cache, held)
        rows = max(rows, min(ROWS_BYTES, sum(own + new for _, own, new in reading.probes) * per_row))
        passes += (reading.tokens**2 - reading.kept**2) / max(1, reading.tokens) / chunk / 2
        steps += longest_answer
    activations = shape.activation_bytes(chunk, dtype)
    return DeviceCost(weights, cache, activations, rows, flops, attention, traffic, passes, steps)


def forecast(
    shape: DecoderShape,
    readings: Sequence[DocumentReading],
    measure_speed: Callable[[], Speed] | None,
    *,
    dtype: str,
    weights: int,
    chunk: int,
    devices: Sequence[torch.device],
    where: str,
    fp8: bool = False,
    resident: int | None = None,
) -> tuple[str, ...]:
    """Lines of text about the memory and time of a run.

    Layers are spread over `devices` with their part of the cache and run one after another: the memory is that of all
    devices, the speed that of one. On GPUs keys and values may spill to host memory. If the longest document does not
    fit, raises with the length that would. Without a device the memory is compared with nothing, and the time stays
    unknown.
    """
    has = [device_memory(device) for device in devices]
    memory = None if None in has or not has else sum(filter(None, has))
    host = max(0, (free_host_memory() or 0) - HOST_RESERVE) if any(device.type == "cuda" for device in devices) else 0
    if memory is not None and readings:
        lengths = sorted({reading.longest for reading in readings})
        check_fits(
            shape, lengths, dtype=dtype, weights=weights, memory=memory, where=where, host=host, fp8=fp8
        )  # fmt: skip
    total = cost(shape, readings, dtype=dtype, weights=weights, chunk=chunk, fp8=fp8)
    spilled = 0
    for document in readings:
        layers, each, windows = shape.whole_layers(dtype, document.tokens, document.bases, fp8=fp8)
        room = room_for_layers(
            memory if host else None, weights, total.activations, windows, resident=resident, devices=len(devices) or 1
        )
        if room is not None and layers * each > room:
            spilled = max(spilled, (layers - room // each) * each)
    of = f" of {memory / GIB:.0f}" if memory else ""
    of += f" on {len(devices)} devices" if len(devices) > 1 else ""
    needed = (
        f"memory {total.memory / GIB:.1f} GiB{of}: weights {total.weights / GIB:.1f}, cache {total.cache / GIB:.1f} "
        f"({shape.kv_bytes(dtype, fp8=fp8) / 1024:.0f} KiB a token{', rounded to 8 bits' if fp8 else ''}), "
        f"{_format_if_visible('activations', total.activations)}"
        f"{_format_if_visible('rows of answers', total.rows)}all else {OVERHEAD / GIB:.1f}"
    )
    if spilled > 0:
        stays = (total.cache - spilled) / GIB
        needed += f"; {stays:.1f} of the cache stay on the device, {spilled / GIB:.1f} go to host memory"
    if measure_speed is None:
        hours = format_duration(total.flops / ASSUMED_FLOPS)
        time = f"{total.flops:.2g} operations for reading, such as {hours} at {format_flops(ASSUMED_FLOPS)}"
        gpus = () if devices else (format_gpus(total.memory),)
        return needed, *gpus, f"time not known without the weights: {time}"
    speed = measure_speed()
    reading, answers = total.seconds(speed, spilled)
    return (
        needed,
        f"time about {format_duration(reading)} for reading and up to {format_duration(answers)} for answers: "
        f"{total.flops:.2g} operations at the {format_flops(total.flops / reading if reading else speed.products)} "
        f"measured on {devices[0]}",
    )


def format_gpus(memory: int) -> str:
    """The number of GPUs that hold this many bytes, and the provider that reads with several at once."""
    counts = [max(1, math.ceil(memory / (size * 1e9 * USED_SHARE))) for size in GPU_GIGABYTES]
    sizes = " or ".join(f"{count} of {size} GB" for count, size in zip(counts, GPU_GIGABYTES, strict=True))
    if counts[0] == 1:
        return f"GPUs: {sizes}"
    shared = 2 ** math.ceil(math.log2(counts[0]))
    options = f"tensor_parallel_size={min(shared, MOST_SHARED)}"
    options += f"&pipeline_parallel_size={shared // MOST_SHARED}" if shared > MOST_SHARED else ""
    return f"GPUs: {sizes}; with {shared} of 80 GB, vllm: reads on all of them at once ({options})"


def _format_if_visible(name: str, size: int) -> str:
    """Empty if it would be shown as 0.0."""
    return f"{name} {size / GIB:.1f}, " if size >= 0.05 * GIB else ""
