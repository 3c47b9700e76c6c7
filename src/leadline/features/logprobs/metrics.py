"""The arithmetic of log-probability metrics, where their anchors are placed, and key tokens of an evaluator's run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.answers import Measurement
from leadline.core.errors import LengthError, SourceError
from leadline.store.runs import read_records

if TYPE_CHECKING:
    from leadline.core.types import Ids, Indices, Nats

MetricNumbers = dict[str, float]
KEY_FALL = 2.0
KEY_LOSS = 2.0
"""With the whole context a key token's loss falls by more than the first number, to below the second (arXiv
2410.23771)."""


def gain_numbers(with_document: Nats, without: Nats, utf8: int) -> MetricNumbers:
    """For an answer's tokens: by how much the document lowers their NLL, in nats per token and bits per byte."""
    numbers = {
        "retrieval_gain": float(without.mean() - with_document.mean()),
        "retrieval_nll": float(with_document.mean()),
        "retrieval_nll_without": float(without.mean()),
    }
    if utf8:
        numbers["retrieval_gain_bits"] = float(without.sum() - with_document.sum()) / math.log(2) / utf8
        numbers["retrieval_nll_bits"] = float(with_document.sum()) / math.log(2) / utf8
    return numbers


def loss_numbers(nats: Nats, utf8: int, tail: float) -> MetricNumbers:
    """For a document's tokens: the mean NLL of all, of the last and of the first part, and the difference of those."""
    part = max(1, math.floor(len(nats) * tail))
    head, end = float(nats[:part].mean()), float(nats[-part:].mean())
    numbers = {
        "mean_nll": float(nats.mean()),
        "tail_loss": end,
        "head_loss": head,
        "tail_vs_head": end - head,
        "scored_tokens": float(len(nats)),
    }
    if utf8:
        numbers["mean_nll_bits"] = float(nats.sum()) / math.log(2) / utf8
    return numbers


def key_tokens(whole: Nats, short: Nats) -> Indices:
    """The tokens that need the far context, from their NLL with all of it and with a short one."""
    return np.flatnonzero((short - whole > KEY_FALL) & (whole < KEY_LOSS))


def key_numbers(nats: Nats) -> MetricNumbers:
    """For key tokens: LongPPL is exp of the mean of `longppl` over documents, weighted by their key tokens."""
    numbers = {"key_tokens": float(len(nats))}
    if len(nats):
        numbers["longppl"] = float(nats.mean())
    return numbers


def needle_numbers(with_document: Nats, without: Nats, alone: Nats) -> MetricNumbers:
    """For a planted value's tokens: the gain as a share of the gain from the fact alone, if that is positive, and the
    geometric mean of their probabilities, which is bounded where NLL is not."""
    gain, most = float(without.mean() - with_document.mean()), float(without.mean() - alone.mean())
    numbers = {
        "needle_gain_nats": gain,
        "needle_gain_alone_nats": most,
        "needle_nll": float(with_document.mean()),
        "needle_chance": math.exp(-float(with_document.mean())),
    }
    if most > 0:
        numbers["needle_gain"] = gain / most
    return numbers


# --- anchors ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Anchor:
    """The repeated stretch starts at token `at` of the document, `depth` of the way to the last possible position."""

    at: int
    depth_asked: float
    depth: float
    ambiguous: bool
    """Whether the query occurs in the document more than once, at all positions that were tried."""


def place_anchors(ids: Ids, depths: Sequence[float], *, query: int, answer: int) -> list[Anchor]:
    """One anchor for each depth (ascending): floor(depth * U), where U = tokens - query - answer.

    A query that occurs more than once does not determine its answer, so the anchor moves forward token by token, up to
    the next anchor. The last of several moves backward, so that all stay within the asked depths.
    """
    room = len(ids) - query - answer
    if room < 1:
        raise LengthError(
            f"a document of {len(ids)} tokens has no room for {query} tokens to repeat and {answer} to score",
            where="anchors",
            fix="use longer documents, or smaller query and answer",
            shortest=query + answer + 1,
        )
    wanted = [int(room * depth) for depth in depths]
    anchors = []
    for number, (depth, start) in enumerate(zip(depths, wanted, strict=True)):
        last = number == len(wanted) - 1
        if last and number:
            places = range(start, wanted[number - 1], -1)
        else:
            places = range(start, room + 1 if last else max(wanted[number + 1], start + 1))
        at = next((p for p in places if _occurrences(ids, p, query) == 1), None)
        start_of_anchor = start if at is None else at
        anchors.append(Anchor(start_of_anchor, depth, start_of_anchor / room, ambiguous=at is None))
    return anchors


def _occurrences(ids: Ids, at: int, query: int) -> int:
    wanted = ids[at : at + query]
    starts: Indices = np.flatnonzero(ids[: len(ids) - query + 1] == wanted[0])
    for offset in range(1, query):
        if len(starts) == 1:
            return 1
        starts = starts[ids[starts + offset] == wanted[offset]]
    return len(starts)


# --- key tokens of an evaluator -----------------------------------------------------------------

Marks = tuple[tuple[int, int], ...]


def evaluator_marks(folder: Path, document: str, length: int) -> Marks:
    """The key tokens of a document at a length, as characters, from the records of the evaluator's run."""
    marks = _marks(folder).get((document, length))
    if marks is None:
        raise SourceError(
            f"the evaluator's run has no key tokens for document {document} at length {length:,}",
            where=str(folder),
            fix="run longppl with the evaluator on the same documents, lengths, samples and seed first",
        )
    return marks


@cache
def _marks(folder: Path) -> dict[tuple[str, int], Marks]:
    return {
        (record.cluster, record.cell.length): record.outcome.char_spans
        for record in read_records(folder)
        if isinstance(record.outcome, Measurement) and "key_tokens" in record.outcome.numbers
    }
