"""From hidden states of rows and documents to greedy answers, and to the NLL of chosen tokens in nats.

Both have a shared form, on a `Reader` that has read the document, and a plain form, one ordinary transformers call per
prompt, which is exact for every architecture.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig

from leadline.core.types import Continuation, TokenNLL
from leadline.models.hf.reader import PromptRow, Reader, RowBatch, rows_of
from leadline.models.hf.windows import reset_dynamic_rope

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids

    Floats = npt.NDArray[np.float64]

LOGITS_BYTES = 512 << 20
"""The limit for logits and their temporaries."""
_STEPS_WORTH_A_GRAPH = 3


@dataclass(frozen=True, slots=True)
class Generated:
    """New token ids without the stop token, and whether generation ended with one."""

    ids: list[int]
    stopped: bool
    margin: float | None = field(default=None, compare=False)
    """Nats between the first token and the second candidate."""


def batches(rows: Sequence[PromptRow], size: int) -> Iterator[Sequence[PromptRow]]:
    """As few batches as possible, of nearly equal size."""
    count = -(-len(rows) // size)
    for i in range(count):
        yield rows[i * len(rows) // count : (i + 1) * len(rows) // count]


# --- greedy answers -----------------------------------------------------------------------------


def generate(
    reader: Reader, rows: Sequence[PromptRow], allowances: Sequence[int], stops: Sequence[int], *, batch: int
) -> dict[int, Generated]:
    """One answer per row index; `allowances` is by index too. At most `batch` rows are decoded at once."""
    done: dict[int, Generated] = {}
    for part in (part for group in reader.groups(rows) for part in batches(group, batch)):
        progress = _Progress({row.index: allowances[row.index] for row in part}, frozenset(stops))
        done |= _generate(reader, part, progress)
    return done


class _Progress:
    """The tokens that each row has generated so far."""

    def __init__(self, allowance: dict[int, int], stops: frozenset[int]) -> None:
        self.allowance = allowance
        self.stops = stops
        self.new: dict[int, list[int]] = {index: [] for index in allowance}
        self.done: dict[int, Generated] = {}

    def take(self, rows: Sequence[PromptRow], tokens: Sequence[int]) -> None:
        for index, token in zip((row.index for row in rows), tokens, strict=True):
            if index in self.done:
                continue
            new, stopped = self.new[index], token in self.stops
            if not stopped:
                new.append(token)
            if stopped or len(new) == self.allowance[index]:
                self.done[index] = Generated(new, stopped)

    @property
    def steps_left(self) -> int:
        return max((self.allowance[i] - len(self.new[i]) for i in self.new if i not in self.done), default=0)


def _generate(reader: Reader, rows: Sequence[PromptRow], progress: _Progress) -> dict[int, Generated]:
    batch = reader.open_rows(rows, room=max(progress.allowance.values()) - 1)
    _, hidden = deque(batch.read_own(), maxlen=1)[0]
    logits = reader.logits(hidden[:, -1])
    if progress.stops:  # the first token is never a stop
        logits = logits.index_fill(-1, torch.tensor(sorted(progress.stops), device=logits.device), float("-inf"))
    likeliest = logits.topk(2, dim=-1).values.float()
    margins = dict(zip((row.index for row in rows), (likeliest[:, 0] - likeliest[:, 1]).tolist(), strict=True))
    chosen = logits.argmax(-1)
    progress.take(batch.rows, chosen.tolist())
    if batch.width == 1:  # the pass had the shape of a decoding step
        reader.stepped.add(batch.shape)
    recorded: tuple[torch.cuda.CUDAGraph, Tensor] | None = None
    while progress.steps_left:
        # Only after a step of this shape: kernels must not be compiled or tuned while a graph is recorded.
        if recorded is None and progress.steps_left > _STEPS_WORTH_A_GRAPH and reader.records_steps:
            recorded = _record_step(batch, chosen) if batch.shape in reader.stepped else None
        if recorded is not None:
            graph, chosen = recorded
            graph.replay()
        else:
            if not reader.records_steps:
                chosen = _drop_finished(batch, progress.done, chosen)
            chosen = _step(batch, chosen)
            reader.stepped.add(batch.shape)
        progress.take(batch.rows, chosen.tolist())
    return {index: replace(answer, margin=margins[index]) for index, answer in progress.done.items()}


def _step(batch: RowBatch, chosen: Tensor) -> Tensor:
    return batch.reader.logits(batch.advance(chosen[:, None])[:, -1]).argmax(-1)


def _drop_finished(batch: RowBatch, done: dict[int, Generated], chosen: Tensor) -> Tensor:
    """Drop finished rows once they are half of the batch; dropping copies the keys of the others."""
    alive = [number for number, row in enumerate(batch.rows) if row.index not in done]
    if len(alive) * 2 > len(batch.rows):
        return chosen
    batch.keep(alive)
    return chosen[torch.tensor(alive, device=chosen.device)]


def _record_step(batch: RowBatch, chosen: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor] | None:
    """One decoding step as a CUDA graph: one launch instead of thousands. Each replay reads the latest token of every
    row from the returned tensor and overwrites it. None where the model cannot be recorded."""
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
    return graph, chosen


def generate_plain(
    model: Any, ids: Ids, allowance: int, stops: Sequence[int], *, chunk: int | None = None
) -> Generated:
    """One prompt through transformers' `generate`: at least one token that is not a stop. `chunk` reads the prompt in
    pieces, to save memory."""
    reset_dynamic_rope(model)
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


# --- NLL ----------------------------------------------------------------------------------------


def shared_nll(
    reader: Reader,
    document: Ids,
    continuations: Sequence[Continuation],
    spans: Sequence[tuple[int, int]],
    *,
    batch_size: Callable[[Sequence[PromptRow], int], int],
) -> TokenNLL:
    """The document is read once, then continuations of all cuts in batches."""
    continuations = [_with_predecessor(c, document) for c in continuations]
    rows = rows_of(document, [c.cut for c in continuations], [c.ids[:-1] for c in continuations])
    read = max([row.base for row in rows] + [stop - 1 for _, stop in spans], default=0)
    in_spans = _document_nll(reader, document, spans, read, [row.base for row in rows])
    nats = [np.zeros(len(c.ids) - c.start) for c in continuations]
    for group in reader.groups(rows):
        for batch in batches(group, batch_size(group, 0)):
            _rows_nll(reader, batch, continuations, nats)
    return TokenNLL(tuple(nats), tuple(in_spans))


def _with_predecessor(c: Continuation, document: Ids) -> Continuation:
    """The continuation with the document's last token first, if its first token is scored: that token predicts it."""
    if c.start:
        return c
    return Continuation(c.cut - 1, np.concatenate([document[c.cut - 1 : c.cut], c.ids]), 1)


