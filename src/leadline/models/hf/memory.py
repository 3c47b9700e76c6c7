"""Forecast of the memory and time of a run on a device, from the model's configuration and its measured speed.

Per token read, a dense layer does 2 operations per weight; attention does 4 x heads x width per query and visible key
(two products). The KV cache holds 2 x key heads x width numbers per token and layer with full attention, and those of a
window before every cut for layers with one; other layers have states that do not grow. What does not fit on the device
goes to host memory and is copied back for every chunk and every decoding step. Activations are those of one chunk:
the four buffers of the feed-forward part, or attention's float32 totals, whichever is larger. The speed is that of the
model itself on a few tokens: matrix products of other shapes say little about it on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from leadline.core.errors import SourceError, UsageError
from leadline.core.format import format_duration, format_flops
from leadline.models.hf.host_memory import HOST_RESERVE, device_memory, free_host_memory
from leadline.models.hf.reader import shared_bases

GIB = 1 << 30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
ASSUMED_FLOPS = 1e14
"""Operations per second of the example where none was measured."""
OVERHEAD = GIB
"""A CUDA context, library workspaces and the allocator's rounding."""


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """The sizes of a decoder that determine its cost. `experts` are those used per token, and all. `full` layers attend
    to everything, `local` ones to a `window`, and the others keep a state.

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
    full: int = -1
    local: int = 0
    window: int = 0
    cached_width: int = 0
    """Numbers that a key head keeps of each token, its key and its value: twice the width, except with latent attention
    (DeepSeek)."""

    def __post_init__(self) -> None:
        if self.full < 0:
            object.__setattr__(self, "full", self.layers - self.local)
        if not self.cached_width:
            object.__setattr__(self, "cached_width", 2 * self.width)

    @classmethod
    def of_config(cls, config: Any) -> DecoderShape:
        """From transformers' configuration object, which knows the common names of sizes that a model calls otherwise
        (`n_layers` of MPT), and the kinds of layers that follow from them (Jamba)."""
        text = config.get_text_config()
        names = (*text.attribute_map, "layer_types", "layers_block_type")
        known = {name: value for name in names if (value := getattr(text, name, None)) is not None}
        return cls.of({**config.to_dict(), **text.to_dict(), **known, "text_config": None})

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> DecoderShape:
        """From the values of a config.json; its text part for multimodal models."""
        text = {**config, **(config.get("text_config") or {})}
        hidden = _first(text, "hidden_size", "n_embd", "d_model")
        heads = _first(text, "num_attention_heads", "n_head", default=0)
        kinds = text.get("layer_types") or text.get("layers_block_type") or ()
        layers = _first(text, "num_hidden_layers", "n_layer", default=len(kinds) or None)
        window = _first(text, "sliding_window", "attention_chunk_size", default=0)
        everywhere = "sliding_attention" if window and text.get("use_sliding_window", True) else "full_attention"
        kinds = kinds or [everywhere] * layers
        local = sum(kind in _LOCAL for kind in kinds) if window else 0
        one_key_head = text.get("multi_query") and not text.get("new_decoder_architecture")  # Falcon
        latent = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim") if text.get("kv_lora_rank") else ()
        return cls(
            layers=layers,
            full=sum(kind not in _WITHOUT_KEYS for kind in kinds) - local if heads else 0,
            local=local if heads else 0,
            window=window,
            hidden=hidden,
            intermediate=_first(
                text,
                "moe_intermediate_size",
                "intermediate_size",
                "n_inner",
                default=int(text.get("expand") or 4) * hidden,
            ),
            heads=heads,
            key_heads=1 if one_key_head else _first(text, "num_key_value_heads", "num_kv_heads", default=heads),
            width=_first(text, "head_dim", default=hidden // heads) if heads else 0,
            cached_width=sum(_first(text, name, default=0) for name in latent),
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

    def kv_bytes(self, dtype: str, *, fp8: bool = False) -> int:
        """What the KV cache grows by with every token; with `fp8`, a byte for each number and a scale for each head."""
        return self.full * self._layer_bytes(dtype, fp8=fp8)

    def _layer_bytes(self, dtype: str, *, fp8: bool = False) -> int:
        """Keys and values of one token in one layer."""
        return self.key_heads * (self.cached_width + 2 * BYTES[dtype] if fp8 else self.cached_width * BYTES[dtype])

    def window_bytes(self, dtype: str, tokens: int, bases: Collection[int] = (), *, fp8: bool = False) -> int:
        """The keys and values of all layers with a window, for a document of that many tokens: what the windows before
        every base hold, and those before and after the chunk being read; all tokens where these are not fewer."""
        if self.window * (len(bases) + 2) < tokens:
            tokens = sum(min(base, self.window) for base in bases) + 2 * self.window
        return self.local * tokens * self._layer_bytes(dtype, fp8=fp8)

    def whole_layers(
        self, dtype: str, tokens: int, bases: Collection[int], *, fp8: bool = False
    ) -> tuple[int, int, int]:
        """How many layers keep all tokens, the bytes of each, and the bytes of the windows that all others keep."""
        windows, each = self.window_bytes(dtype, tokens, bases, fp8=fp8), tokens * self._layer_bytes(dtype, fp8=fp8)
        return (self.full, each, windows) if windows < self.local * each else (self.full + self.local, each, 0)

    def row_bytes(self, dtype: str) -> int:
        """Keys and values of one token of a row, in all layers that have any."""
        return (self.full + self.local) * self._layer_bytes(dtype)

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
        layers = self.full * (_pairs(tokens) - _pairs(start))
        layers += self.local * (_pairs(tokens, self.window) - _pairs(start, self.window))
        return 2.0 * self.heads * self.cached_width * layers


def _pairs(tokens: int, window: int = 0) -> float:
    """Pairs of a query and a key that it sees, among the first tokens of a text."""
    inside = min(tokens, window) if window else tokens
    return inside * (inside + 1) / 2 + (tokens - inside) * window


_WITHOUT_KEYS = {"mamba", "linear_attention", "conv", "moe", "mlp", "recurrent"}
"""Layers of hybrid models that keep a state, or nothing."""
_LOCAL = {"sliding_attention", "chunked_attention", "hybrid_sliding"}
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
    """How often the cache of the longest document is read as a whole: for its chunks, and for decoding steps."""
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


SMALLEST_CHUNK = 512
"""Tokens of a pass, when memory runs out."""
STAGING_BYTES = GIB
"""Room on the device for what comes back from host memory, and for dequantized keys and values."""
ROWS_BYTES = 3 * GIB // 4
"""The limit for the rows' own keys and values in one batch; further rows go into the next batch."""


