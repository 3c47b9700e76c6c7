"""Attention of a whole model to the keys and values of a document, through transformers' attention interface.

    DocumentPass   attention while reading the document's next tokens into the KV cache
    RowsPass       attention of many short rows in one batch, each row after its own cut of the document

A causal model that has read n tokens has also read every shorter prefix, so a row with a cut c attends to the first c
tokens in the KV cache and to its own. Rows are sorted by cut, longest first: the segment between two neighbouring cuts
is then visible to the first few rows and to no others, so no mask is needed. In a layer with local attention a row
attends to what its window still holds of the document before its cut; rows of one cut do so together. Everything is
computed in parts (partial_attention.py) and merged exactly; attention sinks and capped scores are parts of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import AttentionInterface

from leadline.models.hf.kv_cache import KVCache
from leadline.models.hf.partial_attention import (
    LARGEST_SPAN,
    attend,
    attend_band,
    damp,
    fold,
    fold_sinks,
    merge_all,
    merge_into,
    power_of_two_spans,
)
from leadline.models.hf.rows_table import Pieces, Window, pieces_of, rows_kernels
from leadline.models.hf.sdpa import AttentionPart, Scoring, attend_where
from leadline.models.hf.windows import LocalAttention, UnsupportedAttention, Windows

ATTENTION_NAME = "leadline_shared_prefix"
STEP = 1024
"""Chunks whose length is a multiple of this may use kernels that need a plan for every new shape."""
_MASKED_KEYS = 512

Merge = Callable[[AttentionPart, AttentionPart], None]
"""Adds a part to a float32 total, in place."""


@dataclass(frozen=True, slots=True)
class LayerCall:
    """One call of a layer: its number, its scores, and one sink per head (the score of a key without a value)."""

    layer: int
    how: Scoring
    sinks: Tensor | None = None


class AttentionPass(Protocol):
    def attend(self, call: LayerCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Store the new keys and values; returns the attention output as [batch, queries, heads, width]."""
        ...


_CURRENT: ContextVar[tuple[AttentionPass, Tensor]] = ContextVar("leadline_pass")


@contextmanager
def running(attention_pass: AttentionPass, positions: Tensor) -> Iterator[None]:
    token = _CURRENT.set((attention_pass, positions))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    """Called by transformers in every layer, with the keys and values of the new tokens only."""
    unsupported = [name for name in ("position_bias", "head_mask") if kwargs.get(name) is not None]
    if unsupported or attention_mask is not None:
        raise UnsupportedAttention(f"its attention uses {unsupported[0] if unsupported else 'a mask of its own'}")
    layer, scale, cap, sinks = (
        getattr(module, "layer_idx", None), kwargs.get("scaling"), kwargs.get("softcap"), kwargs.get("s_aux")
    )  # fmt: skip
    if layer is None:
        raise UnsupportedAttention("its attention layers have no layer_idx")
    if sinks is not None and sinks.shape != query.shape[1:2]:
        raise UnsupportedAttention("its attention sinks are not one number per head")
    attention_pass, positions = _CURRENT.get()
    scoring = Scoring(float(query.shape[-1] ** -0.5 if scale is None else scale), cap and float(cap))
    call = LayerCall(layer, scoring, sinks)
    answer = attention_pass.attend(call, _with_true_temperature(module, query, positions), key, value)
    return answer.contiguous(), None


def _with_true_temperature(module: Any, query: Tensor, positions: Tensor) -> Tensor:
    """Llama 4 multiplies queries by a temperature that grows with the position, counted from the first token of the
    pass unless it has a cache: divided out, and multiplied by that of the true position."""
    if not getattr(module, "attn_temperature_tuning", False) or getattr(module, "use_rope", True):
        return query

    def temperature(position: Tensor) -> Tensor:
        steps = torch.floor((position.float() + 1) / float(module.floor_scale))
        return torch.log1p(steps) * float(module.attn_scale) + 1

    counted = torch.arange(query.shape[2], device=query.device)
    ratio = temperature(positions.to(query.device)) / temperature(counted)
    return (query * ratio[:, None, :, None]).to(query.dtype)


AttentionInterface.register(ATTENTION_NAME, attention)


