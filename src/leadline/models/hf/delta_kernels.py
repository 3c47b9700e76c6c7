"""The gated delta rule over many tokens in three Triton kernels (Gated DeltaNet, arXiv 2412.06464).

Within a chunk, token i removes from the state what the tokens j < i have stored at its key. With A_ij =
rate_i (k_i k_j) decay_ij below the diagonal and T = (1 + A)^-1, a chunk that begins with state S stores

    stored - read S                     stored = T (rate v), read = T (rate since k)
    kept S + (until k)^T (stored - read S)      is the state after it,
    (since q - P read) S + P stored     are its outputs, with P_ij = (q_i k_j) decay_ij up to the diagonal

where `since` is what a token finds of the state at the chunk's beginning, and `until` what is left of a token at its
end. The first two kernels make T and these matrices for all chunks at once, the third takes the state through them.

    _invert     T, by a program for every chunk of a head
    _prepare    stored, read, and the matrices of the outputs, likewise
    _carry      outputs and states, by a program for some columns of a head's state

Queries, keys and values are read as they are in memory; lengths and decays are factors of rows and columns. Products
are made in TF32, those of the inverse in three parts, which is as exact as float32. Without TF32 the kernels would not
fit into registers, so they are for inputs of 16 bits.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

CHUNK, SMALL_CHUNK = 64, 16
"""Tokens of a chunk, and for inputs that have no more than the second."""
COLUMNS = 32
"""Of a state that a program carries."""


def fits(width: int, value_width: int) -> bool:
    """Whether programs can hold keys and values of these widths: powers of two that a matrix unit takes."""
    return all(16 <= each <= 128 and each.bit_count() == 1 for each in (width, value_width))


def numbers_per_token(width: int, value_width: int) -> int:
    """In float32, that are held for every head besides inputs and outputs."""
    return 2 * width + 2 * value_width + CHUNK + 4


@triton.jit(do_not_specialize=["tokens"])
def _invert(
    key, decay, rate, inverses, factors, tokens, heads, heads_a_key,
    key_batch, key_token, key_head, decay_batch, decay_token, decay_head, rate_batch, rate_token, rate_head,
    CHUNK: tl.constexpr, LEVELS: tl.constexpr, WIDTH: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    block = (batch * heads + head) * tl.num_programs(0) + tl.program_id(0)
    position = tl.arange(0, CHUNK)
    start = tl.program_id(0).to(tl.int64) * CHUNK
    inside = position < tokens - start
    own = decay + batch * decay_batch + head * decay_head + start * decay_token
    logs = tl.load(own + position * decay_token, mask=inside, other=0.0)
    own = rate + batch * rate_batch + head * rate_head + start * rate_token
    rates = tl.load(own + position * rate_token, mask=inside, other=0.0)
    sums, rates = tl.cumsum(logs.to(tl.float32), 0), rates.to(tl.float32)
    whole = tl.sum(tl.where(position == CHUNK - 1, sums, 0.0), 0)

    own = key + batch * key_batch + head // heads_a_key * key_head + start * key_token
    across = tl.arange(0, WIDTH)[None, :]
    keys = tl.load(own + (position[:, None] * key_token + across), mask=inside[:, None], other=0.0)
    of_key = tl.full([CHUNK], 1.0, tl.float32)
    if NORMED:
        of_key = tl.rsqrt(tl.sum(keys.to(tl.float32) * keys.to(tl.float32), 1) + 1e-6)
    place = factors + block * 4 * CHUNK + position
    tl.store(place, sums)
    tl.store(place + CHUNK, of_key)
    tl.store(place + 2 * CHUNK, rates)
    tl.store(place + 3 * CHUNK, of_key * tl.exp(whole - sums))

    row, column = position[:, None], position[None, :]
    gaps = tl.where(row > column, sums[:, None] - sums[None, :], float("-inf"))
    system = tl.dot(keys, tl.trans(keys)) * tl.exp(gaps)
    system *= (of_key * rates)[:, None] * of_key[None, :]
    # The inverse of [[a, 0], [b, c]] is [[A, 0], [-C b A, C]]: blocks on the diagonal are doubled until there is one.
    below = (row % 2 == 1) & (column == row - 1)
    inverse = tl.where(row == column, 1.0, 0.0) - tl.where(below, system, 0.0)
    for level in tl.static_range(1, LEVELS):
        below = ((row >> level) % 2 == 1) & ((column >> level) == (row >> level) - 1)
        product = tl.dot(inverse, tl.where(below, system, 0.0), input_precision="tf32x3")
        inverse -= tl.dot(product, inverse, input_precision="tf32x3")
    tl.store(inverses + block * CHUNK * CHUNK + (row * CHUNK + column), inverse)


@triton.jit(do_not_specialize=["tokens"])
def _prepare(
    query, key, value, inverses, factors, stored, read, answers, reading, tokens, heads, heads_a_key, scale,
    query_batch, query_token, query_head, key_batch, key_token, key_head, value_batch, value_token, value_head,
    CHUNK: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, NORMED: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(2).to(tl.int64), tl.program_id(1).to(tl.int64)
    block = (batch * heads + head) * tl.num_programs(0) + tl.program_id(0)
    position = tl.arange(0, CHUNK)
    start = tl.program_id(0).to(tl.int64) * CHUNK
    inside = (position < tokens - start)[:, None]
    across, across_value = tl.arange(0, WIDTH)[None, :], tl.arange(0, VALUE_WIDTH)[None, :]
    place = factors + block * 4 * CHUNK + position
    sums, of_key, rates = tl.load(place), tl.load(place + CHUNK), tl.load(place + 2 * CHUNK)
    since = tl.exp(sums)

    own = query + batch * query_batch + head // heads_a_key * query_head + start * query_token
    queries = tl.load(own + (position[:, None] * query_token + across), mask=inside, other=0.0)
    own = key + batch * key_batch + head // heads_a_key * key_head + start * key_token
    keys = tl.load(own + (position[:, None] * key_token + across), mask=inside, other=0.0)
    of_query = tl.full([CHUNK], 1.0, tl.float32) * scale
    if NORMED:
        of_query *= tl.rsqrt(tl.sum(queries.to(tl.float32) * queries.to(tl.float32), 1) + 1e-6)
    gaps = tl.where(position[:, None] >= position[None, :], sums[:, None] - sums[None, :], float("-inf"))
    weights = tl.dot(queries, tl.trans(keys)) * tl.exp(gaps)
    weights *= of_query[:, None] * of_key[None, :]

    place = inverses + block * CHUNK * CHUNK + (position[:, None] * CHUNK + position[None, :])
    inverse = tl.load(place)
    reads = tl.dot(inverse * (rates * of_key * since)[None, :], keys.to(tl.float32))
    where = position[:, None] * WIDTH + across
    tl.store(read + block * CHUNK * WIDTH + where, reads)
    reads = queries.to(tl.float32) * (of_query * since)[:, None] - tl.dot(weights, reads)
    tl.store(reading + block * CHUNK * WIDTH + where, reads)

    own = value + batch * value_batch + head * value_head + start * value_token
    values = tl.load(own + (position[:, None] * value_token + across_value), mask=inside, other=0.0)
    stores = tl.dot(inverse * rates[None, :], values.to(tl.float32))
    where = position[:, None] * VALUE_WIDTH + across_value
    tl.store(stored + block * CHUNK * VALUE_WIDTH + where, stores)
    tl.store(answers + block * CHUNK * VALUE_WIDTH + where, tl.dot(weights, stores))


@triton.jit(do_not_specialize=["tokens", "chunks"])
def _carry(
    key, factors, stored, read, answers, reading, before, after, out, chunks, tokens, heads, heads_a_key,
    key_batch, key_token, key_head,
    CHUNK: tl.constexpr, WIDTH: tl.constexpr, VALUE_WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    batch, head = row // heads, row % heads
    position, inner = tl.arange(0, CHUNK), tl.arange(0, WIDTH)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    of_head = row * WIDTH * VALUE_WIDTH + inner[:, None] * VALUE_WIDTH + column
    state = tl.load(before + of_head)
    own = key + batch * key_batch + head // heads_a_key * key_head + inner[:, None]
    for number in range(chunks):
        block = row * chunks + number
        token = (number * CHUNK + position).to(tl.int64)
        wide = block * CHUNK * WIDTH + position[:, None] * WIDTH + inner[None, :]
        narrow = block * CHUNK * VALUE_WIDTH + position[:, None] * VALUE_WIDTH + column
        place = factors + block * 4 * CHUNK
        answer = tl.dot(tl.load(reading + wide), state, tl.load(answers + narrow))
        where = ((batch * tokens + token[:, None]) * heads + head) * VALUE_WIDTH + column
        tl.store(out + where, answer.to(out.dtype.element_ty), mask=(token < tokens)[:, None])
        correction = tl.load(stored + narrow) - tl.dot(tl.load(read + wide), state)
        correction *= tl.load(place + 3 * CHUNK + position)[:, None]
        keys = tl.load(own + token[None, :] * key_token, mask=(token < tokens)[None, :], other=0.0).to(tl.float32)
        state *= tl.exp(tl.load(place + CHUNK - 1))
        state = tl.dot(keys, correction, state)
    tl.store(after + of_head, state)


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor, state: Tensor, *, normed: bool
) -> tuple[Tensor, Tensor]:
    """Queries and keys [batch, tokens, key heads, width], values [batch, tokens, heads, value width], log decays and
    rates [batch, tokens, heads]; the state before them [batch, heads, width, value width] in float32. Returns outputs
    like the values, in the type of the queries, and the state after them. With `normed`, queries and keys are divided
    by their lengths."""
    batch, tokens, heads, value_width = value.shape
    key_heads, width = key.shape[2:]
    chunk = CHUNK if tokens > SMALL_CHUNK else SMALL_CHUNK
    chunks = triton.cdiv(tokens, chunk)
    query, key, value = (each if each.stride(3) == 1 else each.contiguous() for each in (query, key, value))
    state = state.contiguous()

    def held(*sizes: int) -> Tensor:
        return torch.empty(batch, heads, chunks, *sizes, dtype=torch.float32, device=value.device)

    inverses, factors = held(chunk, chunk), held(4, chunk)
    stored, read, answers, reading = (held(chunk, size) for size in (value_width, width) * 2)
    out = torch.empty(batch, tokens, heads, value_width, dtype=query.dtype, device=value.device)
    after = torch.empty_like(state)
    counts = tokens, heads, heads // key_heads
    columns = min(COLUMNS, value_width)
    with torch.cuda.device_of(value):  # a model's layers may be on several GPUs
        _invert[(chunks, heads, batch)](
            key, decay, rate, inverses, factors, *counts, *key.stride()[:3], *decay.stride(), *rate.stride(),
            CHUNK=chunk, LEVELS=chunk.bit_length() - 1, WIDTH=width, NORMED=normed, num_warps=4,
        )  # fmt: skip
        _prepare[(chunks, heads, batch)](
            query, key, value, inverses, factors, stored, read, answers, reading, *counts, width**-0.5,
            *query.stride()[:3], *key.stride()[:3], *value.stride()[:3],
            CHUNK=chunk, WIDTH=width, VALUE_WIDTH=value_width, NORMED=normed, num_warps=8 if chunk == CHUNK else 4,
        )  # fmt: skip
        _carry[(batch * heads, value_width // columns)](
            key, factors, stored, read, answers, reading, state, after, out, chunks, *counts, *key.stride()[:3],
            CHUNK=chunk, WIDTH=width, VALUE_WIDTH=value_width, COLUMNS=columns, num_warps=8, num_stages=2,
        )  # fmt: skip
    return out, after
