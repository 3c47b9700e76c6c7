"""Mamba 2 and the gated delta rule over many tokens, as matrix products.

    mamba2_scan         a state that decays and adds up (Mamba 2, arXiv 2405.21060)
    gated_delta_rule    a state that also corrects what it holds (Gated DeltaNet, arXiv 2412.06464)
    causal_conv         the convolution over a few tokens before either
                        (one token by either is in steps.py)

Both split the tokens into chunks. Within a chunk every token attends to the earlier ones, with the decay between the
two; from chunk to chunk only the state is handed on. On a GPU with Triton, the gated delta rule in 16 bits is three
kernels (delta_kernels.py).

Everything is kept in float32. The products of a model in 16 bits are made in TF32, which is finer than its weights.
Long inputs are worked off in segments, so that what is held besides input and output stays within `HELD_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad, softplus
from transformers.activations import ACT2FN

from leadline.models.hf.cut_states import inner_places, note_scanned
from leadline.models.hf.steps import recurrence_kernels

HELD_BYTES = 768 << 20
"""The bytes that a scan may hold besides its input and output."""
MAMBA2_CHUNK = 128
"""Work within a chunk grows with its size, the states at its ends with the number of chunks; here both are equal for
states of 128."""
DELTA_CHUNK = 64
"""A triangular system of this size is solved for every chunk."""
SMALLEST_CHUNK = 16
"""Tokens of a row for which a scan computes, however few it has."""
_HALF = (torch.bfloat16, torch.float16)
_UNLIMITED = (0.0, float("inf"))


@contextmanager
def tensor_cores(wanted: bool) -> Iterator[None]:
    """Float32 products in TF32, if wanted."""
    before = torch.get_float32_matmul_precision()
    if wanted:
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _chunk_for(tokens: int, largest: int) -> int:
    """A power of two, so that rows of a few tokens are not padded to a whole chunk."""
    return max(SMALLEST_CHUNK, min(largest, 1 << (tokens - 1).bit_length()))


def _segments(tokens: int, chunk: int, bytes_per_token: int, places: Sequence[int]) -> Iterator[slice]:
    """Whole chunks that hold no more than the limit, at least one, and no more than up to the next of the places."""
    size, start = max(1, HELD_BYTES // (bytes_per_token * chunk)) * chunk, 0
    while start < tokens:
        stop = min([tokens, start + size, *(place for place in places if place > start)])
        yield slice(start, stop)
        start = stop


def _scanned(
    segment: Callable[[slice, Tensor], tuple[Tensor, Tensor]],
    state: Tensor,
    tokens: int,
    chunk: int,
    bytes_per_token: int,
) -> tuple[Tensor, Tensor]:
    """The outputs of all segments, each of which begins with the state after the one before, and the last state. Those
    at cuts are noted on the way."""
    answers, noted, places = [], [], inner_places()
    for part in _segments(tokens, chunk, bytes_per_token, places):
        answer, state = segment(part, state)
        answers.append(answer)
        if part.stop in places:  # a copy: a state may be a view of those of all chunks, which would live as long
            noted.append(state.clone())
    note_scanned(noted)
    return answers[0] if len(answers) == 1 else torch.cat(answers, 1), state


def _chunked(numbers: Tensor, chunk: int) -> Tensor:
    """[batch, tokens, heads, ...] as [batch, chunks, heads, chunk, ...], padded with zeros at the end."""
    missing = -numbers.shape[1] % chunk
    if missing:
        numbers = pad(numbers, (*(0,) * (2 * (numbers.dim() - 2)), 0, missing))
    return _split(numbers, 1, (-1, chunk)).transpose(2, 3)


def _split(numbers: Tensor, axis: int, sizes: tuple[int, int]) -> Tensor:
    split: Tensor = numbers.unflatten(axis, sizes)  # type: ignore[no-untyped-call]
    return split


def _decays(sums: Tensor) -> Tensor:
    """exp(sums[i] - sums[j]) for j <= i, else 0: what is left at i of what was added at j."""
    later = torch.ones(sums.shape[-1], sums.shape[-1], dtype=torch.bool, device=sums.device).triu(1)
    return (sums[..., :, None] - sums[..., None, :]).masked_fill_(later, float("-inf")).exp_()


# --- Mamba 2 ------------------------------------------------------------------------------------


def mamba2_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = _UNLIMITED,
    return_final_states: bool = False,
    **_: Any,
) -> Any:
    """With the arguments of transformers' `mamba2_chunk_scan`; chunks are of our own size."""
    batch, tokens, heads, width = hidden_states.shape
    size = B.shape[3]
    if dt_bias is not None:
        dt = dt + dt_bias.to(dt.dtype)
    steps = (softplus(dt) if dt_softplus else dt).clamp(*dt_limit).float()
    chunk = _chunk_for(tokens, MAMBA2_CHUNK)
    per_token = 4 * batch * heads * (2 * chunk + 4 * width + 3 * width * size // chunk)
    state = (
        hidden_states.new_zeros(batch, heads, width, size, dtype=torch.float32)
        if initial_states is None
        else initial_states.to(hidden_states.device, torch.float32)
    )

    def segment(part: slice, state: Tensor) -> tuple[Tensor, Tensor]:
        values, step = hidden_states[:, part].float(), steps[:, part]
        answer, state = _mamba2_segment(
            values * step.unsqueeze(-1), step * A.float(), B[:, part].float(), C[:, part].float(), state, chunk
        )
        return answer if D is None else answer.addcmul_(D.float().view(heads, -1), values), state

    with tensor_cores(hidden_states.dtype != torch.float32):
        answer, state = _scanned(segment, state, tokens, chunk, per_token)
    return (answer, state) if return_final_states else answer


def _mamba2_segment(
    values: Tensor, decay: Tensor, keys: Tensor, queries: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """Values [batch, tokens, heads, width], log decays [batch, tokens, heads], keys and queries [batch, tokens, groups,
    size], the state before them [batch, heads, width, size]. Returns the outputs, as the values, and the last state."""
    batch, tokens, heads, width = values.shape
    groups, size = keys.shape[2:]
    value, key, query = (_chunked(t, chunk) for t in (values, keys, queries))
    sums = _chunked(decay, chunk).cumsum(-1)  # [batch, chunks, heads, chunk]
    chunks = sums.shape[1]
    # Within the chunk: the scores are those of the group, the decays those of the head.
    weights = _split(_decays(sums), 2, (groups, -1)).mul_((query @ key.mT).unsqueeze(3)).flatten(2, 3)
    answer = weights @ value
    del weights
    # The addition of each chunk to the state, and the state at its beginning.
    left = _split((value * (sums[..., -1:] - sums).exp().unsqueeze(-1)).mT, 2, (groups, -1)).flatten(3, 4)
    added = (left @ key).view(batch, chunks, heads, width * size)
    totals = pad(sums[..., -1], (0, 0, 1, 0)).cumsum(1).transpose(1, 2)  # [batch, heads, chunks + 1]
    states = torch.cat([state.reshape(batch, 1, heads, -1), added], 1).transpose(1, 2)
    states = (_decays(totals) @ states).view(batch, heads, chunks + 1, width, size)
    before, after = states[:, :, :-1].transpose(1, 2), states[:, :, -1]
    earlier = query @ _split(before, 2, (groups, -1)).flatten(3, 4).mT  # [batch, chunks, groups, chunk, heads x width]
    earlier = _split(earlier, -1, (heads // groups, width)).transpose(3, 4).flatten(2, 3)
    answer.addcmul_(earlier, sums.exp().unsqueeze(-1))
    return answer.transpose(2, 3).flatten(1, 2)[:, :tokens].contiguous(), after


# --- the gated delta rule -----------------------------------------------------------------------


def gated_delta_rule(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    chunk_size: int = DELTA_CHUNK,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """With the arguments of transformers' `torch_chunk_gated_delta_rule`; chunks are of our own size."""
    batch, tokens, heads, value_width = value.shape
    width = key.shape[3]
    chunk = _chunk_for(tokens, DELTA_CHUNK)
    kernels = delta_kernels(query.device) if query.dtype in _HALF else None
    of_segment: Callable[..., tuple[Tensor, Tensor]]
    if kernels is not None and kernels.fits(width, value_width):
        of_segment, numbers = kernels.delta_rule, kernels.numbers_per_token(width, value_width)
    else:
        of_segment = partial(_delta_products, chunk=chunk)
        numbers = 3 * chunk + 6 * width + 4 * value_width + width * (width + 2 * value_width) // chunk
    state = (
        value.new_zeros(batch, heads, width, value_width, dtype=torch.float32)
        if initial_state is None
        else initial_state.to(value.device, torch.float32)
    )

    def segment(part: slice, state: Tensor) -> tuple[Tensor, Tensor]:
        return of_segment(
            *(each[:, part] for each in (query, key, value, g, beta)), state, normed=use_qk_l2norm_in_kernel
        )

    answer, state = _scanned(segment, state, tokens, chunk, 4 * batch * heads * numbers)
    return answer, state if output_final_state else None


def _delta_products(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, rate: Tensor, state: Tensor, *, normed: bool, chunk: int
) -> tuple[Tensor, Tensor]:
    """The outputs of a segment, in the type of the queries, and the state after it, by plain torch."""
    share, width = value.shape[2] // key.shape[2], key.shape[3]
    queries, keys = (each.float().repeat_interleave(share, 2) if share > 1 else each.float() for each in (query, key))
    if normed:
        queries, keys = (t * (t.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for t in (queries, keys))
    with tensor_cores(query.dtype != torch.float32):
        answer, state = _delta_segment(
            queries * width**-0.5, keys, value.float(), decay.float(), rate.float(), state, chunk
        )
    return answer.to(query.dtype), state


def _delta_segment(
    queries: Tensor, keys: Tensor, values: Tensor, decay: Tensor, rates: Tensor, state: Tensor, chunk: int
) -> tuple[Tensor, Tensor]:
    """All [batch, tokens, heads, ...]; the state before them [batch, heads, key width, value width]."""
    tokens, width = keys.shape[1], keys.shape[3]
    query, key, value, rate = (_chunked(t, chunk) for t in (queries, keys, values, rates.unsqueeze(-1)))
    sums = _chunked(decay, chunk).cumsum(-1)
    decays, since, until = _decays(sums), sums.exp().unsqueeze(-1), (sums[..., -1:] - sums).exp().unsqueeze(-1)
    scaled = key * rate
    # Every token corrects what the earlier ones of its chunk have stored: a triangular system for all of them at once.
    system = (scaled @ key.mT).mul_(decays)
    sides = torch.cat([value * rate, scaled * since], -1)
    solved = torch.linalg.solve_triangular(system, sides, upper=False, unitriangular=True)
    stored, read = solved.split([value.shape[-1], width], -1)
    # The state after a chunk is linear in the state before it, so a chunk costs one product in the loop.
    kept = (key * until).mT
    added = kept @ stored
    change = (kept @ read).neg_()
    change.diagonal(dim1=-2, dim2=-1).add_(sums[..., -1].exp().unsqueeze(-1))
    before, after = _states_between(change, added, state)
    correction = stored - read @ before
    answer = (query * since) @ before + (query @ key.mT).mul_(decays) @ correction
    return answer.transpose(2, 3).flatten(1, 2)[:, :tokens].contiguous(), after


def _states_between(change: Tensor, added: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The state before each chunk, and after the last: every chunk multiplies it by `change` and adds `added`, both
    [batch, chunks, heads, ...]."""
    kernels = recurrence_kernels(change)
    if kernels is not None and kernels.fits(*added.shape[-2:]):
        states = kernels.chain_states(change, added, state, exact=torch.get_float32_matmul_precision() == "highest")
    else:
        states = added.new_empty(added.shape[0], added.shape[1] + 1, *added.shape[2:])
        states[:, 0] = state
        for number in range(added.shape[1]):
            states[:, number + 1] = added[:, number] + change[:, number] @ states[:, number]
    return states[:, :-1], states[:, -1]


# --- the convolution before a scan ---------------------------------------------------------------


def causal_conv(
    hidden_states: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str | None = None, **_: Any
) -> Tensor:
    """With the arguments of transformers' `causal_conv1d_fn`: [batch, channels, tokens] and weights [channels, taps].
    The kernel leaves the channels of a token side by side, as scans read them."""
    kernels = recurrence_kernels(hidden_states)
    if kernels is not None and hidden_states.dtype == weight.dtype and activation in (None, "silu", "swish"):
        answer: Tensor = kernels.causal_conv(hidden_states, weight, bias, active=activation is not None)
        return answer
    channels, taps = weight.shape
    answer = conv1d(hidden_states.to(weight.dtype), weight.unsqueeze(1), bias, padding=taps - 1, groups=channels)
    answer = answer[..., : hidden_states.shape[2]]
    return (answer if activation is None else ACT2FN[activation](answer)).to(hidden_states.dtype)


# --- whether the kernels are used ---------------------------------------------------------------


def delta_kernels(device: torch.device) -> Any:
    """The module of kernels of the gated delta rule for tensors of 16 bits on a device; None where there are none."""
    return _tried_kernels() if device.type == "cuda" else None


@cache
def _tried_kernels() -> Any:
    """None where Triton is not installed, or the kernels do not compile, are not right or not faster."""
    try:
        from leadline.models.hf import delta_kernels  # Triton is imported only on a GPU

        given = _delta_inputs(torch.device("cuda"))
        plain = partial(_delta_products, *given, normed=True, chunk=DELTA_CHUNK)
        return delta_kernels if _is_better(partial(delta_kernels.delta_rule, *given, normed=True), plain) else None
    except Exception:  # whatever a compiler raises
        return None


def _delta_inputs(device: torch.device, tokens: int = 1061, width: int = 128) -> tuple[Tensor, ...]:
    """Of a layer as large as those of Qwen 3 Next, with tokens that do not fill the last chunk."""
    draw = partial(torch.randn, generator=torch.Generator().manual_seed(0))
    query, key, value = (draw(1, tokens, heads, width).to(device, torch.bfloat16) for heads in (16, 16, 32))
    decay, rate = -0.1 * draw(1, tokens, 32).abs().to(device), draw(1, tokens, 32).sigmoid().to(device, torch.bfloat16)
    return query, key, value, decay, rate, draw(1, 32, width, width).to(device)


def _is_better(
    kernel: Callable[[], tuple[Tensor, Tensor]],
    plain: Callable[[], tuple[Tensor, Tensor]],
    clock: Callable[[Callable[[], Any]], float] | None = None,
) -> bool:
    """Whether a kernel gives the outputs and states of plain torch, and is faster."""
    with torch.inference_mode():
        for got, want in zip(kernel(), plain(), strict=True):
            # Outputs are rounded to 16 bits twice; states are products in TF32.
            near = 1e-2 if want.dtype in _HALF else 3e-3
            if got.shape != want.shape or not (got.float() - want.float()).norm() <= near * want.float().norm():
                return False
        clock = clock or _milliseconds
        return clock(kernel) < clock(plain)


def _milliseconds(work: Callable[[], Any], times: int = 3) -> float:
    """Of the fastest run on the GPU."""
    spent = []
    for _ in range(times):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        spent.append(float(begin.elapsed_time(end)))
    return min(spent)
