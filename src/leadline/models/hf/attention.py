"""Attention in parts: each part returns its output and its log-sum-exp, and parts are merged exactly.

Softmax over a union of keys is a weighted mean of the softmaxes over its parts, with the parts' shares of the
exponential sum as weights (the identity behind FlashAttention, Dao et al. 2022, arXiv:2205.14135). So a query attends
to a shared document and to its own few tokens in two calls, and keys and values need not be concatenated.

Tensors are [batch, heads, tokens, width]. Keys are never expanded: where a kernel does not take fewer key heads than
query heads, the heads of one key head are placed one after another on the query axis (`fold`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

AttentionPart = tuple[Tensor, Tensor]
"""Attention output [..., queries, width] and the log-sum-exp of its scores [..., queries] in float32."""

Kernel = Callable[[Tensor, Tensor, Tensor, float, bool], AttentionPart]

_BLOCK = 4096
_SMALLEST = 8192


STEP = 1024
"""Chunks whose length is a multiple of this may use kernels that need a plan for every new shape."""


def attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, *, causal: bool = False, planned: bool = False
) -> AttentionPart:
    """Attention to every key; with `causal`, as many keys as queries, and query i sees keys 0..i.

    `planned` marks shapes that occur often: worth a kernel that is faster but needs a plan for every new shape.
    """
    kernels = _kernels(query.device.type, query.dtype, query.shape[-1], value.shape[-1])
    kernel = kernels[0 if planned else -1]
    heads, key_heads = query.shape[1], key.shape[1]
    if heads == key_heads or kernel in _GROUPED:
        return kernel(query, key, value, scale, causal)
    if causal:  # few keys, so that expanding them is cheap
        key, value = (t.repeat_interleave(heads // key_heads, 1) for t in (key, value))
        return kernel(query, key, value, scale, causal)
    answer, lse = kernel(fold(query, key_heads), key, value, scale, causal)
    return answer.reshape(*query.shape[:-1], -1), lse.reshape(query.shape[:-1])


def power_of_two_spans(length: int) -> list[tuple[int, int, bool]]:
    """The first `length` keys as spans (start, stop, whether the size is a power of two), largest first.

    Few different sizes, so that a kernel that needs a plan for every shape makes few.
    """
    found, start = [], 0
    for power in range(length.bit_length() - 1, _SMALLEST.bit_length() - 2, -1):
        if length & (1 << power):
            found.append((start, start + (1 << power), True))
            start += 1 << power
    if start < length:
        found.append((start, length, False))
    return found


def attend_where(query: Tensor, key: Tensor, value: Tensor, scale: float, seen: Tensor) -> AttentionPart:
    """Attention to the keys that the mask `seen` [batch, 1, queries, keys] allows: for the few own tokens of a row.

    In float32 throughout: the keys are few, and rounding scores to bfloat16 would lose accuracy.
    """
    scores = torch.matmul(query.float(), key.float().mT).mul_(scale)
    scores.masked_fill_(~seen, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    weights = scores.sub_(lse.unsqueeze(-1)).exp_()
    return torch.matmul(weights, value.float()), lse


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


# --- kernels: the fastest that works for a device, dtype and width ----------------------------------------------------


def _cudnn(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> AttentionPart:
    got = torch.ops.aten._scaled_dot_product_cudnn_attention(
        query, key, value, None, True, 0.0, causal, False, scale=scale
    )
    return got[0], got[1].reshape(query.shape[:-1])


def _flash(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> AttentionPart:
    got = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, False, scale=scale)
    return got[0], got[1]


def _efficient(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> AttentionPart:
    got = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, None, True, 0.0, causal, scale=scale
    )
    return got[0], got[1][..., : query.shape[-2]]  # its log-sum-exp is padded to whole blocks


def _flash_cpu(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> AttentionPart:
    got = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=None, scale=scale
    )
    return got[0], got[1]


def _blocks(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> AttentionPart:
    """Plain arithmetic, a block of keys at a time: works everywhere, and the reference for the other kernels."""
    place = torch.arange(query.shape[-2], device=query.device)
    answer = query.new_zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float32)
    lse = torch.full(query.shape[:-1], float("-inf"), dtype=torch.float32, device=query.device)
    for start in range(0, key.shape[-2], _BLOCK):
        part_key, part_value = key[..., start : start + _BLOCK, :], value[..., start : start + _BLOCK, :]
        scores = torch.matmul(query.float(), part_key.float().mT) * scale
        if causal:
            columns = torch.arange(start, start + part_key.shape[-2], device=query.device)
            scores = scores.masked_fill(columns > place[:, None], float("-inf"))
        new = torch.logaddexp(lse, torch.logsumexp(scores, -1))
        answer *= torch.exp(lse - new).unsqueeze(-1)
        answer += torch.matmul(torch.exp(scores - new.unsqueeze(-1)), part_value.float())
        lse = new
    return answer.to(query.dtype), lse


# Fastest first; the last one needs no plan. On an H200 in bfloat16 cuDNN reads 128k at 610-680 TFLOP/s, flash at 350,
# but cuDNN takes about 75 ms to plan a new shape and is slower for few queries.
_TRIED: dict[str, tuple[Kernel, ...]] = {"cuda": (_cudnn, _flash), "cpu": (_flash_cpu,)}


_GROUPED = (_cudnn, _flash)
"""Kernels that take fewer key heads than query heads."""


@cache
def _kernels(device: str, dtype: torch.dtype, key_width: int, value_width: int) -> tuple[Kernel, ...]:
    if key_width != value_width:
        return (_blocks,)  # kernels differ in this case
    right = tuple(k for k in _TRIED.get(device, ()) if _is_correct(k, device, dtype, key_width))
    if right[-1:] == (_cudnn,) or not right:
        spare = device == "cuda" and _is_correct(_efficient, device, dtype, key_width)
        right += (_efficient if spare else _blocks,)
    return right


@cache
def _merging_kernel(
    device: str, dtype: torch.dtype, width: int
) -> Callable[[Sequence[tuple[Tensor, Tensor]]], Tensor | None] | None:
    """The Triton kernel that merges parts, if it is available and agrees with plain arithmetic on random numbers."""
    if device != "cuda":
        return None
    try:
        from leadline.models.hf.kernels import MOST_PARTS
        from leadline.models.hf.kernels import merge as kernel

        generator = torch.Generator().manual_seed(0)
        draws = [torch.randn(1, 3, 40, width + 1, generator=generator).to(device) for _ in range(MOST_PARTS)]
        parts = [(draw[..., :width].to(dtype).contiguous(), draw[..., width] * 4) for draw in draws]
        agrees = all(_merges_equally(kernel(parts[:count]), parts[:count]) for count in range(2, MOST_PARTS + 1))
    except Exception:  # no Triton, or a kernel that does not compile here
        return None
    return kernel if agrees else None


def _merges_equally(got: Tensor | None, parts: Sequence[AttentionPart]) -> bool:
    near = 4 * torch.finfo(parts[0][0].dtype).eps
    want = merge(parts).transpose(1, 2)
    return got is not None and torch.allclose(got.float(), want.float(), rtol=near, atol=near)


def _is_correct(kernel: Kernel, device: str, dtype: torch.dtype, width: int) -> bool:
    """Whether a kernel accepts these shapes and agrees with plain arithmetic on random numbers."""
    generator = torch.Generator().manual_seed(0)
    tolerance = 1e-4 if dtype in (torch.float32, torch.float64) else 2e-2
    group = 2 if kernel in _GROUPED else 1
    for queries, keys, causal in ((40, 40, True), (40, 200, False)):
        shapes = (1, 2 * group, queries, width), (1, 2, keys, width), (1, 2, keys, width)
        query, key, value = (torch.randn(s, generator=generator).to(device, dtype) for s in shapes)
        try:
            got = kernel(query, key, value, width**-0.5, causal)
        except (RuntimeError, NotImplementedError):
            return False
        wide_key, wide_value = (t.repeat_interleave(group, 1) for t in (key, value))
        want = _blocks(query, wide_key, wide_value, width**-0.5, causal)
        if any(not torch.allclose(g.float(), w.float(), atol=tolerance) for g, w in zip(got, want, strict=True)):
            return False
    return True
