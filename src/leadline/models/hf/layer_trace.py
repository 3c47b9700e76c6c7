"""The parts of a model's layers while it runs: the inputs and outputs of each, with given inputs.

In 16 bits two right ways to compute a model end far apart: every layer rounds, and routers that see slightly other
numbers choose other experts. So they are compared part by part: every part (attention, recurrence, feed-forward)
gets the inputs that the model's own pass gave it, and only its output is compared. Where those inputs are rounded, the
parts that mix tokens may besides compute in float32, one at a time, so that rounding disappears from the comparison and
a small fault stays: bfloat16 to float32 and back loses nothing.

    LayerTrace.record    a pass whose inputs are kept
    LayerTrace.replay    passes over tokens of the same text, with those inputs; gives the outputs by part
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from leadline.models.hf.layers import layers_of, removed_after
from leadline.models.hf.reader import Reader

HALF = (torch.bfloat16, torch.float16)
_FIRST = "input of the first layer"
Outputs = dict[str, Tensor]
"""By name of the part: [rows, columns, width]."""


class LayerTrace:
    """Follows the direct children of a model's layers."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._parts = dict(_children_of_layers(reader.body))
        self._inputs: Outputs = {}  # of the recorded pass: [tokens, width]
        self._seen: dict[str, list[Tensor]] = {}
        self._widened = False
        self._restore: list[tuple[Any, Tensor]] = []
        self.mixers: set[str] = set()
        """Parts that are called with more than hidden states: positions, a mask, a cache."""

    @property
    def can_widen(self) -> bool:
        """Offloaded weights are not here before the part runs."""
        return not any(p.is_meta for part in self._parts.values() for p in part.parameters())

    def record(self, run: Callable[[], object]) -> None:
        """Keep the inputs of every part in a pass over one whole text."""

        def keep(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            where = _hidden_place(args, kwargs)
            if where is not None:
                self._inputs[name] = _argument(args, kwargs, where)[0].clone()
                if len(args) + len(kwargs) > 1:
                    self.mixers.add(name)

        def before(name: str) -> Callable[..., Any]:
            return lambda module, args, kwargs: keep(name, args, kwargs)

        hooks = [m.register_forward_pre_hook(before(n), with_kwargs=True) for n, m in self._parts.items()]
        with removed_after(hooks):
            run()

    @contextmanager
    def replay(self, *, widen: bool = False) -> Iterator[Callable[[], Outputs]]:
        """Passes of the reader, and of the model itself, with the recorded inputs; gives a function that returns the
        outputs since it was last called. With `widen` the parts that mix tokens compute in float32, and only they are
        followed."""
        self._widened, self._seen = widen, {}
        hooks: list[Any] = []
        for name in self._inputs:
            module = self._parts[name]
            if not widen or name in self.mixers:
                hooks.append(module.register_forward_pre_hook(self._before(name), with_kwargs=True))
                hooks.append(module.register_forward_hook(self._after(name), with_kwargs=True))
        with removed_after(hooks):
            try:
                yield self._take
            finally:
                self._put_back()

    def _take(self) -> Outputs:
        seen, self._seen = self._seen, {}
        return {name: torch.cat(outputs, 1) for name, outputs in seen.items()}

    def _before(self, name: str) -> Callable[..., Any]:
        def with_recorded_input(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            where, recorded = _hidden_place(args, kwargs), self._inputs[name]
            if where is not None:
                if name == next(iter(self._inputs)) and not self._widened:  # what the layers begin with
                    self._seen.setdefault(_FIRST, []).append(_argument(args, kwargs, where))
                positions = self._reader.positions.to(recorded.device)
                args, kwargs = _replaced(args, kwargs, where, recorded[positions])
            if self._widened:
                self._widen(module)
                args, kwargs = _in_float32(args), _in_float32(kwargs)
            return args, kwargs

        return with_recorded_input

    def _after(self, name: str) -> Callable[..., Any]:
        def note(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
            self._put_back()
            first = output[0] if isinstance(output, (tuple, list)) else output
            # Experts may return all tokens of a batch one after another.
            self._seen.setdefault(name, []).append(first.reshape(*self._reader.positions.shape, -1))
            return _map(lambda t: t.to(self._inputs[name].dtype), output) if self._widened else output

        return note

    def _widen(self, module: torch.nn.Module) -> None:
        """Put float32 copies in the place of 16-bit weights."""
        self._put_back()
        with torch.inference_mode(False):  # weights must stay ordinary tensors
            for tensor in chain(module.parameters(), module.buffers()):
                if tensor.dtype in HALF:
                    self._restore.append((tensor, tensor.data))
                    tensor.data = tensor.data.float()

    def _put_back(self) -> None:
        with torch.inference_mode(False):
            for tensor, data in self._restore:
                tensor.data = data
        self._restore.clear()


def largest_errors(got: Outputs, want: Outputs) -> tuple[float, float]:
    """The relative errors of the part that is farthest off: its median token's and its worst. NaN if one is NaN."""
    errors_of_parts = [relative_errors(got[name], wanted).flatten() for name, wanted in want.items()]
    medians, worst = (
        torch.stack([measure(errors) for errors in errors_of_parts]) for measure in (torch.median, torch.max)
    )
    return float(medians.max()), float(worst.max())


def relative_errors(got: Tensor, want: Tensor) -> Tensor:
    """Of each vector; a vector that is much shorter than the others is compared with their length."""
    norms = want.float().norm(dim=-1)
    errors: Tensor = (got.float() - want.float()).norm(dim=-1)
    return errors / torch.maximum(norms, 0.05 * norms.square().mean().sqrt())


def _children_of_layers(body: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    for number, layer in enumerate(layers_of(body)):
        for name, child in layer.named_children():
            yield f"{number}.{name}", child


def _hidden_place(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | str | None:
    """The position or name of the hidden states [rows, columns, width] among the arguments: the first of that form."""
    arguments: Iterator[tuple[int | str, Any]] = chain(enumerate(args), kwargs.items())
    for where, value in arguments:
        if isinstance(value, Tensor) and value.dim() == 3 and value.is_floating_point():
            return where
    return None


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], where: int | str) -> Tensor:
    value: Tensor = kwargs[where] if isinstance(where, str) else args[where]
    return value


def _replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], where: int | str, value: Tensor
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(where, str):
        return args, {**kwargs, where: value}
    return (*args[:where], value, *args[where + 1 :]), kwargs


def _map(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """In tensors of floats, and in tuples, lists and dictionaries of them; caches stay as they are."""
    if isinstance(value, Tensor):
        return change(value) if value.is_floating_point() else value
    if type(value) in (tuple, list):
        return type(value)(_map(change, item) for item in value)
    if type(value) is dict:
        return {key: _map(change, item) for key, item in value.items()}
    return value


def _in_float32(value: Any) -> Any:
    return _map(lambda tensor: tensor.float() if tensor.dtype in HALF else tensor, value)
