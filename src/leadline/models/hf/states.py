"""What a model carries from token to token besides keys and values: recurrent, convolutional and linear states.

    StateKeeper    the model's own cache while a document is read, with a copy of every state at the cuts
    map_tensors    the same structure with other tensors: copies, rows, parts of rows

A state is small and does not grow, but it cannot be cropped: to go on from a cut one needs the state at exactly that
cut. So a document is read from cut to cut, the states are copied there, and every row goes on from a copy of its own.

The cache is the one that transformers made for the model, whatever is in it, with one change: where attention would
append keys and values to it, it gets back what it gave, because the reader's own KV cache holds them (`_without_keys`).

transformers' reference code of Mamba 2 cuts a pass into chunks (256 tokens in most models) and holds, for every token,
a number for every other token of its chunk and every head; in some versions also for every number of a state: 8 MiB for
each token of Granite 4 H. A scan is exact for chunks of any size, and the state is carried over from pass to pass. So
what a layer holds is measured when a model is opened, and the chunks of the scan and the pass are made smaller until it
stays within a limit (`fit_scans`).
"""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache

from leadline.models.hf.attention import PassDone
from leadline.models.hf.layer_trace import layers_of

if TYPE_CHECKING:
    from leadline.models.hf.reader import Reader

CACHE_NAMES = ("past_key_values", "cache_params", "state")
"""How models call the cache, as an argument and in their output."""

SCAN_BYTES = 7 << 28
"""What a recurrent layer may hold during a pass."""
SMALLEST_SCAN = 16
_REFERENCE_SCAN = 64
"""Chunks for the reference code, whose work for each token grows with them; kernels have chunks of their own choice."""
_KERNELS = ("mamba_ssm", "kernels")
_ENOUGH_TOKENS = 1024
"""A pass of this size keeps a device busy: only for less are the chunks of a scan made still smaller."""


def cache_name(forward: Callable[..., Any]) -> str:
    """What a model calls its cache; empty where it has none."""
    accepted = inspect.signature(forward).parameters
    return next((name for name in CACHE_NAMES if name in accepted), "")


def map_tensors(change: Callable[..., Tensor], *caches: Any) -> Any:
    """A copy of the first cache that is not None, with `change` of the corresponding tensors of all caches in the place
    of each tensor; None is a cache that is not there."""
    model = next((cache for cache in caches if cache is not None), None)
    if isinstance(model, Tensor):
        return change(*caches)
    if isinstance(model, dict):
        return {key: map_tensors(change, *(None if c is None else c[key] for c in caches)) for key in model}
    if isinstance(model, (list, tuple)):
        items = (tuple(None if c is None else c[i] for c in caches) for i in range(len(model)))
        return type(model)([map_tensors(change, *item) for item in items])
    if hasattr(model, "__dict__") and not isinstance(model, (type, torch.nn.Module, PreTrainedConfig)):
        found = copy.copy(model)
        for name in vars(model):
            setattr(found, name, map_tensors(change, *(None if c is None else getattr(c, name) for c in caches)))
        return found
    return model


def tensor_bytes(cache: Any) -> int:
    """Of the tensors with a batch axis; counters and the like are not counted."""
    sizes: list[int] = []

    def add(tensor: Tensor) -> Tensor:
        sizes.append(tensor.numel() * tensor.element_size() if tensor.dim() > 1 else 0)
        return tensor

    map_tensors(add, cache)
    return sum(sizes)


def rows_of_states(cache: Any, rows: Sequence[int]) -> Any:
    """The cache of these rows of a batch only; a tensor without a batch axis, such as a counter, stays."""
    return map_tensors(lambda t: t[torch.tensor(rows, device=t.device)] if t.dim() > 1 else t, cache)


