"""The plain path: one prompt at a time through transformers' own `generate`. Right for every architecture, and slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from leadline.models.in_process.greedy import Generated

if TYPE_CHECKING:
    from leadline.core.types import Ids


def generate_plain(
    model: Any, ids: Ids, allowance: int, stops: Sequence[int], *, chunk: int | None = None
) -> Generated:
    """Greedy, at least one token that is not a stop. `chunk` reads the prompt in pieces, to save memory."""
    from transformers import GenerationConfig

    _forget_lengths(model)
    device = model.get_input_embeddings().weight.device
    prompt = torch.from_numpy(ids.astype(np.int64))[None].to(device)
    # A configuration of our own: checkpoints come with sampling, penalties and lengths that would change the measure.
    model.generation_config = GenerationConfig(
        do_sample=False, max_new_tokens=allowance, min_new_tokens=1, eos_token_id=list(stops) or None,
        pad_token_id=stops[0] if stops else 0, prefill_chunk_size=chunk, use_cache=True,
    )  # fmt: skip
    with torch.inference_mode():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt))
    new = out[0, prompt.shape[1] :].tolist()
    end = next((i for i, token in enumerate(new) if token in set(stops)), None)
    return Generated(new if end is None else new[:end], stopped=end is not None)


def _forget_lengths(model: Any) -> None:
    """Dynamic position encodings remember the longest text they met; each prompt must be read as if it were first."""
    for module in model.modules():
        if hasattr(module, "max_seq_len_cached") and hasattr(module, "original_inv_freq"):
            module.max_seq_len_cached = module.original_max_seq_len
            module.register_buffer("inv_freq", module.original_inv_freq.to(module.inv_freq.device), persistent=False)
