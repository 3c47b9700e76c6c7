"""How far two models' next-token distributions are apart, from the likeliest tokens that each of them lists.

KL is computed on the tokens that both list and one rest for all others, so it is never above the whole distributions'
KL (merging outcomes only lowers it), and 0 for equal lists. Everything is in nats; means have a bootstrap interval over
texts, since positions of one text are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from leadline.core.types import NextToken
from leadline.stats.intervals import Interval

LEAST_REST = 1e-9
"""The probability of everything that is not listed, at least: lists are rounded."""
LIKELY = 0.01
"""Tokens with this probability on a side are compared for the largest difference."""
DRAWS = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class TokenDrift:
    """The difference between two sides after the same tokens."""

    kl: float
    """Of the candidate from the base: the sum of p_base * log(p_base / p_candidate)."""
    same_top: bool
    nll: float | None
    """The candidate's NLL of the token that follows, minus the base's; None where a side does not list it."""
    largest: float
    """The largest difference of a likely token's log-probability."""


def token_drift(base: NextToken, candidate: NextToken) -> TokenDrift:
    common = base.top.keys() & candidate.top.keys()
    ours, theirs = ({token: math.exp(side.top[token]) for token in common} for side in (base, candidate))
    rest = [max(LEAST_REST, 1.0 - sum(side.values())) for side in (ours, theirs)]
    kl = sum(p * (base.top[token] - candidate.top[token]) for token, p in ours.items())
    kl += rest[0] * math.log(rest[0] / rest[1])
    likely = [token for token in common if max(ours[token], theirs[token]) >= LIKELY]
    largest = max((abs(base.top[token] - candidate.top[token]) for token in likely), default=0.0)
    nll = None if base.actual is None or candidate.actual is None else base.actual - candidate.actual
    return TokenDrift(max(0.0, kl), _first(base.top) == _first(candidate.top), nll, largest)


def _first(top: Mapping[str, float]) -> str:
    return max(top, key=lambda token: (top[token], token), default="")


def top_margin(after: NextToken) -> float | None:
    """Nats between the likeliest token and the second."""
    logprobs = sorted(after.top.values(), reverse=True)
    return logprobs[0] - logprobs[1] if len(logprobs) > 1 else None


@dataclass(frozen=True, slots=True)
class DriftMean:
    """A mean over positions, with its interval over texts; None where no position had a number."""

    value: float | None
    interval: Interval | None
    positions: int


@dataclass(frozen=True, slots=True)
class DriftSummary:
    """Some positions of some texts, such as those of one bucket."""

    name: str
    texts: int
    kl: DriftMean
    same_top: DriftMean
    nll: DriftMean
    largest: float


Positions = Sequence[tuple[str, TokenDrift]]
"""(the text that a position belongs to, its drift)."""


def summarise_drift(name: str, positions: Positions) -> DriftSummary:
    return DriftSummary(
        name,
        len({text for text, _ in positions}),
        clustered_mean([(text, drift.kl) for text, drift in positions]),
        clustered_mean([(text, float(drift.same_top)) for text, drift in positions]),
        clustered_mean([(text, drift.nll) for text, drift in positions if drift.nll is not None]),
        max((drift.largest for _, drift in positions), default=0.0),
    )


def clustered_mean(values: Iterable[tuple[str, float]]) -> DriftMean:
    """The mean of all values; the interval is a percentile bootstrap that draws whole texts."""
    sums: dict[str, list[float]] = {}
    for text, value in values:
        total = sums.setdefault(text, [0.0, 0.0])
        total[0] += value
        total[1] += 1
    if not sums:
        return DriftMean(None, None, 0)
    table = np.array(list(sums.values()))
    total, count = table.sum(0)
    if len(table) < 2:
        return DriftMean(float(total / count), None, int(count))
    chosen = np.random.default_rng(len(table)).integers(0, len(table), (DRAWS, len(table)))
    drawn = table[chosen].sum(1)
    means = np.sort(drawn[:, 0] / drawn[:, 1])
    tail = int((1 - CONFIDENCE) / 2 * DRAWS)
    interval = Interval(float(means[tail]), float(means[-1 - tail]), CONFIDENCE, "bootstrap over texts")
    return DriftMean(float(total / count), interval, int(count))
