"""Reading with a transformers model: a document once into the KV cache, then rows of further tokens at its cuts.

reader.read(ids)                     the document, into the KV cache
batch = reader.open_rows(rows)       rows at cuts of it; batch.read_own() and batch.advance() give hidden states
reader.logits(hidden)                logits of chosen positions only
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from leadline.models.hf.attention import (
    ATTENTION_NAME,
    STEP,
    AttentionPass,
    DocumentPass,
    PassDone,
    RowsPass,
    running,
)
from leadline.models.hf.cut_states import taking
from leadline.models.hf.kv_cache import KVCache
from leadline.models.hf.replacements import Replacement, replaced
from leadline.models.hf.scans import SMALLEST_CHUNK
from leadline.models.hf.states import StateKeeper, rows_of_states, scan_chunks
from leadline.models.hf.windows import Windows

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids

SLACK = 32
"""Rows whose cuts are this close use the same document prefix and read the difference as their own tokens."""

SCORES_BYTES = 256 << 20
"""The limit for attention scores among the rows' own tokens."""


@dataclass(frozen=True, slots=True)
class PromptRow:
    """`own` tokens after the document's first `base` tokens. `index` is the number of its probe or continuation."""

    index: int
    base: int
    own: Ids


def rows_of(ids: Ids, cuts: Sequence[int], closings: Sequence[Ids], *, slack: int = SLACK) -> list[PromptRow]:
    """Rows for closings after cuts of a document, longest base first. Neighbouring cuts share a base."""
    # A row's own part is never empty: its last token predicts the first new one.
    ends = [cut if len(closing) else cut - 1 for cut, closing in zip(cuts, closings, strict=True)]
    bases = shared_bases(ends, slack)
    rows = [
        PromptRow(i, bases[end], np.concatenate([ids[bases[end] : cut], closing]))
        for i, (end, cut, closing) in enumerate(zip(ends, cuts, closings, strict=True))
    ]
    return sorted(rows, key=lambda row: (-row.base, -len(row.own)))


def shared_bases(ends: Iterable[int], slack: int = SLACK) -> dict[int, int]:
    """For each of these places in a document the prefix that rows there use: the first of those near it."""
    bases: dict[int, int] = {}
    base = -1
    for end in sorted(set(ends)):
        if base < 0 or end > base + slack:
            base = end
        bases[end] = base
    return bases


