"""From surprise to numbers: the arithmetic of every log-probability metric, on nats and nothing else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leadline.core.contracts import Nats
    from leadline.core.types import Indices

Numbers = dict[str, float]
KEY_FALL = 2.0
KEY_LOSS = 2.0
"""A key token's loss falls by more than the first with the whole context, to below the second (arXiv 2410.23771)."""


def gain_numbers(with_document: Nats, without: Nats, utf8: int) -> Numbers:
    """Of an answer's tokens: how much less surprising the document makes them, in nats a token and bits a byte."""
    numbers = {
        "retrieval_gain": float(without.mean() - with_document.mean()),
        "retrieval_nll": float(with_document.mean()),
        "retrieval_nll_without": float(without.mean()),
    }
    if utf8:
        numbers["retrieval_gain_bits"] = float(without.sum() - with_document.sum()) / math.log(2) / utf8
        numbers["retrieval_nll_bits"] = float(with_document.sum()) / math.log(2) / utf8
    return numbers


def loss_numbers(nats: Nats, utf8: int, tail: float) -> Numbers:
    """Of a document's tokens: their mean, that of the last and first part, and how much worse the end is."""
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
    """Which tokens need the far context, from their surprise with all of it and with a short one."""
    return np.flatnonzero((short - whole > KEY_FALL) & (whole < KEY_LOSS))


def key_numbers(nats: Nats) -> Numbers:
    """Of key tokens: LongPPL is the exponential of `longppl` over all documents, each with its number of them."""
    numbers = {"key_tokens": float(len(nats))}
    if len(nats):
        numbers["longppl"] = float(nats.mean())
    return numbers


def needle_numbers(with_document: Nats, without: Nats, alone: Nats) -> Numbers:
    """Of a planted value's tokens: the gain as a share of that from the fact alone, where that helps at all, and the
    chance that the model gives to a token of it (their geometric mean), which has bounds where surprise has none."""
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
