"""The states that a model carries from token to token besides keys and values: recurrent, convolutional and linear
ones.

    StateKeeper    the model's own cache while a document is read, with a copy of every state at the cuts
    map_tensors    the same structure with other tensors: copies, rows, parts of rows

A state is small and does not grow, but it cannot be cropped: to go on from a cut one needs the state at exactly that
cut. So a document is read from cut to cut, the states are copied there, and every row goes on from a copy of its own.

The cache is the one that transformers made for the model, whatever is in it, with one change: where attention would
append keys and values to it, it gets back what it gave, because the reader's own KV cache holds them (`_without_keys`).
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache

CACHE_NAMES = ("past_key_values", "cache_params", "state")
"""The names of the cache in models' arguments and outputs."""


def cache_name(forward: Callable[..., Any]) -> str:
    """The model's name for its cache; empty where it has none."""
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
        changed = copy.copy(model)
        for name in vars(model):
            setattr(changed, name, map_tensors(change, *(None if c is None else getattr(c, name) for c in caches)))
        return changed
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
    """One row for each state; zeros where there is none, as at the beginning of every recurrence."""
    first = next(state for state in states if state is not None)
    if first.dim() < 2:
        return first
    return torch.cat([torch.zeros_like(first) if state is None else state for state in states])


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
