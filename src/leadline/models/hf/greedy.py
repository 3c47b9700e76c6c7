"""Greedy decoding: of many rows at once after a shared document, or of one prompt with transformers' `generate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig

from leadline.models.hf.reader import PromptRow, Reader, RowBatch

if TYPE_CHECKING:
    from leadline.core.types import Ids


@dataclass(frozen=True, slots=True)
class Generated:
    """New token ids without the stop token, and whether generation ended with one."""

    ids: list[int]
    stopped: bool


def generate(
    reader: Reader, rows: Sequence[PromptRow], allowances: Sequence[int], stops: Sequence[int], *, batch: int
) -> dict[int, Generated]:
    """One answer per row index; `allowances` is by index too. At most `batch` rows are decoded at once."""
    done: dict[int, Generated] = {}
    for part in batches(rows, batch):
        progress = _Progress({row.index: allowances[row.index] for row in part}, frozenset(stops))
        done |= _generate(reader, part, progress)
    return done


def batches(rows: Sequence[PromptRow], size: int) -> Iterator[Sequence[PromptRow]]:
    """As few batches as possible, of nearly equal size."""
    count = -(-len(rows) // size)
    for i in range(count):
        yield rows[i * len(rows) // count : (i + 1) * len(rows) // count]


class _Progress:
    """The tokens that each row has generated so far."""

    def __init__(self, allowance: dict[int, int], stops: frozenset[int]) -> None:
        self.allowance = allowance
        self.stops = stops
        self.new: dict[int, list[int]] = {index: [] for index in allowance}
        self.done: dict[int, Generated] = {}

    def take(self, rows: Sequence[PromptRow], tokens: Sequence[int]) -> None:
        for row, token in zip(rows, tokens, strict=True):
            if row.index in self.done:
                continue
            tokens_so_far = self.new[row.index]
            if token in self.stops:
                self.done[row.index] = Generated(tokens_so_far, stopped=True)
                continue
            tokens_so_far.append(token)
            if len(tokens_so_far) == self.allowance[row.index]:
                self.done[row.index] = Generated(tokens_so_far, stopped=False)

    @property
    def steps_left(self) -> int:
        return max((self.allowance[i] - len(self.new[i]) for i in self.new if i not in self.done), default=0)


def _generate(reader: Reader, rows: Sequence[PromptRow], progress: _Progress) -> dict[int, Generated]:
    batch = reader.open_rows(rows, room=max(progress.allowance.values()) - 1)
    last = None
    for _, hidden in batch.read_own():
        last = hidden[:, -1]
    assert last is not None  # a row is never empty
    logits = reader.logits(last)
    if progress.stops:  # the first token is never a stop
        logits = logits.index_fill(-1, torch.tensor(sorted(progress.stops), device=logits.device), float("-inf"))
    chosen = logits.argmax(-1)
    progress.take(batch.rows, chosen.tolist())
    if batch.width == 1:  # the pass had the shape of a decoding step
        reader.stepped.add(batch.shape)
    recorded: RecordedStep | None = None
    while progress.steps_left:
        # Only after a step of this shape: kernels must not be compiled or tuned while a graph is recorded.
        if recorded is None and progress.steps_left > _STEPS_WORTH_A_GRAPH and reader.records:
            recorded = RecordedStep.of(batch, chosen) if batch.shape in reader.stepped else None
        if recorded is not None:
            chosen = recorded.replay()
        else:
            if not reader.records:
                chosen = _drop_finished(batch, progress.done, chosen)
            chosen = _step(batch, chosen)
            reader.stepped.add(batch.shape)
        progress.take(batch.rows, chosen.tolist())
    return progress.done


_STEPS_WORTH_A_GRAPH = 3


def _step(batch: RowBatch, chosen: Tensor) -> Tensor:
    return batch.reader.logits(batch.advance(chosen[:, None])[:, -1]).argmax(-1)


def _drop_finished(batch: RowBatch, done: dict[int, Generated], chosen: Tensor) -> Tensor:
    """Drop finished rows once they are half of the batch; dropping copies the keys of the others."""
    alive = [number for number, row in enumerate(batch.rows) if row.index not in done]
    if len(alive) * 2 > len(batch.rows):
        return chosen
    batch.keep(alive)
    return chosen[torch.tensor(alive, device=chosen.device)]


class RecordedStep:
    """One decoding step of a batch as a CUDA graph: one launch instead of thousands."""

    def __init__(self, graph: torch.cuda.CUDAGraph, chosen: Tensor) -> None:
        self._graph = graph
        self._chosen = chosen  # the latest token of every row; each replay reads and overwrites it

    def replay(self) -> Tensor:
        self._graph.replay()
        return self._chosen

    @classmethod
    def of(cls, batch: RowBatch, chosen: Tensor) -> RecordedStep | None:
        """None where the model cannot be recorded; steps then run without a graph."""
        chosen = chosen.clone()
        graph, stream = torch.cuda.CUDAGraph(), batch.reader.recording_stream
        stream.wait_stream(torch.cuda.current_stream())
        try:
            with torch.inference_mode(), torch.cuda.stream(stream):
                graph.capture_begin()
                try:
                    chosen.copy_(_step(batch, chosen))
                finally:
                    graph.capture_end()
        except RuntimeError as error:
            if isinstance(error, torch.OutOfMemoryError):
                raise
            batch.reader.records = False
            return None
        torch.cuda.current_stream().wait_stream(stream)
        return cls(graph, chosen)


def generate_plain(
    model: Any, ids: Ids, allowance: int, stops: Sequence[int], *, chunk: int | None = None
) -> Generated:
    """The plain path: one prompt through transformers' `generate`. Exact for every architecture, and slow.

    At least one token that is not a stop. `chunk` reads the prompt in pieces, to save memory.
    """
    _reset_dynamic_rope(model)
    device = model.get_input_embeddings().weight.device
    prompt = torch.from_numpy(ids.astype(np.int64))[None].to(device)
    # Replaces the checkpoint's configuration, whose sampling, penalties and lengths would change the answers.
    model.generation_config = GenerationConfig(
        do_sample=False, max_new_tokens=allowance, min_new_tokens=1, eos_token_id=list(stops) or None,
        pad_token_id=stops[0] if stops else 0, prefill_chunk_size=chunk, use_cache=True,
    )  # fmt: skip
    with torch.inference_mode():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt))
    new = out[0, prompt.shape[1] :].tolist()
    end = next((i for i, token in enumerate(new) if token in set(stops)), None)
    return Generated(new if end is None else new[:end], stopped=end is not None)


def _reset_dynamic_rope(model: Any) -> None:
    """Dynamic position encodings keep the scaling of the longest text so far; every prompt must start without it."""
    for module in model.modules():
        if hasattr(module, "max_seq_len_cached") and hasattr(module, "original_inv_freq"):
            module.max_seq_len_cached = module.original_max_seq_len
            module.register_buffer("inv_freq", module.original_inv_freq.to(module.inv_freq.device), persistent=False)
