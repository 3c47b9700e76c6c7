"""The keys and values of a document, as attention sees them: appended while reading, given back in spans.

    KVCache        decides for every layer where its keys and values live, when the layer first writes
    WindowLayer    a layer with local attention: only what the next token, or a row after a cut, still sees
    DeviceLayer    a layer in buffers on its device
    HostLayer      a layer in blocks of pinned host memory, brought back span by span (host_memory.py)

Reading a document: `prepare`, then for every chunk one `write` per layer (`blocks` of earlier tokens in between), after
which the reader moves `length`. Rows after cuts of the document only call `blocks`.

A span of a host layer is copied into one of two buffers on the device by a stream of its own, while attention works on
the span before it. Attention gets the same numbers in the same spans as from a resident layer, so the results are equal
bit by bit. With `fp8`, keys and values are rounded to float8_e4m3 with one scale per token and head: half the memory,
and other results, which is why every record says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from leadline.models.hf.host_memory import BLOCK_TOKENS, Fetcher, HostLayer, HostMemory, Planes, check_host_memory
from leadline.models.hf.windows import LocalAttention

KeysAndValues = tuple[Tensor, Tensor]
"""[1, key heads, tokens, width] each."""
Room = Callable[["KVCache", torch.device, int], int | None]

FP8 = torch.float8_e4m3fn
FP8_LARGEST = 448.0


def encode_fp8(numbers: Tensor) -> Planes:
    scale = (numbers.abs().amax(-1, keepdim=True).float() / FP8_LARGEST).clamp_min(1e-12).to(numbers.dtype)
    # As bytes: not every operation on every device knows the type.
    return (numbers / scale).clamp_(-FP8_LARGEST, FP8_LARGEST).to(FP8).view(torch.uint8), scale


def decode_fp8(planes: Planes) -> Tensor:
    return planes[0].view(FP8).to(planes[1].dtype) * planes[1]


class DeviceLayer:
    """Buffers [1, heads, capacity, n] on the device."""

    def __init__(self, like: Planes, capacity: int) -> None:
        self.planes = tuple(plane.new_empty(*plane.shape[:2], capacity, plane.shape[3]) for plane in like)

    def write(self, start: int, planes: Planes) -> None:
        for held, plane in zip(self.planes, planes, strict=True):
            held[:, :, start : start + plane.shape[2]].copy_(plane)

    def read(self, start: int, stop: int) -> Planes:
        return tuple(held[:, :, start:stop] for held in self.planes)

    @property
    def bytes(self) -> int:
        return sum(held.numel() * held.element_size() for held in self.planes)


class WindowLayer:
    """The tokens that local attention still sees: the last ones before the next token, and those before every cut."""

    def __init__(self, local: LocalAttention, cuts: Sequence[int]) -> None:
        self.local = local
        self.cuts = sorted(set(cuts))
        self.parts: dict[int, tuple[int, Planes]] = {}  # by end: the first token, and the planes from there
        self._recent: list[int] = []  # ends of the parts before the last chunk and after it

    def write(self, start: int, planes: Planes) -> Planes:
        """Append a chunk. The tokens that the chunk itself sees stay until the next one; returns these and its own."""
        stop = start + planes[0].shape[2]
        first, before = self.parts.get(start, (start, tuple(plane[:, :, :0] for plane in planes)))
        whole = tuple(_one_after_the_other(*pair) for pair in zip(before, planes, strict=True))
        ends = [cut for cut in self.cuts if start < cut < stop] + [stop]
        for end in ends:
            seen = max(first, min(end, self.local.first_seen(end)))
            self.parts[end] = seen, tuple(plane[:, :, seen - first : end - first].clone() for plane in whole)
        for end in self._recent:
            if end not in (start, stop) and end not in self.cuts:
                self.parts.pop(end, None)
        self._recent = [start, stop]
        return whole

    def read(self, start: int, stop: int) -> Planes:
        pieces: list[Planes] = []
        while start < stop:
            holds = [(end, first) for end, (first, _) in self.parts.items() if first <= start < end]
            if not holds:
                raise LookupError(f"token {start} of a layer with a window is not kept any more")
            end, first = max(holds, key=lambda part: min(part[0], stop))
            upto = min(end, stop)
            pieces.append(tuple(plane[:, :, start - first : upto - first] for plane in self.parts[end][1]))
            start = upto
        return pieces[0] if len(pieces) == 1 else tuple(torch.cat(parts, 2) for parts in zip(*pieces, strict=True))

    def resumes_from(self, tokens: int) -> int:
        """The last token up to which something was read and from which reading can go on."""
        return max((end for end in self.parts if end <= tokens), default=0)

    def crop(self, tokens: int) -> None:
        self.parts = {end: part for end, part in self.parts.items() if end <= tokens}

    @property
    def bytes(self) -> int:
        return sum(p.numel() * p.element_size() for _, planes in self.parts.values() for p in planes)


def _one_after_the_other(before: Tensor, plane: Tensor) -> Tensor:
    """[1, heads, tokens, n] each. Usually the heads of a token are side by side in memory; they stay so, which saves a
    copy in another order."""
    return torch.cat([before.transpose(1, 2), plane.transpose(1, 2)], 1).transpose(1, 2)


class KVCache:
    """Keys and values of the document tokens read so far: windows and resident layers on the device, the others in host
    memory.

    `room` says how many further bytes of keys and values a device can take, given those it has; None for no limit. It
    gets the KV cache as an argument: a function that refers to it would keep it on the GPU after its last use.
    """

    def __init__(self, room: Room | None = None, *, fp8: bool = False, block: int = BLOCK_TOKENS) -> None:
        self.length = 0  # tokens of the document that all layers hold
        self.capacity = 0
        self.cuts: tuple[int, ...] | None = None
        self.fp8 = fp8
        self.host = HostMemory()
        self._room, self._block = room or (lambda cache, device, used: None), block
        self._layers: dict[int, DeviceLayer | HostLayer | WindowLayer] = {}
        self._fetchers: dict[torch.device, Fetcher] = {}

    @property
    def steady(self) -> bool:
        """Whether `blocks` gives the same memory every time, so that a CUDA graph may be recorded with it."""
        return not self.spilled_layers

    @property
    def spilled_layers(self) -> list[int]:
        return sorted(number for number, layer in self._layers.items() if isinstance(layer, HostLayer))

    @property
    def bytes(self) -> int:
        """Memory on the devices."""
        layers = sum(layer.bytes for layer in self._layers.values() if not isinstance(layer, HostLayer))
        return layers + sum(fetcher.bytes for fetcher in self._fetchers.values())

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a record on the storage of keys and values."""
        notes = []
        if self.fp8:
            notes.append("keys and values rounded to float8_e4m3")
        if self.spilled_layers:
            notes.append(f"keys and values of {len(self.spilled_layers)} of {len(self._layers)} layers in host memory")
            problems = [self.host.problem, *(fetcher.problem for fetcher in self._fetchers.values())]
            notes.extend(sorted({problem for problem in problems if problem}))
        return tuple(notes)

    def prepare(self, tokens: int, common: int, cuts: Sequence[int] | None = None) -> int:
        """Make room for a document of this length that begins with the first `common` tokens read before. Returns how
        many of those are kept; the rest is read (again).

        Rows will follow at `cuts` (None: anywhere). A layer with local attention may drop what neither the document's
        next token nor a row after one of these cuts sees.
        """
        kept = min(self.length, common)
        wanted = None if cuts is None else tuple(sorted({cut for cut in cuts if 0 < cut <= tokens}))
        for layer in self._layers.values():
            if isinstance(layer, WindowLayer):
                missing = [0] if wanted is None else [cut for cut in wanted if cut not in layer.parts]
                kept = min(kept, layer.resumes_from(min([kept, *missing])))
        for fetcher in self._fetchers.values():
            fetcher.cancel()
        if kept == 0 and tokens > self.capacity:
            self._layers, self._fetchers = {}, {}
            self.host = HostMemory()
        self.length, self.cuts = kept, wanted
        self._regrow(tokens)
        return kept

    def _regrow(self, tokens: int) -> None:
        """Room for more tokens, a layer at a time, so that only one is held twice."""
        grown, self.capacity = tokens > self.capacity, max(tokens, self.capacity)
        for number, layer in list(self._layers.items()):
            if isinstance(layer, WindowLayer):
                if self.length == 0:  # it may have other cuts now
                    del self._layers[number]
                else:
                    layer.crop(self.length)
                    layer.cuts = list(self.cuts or ())
            elif grown and isinstance(layer, DeviceLayer):
                planes = layer.read(0, self.length)
                self._layers[number] = new = self._placed(planes)
                new.write(0, planes)

    def write(self, layer: int, key: Tensor, value: Tensor, local: LocalAttention | None) -> KeysAndValues | None:
        """Append a chunk after the first `length` tokens. Returns what its windows see, its own tokens last, where they
        are in one piece."""
        planes = (*encode_fp8(key), *encode_fp8(value)) if self.fp8 else (key, value)
        if layer not in self._layers:
            self._layers[layer] = self._window(local) or self._placed(planes)
        whole = self._layers[layer].write(self.length, planes)
        return None if whole is None or self.fp8 else (whole[0], whole[1])

    def _window(self, local: LocalAttention | None) -> WindowLayer | None:
        """A layer for windows, where that needs less than all tokens."""
        if local is None or self.cuts is None or local.size * (len(self.cuts) + 2) >= self.capacity:
            return None
        return WindowLayer(local, self.cuts)

    def _placed(self, planes: Planes) -> DeviceLayer | HostLayer:
        """On the device if there is room, otherwise in host memory."""
        device = planes[0].device
        needed = sum(p.shape[1] * self.capacity * p.shape[3] * p.element_size() for p in planes)
        held = [layer for layer in self._layers.values() if isinstance(layer, DeviceLayer)]
        room = self._room(self, device, sum(layer.bytes for layer in held if layer.planes[0].device == device))
        if room is None or needed <= room:
            try:
                return DeviceLayer(planes, self.capacity)
            except torch.OutOfMemoryError:
                pass
        check_host_memory(needed)
        self.host.pin = device.type == "cuda" and not self.host.problem
        layer = HostLayer(planes, self.host, self._block)
        layer.reserve(self.capacity)
        if device not in self._fetchers:
            self._fetchers[device] = Fetcher(device)
        return layer

    def blocks(self, layer: int, spans: Sequence[tuple[int, int]]) -> Iterator[KeysAndValues]:
        """Keys and values of each span (start, stop) in turn, on the layer's device. Each is valid until the next is
        asked for, so that the one after it can be fetched meanwhile."""
        if not spans:  # nothing may have been read yet
            return
        held = self._layers[layer]
        if isinstance(held, HostLayer):
            following = self._following(layer, held)
            blocks = self._fetchers[held.device].stream(layer, held, spans, following)
        else:
            blocks = (held.read(start, stop) for start, stop in spans)
        for planes in blocks:
            half = len(planes) // 2
            key, value = planes[:half], planes[half:]
            yield (decode_fp8(key), decode_fp8(value)) if self.fp8 else (key[0], value[0])

    def _following(self, layer: int, held: HostLayer) -> tuple[int, HostLayer]:
        """The spilled layer on this device that a pass comes to next."""
        others = [n for n in self.spilled_layers if self._layers[n].device == held.device]  # type: ignore[union-attr]
        number = others[(others.index(layer) + 1) % len(others)]
        next_layer = self._layers[number]
        assert isinstance(next_layer, HostLayer)
        return number, next_layer
