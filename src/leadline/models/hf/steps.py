"""Mamba 2 and the gated delta rule over one token, which is what an answer's tokens are read by.

    mamba2_step    the state decays, and the token is added to it
    delta_step     the state decays, is corrected at the token's key, and is read at its query

Both take the arguments of transformers' functions for one token. Those make half a dozen tensors as large as the states
of all rows; a state is read and written once here, by a kernel (`recurrent_kernels.py`) on a GPU with Triton.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus


@cache
def _recurrence() -> Any:
    """The module of kernels; None where Triton is not installed, or a kernel does not compile."""
    try:
        from leadline.models.hf import recurrent_kernels  # Triton is imported only on a GPU

        draw = partial(torch.randn, device="cuda", generator=torch.Generator("cuda").manual_seed(0))
        change, added, state = 0.1 * draw(2, 3, 2, 64, 64), draw(2, 3, 2, 64, 32), draw(2, 2, 64, 32)
        got, want = recurrent_kernels.chain_states(change, added, state, exact=True), state.double()
        for number in range(3):  # in float64, which no setting of products changes: the first to ask may want TF32
            want = added[:, number].double() + change[:, number].double() @ want
        return recurrent_kernels if torch.allclose(got[:, -1].double(), want, rtol=1e-3, atol=1e-3) else None
    except Exception:  # whatever a compiler raises
        return None


def recurrence_kernels(tensor: Tensor) -> Any:
    """The module of kernels for tensors like this one; None where there are none."""
    return _recurrence() if tensor.is_cuda else None


def mamba2_step(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    dt_softplus: bool = False,
    z: Tensor | None = None,
    **_: Any,
) -> Tensor:
    """With the arguments of transformers' `mamba2_selective_state_update`: a state [batch, heads, width, size] that is
    changed in place; values, steps and `z` [batch, heads, width], keys and queries [batch, groups, size], A [heads,
    width, size]. Steps and decays are usually one number a head, repeated without a copy."""
    heads = hidden_states.shape[1]
    step = _once(dt, 2)
    if dt_bias is not None:
        step = step + _once(dt_bias, 1).to(dt.dtype)
    step = (softplus(step) if dt_softplus else step).float()
    decay = (step.unsqueeze(-1) * _once(_once(A, 2), 1).float()).exp()
    added = hidden_states.float() * step
    kernels = recurrence_kernels(state)
    if kernels is not None and decay.shape[2:] == (1, 1) and kernels.takes(state):
        answer: Tensor = kernels.mamba2_step(state, added, decay[..., 0, 0], B, C)
    else:
        keys, queries = (each.float().repeat_interleave(heads // each.shape[1], 1) for each in (B, C))
        moved = state * decay + added.unsqueeze(-1) * keys.unsqueeze(2)
        state.copy_(moved)
        answer = (moved @ queries.unsqueeze(-1)).squeeze(-1)
    if D is not None:
        answer = answer + hidden_states * D
    if z is not None:
        answer = answer * silu(z)
    return answer.to(hidden_states.dtype)


def _once(repeated: Tensor, axis: int) -> Tensor:
    """One of the numbers along an axis on which all are the same by construction; else all of them."""
    return repeated.narrow(axis, 0, 1) if repeated.stride(axis) == 0 else repeated


def delta_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """With the arguments of transformers' `torch_recurrent_gated_delta_rule`: queries, keys and values [batch, tokens,
    heads, width], decays and rates [batch, tokens, heads], the state before them [batch, heads, key width, value
    width], over which the next one is written. Tokens are read one after the other."""
    batch, tokens, key_heads, width = key.shape
    heads, value_width = value.shape[2:]
    queries, keys = (each.float().repeat_interleave(heads // key_heads, 2) for each in (query, key))
    if use_qk_l2norm_in_kernel:
        queries, keys = (each * (each.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for each in (queries, keys))
    queries, values, decays, rates = queries * width**-0.5, value.float(), g.float().exp(), beta.float()
    state = (
        value.new_zeros(batch, heads, width, value_width, dtype=torch.float32)
        if initial_state is None
        else initial_state.to(value.device, torch.float32)
    )
    kernels = recurrence_kernels(state)
    step = kernels.delta_step if kernels is not None and kernels.takes(state) else _delta_step
    inputs = queries, keys, values, decays, rates
    answers = [step(state, *(each[:, token] for each in inputs)) for token in range(tokens)]
    return torch.stack(answers, 1).to(query.dtype), state if output_final_state else None


def _delta_step(state: Tensor, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor) -> Tensor:
    """Changes the state to the next one; returns what the query reads of it."""
    state.mul_(decay[..., None, None])
    correction = (value - (key.unsqueeze(-2) @ state).squeeze(-2)) * rate.unsqueeze(-1)
    state.addcmul_(key.unsqueeze(-1), correction.unsqueeze(-2))
    return (query.unsqueeze(-2) @ state).squeeze(-2)
