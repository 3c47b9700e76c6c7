"""Which layers of a model attend locally, found out from the masks that the model makes for itself.

transformers' models ask for a mask by describing it: a function of query and key positions. `find_windows` lets a model
make its masks for two tokens, reads the description instead of building the mask, and notes which layer gets which. No
model needs to be known by name, and layers of several kinds are told apart.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from leadline.models.hf.attention import UnsupportedAttention, Windows
from leadline.models.hf.store import LocalAttention

_NAME = "leadline_find_windows"
_FULL, _FAR = 0, 1 << 30
_SIZES = ("sliding_window", "attention_chunk_size")
"""The names under which configurations have the size of a window."""
_FOUND: ContextVar[dict[int, int]] = ContextVar("leadline_windows")


def find_windows(model: Any, use_attention: Callable[[str], None]) -> Windows:
    """The layers with local attention. Raises UnsupportedAttention for masks that are neither causal, sliding nor
    chunked."""
    found: dict[int, int] = {}
    token = _FOUND.set(found)
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
    return {layer: LocalAttention(abs(code), chunked=code < 0) for layer, code in found.items() if code != _FULL}


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
        place = torch.tensor(0, device=device)
        return bool(mask_function(place, place, torch.tensor(query, device=device), torch.tensor(key, device=device)))

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
