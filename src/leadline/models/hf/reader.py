"""Reading with a transformers model: the document once into a store, rows after it, logits only where wanted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from leadline.models.hf import prefix as shared_prefix
from leadline.models.hf.attention import STEP
from leadline.models.hf.prefix import Chunk, Pass, Read, Rows, Store, running

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids

    Marks = npt.NDArray[np.bool_]

SLACK = 32
"""Rows whose cuts lie this close together share one stretch of the document and read the rest as their own tokens."""

SCORES_BYTES = 256 << 20
"""The most that the scores among rows' own tokens may take at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """`own` tokens after the document's first `base`. `index` says which probe or continuation it is."""

    index: int
    base: int
    own: Ids


def rows_of(ids: Ids, cuts: Sequence[int], closings: Sequence[Ids], *, slack: int = SLACK) -> list[Row]:
    """Rows for closings put after cuts of a document, longest base first. Neighbouring cuts share a base."""
    # A row's own part is never empty: its last token is what predicts the first new one.
    ends = [cut if len(closing) else cut - 1 for cut, closing in zip(cuts, closings, strict=True)]
    bases: dict[int, int] = {}
    base = -1
    for end in sorted(set(ends)):
        if base < 0 or end > base + slack:
            base = end
        bases[end] = base
    rows = [
        Row(i, bases[end], np.concatenate([ids[bases[end] : cut], closing]))
        for i, (end, cut, closing) in enumerate(zip(ends, cuts, closings, strict=True))
    ]
    return sorted(rows, key=lambda row: (-row.base, -len(row.own)))


class Reader:
    """A causal model that reads a document once. Not thread-safe: one worker, one reader."""

    def __init__(self, model: Any, *, chunk: int) -> None:
        shared_prefix.register()
        self.model = model
        self.body = model.base_model
        own = model.config._attn_implementation
        self._own_attention = "sdpa" if own == shared_prefix.NAME else own
        self._output: Any = None
        # Weights that are brought in for a layer and sent away after it need every pass to come to its end.
        spread = len(getattr(model, "hf_device_map", None) or ()) > 1
        self._last_layer = None if spread else model.config.get_text_config().num_hidden_layers - 1
        self.chunk = chunk
        """The most tokens put through the model at once; halved when memory runs out."""
        self.store: Store | None = None
        self.ids: Ids = np.zeros(0, np.int32)
        """The tokens that the store holds."""
        self.records = {p.device.type for p in model.parameters()} == {"cuda"} and not spread
        """Whether steps may be recorded as CUDA graphs."""
        self.stepped: set[tuple[int, ...]] = set()
        """Shapes of batches that a step has been made of."""
        self.tokens_read = 0
        """Document tokens put through the model since the beginning, for reports."""

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.get_input_embeddings().weight.device)

    @cached_property
    def recording_stream(self) -> torch.cuda.Stream:
        """One for all recordings: libraries keep a workspace of some 32 MiB for every stream they ever met."""
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]

    # --- the document ---------------------------------------------------------------------------

    def read(self, ids: Ids, *, reuse: bool = True) -> None:
        """Have the store hold exactly `ids`; what it already holds of their beginning is kept."""
        for _ in self.reading(ids, keep=len(ids) if reuse else 0, wanted=np.zeros(len(ids), bool)):
            pass

    def reading(self, ids: Ids, *, keep: int, wanted: Marks) -> Iterator[tuple[int, Tensor]]:
        """Read `ids`, giving start and hidden states of chunks with a `wanted` token in them. At most `keep` tokens are
        kept from before."""
        store = self.store
        if store is None:
            store = self.store = Store(len(ids))
        common = min(common_prefix(self.ids, ids), keep)
        store.crop(common)
        self.ids = ids[:common]
        store.grow(len(ids))
        while store.length < len(ids):
            start, stop = store.length, min(store.length + self.chunk, len(ids))
            hidden = self._read_chunk(store, ids[start:stop], wanted=bool(wanted[start:stop].any()))
            store.length = stop
            self.ids = ids[:stop]
            self.tokens_read += stop - start
            if hidden is not None:
                yield start, hidden[: stop - start]

    def _read_chunk(self, store: Store, ids: Ids, *, wanted: bool) -> Tensor | None:
        size = len(ids)
        if self.device.type == "cuda" and STEP < size < self.chunk:
            size = -(-size // STEP) * STEP  # nothing sees padding that comes after it
        tokens = torch.zeros(1, size, dtype=torch.long)
        tokens[0, : len(ids)] = torch.from_numpy(ids.astype(np.int64))
        positions = torch.arange(store.length, store.length + size, device=self.device)
        chunk = Chunk(store, len(ids), last=None if wanted else self._last_layer)
        try:
            hidden = self.run(chunk, tokens.to(self.device), positions[None])[0]
        except Read:
            return None
        return hidden if wanted else None

    def forget(self) -> None:
        self.store, self.ids = None, self.ids[:0]

    # --- rows after it --------------------------------------------------------------------------

    def open_rows(self, rows: Sequence[Row], *, room: int = 0) -> RowBatch:
        """A batch of rows, longest base first, with room for further columns."""
        if self.store is None:
            self.store = Store(0)
        return RowBatch(self, rows, room)

    # --- the model ------------------------------------------------------------------------------

    def run(self, step: Pass, ids: Tensor, positions: Tensor) -> Tensor:
        """The body's hidden states for new tokens under a pass."""
        self._use_attention(shared_prefix.NAME)
        with torch.inference_mode(), running(step):
            output = self.body(input_ids=ids, position_ids=positions, use_cache=False)
        self._output = type(output)
        hidden: Tensor = output.last_hidden_state
        return hidden

    def use_own_attention(self) -> None:
        """Give the model back the attention it was loaded with, for a pass of its own."""
        self._use_attention(self._own_attention)

    def _use_attention(self, name: str) -> None:
        if self.model.config._attn_implementation != name:
            self.model.set_attn_implementation(name)

    def read_alone(self, ids: Ids) -> Tensor:
        """Hidden states of one text in one pass with the model's own attention; the store stays out of it."""
        self.use_own_attention()
        tokens = torch.from_numpy(ids.astype(np.int64))[None].to(self.device)
        with torch.inference_mode():
            output = self.body(input_ids=tokens, use_cache=False)
        self._output = type(output)
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of [positions, width] hidden states, as the model itself makes them (scaled, capped) of its body's."""
        # The body is stood in for, so that whatever the model does after it is done, and nothing is written twice.
        stand_in = self._output(last_hidden_state=hidden[None])
        dummy = torch.zeros(1, len(hidden), dtype=torch.long, device=self.device)
        self.body.forward = lambda *_, **__: stand_in
        try:
            with torch.inference_mode():
                logits: Tensor = self.model(input_ids=dummy, use_cache=False).logits[0]
        finally:
            del self.body.forward
        return logits


