"""Triton kernels of recurrent layers; a program keeps a state, or some columns of it, in registers.

chain_states    the states through the chunks of the gated delta rule: each is multiplied by a matrix, and another
                is added. As a loop of products that is a launch for every chunk, which takes longer than its work
mamba2_step     one token of Mamba 2: a state is read and written once
delta_step      one token of the gated delta rule, likewise
causal_conv     a convolution over the last few tokens of every channel, then SiLU
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 32
CONV_TOKENS, CONV_CHANNELS = 64, 64
MOST_NUMBERS = 1 << 15
"""Of a state that a program can hold."""


def fits(size: int, width: int) -> bool:
    """Whether a program can hold the state: powers of two that a matrix unit takes."""
    return 16 <= size <= 256 and width >= 16 and size.bit_count() == width.bit_count() == 1


@triton.jit
def _chain(
    change, added, states, chunks, heads, batch_of_change, chunk_of_change, head_of_change, batch_of_added,
    chunk_of_added, head_of_added, batch_of_states, chunk_of_states, head_of_states, width,
    SIZE: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    head = (tl.program_id(0) % heads).to(tl.int64)
    batch = (tl.program_id(0) // heads).to(tl.int64)
    row, inner = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    matrix = change + batch * batch_of_change + head * head_of_change + row * SIZE + inner
    more = added + batch * batch_of_added + head * head_of_added + row * width + column
    target = states + batch * batch_of_states + head * head_of_states + row * width + column
    state = tl.load(target)
    for _ in range(chunks):
        product = tl.load(matrix)
        if EXACT:
            state = tl.dot(product, state, input_precision="ieee") + tl.load(more)
        else:
            state = tl.dot(product, state) + tl.load(more)
        target += chunk_of_states
        tl.store(target, state)
        matrix += chunk_of_change
        more += chunk_of_added


def chain_states(change: Tensor, added: Tensor, state: Tensor, *, exact: bool) -> Tensor:
    """`change` [batch, chunks, heads, size, size], `added` [batch, chunks, heads, size, width], the first state [batch,
    heads, size, width]. Returns all states [batch, chunks + 1, heads, size, width]. Float32; `exact` without TF32."""
    change, added = change.contiguous(), added.contiguous()
    batch, chunks, heads, size, width = added.shape
    states = torch.empty(batch, chunks + 1, heads, size, width, dtype=torch.float32, device=added.device)
    states[:, 0] = state
    columns = min(COLUMNS, width)
    _chain[(batch * heads, width // columns)](
        change, added, states, chunks, heads, *change.stride()[:3], *added.stride()[:3], *states.stride()[:3], width,
        SIZE=size, COLUMNS=columns, EXACT=exact, num_warps=4,
    )  # fmt: skip
    return states


def takes(state: Tensor) -> bool:
    """Whether the steps below can be used: states [batch, heads, size, size] as a program can hold them."""
    rows, columns = state.shape[2:]
    return state.is_contiguous() and rows.bit_count() == columns.bit_count() == 1 and rows * columns <= MOST_NUMBERS


@triton.jit
def _mamba2_step(
    state, added, decay, keys, queries, out, heads, heads_a_group, batch_of_keys, group_of_keys, batch_of_queries,
    group_of_queries, WIDTH: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    batch, group = row // heads, row % heads // heads_a_group
    width, size = tl.arange(0, WIDTH), tl.arange(0, SIZE)
    where = state + row * WIDTH * SIZE + width[:, None] * SIZE + size[None, :]
    key = tl.load(keys + batch * batch_of_keys + group * group_of_keys + size).to(tl.float32)
    query = tl.load(queries + batch * batch_of_queries + group * group_of_queries + size).to(tl.float32)
    value = tl.load(added + row * WIDTH + width)
    moved = tl.load(where).to(tl.float32) * tl.load(decay + row) + value[:, None] * key[None, :]
    tl.store(where, moved.to(state.dtype.element_ty))
    tl.store(out + row * WIDTH + width, tl.sum(moved * query[None, :], 1))


def mamba2_step(state: Tensor, added: Tensor, decay: Tensor, keys: Tensor, queries: Tensor) -> Tensor:
    """The state [batch, heads, width, size] is changed in place: it decays [batch, heads], and values [batch, heads,
    width] are added at keys [batch, groups, size]. Returns what the queries read of it, as the values; float32."""
    batch, heads, width, size = state.shape
    added, decay, keys, queries = (each.contiguous() for each in (added, decay, keys, queries))
    out = torch.empty(batch, heads, width, dtype=torch.float32, device=state.device)
    _mamba2_step[(batch * heads,)](
        state, added, decay, keys, queries, out, heads, heads // keys.shape[1], *keys.stride()[:2],
        *queries.stride()[:2], WIDTH=width, SIZE=size, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit
def _delta_step(
    state, query, key, value, decay, rate, out, width, SIZE: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    inner, column = tl.arange(0, SIZE), tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    where = row * SIZE * width + inner[:, None] * width + column[None, :]
    at_key = tl.load(key + row * SIZE + inner)[:, None]
    moved = tl.load(state + where) * tl.load(decay + row)
    correction = (tl.load(value + row * width + column) - tl.sum(moved * at_key, 0)) * tl.load(rate + row)
    moved += at_key * correction[None, :]
    tl.store(state + where, moved)
    tl.store(out + row * width + column, tl.sum(moved * tl.load(query + row * SIZE + inner)[:, None], 0))


def delta_step(state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor) -> Tensor:
    """The state [batch, heads, size, width] is changed in place. Query and key [batch, heads, size], value [batch,
    heads, width], decay and rate [batch, heads]. Returns what the query reads of it, as the value; all float32."""
    batch, heads, size, width = state.shape
    query, key, value, decay, rate = (each.contiguous() for each in (query, key, value, decay, rate))
    out = torch.empty_like(value)
    columns = min(COLUMNS, width)
    _delta_step[(batch * heads, width // columns)](
        state, query, key, value, decay, rate, out, width, SIZE=size, COLUMNS=columns, num_warps=4
    )
    return out


@triton.jit(do_not_specialize=["tokens"])
def _conv(
    x, weight, bias, out, tokens, channels, by_batch, by_channel, by_token, TAPS: tl.constexpr, BIASED: tl.constexpr,
    ACTIVE: tl.constexpr, TOKENS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(2).to(tl.int64)
    token = (tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)).to(tl.int64)[:, None]
    channel = (tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)).to(tl.int64)[None, :]
    inside = (token < tokens) & (channel < channels)
    total = tl.zeros([TOKENS, CHANNELS], dtype=tl.float32)
    for tap in tl.static_range(TAPS):
        source = token + (tap + 1 - TAPS)
        where = x + batch * by_batch + channel * by_channel + source * by_token
        value = tl.load(where, mask=inside & (source >= 0), other=0.0).to(tl.float32)
        total += value * tl.load(weight + channel * TAPS + tap, mask=channel < channels, other=0.0).to(tl.float32)
    if BIASED:
        total += tl.load(bias + channel, mask=channel < channels, other=0.0).to(tl.float32)
    kind = out.dtype.element_ty
    if ACTIVE:
        total = total.to(kind).to(tl.float32)
        total = total / (1.0 + tl.exp(-total))
    tl.store(out + (batch * tokens + token) * channels + channel, total.to(kind), mask=inside)


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor | None, *, active: bool) -> Tensor:
    """Of [batch, channels, tokens] with weights [channels, taps], each token and those before it; with `active`, SiLU
    of that. The result has the channels of a token side by side in memory."""
    batch, channels, tokens = x.shape
    out = torch.empty(batch, tokens, channels, dtype=x.dtype, device=x.device)
    with torch.cuda.device_of(x):  # a model's layers may be on several GPUs
        _conv[(triton.cdiv(tokens, CONV_TOKENS), triton.cdiv(channels, CONV_CHANNELS), batch)](
            x, weight.contiguous(), weight if bias is None else bias, out, tokens, channels, *x.stride(),
            TAPS=weight.shape[1], BIASED=bias is not None, ACTIVE=active, TOKENS=CONV_TOKENS, CHANNELS=CONV_CHANNELS,
            num_warps=8,
        )  # fmt: skip
    return out.transpose(1, 2)
