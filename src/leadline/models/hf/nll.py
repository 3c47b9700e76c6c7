"""NLL: the negative log-probability of chosen tokens, in nats. Logits are computed for these positions only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from leadline.core.contracts import Continuation, TokenNLL
from leadline.models.hf.greedy import batches
from leadline.models.hf.reader import PromptRow, Reader, rows_of

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Ids

    Floats = npt.NDArray[np.float64]

LOGITS_BYTES = 512 << 20
"""The limit for logits and their temporaries."""


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
    in_spans = _document_nll(reader, document, spans, read)
    nats = [np.zeros(len(c.ids) - c.start) for c in continuations]
    for batch in batches(rows, batch_size(rows, 0)) if rows else ():
        _rows_nll(reader, batch, continuations, nats)
    return TokenNLL(tuple(nats), tuple(in_spans))


def _with_predecessor(c: Continuation, document: Ids) -> Continuation:
    """The continuation with the document's last token first, if its first token is scored: that token predicts it."""
    if c.start:
        return c
    return Continuation(c.cut - 1, np.concatenate([document[c.cut - 1 : c.cut], c.ids]), 1)


def _document_nll(reader: Reader, document: Ids, spans: Sequence[tuple[int, int]], read: int) -> list[Floats]:
    """Read the document's first `read` tokens and score the spans on the way."""
    wanted = np.zeros(len(document) + 1, bool)
    for start, stop in spans:
        wanted[start:stop] = True
    first = int(wanted.argmax()) - 1 if spans else read
    nats = np.full(len(document) + 1, np.nan)
    for start, hidden in reader.reading(document[:read], keep=first, wanted=wanted[1:]):
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
            found = token_nats(reader, chosen, np.array(targets, np.int32))
            for (index, token), value in zip(owners, found, strict=True):
                nats[index][token] = value


def token_nats(reader: Reader, hidden: Tensor, targets: Ids) -> Floats:
    """-log p of the target at each hidden state, in blocks; softmax in float32."""
    vocabulary = reader.model.get_output_embeddings().weight.shape[0]
    block = max(1, LOGITS_BYTES // (12 * vocabulary))
    goal = torch.from_numpy(targets.astype(np.int64)).to(hidden.device)
    found = []
    for start in range(0, len(hidden), block):
        logits = reader.logits(hidden[start : start + block]).float()
        chosen = logits.gather(-1, goal[start : start + block, None].to(logits.device)).squeeze(-1)
        found.append(torch.logsumexp(logits, -1) - chosen)
    return torch.cat(found).double().cpu().numpy()


def plain_nll(
    reader: Reader, document: Ids, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]
) -> TokenNLL:
    """One ordinary forward pass per continuation, and one for all spans: exact for every architecture."""
    rows = []
    for c in continuations:
        text = np.concatenate([document[: c.cut], c.ids])
        rows.append(_text_nll(reader, text, np.arange(c.cut + c.start, len(text))))
    found: list[Floats] = []
    if spans:
        stop = max(stop for _, stop in spans)
        every = _text_nll(reader, document[:stop], np.arange(1, stop))
        found = [every[start - 1 : stop - 1] for start, stop in spans]
    return TokenNLL(tuple(rows), tuple(found))


def _text_nll(reader: Reader, text: Ids, tokens: npt.NDArray[np.int64]) -> Floats:
    hidden = reader.read_plain(text[:-1])
    return token_nats(reader, hidden[torch.from_numpy(tokens - 1).to(hidden.device)], text[tokens])
