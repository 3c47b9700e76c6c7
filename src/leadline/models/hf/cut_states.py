"""The states of recurrent layers at cuts within a pass, taken while the pass computes them.

A state cannot be cropped, so without this a pass would have to end at every cut, and a pass over a few tokens takes as
long to launch as one over thousands.

    taking           the places of a pass at which states are taken
    inner_places     what a scan asks: after which of its tokens it notes its state, by `note_scanned`
    TakenStates      what was taken, by layer; states.py makes caches of it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

import torch
from torch import Tensor

StateName = tuple[str, int, int]
"""The attribute of a layer's cache, the layer, and the number of the state among those of the layer."""


@dataclass
class TakenStates:
    """One state for each place, which is a number of tokens of the pass."""

    places: Sequence[int]
    states: dict[StateName, list[Tensor]] = field(default_factory=dict)
    scanned: list[Tensor] = field(default_factory=list)
    """Those of the latest scan, whose layer is not known until it updates the cache."""

    def take_scanned(self, name: StateName, like: Tensor) -> None:
        """The latest scan was that of this layer."""
        self.states[name] = [state.to(like.dtype) for state in self.scanned if state.shape == like.shape]
        self.scanned = []

    def take_last(self, name: StateName, before: Tensor | None, tokens: Tensor, like: Tensor) -> None:
        """A state that is just the last tokens before each place: of the pass [batch, channels, tokens], and of those
        `before` it, zeros where there are none."""
        before, size = torch.zeros_like(like) if before is None else before, like.shape[-1]
        self.states[name] = [
            tokens[..., place - size : place].clone() if place >= size
            else torch.cat([before[..., place:], tokens[..., :place].to(before.dtype)], -1)
            for place in self.places
        ]  # fmt: skip


_TAKEN: ContextVar[TakenStates | None] = ContextVar("leadline_taken_states", default=None)


@contextmanager
def taking(places: Sequence[int]) -> Iterator[TakenStates]:
    taken = TakenStates(places)
    token = _TAKEN.set(taken if places else None)
    try:
        yield taken
    finally:
        _TAKEN.reset(token)


def taken_states() -> TakenStates | None:
    """Those of the pass that is running; None if it takes none."""
    return _TAKEN.get()


def inner_places() -> Sequence[int]:
    """After how many tokens of a scan its state is noted, in ascending order."""
    taken = _TAKEN.get()
    return () if taken is None else taken.places


def note_scanned(states: list[Tensor]) -> None:
    """The states of a scan at these places."""
    taken = _TAKEN.get()
    if taken is not None:
        taken.scanned = states


def joined(before: Tensor, tokens: Tensor) -> Tensor:
    """[batch, channels, tokens] one after the other; channels that are side by side stay so, which saves a copy in
    another order."""
    if tokens.dim() == 3 and tokens.stride(1) == 1:
        return torch.cat([before.mT, tokens.mT], 1).mT
    return torch.cat([before, tokens], -1)
