"""The keys and values of a document, and attention to them: read once, used by many rows without a copy.

    Store          keys and values of the tokens read so far, one buffer per layer
    DocumentPass   attention while reading the document's next tokens into the store
    RowsPass       attention of many short rows in one batch, each row after its own cut of the document

A causal model that has read n tokens has also read every shorter prefix, so a row with a cut c attends to the store's
first c tokens and to its own. Rows are sorted by cut, longest first: the segment between two neighbouring cuts is then
visible to the first few rows and to no others, so no mask is needed. Parts are merged by log-sum-exp. transformers
calls `attention` in every layer; the current pass is in `_CURRENT`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

from leadline.models.hf.attention import (
    STEP,
    attend,
    attend_where,
    fold,
    merge_into,
    merged_by_token,
    power_of_two_spans,
)

ATTENTION_NAME = "leadline_shared_prefix"


class UnsupportedAttention(Exception):
    """The model uses a kind of attention that shared reading does not implement."""


class AttentionPass(Protocol):
    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Store the new keys and values; returns the attention output as [batch, queries, heads, width]."""
        ...


_CURRENT: ContextVar[AttentionPass] = ContextVar("leadline_pass")


@contextmanager
def running(attention_pass: AttentionPass) -> Iterator[None]:
    token = _CURRENT.set(attention_pass)
    try:
        yield
    finally:
        _CURRENT.reset(token)


_UNSUPPORTED = ("softcap", "s_aux", "sinks", "position_bias", "head_mask")


def attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Called by transformers in every layer, with the keys and values of the new tokens only."""
    unsupported = [name for name in _UNSUPPORTED if kwargs.get(name) is not None]
    if unsupported or attention_mask is not None:
        raise UnsupportedAttention(f"its attention uses {unsupported[0] if unsupported else 'a mask of its own'}")
    scale = kwargs.get("scaling")
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise UnsupportedAttention("its attention layers have no layer_idx")
    return _CURRENT.get().attend(
        layer, query, key, value, float(query.shape[-1] ** -0.5 if scale is None else scale)
    ), None


def register_attention() -> None:
    AttentionInterface.register(ATTENTION_NAME, attention)


class Store:
    """Keys and values of the tokens read so far: two buffers [1, key heads, capacity, width] per layer.

    A buffer is allocated when its layer first writes, on that layer's device, so models spread over devices work.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    def write(self, layer: int, start: int, key: Tensor, value: Tensor) -> None:
        if layer not in self._keys:
            self._keys[layer] = key.new_empty(1, key.shape[1], self.capacity, key.shape[3])
            self._values[layer] = value.new_empty(1, value.shape[1], self.capacity, value.shape[3])
        stop = start + key.shape[2]
        self._keys[layer][:, :, start:stop].copy_(key)
        self._values[layer][:, :, start:stop].copy_(value)

    def read(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        return self._keys[layer][:, :, start:stop], self._values[layer][:, :, start:stop]

    def crop(self, length: int) -> None:
        """Drop everything after the first `length` tokens."""
        self.length = min(self.length, length)

    def grow(self, capacity: int) -> None:
        """Enlarge the buffers, one layer at a time, so that only one is held twice."""
        if capacity <= self.capacity:
            return
        self.capacity = capacity
        for buffers in (self._keys, self._values):
            for layer, old in buffers.items():
                new = old.new_empty(*old.shape[:2], capacity, old.shape[3])
                new[:, :, : self.length].copy_(old[:, :, : self.length])
                buffers[layer] = new

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for b in (self._keys, self._values) for t in b.values())


class PassDone(Exception):
    """Ends a forward pass early: the rest of its output is not needed."""


class DocumentPass:
    """Reads a document's next tokens into the store: the first `count` of the given ones; the others are padding.

    With `last_layer` the pass ends there, after its keys and values: for chunks whose hidden states are not needed.
    """

    def __init__(self, store: Store, count: int, *, last_layer: int | None = None) -> None:
        self.store = store
        self.start = store.length
        self.count = count
        self.last_layer = last_layer

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        self.store.write(layer, self.start, key[:, :, : self.count], value[:, :, : self.count])
        if layer == self.last_layer:
            raise PassDone
        planned = query.shape[2] % STEP == 0
        parts = [attend(query, key, value, scale, causal=True, planned=planned)]
        for start, stop, common in power_of_two_spans(self.start):
            parts.append(attend(query, *self.store.read(layer, start, stop), scale, planned=planned and common))
        return merged_by_token(parts)