class StateKeeper:
    """The states of one document at some of its cuts. `current` is the cache of the pass that goes on reading."""

    def __init__(self, config: Any, cache_class: type[Cache], name: str) -> None:
        self.name = name  # the argument of the model's forward
        self._config, self._class = config, _without_keys(cache_class)
        self.at: dict[int, Any] = {0: None}  # by cut; None before the first token
        self.current: Any = None

    def rewind(self, tokens: int, cuts: Sequence[int] = ()) -> int:
        """Go back to the last kept cut within the first `tokens` from which all `cuts` can be reached, and forget later
        ones. Returns that cut."""
        tokens = min([tokens, *(cut for cut in cuts if cut not in self.at)])
        self.at = {cut: state for cut, state in self.at.items() if cut <= tokens}
        last = max(self.at)
        self.current = self.fresh(last) if self.at[last] is None else map_tensors(torch.clone, self.at[last])
        return last

    def read(self, tokens: int, *, keep: bool) -> None:
        """The document has now been read up to here; keep this state if rows will follow."""
        self.current.leadline_length = tokens
        if keep:
            self.at[tokens] = map_tensors(torch.clone, self.current)

    def fresh(self, tokens: int = 0) -> Any:
        """A cache without states, after that many tokens."""
        try:
            cache = self._class(config=self._config)
        except TypeError:
            cache = self._class()
        cache.leadline_length = tokens
        return cache

    def for_rows(self, cuts: Sequence[int]) -> Any:
        """A cache for a batch of rows after these cuts."""
        states = {cut: self.at[cut] for cut in cuts}
        if all(state is None for state in states.values()):
            return self.fresh()
        return map_tensors(_stacked, *(states[cut] for cut in cuts))

    def restore(self, cache: Any, cuts: Sequence[int], rows: Sequence[int]) -> None:
        """Put these rows of a batch back to the state after their cuts: what they have read since was padding."""

        def put_back(tensor: Tensor, *states: Tensor | None) -> Tensor:
            for row, state in zip(rows, states, strict=True) if tensor.dim() > 1 else ():
                tensor[row] = 0 if state is None else state[0]
            return tensor

        with torch.inference_mode():
            map_tensors(put_back, cache, *(self.at[cuts[row]] for row in rows))

    def forget(self) -> None:
        self.at, self.current = {0: None}, None

    @property
    def bytes(self) -> int:
        """Of all kept states."""
        return sum(tensor_bytes(state) for state in self.at.values() if state is not None)

    @property
    def row_bytes(self) -> int:
        """Of one row's states; 0 before anything was read."""
        return next((tensor_bytes(state) for state in self.at.values() if state is not None), 0)


def _stacked(*states: Tensor | None) -> Tensor:
    """One row for each state; zeros where there is none, which is what every recurrence begins with."""
    one = next(state for state in states if state is not None)
    if one.dim() < 2:
        return one
    return torch.cat([torch.zeros_like(one) if state is None else state for state in states])


def _without_keys(own: type[Cache]) -> type[Cache]:
    """The model's own kind of cache, which leaves keys and values to the reader."""

    class WithoutKeys(own):  # type: ignore[misc]
        leadline_length = 0  # tokens before the ones in this pass

        def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            return key_states, value_states

        def get_seq_length(self, *_: Any, **__: Any) -> int:
            return self.leadline_length

        def get_mask_sizes(self, query_length: int | Tensor, *_: Any, **__: Any) -> tuple[int, int]:
            return int(query_length if isinstance(query_length, int) else query_length.shape[0]), 0

    WithoutKeys.__name__ = own.__name__
    return WithoutKeys


def keeper_of(model: Any) -> StateKeeper | None:
    """A keeper for a model whose cache holds more than keys and values; None for the others."""
    name = cache_name(model.forward)
    tokens = torch.ones(1, 2, dtype=torch.long, device=model.get_input_embeddings().weight.device)
    with torch.inference_mode():
        cache = getattr(model(input_ids=tokens, use_cache=True), name, None) if name else None
        if not isinstance(cache, Cache):
            return None
        keeper = StateKeeper(model.config, type(cache), name)
        keeper.rewind(0)
        model(input_ids=tokens, use_cache=True, **{name: keeper.current})
    return keeper if tensor_bytes(keeper.current) else None


# --- scans of recurrent layers ------------------------------------------------------------------


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that were made while it is active and are alive: `now`, and the `most` so far."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {_storage(t)._cdata for t in tree_iter((args, kwargs or {})) if isinstance(t, Tensor)}
        output = func(*args, **(kwargs or {}))
        for tensor in tree_iter(output):
            if isinstance(tensor, Tensor):
                self._count(_storage(tensor), given)
        return output

    def _count(self, storage: torch.UntypedStorage, given: set[int]) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known or key in given:
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


@contextmanager
def scan_chunks(modules: Sequence[Any], size: int | None) -> Iterator[None]:
    """The modules with chunks of this size in their scans; None leaves them as they are."""
    own = [module.chunk_size for module in modules]
    try:
        for module in modules if size is not None else ():
            module.chunk_size = size
        yield
    finally:
        for module, chunk in zip(modules, own, strict=True):
            module.chunk_size = chunk


def scan_modules(model: Any) -> list[Any]:
    """The modules whose scan has chunks of a size that can be set."""
    return [module for module in model.modules() if type(getattr(module, "chunk_size", None)) is int]


def fit_scans(reader: Reader, limit: int = SCAN_BYTES) -> None:
    """Choose the reader's tokens per pass and the chunks of its scans so that the first layer with a state holds no
    more than the limit during a pass."""
    own = 0 if reader.replacements else max([module.chunk_size for module in reader.scans], default=0)
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
    """Tokens of a pass that stays within the limit: what it holds grows in proportion to whole chunks."""
    step = size or _REFERENCE_SCAN
    one, two = (scan_bytes(reader, tokens, size or None) for tokens in (step, 2 * step))
    per_token = max(1.0, (two - one) / step)
    return int((limit - (one - step * per_token)) / per_token)


def scan_bytes(reader: Reader, tokens: int, scan: int | None) -> int:
    """What the first layer with a state holds at most in a pass over that many tokens; more than anything has if it
    does not fit into memory."""
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
