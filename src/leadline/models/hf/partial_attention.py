"""Attention of some queries to some keys, as a part that can be merged exactly with others.

Softmax over a union of keys is a weighted mean of the softmaxes over its parts, with the parts' shares of the
exponential sum as weights (the identity behind FlashAttention, arXiv 2205.14135), so every part is its output and its
log-sum-exp, and nothing is concatenated.

    attend         to every key, or causally
    attend_band    each query to the last keys up to its own: a sliding window
    merge ...      the parts together; `damp` adds attention sinks, which are keys with a score and no value

Tensors are [batch, heads, tokens, width]. Keys are never expanded: where a kernel does not take fewer key heads than
query heads, the heads of one key head are placed one after another on the query axis (`fold`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from leadline.models.hf.sdpa import (
    GROUPED,
    AttentionPart,
    Kernel,
    Scoring,
    attend_in_blocks,
    attend_where,
    kernels_for,
    mask_bias,
    masked_kernel_for,
    overlapping_blocks,
    window_kernel_for,
)

_SMALLEST_SPAN = 8192
LARGEST_SPAN = 65536
"""No attention is to more keys of a document at once, so that a KV cache may keep them elsewhere."""
_ALIGNED = 8
MOST_PARTS = 6
"""Parts that are merged at once."""
_BAND_QUERIES = 1024
"""Queries of a block in banded attention, at most."""

MergingKernel = Callable[[Sequence[AttentionPart]], Tensor | None]


# --- attention in parts -------------------------------------------------------------------------


def attend(
    query: Tensor, key: Tensor, value: Tensor, how: Scoring, *, causal: bool = False, planned: bool = False
) -> AttentionPart:
    """Attention to every key; with `causal`, as many keys as queries, and query i sees keys 0..i.

    `planned` marks shapes that occur often: worth a kernel that is faster but needs a plan for every new shape.
    """
    if how.cap is not None:
        return _attend_with(partial(attend_in_blocks, cap=how.cap), query, key, value, how.scale, causal)
    kernels = kernels_for(query.device.type, query.dtype, query.shape[-1], value.shape[-1])
    for kernel in kernels if planned else kernels[-1:]:
        try:
            return _attend_with(kernel, query, key, value, how.scale, causal)
        except (RuntimeError, NotImplementedError) as error:
            _raise_unless_refused(error)
    return _attend_with(attend_in_blocks, query, key, value, how.scale, causal)


def _attend_with(
    kernel: Kernel, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool
) -> AttentionPart:
    heads, key_heads = query.shape[1], key.shape[1]
    if heads == key_heads or kernel in GROUPED:
        return kernel(query, key, value, scale, causal)
    if causal:  # few keys, so that expanding them is cheap
        key, value = (t.repeat_interleave(heads // key_heads, 1) for t in (key, value))
        return kernel(query, key, value, scale, causal)
    answer, lse = kernel(fold(query, key_heads), key, value, scale, causal)
    return answer.reshape(*query.shape[:-1], -1), lse.reshape(query.shape[:-1])


def _raise_unless_refused(error: Exception) -> None:
    """A kernel that refuses a shape is replaced by the next; a device that failed or is full is not its fault."""
    if isinstance(error, torch.OutOfMemoryError) or any(s in str(error) for s in ("CUDA error", "device-side assert")):
        raise error


def power_of_two_spans(length: int) -> list[tuple[int, int, bool]]:
    """The first `length` keys as spans (start, stop, whether the size is a power of two), largest first.

    Few different sizes, so that a kernel that needs a plan for every shape makes few.
    """
    spans, start, size = [], 0, LARGEST_SPAN
    while size >= _SMALLEST_SPAN:
        if length - start >= size:
            spans.append((start, start + size, True))
            start += size
        else:
            size //= 2
    if start < length:
        spans.append((start, length, False))
    return spans


def attend_band(
    query: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    how: Scoring,
    size: int,
    sinks: Tensor | None = None,
) -> Tensor:
    """Sliding-window attention as [1, queries, heads, width]: of the keys, given in pieces one after another, the last
    are the queries' own, and each query sees the `size` keys up to its own. At most `size - 1` are before them."""
    plain = how.cap is None and keys[0].shape[-1] == values[0].shape[-1]
    kernel = window_kernel_for(query.device.type, query.dtype, query.shape[-1]) if plain else None
    if kernel is not None:
        key, value = (pieces[0] if len(pieces) == 1 else torch.cat(list(pieces), 2) for pieces in (keys, values))
        try:
            part = kernel(query, key, value, how.scale, size)
        except (RuntimeError, NotImplementedError) as error:
            _raise_unless_refused(error)
        else:
            return (part[0] if sinks is None else damp(part, sinks.float().view(-1, 1))).transpose(1, 2)
    return _attend_band_in_blocks(query, keys, values, how, size, sinks)