class RowBatch:
    """Rows in progress. `advance` puts further columns through the model, the same number for every row."""

    def __init__(self, reader: Reader, rows: Sequence[Row], room: int) -> None:
        assert reader.store is not None
        self.reader = reader
        self.rows = list(rows)
        self.width = max(len(row.own) for row in rows)
        blank = [self.width - len(row.own) for row in rows]
        self._pass = Rows(reader.store, [row.base for row in rows], blank, self.width + room)
        self._origin = torch.tensor([[r.base - b] for r, b in zip(rows, blank, strict=True)], device=reader.device)
        self._next = torch.zeros(1, dtype=torch.long, device=reader.device)

    @property
    def shape(self) -> tuple[int, ...]:
        """What decides which kernels a step runs: rows, and how many of them see stretches of about which size."""
        return len(self.rows), *(n for start, stop, rows in self._pass.segments for n in (rows, (stop - start) >> 10))

    def read_own(self) -> Iterator[tuple[int, Tensor]]:
        """Put the rows' own tokens through, giving (first column, hidden states [rows, columns, width])."""
        ids = np.zeros((len(self.rows), self.width), np.int64)
        for place, row in enumerate(self.rows):
            ids[place, self.width - len(row.own) :] = row.own
        tokens = torch.from_numpy(ids).to(self.reader.device)
        at_once = self._columns_at_once()
        for start in range(0, self.width, at_once):
            yield start, self.advance(tokens[:, start : start + at_once])

    def advance(self, tokens: Tensor) -> Tensor:
        """Hidden states of the next columns [rows, columns]. Nothing here waits for the device."""
        columns = self._next + torch.arange(tokens.shape[1], device=tokens.device)
        self._pass.begin(columns)
        hidden = self.reader.run(self._pass, tokens, (self._origin + columns).clamp_min(0))
        self._next.add_(tokens.shape[1])
        return hidden

    def keep(self, places: Sequence[int]) -> None:
        """Go on with some of the rows."""
        self.rows = [self.rows[p] for p in places]
        self._pass.keep(places)
        self._origin = self._origin[torch.tensor(places, device=self._origin.device)]

    def _columns_at_once(self) -> int:
        heads: int = self.reader.model.config.get_text_config().num_attention_heads
        scores = len(self.rows) * heads * self.width * 4
        return max(1, min(SCORES_BYTES // scores, self.reader.chunk // len(self.rows)))


def common_prefix(a: Ids, b: Ids) -> int:
    """How many first tokens two sequences share."""
    n = min(len(a), len(b))
    differ = np.flatnonzero(a[:n] != b[:n])
    return int(differ[0]) if len(differ) else n
