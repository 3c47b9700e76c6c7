"""The plain path: one prompt at a time through transformers' own `generate`. Right for every architecture, and slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from leadline.models.hf.reader import Reader, Row, RowBatch

if TYPE_CHECKING:
    from leadline.core.types import Ids


# --- Greedy answers for many rows at once, step by step, until each has stopped or used its allowance.


@dataclass(frozen=True, slots=True)
class Generated:
    """New token ids, without the stop token, and whether one was met."""

    ids: list[int]
    stopped: bool


def generate(
    reader: Reader, rows: Sequence[Row], allowances: Sequence[int], stops: Sequence[int], *, batch: int
) -> dict[int, Generated]:
    """An answer per row index; `allowances` goes by index too. At most `batch` rows at once."""
    done: dict[int, Generated] = {}
    for part in batches(rows, batch):
        progress = _Progress({row.index: allowances[row.index] for row in part}, frozenset(stops))
        done |= _generate(reader, part, progress)
    return done


def batches(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """As few batches as can be, of nearly equal size."""
    count = -(-len(rows) // size)
    for i in range(count):
        yield rows[i * len(rows) // count : (i + 1) * len(rows) // count]


class _Progress:
    """What each row has said so far."""

    def __init__(self, allowance: dict[int, int], stops: frozenset[int]) -> None:
        self.allowance = allowance
        self.stops = stops
        self.new: dict[int, list[int]] = {index: [] for index in allowance}
        self.done: dict[int, Generated] = {}

    def take(self, rows: Sequence[Row], tokens: Sequence[int]) -> None:
        for row, token in zip(rows, tokens, strict=True):
            if row.index in self.done:
                continue
            said = self.new[row.index]
            if token in self.stops:
                self.done[row.index] = Generated(said, stopped=True)
                continue
            said.append(token)
            if len(said) == self.allowance[row.index]:
                self.done[row.index] = Generated(said, stopped=False)

    @property
    def steps_left(self) -> int:
        return max((self.allowance[i] - len(self.new[i]) for i in self.new if i not in self.done), default=0)


def _generate(reader: Reader, rows: Sequence[Row], progress: _Progress) -> dict[int, Generated]:
    batch = reader.open_rows(rows, room=max(progress.allowance.values()) - 1)
    last = None
    for _, hidden in batch.read_own():
        last = hidden[:, -1]
    assert last is not None  # a row is never empty
    logits = reader.logits(last)
    if progress.stops:  # at least one token that is not a stop
        logits = logits.index_fill(-1, torch.tensor(sorted(progress.stops), device=logits.device), float("-inf"))
    chosen = logits.argmax(-1)
    progress.take(batch.rows, chosen.tolist())
    if batch.width == 1:  # what was read was a step like those to come
        reader.stepped.add(batch.shape)
    recorded: Recorded | None = None
    while progress.steps_left:
        # Only where such a step has been made: a recording should not meet a kernel for the first time.
        if recorded is None and progress.steps_left > _WORTH_RECORDING and reader.records:
            recorded = Recorded.of(batch, chosen) if batch.shape in reader.stepped else None
        if recorded is not None:
            chosen = recorded.replay()
        else:
            if not reader.records:
                chosen = _thinned(batch, progress.done, chosen)
            chosen = _step(batch, chosen)
            reader.stepped.add(batch.shape)
        progress.take(batch.rows, chosen.tolist())
    return progress.done


_WORTH_RECORDING = 3


def _step(batch: RowBatch, chosen: Tensor) -> Tensor:
    return batch.reader.logits(batch.advance(chosen[:, None])[:, -1]).argmax(-1)


def _thinned(batch: RowBatch, done: dict[int, Generated], chosen: Tensor) -> Tensor:
    """Drop finished rows once they are half of the batch: dropping copies what the others hold."""
    alive = [place for place, row in enumerate(batch.rows) if row.index not in done]
    if len(alive) * 2 > len(batch.rows):
        return chosen
    batch.keep(alive)
    return chosen[torch.tensor(alive, device=chosen.device)]


class Recorded:
    """One step of a batch as a CUDA graph. A step is thousands of small launches, and replaying it is one."""

    def __init__(self, graph: torch.cuda.CUDAGraph, chosen: Tensor) -> None:
        self._graph = graph
        self._chosen = chosen  # the newest token of every row, read and written by every replay

    def replay(self) -> Tensor:
        self._graph.replay()
        return self._chosen

    @classmethod
    def of(cls, batch: RowBatch, chosen: Tensor) -> Recorded | None:
        """None where the model does something that cannot be recorded; it is then stepped as before."""
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


# --- The plain path: one prompt at a time through transformers' own `generate`. Right for every architect


def generate_plain(
    model: Any, ids: Ids, allowance: int, stops: Sequence[int], *, chunk: int | None = None
) -> Generated:
    """Greedy, at least one token that is not a stop. `chunk` reads the prompt in pieces, to save memory."""
    from transformers import GenerationConfig

    _forget_lengths(model)
    device = model.get_input_embeddings().weight.device
    prompt = torch.from_numpy(ids.astype(np.int64))[None].to(device)
    # A configuration of our own: checkpoints come with sampling, penalties and lengths that would change the measure.
    model.generation_config = GenerationConfig(
        do_sample=False, max_new_tokens=allowance, min_new_tokens=1, eos_token_id=list(stops) or None,
        pad_token_id=stops[0] if stops else 0, prefill_chunk_size=chunk, use_cache=True,
    )  # fmt: skip
    with torch.inference_mode():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt))
    new = out[0, prompt.shape[1] :].tolist()
    end = next((i for i, token in enumerate(new) if token in set(stops)), None)
    return Generated(new if end is None else new[:end], stopped=end is not None)


def _forget_lengths(model: Any) -> None:
    """Dynamic position encodings remember the longest text they met; each prompt must be read as if it were first."""
    for module in model.modules():
        if hasattr(module, "max_seq_len_cached") and hasattr(module, "original_inv_freq"):
            module.max_seq_len_cached = module.original_max_seq_len
            module.register_buffer("inv_freq", module.original_inv_freq.to(module.inv_freq.device), persistent=False)
