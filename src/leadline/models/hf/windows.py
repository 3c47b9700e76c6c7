"""The part of a text that each layer of a model sees, and at which positions: read from the model, never from its name.

    LocalAttention     a layer with a sliding window or with chunks
    find_windows       which layers have one
    positions_as_of    position encodings that depend on the length of the text

transformers' models ask for a mask by describing it: a function of query and key positions. `find_windows` lets a model
make its masks for two tokens, reads the description instead of building the mask, and notes which layer gets which.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from leadline.models.hf.layers import removed_after


class UnsupportedAttention(Exception):
    """The model uses a kind of attention that shared reading does not implement."""


@dataclass(frozen=True, slots=True)
class LocalAttention:
    """A layer that sees only the last `size` tokens, its own included; with `chunked`, only those of its own chunk:
    chunks are `size` tokens long, and the first begins at position 0."""

    size: int
    chunked: bool = False

    def first_seen(self, position: int) -> int:
        """The first position that a token at this position sees."""
        return position // self.size * self.size if self.chunked else max(0, position - self.size + 1)


Windows = Mapping[int, LocalAttention]
"""The layers with local attention, by number."""

# --- windows ------------------------------------------------------------------------------------

_NAME = "leadline_find_windows"
_FULL, _FAR = 0, 1 << 30
_SIZES = ("sliding_window", "attention_chunk_size")
"""The names under which configurations have the size of a window."""
_FOUND: ContextVar[dict[int, int]] = ContextVar("leadline_windows")


def find_windows(model: Any, use_attention: Callable[[str], None]) -> Windows:
    """The layers with local attention. Raises UnsupportedAttention for masks that are neither causal, sliding nor
    chunked."""
    codes: dict[int, int] = {}
    token = _FOUND.set(codes)
    device = model.get_input_embeddings().weight.device
    inputs = {"input_ids": torch.ones(1, 2, dtype=torch.long, device=device)}
    if "position_ids" in inspect.signature(model.base_model.forward).parameters:
        inputs["position_ids"] = torch.arange(2, device=device)[None]
    use_attention(_NAME)
    try:
        with torch.inference_mode():
            model.base_model(**inputs, use_cache=False)
    finally:
        _FOUND.reset(token)
    return {layer: LocalAttention(abs(code), chunked=code < 0) for layer, code in codes.items() if code != _FULL}


@contextmanager
def small_windows(model: Any, windows: Windows, size: int) -> Iterator[None]:
    """The model with windows of at most this size in its configuration, so that a short text is longer than them."""
    config = model.config.get_text_config()
    large = {window.size for window in windows.values() if window.size > size}
    before = {name: getattr(config, name, None) for name in _SIZES}
    try:
        for name, value in before.items():
            if value in large:
                setattr(config, name, size)
        yield
    finally:
        for name, value in before.items():
            if value in large:
                setattr(config, name, value)


def _describe(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: Callable[..., Tensor],
    local_size: int | None = None,
    device: torch.device | str | None = None,
    **_: Any,
) -> Tensor:
    """A code for the mask in the shape of a mask: the size of a sliding window, minus that of a chunk, or 0."""

    def sees(query: int, key: int) -> bool:
        zero = torch.tensor(0, device=device)
        return bool(mask_function(zero, zero, torch.tensor(query, device=device), torch.tensor(key, device=device)))

    code = _FULL
    if local_size is not None:
        code = local_size if sees(local_size, 1) else -local_size
    local = None if code == _FULL else LocalAttention(abs(code), chunked=code < 0)
    last = 3 * local.size + 2 if local else 7
    for query in {0, 1, last // 3, last // 2, last}:
        first = local.first_seen(query) if local else 0
        wrong = sees(query, query + 1) or not sees(query, query) or not sees(query, first)
        if wrong or (first > 0 and sees(query, first - 1)) or (local is None and not sees(_FAR, 0)):
            raise UnsupportedAttention("its attention masks are neither causal nor a window")
    return torch.full((batch_size, 1, q_length, kv_length), code, dtype=torch.long, device=device)


def _note(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **_: Any
) -> tuple[Tensor, None]:
    layer = getattr(module, "layer_idx", None)
    if layer is not None and attention_mask is not None:
        _FOUND.get()[layer] = int(attention_mask.flatten()[0])
    return query.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1]), None


AttentionInterface.register(_NAME, _note)
AttentionMaskInterface.register(_NAME, _describe)


# --- position encodings -------------------------------------------------------------------------

# Frequencies of dynamic NTK and of long and short factors are those of the longest position in a pass (of all passes so
# far, for dynamic NTK). A prompt that is read in one pass gets those of its whole length. To read it in chunks, and for
# several prompts of one length at once, every pass gets that length.


def reset_dynamic_rope(model: Any) -> None:
    """Dynamic position encodings keep the scaling of the longest text so far; every prompt must start without it."""
    for module in model.modules():
        if hasattr(module, "max_seq_len_cached") and hasattr(module, "original_inv_freq"):
            module.max_seq_len_cached = module.original_max_seq_len
            module.register_buffer("inv_freq", module.original_inv_freq.to(module.inv_freq.device), persistent=False)


@contextmanager
def positions_as_of(model: Any, length: int) -> Iterator[None]:
    """Every pass has the frequencies of a text of at least this length: one more position is encoded, and dropped."""

    def with_last_position(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        positions: Tensor = kwargs["position_ids"] if "position_ids" in kwargs else args[1]
        longer = torch.cat([positions, torch.full_like(positions[..., :1], length - 1)], -1)
        return (args[0] if args else kwargs["x"], longer), {k: v for k, v in kwargs.items() if k not in _NAMES}

    def without_it(module: Any, args: Any, kwargs: Any, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return output[0][..., :-1, :], output[1][..., :-1, :]

    encodings = [m for m in model.modules() if getattr(m, "rope_type", None) in ("dynamic", "longrope")]
    hooks = [m.register_forward_pre_hook(with_last_position, with_kwargs=True) for m in encodings]
    hooks += [m.register_forward_hook(without_it, with_kwargs=True) for m in encodings]
    with removed_after(hooks):
        yield


_NAMES = ("x", "position_ids")
