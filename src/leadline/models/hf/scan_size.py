"""Tokens of a pass and chunks of a scan that a model with recurrent states has memory for.

transformers' reference code of Mamba 2 cuts a pass into chunks (256 tokens in most models) and holds, for every token,
a number for every other token of its chunk and every head; in some versions also for every number of a state: 8 MiB for
each token of Granite 4 H. A scan is exact for chunks of any size, and the state is carried over from pass to pass. So
what a layer holds is measured when a model is opened, and the chunks of the scan and the pass are made smaller until it
stays within a limit (`fit_scans`).
"""

from __future__ import annotations

import weakref
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from leadline.models.hf.attention import PassDone
from leadline.models.hf.layers import layers_of
from leadline.models.hf.reader import Reader
from leadline.models.hf.states import tensor_bytes

SCAN_BYTES = 7 << 28
"""The bytes that a recurrent layer may hold during a pass."""
SMALLEST_SCAN = 16
_REFERENCE_SCAN = 64
"""Chunks for the reference code, whose work for each token grows with them; kernels have chunks of their own choice."""
_KERNELS = ("mamba_ssm", "kernels")
_ENOUGH_TOKENS = 1024
"""A pass of this size keeps a device busy: only for less are the chunks of a scan made still smaller."""


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that were made while it is active and are alive: `now`, and the `most` so far."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = {_storage(t)._cdata for t in tree_iter((args, kwargs or {})) if isinstance(t, Tensor)}
        output = func(*args, **(kwargs or {}))
        for tensor in tree_iter(output):
            if isinstance(tensor, Tensor):
                self._count(_storage(tensor), inputs)
        return output

    def _count(self, storage: torch.UntypedStorage, inputs: set[int]) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known or key in inputs:
            return
        self._known.add(key)
        self.now += size
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._freed, key, size)

    def _freed(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _storage(tensor: Tensor) -> torch.UntypedStorage:
    return tensor.untyped_storage()


def fit_scans(reader: Reader, limit: int = SCAN_BYTES) -> None:
    """Choose the reader's tokens per pass and the chunks of its scans so that the first layer with a state holds no
    more than the limit during a pass."""
    own = 0 if reader.has_own_scans else max([module.chunk_size for module in reader.scans], default=0)
    size = own if any(find_spec(name) for name in _KERNELS) else min(own, _REFERENCE_SCAN)
    fits = _tokens_within(reader, size, limit)
    while size > SMALLEST_SCAN and fits < min(reader.chunk, _ENOUGH_TOKENS):
        more = _tokens_within(reader, size // 2, limit)
        if more < 1.25 * fits:
            break
        size, fits = size // 2, more
    reader.scan_chunk = size if size < own else None
    reader.chunk = min(reader.chunk, max(size or _REFERENCE_SCAN, 1 << (max(1, fits).bit_length() - 1)))


def _tokens_within(reader: Reader, size: int, limit: int) -> int:
    """Tokens of a pass that stays within the limit. Its bytes grow in proportion to whole chunks."""
    step = size or _REFERENCE_SCAN
    one_step, two_steps = (scan_bytes(reader, tokens, size or None) for tokens in (step, 2 * step))
    per_token = max(1.0, (two_steps - one_step) / step)
    return int((limit - (one_step - step * per_token)) / per_token)


def scan_bytes(reader: Reader, tokens: int, scan: int | None) -> int:
    """The most bytes that the first layer with a state holds in a pass over this many tokens; a huge number if it does
    not fit into memory."""
    assert reader.keeper is not None
    keeper, ids = reader.keeper, np.arange(tokens, dtype=np.int32) % 7
    chunk, kept = reader.chunk, reader.scan_chunk
    seen: list[int] = []

    def begin(module: Any, args: Any) -> None:
        counter.most = counter.now

    def end(module: Any, args: Any, output: Any) -> None:
        if tensor_bytes(keeper.current):
            seen.append(counter.most)
            raise PassDone

    layers = layers_of(reader.body)
    hooks = [layer.register_forward_pre_hook(begin) for layer in layers]
    hooks += [layer.register_forward_hook(end) for layer in layers]
    try:
        reader.chunk, reader.scan_chunk = tokens, scan
        with LiveBytes() as counter:
            reader.read(ids, reuse=False, cuts=[tokens])
        return seen[0] if seen else counter.most
    except torch.OutOfMemoryError:
        return 1 << 50
    finally:
        for hook in hooks:
            hook.remove()
        reader.chunk, reader.scan_chunk = chunk, kept
        reader.forget()
        reader.use_own_attention()
