"""The chain of states through the chunks of the gated delta rule, in one Triton kernel.

Chunk after chunk, the state is multiplied by a matrix and another is added. As a loop of products that is a launch for
every chunk, which takes longer than its arithmetic; here a program keeps some columns of one head's state in registers.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

COLUMNS = 32


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
