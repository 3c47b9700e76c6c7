"""Scaled dot-product attention with its log-sum-exp: plain arithmetic, torch's kernels, and the choice between them.

Plain arithmetic works everywhere, in float32, and is the reference: a kernel of torch is used for a device, dtype and
width only after it has agreed with it there on random numbers.

Tensors are [batch, heads, tokens, width].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

SCORES_BYTES = 256 << 20
"""The limit for scores in plain arithmetic."""

AttentionPart = tuple[Tensor, Tensor]
"""Attention output [..., queries, width] and the log-sum-exp of its scores [..., queries] in float32."""
Kernel = Callable[[Tensor, Tensor, Tensor, float, bool], AttentionPart]
WindowKernel = Callable[[Tensor, Tensor, Tensor, float, int], AttentionPart]
MaskedKernel = Callable[[Tensor, Tensor, Tensor, float, bool, Tensor | None], AttentionPart]
"""With a bias [batch, heads, queries, keys] that is added to the scores."""


# --- plain arithmetic ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scoring:
    """The score of a query and a key: `scale` times their product, and with a cap `cap * tanh(score / cap)`."""

    scale: float
    cap: float | None = None

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """In float32."""
        scores = torch.matmul(query.float(), key.float().mT).mul_(self.scale)
        return scores if self.cap is None else scores.div_(self.cap).tanh_().mul_(self.cap)


def attend_where(query: Tensor, key: Tensor, value: Tensor, how: Scoring, seen: Tensor) -> AttentionPart:
    """Attention to the keys that the mask `seen` [batch, 1, queries, keys] allows. A query that sees none of them gets
    zeros and a log-sum-exp of minus infinity.

    In float32 throughout: the keys are few, and rounding scores to bfloat16 would lose accuracy.
    """
    scores = how.scores(query, key).masked_fill_(~seen, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    weights = scores.sub_(lse.clamp_min(torch.finfo(lse.dtype).min).unsqueeze(-1)).exp_()
    return torch.matmul(weights, value.float()), lse


def attend_in_blocks(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool, cap: float | None = None
) -> AttentionPart:
    """Plain arithmetic, a block of keys at a time: works everywhere, and the reference for the other kernels."""
    how = Scoring(scale, cap)
    rows = torch.arange(query.shape[-2], device=query.device)
    answer = query.new_zeros(*query.shape[:-1], value.shape[-1], dtype=torch.float32)
    lse = torch.full(query.shape[:-1], float("-inf"), dtype=torch.float32, device=query.device)
    block = max(16, min(4096, SCORES_BYTES // (4 * lse.numel())))
    for start in range(0, key.shape[-2], block):
        part_key, part_value = key[..., start : start + block, :], value[..., start : start + block, :]
        scores = how.scores(query, part_key)
        if causal:
            columns = torch.arange(start, start + part_key.shape[-2], device=query.device)
            scores.masked_fill_(columns > rows[:, None], float("-inf"))
        new = torch.logaddexp(lse, torch.logsumexp(scores, -1))
        answer *= torch.exp(lse - new).unsqueeze(-1)
        answer += torch.matmul(scores.sub_(new.unsqueeze(-1)).exp_(), part_value.float())
        lse = new
    return answer.to(query.dtype), lse


def mask_bias(seen: Tensor, query: Tensor) -> Tensor:
    """The mask as numbers to add to the scores, the same for the whole batch."""
    bias = torch.zeros(seen.shape, dtype=query.dtype, device=query.device).masked_fill_(~seen, float("-inf"))
    return bias.expand(*query.shape[:2], *bias.shape)


def overlapping_blocks(pieces: Sequence[Tensor], *, before: int, after: int, size: int, step: int) -> Tensor:
    """The pieces one after another between zeros, as overlapping blocks [blocks, heads, size, width]: a view."""
    first = pieces[0]
    zeros = [first.new_zeros(1, first.shape[1], n, first.shape[3]) for n in (before, after)]
    whole = torch.cat([zeros[0], *pieces, zeros[1]], 2)
    return whole.unfold(2, size, step)[0].permute(1, 0, 3, 2)


# --- kernels: the fastest that works for a device, dtype and width ------------------------------


def _cudnn(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool, bias: Tensor | None = None
) -> AttentionPart:
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention
    answer, lse, *_ = attention(query, key, value, bias, True, 0.0, causal, False, scale=scale)
    return answer, lse.reshape(query.shape[:-1])


def _flash(query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> AttentionPart:
    got = torch.ops.aten._scaled_dot_product_flash_attention(query, key, value, 0.0, causal, False, scale=scale)
    return got[0], got[1]


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool, bias: Tensor | None = None
) -> AttentionPart:
    attention = torch.ops.aten._scaled_dot_product_efficient_attention
    answer, lse, *_ = attention(query, key, value, bias, True, 0.0, causal, scale=scale)
    return answer, lse[..., : query.shape[-2]]  # padded to whole blocks


def _flash_cpu(
    query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool, bias: Tensor | None = None
) -> AttentionPart:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    answer, lse = attention(query, key, value, 0.0, causal, attn_mask=bias, scale=scale)
    return answer, lse


def _flash_window(query: Tensor, key: Tensor, value: Tensor, scale: float, size: int) -> AttentionPart:
    """Each query sees the `size` keys up to its own; the last keys are the queries' own."""
    counts = query.shape[2], key.shape[2]
    query, key, value = (t.transpose(1, 2) for t in (query, key, value))
    attention = torch.ops.aten._flash_attention_forward
    answer, lse, *_ = attention(
        query, key, value, None, None, *counts, 0.0, True, False, scale=scale, window_size_left=size - 1,
        window_size_right=0,
    )  # fmt: skip
    return answer.transpose(1, 2), lse