class Reader:
    """A causal model that reads a document once. Not thread-safe."""

    def __init__(self, model: Any, *, chunk: int) -> None:
        self.model = model
        # Llama 4's text model names a body that only its multimodal form has.
        self.body = model.base_model if model.base_model is not model else getattr(model, "model", model)
        own = model.config._attn_implementation
        spare = "sdpa" if getattr(model, "_supports_sdpa", True) else "eager"
        self._own_attention = spare if own == ATTENTION_NAME else own
        self._output: Any = None
        # With offloaded weights a pass must not end early: hooks after a layer move its weights back.
        spread = len(getattr(model, "hf_device_map", None) or ()) > 1
        layers = getattr(model.config.get_text_config(), "num_hidden_layers", None)
        self._last_layer = None if spread or layers is None else layers - 1
        self._takes = inspect.signature(self.body.forward).parameters
        self.chunk = chunk  # tokens in one forward pass; halved when memory runs out
        self.new_kv_cache: Callable[[], KVCache] = KVCache
        self.kv_cache: KVCache | None = None
        self.windows: Windows = {}  # layers with local attention
        self.ids: Ids = np.zeros(0, np.int32)  # those in the KV cache
        self.keeper: StateKeeper | None = None  # for a model that has states besides keys and values
        self.scans: list[Any] = []  # its modules whose scan has chunks, and the size of these if it is not their own
        self.scan_chunk: int | None = None
        self.references: list[Replacement] = []  # transformers' own code in the place of installed kernel packages
        self.replacements: list[Replacement] = []  # scans and steps of ours in the place of the model's own
        self.records = {p.device.type for p in model.parameters()} == {"cuda"} and not spread  # steps as CUDA graphs
        self.stepped: set[tuple[int, ...]] = set()  # shapes of batches that have made a step without a graph
        self.tokens_read = 0
        self.positions = torch.zeros(1, 0, dtype=torch.long)  # of the tokens in the latest pass: [rows, columns]

    @property
    def device(self) -> torch.device:
        return torch.device(self.model.get_input_embeddings().weight.device)

    @property
    def has_own_scans(self) -> bool:
        return any(each.is_scan for each in self.replacements)

    @property
    def scanned_at_once(self) -> int:
        """Tokens of a row for which a scan computes, however few it has."""
        if self.has_own_scans:
            return SMALLEST_CHUNK
        return self.scan_chunk or max([module.chunk_size for module in self.scans], default=128)

    @property
    def records_steps(self) -> bool:
        """Whether decoding steps are recorded as CUDA graphs."""
        return self.records and self.kv_cache is not None and self.kv_cache.steady

    @cached_property
    def recording_stream(self) -> torch.cuda.Stream:
        """One stream for all CUDA graphs: libraries keep a workspace of about 32 MiB per stream."""
        return torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def read(self, ids: Ids, *, reuse: bool = True, cuts: Sequence[int] | None = None) -> None:
        """Make the KV cache hold exactly `ids`; a common beginning with its present content is reused. Rows will follow
        at `cuts` of it, or anywhere."""
        for _ in self.reading(ids, keep=len(ids) if reuse else 0, wanted=np.zeros(len(ids), bool), cuts=cuts):
            pass

    def reading(
        self, ids: Ids, *, keep: int, wanted: npt.NDArray[np.bool_], cuts: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Tensor]]:
        """Read `ids`; yields start and hidden states of each chunk with a `wanted` token. At most `keep` tokens of the
        KV cache's present content are reused."""
        kv_cache = self.kv_cache = self.kv_cache or self.new_kv_cache()
        start = self._rewind(kv_cache, len(ids), min(common_prefix(self.ids, ids), keep), cuts)
        self.ids, begin = ids[:start], start
        # All at once: a copy from the host waits until the GPU has done what it was given.
        tokens = torch.from_numpy(ids[begin:].astype(np.int64))[None].to(self.device)
        while kv_cache.length < len(ids):
            start, stop = kv_cache.length, self._end_of_chunk(kv_cache.length, len(ids), cuts)
            inner = sorted({cut - start for cut in cuts or () if start < cut < stop})
            chunk = tokens[:, start - begin : stop - begin]
            hidden = self._read_chunk(kv_cache, chunk, inner, wanted=bool(wanted[start:stop].any()))
            if self.keeper is not None:
                self.keeper.read(stop, keep=stop == len(ids) or stop in (cuts or ()))
            kv_cache.length = stop
            self.ids = ids[:stop]
            self.tokens_read += stop - start
            if hidden is not None:
                yield start, hidden[: stop - start]

    def _rewind(self, kv_cache: KVCache, length: int, common: int, cuts: Sequence[int] | None) -> int:
        """Go back to the last token within the first `common` from which KV cache and states can both go on."""
        while True:
            kv_cache.length = kv_cache.prepare(length, common, cuts)
            if self.keeper is None:
                return kv_cache.length
            common = self.keeper.rewind(kv_cache.length, cuts or ())
            if common == kv_cache.length:
                return common

    def _end_of_chunk(self, start: int, length: int, cuts: Sequence[int] | None) -> int:
        """States that cannot be taken within a pass are kept at its end, so a chunk ends at the next cut."""
        ends = self.keeper is not None and not self.keeper.takes_inner
        return min([start + self.chunk, length, *(cut for cut in cuts or () if ends and start < cut)])

    def _read_chunk(self, kv_cache: KVCache, tokens: Tensor, cuts: Sequence[int], *, wanted: bool) -> Tensor | None:
        """Read a chunk [1, tokens]; states are kept after `cuts` of its tokens."""
        count = tokens.shape[1]
        size = self._padded(count)
        positions = torch.arange(kv_cache.length, kv_cache.length + size, device=self.device)
        early = None if wanted or self.keeper is not None else self._last_layer
        chunk = DocumentPass(kv_cache, self.windows, count, last_layer=early)
        padded = [count] if size > count else []
        places = [] if self.keeper is None else [*cuts, *padded]
        try:
            with taking(places) as taken:
                hidden = self.run(chunk, pad(tokens, (0, size - count)), positions[None], *self._states())[0]
        except PassDone:
            return None
        if self.keeper is not None and places:
            self.keeper.read_through(kv_cache.length, taken, ends_inside=bool(padded))
        return hidden if wanted else None

    def _padded(self, size: int) -> int:
        """Tokens of a pass, with padding at the end for kernels that need a plan for every new shape. Nothing attends
        to it, but a state that is taken after the pass has read it."""
        can_end_inside = self.keeper is None or self.keeper.takes_inner
        worthwhile = self.device.type == "cuda" and STEP < size < self.chunk
        return -(-size // STEP) * STEP if worthwhile and can_end_inside else size

    def _states(self) -> tuple[Any, ...]:
        return () if self.keeper is None else (self.keeper.current,)

    def forget(self) -> None:
        self.kv_cache, self.ids = None, self.ids[:0]
        if self.keeper is not None:
            self.keeper.forget()

    def open_rows(self, rows: Sequence[PromptRow], *, room: int = 0) -> RowBatch:
        """A batch of rows, longest base first, with room for that many further columns."""
        self.kv_cache = self.kv_cache or self.new_kv_cache()
        return RowBatch(self, rows, room)

    def groups(self, rows: Sequence[PromptRow]) -> list[Sequence[PromptRow]]:
        """Rows that can be in one batch."""
        return [rows] if rows else []

    def run(self, attention: AttentionPass, ids: Tensor, positions: Tensor, states: Any = None) -> Tensor:
        """Hidden states of new tokens, with attention done by a pass, and other layers going on from `states`."""
        self.use_attention(ATTENTION_NAME)
        self.positions = positions
        inputs = {"input_ids": ids, "position_ids": positions} if "position_ids" in self._takes else {"input_ids": ids}
        functions = [*self.references, *self.replacements]
        with running(attention, positions), scan_chunks(self.scans, self.scan_chunk), replaced(functions):
            if self.keeper is None or states is None:
                return self._hidden(**inputs)
            return self.hidden_and_cache(self.keeper.name, **inputs, **{self.keeper.name: states})[0]

    def read_plain(self, ids: Ids) -> Tensor:
        """Hidden states of one text in one ordinary forward pass, without the kv_cache."""
        self.use_own_attention()
        self.positions = torch.arange(len(ids))[None]
        with replaced(self.references):
            return self._hidden(input_ids=torch.from_numpy(ids.astype(np.int64))[None].to(self.device))[0]

    def _hidden(self, **inputs: Tensor) -> Tensor:
        with torch.inference_mode():
            return self._hidden_of(self.body(**inputs, use_cache=False))

    def hidden_and_cache(self, name: str, **inputs: Any) -> tuple[Tensor, Any]:
        """Hidden states, and the model's own cache after them."""
        with torch.inference_mode():
            output = self.body(**inputs, use_cache=True)
            return self._hidden_of(output), getattr(output, name)

    def _hidden_of(self, output: Any) -> Tensor:
        self._output = type(output)
        hidden: Tensor = output.logits if self.body is self.model else output.last_hidden_state
        return hidden

    def use_own_attention(self) -> None:
        """Switch the model to the attention it was loaded with."""
        self.use_attention(self._own_attention)

    def use_attention(self, name: str) -> None:
        if self.model.config._attn_implementation != name:
            self.model.set_attn_implementation(name)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of [positions, width] hidden states, as the model computes them (with its scaling or capping)."""
        if self.body is self.model:  # code from a checkpoint that has no body: the hidden states are logits
            return hidden
        # The model runs with a body that returns the given states, so that its own code after the body is used.
        output = self._output(last_hidden_state=hidden[None])
        dummy = torch.zeros(1, len(hidden), dtype=torch.long, device=self.device)
        bodies = {self.body, getattr(self.body, "decoder", self.body)}  # OPT calls the decoder inside its body
        for body in bodies:
            body.forward = lambda *_, **__: output
        try:
            with torch.inference_mode():
                logits: Tensor = self.model(input_ids=dummy, use_cache=False).logits[0]
        finally:
            for body in bodies:
                del body.forward
        return logits


class RowBatch:
    """Rows in progress. `advance` reads further columns: the same number of tokens for every row."""

    def __init__(self, reader: Reader, rows: Sequence[PromptRow], room: int) -> None:
        assert reader.kv_cache is not None
        self.reader = reader
        self.rows = list(rows)
        self.width = max(len(row.own) for row in rows)
        blank = [self.width - len(row.own) for row in rows]
        cuts = [row.base for row in rows]
        self._pass = RowsPass(reader.kv_cache, reader.windows, cuts, blank, self.width + room)
        self._origin = torch.tensor([[r.base - b] for r, b in zip(rows, blank, strict=True)], device=reader.device)
        self._next = torch.zeros(1, dtype=torch.long, device=reader.device)
        self._blank = blank
        self._states = None if reader.keeper is None else reader.keeper.for_rows([row.base for row in rows])

    @property
    def shape(self) -> tuple[int, ...]:
        """What decides the kernels of a step: the number of rows, and the rows and size of each document segment."""
        return len(self.rows), *(n for start, stop, rows in self._pass.segments for n in (rows, (stop - start) >> 10))

    def read_own(self) -> Iterator[tuple[int, Tensor]]:
        """Read the rows' own tokens; yields (first column, hidden states [rows, columns, width])."""
        ids = np.zeros((len(self.rows), self.width), np.int64)
        for number, row in enumerate(self.rows):
            ids[number, self.width - len(row.own) :] = row.own
        tokens = torch.from_numpy(ids).to(self.reader.device)
        columns = self._columns_per_pass()
        starts = {*range(0, self.width, columns)} | (set(self._blank) if self._states is not None else set())
        for start, stop in pairwise([*sorted(starts), self.width]):
            yield start, self.advance(tokens[:, start:stop])
            if self._states is not None:
                self._restore_padding(stop)

    def _restore_padding(self, column: int) -> None:
        """States cannot skip padding: rows that have read nothing else so far begin again."""
        assert self.reader.keeper is not None
        rows = [number for number, blank in enumerate(self._blank) if blank >= column]
        if rows:
            self.reader.keeper.restore(self._states, [row.base for row in self.rows], rows)

    def advance(self, tokens: Tensor) -> Tensor:
        """Hidden states of the next columns [rows, columns]. Does not synchronise with the device."""
        columns = self._next + torch.arange(tokens.shape[1], device=tokens.device)
        self._pass.begin(columns)
        states = () if self._states is None else (self._states,)
        hidden = self.reader.run(self._pass, tokens, (self._origin + columns).clamp_min(0), *states)
        self._next.add_(tokens.shape[1])
        return hidden

    def keep(self, numbers: Sequence[int]) -> None:
        """Continue with these rows only."""
        self.rows = [self.rows[n] for n in numbers]
        self._pass.keep(numbers)
        self._origin = self._origin[torch.tensor(numbers, device=self._origin.device)]
        if self._states is not None:
            self._states = rows_of_states(self._states, numbers)

    def _columns_per_pass(self) -> int:
        heads: int = getattr(self.reader.model.config.get_text_config(), "num_attention_heads", None) or 1
        scores = len(self.rows) * heads * self.width * 4
        return max(1, min(SCORES_BYTES // scores, self.reader.chunk // len(self.rows)))


def common_prefix(a: Ids, b: Ids) -> int:
    """The number of equal first tokens."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    return int(differ.argmax()) if differ.any() else n
