"""Mamba 2 and the gated delta rule over many tokens, as matrix products.

    mamba2_scan         a state that decays and adds up (Mamba 2, arXiv 2405.21060)
    gated_delta_rule    a state that also corrects what it holds (Gated DeltaNet, arXiv 2412.06464)
                        (one token by either is in steps.py)
    find_scans          which functions of a model's code these replace, after a comparison on random numbers
    references          transformers' own functions where it would call an installed kernel package
    replaced            the replacement itself, for the time of a pass

Both split the tokens into chunks. Within a chunk every token attends to the earlier ones, with the decay between the
two; from chunk to chunk only the state is handed on. transformers has the same functions as readable references, which
multiply out what should be products of matrices. Where a kernel package is installed, transformers calls it under the
same names; it then tunes its kernels for a minute at the first pass, so a reader uses it only when it is asked for.

Everything is kept in float32. The products of a model in 16 bits are made in TF32, which is finer than its weights.
Long inputs are worked off in segments, so that what is held besides input and output stays within `HELD_BYTES`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from leadline.models.hf.steps import delta_step, mamba2_step, recurrence_kernels

HELD_BYTES = 768 << 20
"""The bytes that a scan may hold besides its input and output."""
MAMBA2_CHUNK = 128
"""Work within a chunk grows with its size, the states at its ends with the number of chunks; here both are equal for
states of 128."""
DELTA_CHUNK = 64
"""A triangular system of this size is solved for every chunk."""
SMALLEST_CHUNK = 16
"""Tokens of a row for which a scan computes, however few it has."""
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


def _segments(tokens: int, chunk: int, bytes_per_token: int) -> Iterator[slice]:
    """Whole chunks that hold no more than the limit, at least one."""
    size = max(1, HELD_BYTES // (bytes_per_token * chunk)) * chunk
    for start in range(0, tokens, size):
        yield slice(start, min(tokens, start + size))


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
    answers = []
    with tensor_cores(hidden_states.dtype != torch.float32):
        for part in _segments(tokens, chunk, per_token):
            values = hidden_states[:, part].float()
            step = steps[:, part]
            answer, state = _mamba2_segment(
                values * step.unsqueeze(-1), step * A.float(), B[:, part].float(), C[:, part].float(), state, chunk
            )
            if D is not None:
                answer = answer.addcmul_(D.float().view(heads, -1), values)
            answers.append(answer)
    answer = answers[0] if len(answers) == 1 else torch.cat(answers, 1)
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
    batch, tokens, key_heads, width = key.shape
    heads, value_width = value.shape[2:]
    chunk = _chunk_for(tokens, DELTA_CHUNK)
    matrices = 3 * chunk + 6 * width + 4 * value_width + width * (width + 2 * value_width) // chunk
    state = (
        value.new_zeros(batch, heads, width, value_width, dtype=torch.float32)
        if initial_state is None
        else initial_state.to(value.device, torch.float32)
    )
    answers = []
    with tensor_cores(query.dtype != torch.float32):
        for part in _segments(tokens, chunk, 4 * batch * heads * matrices):
            queries, keys = (
                t[:, part].float().repeat_interleave(heads // key_heads, 2)
                if heads != key_heads
                else t[:, part].float()
                for t in (query, key)
            )
            if use_qk_l2norm_in_kernel:
                queries, keys = (t * (t.square().sum(-1, keepdim=True) + 1e-6).rsqrt() for t in (queries, keys))
            answer, state = _delta_segment(
                queries * width**-0.5,
                keys,
                value[:, part].float(),
                g[:, part].float(),
                beta[:, part].float(),
                state,
                chunk,
            )
            answers.append(answer.to(query.dtype))
    answer = answers[0] if len(answers) == 1 else torch.cat(answers, 1)
    return answer, state if output_final_state else None


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


# --- in the place of a model's own --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Replacement:
    """A function of the file that defines a model's layers, and ours for it."""

    file: Any
    name: str
    function: Callable[..., Any]

    @property
    def is_scan(self) -> bool:
        """Whether it reads many tokens at once, in chunks of our own size."""
        return self.function in (mamba2_scan, gated_delta_rule)


@contextmanager
def replaced(replacements: Sequence[Replacement]) -> Iterator[None]:
    """Layers that run meanwhile call our functions."""
    own = [getattr(replacement.file, replacement.name) for replacement in replacements]
    try:
        for replacement in replacements:
            setattr(replacement.file, replacement.name, replacement.function)
        yield
    finally:
        for replacement, function in zip(replacements, own, strict=True):
            setattr(replacement.file, replacement.name, function)


def find_scans(model: Any, *, installed: bool = False) -> list[Replacement]:
    """The functions of the model's code that ours agree with. With `installed`, those for which a kernel package is
    there stay with the package."""
    device = model.get_input_embeddings().weight.device
    scans = []
    for file in _files(model):
        for name, (function, package, example) in _KNOWN.items():
            own = getattr(file, name, None)
            if own is None or (installed and find_spec(package)):
                continue
            if _agree(_reference(own), function, partial(example, device)):
                scans.append(Replacement(file, name, function))
    return scans