def _document_nll(
    reader: Reader, document: Ids, spans: Sequence[tuple[int, int]], read: int, cuts: Sequence[int]
) -> list[Floats]:
    """Read the document's first `read` tokens and score the spans on the way; rows will follow at `cuts`."""
    wanted = np.zeros(len(document) + 1, bool)
    for start, stop in spans:
        wanted[start:stop] = True
    first = int(wanted.argmax()) - 1 if spans else read
    nats = np.full(len(document) + 1, np.nan)
    for start, hidden in reader.reading(document[:read], keep=first, wanted=wanted[1:], cuts=cuts):
        positions = np.flatnonzero(wanted[start + 1 : start + 1 + len(hidden)])
        if len(positions):
            chosen = hidden[torch.from_numpy(positions).to(hidden.device)]
            nats[start + 1 + positions] = token_nats(reader, chosen, document[start + 1 + positions])
    return [nats[start:stop].copy() for start, stop in spans]


def _rows_nll(
    reader: Reader, rows: Sequence[PromptRow], continuations: Sequence[Continuation], nats: list[Floats]
) -> None:
    batch = reader.open_rows(rows)
    for first, hidden in batch.read_own():
        positions, targets, owners = [], [], []
        for number, row in enumerate(rows):
            wanted = continuations[row.index]
            # Rows are right-aligned and lack their last token: column `origin + t` predicts token t.
            origin = batch.width - len(wanted.ids)
            for token in range(wanted.start, len(wanted.ids)):
                if first <= origin + token < first + hidden.shape[1]:
                    positions.append(number * hidden.shape[1] + origin + token - first)
                    targets.append(wanted.ids[token])
                    owners.append((row.index, token - wanted.start))
        if positions:
            chosen = hidden.flatten(0, 1)[torch.tensor(positions, device=hidden.device)]
            nats_of_chosen = token_nats(reader, chosen, np.array(targets, np.int32))
            for (index, token), value in zip(owners, nats_of_chosen, strict=True):
                nats[index][token] = value


