"""Memory of a run on a device, from the model's configuration: weights, KV cache, activations, and what fits.

The KV cache holds 2 x key heads x width numbers per token and layer with full attention, and those of a window before
every cut for layers with one; other layers have states that do not grow. What does not fit on the device goes to host
memory. Activations are those of one chunk: the four buffers of the feed-forward part, or attention's float32 totals,
whichever is larger. `forecast.py` has the time of a run, and the lines that a plan prints.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from leadline.core.errors import SourceError, UsageError

GIB = 1 << 30
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
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
        """The bytes that every token adds to the KV cache; with `fp8`, a byte for each number and a scale for each
        head."""
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
        """The number of layers that keep all tokens, the bytes of each, and the bytes of the windows that all others
        keep."""
        windows, each = self.window_bytes(dtype, tokens, bases, fp8=fp8), tokens * self._layer_bytes(dtype, fp8=fp8)
        return (self.full, each, windows) if windows < self.local * each else (self.full + self.local, each, 0)

    def row_bytes(self, dtype: str) -> int:
        """Keys and values of one token of a row, in all layers that have any."""
        return (self.full + self.local) * self._layer_bytes(dtype)

    def activation_bytes(self, chunk: int, dtype: str) -> int:
        """The memory that one chunk needs besides weights and cache."""
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
    """If the longest length does not fit, raises with the changes that would: fewer tokens, or rounded keys and
    values."""
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