# Fastest first; the last one needs no plan. On an H200 in bfloat16 cuDNN reads 128k at 610-680 TFLOP/s, flash at 350,
# but cuDNN takes about 75 ms to plan a new shape and is slower for few queries.
_TRIED: dict[str, tuple[Kernel, ...]] = {"cuda": (_cudnn, _flash), "cpu": (_flash_cpu,)}
_TRIED_MASKED: dict[str, tuple[MaskedKernel, ...]] = {"cuda": (_efficient, _cudnn), "cpu": (_flash_cpu,)}
GROUPED = (_cudnn, _flash)
"""Kernels that take fewer key heads than query heads."""


@cache
def kernels_for(device: str, dtype: torch.dtype, key_width: int, value_width: int) -> tuple[Kernel, ...]:
    if key_width != value_width:
        return (attend_in_blocks,)  # kernels differ in this case
    right = tuple(k for k in _TRIED.get(device, ()) if _is_correct(k, device, dtype, key_width))
    if right[-1:] == (_cudnn,) or not right:
        spare = device == "cuda" and _is_correct(_efficient, device, dtype, key_width)
        right += (_efficient if spare else attend_in_blocks,)
    return right


@cache
def masked_kernel_for(device: str, dtype: torch.dtype, key_width: int, value_width: int) -> MaskedKernel | None:
    if key_width != value_width:
        return None
    return next((k for k in _TRIED_MASKED.get(device, ()) if _masks_correctly(k, device, dtype, key_width)), None)


def _masks_correctly(kernel: MaskedKernel, device: str, dtype: torch.dtype, width: int) -> bool:
    """Whether a kernel agrees with plain arithmetic on overlapping blocks with a band mask, as they are used."""
    generator = torch.Generator().manual_seed(0)
    for block in (40, 512) if device == "cuda" else (40,):
        query, keys, values = (
            torch.randn(batch, 2, n, width, generator=generator).to(device, dtype)
            for batch, n in ((3, block), (1, 4 * block), (1, 4 * block))
        )
        key, value = (overlapping_blocks([t], before=0, after=0, size=2 * block, step=block) for t in (keys, values))
        seen = torch.ones(block, 2 * block, dtype=torch.bool, device=device).tril(block).triu(4)
        want = attend_where(query, key, value, Scoring(width**-0.5), seen)
        try:
            got = kernel(query, key, value, width**-0.5, False, mask_bias(seen, query))
        except (RuntimeError, NotImplementedError):
            return False
        if not _near(got, want, dtype):
            return False
    return True


@cache
def window_kernel_for(device: str, dtype: torch.dtype, width: int) -> WindowKernel | None:
    """A kernel that leaves out the keys before a window; None where there is none that is right."""
    return _flash_window if device == "cuda" and _windows_correctly(device, dtype, width) else None


def _windows_correctly(device: str, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernel agrees with plain arithmetic: nothing, a whole window and less before the queries."""
    generator, size = torch.Generator().manual_seed(0), 9
    for queries, before in ((200, 0), (1000, size - 1), (64, 4)):
        sizes = (4, queries), (2, before + queries), (2, before + queries)
        query, key, value = (torch.randn(1, *n, width, generator=generator).to(device, dtype) for n in sizes)
        try:
            got = _flash_window(query, key, value, width**-0.5, size)
        except (RuntimeError, NotImplementedError):
            return False
        seen = torch.ones(queries, before + queries, dtype=torch.bool, device=device)
        seen = seen.tril(before).triu(before - size + 1)
        wide_key, wide_value = (t.repeat_interleave(2, 1) for t in (key, value))
        if not _near(got, attend_where(query, wide_key, wide_value, Scoring(width**-0.5), seen), dtype):
            return False
    return True


def _near(got: AttentionPart, want: AttentionPart, dtype: torch.dtype) -> bool:
    """Answers within a share of their size, which becomes small over many keys, and log-sum-exps absolutely."""
    near = 1e-4 if dtype in (torch.float32, torch.float64) else 2e-2
    apart = (got[0].float() - want[0].float()).norm() / want[0].float().norm()
    return bool(apart <= near) and torch.allclose(got[1].float(), want[1].float(), atol=near)


def _is_correct(kernel: Kernel, device: str, dtype: torch.dtype, width: int) -> bool:
    """Whether a kernel accepts these shapes and agrees with plain arithmetic on random numbers."""
    generator = torch.Generator().manual_seed(0)
    group = 2 if kernel in GROUPED else 1
    shapes = [(40, 40, True), (40, 200, False)]
    if device == "cuda":  # kernels choose their method by the size
        shapes += [(1024, 1024, True), (1024, 8192, False)]
    for queries, keys, causal in shapes:
        sizes = (2 * group, queries), (2, keys), (2, keys)
        query, key, value = (torch.randn(1, *size, width, generator=generator).to(device, dtype) for size in sizes)
        try:
            got = kernel(query, key, value, width**-0.5, causal)
        except (RuntimeError, NotImplementedError):
            return False
        wide_key, wide_value = (t.repeat_interleave(group, 1) for t in (key, value))
        want = attend_in_blocks(query, wide_key, wide_value, width**-0.5, causal)
        if not _near(got, want, dtype):
            return False
    return True