class RowsPass:
    """Rows of a few tokens each, after cuts of the document. `cuts` is in descending order.

    The rows' own tokens are right-aligned, and every pass fills the next columns of all rows, so storing their keys is
    one copy. The first `blank[i]` columns of row i are padding that no other column sees. The column numbers are a
    tensor, so that a step can be recorded as a CUDA graph and replayed.
    """

    def __init__(self, store: Store, cuts: Sequence[int], blank: Sequence[int], room: int) -> None:
        self.store = store
        self.cuts = list(cuts)
        self.room = room
        self.segments = list(_segments(self.cuts))
        self._blank = torch.tensor(blank)
        self._columns = torch.zeros(0, dtype=torch.long)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._seen: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def begin(self, columns: Tensor) -> None:
        """Set the columns that the next pass fills."""
        self._columns = columns
        self._blank = self._blank.to(columns.device)
        self._seen.clear()

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with these rows only."""
        self.cuts = [self.cuts[r] for r in rows]
        self.segments = list(_segments(self.cuts))
        self._blank = self._blank[torch.tensor(rows, device=self._blank.device)]
        for buffers in (self._keys, self._values):
            for layer, old in buffers.items():
                buffers[layer] = old[torch.tensor(rows, device=old.device)]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        rows, heads, columns, width = query.shape
        key_heads = key.shape[1]
        columns_now, seen = self._visible(query.device)
        own_key, own_value = self._append(layer, columns_now, key, value)
        # [rows, key heads, group x columns, width]: first the rows' own tokens
        folded = fold(query, key_heads)
        answer, lse = attend_where(folded, own_key, own_value, scale, seen.repeat(1, 1, heads // key_heads, 1))
        # [key heads, rows, group x columns, width]: rows that see the same segment are now adjacent
        flat = folded.transpose(0, 1).contiguous()
        total, total_lse = answer.transpose(0, 1).contiguous(), lse.transpose(0, 1).contiguous()
        for start, stop, count in self.segments:
            share = flat[:, :count].reshape(1, key_heads, -1, width)
            part, part_lse = attend(share, *self.store.read(layer, start, stop), scale)
            into = total[:, :count], total_lse[:, :count]
            merge_into(into, (part.reshape(into[0].shape), part_lse.reshape(into[1].shape)))
        answer = total.view(key_heads, rows, heads // key_heads, columns, -1).permute(1, 3, 0, 2, 4)
        return answer.to(query.dtype).reshape(rows, columns, heads, -1)

    def _append(self, layer: int, columns: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer not in self._keys:
            self._keys[layer] = key.new_zeros(*key.shape[:2], self.room, key.shape[3])
            self._values[layer] = value.new_zeros(*value.shape[:2], self.room, value.shape[3])
        self._keys[layer].index_copy_(2, columns, key)
        self._values[layer].index_copy_(2, columns, value)
        return self._keys[layer], self._values[layer]

    def _visible(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The columns being filled, and a mask of what each of them sees: [rows, 1, columns, room]."""
        if device not in self._seen:
            now = self._columns.to(device)
            room = torch.arange(self.room, device=device)
            real = room >= self._blank.to(device)[:, None, None]
            # A padding column sees itself: an empty softmax would be NaN, and NaN times a zero weight is NaN.
            seen = ((room <= now[:, None]) & real) | (room == now[:, None])
            self._seen[device] = now, seen.unsqueeze(1)
        return self._seen[device]


def _segments(cuts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Segments (start, stop) of the document between neighbouring cuts, and how many of the first rows see each."""
    start = 0
    for stop in sorted({c for c in cuts if c > 0}):
        yield start, stop, sum(c >= stop for c in cuts)
        start = stop
