"""Triton kernels for the attention of rows after cuts of a document (RowsPass in attention.py).

append           the keys and values of new columns stored
attend_pieces    queries to their row's own tokens and to the window before their cut: every piece in one launch
combine          what they gave together, as the model expects it, with attention sinks
merge_into       a part added to a float32 total, in place

Pieces are never copied together: a table has the address of each (rows_table.py). Long windows are split, since a step
has few queries, and keys that no query sees are left out. Scores, sums and totals are in float32.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from leadline.models.hf.rows_table import FIELDS, Pieces, Places
from leadline.models.hf.sdpa import AttentionPart
from leadline.models.hf.windows import LocalAttention

_MOST_SLOTS = 16
_SMALLEST_SPLIT = 128
"""Keys."""
_PROGRAMS = 256
"""Wanted for the windows of a layer: two for each multiprocessor of a large GPU."""
_MERGED = 8
"""Queries of a program that merges."""

# Numbers that differ between batches are not specialised: no kernel may be compiled while a step is recorded.


@triton.jit(do_not_specialize=["count"], do_not_specialize_on_alignment=["columns"])
def _append(
    own_key, own_value, key, value, columns, count, heads, width, own_row, own_head, key_row, key_head, key_column,
    value_row, value_head, value_column, HEADS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row, number = tl.program_id(0).to(tl.int64) // count, tl.program_id(0) % count
    head, feature = tl.arange(0, HEADS)[:, None], tl.arange(0, WIDTH)[None, :]
    inside = (head < heads) & (feature < width)
    target = row * own_row + head * own_head + tl.load(columns + number) * width + feature
    source = key + row * key_row + head * key_head + number * key_column + feature
    tl.store(own_key + target, tl.load(source, mask=inside), mask=inside)
    source = value + row * value_row + head * value_head + number * value_column + feature
    tl.store(own_value + target, tl.load(source, mask=inside), mask=inside)


def append(own_key: Tensor, own_value: Tensor, key: Tensor, value: Tensor, columns: Tensor) -> None:
    """Store keys and values [rows, key heads, columns, width] in these columns of [rows, key heads, room, width]."""
    rows, heads, count, width = key.shape
    key, value = (each if each.stride(3) == 1 else each.contiguous() for each in (key, value))
    with torch.cuda.device_of(key):  # a model's layers may be on several GPUs
        _append[(rows * count,)](
            own_key, own_value, key, value, columns, count, heads, width, *own_key.stride()[:2], *key.stride()[:3],
            *value.stride()[:3], HEADS=triton.next_power_of_2(heads), WIDTH=triton.next_power_of_2(width),
        )  # fmt: skip


@triton.jit(
    do_not_specialize=["rows", "key_heads", "group", "count", "size", "splits", "per_split"],
    do_not_specialize_on_alignment=["columns", "origin", "blank"],
)
def _attend(
    query, columns, origin, blank, table, answer, lse, rows, key_heads, group, count, width, scale, size, splits,
    per_split, by_row, by_head, by_column,
    LOCAL: tl.constexpr, CHUNKED: tl.constexpr, PADDED: tl.constexpr, FIELDS: tl.constexpr, QUERIES: tl.constexpr,
    KEYS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(0) < rows  # the first pieces are the rows' own tokens
    window = tl.maximum(tl.program_id(0) - rows, 0)
    split = window % splits
    entry = table + tl.where(own, tl.program_id(0), rows + window // splits) * FIELDS
    head = tl.program_id(1)
    first_row, queries = tl.load(entry + 6).to(tl.int32), tl.load(entry + 7).to(tl.int32) * group * count
    if tl.program_id(2) * QUERIES >= queries:
        return
    number = tl.program_id(2) * QUERIES + tl.arange(0, QUERIES)
    inside = number < queries
    row, rest = first_row + number // (group * count), number % (group * count)
    feature = tl.arange(0, WIDTH)[None, :]
    within = inside[:, None]
    if PADDED:
        within = within & (feature < width)
    source = row.to(tl.int64) * by_row + (head * group + rest // count) * by_head + rest % count * by_column
    asked = tl.load(query + source[:, None] + feature, mask=within, other=0.0)
    kind = asked.dtype
    # What each query sees: keys from `earliest` to `last`. Numbers count from the first key of the piece.
    now = tl.load(columns + rest % count, mask=inside, other=0).to(tl.int32)
    position = tl.load(origin + row, mask=inside, other=0).to(tl.int32) + now
    start, keys = tl.load(entry + 8).to(tl.int32), tl.load(entry + 9).to(tl.int32)
    start = tl.where(own, tl.load(origin + first_row).to(tl.int32), start)
    last = tl.where(own, now, keys - 1)
    earliest = tl.zeros_like(now) + tl.where(own, tl.load(blank + first_row).to(tl.int32), 0)
    if LOCAL:
        seen_from = position - size + 1
        if CHUNKED:
            seen_from = position // size * size
        earliest = tl.maximum(earliest, seen_from - start)
    # A padding column sees itself alone.
    earliest = tl.where(own, tl.minimum(earliest, now), earliest)
    lowest = tl.min(tl.where(inside, earliest, keys))
    begin = tl.where(own, lowest, tl.maximum(lowest, split * per_split))
    stop = tl.where(own, tl.max(tl.where(inside, now, -1)) + 1, tl.minimum(keys, (split + 1) * per_split))
    key = tl.multiple_of((tl.load(entry) + head * tl.load(entry + 2)).to(tl.pointer_type(kind)), 16)
    value = tl.multiple_of((tl.load(entry + 1) + head * tl.load(entry + 3)).to(tl.pointer_type(kind)), 16)
    key_step, value_step = tl.multiple_of(tl.load(entry + 4), 8), tl.multiple_of(tl.load(entry + 5), 8)
    top = tl.full([QUERIES], float("-inf"), tl.float32)
    weight = tl.zeros([QUERIES], tl.float32)
    total = tl.zeros([QUERIES, WIDTH], tl.float32)
    for first in range(begin, stop, KEYS):
        token = first + tl.arange(0, KEYS)
        there = (token < stop)[:, None]
        if PADDED:
            there = there & (feature < width)
        where = token.to(tl.int64)[:, None]
        some = tl.load(key + where * key_step + feature, mask=there, other=0.0)
        scores = tl.dot(asked, tl.trans(some)) * scale
        token = token[None, :]
        seen = (token >= earliest[:, None]) & (token <= last[:, None]) & (token < stop)
        scores = tl.where(seen, scores, float("-inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        level = tl.where(higher == float("-inf"), 0.0, higher)
        shares, old = tl.exp(scores - level[:, None]), tl.exp(top - level)
        some = tl.load(value + where * value_step + feature, mask=there, other=0.0)
        weight = weight * old + tl.sum(shares, 1)
        total = total * old[:, None] + tl.dot(shares.to(kind), some)
        top = higher
    whole = tl.where(weight > 0.0, weight, 1.0)
    slot = tl.where(own, 0, 1 + split)
    target = ((slot * key_heads + head).to(tl.int64) * rows + row) * group * count + rest
    tl.store(lse + target, tl.where(weight > 0.0, top + tl.log(whole), float("-inf")), mask=inside)
    tl.store(answer + target[:, None] * width + feature, total / whole[:, None], mask=within)


def attend_pieces(
    query: Tensor, places: Places, pieces: Pieces, scale: float, local: LocalAttention | None
) -> AttentionPart:
    """Attention of `query` [rows, heads, columns, width] to the pieces of a layer. `places` are the columns, the
    position of each row's first column and its number of blank columns.

    Float32 answers [slots, key heads, rows, heads of a key head x columns, width] and their log-sum-exps. The first
    slot is of the own tokens, the others are of shares of the windows.
    """
    rows, heads, count, width = query.shape
    key_heads = pieces.key_heads
    group = heads // key_heads
    if query.stride(3) != 1:
        query = query.contiguous()
    most = pieces.most_rows * group * count
    block = min(64, max(16, triton.next_power_of_2(most)))
    tiles = triton.cdiv(most, block)
    splits, per_split = _splits(pieces, key_heads * tiles)
    shape = 1 + splits if pieces.windows else 1, key_heads, rows, group * count
    answer = torch.empty(*shape, width, dtype=torch.float32, device=query.device)
    lse = torch.empty(shape, dtype=torch.float32, device=query.device)
    padded = max(16, triton.next_power_of_2(width))
    with torch.cuda.device_of(query):
        _attend[(rows + pieces.windows * splits, key_heads, tiles)](
            query, *places, pieces.table, answer, lse, rows, key_heads, group, count, width, scale,
            local.size if local else 0, splits, per_split, *query.stride()[:3], LOCAL=local is not None,
            CHUNKED=local is not None and local.chunked, PADDED=padded != width,
            FIELDS=FIELDS, QUERIES=block, KEYS=32 if padded > 128 else 64, WIDTH=padded,
            num_warps=8 if block == 64 and padded > 64 else 4, num_stages=2 if block == 64 else 3,
        )  # fmt: skip
    return answer, lse


def _splits(pieces: Pieces, programs: int) -> tuple[int, int]:
    """Into how many shares every window is split, and the keys of one; without shares there are this many programs for
    a window."""
    wanted = max(1, min(_MOST_SLOTS - 1, _PROGRAMS // max(1, programs * pieces.windows)))
    per_split = max(_SMALLEST_SPLIT, triton.cdiv(triton.cdiv(pieces.longest, wanted), 64) * 64)
    return max(1, triton.cdiv(pieces.longest, per_split)), per_split


@triton.jit(do_not_specialize=["slots", "rows", "key_heads", "group", "count"])
def _combine(
    answer, lse, sinks, out, slots, rows, key_heads, group, count, width,
    SINKS: tl.constexpr, SLOTS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    place, head = tl.program_id(0), tl.program_id(1)
    row, column = place // count, place % count
    slot, feature = tl.arange(0, SLOTS), tl.arange(0, WIDTH)[None, :]
    index = ((slot * key_heads + head // group).to(tl.int64) * rows + row) * group + head % group
    index = index * count + column
    shares = tl.load(lse + index, mask=slot < slots, other=float("-inf"))
    top = tl.max(shares)
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32)
        top = tl.maximum(top, sink)
    weights = tl.exp(shares - top)
    whole = tl.sum(weights)
    if SINKS:
        whole += tl.exp(sink - top)
    inside = (shares > float("-inf"))[:, None] & (feature < width)
    parts = tl.load(answer + index[:, None] * width + feature, mask=inside, other=0.0)
    total = tl.sum(parts * weights[:, None], 0) / whole
    feature = tl.arange(0, WIDTH)
    target = (place.to(tl.int64) * key_heads * group + head) * width + feature
    tl.store(out + target, total.to(out.dtype.element_ty), mask=feature < width)


def combine(parts: AttentionPart, heads: int, sinks: Tensor | None, dtype: torch.dtype) -> Tensor:
    """The slots that `attend_pieces` returns, merged, with one sink per head: [rows, columns, heads, width]."""
    answer, lse = parts
    slots, key_heads, rows, queries, width = answer.shape
    group = heads // key_heads
    out = torch.empty(rows, queries // group, heads, width, dtype=dtype, device=answer.device)
    at_once = 1 if slots == 1 else _MOST_SLOTS  # one kernel for every number of slots
    with torch.cuda.device_of(answer):
        _combine[(rows * (queries // group), heads)](
            answer, lse, lse if sinks is None else sinks, out, slots, rows, key_heads, group, queries // group, width,
            SINKS=sinks is not None, SLOTS=at_once, WIDTH=triton.next_power_of_2(width),
            num_warps=1 if slots == 1 else 4,
        )  # fmt: skip
    return out


# --- merging in place ---------------------------------------------------------------------------


@triton.jit(
    do_not_specialize=["rows", "queries", "lse_head", "lse_row", "lse_query", "part_lse_head", "part_lse_row",
                       "part_lse_query"],
    do_not_specialize_on_alignment=["answer", "lse", "part", "part_lse"],
)  # fmt: skip
def _merge(
    answer, lse, part, part_lse, rows, queries, width, by_head, by_row, by_query, lse_head, lse_row, lse_query,
    part_head, part_row, part_query, part_lse_head, part_lse_row, part_lse_query,
    QUERIES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    number = tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES)
    inside = number < rows * queries
    row, query = number // queries, number % queries
    feature = tl.arange(0, WIDTH)[None, :]
    within = inside[:, None] & (feature < width)
    of_total = lse + head * lse_head + row * lse_row + query * lse_query
    of_part = part_lse + head * part_lse_head + row * part_lse_row + query * part_lse_query
    old, new = tl.load(of_total, mask=inside, other=0.0), tl.load(of_part, mask=inside, other=0.0)
    top = tl.maximum(old, new)
    level = tl.where(top == float("-inf"), 0.0, top)
    before, added = tl.exp(old - level), tl.exp(new - level)
    whole = before + added
    share = tl.where(whole > 0.0, added / tl.where(whole > 0.0, whole, 1.0), 0.0)
    target = answer + (head * by_head + row * by_row + query * by_query)[:, None] + feature
    source = part + (head * part_head + row * part_row + query * part_query)[:, None] + feature
    total = tl.load(target, mask=within, other=0.0)
    more = tl.load(source, mask=within & (share > 0.0)[:, None], other=0.0).to(tl.float32)
    tl.store(target, total + (more - total) * share[:, None], mask=within)
    tl.store(of_total, level + tl.log(whole), mask=inside)


def merge_into(total: AttentionPart, part: AttentionPart) -> None:
    """Add a part [heads, rows, queries, width] to a float32 total, in place; any strides, but for the width."""
    (answer, lse), (more, more_lse) = total, part
    heads, rows, queries, width = answer.shape
    if more.stride(3) != 1:
        more = more.contiguous()
    with torch.cuda.device_of(answer):
        _merge[(triton.cdiv(rows * queries, _MERGED), heads)](
            answer, lse, more, more_lse, rows, queries, width, *answer.stride()[:3], *lse.stride(),
            *more.stride()[:3], *more_lse.stride(), QUERIES=_MERGED, WIDTH=triton.next_power_of_2(width),
        )  # fmt: skip
