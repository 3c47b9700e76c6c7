"""The keys and values of a document, as attention sees them: appended while reading, given back in spans.

    Store          what every store does; where the keys and values live is its own business
    DeviceStore    one buffer per layer, on the device of that layer
    LocalAttention what a layer with a window sees, so that a store may drop what nothing can see any more

Reading a document: `prepare`, then for every chunk one `write` per layer (`blocks` of earlier tokens in between), after
which the reader moves `length`. Rows after cuts of the document only call `blocks`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

KeysAndValues = tuple[Tensor, Tensor]
"""[1, key heads, tokens, width] each."""


@dataclass(frozen=True, slots=True)
class LocalAttention:
    """A layer that sees only the last `size` tokens, its own included; with `chunked`, only those of its own chunk:
    chunks are `size` tokens long, and the first begins at position 0."""

    size: int
    chunked: bool = False

    def first_seen(self, position: int) -> int:
        """The first position that a token at this position sees."""
        return position // self.size * self.size if self.chunked else max(0, position - self.size + 1)


class Store(Protocol):
    """Keys and values of the document tokens read so far, for every layer."""

    length: int
    """Tokens of the document that all layers hold."""

    @property
    def steady(self) -> bool:
        """Whether `blocks` gives the same memory every time, so that a CUDA graph may be recorded with it."""
        ...

    @property
    def bytes(self) -> int:
        """Memory on the devices."""
        ...

    @property
    def host_bytes(self) -> int:
        """Memory on the host, for what is not on a device."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What records should say of where and how keys and values are kept."""
        ...

    def prepare(self, tokens: int, common: int, cuts: Sequence[int] | None = None) -> int:
        """Make room for a document of this length that begins with the first `common` tokens read before. Returns how
        many of those are kept; the rest is read (again).

        Rows will follow at `cuts` (None: anywhere). A layer with local attention may drop what neither the document's
        next token nor a row after one of these cuts sees.
        """
        ...

    def write(self, layer: int, key: Tensor, value: Tensor, local: LocalAttention | None) -> None:
        """Append a chunk after the first `length` tokens."""
        ...

    def blocks(self, layer: int, spans: Sequence[tuple[int, int]]) -> Iterator[KeysAndValues]:
        """Keys and values of each span (start, stop) in turn, on the layer's device. Each is valid until the next is
        asked for, so that the one after it can be fetched meanwhile."""
        ...


class DeviceStore:
    """Two buffers [1, key heads, capacity, width] per layer, allocated when the layer first writes, on its device."""

    steady = True
    host_bytes = 0
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.capacity = 0
        self.length = 0
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    def prepare(self, tokens: int, common: int, cuts: Sequence[int] | None = None) -> int:
        self.length = min(self.length, common)
        self._grow(tokens)
        return self.length

    def write(self, layer: int, key: Tensor, value: Tensor, local: LocalAttention | None) -> None:
        if layer not in self._keys:
            self._keys[layer] = key.new_empty(1, key.shape[1], self.capacity, key.shape[3])
            self._values[layer] = value.new_empty(1, value.shape[1], self.capacity, value.shape[3])
        stop = self.length + key.shape[2]
        self._keys[layer][:, :, self.length : stop].copy_(key)
        self._values[layer][:, :, self.length : stop].copy_(value)

    def blocks(self, layer: int, spans: Sequence[tuple[int, int]]) -> Iterator[KeysAndValues]:
        for start, stop in spans:
            yield self._keys[layer][:, :, start:stop], self._values[layer][:, :, start:stop]

    def _grow(self, capacity: int) -> None:
        """Enlarge the buffers, one layer at a time, so that only one is held twice."""
        if capacity <= self.capacity:
            return
        self.capacity = capacity
        for buffers in (self._keys, self._values):
            for layer, old in buffers.items():
                new = old.new_empty(*old.shape[:2], capacity, old.shape[3])
                new[:, :, : self.length].copy_(old[:, :, : self.length])
                buffers[layer] = new

    @property
    def bytes(self) -> int:
        return sum(t.numel() * t.element_size() for b in (self._keys, self._values) for t in b.values())
