"""The memory of a device; and keys and values in host memory, with their way back to the device.

HostMemory     pieces of pinned memory, or of ordinary memory where none can be had
HostLayer      the keys and values of a layer in blocks
Fetcher        copies spans of them to the device, one span ahead of their use
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from leadline.core.memory import free_host_memory, host_memory

BLOCK_TOKENS = 1 << 14
ARENA_BYTES = 256 << 20
"""Pinned memory is taken in pieces of this size: torch rounds every piece up to a power of two."""

HOST_RESERVE = 4 << 30
"""Host memory that keys and values do not use."""
Planes = tuple[Tensor, ...]
"""The stored form of keys (or values): the numbers, and their scales if there are any; [1, heads, tokens, n] each."""


def gpu_memory(device: torch.device) -> tuple[int, int] | None:
    """The GPU memory that this process could use, and the part that its tensors use now; None for another device."""
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device)), int(torch.cuda.memory_allocated(device))


def device_memory(device: torch.device) -> int | None:
    """Memory that this process could use on the device, including what it uses now."""
    if (gpu := gpu_memory(device)) is not None:
        return gpu[0]
    return host_memory() if device.type == "cpu" else None


def check_host_memory(needed: int) -> None:
    """Raises MemoryError if keys and values would take memory that the rest of this machine needs."""
    has = free_host_memory()
    if has is not None and needed > has - HOST_RESERVE:
        raise MemoryError(
            f"not enough memory: {needed / (1 << 30):.1f} GiB of keys and values, and {has / (1 << 30):.1f} are free"
        )


def _aligned(size: int) -> int:
    """Bytes up to where the next tensor may begin in a shared piece of memory."""
    return -(-size // 64) * 64


class HostMemory:
    """Pieces of host memory, pinned if that is possible; `problem` says why not."""

    def __init__(self) -> None:
        self.pin = False
        self.problem = ""
        self.bytes = 0
        self._arena: Tensor | None = None
        self._used = 0

    def take(self, heads: int, tokens: int, width: int, dtype: torch.dtype) -> Tensor:
        size = heads * tokens * width * dtype.itemsize
        if self._arena is None or self._used + size > self._arena.numel():
            self._arena, self._used = self._allocate(max(ARENA_BYTES if self.pin else 0, size)), 0
        piece = self._arena[self._used : self._used + size]
        self._used += _aligned(size)
        return piece.view(dtype).view(heads, tokens, width)

    def _allocate(self, size: int) -> Tensor:
        self.bytes += size
        if self.pin:
            try:
                return torch.empty(size, dtype=torch.uint8, pin_memory=True)
            except RuntimeError as error:
                self.pin, self.problem = False, f"host memory is not pinned: {str(error).splitlines()[0][:120]}"
        return torch.empty(size, dtype=torch.uint8)


class HostLayer:
    """Blocks [heads, block, n] in host memory."""

    def __init__(self, like: Planes, memory: HostMemory, block: int) -> None:
        self.device = like[0].device
        self._memory, self._block = memory, block
        self.shapes = [(plane.shape[1], plane.shape[3], plane.dtype) for plane in like]
        self._blocks: list[list[Tensor]] = [[] for _ in like]

    def write(self, start: int, planes: Planes) -> None:
        self.reserve(start + planes[0].shape[2])
        for blocks, plane in zip(self._blocks, (plane.contiguous() for plane in planes), strict=True):
            for block, inside, outside in self._pieces(start, start + plane.shape[2]):
                for head in range(plane.shape[1]):  # a head of a block is contiguous
                    blocks[block][head, inside].copy_(plane[0, head, outside], non_blocking=True)

    def reserve(self, tokens: int) -> None:
        for blocks, (heads, width, dtype) in zip(self._blocks, self.shapes, strict=True):
            while len(blocks) * self._block < tokens:
                blocks.append(self._memory.take(heads, self._block, width, dtype))

    def copy_to(self, targets: Planes, start: int, stop: int) -> None:
        """Copy a span into tensors [1, heads, stop - start, n] on the device."""
        for blocks, target in zip(self._blocks, targets, strict=True):
            for block, inside, outside in self._pieces(start, stop):
                for head in range(target.shape[1]):
                    target[0, head, outside].copy_(blocks[block][head, inside], non_blocking=True)

    def _pieces(self, start: int, stop: int) -> Iterator[tuple[int, slice, slice]]:
        """(block, tokens inside it, the same tokens counted from `start`)"""
        at = start
        while at < stop:
            block, first = divmod(at, self._block)
            end = min(stop, (block + 1) * self._block)
            yield block, slice(first, first + end - at), slice(at - start, end - start)
            at = end


class Fetcher:
    """Copies spans of host layers to one device, one span ahead of their use. On a GPU by a stream of its own, if that
    gives back what was stored in a trial; `problem` says if not."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.problem = ""
        self._stream: Any = None
        self._clear()
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            try:
                right = self._gives_back_what_was_stored()
            except RuntimeError:
                right = False
            if not right:
                self._stream, self.problem = None, "host memory is copied without a stream of its own: its trial failed"
            self._clear()

    def _clear(self) -> None:
        self._buffers: list[Tensor] = [torch.empty(0, dtype=torch.uint8, device=self.device) for _ in range(2)]
        self._ready: list[Any] = [None, None]
        self._holds: list[tuple[int, int, int] | None] = [None, None]  # layer, start, stop
        self._next = 0

    def _gives_back_what_was_stored(self) -> bool:
        """Two layers of random numbers, read in several spans and twice. Each is compared late, when the copies of the
        next spans are under way."""
        memory, spans = HostMemory(), [(0, 4096), (4096, 6144), (6144, 9000)]
        memory.pin = True
        layers = [(torch.randn(1, 2, 9000, 64, device=self.device),) for _ in range(2)]
        held = [HostLayer(planes, memory, 2048) for planes in layers]
        for layer, planes in zip(held, layers, strict=True):
            layer.write(0, planes)
        work, wrong = torch.randn(2048, 2048, device=self.device), torch.zeros((), dtype=torch.bool, device=self.device)
        for _ in range(2):
            for number, planes in enumerate(layers):
                fetched = self.stream(number, held[number], spans, (1 - number, held[1 - number]))
                for (start, stop), (got,) in zip(spans, fetched, strict=True):
                    for _ in range(8):
                        work = work @ work * 1e-2
                    wrong |= (got != planes[0][:, :, start:stop]).any()
        return not bool(wrong)

    def stream(
        self, number: int, layer: HostLayer, spans: Sequence[tuple[int, int]], following: tuple[int, HostLayer]
    ) -> Iterator[Planes]:
        """Each span in turn; the one after it, or the first of the layer that follows, is copied meanwhile."""
        for i, (start, stop) in enumerate(spans):
            wanted = number, start, stop
            if wanted not in self._holds:
                self._fetch(self._next, layer, wanted)
            slot = self._holds.index(wanted)
            self._next = 1 - slot
            (after, held), span = ((number, layer), spans[i + 1]) if i + 1 < len(spans) else (following, spans[0])
            if (after, *span) not in self._holds:
                self._fetch(self._next, held, (after, *span))
            if self._stream is not None:
                torch.cuda.current_stream(self.device).wait_event(self._ready[slot])
            yield self._views(slot, layer, stop - start)

    def _fetch(self, slot: int, layer: HostLayer, wanted: tuple[int, int, int]) -> None:
        _, start, stop = wanted
        needed = sum(_aligned(heads * (stop - start) * width * dtype.itemsize) for heads, width, dtype in layer.shapes)
        if self._buffers[slot].numel() < needed:
            self._buffers[slot] = torch.empty(0, dtype=torch.uint8, device=self.device)  # free the old one first
            self._buffers[slot] = torch.empty(needed, dtype=torch.uint8, device=self.device)
            if self._stream is not None:  # never given to others while a copy is under way
                self._buffers[slot].record_stream(self._stream)
        targets = self._views(slot, layer, stop - start)
        self._holds[slot] = wanted
        if self._stream is None:
            layer.copy_to(targets, start, stop)
            return
        # Everything enqueued so far: the attention that used this buffer, and the writing of these blocks.
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            layer.copy_to(targets, start, stop)
            self._ready[slot] = self._stream.record_event()

    def _views(self, slot: int, layer: HostLayer, tokens: int) -> Planes:
        views, at = [], 0
        for heads, width, dtype in layer.shapes:
            size = heads * tokens * width * dtype.itemsize
            views.append(self._buffers[slot][at : at + size].view(dtype).view(1, heads, tokens, width))
            at += _aligned(size)
        return tuple(views)

    def cancel(self) -> None:
        """Forget the spans copied ahead; the host memory may be written again."""
        self._holds = [None, None]
        if self._stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    @property
    def bytes(self) -> int:
        return sum(buffer.numel() for buffer in self._buffers)
