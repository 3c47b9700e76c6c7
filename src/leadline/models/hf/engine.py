"""The engine: requests on one document in, greedy answers or NLL out, within the available memory.

Each request takes the shared path (the document is read once, see reader.py) or the plain path (transformers' own
`generate` for every prompt), depending on what the architecture supports. When memory runs out the engine reads in
smaller chunks, then gives up the longest requests only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from leadline.core.types import Continuation, TokenNLL
from leadline.models.hf.attention import STEP
from leadline.models.hf.decode import (
    Generated,
    LikeliestTokens,
    generate,
    generate_plain,
    likeliest_tokens,
    plain_nll,
    shared_nll,
)
from leadline.models.hf.forecast import Speed
from leadline.models.hf.host_memory import gpu_memory
from leadline.models.hf.kv_cache import KVCache
from leadline.models.hf.memory import ROWS_BYTES, SMALLEST_CHUNK, DecoderShape, room_for_layers
from leadline.models.hf.own_cache import OwnCacheReader
from leadline.models.hf.partial_attention import attend
from leadline.models.hf.reader import PromptRow, Reader, rows_of
from leadline.models.hf.replacements import references, replaced
from leadline.models.hf.scan_size import SCAN_BYTES
from leadline.models.hf.sdpa import Scoring
from leadline.models.hf.trial import SharedReadingSupport, choose_reader, fuse_if_equal
from leadline.models.hf.windows import positions_as_of, reset_dynamic_rope

if TYPE_CHECKING:
    from leadline.core.types import Ids

STATES_BYTES = 1 << 30
"""The limit for the recurrent states of the rows in one batch; on a GPU an eighth of what is free, if that is more."""
TRIAL_FLOPS = {"cpu": 1e11}
"""Operations of a reading from which the speed is measured: about a second on a CPU; on a GPU a whole chunk."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A prompt suffix (`closing`) after a document's first `cut` tokens, and the number of new tokens allowed."""

    cut: int
    closing: Ids
    allowance: int

    @property
    def tokens(self) -> int:
        return self.cut + len(self.closing) + self.allowance


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """The generated tokens, or None when they did not fit into memory."""

    answer: Generated | None
    plain_reason: str = ""  # the reason for the plain path; empty for the shared path
    notes: tuple[str, ...] = ()  # further notes on the reading, for the record


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
        resident: int | None = None,
        fp8: bool = False,
        installed: bool = False,
    ) -> None:
        """`resident` limits the bytes of keys and values on each device; the rest goes to host memory. `installed`
        leaves recurrent layers to the kernel packages that are there."""
        self.model = model
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        self.stops = tuple(stop for stop in stops if 0 <= stop < self.vocabulary)
        self.reuse = reuse
        self.resident, self.fp8 = resident, fp8
        self.reader = Reader(model, chunk=SMALLEST_CHUNK)
        self.reader.references = [] if installed else references(model)
        self._kv_cache_notes: tuple[str, ...] = ()
        self._by_length: bool | None = None  # whether reading once per length is exact; None before the first try
        self.chunk = self.reader.chunk = chunk or default_chunk(model, self.reader.device)
        self.fused: list[str] = []
        self.support = SharedReadingSupport(0, "shared reading is switched off")
        with self._on_device(), replaced(self.reader.references):
            if fused and self.reader.device.type == "cuda":
                self.fused = fuse_if_equal(model, self.reader)
            if shared:
                limit = None if chunk else SCAN_BYTES
                self.reader, self.support = choose_reader(model, self.reader, scan_bytes=limit, installed=installed)
                self.chunk = self.reader.chunk
        self.reader.new_kv_cache = self._new_kv_cache

    def answer(self, ids: Ids, requests: Sequence[EngineRequest]) -> list[EngineAnswer]:
        """One answer per request, in order."""
        answer_of: dict[int, EngineAnswer] = {}
        refusals = [self.support.refusal(request.tokens) for request in requests]
        shared = [i for i, reason in enumerate(refusals) if not reason]
        with self._on_device():
            if shared:
                answers = self._within_memory(lambda some: self._answer_shared(ids, requests, some), shared, requests)
                answer_of |= {i: EngineAnswer(answer, notes=self.reading_notes) for i, answer in answers.items()}
            for some in self._of_one_length(requests, [i for i, reason in enumerate(refusals) if reason]):
                answer_of |= self._answer_at_length(ids, requests, some)
            for i, reason in enumerate(refusals):
                if reason and i not in answer_of:
                    answer_of[i] = self._answer_plain(ids, requests, i, reason)
        return [answer_of[i] for i in range(len(requests))]

    def nll(self, ids: Ids, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]) -> TokenNLL | None:
        """NLL in nats per scored token; None when it does not fit into memory."""
        longest = max([stop for _, stop in spans] + [c.cut + len(c.ids) for c in continuations], default=0)

        def score(some: Sequence[int]) -> dict[int, TokenNLL]:
            if self.support.refusal(longest):
                return {0: plain_nll(self.reader, ids, continuations, spans)}
            return {0: shared_nll(self.reader, ids, continuations, spans, batch_size=self.batch_size)}

        with self._on_device():
            scored = self._within_memory(score, [0], [EngineRequest(longest, ids[:0], 0)])[0]
        if not self.reuse:
            self.reader.forget()
        return scored

    def likeliest_tokens(
        self, ids: Ids, cuts: Sequence[int], count: int, *, fresh: bool
    ) -> list[LikeliestTokens] | None:
        """After each cut; None when they do not fit into memory."""
        plain = bool(self.support.refusal(max(cuts)))

        def read(some: Sequence[int]) -> dict[int, list[LikeliestTokens]]:
            if fresh or plain:
                self.reader.forget()
            return {0: likeliest_tokens(self.reader, ids, cuts, count, plain=plain)}

        with self._on_device(), torch.inference_mode():
            return self._within_memory(read, [0], [EngineRequest(max(cuts), ids[:0], 0)])[0]

    def batch_size(self, rows: Sequence[PromptRow], new_tokens: int) -> int:
        """The number of rows whose own keys, values and states fit into memory together."""
        width, free = max(len(row.own) for row in rows) + new_tokens, self.free_bytes()
        if isinstance(self.reader, OwnCacheReader):  # every row has the whole document in its cache
            held = (rows[0].base + width) * max(1, self.kv_bytes) + self.reader.row_bytes
            return max(1, int((ROWS_BYTES if free is None else max(ROWS_BYTES, free // 3)) // held))
        size = max(1, ROWS_BYTES // max(1, width * self._shape.row_bytes(self._dtype)))
        if self.reader.keeper is None or not self.reader.keeper.row_bytes:
            return size
        at_once, states = self.reader.chunk // self.reader.scanned_at_once, max(STATES_BYTES, (free or 0) // 8)
        return max(1, min(size, states // self.reader.keeper.row_bytes, at_once))

    @property
    def reading_notes(self) -> tuple[str, ...]:
        """Notes on the reading of the document, for the record."""
        return (*((self.support.way,) if self.support.way else ()), *self._kv_cache_notes)

    def _new_kv_cache(self) -> KVCache:
        """The room is computed from the memory that the GPUs hold now: within a pass, some activations would count
        twice."""
        shape, devices = self._shape, {p.device for p in self.model.parameters()}
        gpus = {device: gpu_memory(device) for device in devices}  # asking takes 0.3 ms
        activations = shape.activation_bytes(self.chunk, self._dtype)

        def room(cache: KVCache, device: torch.device, used: int) -> int | None:
            memory, held = gpus.get(device) or gpu_memory(device) or (None, 0)
            windows = 0
            if cache.cuts is not None:
                _, _, windows = shape.whole_layers(self._dtype, cache.capacity, cache.cuts, fp8=self.fp8)
            limit = room_for_layers(memory, held, activations, windows, resident=self.resident)
            return None if limit is None else limit - used

        return KVCache(room, fp8=self.fp8)

    @property
    def kv_bytes(self) -> int:
        """The bytes that every token adds to the KV cache; 0 for a model that keeps a state instead."""
        return self._shape.kv_bytes(self._dtype, fp8=self.fp8)

    @property
    def _shape(self) -> DecoderShape:
        return DecoderShape.of_config(self.model.config)

    @property
    def _dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    def free_bytes(self) -> int | None:
        """Free memory of a CUDA device; None elsewhere."""
        gpu = gpu_memory(self.reader.device)
        return None if gpu is None else gpu[0] - gpu[1]

    def measure_speed(self, longest: int) -> Speed:
        """From reading random tokens, enough to keep the device busy, and decoding. The fastest of two: other programs
        can only make it slower."""
        shape, new = self._shape, 8
        count = TRIAL_FLOPS.get(self.reader.device.type, math.inf) / shape.flops_read(1)
        count = int(max(32, min(count, self.chunk, longest)))
        # Ordinary tokens: markers for images and the like are the first or the last of a vocabulary.
        ids = (shape.vocabulary // 2 + np.arange(count) % min(1000, shape.vocabulary // 3)).astype(np.int32)
        stops, self.stops = self.stops, ()
        try:
            reading = min(self._trial(ids, EngineRequest(count, ids[:0], 1), afresh=True) for _ in range(2))
            answering = min(self._trial(ids, EngineRequest(count, ids[:0], new)) for _ in range(2))
        finally:
            self.stops = stops
            self.close()
        weights = sum(p.numel() * p.element_size() for p in self.model.parameters())
        # The shared path has kept the document, so that each new token takes one step; the plain path reads it again.
        plain = bool(self.support.refusal(count))
        decoding = max(answering - plain * reading, 1e-6) / (new - plain)
        attention = self._attention_flops_per_second(shape, longest) if shape.heads else math.inf
        spent = reading - shape.flops_attention(count) / attention - (0 if plain else decoding)
        return Speed(
            (shape.flops_read(count) - shape.flops_attention(count)) / max(spent, reading / 4),
            attention,
            (weights + count * self.kv_bytes) / decoding,
            self._host_bytes_per_second(),
        )

    def _attention_flops_per_second(self, shape: DecoderShape, longest: int) -> float:
        """Of one layer, for some queries over as many keys as a long document has on average."""
        queries = STEP if self.reader.device.type == "cuda" else 128
        keys = 1 << min(13, max(10, (longest // 2).bit_length()))
        sizes = (shape.heads, queries), (shape.key_heads, keys), (shape.key_heads, keys)
        dtype, device = self.model.dtype, self.reader.device
        query, key, value = (torch.randn(1, *size, shape.width, device=device).to(dtype) for size in sizes)
        with self._on_device(), torch.inference_mode():
            work = partial(attend, query, key, value, Scoring(shape.width**-0.5), planned=True)
            seconds = min(self._seconds(work) for _ in range(3))
        return 4.0 * shape.heads * queries * keys * shape.width / seconds

    def _host_bytes_per_second(self) -> float:
        """From pinned host memory to the device."""
        if self.reader.device.type != "cuda":
            return math.inf
        try:
            source = torch.empty(128 << 20, dtype=torch.uint8, pin_memory=True)
        except RuntimeError:
            source = torch.empty(128 << 20, dtype=torch.uint8)
        target = torch.empty_like(source, device=self.reader.device)
        return source.numel() / min(self._seconds(lambda: target.copy_(source, non_blocking=True)) for _ in range(3))

    def _trial(self, ids: Ids, request: EngineRequest, *, afresh: bool = False) -> float:
        if afresh:
            self.reader.forget()
        return self._seconds(lambda: self.answer(ids, [request]))

    def _seconds(self, work: Callable[[], object]) -> float:
        self._synchronize()
        begin = time.perf_counter()
        work()
        self._synchronize()
        return time.perf_counter() - begin

    def _synchronize(self) -> None:
        if self.reader.device.type == "cuda":
            torch.cuda.synchronize(self.reader.device)

    def close(self) -> None:
        """Free what was read, and give the model back with its own attention."""
        self.reader.forget()
        self.reader.use_own_attention()
        self._empty_cache()

    def _on_device(self) -> AbstractContextManager[Any]:
        """Triton kernels and CUDA graphs use the thread's current device, which is the first GPU in a new thread."""
        device = self.reader.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

    def _answer_shared(self, ids: Ids, requests: Sequence[EngineRequest], some: Sequence[int]) -> dict[int, Generated]:
        if len(some) == 1:  # nothing to share: read all but the last token as the document, which saves a pass
            text = np.concatenate([ids[: requests[some[0]].cut], requests[some[0]].closing])
            rows = rows_of(text, [len(text)], [text[:0]])
            ids = text
        else:
            rows = rows_of(ids, [requests[i].cut for i in some], [requests[i].closing for i in some])
        cuts = [row.base for row in rows]
        self.reader.read(ids[: max(cuts)], cuts=cuts)
        allowances = [requests[i].allowance for i in some]
        batch = self.batch_size(rows, max(allowances))
        answers = generate(self.reader, rows, allowances, self.stops, batch=batch)
        self._kv_cache_notes = () if self.reader.kv_cache is None else self.reader.kv_cache.notes
        if not self.reuse:
            self.reader.forget()
        return {some[index]: answer for index, answer in answers.items()}

    def _of_one_length(self, requests: Sequence[EngineRequest], some: Sequence[int]) -> list[list[int]]:
        """Requests whose position encoding is that of one length, where it depends on the length: those of `shared`
        reading. Up to the original length they need none of this."""
        groups: dict[int, list[int]] = {}
        for i in some:
            prompt = requests[i].cut + len(requests[i].closing)
            if self.support.nested_problem and prompt > self.support.max_tokens and self._by_length is not False:
                groups.setdefault(prompt, []).append(i)
        return [group for group in groups.values() if len(group) > 1]

    def _answer_at_length(
        self, ids: Ids, requests: Sequence[EngineRequest], some: Sequence[int]
    ) -> dict[int, EngineAnswer]:
        """One reading for prompts of one length, with the position encoding of that length. The first time, one answer
        is compared with the plain path's; nothing is returned if they differ."""
        self.reader.forget()
        reset_dynamic_rope(self.model)
        length = requests[some[0]].cut + len(requests[some[0]].closing)
        with positions_as_of(self.model, length):
            answers = self._within_memory(lambda part: self._answer_shared(ids, requests, part), some, requests)
        self.reader.forget()
        if self._by_length is None and answers[some[0]] is not None:
            plain = self._answer_plain(ids, requests, some[0], "")
            self._by_length = plain.answer == answers[some[0]]
        notes = (*self.reading_notes, f"read once for prompts of {length} tokens: {self.support.nested_problem}")
        return {i: EngineAnswer(answer, notes=notes) for i, answer in answers.items()} if self._by_length else {}

    def _answer_plain(self, ids: Ids, requests: Sequence[EngineRequest], i: int, reason: str) -> EngineAnswer:
        prompt = np.concatenate([ids[: requests[i].cut], requests[i].closing])
        self.reader.forget()
        self.reader.use_own_attention()

        def generate_one(some: Sequence[int]) -> dict[int, Generated]:
            # Chunks only after memory ran out, and only where they are known to give the same answer.
            exact = not self.support.nested_problem and not getattr(self.model, "_is_stateful", False)
            chunk = self.reader.chunk if self.reader.chunk < self.chunk and exact else None
            return {i: generate_plain(self.model, prompt, requests[i].allowance, self.stops, chunk=chunk) for i in some}

        return EngineAnswer(self._within_memory(generate_one, [i], requests)[i], plain_reason=reason)

    def _within_memory(
        self, work: Callable[[Sequence[int]], dict[int, T]], some: Sequence[int], requests: Sequence[EngineRequest]
    ) -> dict[int, T | None]:
        """Do the work; when memory runs out, with smaller chunks; then without the longest requests, which get None."""
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
                self._empty_cache()
                longest = max(requests[i].cut for i in left)
                given_up |= {i: None for i in left if requests[i].cut == longest}
                left = [i for i in left if requests[i].cut < longest]
            return given_up
        finally:
            self.reader.chunk = self.chunk

    def _try(self, work: Callable[[Sequence[int]], T], some: Sequence[int]) -> T | None:
        try:
            return work(some)
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
        self._empty_cache()  # outside the handler: the exception holds references to the tensors of the failed pass
        return None

    def _empty_cache(self) -> None:
        if self.reader.device.type == "cuda":
            torch.cuda.empty_cache()


def default_chunk(model: Any, device: torch.device) -> int:
    """Tokens per pass: enough to keep the device busy, with activations of about a GiB at most."""
    if device.type == "cpu":
        return 1024
    config = model.config.get_text_config()
    wide = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    fits = (1 << 30) // (4 * int(wide) * int(model.dtype.itemsize))
    return max(SMALLEST_CHUNK, min(8192, 1 << (fits.bit_length() - 1)))


def out_of_memory(error: BaseException) -> bool:
    said = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in str(error) for words in said)
