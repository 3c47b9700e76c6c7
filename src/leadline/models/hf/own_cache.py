"""Reading with the model's own code and its own cache: for architectures whose attention cannot be replaced.

The cache that transformers (or the checkpoint's own code) made for the model is advanced from cut to cut of the
document. At each cut everything in it that cannot be cropped later is copied. Rows after one cut go on together, on a
copy of the cache with one row for each. Slower than the reader's own attention, because every row has the whole
document in its cache, but the document is read once.

Some recurrences cannot go on from a state with more than one token at a time (`stepwise`): then every cut is read from
the beginning, once for all its rows, whose own tokens are read one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from leadline.models.hf.reader import PromptRow, Reader, common_prefix
from leadline.models.hf.replacements import replaced
from leadline.models.hf.states import cache_name, map_tensors, rows_of_states, tensor_bytes

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids


class OwnCacheReader(Reader):
    """A causal model that reads a document once into its own cache."""

    def __init__(self, model: Any, *, chunk: int, stepwise: bool = False) -> None:
        super().__init__(model, chunk=chunk)
        self.records = False
        self.stepwise = stepwise
        self.cache_name = cache_name(self.body.forward)
        self._cache: Any = None  # after the tokens in `ids`
        self._kept: dict[int, Any] = {}  # what cannot be cropped, by cut

    def reading(
        self, ids: Ids, *, keep: int, wanted: npt.NDArray[np.bool_], cuts: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        self.use_own_attention()
        start = self._go_back(min(common_prefix(self.ids, ids), keep), cuts or ())
        stops = sorted({cut for cut in cuts or () if start < cut < len(ids)} | {len(ids)})
        for stop in stops:
            for begin, end in self._passes(start, stop):
                if begin == 0:
                    self._cache = None
                hidden, self._cache = self.forward(ids[None, begin:end], self._cache, begin)
                self.tokens_read += end - begin
                if wanted[begin:end].any() and (stop == len(ids) or not self.stepwise):
                    yield begin, hidden[0]
            start, self.ids = stop, ids[:stop]
            self._kept[stop] = _without_growing(self._cache)

    def _passes(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        if not self.stepwise:
            yield from ((begin, min(begin + self.chunk, stop)) for begin in range(start, stop, self.chunk))
        elif start < stop:
            yield 0, stop

    def _go_back(self, tokens: int, cuts: Sequence[int]) -> int:
        """Go back to the last cut within the first `tokens` from which reading can go on to all `cuts`; returns it."""
        anywhere = self._cache is not None and not self.stepwise and not tensor_bytes(_without_growing(self._cache))
        if not anywhere:
            tokens = min([tokens, *(cut for cut in cuts if cut and cut not in self._kept)])
        self._kept = {cut: state for cut, state in self._kept.items() if cut <= tokens}
        start = tokens if anywhere else max(self._kept, default=0)
        self._cache = self.cache_at(start, 1) if start else None
        self.ids = self.ids[:start]
        return start

    def cache_at(self, cut: int, rows: int) -> Any:
        """The cache after the document's first `cut` tokens, for a batch of rows; the document's own is not changed."""
        if cut == 0:
            return None
        kept = self._kept[cut] if cut in self._kept else _without_growing(self._cache)
        cache = map_tensors(lambda tensor: _repeated(tensor, rows), kept)
        for layer, whole in zip(_growing(cache), _growing(self._cache), strict=True):
            if whole.keys is not None:
                layer.keys, layer.values = (t[:, :, :cut].expand(rows, -1, -1, -1) for t in (whole.keys, whole.values))
        return cache

    def forward(self, tokens: npt.NDArray[np.integer[Any]] | Tensor, cache: Any, start: int) -> tuple[Tensor, Any]:
        """Hidden states of new tokens [rows, columns] after the first `start`, and the cache with them."""
        if not isinstance(tokens, Tensor):
            tokens = torch.from_numpy(tokens.astype(np.int64)).to(self.device)
        more: dict[str, Any] = {} if cache is None else {self.cache_name: cache}
        self.positions = torch.arange(start, start + tokens.shape[1], device=self.device).expand(tokens.shape)
        if "position_ids" in self._takes:
            more["position_ids"] = self.positions
        with replaced(self.references):
            return self.hidden_and_cache(self.cache_name, input_ids=tokens, **more)

    def open_rows(self, rows: Sequence[PromptRow], *, room: int = 0) -> OwnCacheBatch:  # type: ignore[override]
        self.use_own_attention()
        return OwnCacheBatch(self, rows)

    def groups(self, rows: Sequence[PromptRow]) -> list[Sequence[PromptRow]]:
        """Rows that go on together: after the same cut, and with as many tokens of their own."""

        def alike(row: PromptRow) -> tuple[int, int]:
            return row.base, len(row.own)

        return [list(group) for _, group in groupby(sorted(rows, key=alike, reverse=True), alike)]

    @property
    def row_bytes(self) -> int:
        """Of everything in the cache that does not grow with the document."""
        return max((tensor_bytes(state) for state in self._kept.values()), default=0)

    def forget(self) -> None:
        super().forget()
        self._cache, self._kept = None, {}


class OwnCacheBatch:
    """Rows in progress, all after the same cut and of the same length; see `RowBatch`."""

    def __init__(self, reader: OwnCacheReader, rows: Sequence[PromptRow]) -> None:
        self.reader = reader
        self.rows = list(rows)
        self.width = len(rows[0].own)
        self.shape = (len(rows),)
        self._position = rows[0].base
        self._cache = reader.cache_at(rows[0].base, len(rows))

    def read_own(self) -> Iterator[tuple[int, Tensor]]:
        ids = np.stack([row.own for row in self.rows])
        columns = max(1, self.reader.chunk // len(self.rows))
        if self.reader.stepwise:
            columns = 1 if self.rows[0].base else self.width
        for start in range(0, self.width, columns):
            yield start, self.advance(torch.from_numpy(ids[:, start : start + columns].astype(np.int64)))

    def advance(self, tokens: Tensor) -> Tensor:
        hidden, self._cache = self.reader.forward(tokens.to(self.reader.device), self._cache, self._position)
        self._position += tokens.shape[1]
        return hidden

    def keep(self, numbers: Sequence[int]) -> None:
        self.rows = [self.rows[n] for n in numbers]
        self._cache = rows_of_states(self._cache, numbers)


def _growing(cache: Any) -> list[DynamicLayer]:
    """The layers to which keys and values are only appended, so that they can be cropped without a copy."""
    return [layer for layer in getattr(cache, "layers", ()) if type(layer) is DynamicLayer]


def _without_growing(cache: Any) -> Any:
    """A copy of all but the growing layers, which are left empty."""
    held = [(layer, layer.keys, layer.values) for layer in _growing(cache)]
    for layer, _, _ in held:
        layer.keys = layer.values = None
    try:
        return map_tensors(torch.clone, cache)
    finally:
        for layer, keys, values in held:
            layer.keys, layer.values = keys, values


def _repeated(tensor: Tensor, rows: int) -> Tensor:
    """A copy for every row; a tensor without a batch axis, such as a counter, is copied as it is."""
    return tensor.repeat_interleave(rows, 0) if tensor.dim() > 1 and tensor.shape[0] == 1 else tensor.clone()
