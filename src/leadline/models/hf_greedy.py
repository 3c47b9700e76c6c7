"""Greedy answers for many rows at once, step by step, until each has stopped or used its allowance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leadline.models.hf_reader import Reader, Row, RowBatch


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
        done |= _generate(reader, part, {row.index: allowances[row.index] for row in part}, stops)
    return done


def batches(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    """As few batches as can be, of nearly equal size."""
    count = -(-len(rows) // size)
    for i in range(count):
        yield rows[i * len(rows) // count : (i + 1) * len(rows) // count]


def _generate(
    reader: Reader, rows: Sequence[Row], allowance: dict[int, int], stops: Sequence[int]
) -> dict[int, Generated]:
    batch = reader.open_rows(rows, room=max(allowance.values()) - 1)
    last = None
    for _, hidden in batch.read_own():
        last = hidden[:, -1]
    assert last is not None  # a row is never empty
    stop_ids = set(stops)
    logits = reader.logits(last)
    if stops:  # at least one token that is not a stop
        logits = logits.index_fill(-1, torch.tensor(list(stops), device=logits.device), float("-inf"))
    chosen = logits.argmax(-1)
    new: dict[int, list[int]] = {row.index: [] for row in rows}
    done: dict[int, Generated] = {}
    while True:
        for row, token in zip(batch.rows, chosen.tolist(), strict=True):
            if row.index in done:
                continue
            ids = new[row.index]
            if token in stop_ids:
                done[row.index] = Generated(ids, stopped=True)
                continue
            ids.append(token)
            if len(ids) == allowance[row.index]:
                done[row.index] = Generated(ids, stopped=False)
        if len(done) == len(new):
            return done
        chosen = _thinned(batch, done, chosen)
        chosen = reader.logits(batch.advance(chosen[:, None])[:, -1]).argmax(-1)


def _thinned(batch: RowBatch, done: dict[int, Generated], chosen: Tensor) -> Tensor:
    """Drop finished rows once they are half of the batch: dropping copies what the others hold."""
    alive = [place for place, row in enumerate(batch.rows) if row.index not in done]
    if len(alive) * 2 > len(batch.rows):
        return chosen
    batch.keep(alive)
    return chosen[torch.tensor(alive, device=chosen.device)]