# --- reading a document -------------------------------------------------------------------------


class PassDone(Exception):
    """Ends a forward pass early: the rest of its output is not needed."""


class DocumentPass:
    """Reads a document's next tokens into the KV cache: the first `count` of the given ones; the others are padding.

    With `last_layer` the pass ends there, after its keys and values: for chunks whose hidden states are not needed.
    """

    def __init__(self, kv_cache: KVCache, windows: Windows, count: int, *, last_layer: int | None = None) -> None:
        self.kv_cache, self.windows, self.count, self.last_layer = kv_cache, windows, count, last_layer
        self.start = kv_cache.length

    def attend(self, call: LayerCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        local = self.windows.get(call.layer)
        seen = self.kv_cache.write(call.layer, key[:, :, : self.count], value[:, :, : self.count], local)
        if call.layer == self.last_layer:
            raise PassDone
        if local is None or local.first_seen(self.start + query.shape[2] - 1) == 0:
            return merge_all(self._parts(call, 0, query, key, value), call.sinks)
        if local.chunked:
            return self._attend_chunked(call, local.size, query, key, value)
        if seen is None or self.count < query.shape[2]:
            earlier = [(local.first_seen(self.start), self.start)] if self.start else []
            pieces = [*self.kv_cache.blocks(call.layer, earlier), (key, value)]
        else:
            pieces = [seen]
        keys, values = ([pair[side] for pair in pieces] for side in (0, 1))
        return attend_band(query, keys, values, call.how, local.size, call.sinks)

    def _parts(self, call: LayerCall, first: int, query: Tensor, key: Tensor, value: Tensor) -> Iterator[AttentionPart]:
        """Attention to the pass's own tokens, and to those in the KV cache from `first` on."""
        planned = query.shape[2] % STEP == 0
        yield attend(query, key, value, call.how, causal=True, planned=planned)
        spans = [(first + start, first + stop) for start, stop, _ in power_of_two_spans(self.start - first)]
        for (start, stop), block in zip(spans, self.kv_cache.blocks(call.layer, spans), strict=True):
            common = (stop - start).bit_count() == 1
            yield attend(query, *block, call.how, planned=planned and common)

    def _attend_chunked(self, call: LayerCall, size: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Each chunk of the document by itself; only the first of this pass can have begun before it."""
        stop, begin = self.start + query.shape[2], self.start // size * size
        parts = []
        for chunk in range(begin, stop, size):
            own = slice(max(chunk, self.start) - self.start, min(chunk + size, stop) - self.start)
            first = min(chunk, self.start) if chunk == begin else self.start
            pieces = (t[:, :, own] for t in (query, key, value))
            parts.append(merge_all(self._parts(call, first, *pieces), call.sinks))
        return torch.cat(parts, 1)


# --- rows after cuts of a document --------------------------------------------------------------


@dataclass(frozen=True)
class _WindowPiece:
    """Spans of a document, as long as each other, each with as many rows that attend to it: all columns of these rows
    see all of their span (`everywhere`), or a mask says which do."""

    rows: slice
    spans: tuple[tuple[int, int], ...]
    everywhere: bool

    @property
    def count(self) -> int:
        return int(self.rows.stop) - int(self.rows.start)

    @property
    def keys(self) -> int:
        return self.spans[0][1] - self.spans[0][0]

    def __hash__(self) -> int:  # slices have a hash from Python 3.12 on
        return hash((self.spans, self.everywhere))


class RowsPass:
    """Rows of a few tokens each, after cuts of the document. `cuts` is in descending order.

    The rows' own tokens are right-aligned, and every pass fills the next columns of all rows, so storing their keys is
    one copy. The first `blank[i]` columns of row i are padding that no other column sees. The column numbers are a
    tensor, so that a step can be recorded as a CUDA graph and replayed.
    """

    def __init__(
        self, kv_cache: KVCache, windows: Windows, cuts: Sequence[int], blank: Sequence[int], room: int
    ) -> None:
        self.kv_cache, self.windows = kv_cache, windows
        self.cuts, self.blank = list(cuts), list(blank)
        self.room = room
        self.segments = list(_segments(self.cuts))
        self._columns = torch.zeros(0, dtype=torch.long)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._seen: dict[tuple[torch.device, LocalAttention | None], Tensor] = {}
        self._places: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}
        self._pieces: dict[LocalAttention, list[_WindowPiece]] = {}
        self._masks: dict[tuple[torch.device, LocalAttention, _WindowPiece], Tensor] = {}
        self._key_positions: dict[tuple[torch.device, _WindowPiece], Tensor] = {}
        self._read_by_kernels: dict[int, Pieces | None] = {}

    def begin(self, columns: Tensor) -> None:
        """Set the columns that the next pass fills."""
        self._columns = columns
        self._seen.clear()
        self._masks.clear()
        self._places = {
            device: (columns.to(device), first, blank) for device, (_, first, blank) in self._places.items()
        }

    def keep(self, rows: Sequence[int]) -> None:
        """Continue with these rows only."""
        self.cuts, self.blank = ([old[r] for r in rows] for old in (self.cuts, self.blank))
        self.segments = list(_segments(self.cuts))
        self._places.clear()
        self._pieces.clear()
        self._key_positions.clear()
        self._read_by_kernels.clear()
        for buffers in (self._keys, self._values):
            for layer, old in buffers.items():
                buffers[layer] = old[torch.tensor(rows, device=old.device)]

    def attend(self, call: LayerCall, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        kernels = None if call.how.cap is not None else rows_kernels(query, key, value)
        own_key, own_value = self._append(call.layer, key, value, kernels)
        pieces = None if kernels is None else self._pieces_for_kernels(call.layer, own_key, own_value)
        if pieces is not None:
            return self._attend_by_kernels(kernels, pieces, call, query)
        rows, heads, columns, _ = query.shape
        key_heads, local = key.shape[1], self.windows.get(call.layer)
        # [rows, key heads, group x columns, width]: first the rows' own tokens
        seen = self._visible(query.device, local).repeat(1, 1, heads // key_heads, 1)
        folded = fold(query, key_heads)
        answer, lse = attend_where(folded, own_key, own_value, call.how, seen)
        # [key heads, rows, group x columns, width]: rows that see the same keys are now adjacent
        total = answer.transpose(0, 1).contiguous(), lse.transpose(0, 1).contiguous()
        self._attend_document(call, folded.transpose(0, 1).contiguous(), total, merge_into)
        whole = total[0] if call.sinks is None else damp(total, fold_sinks(call.sinks, key_heads, columns)[:, None])
        answer = whole.view(key_heads, rows, heads // key_heads, columns, -1).permute(1, 3, 0, 2, 4)
        return answer.to(query.dtype).reshape(rows, columns, heads, -1)

    def _attend_by_kernels(self, kernels: Any, pieces: Pieces, call: LayerCall, query: Tensor) -> Tensor:
        """The same in two launches, and in a few more for each part of the document that is not among the pieces."""
        local = self.windows.get(call.layer)
        parts = kernels.attend_pieces(query, self._place(query.device), pieces, call.how.scale, local)
        if not pieces.windows and self.cuts[0] > 0:
            flat = fold(query, pieces.key_heads).transpose(0, 1).contiguous()
            self._attend_document(call, flat, (parts[0][0], parts[1][0]), kernels.merge_into)
        answer: Tensor = kernels.combine(parts, query.shape[1], call.sinks, query.dtype)
        return answer

    def _pieces_for_kernels(self, layer: int, own_key: Tensor, own_value: Tensor) -> Pieces | None:
        """The rows' own tokens, and the windows before their cuts where these stay in one place. Made once a batch."""
        if layer not in self._read_by_kernels:
            own, local, windows = (own_key, own_value), self.windows.get(layer), []
            if local is not None and self.kv_cache.steady and not self.kv_cache.fp8:
                cuts = [(rows, self.cuts[rows.start]) for rows in self._rows_of_cuts()]
                spans = [(local.first_seen(cut), cut) for _, cut in cuts]
                blocks = self.kv_cache.blocks(layer, [span for span in spans if span[0] < span[1]])
                for (rows, _), (start, stop) in zip(cuts, spans, strict=True):
                    pair = next(blocks) if start < stop else (own_key[:1, :, :0], own_value[:1, :, :0])
                    windows.append(Window(rows, start, *pair))
            self._read_by_kernels[layer] = pieces_of(*own, windows) or pieces_of(*own)
        return self._read_by_kernels[layer]

    def _attend_document(self, call: LayerCall, flat: Tensor, total: AttentionPart, merge: Merge) -> None:
        local = self.windows.get(call.layer)
        if local is None:
            self._attend_segments(call, flat, total, merge)
        else:
            self._attend_windows(call, local, flat, total, merge)

    def _attend_segments(self, call: LayerCall, flat: Tensor, total: AttentionPart, merge: Merge) -> None:
        """Segments of the document, each with the first rows, which all see the whole of it."""
        blocks = self.kv_cache.blocks(call.layer, [(start, stop) for start, stop, _ in self.segments])
        for (_, _, count), block in zip(self.segments, blocks, strict=True):
            share = flat[:, :count].reshape(1, flat.shape[0], -1, flat.shape[-1])
            _merge_rows(total, slice(0, count), attend(share, *block, call.how), merge)

    def _attend_windows(
        self, call: LayerCall, local: LocalAttention, flat: Tensor, total: AttentionPart, merge: Merge
    ) -> None:
        """The part of the document that the rows' windows still hold: for each cut the keys that all its columns see,
        now and later, and those that only the first of them see. Cuts with as many rows and keys are one batch."""
        pieces = list(self._window_pieces(local))
        blocks = self.kv_cache.blocks(call.layer, [span for piece in pieces for span in piece.spans])
        for piece in pieces:
            of_cuts = [next(blocks) for _ in piece.spans] if self.kv_cache.steady else _copies(blocks, len(piece.spans))
            key, value = (torch.cat(side) if len(side) > 1 else side[0] for side in zip(*of_cuts, strict=True))
            share = flat[:, piece.rows].reshape(flat.shape[0], len(piece.spans), -1, flat.shape[-1]).transpose(0, 1)
            if piece.everywhere:
                part = attend(share, key, value, call.how)
            else:
                seen = self._window_mask(piece, local, flat.device)
                group = flat.shape[2] // seen.shape[1]
                seen = seen.repeat(1, group, 1).view(len(piece.spans), 1, -1, seen.shape[-1])
                part = attend_where(share, key, value, call.how, seen)
            _merge_rows(total, piece.rows, (part[0].transpose(0, 1), part[1].transpose(0, 1)), merge)

    def _window_mask(self, piece: _WindowPiece, local: LocalAttention, device: torch.device) -> Tensor:
        """[rows, columns, keys of a span]: what every column sees of the span of its cut. The same in all layers."""
        mask = self._masks.get((device, local, piece))
        if mask is None:
            columns, origin, _ = self._place(device)
            position = origin[piece.rows, None] + columns
            first = position // local.size * local.size if local.chunked else position - local.size + 1
            keys = self._window_keys(piece, device)
            mask = self._masks[device, local, piece] = keys >= first[..., None]
        return mask

    def _window_keys(self, piece: _WindowPiece, device: torch.device) -> Tensor:
        """[rows, 1, keys]: their positions. Made once a batch, since a recorded step cannot copy from the host."""
        keys = self._key_positions.get((device, piece))
        if keys is None:
            each = (piece.rows.stop - piece.rows.start) // len(piece.spans)
            starts = torch.tensor([start for start, _ in piece.spans], device=device).repeat_interleave(each)
            keys = starts[:, None, None] + torch.arange(piece.spans[0][1] - piece.spans[0][0], device=device)
            self._key_positions[device, piece] = keys
        return keys

    def _window_pieces(self, local: LocalAttention) -> list[_WindowPiece]:
        """For the rows of each cut the spans of its window; neighbouring cuts with equal sizes are joined."""
        if local not in self._pieces:
            of_cuts = [list(self._pieces_of_cut(local, rows)) for rows in self._rows_of_cuts()]
            sizes = [[(piece.keys, piece.count, piece.everywhere) for piece in pieces] for pieces in of_cuts]
            self._pieces[local] = [
                _joined([of_cuts[number] for number in numbers], position)
                for _, numbers in (
                    (size, list(same)) for size, same in groupby(range(len(sizes)), key=sizes.__getitem__)
                )
                for position in range(len(of_cuts[numbers[0]]))
            ]
        return self._pieces[local]

    def _rows_of_cuts(self) -> Iterator[slice]:
        for _, numbers in groupby(range(len(self.cuts)), key=lambda row: self.cuts[row]):
            group = list(numbers)
            yield slice(group[0], group[-1] + 1)

    def _pieces_of_cut(self, local: LocalAttention, rows: slice) -> Iterator[_WindowPiece]:
        cut = self.cuts[rows.start]
        split = min(cut, local.first_seen(cut + self.room - 1 - min(self.blank)))
        for start in range(local.first_seen(cut), split, _MASKED_KEYS):
            yield _WindowPiece(rows, ((start, min(split, start + _MASKED_KEYS)),), False)
        if split < cut:
            yield _WindowPiece(rows, ((split, cut),), True)

    def _append(self, layer: int, key: Tensor, value: Tensor, kernels: Any = None) -> tuple[Tensor, Tensor]:
        if layer not in self._keys:
            self._keys[layer] = key.new_zeros(*key.shape[:2], self.room, key.shape[3])
            self._values[layer] = value.new_zeros(*value.shape[:2], self.room, value.shape[3])
        columns, _, _ = self._place(key.device)
        own_key, own_value = self._keys[layer], self._values[layer]
        if kernels is None:
            own_key.index_copy_(2, columns, key)
            own_value.index_copy_(2, columns, value)
        else:
            kernels.append(own_key, own_value, key, value, columns)
        return own_key, own_value

    def _place(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """The columns being filled, the position of each row's first column, and its number of blank columns."""
        if device not in self._places:
            blank = torch.tensor(self.blank, device=device)
            self._places[device] = self._columns.to(device), torch.tensor(self.cuts, device=device) - blank, blank
        return self._places[device]

    def _visible(self, device: torch.device, local: LocalAttention | None) -> Tensor:
        """A mask of what each of the columns being filled sees of its row: [rows, 1, columns, room]."""
        if (device, local) not in self._seen:
            now, origin, blank = self._place(device)
            now, room = now[:, None], torch.arange(self.room, device=device)
            seen = (room <= now) & (room >= blank[:, None, None])
            if local is not None and local.chunked:
                first = origin[:, None, None]
                seen &= (first + room) // local.size == (first + now) // local.size
            elif local is not None:
                seen &= room > now - local.size
            # A padding column sees itself: an empty softmax would be NaN, and NaN times a zero weight is NaN.
            self._seen[device, local] = (seen | (room == now)).unsqueeze(1)
        return self._seen[device, local]


def _joined(pieces: Sequence[Sequence[_WindowPiece]], position: int) -> _WindowPiece:
    """Of neighbouring cuts the pieces at this position, as one."""
    of_cuts = [of_cut[position] for of_cut in pieces]
    rows = slice(of_cuts[0].rows.start, of_cuts[-1].rows.stop)
    return _WindowPiece(rows, tuple(piece.spans[0] for piece in of_cuts), of_cuts[0].everywhere)


def _copies(blocks: Iterator[tuple[Tensor, Tensor]], count: int) -> list[tuple[Tensor, Tensor]]:
    """The next blocks of a layer in host memory, each of which is valid only until the next is asked for."""
    return [(key.clone(), value.clone()) for key, value in islice(blocks, count)]


def _merge_rows(total: AttentionPart, rows: slice, part: AttentionPart, merge: Merge) -> None:
    """Add a part [1, key heads, rows x columns of a group, width] to some of the rows."""
    into = total[0][:, rows], total[1][:, rows]
    merge(into, (part[0].reshape(into[0].shape), part[1].reshape(into[1].shape)))


def _segments(cuts: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Segments (start, stop) of the document between neighbouring cuts, and how many of the first rows see each."""
    begin = 0
    for end in sorted({c for c in cuts if c > 0}):
        for start in range(begin, end, LARGEST_SPAN):
            yield start, min(end, start + LARGEST_SPAN), sum(c >= end for c in cuts)
        begin = end
