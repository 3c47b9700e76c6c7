"""Betting on documents: evidence about a mean of scores between 0 and 1 that is exact whatever the documents are.

A gambler starts with 1 and bets on every document that its score is above (or below) a mean `m`. If `m` is the true
mean the bets are fair, so at any time at all the capital reaches 1 / error with no more than that error (Ville 1939;
Waudby-Smith and Ramdas 2024). Nothing is assumed about the scatter of documents, nor about how many are lost whole. The
stake that would gain most is not known, so the capital is spread over several stakes beforehand; the one that fits soon
outgrows the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from leadline.stats.intervals import Interval
from leadline.stats.observations import FloatArray, IntArray

STAKES = np.array([0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.98])
"""Parts of the capital that are bet on each document."""
CAPITAL_ABOVE = np.array([*(0.35 / 9,) * 9, 0.15, 0.5])
"""The capital's shares of the stakes on "above": mostly on high stakes, which gain most where few documents fail."""
CAPITAL_BELOW = np.full(len(STAKES), 1 / len(STAKES))
ABOVE_SHARE = 0.8
"""The part of the allowed error that a wrong "above" gets. A line is high, so that a bet on "below" gains a multiple
from a lost document, and one on "above" little from a right one."""
_BISECTIONS = 40


def log_capital(scores: FloatArray, mean: float) -> tuple[FloatArray, FloatArray]:
    """Log capital after each document of each row (runs x documents) of bets above and below `mean`."""
    above = _grown(scores / mean, CAPITAL_ABOVE)
    below = _grown((1 - scores) / (1 - mean), CAPITAL_BELOW)
    return above, below


def decisions(scores: FloatArray, threshold: float, confidence: float = 0.95) -> IntArray:
    """-1, 0 or 1 after each document of each row: surely below the line, open, surely above it."""
    above, below = log_capital(scores, threshold)
    needed_above, needed_below = _needed(confidence)
    return np.where(above >= needed_above, 1, np.where(below >= needed_below, -1, 0)).astype(np.int64)


def betting_sequence(scores: FloatArray, confidence: float = 0.95) -> Interval:
    """The means against which no bet has won yet: a confidence sequence, read after these documents."""
    needed_above, needed_below = _needed(confidence)
    low, high = 0.0, 1.0
    if scores.any():
        low = _edge(lambda mean: _final(scores / mean, CAPITAL_ABOVE) >= needed_above)
    if (1 - scores).any():
        high = 1 - _edge(lambda rest: _final((1 - scores) / rest, CAPITAL_BELOW) >= needed_below)
    return Interval(low, max(low, high), confidence, "betting on documents")


def _grown(gains: FloatArray, capital: FloatArray) -> FloatArray:
    """Log capital over the last axis: a stake `c` turns 1 into `1 - c + c * gain`."""
    total = np.full(gains.shape, -np.inf)
    for stake, part in zip(STAKES.tolist(), capital.tolist(), strict=True):
        total = np.logaddexp(total, np.log(part) + np.cumsum(np.log1p(stake * (gains - 1)), axis=-1))
    return total


def _final(gains: FloatArray, capital: FloatArray) -> float:
    """Log capital after all documents of one run."""
    grown = np.log1p(STAKES[:, None] * (gains - 1)).sum(axis=1) + np.log(capital)
    return float(np.logaddexp.reduce(grown))


def _needed(confidence: float) -> tuple[float, float]:
    error = 1 - confidence
    return -float(np.log(error * ABOVE_SHARE)), -float(np.log(error * (1 - ABOVE_SHARE)))


def _edge(is_beaten: Callable[[float], bool]) -> float:
    """The largest mean that is beaten; the smaller a mean, the more a bet above it gains."""
    inside, beaten = 1.0, 0.0
    for _ in range(_BISECTIONS):
        middle = (inside + beaten) / 2
        inside, beaten = (inside, middle) if is_beaten(middle) else (middle, beaten)
    return beaten
