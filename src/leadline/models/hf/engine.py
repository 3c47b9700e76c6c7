"""The engine: asks of one document in, greedy answers or surprise out, within the memory there is.

Chooses the shared path or the plain one, batches rows, keeps the last document for the next that begins like it, and
answers a shortage of memory by smaller chunks, then by giving up the longest texts and no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from leadline.models.hf import nll as surprise
from leadline.models.hf.fuse import fuse
from leadline.models.hf.greedy import Generated, generate, generate_plain
from leadline.models.hf.memory import ROWS_BYTES
from leadline.models.hf.reader import Reader, Row, rows_of
from leadline.models.hf.support import Support, support_of

if TYPE_CHECKING:
    from leadline.core.types import Ids

SMALLEST_CHUNK = 512
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A closing after a document's first `cut` tokens, and how many new tokens may follow."""

    cut: int
    closing: Ids
    allowance: int

    @property
    def tokens(self) -> int:
        return self.cut + len(self.closing) + self.allowance


@dataclass(frozen=True, slots=True)
class Told:
    """What came of an ask: an answer, or the number of tokens that did not fit. `plain` says why the slow path ran."""

    answer: Generated | None
    plain: str = ""


class Engine:
    """One model, one document at a time."""

    def __init__(
        self,
        model: Any,
        stops: Sequence[int],
        *,
        chunk: int = 0,
        shared: bool = True,
        reuse: bool = True,
        fused: bool = True,
    ) -> None:
        self.model = model
        self.stops = tuple(stops)
        self.reuse = reuse
        self.reader = Reader(model, chunk=SMALLEST_CHUNK)
        self.chunk = chunk or default_chunk(model, self.reader.device)
        self.reader.chunk = self.chunk
        with self._device():
            self.fused = fuse(model) if fused else []
            self.support = support_of(model, self.reader) if shared else Support(0, "shared reading is switched off")

    # --- answers --------------------------------------------------------------------------------

    def ask(self, ids: Ids, asks: Sequence[Ask]) -> list[Told]:
        """One answer per ask, in order."""
        with self._device():
            return self._ask(ids, asks)

    def _device(self) -> AbstractContextManager[Any]:
        """Kernels and recordings go to the thread's current device, and a worker's thread begins with the first."""
        device = self.reader.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def _ask(self, ids: Ids, asks: Sequence[Ask]) -> list[Told]:
        told: dict[int, Told] = {}
        refusals = [self.support.refusal(ask.tokens) for ask in asks]
        shared = [i for i, why in enumerate(refusals) if not why]
        if shared:
            found = self._within_memory(lambda some: self._ask_shared(ids, asks, some), shared, asks)
            told |= {i: Told(answer) for i, answer in found.items()}
        for i, why in enumerate(refusals):
            if why:
                told[i] = self._ask_plain(ids, asks, i, why)
        return [told[i] for i in range(len(asks))]

    def _ask_shared(self, ids: Ids, asks: Sequence[Ask], some: Sequence[int]) -> dict[int, Generated]:
        if len(some) == 1:  # nothing to share: all but the last token is the document, so that there is one pass less
            text = np.concatenate([ids[: asks[some[0]].cut], asks[some[0]].closing])
            rows = rows_of(text, [len(text)], [text[:0]])
            ids = text
        else:
            rows = rows_of(ids, [asks[i].cut for i in some], [asks[i].closing for i in some])
        self.reader.read(ids[: max(row.base for row in rows)])
        allowances = [asks[i].allowance for i in some]
        batch = self.rows_at_once(rows, max(allowances))
        answers = generate(self.reader, rows, allowances, self.stops, batch=batch)
        if not self.reuse:
            self.reader.forget()
        return {some[place]: answer for place, answer in answers.items()}

    def _ask_plain(self, ids: Ids, asks: Sequence[Ask], i: int, why: str) -> Told:
        prompt = np.concatenate([ids[: asks[i].cut], asks[i].closing])
        self.reader.forget()
        self.reader.use_own_attention()

        def one(some: Sequence[int]) -> dict[int, Generated]:
            # Reading in pieces is for when memory ran out, and only where it is known to give the same answer.
            pieces = self.reader.chunk if self.reader.chunk < self.chunk and not self._whole_only else None
            return {i: generate_plain(self.model, prompt, asks[i].allowance, self.stops, chunk=pieces) for i in some}

        return Told(self._within_memory(one, [i], asks)[i], plain=why)

    @property
    def _whole_only(self) -> bool:
        return bool(self.support.nested_problem) or bool(getattr(self.model, "_is_stateful", False))

    def rows_at_once(self, rows: Sequence[Row], room: int) -> int:
        """Rows whose own keys and values fit into their bound together: beside weights and store, reading and asking
        take less than 2 GiB however many are asked."""
        width = max(len(row.own) for row in rows) + room
        return max(1, ROWS_BYTES // (width * self.kv_bytes))

    @property
    def kv_bytes(self) -> int:
        """Of one token in the cache, estimated from the configuration."""
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return int(2 * config.num_hidden_layers * heads * width * self.model.dtype.itemsize)

    # --- surprise -------------------------------------------------------------------------------

    def nll(self, ids: Ids, rows: Sequence[surprise.Scored], spans: Sequence[tuple[int, int]]) -> surprise.Nats | None:
        """Nats per scored token; None when memory does not allow it."""
        longest = max([stop for _, stop in spans] + [r.cut + len(r.ids) for r in rows], default=0)
        why = self.support.refusal(longest)

        def one(some: Sequence[int]) -> dict[int, surprise.Nats]:
            if why:
                self.reader.use_own_attention()
                return {0: surprise.plain(self.reader, ids, rows, spans)}
            return {0: surprise.shared(self.reader, ids, rows, spans, at_once=self.rows_at_once)}

        with self._device():
            found = self._within_memory(one, [0], [Ask(longest, ids[:0], 0)])[0]
        if not self.reuse:
            self.reader.forget()
        return found

    # --- memory ---------------------------------------------------------------------------------

    def _within_memory(
        self, work: Callable[[Sequence[int]], dict[int, T]], some: Sequence[int], asks: Sequence[Ask]
    ) -> dict[int, T | None]:
        """Do the work; when memory runs out, with smaller chunks; then without the longest asks, which get None."""
        given_up: dict[int, T | None] = {}
        left = list(some)
        try:
            while left:
                done = self._try(work, left)
                if done is not None:
                    return {**given_up, **done}
                if self.reader.chunk > SMALLEST_CHUNK:
                    self.reader.chunk = max(SMALLEST_CHUNK, self.reader.chunk // 2)
                    continue
                self.reader.forget()
                self._collect()
                longest = max(asks[i].cut for i in left)
                given_up |= {i: None for i in left if asks[i].cut == longest}
                left = [i for i in left if asks[i].cut < longest]
            return given_up
        finally:
            self.reader.chunk = self.chunk

    def _try(self, work: Callable[[Sequence[int]], T], some: Sequence[int]) -> T | None:
        try:
            return work(some)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        self._collect()  # outside the handler: the error holds on to what the failed pass had made
        return None

    def _collect(self) -> None:
        if self.reader.device.type == "cuda":
            torch.cuda.empty_cache()

    def free_bytes(self) -> int | None:
        """What the device could still give, where it says so."""
        if self.reader.device.type != "cuda":
            return None
        free, _ = torch.cuda.mem_get_info(self.reader.device)
        unused = torch.cuda.memory_reserved(self.reader.device) - torch.cuda.memory_allocated(self.reader.device)
        return int(free + unused)

    def close(self) -> None:
        self.reader.forget()
        self._collect()


def default_chunk(model: Any, device: torch.device) -> int:
    """Tokens at once: enough to keep the device busy, few enough that their activations stay under a GiB or so."""
    if device.type == "cpu":
        return 1024
    config = model.config.get_text_config()
    wide = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    fits = (1 << 30) // (4 * int(wide) * int(model.dtype.itemsize))
    return max(SMALLEST_CHUNK, min(8192, 1 << (fits.bit_length() - 1)))


def out_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    words = str(error)
    return "out of memory" in words or "can't allocate memory" in words or "not enough memory" in words
