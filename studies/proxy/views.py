"""What a variant sees of the far context: put in place of the passes of shared reading, for one process."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from zoo import CHUNK, Variant

from leadline.core.errors import LeadlineError
from leadline.models.hf import HF
from leadline.models.hf import reader as hf_reader
from leadline.models.hf.attention import DocumentPass, LayerCall, PassDone, RowsPass
from leadline.models.hf.kv_cache import KVCache
from leadline.models.hf.model import HFModel
from leadline.models.hf.partial_attention import attend, fold, merge, merge_into
from leadline.models.hf.sdpa import attend_where
from leadline.models.hf.windows import LocalAttention

MOST_TOKENS = 1 << 17
PASSES: Any = hf_reader
"""Where shared reading takes its passes from."""


@dataclass
class View:
    """Far context as a variant has it. Draws are made once, so that every document is treated alike."""

    variant: Variant
    inv_freq: Tensor
    _places: Tensor = field(init=False)
    _before: list[int] = field(init=False)
    _moved: Tensor = field(init=False)

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        device = self.inv_freq.device
        kept = torch.rand(MOST_TOKENS, generator=generator) < self.variant.kept
        self._places = torch.nonzero(kept)[:, 0].to(device)
        self._before = [0, *kept.cumsum(0).tolist()]  # on this side, so that nothing waits for the device
        reach = self.variant.scramble
        self._moved = torch.randint(-reach, reach + 1, (MOST_TOKENS,), generator=generator).to(device)

    def parts(self, kv_cache: KVCache, layer: int, origin: int) -> list[tuple[Tensor, Tensor]]:
        """Keys and values that tokens from `origin` on see of those before it."""
        v = self.variant
        if v.window:
            low = max(origin - v.window, 0)
            spans = [(0, min(v.sinks, low)), (low, origin)]
            return list(kv_cache.blocks(layer, [span for span in spans if span[1] > span[0]]))
        near = max(origin - v.near, 0)
        found = list(kv_cache.blocks(layer, [(near, origin)])) if origin > near else []
        if near:
            found += [self._far(*block) for block in kv_cache.blocks(layer, [(0, near)])]
        return found

    def _far(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        tokens = key.shape[2]
        if self.variant.kept < 1:
            places = self._places[: self._before[tokens]]
            return key.index_select(2, places), value.index_select(2, places)
        if self.variant.scramble:
            return rotated(key, self._moved[:tokens], self.inv_freq), value
        return key, value


def rotated(key: Tensor, by: Tensor, inv_freq: Tensor) -> Tensor:
    """Keys as if they stood `by` places further on: rotations of RoPE add up."""
    angle = torch.outer(by.float(), inv_freq.float())
    cos, sin = (torch.cat([part, part], -1) for part in (angle.cos(), angle.sin()))
    half = key.shape[-1] // 2
    turned = torch.cat([-key[..., half:], key[..., :half]], -1)
    return (key.float() * cos + turned.float() * sin).to(key.dtype)


def quantised(tensor: Tensor, bits: int) -> Tensor:
    """Each token of each head rounded to 2**bits levels between its least and its largest number."""
    low, high = tensor.amin(-1, keepdim=True).float(), tensor.amax(-1, keepdim=True).float()
    step = (high - low).clamp_min(1e-8) / (2**bits - 1)
    rounded: Tensor = ((tensor.float() - low) / step).round() * step + low
    return rounded.to(tensor.dtype)


class QuantisedCache(KVCache):
    bits = 8

    def write(self, layer: int, key: Tensor, value: Tensor, local: LocalAttention | None) -> None:
        super().write(layer, quantised(key, self.bits), quantised(value, self.bits), local)


class FarChunk(DocumentPass):
    view: View

    def attend(self, call: LayerCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.kv_cache.write(call.layer, key[:, :, : self.count], value[:, :, : self.count], None)
        if call.layer == self.last_layer:
            raise PassDone
        parts = [attend(query, key, value, call.how, causal=True)]
        parts += [attend(query, *seen, call.how) for seen in self.view.parts(self.kv_cache, call.layer, self.start)]
        return merge(parts).transpose(1, 2)


class FarRows(RowsPass):
    view: View

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._far: dict[int, list[tuple[slice, list[tuple[Tensor, Tensor]]]]] = {}

    def keep(self, rows: Any) -> None:
        super().keep(rows)
        self._far.clear()

    def attend(self, call: LayerCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows, heads, columns, width = query.shape
        key_heads = key.shape[1]
        seen = self._visible(query.device, None)
        own_key, own_value = self._append(call.layer, key, value)
        folded = fold(query, key_heads)
        answer, lse = attend_where(folded, own_key, own_value, call.how, seen.repeat(1, 1, heads // key_heads, 1))
        flat = folded.transpose(0, 1).contiguous()
        total, total_lse = answer.transpose(0, 1).contiguous(), lse.transpose(0, 1).contiguous()
        for some, parts in self._seen_by(call.layer):
            share = flat[:, some].reshape(1, key_heads, -1, width)
            for part_key, part_value in parts:
                part, part_lse = attend(share, part_key, part_value, call.how)
                into = total[:, some], total_lse[:, some]
                merge_into(into, (part.reshape(into[0].shape), part_lse.reshape(into[1].shape)))
        answer = total.view(key_heads, rows, heads // key_heads, columns, -1).permute(1, 3, 0, 2, 4)
        return answer.to(query.dtype).reshape(rows, columns, heads, -1)

    def _seen_by(self, layer: int) -> list[tuple[slice, list[tuple[Tensor, Tensor]]]]:
        """For rows that share a cut, what they see. Made once a layer: decoding steps come back for it."""
        if layer not in self._far:
            found = []
            for cut in dict.fromkeys(c for c in self.cuts if c > 0):
                first = self.cuts.index(cut)
                some = slice(first, first + self.cuts.count(cut))
                found.append((some, self.view.parts(self.kv_cache, layer, cut)))
            self._far[layer] = found
        return self._far[layer]


# --- opening ------------------------------------------------------------------------------------


def open_variant(variant: Variant, folder: str, *, dtype: str = "auto", device: str = "auto") -> HFModel:
    """The model as the variant has it. One variant a process: it takes the place of shared reading's own passes."""
    kind = variant.rope.partition(":")[0]
    by_config = variant.rope if kind in ("linear", "yarn") else ""
    chunk = CHUNK if variant.changes_view else 4096
    provider = HF.model_validate(
        {"dtype": dtype, "device": device, "rope": by_config, "chunk": chunk, "reuse": False, "fused": False}
    )
    model = provider.open(folder)
    assert isinstance(model, HFModel)
    if model.engine.support.reason:
        raise LeadlineError(f"shared reading is needed: {model.engine.support.reason}", where=variant.name)
    model.card = model.card.model_copy(
        update={
            "name": variant.name,
            "fingerprints": {**model.card.fingerprints, "variant": variant.words()},
        }
    )
    view = View(variant, model.engine.model.base_model.rotary_emb.inv_freq)
    if variant.changes_view:
        chunks = type("ThisChunk", (FarChunk,), {"view": view})
        rows = type("TheseRows", (FarRows,), {"view": view})
        PASSES.DocumentPass, PASSES.RowsPass = chunks, rows
    if variant.bits:
        model.engine.reader.new_kv_cache = type("ThisCache", (QuantisedCache,), {"bits": variant.bits})
        model.engine.reader.forget()
    return model


def restore() -> None:
    """Shared reading's own passes back in place."""
    PASSES.DocumentPass, PASSES.RowsPass = DocumentPass, RowsPass


def stretch_for(model: HFModel, variant: Variant, length: int) -> None:
    """NTK-aware stretching: the base of RoPE grows with the factor, or with the length where that is dynamic."""
    kind, _, factor = variant.rope.partition(":")
    if kind not in ("ntk", "dynamic"):
        return
    config = model.engine.model.config
    original, width, base = config.max_position_embeddings, config.head_dim, config.rope_parameters["rope_theta"]
    by = float(factor)
    if kind == "dynamic":
        by = max(by * length / original - (by - 1), 1.0)
    stretched = base * by ** (width / (width - 2))
    rotary = model.engine.model.base_model.rotary_emb
    powers = torch.arange(0, width, 2, dtype=torch.float32, device=rotary.inv_freq.device) / width
    rotary.inv_freq.copy_(torch.exp(-powers * math.log(stretched)))
    model.engine.reader.forget()
