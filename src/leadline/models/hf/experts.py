"""Mixtures of experts on a GPU: the operations between their two grouped matrix products, in two kernels.

transformers adds biases, masks, gates, weighs, sorts back and sums in a dozen passes over tensors of tokens x experts x
width, which take as long as the products themselves. Each kernel rounds where those passes round.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except Exception:  # not installed, or an incompatible version: nothing is replaced
    triton = None

jit: Any = triton.jit if triton else lambda kernel: kernel


@jit
def _gate(x, bias, expert, out, width, alpha, limit, BIASED: tl.constexpr, CLAMPED: tl.constexpr, BLOCK: tl.constexpr):
    """Of rows [2 x width] the gated values [width]. CLAMPED is gpt-oss's form, with gate and value in turn."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    kind = out.dtype.element_ty
    gates, values = (2 * column, 2 * column + 1) if CLAMPED else (column, width + column)
    gate = tl.load(x + row * 2 * width + gates, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x + row * 2 * width + values, mask=inside, other=0.0).to(tl.float32)
    if BIASED:
        own = bias + tl.load(expert + row).to(tl.int64) * 2 * width
        gate = (gate + tl.load(own + gates, mask=inside, other=0.0).to(tl.float32)).to(kind).to(tl.float32)
        value = (value + tl.load(own + values, mask=inside, other=0.0).to(tl.float32)).to(kind).to(tl.float32)
    if CLAMPED:
        gate = tl.minimum(gate, limit)
        value = tl.minimum(tl.maximum(value, -limit), limit)
        share = (1.0 / (1.0 + tl.exp(-(gate * alpha).to(kind).to(tl.float32)))).to(kind).to(tl.float32)
        answer = (value + 1.0).to(kind).to(tl.float32) * (gate * share).to(kind).to(tl.float32)
    else:
        answer = (gate / (1.0 + tl.exp(-gate))).to(kind).to(tl.float32) * value
    tl.store(out + row * width + column, answer.to(kind), mask=inside)


@jit
def _combine(
    x, bias, expert, weight, sorted_row, out, width, TOP: tl.constexpr, BIASED: tl.constexpr, ROUNDED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """For every token the sum of its experts' rows, each times its weight."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    kind = x.dtype.element_ty
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for choice in tl.static_range(TOP):
        row = tl.load(sorted_row + token * TOP + choice).to(tl.int64)
        value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
        if BIASED:
            own = bias + tl.load(expert + row).to(tl.int64) * width
            value = (value + tl.load(own + column, mask=inside, other=0.0).to(tl.float32)).to(kind).to(tl.float32)
        weighed = value * tl.load(weight + token * TOP + choice).to(tl.float32)
        if ROUNDED:
            weighed = weighed.to(kind).to(tl.float32)
        total += weighed
    tl.store(out + token * width + column, total.to(out.dtype.element_ty), mask=inside)


BLOCK = 1024


def experts_forward(experts: Any, hidden_states: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    """With the arguments of transformers' experts: [tokens, width], each token's experts and their weights."""
    tokens, top = chosen.shape
    expert, order = torch.sort(chosen.reshape(-1))
    sorted_row = torch.empty_like(order)
    sorted_row[order] = torch.arange(len(order), device=order.device)
    counts = torch.histc(expert.int(), bins=experts.num_experts, min=0, max=experts.num_experts - 1)
    ends = counts.cumsum(0, dtype=torch.int32)
    projected = _grouped(experts, hidden_states[order // top], experts.gate_up_proj, ends)
    biased, clamped = bool(experts.has_bias), hasattr(experts, "limit")
    width = projected.shape[1] // 2
    gated = projected.new_empty(len(projected), width)
    _gate[(len(projected), triton.cdiv(width, BLOCK))](
        projected, experts.gate_up_proj_bias if biased else projected, expert, gated, width,
        float(getattr(experts, "alpha", 0.0)), float(getattr(experts, "limit", 0.0)),
        BIASED=biased, CLAMPED=clamped, BLOCK=BLOCK,
    )  # fmt: skip
    del projected
    rows = _grouped(experts, gated, experts.down_proj, ends)
    out = torch.empty_like(hidden_states)
    weights = weights.reshape(-1)
    _combine[(tokens, triton.cdiv(out.shape[1], BLOCK))](
        rows, experts.down_proj_bias if biased else rows, expert, weights, sorted_row, out, out.shape[1],
        TOP=top, BIASED=biased, ROUNDED=weights.dtype == rows.dtype, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def _grouped(experts: Any, rows: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    matrix = weight if experts.is_transposed else weight.transpose(-2, -1)
    product: Tensor = torch._grouped_mm(rows, matrix, offs=ends)
    return product


def can_be_fused(module: Any) -> bool:
    """Whether a module has the parts that `experts_forward` uses, in a type that grouped products take."""
    names = ("gate_up_proj", "down_proj", "num_experts", "has_gate", "has_bias", "is_transposed", "_apply_gate")
    if triton is None or not all(hasattr(module, name) for name in names) or not module.has_gate:
        return False
    silu = type(getattr(module, "act_fn", None)).__name__ in ("SiLU", "SiLUActivation")
    return module.gate_up_proj.dtype == torch.bfloat16 and (silu or {"alpha", "limit"} <= vars(module).keys())