def room_for_layers(
    memory: int | None, held: int, activations: int, windows: int, *, resident: int | None = None, devices: int = 1
) -> int | None:
    """Bytes of keys and values that all layers that keep every token may have on devices with this memory; None for no
    limit. The engine places layers by it, and the plan says how many go to host memory.

    `held` is there before a document is read (the weights), `windows` is what layers with a window keep, and `resident`
    the user's limit for each device.
    """
    limits = [] if resident is None else [devices * resident]
    if memory is not None:
        reserve = activations + ROWS_BYTES + STAGING_BYTES + OVERHEAD
        limits.append(memory - held - windows - devices * reserve)
    return max(0, min(limits)) if limits else None


def longest_that_fits(
    shape: DecoderShape, *, dtype: str, weights: int, memory: int, host: int = 0, fp8: bool = False
) -> int:
    """Tokens of the longest document that fits into the memory, read in the smallest chunks. `host` is what keys and
    values may use of the host's memory."""
    windows = shape.window_bytes(dtype, 3 * shape.window, fp8=fp8)  # of any document that is longer
    free = memory - weights - OVERHEAD - shape.activation_bytes(SMALLEST_CHUNK, dtype) - windows
    if free <= 0:
        return 0
    return max(free, free - STAGING_BYTES + host if host else 0) // (shape.kv_bytes(dtype, fp8=fp8) or 1)


def check_fits(
    shape: DecoderShape,
    lengths: Sequence[int],
    *,
    dtype: str,
    weights: int,
    memory: int,
    where: str,
    host: int = 0,
    fp8: bool = False,
) -> None:
    """Raises with what would fit when the longest length does not: fewer tokens, or rounded keys and values."""
    longest = max(lengths)
    fit = partial(longest_that_fits, shape, dtype=dtype, weights=weights, memory=memory, host=host)
    fits, rounded = fit(fp8=fp8), fit(fp8=True)
    if longest <= fits:
        return
    cache = longest * shape.kv_bytes(dtype, fp8=fp8)
    need = weights + cache + shape.activation_bytes(SMALLEST_CHUNK, dtype) + OVERHEAD
    inside = [n for n in sorted(lengths) if n <= fits]
    fix = f"lengths up to {fits} fit" + (f": --lengths {','.join(map(str, inside))}" if inside else "")
    if rounded > fits:
        fix += f"; with store=fp8 (other answers, said on every record) up to {rounded}"
    if fits == 0:
        fix = "the weights alone do not fit: use dtype=bfloat16, device_map=auto over several GPUs, or a server"
    beside = f", beside {host / GIB:.1f} GiB of host memory for keys and values" if host else ""
    raise UsageError(
        f"{longest} tokens need {need / GIB:.1f} GiB (weights {weights / GIB:.1f}, cache {cache / GIB:.1f}), "
        f"and the device has {memory / GIB:.1f} GiB{beside}",
        where=where,
        fix=fix,
    )


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
    devices, the speed that of one. On GPUs keys and values may spill to host memory. Raises with what would fit when
    the longest document does not. Without a device the memory is compared with nothing, and the time stays unknown.
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
    for one in readings:
        layers, each, windows = shape.whole_layers(dtype, one.tokens, one.bases, fp8=fp8)
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
        return needed, f"time not known without the weights: {time}"
    speed = measure_speed()
    reading, answers = total.seconds(speed, spilled)
    return (
        needed,
        f"time about {format_duration(reading)} for reading and up to {format_duration(answers)} for answers: "
        f"{total.flops:.2g} operations at the {format_flops(total.flops / reading if reading else speed.products)} "
        f"measured on {devices[0]}",
    )


def _format_if_visible(name: str, size: int) -> str:
    """Empty if it would be shown as 0.0."""
    return f"{name} {size / GIB:.1f}, " if size >= 0.05 * GIB else ""