def token_nats(reader: Reader, hidden: Tensor, targets: Ids) -> Floats:
    """-log p of the target at each hidden state, in blocks; softmax in float32."""
    vocabulary = reader.model.get_output_embeddings().weight.shape[0]
    block = max(1, LOGITS_BYTES // (12 * vocabulary))
    goal = torch.from_numpy(targets.astype(np.int64)).to(hidden.device)
    blocks = []
    for start in range(0, len(hidden), block):
        logits = reader.logits(hidden[start : start + block]).float()
        chosen = logits.gather(-1, goal[start : start + block, None].to(logits.device)).squeeze(-1)
        blocks.append(torch.logsumexp(logits, -1) - chosen)
    return torch.cat(blocks).double().cpu().numpy()


def plain_nll(
    reader: Reader, document: Ids, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]
) -> TokenNLL:
    """One ordinary forward pass per continuation, and one for all spans."""
    rows = []
    for c in continuations:
        text = np.concatenate([document[: c.cut], c.ids])
        rows.append(_text_nll(reader, text, np.arange(c.cut + c.start, len(text))))
    own_spans: list[Floats] = []
    if spans:
        stop = max(stop for _, stop in spans)
        every = _text_nll(reader, document[:stop], np.arange(1, stop))
        own_spans = [every[start - 1 : stop - 1] for start, stop in spans]
    return TokenNLL(tuple(rows), tuple(own_spans))


def _text_nll(reader: Reader, text: Ids, tokens: npt.NDArray[np.int64]) -> Floats:
    hidden = reader.read_plain(text[:-1])
    return token_nats(reader, hidden[torch.from_numpy(tokens - 1).to(hidden.device)], text[tokens])


# --- the likeliest next tokens ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LikeliestTokens:
    """The likeliest tokens after a cut, with their log-probabilities in nats, and that of the token that follows."""

    ids: list[int]
    logprobs: list[float]
    actual: float | None


def likeliest_tokens(
    reader: Reader, text: Ids, cuts: Sequence[int], count: int, *, plain: bool
) -> list[LikeliestTokens]:
    """After each of the growing `cuts` of one reading; only `count` numbers of each are kept."""
    by_cut: dict[int, LikeliestTokens] = {}
    read = max(cuts)
    wanted = np.zeros(read, bool)
    wanted[np.array(cuts) - 1] = True
    chunks = (
        [(0, reader.read_plain(text[:read]))] if plain
        else reader.reading(text[:read], keep=min(cuts) - 1, wanted=wanted)
    )  # fmt: skip
    for start, hidden in chunks:
        positions = np.flatnonzero(wanted[start : start + len(hidden)])
        block = max(1, LOGITS_BYTES // (12 * reader.model.get_output_embeddings().weight.shape[0]))
        for first in range(0, len(positions), block):
            some = positions[first : first + block]
            logits = reader.logits(hidden[torch.from_numpy(some).to(hidden.device)]).float()
            logprobs = torch.log_softmax(logits, -1)
            top = logprobs.topk(min(count, logprobs.shape[-1]), dim=-1)
            for row, position in enumerate((start + some).tolist()):
                follows = float(logprobs[row, int(text[position + 1])]) if position + 1 < len(text) else None
                by_cut[position + 1] = LikeliestTokens(top.indices[row].tolist(), top.values[row].tolist(), follows)
    return [by_cut[cut] for cut in cuts]
