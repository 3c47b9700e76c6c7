"""Forecast of the memory and time of a run on a device, from the model's configuration and its measured speed.

Per token read, a dense layer does 2 operations per weight; attention does 4 x heads x width per query and visible key
(two products). The KV cache holds 2 x layers x key heads x width values per token. Activations are those of one chunk:
the four buffers of the feed-forward part, or attention's float32 totals, whichever is larger. The speed is that of the
model itself on a few tokens: matrix products of other shapes say little about it on a CPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from leadline.core.errors import SourceError, UsageError
from leadline.core.format import format_duration, format_flops

GIB = 1 << 30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
ASSUMED_FLOPS = 1e14
"""Operations per second of the example where none was measured."""
OVERHEAD = GIB
"""A CUDA context, library workspaces and the allocator's rounding."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of a decoder that determine its cost. `experts` are those used per token, and all.

    Models that keep a state instead of keys and values (Mamba, RWKV) have no attention heads and no KV cache; their
    layers cost what a gated feed-forward layer of their inner width does.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_heads: int
    width: int
    vocabulary: int
    experts: tuple[int, int] = (1, 1)
    gated: bool = True
    tied: bool = False

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> DecoderShape:
        """From the values of a config.json; its text part for multimodal models."""
        text = {**config, **(config.get("text_config") or {})}
        hidden = _first(text, "hidden_size", "n_embd", "d_model")
        heads = _first(text, "num_attention_heads", "n_head", default=0)
        kinds = text.get("layer_types") or text.get("layers_block_type") or ()
        return cls(
            layers=_first(text, "num_hidden_layers", "n_layer", default=len(kinds) or None),
            hidden=hidden,
            intermediate=_first(
                text,
                "moe_intermediate_size",
                "intermediate_size",
                "n_inner",
                default=int(text.get("expand") or 4) * hidden,
            ),
            heads=heads,
            key_heads=_first(text, "num_key_value_heads", default=heads),
            width=_first(text, "head_dim", default=hidden // heads) if heads else 0,
            vocabulary=_first(text, "vocab_size"),
            experts=(
                _first(text, "num_experts_per_tok", default=1),
                _first(text, "num_local_experts", "num_experts", "n_routed_experts", default=1),
            ),
            gated=str(text.get("model_type", "")) not in _UNGATED,
            tied=bool(text.get("tie_word_embeddings", False)),
        )

    @property
    def _attention_weights(self) -> int:
        return self.hidden * self.width * (2 * self.heads + 2 * self.key_heads)

    def _feed_forward_weights(self, experts: int) -> int:
        return (3 if self.gated else 2) * self.hidden * self.intermediate * experts

    @property
    def parameters(self) -> int:
        per_layer = self._attention_weights + self._feed_forward_weights(self.experts[1]) + 2 * self.hidden
        return self.layers * per_layer + self.vocabulary * self.hidden * (1 if self.tied else 2)

    def kv_bytes(self, dtype: str) -> int:
        """KV cache per token."""
        return 2 * self.layers * self.key_heads * self.width * BYTES[dtype]

    def activation_bytes(self, chunk: int, dtype: str) -> int:
        """What one chunk needs besides weights and cache."""
        size = BYTES[dtype]
        feed_forward = 4 * chunk * self.intermediate * size
        attention = chunk * self.heads * self.width * (4 + 4 * size)
        return max(feed_forward, attention) + 3 * chunk * self.hidden * size

    def flops_read(self, tokens: int, *, start: int = 0) -> float:
        """Operations for reading tokens `start` to `tokens`, without the output head."""
        weights = self._attention_weights + self._feed_forward_weights(self.experts[0])
        return 2.0 * self.layers * weights * (tokens - start) + self.flops_attention(tokens, start=start)

    def flops_attention(self, tokens: int, *, start: int = 0) -> float:
        """The part of `flops_read` that grows with the square of the length."""
        pairs = (tokens * (tokens + 1) - start * (start + 1)) / 2
        return 4.0 * self.layers * self.heads * self.width * pairs

    @property
    def flops_head(self) -> float:
        """Operations for the logits of one position."""
        return 2.0 * self.hidden * self.vocabulary


_UNGATED = {"gpt_neox", "gpt2", "phi", "bloom", "falcon", "opt", "starcoder2"}


def _first(values: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        if values.get(name) is not None:
            return int(values[name])
    if default is None:
        raise SourceError(f"its configuration has no {names[0]}", where="memory model")
    return default


@dataclass(frozen=True, slots=True)
class DocumentReading:
    """One document and its probes as (cut, own tokens, new tokens). `kept` tokens are in the store already."""

    probes: tuple[tuple[int, int, int], ...]
    kept: int = 0

    @property
    def tokens(self) -> int:
        return max((cut for cut, _, _ in self.probes), default=0)

    @property
    def longest(self) -> int:
        return max((cut + own + new for cut, own, new in self.probes), default=0)


@dataclass(frozen=True, slots=True)
class Speed:
    """Operations per second of matrix products and of attention while reading, and bytes per second while decoding."""

    products: float
    attention: float
    decoding: float


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

    @property
    def memory(self) -> int:
        return self.weights + self.cache + self.activations + self.rows + OVERHEAD

    def seconds(self, speed: Speed) -> tuple[float, float]:
        """For reading, and for answers that use their whole allowance."""
        reading = (self.flops - self.attention) / speed.products
        return reading + (self.attention / speed.attention if self.attention else 0.0), self.traffic / speed.decoding


def cost(
    shape: DecoderShape, readings: Iterable[DocumentReading], *, dtype: str, weights: int, chunk: int
) -> DeviceCost:
    """The cost of these readings. Documents are read one after another, so the longest decides the memory."""
    flops, attention, traffic, cache, rows = 0.0, 0.0, 0.0, 0, 0
    per_token = shape.kv_bytes(dtype)
    for reading in readings:
        parts = [(reading.tokens, reading.kept), *((cut + own, cut) for cut, own, _ in reading.probes)]
        flops += sum(shape.flops_read(stop, start=start) for stop, start in parts)
        attention += sum(shape.flops_attention(stop, start=start) for stop, start in parts)
        held = reading.tokens * per_token
        traffic += max((new for _, _, new in reading.probes), default=0) * (weights + held)
        cache = max(cache, held)
        rows = max(rows, min(ROWS_BYTES, sum(own + new for _, own, new in reading.probes) * per_token))
    return DeviceCost(weights, cache, shape.activation_bytes(chunk, dtype), rows, flops, attention, traffic)


ROWS_BYTES = 3 * GIB // 4
"""The limit for the rows' own keys and values in one batch; further rows go into the next batch."""


def longest_that_fits(shape: DecoderShape, *, dtype: str, weights: int, memory: int, chunk: int = 512) -> int:
    """Tokens of the longest document that fits into the memory, with chunks of this size."""
    free = memory - weights - OVERHEAD - shape.activation_bytes(chunk, dtype)
    return max(0, free // (shape.kv_bytes(dtype) or 1))


def check_fits(
    shape: DecoderShape, lengths: Sequence[int], *, dtype: str, weights: int, memory: int, where: str
) -> None:
    """Raises with the lengths that would fit when the longest does not."""
    fits = longest_that_fits(shape, dtype=dtype, weights=weights, memory=memory)
    if max(lengths) <= fits:
        return
    cache = max(lengths) * shape.kv_bytes(dtype)
    need = weights + cache + shape.activation_bytes(512, dtype) + OVERHEAD
    inside = [n for n in sorted(lengths) if n <= fits]
    fix = f"lengths up to {fits} fit" + (f": --lengths {','.join(map(str, inside))}" if inside else "")
    if fits == 0:
        fix = "the weights alone do not fit: use dtype=bfloat16, device_map=auto over several GPUs, or a server"
    raise UsageError(
        f"{max(lengths)} tokens need {need / GIB:.1f} GiB (weights {weights / GIB:.1f}, cache {cache / GIB:.1f}), "
        f"and the device has {memory / GIB:.1f} GiB",
        where=where,
        fix=fix,
    )


def device_memory(device: torch.device) -> int | None:
    """Memory that this process could use on the device, including what it uses now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free + torch.cuda.memory_reserved(device))
    if device.type == "cpu":
        with suppress(ValueError, OSError, AttributeError):
            return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


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
) -> tuple[str, ...]:
    """Lines of text about the memory and time of a run.

    Layers are spread over `devices` with their part of the cache and run one after another: the memory is that of all
    devices, the speed that of one. Raises with what would fit when the longest document does not. Without a device the
    memory is compared with nothing, and the time stays unknown.
    """
    has = [device_memory(device) for device in devices]
    memory = None if None in has or not has else sum(filter(None, has))
    if memory is not None and readings:
        lengths = sorted({reading.longest for reading in readings})
        check_fits(shape, lengths, dtype=dtype, weights=weights, memory=memory, where=where)
    total = cost(shape, readings, dtype=dtype, weights=weights, chunk=chunk)
    of = f" of {memory / GIB:.0f}" if memory else ""
    of += f" on {len(devices)} devices" if len(devices) > 1 else ""
    needed = (
        f"memory {total.memory / GIB:.1f} GiB{of}: weights {total.weights / GIB:.1f}, cache {total.cache / GIB:.1f} "
        f"({shape.kv_bytes(dtype) / 1024:.0f} KiB a token), {_format_if_visible('activations', total.activations)}"
        f"{_format_if_visible('rows of answers', total.rows)}all else {OVERHEAD / GIB:.1f}"
    )
    if measure_speed is None:
        hours = format_duration(total.flops / ASSUMED_FLOPS)
        time = f"{total.flops:.2g} operations for reading, such as {hours} at {format_flops(ASSUMED_FLOPS)}"
        return needed, f"time not known without the weights: {time}"
    speed = measure_speed()
    reading, answers = total.seconds(speed)
    return (
        needed,
        f"time about {format_duration(reading)} for reading and up to {format_duration(answers)} for answers: "
        f"{total.flops:.2g} operations at the {format_flops(total.flops / reading if reading else speed.products)} "
        f"measured on {devices[0]}",
    )


def _format_if_visible(name: str, size: int) -> str:
    """Empty if it would be shown as 0.0."""
    return f"{name} {size / GIB:.1f}, " if size >= 0.05 * GIB else ""
