"""Surprise: the negative log-probability of chosen tokens, in nats. Only the wanted positions ever get logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from leadline.models.hf.greedy import batches
from leadline.models.hf.reader import Reader, Row, rows_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids

    Floats = npt.NDArray[np.float64]

LOGITS_BYTES = 512 << 20
"""The most that logits and what is made of them may take at once."""


@dataclass(frozen=True, slots=True)
class Scored:
    """`ids` after the document's first `cut` tokens; those from `start` on are scored."""

    cut: int
    ids: Ids
    start: int = 0

    def with_what_predicts_it(self, document: Ids) -> Scored:
        """The same, with a token before the first that is scored."""
        if self.start:
            return self
        return Scored(self.cut - 1, np.concatenate([document[self.cut - 1 : self.cut], self.ids]), 1)


@dataclass(frozen=True, slots=True)
class Nats:
    """Per scored token: one array per continuation, one per span of the document."""

    rows: list[Floats]
    spans: list[Floats]


def shared(
    reader: Reader,
    document: Ids,
    scored: Sequence[Scored],
    spans: Sequence[tuple[int, int]],
    *,
    at_once: Callable[[Sequence[Row], int], int],
) -> Nats:
    """The document read once; continuations of any cut in batches after it."""
    scored = [s.with_what_predicts_it(document) for s in scored]
    rows = rows_of(document, [s.cut for s in scored], [s.ids[:-1] for s in scored])
    read = max([row.base for row in rows] + [stop - 1 for _, stop in spans], default=0)
    in_spans = _of_document(reader, document, spans, read)
    nats = [np.zeros(len(s.ids) - s.start) for s in scored]
    for batch in batches(rows, at_once(rows, 0)) if rows else ():
        _of_rows(reader, batch, scored, nats)
    return Nats(nats, in_spans)


def _of_document(reader: Reader, document: Ids, spans: Sequence[tuple[int, int]], read: int) -> list[Floats]:
    """Read the document's first `read` tokens, taking the surprise at spans on the way."""
    wanted = np.zeros(len(document) + 1, bool)
    for start, stop in spans:
        wanted[start:stop] = True
    first = int(wanted.argmax()) - 1 if spans else read
    nats = np.full(len(document) + 1, np.nan)
    for start, hidden in reader.reading(document[:read], keep=first, wanted=wanted[1:]):
        places = np.flatnonzero(wanted[start + 1 : start + 1 + len(hidden)])
        if len(places):
            chosen = hidden[torch.from_numpy(places).to(hidden.device)]
            nats[start + 1 + places] = token_nats(reader, chosen, document[start + 1 + places])
    return [nats[start:stop].copy() for start, stop in spans]


def _of_rows(reader: Reader, rows: Sequence[Row], scored: Sequence[Scored], nats: list[Floats]) -> None:
    batch = reader.open_rows(rows)
    for first, hidden in batch.read_own():
        places, targets, owners = [], [], []
        for place, row in enumerate(rows):
            wanted = scored[row.index]
            # The row stands right-aligned without its last token: column `origin + t` predicts token t.
            origin = batch.width - len(wanted.ids)
            for token in range(wanted.start, len(wanted.ids)):
                if first <= origin + token < first + hidden.shape[1]:
                    places.append(place * hidden.shape[1] + origin + token - first)
                    targets.append(wanted.ids[token])
                    owners.append((row.index, token - wanted.start))
        if places:
            chosen = hidden.flatten(0, 1)[torch.tensor(places, device=hidden.device)]
            found = token_nats(reader, chosen, np.array(targets, np.int32))
            for (index, token), value in zip(owners, found, strict=True):
                nats[index][token] = value


def token_nats(reader: Reader, hidden: Tensor, targets: Ids) -> Floats:
    """-log p of a target at each hidden state, a block at a time; softmax in float32."""
    vocabulary = reader.model.get_output_embeddings().weight.shape[0]
    block = max(1, LOGITS_BYTES // (12 * vocabulary))
    goal = torch.from_numpy(targets.astype(np.int64)).to(hidden.device)
    found = []
    for start in range(0, len(hidden), block):
        logits = reader.logits(hidden[start : start + block]).float()
        chosen = logits.gather(-1, goal[start : start + block, None].to(logits.device)).squeeze(-1)
        found.append(torch.logsumexp(logits, -1) - chosen)
    return torch.cat(found).double().cpu().numpy()


def plain(reader: Reader, document: Ids, scored: Sequence[Scored], spans: Sequence[tuple[int, int]]) -> Nats:
    """One pass of the model's own per continuation, and one for all spans: right for every architecture."""
    rows = []
    for s in scored:
        text = np.concatenate([document[: s.cut], s.ids])
        rows.append(_of_text(reader, text, np.arange(s.cut + s.start, len(text))))
    found: list[Floats] = []
    if spans:
        stop = max(stop for _, stop in spans)
        every = _of_text(reader, document[:stop], np.arange(1, stop))
        found = [every[start - 1 : stop - 1] for start, stop in spans]
    return Nats(rows, found)


def _of_text(reader: Reader, text: Ids, tokens: npt.NDArray[np.int64]) -> Floats:
    hidden = reader.read_alone(text[:-1])
    return token_nats(reader, hidden[torch.from_numpy(tokens - 1).to(hidden.device)], text[tokens])
