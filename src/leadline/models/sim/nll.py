"""How surprised a simulated model is: calm at text that reads like text, whatever its profile, and the less surprised
at what it has read before the better its profile reads there.

Every token has a plain surprise of its own, drawn from what it is and what stands before it. A token that goes on as
the same words did earlier in the context is expected with the chance that the profile gives to that place at that
length. So with the archetype `cliff` perplexity stays as it is beyond the window, and retrieval gain falls to nothing:
the perplexity trap, planted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from leadline.core.contracts import Continuation, Nats
    from leadline.core.types import Ids

PLAIN_NATS = 3.0
"""Mean surprise at a token of which nothing is known."""
SPREAD_NATS = 1.0
CERTAINTY = 0.95
"""Of a model that remembers: how sure it is of the next token."""
RECOGNISED = 8
"""Tokens in a row by which a place is known again."""

Chance = Callable[[int, float], float]
"""From the tokens in the context and the place in it (0 first, 1 last) to the chance to read right there."""


def surprise_at(ids: Ids, wanted: Sequence[int], chance: Chance) -> Nats:
    """Nats of the tokens at some places of a text that is read from its beginning."""
    plain = _plain(ids)
    copies = _copies(ids, wanted)
    nats = plain[np.asarray(wanted, np.int64)].copy()
    for number, (token, copy) in enumerate(zip(wanted, copies, strict=True)):
        if copy >= 0:
            known = chance(token + 1, copy / max(token - 1, 1))
            nats[number] = -np.log(known * CERTAINTY + (1 - known) * np.exp(-nats[number]))
    return nats


def continuation_surprise(ids: Ids, continuation: Continuation, chance: Chance) -> Nats:
    text = np.concatenate([ids[: continuation.cut], continuation.ids])
    return surprise_at(text, range(continuation.cut + continuation.start, len(text)), chance)


def _plain(ids: Ids) -> Nats:
    """Even between PLAIN - SPREAD and PLAIN + SPREAD, from a hash of the token and the two before it."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for back, odd in ((1, 0xC2B2AE3D27D4EB4F), (2, 0x165667B19E3779F9)):
        mixed[back:] ^= ids[:-back].astype(np.uint64) * np.uint64(odd)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(32)
    share = (mixed >> np.uint64(11)).astype(np.float64) / 2.0**53
    return PLAIN_NATS + SPREAD_NATS * (2 * share - 1)


def _copies(ids: Ids, wanted: Sequence[int]) -> list[int]:
    """For each place, where the same words went on the same way before; -1 where they did not."""
    size = RECOGNISED + 1
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
        start = token - RECOGNISED
        copy = int(earliest[start]) if start >= 0 else start
        found.append(copy + RECOGNISED if 0 <= copy < start and np.array_equal(windows[copy], windows[start]) else -1)
    return found
