"""Which functions of a model's code are replaced by scans and steps of our own, and for how long.

    find_scans          those that ours agree with, after a comparison on random numbers
    references          transformers' own functions where it would call an installed kernel package
    replaced            the replacement itself, for the time of a pass

transformers has these functions as readable references, which multiply out what should be products of matrices. Where a
kernel package is installed, it calls the package under the same names; that then tunes its kernels for a minute at the
first pass, so a reader uses it only when it is asked for.
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

from leadline.models.hf.scans import causal_conv, delta_kernels, gated_delta_rule, mamba2_scan
from leadline.models.hf.steps import delta_step, mamba2_step, recurrence_kernels


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
    weight = model.get_input_embeddings().weight
    device = weight.device
    delta_kernels(device)  # tried now, so that what the trial holds is not counted as a pass's
    scans = []
    for file in _files(model):
        for name, (function, package, example) in _KNOWN.items():
            own = getattr(file, name, None)
            if own is None or (installed and find_spec(package)):
                continue
            if function is causal_conv and recurrence_kernels(weight) is None:
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


def _conv_example(device: torch.device, tokens: int = 75) -> dict[str, Any]:
    draw = partial(_random, device, torch.float32, torch.Generator().manual_seed(0))
    channels = 72
    return {
        "hidden_states": draw(2, tokens, channels).mT, "weight": draw(channels, 4), "bias": draw(channels),
        "activation": "silu",
    }  # fmt: skip


def _random(device: torch.device, dtype: torch.dtype, generator: torch.Generator, *sizes: int) -> Tensor:
    return torch.randn(*sizes, generator=generator).to(device, dtype)


_KNOWN: dict[str, tuple[Callable[..., Any], str, Callable[..., dict[str, Any]]]] = {
    "causal_conv1d_fn": (causal_conv, "causal_conv1d", _conv_example),
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
    """What a function returns, and what it may have changed in place. Over the state before a scan or step the next one
    may be written: a layer puts it there anyway."""
    returned = function(**arguments)
    changed = [value for name, value in arguments.items() if isinstance(value, Tensor) and name != "initial_state"]
    return [*([returned] if isinstance(returned, Tensor) else returned), *changed]
