"""Which models may be read by shared prefix, how far, and the proof on a few tokens that it gives the same answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from leadline.models.hf.prefix import Unsupported
from leadline.models.hf.reader import Reader, rows_of

_LENGTH_DEPENDENT = {
    "dynamic": "dynamic-NTK position encoding depends on the total length",
    "longrope": "long/short-factor position encoding depends on the total length",
}


@dataclass(frozen=True, slots=True)
class Support:
    """Shared reading is exact for texts of up to `reach` tokens; beyond that the plain path is used, for `reason`."""

    reach: float
    reason: str = ""
    nested_problem: str = ""

    def refusal(self, tokens: int) -> str:
        """Why a text of so many tokens needs the plain path, or nothing."""
        return self.reason if tokens > self.reach else ""


def support_of(model: Any, reader: Reader) -> Support:
    """What the configuration says, then what a trial says."""
    said = _declared(model)
    if said.reach == 0:
        return said
    problem = disagreement(model, reader, tokens=int(min(48, said.reach)))
    return Support(0, problem, said.nested_problem) if problem else said


def _declared(model: Any) -> Support:
    config = model.config.get_text_config()
    if getattr(model, "_is_stateful", False):
        return Support(0, "its layers keep a state instead of keys and values")
    if not getattr(model, "_supports_attention_backend", False):
        return Support(0, "its attention cannot be replaced through transformers")
    if getattr(config, "attn_logit_softcapping", None):
        return Support(0, "its attention scores are capped")
    if getattr(config, "num_kv_shared_layers", None):
        return Support(0, "its layers share keys and values")
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if odd := kinds - {"full_attention", "sliding_attention"}:
        return Support(0, f"it has layers of the kind {sorted(odd)[0]}")
    window = getattr(config, "sliding_window", None)
    slides = "sliding_attention" in kinds or (window and not getattr(config, "layer_types", None))
    support = Support(window, f"sliding window of {window} tokens") if slides and window else Support(math.inf)
    return _with_positions(config, support)


def _with_positions(config: Any, support: Support) -> Support:
    rope = getattr(config, "rope_parameters", None) or {}
    parts = [v for v in rope.values() if isinstance(v, dict)] or [rope]
    for part in parts:
        reason = _LENGTH_DEPENDENT.get(str(part.get("rope_type")))
        if reason:
            original = part.get("original_max_position_embeddings") or config.max_position_embeddings
            # Up to its original length such an encoding does not change.
            return Support(min(support.reach, original), reason, nested_problem=reason)
    return support


def disagreement(model: Any, reader: Reader, *, tokens: int) -> str:
    """Why shared reading of a few random tokens differs from the model's own pass, or nothing where it does not."""
    vocabulary = model.get_input_embeddings().weight.shape[0]
    ids = np.random.default_rng(0).integers(0, vocabulary, tokens).astype(np.int32)
    cut = tokens // 2
    want = _own_logits(model, reader, ids)
    chunk, reader.chunk = reader.chunk, cut // 2 + 1
    try:
        reader.read(ids[:cut], reuse=False)
        batch = reader.open_rows(rows_of(ids, [cut, 1], [ids[cut:], ids[1:cut]]))
        hidden = torch.cat([h for _, h in batch.read_own()], 1)
        got = torch.stack([reader.logits(h[-1:])[0] for h in hidden])
    except (Unsupported, RuntimeError, TypeError, ValueError, AttributeError, NotImplementedError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        return f"shared reading does not work with it: {str(error).splitlines()[0][:200]}"
    finally:
        reader.chunk = chunk
        reader.forget()
    want = want[[tokens - 1, cut - 1]]
    error_norm = float((got.float() - want.float()).norm() / want.float().norm())
    exact = want.dtype in (torch.float32, torch.float64)
    if not error_norm <= (1e-3 if exact else 0.1):  # written so that NaN is a disagreement
        return f"shared reading differs from its own pass (relative error {error_norm:.1e})"
    return ""


def _own_logits(model: Any, reader: Reader, ids: Any) -> Tensor:
    tokens = torch.from_numpy(ids.astype(np.int64))[None].to(reader.device)
    reader.use_own_attention()
    with torch.inference_mode():
        logits: Tensor = model(input_ids=tokens, use_cache=False).logits[0]
    return logits
