"""NLL of simulated models: steady for ordinary text, and lower for text that was read before.

Every token has a base NLL drawn from itself and the two tokens before it. A token that continues a passage seen earlier
in the context is predicted with the chance that the profile gives to that depth at that length. With the archetype
`cliff`, perplexity therefore stays level beyond the window while retrieval gain falls to zero: the perplexity trap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leadline.core.contracts import Continuation, Nats
    from leadline.core.types import Ids

BASE_NATS = 3.0
"""Mean NLL of a token that was not seen before."""
SPREAD_NATS = 1.0
CERTAINTY = 0.95
"""Probability of the next token of a passage that is remembered."""
MATCHED_TOKENS = 8
"""Tokens in a row that must be equal for a passage to count as seen before."""

Chance = Callable[[int, float], float]
"""From the tokens in the context and a depth (0 first, 1 last) to the probability to read right there."""


def span_nll(ids: Ids, wanted: Sequence[int], chance: Chance) -> Nats:
    """NLL in nats of the tokens at the `wanted` positions of a text."""
    base = _base(ids)
    copies = _copies(ids, wanted)
    nats = base[np.asarray(wanted, np.int64)].copy()
    for number, (token, copy) in enumerate(zip(wanted, copies, strict=True)):
        if copy >= 0:
            known = chance(token + 1, copy / max(token - 1, 1))
            nats[number] = -np.log(known * CERTAINTY + (1 - known) * np.exp(-nats[number]))
    return nats


def continuation_nll(ids: Ids, continuation: Continuation, chance: Chance) -> Nats:
    text = np.concatenate([ids[: continuation.cut], continuation.ids])
    return span_nll(text, range(continuation.cut + continuation.start, len(text)), chance)


def _base(ids: Ids) -> Nats:
    """Uniform between BASE - SPREAD and BASE + SPREAD, from a hash of the token and the two before it."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for back, odd in ((1, 0xC2B2AE3D27D4EB4F), (2, 0x165667B19E3779F9)):
        mixed[back:] ^= ids[:-back].astype(np.uint64) * np.uint64(odd)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return BASE_NATS + SPREAD_NATS * (2 * share - 1)


def _copies(ids: Ids, wanted: Sequence[int]) -> list[int]:
    """For each wanted position, an earlier position where the same tokens led to the same token, or -1."""
    size = MATCHED_TOKENS + 1
    if len(ids) <= size or not len(wanted):
        return [-1] * len(wanted)
    windows = np.lib.stride_tricks.sliding_window_view(ids, size)
    hashes = windows.astype(np.uint64) @ (np.uint64(0x100000001B3) ** np.arange(size, dtype=np.uint64))
    order = np.argsort(hashes, kind="stable")
    ranked = hashes[order]
    first = order[np.searchsorted(ranked, ranked, side="left")]
    earliest = np.empty(len(hashes), np.int64)
    earliest[order] = first
    found = []
    for token in wanted:
        start = token - MATCHED_TOKENS
        copy = int(earliest[start]) if start >= 0 else start
        found.append(
            copy + MATCHED_TOKENS if 0 <= copy < start and np.array_equal(windows[copy], windows[start]) else -1
        )
    return found
