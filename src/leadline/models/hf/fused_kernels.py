"""Fused Triton kernels for the operations of a decoder between its matrix products, and their use in a model.

Every kernel rounds where transformers' own sequence of operations rounds, so that in bfloat16 only the order of
summation differs. `fuse` replaces RMS norms (with gates and without), the rotary embedding and the experts of a model,
each only after a test against the model's own code. What they save is in docs/performance.md; a kernel that saves less
than 5 % goes.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from leadline.models.hf.experts import can_be_fused, experts_forward
from leadline.models.hf.partial_attention import MOST_PARTS

try:
    import triton
    import triton.language as tl
except Exception:  # not installed, or an incompatible version: nothing is replaced
    triton = None

jit: Any = triton.jit if triton else lambda kernel: kernel


@jit
def _norm(x, weight, out, width, eps, offset, ROUNDED: tl.constexpr, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + start + column, mask=inside, other=0.0).to(tl.float32)
    scaled = value * tl.rsqrt(tl.sum(value * value) / width + eps)
    if ROUNDED:
        scaled = scaled.to(x.dtype.element_ty).to(tl.float32)
    gain = tl.load(weight + column, mask=inside, other=0.0).to(tl.float32) + offset
    tl.store(out + start + column, (gain * scaled).to(out.dtype.element_ty), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float, *, offset: float = 0.0, rounded: bool = True) -> Tensor:
    """`(offset + weight) * (x / rms(x))`; with `rounded` the quotient is rounded before the product."""
    if x.dim() == 4 and x.transpose(1, 2).is_contiguous():  # heads of queries and keys: each row is in one piece
        return _rms_norm(x.transpose(1, 2), weight, eps, offset, rounded).transpose(1, 2)
    return _rms_norm(x.contiguous(), weight, eps, offset, rounded)


def _rms_norm(x: Tensor, weight: Tensor, eps: float, offset: float, rounded: bool) -> Tensor:
    out = torch.empty_like(x)
    width = x.shape[-1]
    block = triton.next_power_of_2(width)
    _norm[(x.numel() // width,)](
        x, weight, out, width, eps, offset, ROUNDED=rounded, BLOCK=block, num_warps=8 if block > 1024 else 1
    )
    return out


@jit
def _gated_norm(
    x, gate, weight, out, rows, width, eps, GATE_FIRST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    kind = x.dtype.element_ty
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    share = tl.load(gate + row * width + column, mask=inside, other=0.0).to(tl.float32)
    share = share / (1.0 + tl.exp(-share))
    if GATE_FIRST:
        value *= share
    scaled = value * tl.rsqrt(tl.sum(value * value, 1) / width + eps)[:, None]
    gain = tl.load(weight + column, mask=column < width, other=0.0).to(tl.float32)
    answer = gain * scaled.to(kind).to(tl.float32)
    if not GATE_FIRST:
        answer = answer.to(kind).to(tl.float32) * share
    tl.store(out + row * width + column, answer.to(kind), mask=inside)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float, *, gate_first: bool) -> Tensor:
    """RMS norm of `x`, multiplied by `silu(gate)` after or, as in Mamba 2, before it."""
    x, gate = x.contiguous(), gate.contiguous()
    out = torch.empty_like(x)
    width = x.shape[-1]
    rows, block = x.numel() // width, triton.next_power_of_2(width)
    at_once = max(1, 4096 // block)
    _gated_norm[(triton.cdiv(rows, at_once),)](
        x, gate, weight, out, rows, width, eps, GATE_FIRST=gate_first, ROWS=at_once, BLOCK=block,
        num_warps=8 if block > 4096 else 4,
    )  # fmt: skip
    return out


@jit
def _rotate(x, cos, sin, out, heads, half, tokens, xb, xh, xs, cb, cs, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    batch, position = token // tokens, token % tokens
    head = tl.arange(0, HEADS)[:, None]
    column = tl.arange(0, HALF)[None, :]
    inside = (head < heads) & (column < half)
    source = x + batch * xb + position * xs + head * xh + column
    first = tl.load(source, mask=inside, other=0.0)
    second = tl.load(source + half, mask=inside, other=0.0)
    kind = first.dtype
    angle = batch * cb + position * cs + column
    across = column < half
    cos_1 = tl.load(cos + angle, mask=across, other=0.0).to(tl.float32)
    cos_2 = tl.load(cos + angle + half, mask=across, other=0.0).to(tl.float32)
    sin_1 = tl.load(sin + angle, mask=across, other=0.0).to(tl.float32)
    sin_2 = tl.load(sin + angle + half, mask=across, other=0.0).to(tl.float32)
    a, b = first.to(tl.float32), second.to(tl.float32)
    low = (a * cos_1).to(kind).to(tl.float32) - (b * sin_1).to(kind).to(tl.float32)
    high = (b * cos_2).to(kind).to(tl.float32) + (a * sin_2).to(kind).to(tl.float32)
    target = out + (token * heads + head) * (2 * half) + column
    tl.store(target, low.to(kind), mask=inside)
    tl.store(target + half, high.to(kind), mask=inside)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of [batch, heads, tokens, width], laid out in memory as [batch, tokens, heads, width]."""
    batch, heads, tokens, width = x.shape
    if x.stride(3) != 1:
        x = x.contiguous()
    cos, sin = (t.expand(batch, tokens, width) for t in (cos, sin))
    out = torch.empty(batch, tokens, heads, width, dtype=x.dtype, device=x.device)
    strides = *x.stride()[:3], *cos.stride()[:2]
    _rotate[(batch * tokens,)](
        x, cos, sin, out, heads, width // 2, tokens, *strides,
        HEADS=triton.next_power_of_2(heads), HALF=triton.next_power_of_2(width // 2),
    )  # fmt: skip
    return out.transpose(1, 2)


@jit
def _join(top, weight, total, answer, lse, row, where, inside, within):
    """Add a part to a running weighted sum, whose weights are relative to the largest log-sum-exp so far."""
    next_lse = tl.load(lse + row, mask=inside, other=0.0)
    higher = tl.maximum(top, next_lse)
    old, new = tl.exp(top - higher), tl.exp(next_lse - higher)
    value = tl.load(answer + where, mask=within, other=0.0).to(tl.float32)
    return higher, weight * old + new, total * old[:, None] + value * new[:, None]


@jit
def _merge(
    a0, a1, a2, a3, a4, a5, l0, l1, l2, l3, l4, l5, out, count, tokens, heads, width, by_batch, by_head, by_token,
    TOKENS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    # The number of parts is an argument, not a constant: every constant would compile another kernel.
    batch, head = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    column = tl.arange(0, WIDTH)
    inside = token < tokens
    within = inside[:, None] & (column < width)[None, :]
    row = (batch * heads + head) * tokens + token
    where = (batch * by_batch + head * by_head + token * by_token)[:, None] + column[None, :]
    top = tl.load(l0 + row, mask=inside, other=0.0)
    weight = tl.exp(top - top)
    total = tl.load(a0 + where, mask=within, other=0.0).to(tl.float32)
    if count > 1:
        top, weight, total = _join(top, weight, total, a1, l1, row, where, inside, within)
    if count > 2:
        top, weight, total = _join(top, weight, total, a2, l2, row, where, inside, within)
    if count > 3:
        top, weight, total = _join(top, weight, total, a3, l3, row, where, inside, within)
    if count > 4:
        top, weight, total = _join(top, weight, total, a4, l4, row, where, inside, within)
    if count > 5:
        top, weight, total = _join(top, weight, total, a5, l5, row, where, inside, within)
    target = (((batch * tokens + token) * heads + head) * width)[:, None] + column[None, :]
    tl.store(out + target, (total / weight[:, None]).to(out.dtype.element_ty), mask=within)


def merge_parts(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor | None:
    """Parts of attention [batch, heads, tokens, width] merged by their log-sum-exps [batch, heads, tokens], laid out as
    [batch, tokens, heads, width]. None where there are too many parts or their strides differ."""
    answers, lses = [a for a, _ in parts], [lse.contiguous() for _, lse in parts]
    batch, heads, tokens, width = answers[0].shape
    strides = {a.stride()[0 if batch > 1 else 1 :] for a in answers}
    if len(parts) > MOST_PARTS or len(strides) > 1 or answers[0].stride(3) != 1:
        return None
    out = torch.empty(batch, tokens, heads, width, dtype=answers[0].dtype, device=answers[0].device)
    by_batch, by_head, by_token = answers[0].stride()[:3]
    unused = MOST_PARTS - len(parts)  # the kernel has an argument for every possible part
    _merge[(triton.cdiv(tokens, 16), heads, batch)](
        *answers, *answers[:1] * unused, *lses, *lses[:1] * unused, out, len(parts), tokens, heads, width, by_batch,
        by_head, by_token, TOKENS=16, WIDTH=triton.next_power_of_2(width),
    )  # fmt: skip
    return out


# --- use in a model -----------------------------------------------------------------------------


def fuse(model: Any) -> list[str]:
    """Replace all modules that can be replaced; returns their class names."""
    if triton is None or len({p.device for p in model.parameters()}) > 1:
        return []
    replaced = set()
    for module in list(model.modules()):
        if any(replace(module) for replace in (_fuse_norm, _fuse_gated_norm, _fuse_rotation, _fuse_experts)):
            replaced.add(type(module).__name__)
    return sorted(replaced)


def unfuse(model: Any) -> None:
    """Undo `fuse`."""
    for module in model.modules():
        if hasattr(module.__dict__.get("forward"), "leadline_own"):
            del module.forward
        file = sys.modules[type(module).__module__]
        own = getattr(getattr(file, "apply_rotary_pos_emb", None), "leadline_own", None)
        if own is not None:
            file.apply_rotary_pos_emb = own  # type: ignore[attr-defined]


_NORMS: tuple[dict[str, Any], ...] = ({}, {"rounded": False}, {"rounded": False, "offset": 1.0})
"""The forms of Llama, of gpt-oss and of Gemma, which stores weights less 1."""


def _fuse_norm(module: Any) -> bool:
    eps, weight = getattr(module, "variance_epsilon", getattr(module, "eps", None)), getattr(module, "weight", None)
    if not type(module).__name__.endswith("RMSNorm") or not isinstance(eps, float):
        return False
    if not isinstance(weight, Tensor) or weight.dim() != 1:
        return False

    def norm(x: Tensor, form: dict[str, Any]) -> Tensor:
        return rms_norm(x, module.weight, eps, **form)

    return any(_replace(module, partial(norm, form=form), weight) for form in _NORMS)


def _fuse_gated_norm(module: Any) -> bool:
    eps, weight = getattr(module, "variance_epsilon", None), getattr(module, "weight", None)
    if not type(module).__name__.endswith("RMSNormGated") or not isinstance(eps, float):
        return False
    if not isinstance(weight, Tensor) or weight.dim() != 1:
        return False
    own = module.forward
    example, gate = torch.randn(2, 3, weight.shape[0], device=weight.device).to(weight.dtype)

    def use(gate_first: bool) -> bool:
        def fused(hidden_states: Tensor, gate: Tensor | None = None) -> Tensor:
            if gate is None:
                return cast(Tensor, own(hidden_states))
            return gated_rms_norm(hidden_states, gate, module.weight, eps, gate_first=gate_first)

        if not _agree(lambda: fused(example, gate), lambda: own(example, gate)):
            return False
        fused.leadline_own = own  # type: ignore[attr-defined]
        module.forward = fused
        return True

    return use(False) or use(True)


def _fuse_experts(module: Any) -> bool:
    if not can_be_fused(module):
        return False
    own, weight = module.forward, module.gate_up_proj
    width = weight.shape[1 if module.is_transposed else 2]
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(64, width, generator=draw).to(weight.device, weight.dtype)
    scores = torch.randn(64, module.num_experts, generator=draw).to(weight.device, weight.dtype)
    shares, chosen = scores.topk(min(4, module.num_experts))
    shares = shares.softmax(-1)

    def fused(hidden_states: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return experts_forward(module, hidden_states, chosen, weights)

    # Products of another kind of kernel round in another order, so values are compared by their size over all.
    if not _agree(lambda: fused(states, chosen, shares), lambda: own(states, chosen, shares), by_norm=True):
        return False
    fused.leadline_own = own  # type: ignore[attr-defined]
    module.forward = fused
    return True


def _fuse_rotation(module: Any) -> bool:
    file = sys.modules[type(module).__module__]
    own = getattr(file, "apply_rotary_pos_emb", None)
    if own is None or not type(module).__name__.endswith("Attention"):
        return False
    if hasattr(own, "leadline_own"):
        return True
    weight = next(module.parameters())
    device, draw = weight.device, torch.randn(4, 2, 5, 64, device=weight.device).to(weight.dtype)
    query, key, *angles = draw[:, None].unbind(0)

    def use(width: int) -> bool:
        """With angles for every number of a head, or, as in gpt-oss, for the half of them."""

        def rotated(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor, *more: Any, **named: Any) -> Any:
            plain = not more and not named and query.device == device and cos.dim() == 3 and cos.dtype == query.dtype
            if not plain or cos.shape[-1] * 64 != query.shape[-1] * width:
                return own(query, key, cos, sin, *more, **named)
            if width < 64:
                cos, sin = (torch.cat([angle, angle], -1) for angle in (cos, sin))
            return rotate(query, cos, sin), rotate(key, cos, sin)

        given = query, key, *(angle[:, 0, :, :width] for angle in angles)
        if not _agree(lambda: torch.cat(rotated(*given)), lambda: torch.cat(own(*given))):
            return False
        rotated.leadline_own = own  # type: ignore[attr-defined]
        file.apply_rotary_pos_emb = rotated  # type: ignore[attr-defined]
        return True

    return use(64) or use(32)


def _replace(module: Any, forward: Callable[[Tensor], Tensor], weight: Tensor) -> bool:
    example = torch.randn(1, 3, weight.shape[-1], device=weight.device).to(weight.dtype)
    own = module.forward
    if not _agree(lambda: forward(example), lambda: own(example)):
        return False

    def fused(x: Tensor) -> Tensor:
        return forward(x)

    fused.leadline_own = own  # type: ignore[attr-defined]
    module.forward = fused
    return True


def _agree(new: Callable[[], Tensor], own: Callable[[], Tensor], *, by_norm: bool = False) -> bool:
    """Equal up to the rounding of the dtype: number by number, or by the size of all differences."""
    with torch.inference_mode():
        try:
            want, got = own(), new()
        except Exception:  # a kernel that does not compile here, or a module that takes other arguments
            return False
    step = torch.finfo(want.dtype).eps
    if by_norm:
        return got.shape == want.shape and bool((got - want).float().norm() <= step * want.float().norm())
    return got.shape == want.shape and bool(((got - want).abs() <= 4 * step * want.abs().clamp_min(1)).all())
