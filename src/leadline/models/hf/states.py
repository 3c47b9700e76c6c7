"""The states that a model carries from token to token besides keys and values: recurrent, convolutional and linear
ones.

    StateKeeper    the model's own cache while a document is read, with a copy of every state at the cuts
    map_tensors    the same structure with other tensors: copies, rows, parts of rows

A state is small and does not grow, but it cannot be cropped: to go on from a cut one needs the state at exactly that
cut. It is taken there while a pass goes on (cut_states.py), or else a document is read from cut to cut; every row goes
on from a copy of its own.

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

from leadline.models.hf.cut_states import TakenStates, joined, taken_states

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


class UntakenStates(Exception):
    """A model has states that are not those of scans and convolutions of ours."""


class StateKeeper:
    """The states of one document at some of its cuts. `current` is the cache of the pass that goes on reading."""

    def __init__(self, config: Any, cache_class: type[Cache], name: str) -> None:
        self.name = name  # the argument of the model's forward
        self._config, self._class = config, _without_keys(cache_class)
        self.at: dict[int, Any] = {0: None}  # by cut; None before the first token
        self.current: Any = None
        self.takes_inner = True  # states at cuts within a pass, as far as is known

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

    def read_through(self, tokens: int, taken: TakenStates, *, ends_inside: bool) -> None:
        """Keep the states that were taken within a pass after that many tokens. With `ends_inside` the document goes on
        from the last of them: what the pass read after it was padding."""
        states = [_with_states(self.current, taken, number) for number in range(len(taken.places))]
        if ends_inside:
            self.current = states.pop()
        for place, state in zip(taken.places, states, strict=False):
            state.leadline_length = tokens + place
            self.at[tokens + place] = state

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


def _with_states(cache: Any, taken: TakenStates, number: int) -> Any:
    """The cache with the states of one place in the place of its own."""
    changed = map_tensors(lambda t: t if t.dim() > 1 else t.clone(), cache)
    for (name, layer, state), at_places in taken.states.items():
        getattr(changed.layers[layer], name)[state] = at_places[number]
    if sum(at_places[number].nbytes for at_places in taken.states.values()) != tensor_bytes(cache):
        raise UntakenStates("states that cannot be taken within a pass")
    return changed


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

        def update_conv_state(self, conv_states: Tensor, layer_idx: int, state_idx: int = 0, **options: Any) -> Tensor:
            taken, held = taken_states(), self.layers[layer_idx]
            if taken is None:
                return super().update_conv_state(conv_states, layer_idx, state_idx, **options)  # type: ignore[no-any-return]
            before = held.conv_states[state_idx].clone() if held.has_previous_state[state_idx] else None
            last = conv_states if before is None else conv_states[..., -before.shape[-1] :]
            seen: Tensor = super().update_conv_state(last, layer_idx, state_idx, **options)
            taken.take_last(("conv_states", layer_idx, state_idx), before, conv_states, held.conv_states[state_idx])
            if before is None or seen.shape[-1] != before.shape[-1] + last.shape[-1]:
                return seen
            return joined(before, conv_states)

        def update_recurrent_state(
            self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **options: Any
        ) -> Tensor:
            updated: Tensor = super().update_recurrent_state(recurrent_states, layer_idx, state_idx, **options)
            taken, held = taken_states(), self.layers[layer_idx]
            if taken is not None:
                taken.take_scanned(("recurrent_states", layer_idx, state_idx), held.recurrent_states[state_idx])
            return updated

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
