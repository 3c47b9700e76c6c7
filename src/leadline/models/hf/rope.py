"""Position encodings that depend on the length of the text: dynamic NTK, and long and short factors.

Their frequencies are those of the longest position in a pass (of all passes so far, for dynamic NTK). A prompt that is
read in one pass gets those of its whole length. To read it in chunks, and for several prompts of one length at once,
every pass is told that length.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


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
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


_NAMES = ("x", "position_ids")