def references(model: Any) -> list[Replacement]:
    """If a kernel package is installed: transformers' own versions of the functions that may call it."""
    if not any(find_spec(package) for package in _PACKAGES):
        return []
    return [
        Replacement(file, name, _reference(function))
        for file in _files(model)
        for name, function in vars(file).items()
        if inspect.isfunction(function) and inspect.unwrap(function) is not function
    ]


def _files(model: Any) -> list[Any]:
    """The modules that define the model's layers."""
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    return sorted(files, key=lambda module: module.__name__)


def _reference(function: Callable[..., Any]) -> Callable[..., Any]:
    """The decorated function, called with the arguments that it knows."""
    plain: Callable[..., Any] = inspect.unwrap(function)
    known = inspect.signature(plain).parameters
    if plain is function or any(each.kind is each.VAR_KEYWORD for each in known.values()):
        return plain

    def call(*args: Any, **options: Any) -> Any:
        return plain(*args, **{name: value for name, value in options.items() if name in known})

    return call


def _mamba2_example(device: torch.device, tokens: int = 40) -> dict[str, Any]:
    draw = partial(_random, device, torch.float32, torch.Generator().manual_seed(0))
    batch, heads, width, groups, size = 2, 4, 8, 2, 16
    return {
        "hidden_states": draw(batch, tokens, heads, width), "dt": draw(batch, tokens, heads),
        "A": -torch.arange(1, heads + 1, device=device).float(), "B": draw(batch, tokens, groups, size),
        "C": draw(batch, tokens, groups, size), "chunk_size": 16, "D": draw(heads), "dt_bias": draw(heads),
        "initial_states": draw(batch, heads, width, size), "dt_softplus": True, "return_final_states": True,
    }  # fmt: skip


def _mamba2_step_example(device: torch.device) -> dict[str, Any]:
    draw = partial(_random, device, torch.float32, torch.Generator().manual_seed(0))
    batch, heads, width, groups, size = 2, 4, 8, 2, 16
    return {
        "state": draw(batch, heads, width, size), "hidden_states": draw(batch, heads, width),
        "dt": draw(batch, heads, 1).expand(-1, -1, width),
        "A": (-torch.arange(1.0, heads + 1, device=device))[:, None, None].expand(-1, width, size),
        "B": draw(batch, groups, size), "C": draw(batch, groups, size), "D": draw(heads, 1).expand(-1, width),
        "dt_bias": draw(heads, 1).expand(-1, width), "dt_softplus": True,
    }  # fmt: skip


def _delta_example(device: torch.device, tokens: int = 40) -> dict[str, Any]:
    draw = partial(_random, device, torch.float32, torch.Generator().manual_seed(0))
    batch, heads, width = 2, 4, 16
    return {
        "query": draw(batch, tokens, heads, width), "key": draw(batch, tokens, heads, width),
        "value": draw(batch, tokens, heads, width), "g": -0.1 * draw(batch, tokens, heads).float().abs(),
        "beta": draw(batch, tokens, heads).sigmoid(), "initial_state": draw(batch, heads, width, width).float(),
        "output_final_state": True, "use_qk_l2norm_in_kernel": True,
    }  # fmt: skip


def _random(device: torch.device, dtype: torch.dtype, generator: torch.Generator, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=generator).to(device, dtype)


_KNOWN: dict[str, tuple[Callable[..., Any], str, Callable[..., dict[str, Any]]]] = {
    "mamba2_chunk_scan": (mamba2_scan, "mamba_ssm", _mamba2_example),
    "mamba2_selective_state_update": (mamba2_step, "mamba_ssm", _mamba2_step_example),
    "torch_chunk_gated_delta_rule": (gated_delta_rule, "fla", _delta_example),
    "torch_recurrent_gated_delta_rule": (delta_step, "fla", partial(_delta_example, tokens=1)),
}
"""Names in transformers' files: our function, the package whose kernel may stand behind the name, and arguments."""
_PACKAGES = ("fla", "mamba_ssm", "causal_conv1d")


def _agree(own: Callable[..., Any], ours: Callable[..., Any], example: Callable[..., dict[str, Any]]) -> bool:
    with torch.inference_mode():
        try:
            want, got = (_results(function, example()) for function in (own, ours))
        except Exception:  # another version's arguments
            return False
    near = 2e-3 if want[0].is_cuda else 1e-4  # a decorator that cannot be looked behind may call kernels in TF32
    return len(got) == len(want) and all(
        a.shape == b.shape and bool((a.float() - b.float()).norm() <= near * b.float().norm())
        for a, b in zip(got, want, strict=True)
    )


def _results(function: Callable[..., Any], arguments: dict[str, Any]) -> list[Tensor]:
    """What a function returns, and what it may have changed in place."""
    returned = function(**arguments)
    changed = [value for value in arguments.values() if isinstance(value, Tensor)]
    return [*([returned] if isinstance(returned, Tensor) else returned), *changed]