def _attend_band_in_blocks(
    query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], how: Scoring, size: int, sinks: Tensor | None
) -> Tensor:
    """Blocks of queries, each over its own keys and as many before them as the window needs, are one batch."""
    heads, key_heads, queries, width = query.shape[1], keys[0].shape[1], query.shape[2], query.shape[3]
    before = sum(t.shape[2] for t in keys) - queries
    reach = max(_ALIGNED, _whole(size - 1))
    block = min(_BAND_QUERIES, reach, _whole(queries))
    count = -(-queries // block)
    missing, padding = max(0, reach - before), count * block - queries
    blocks_of = partial(overlapping_blocks, before=missing, after=padding, size=block + reach, step=block)
    key, value = blocks_of(keys), blocks_of(values)
    padded = pad(query, (0, 0, 0, padding)) if padding else query
    folded = padded.view(key_heads, heads // key_heads, count, block, width)
    folded = folded.permute(2, 0, 1, 3, 4).reshape(count, key_heads, -1, width)
    column = torch.arange(block + reach, device=query.device)
    ends = torch.arange(reach, block + reach, device=query.device).repeat(heads // key_heads)[:, None]
    band = (column <= ends) & (column > ends - size)
    # The windows of the first blocks may begin before the first key, in the padding.
    short = min(count, max(0, -(-(missing - (reach - size + 1)) // block)))
    pieces = [(b, b + 1, band & (column >= missing - b * block)) for b in range(short)]
    pieces += [(short, count, band)] if short < count else []
    answers = []
    for start, stop, seen in pieces:
        part = _attend_masked(folded[start:stop], key[start:stop], value[start:stop], how, seen)
        answers.append(part[0] if sinks is None else damp(part, fold_sinks(sinks, key_heads, block)))
    answer = torch.cat(answers) if len(answers) > 1 else answers[0]
    answer = answer.reshape(count, key_heads, heads // key_heads, block, -1).permute(0, 3, 1, 2, 4)
    return answer.reshape(1, count * block, heads, -1)[:, :queries]


def _whole(count: int) -> int:
    """Rounded up to what masked kernels need."""
    return -(-count // _ALIGNED) * _ALIGNED


def _attend_masked(query: Tensor, key: Tensor, value: Tensor, how: Scoring, seen: Tensor) -> AttentionPart:
    """With one mask [queries, keys] for the whole batch; every query sees at least one key."""
    kernel = masked_kernel_for(query.device.type, query.dtype, query.shape[-1], value.shape[-1])
    if kernel is not None and how.cap is None:
        try:
            return kernel(query, key, value, how.scale, False, mask_bias(seen, query))
        except (RuntimeError, NotImplementedError) as error:
            _raise_unless_refused(error)
    blocks = (slice(b, b + 1) for b in range(len(query)))  # one block at a time: scores are in float32
    parts = [attend_where(query[b], key[b], value[b], how, seen) for b in blocks]
    return torch.cat([answer for answer, _ in parts]).to(query.dtype), torch.cat([lse for _, lse in parts])


def damp(part: AttentionPart, sinks: Tensor) -> Tensor:
    """The output, changed in place, with keys of these scores and no value added: `sinks` is broadcast to the
    log-sum-exp."""
    answer, lse = part
    return answer.mul_(torch.sigmoid(lse - sinks).unsqueeze(-1))  # in float32, rounded once


def fold_sinks(sinks: Tensor, key_heads: int, queries: int) -> Tensor:
    """One sink per head as [key heads, heads per key head x queries], for folded queries."""
    return sinks.float().view(key_heads, -1, 1).expand(-1, -1, queries).reshape(key_heads, -1)


def merge_all(parts: Iterator[AttentionPart], sinks: Tensor | None) -> Tensor:
    """The output over the union of the parts and the sinks [heads], as [batch, tokens, heads, width].

    At most a few parts are held at once.
    """
    held: list[AttentionPart] = []
    for part in parts:
        if len(held) == MOST_PARTS:
            lse = torch.logsumexp(torch.stack([lse for _, lse in held]), 0)
            held = [(merged_by_token(held).transpose(1, 2), lse)]
        held.append(part)
    if sinks is not None:  # as a part of the first
        (answer, lse), column = held[0], sinks.float().view(-1, 1)
        held[0] = damp((answer, lse), column), torch.logaddexp(lse, column)
    return merged_by_token(held)


def merge(parts: Sequence[AttentionPart]) -> Tensor:
    """The attention output over the union of the parts, in the first part's dtype."""
    if len(parts) == 1:
        return parts[0][0]
    shares = torch.stack([lse for _, lse in parts]).softmax(0).unsqueeze(-1)
    total = parts[0][0] * shares[0]  # in float32, as the shares are
    for (answer, _), share in zip(parts[1:], shares[1:], strict=True):
        total.addcmul_(answer, share)
    return total.to(parts[0][0].dtype)


def merged_by_token(parts: Sequence[AttentionPart]) -> Tensor:
    """The same as [batch, tokens, heads, width], the layout the model expects; in one kernel where available."""
    first = parts[0][0]
    kernel = _merging_kernel(first.device.type, first.dtype, first.shape[-1]) if len(parts) > 1 else None
    answer = kernel(parts) if kernel else None
    return merge(parts).transpose(1, 2) if answer is None else answer


def merge_into(total: AttentionPart, part: AttentionPart) -> None:
    """Add a part to a float32 total, in place."""
    answer, lse = total
    share = torch.sigmoid(part[1] - lse).unsqueeze(-1)
    answer.lerp_(part[0].to(answer.dtype), share)
    torch.logaddexp(lse, part[1], out=lse)


def fold(query: Tensor, key_heads: int) -> Tensor:
    """[batch, heads, queries, width] to [batch, key heads, heads per key head x queries, width]."""
    batch, heads, length, width = query.shape
    return query.reshape(batch, key_heads, heads // key_heads * length, width)


@cache
def _merging_kernel(device: str, dtype: torch.dtype, width: int) -> MergingKernel | None:
    """The Triton kernel that merges parts, if it is available and agrees with plain arithmetic on random numbers."""
    if device != "cuda":
        return None
    try:
        from leadline.models.hf.fused_kernels import merge_parts  # Triton is imported only on a GPU

        generator = torch.Generator().manual_seed(0)
        draws = [torch.randn(2, 3, 40, width + 1, generator=generator).to(device) for _ in range(MOST_PARTS)]
        parts = [(draw[..., :width].to(dtype).contiguous(), draw[..., width] * 4) for draw in draws]
        agrees = all(_merges_equally(merge_parts(parts[:count]), parts[:count]) for count in range(2, MOST_PARTS + 1))
    except Exception:  # no Triton, or a kernel that does not compile here
        return None
    return merge_parts if agrees else None


def _merges_equally(got: Tensor | None, parts: Sequence[AttentionPart]) -> bool:
    near = 4 * torch.finfo(parts[0][0].dtype).eps
    want = merge(parts).transpose(1, 2)
    return got is not None and torch.allclose(got.float(), want.float(), rtol=near, atol=near)
