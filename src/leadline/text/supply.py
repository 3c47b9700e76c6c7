"""How much of a haystack a document takes: enough of its order for the longest question, or an error that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from leadline.core.errors import SourceError
from leadline.core.types import Filler
from leadline.text.bank import CountedBank

if TYPE_CHECKING:
    from leadline.core.types import Indices

SPARE_PIECES = 24
"""Beyond those that fill the document, where the order depends on how many there are."""


def supply(filler: Filler, counted: CountedBank, room: int, elsewhere: int, where: str) -> Indices:
    """Pieces in the haystack's order for `room` tokens, of which `elsewhere` are taken up by facts."""
    counts = counted.counts
    if not filler.prefix_stable:
        return _whole_order(filler, counted, room, where)
    typical = max(counted.typical, 0.5)
    wanted = int(1.2 * max(room, 0) / typical) + 96
    thrift = _thrift(filler, counted)
    while True:
        order = filler.arrange(wanted)
        tokens = int(counts[order].sum() * thrift)
        if len(order) < wanted or tokens >= room + 64 * typical:
            break
        wanted = int(wanted * 1.5)
    if tokens < room - elsewhere:
        raise _too_short(counted, tokens, room, where)
    return order


def _thrift(filler: Filler, counted: CountedBank) -> float:
    """True tokens for each counted one. Below 1 where a tokenizer joins what the bank holds apart, as when the
    parts of a line are counted one by one and words are not cut up."""
    bank = counted.bank
    if bank.contiguous or bank.closes is None:
        return 1.0  # whole sentences and lines, whose joints are proven
    start = filler.arrange(120)
    text = "".join([bank.pieces[i] for i in start.tolist()])
    return len(counted.encode(text, followed=True)) / max(int(counted.counts[start].sum()), 1)


def _whole_order(filler: Filler, counted: CountedBank, room: int, where: str) -> Indices:
    """For fillers whose order depends on how much there is: the largest count that fits, by bisection."""
    counts = counted.counts
    low, high = 0, 1
    while int(counts[filler.arrange(high)].sum()) <= room:
        low, high = high, high * 2
        if filler.limit is not None and low >= filler.limit:
            raise _too_short(counted, int(counts[filler.arrange(filler.limit)].sum()), room, where)
    while high - low > 1:
        middle = (low + high) // 2
        if int(counts[filler.arrange(middle)].sum()) <= room:
            low = middle
        else:
            high = middle
    # Spare pieces for cuts: such as the whole ones are not, where there are any.
    whole, more = filler.arrange(low), filler.arrange(low + SPARE_PIECES)
    spare = more[~np.isin(more, whole)]
    return np.concatenate([whole, spare if len(spare) else filler.arrange(high)[low:]])


def _too_short(counted: CountedBank, tokens: int, room: int, where: str) -> SourceError:
    return SourceError(
        f"the haystack {counted.bank.name!r} has {tokens:,} tokens and the document needs about {room:,}: "
        f"{room - tokens:,} are missing",
        where=where,
        fix="give more text, a shorter length, or repeat=true to use the text more than once",
    )
