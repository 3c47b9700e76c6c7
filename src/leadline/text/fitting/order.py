"""The order of a haystack's pieces for one document: their number, the tokens up to each, and the beginnings of
sentences.

All positions count pieces of the order. Sums of tokens and beginnings of sentences are computed once, so that an
attempt at a layout is a few binary searches, in lists where there are few pieces: those are faster than arrays.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from leadline.core.drafts import Filler
from leadline.core.errors import SourceError
from leadline.text.fitting.bank import LONG_PIECE, CountedBank

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

ATTEMPTS = 80
"""Layouts that are tried for one stretch. A handful suffices with real tokenizers."""
LAST_CANDIDATES = 12
"""Sentences that are considered for a cut in which several questions end, as it must have words that end at all."""
MOST_TEXT = 4
"""Times the text needed that is drawn in search of pieces that are not long."""
SPARE_PIECES = 24
"""Pieces beyond those that fill the document, where the order depends on their number."""
SAFETY = 1.02
"""Pieces arranged for each one that is expected to be needed: a second try costs more than a few too many."""
FEW_PIECES = 4096
"""Numbers of so few pieces are kept as lists."""
SHARE_PIECES = 120
"""Pieces at the start of a document that are tokenised together, to see how their counts add up."""


class Integers(Sequence[int]):
    """An array as a sequence of integers; only those that are needed become numbers of Python."""

    def __init__(self, values: Indices) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def __getitem__(self, at: int) -> int: ...
    @overload
    def __getitem__(self, at: slice) -> Integers: ...
    def __getitem__(self, at: int | slice) -> int | Integers:
        return Integers(self._values[at]) if isinstance(at, slice) else int(self._values[at])


def as_integers(values: Indices) -> Sequence[int]:
    """A list if there are few, as that is the fastest to search in."""
    return values.tolist() if len(values) <= FEW_PIECES else Integers(values)


class PieceOrder:
    """Pieces of a bank in an order, with the sums over all of it."""

    def __init__(self, counted: CountedBank, pieces: Indices, ends: Indices | None = None) -> None:
        self.counted = counted
        self.pieces = pieces
        self.ends = np.concatenate(([0], counted.counts[pieces].cumsum())) if ends is None else ends
        """Tokens before each position, and of all pieces."""

    def __len__(self) -> int:
        return len(self.pieces)

    def first(self, count: int) -> PieceOrder:
        """The first pieces of the order."""
        return PieceOrder(self.counted, self.pieces[:count], self.ends[: count + 1])

    @cached_property
    def sound(self) -> npt.NDArray[np.bool_]:
        """Whether the joint of each piece and the next is sound."""
        if not len(self.pieces):
            return np.zeros(0, np.bool_)
        sound = self.counted.joints(self.pieces)
        self.counted.learn_groups(self.pieces, sound)
        return sound

    @cached_property
    def all_sound(self) -> bool:
        return bool(self.sound.all())

    @cached_property
    def sums(self) -> Sequence[int]:
        """`ends`, to search in."""
        return as_integers(self.ends)

    @cached_property
    def breaks(self) -> Sequence[int]:
        """Positions at which sentences or lines begin or end, ascending from 0."""
        ends_sentence = self.counted.ends_sentence
        if ends_sentence is None:
            return range(len(self.pieces) + 1)
        return as_integers(self._breaks)

    @cached_property
    def break_sums(self) -> Sequence[int]:
        """The tokens before each of these positions."""
        return self.sums if self.counted.ends_sentence is None else as_integers(self.ends[self._breaks])

    @cached_property
    def _breaks(self) -> Indices:
        assert self.counted.ends_sentence is not None
        return np.concatenate(([0], self.counted.ends_sentence[self.pieces].nonzero()[0] + 1))

    def left(self, used: int) -> int:
        """Tokens from a position on."""
        return int(self.ends[-1] - self.ends[min(used, len(self.pieces))])

    def run(self, start: int, stop: int) -> tuple[Indices, npt.NDArray[np.bool_]]:
        """Some pieces, and for each but the last whether its joint with the next one is sound."""
        return self.pieces[start:stop], self.sound[start : max(stop - 1, start)]

    def whole(self, used: int, room: int) -> int:
        """How many pieces from a position on have no more than `room` tokens."""
        if used >= len(self.pieces):
            return 0
        return bisect_right(self.sums, self.sums[used] + room) - used - 1

    def sentence_end(self, used: int, at: int) -> int:
        """The last position from `used` to `at` at which a sentence or line ends; `used` if there is none."""
        if self.counted.ends_sentence is None:
            return at
        return max(self.breaks[bisect_right(self.breaks, at) - 1], used)

    def next_beginning(self, at: int) -> int:
        """The first position from `at` on at which a sentence or line begins."""
        if self.counted.ends_sentence is None or not 0 < at < len(self.pieces):
            return at
        following = bisect_left(self.breaks, at)
        return self.breaks[following] if following < len(self.breaks) else len(self.pieces)

    def skip(self, at: int, sentences: int) -> int:
        """The position after some sentences or lines. Beyond the end every position counts as one."""
        return self.skips(at, range(sentences, sentences + 1))[0]

    def skips(self, at: int, sentences: range) -> Sequence[int]:
        """The positions after some numbers of sentences or lines."""
        if self.counted.ends_sentence is None or at >= len(self.pieces):
            return [at + number for number in sentences]
        breaks, size = self.breaks, len(self.pieces)
        first = bisect_right(breaks, at) - 1  # the position after n sentences is the one of number first + n
        positions = [at] if sentences.start == 0 else []
        positions += breaks[first + sentences.start + len(positions) : first + sentences.stop]
        beyond = size - len(breaks) + (breaks[-1] == size) + first
        positions += [beyond + number for number in sentences[len(positions) :]]
        return positions


def order_pieces(
    filler: Filler, counted: CountedBank, room: int, facts: int, where: str, *, stretches: int = 1
) -> PieceOrder:
    """Pieces in the haystack's order for `room` tokens, of which facts take up `facts`. There are more of them, because
    attempts at a layout skip some in each stretch."""
    if not filler.prefix_stable:
        return PieceOrder(counted, _order_of_fixed_count(filler, counted, room, where))
    mean = max(counted.mean_tokens, 0.5)
    spare = stretches * (ATTEMPTS + LAST_CANDIDATES)
    goal = room + spare * mean
    least = wanted = int(1.2 * max(room, 0) / mean) + spare
    if (
        counted.bank.uniform_joints
    ):  # some pieces are drawn more often than others: the last document says how many are needed
        wanted = max(least, int(SAFETY * goal / max(counted.arranged_tokens, 0.5)))
    while True:
        order = PieceOrder(counted, filler.arrange(wanted))
        counts = counted.counts[order.pieces] if counted.has_long_pieces else None
        reached = order.ends[1:] if counts is None else np.where(counts > LONG_PIECE, 0, counts).cumsum()
        share = _share_of_counted(order.pieces[:SHARE_PIECES], counted)
        reached, tokens = reached if share == 1 else reached * share, order.ends[-1] * share
        if len(order) < wanted or reached[-1] >= goal:
            break
        if tokens <= 0:
            raise counted.no_tokens()
        if tokens >= MOST_TEXT * goal:  # long pieces only, however many are drawn
            break
        wanted = int(wanted * 1.5)
    if counted.bank.uniform_joints:
        counted.arranged_tokens = float(reached[-1] / len(order))
        order = order.first(max(int(reached.searchsorted(goal)) + 1, least))  # however many were arranged
    if (tokens := int(order.ends[-1] * share)) < room - facts:
        raise _too_short(counted, tokens, room, where)
    if counts is None:
        return order
    short = PieceOrder(counted, order.pieces[counts[: len(order)] <= LONG_PIECE])
    return short if int(short.ends[-1] * share) >= room + mean else order


def longer_order(order: PieceOrder, filler: Filler, tokens: int) -> PieceOrder:
    """The order with this many tokens more, or all that the haystack has."""
    counted, goal = order.counted, int(order.ends[-1]) + tokens
    while filler.prefix_stable and order.ends[-1] < goal:
        pieces = filler.arrange(len(order) + int(1.2 * tokens / max(counted.mean_tokens, 0.5)) + SPARE_PIECES)
        if not np.array_equal(pieces[: len(order)], order.pieces):  # long pieces were left out
            pieces = pieces[counted.counts[pieces] <= LONG_PIECE]
        if len(pieces) <= len(order) or not np.array_equal(pieces[: len(order)], order.pieces):
            break
        order = PieceOrder(counted, pieces)
    return order


def _share_of_counted(start: Indices, counted: CountedBank) -> float:
    """True tokens for each counted one. Below 1 where a tokenizer joins what the bank holds apart, for example the
    parts of a line in a tokenizer that does not split words."""
    bank = counted.bank
    if bank.contiguous or bank.ends_sentence is None or not len(start) or counted.joints(start).all():
        return 1.0  # whole sentences or lines, or sound joints
    text = "".join([bank.pieces[i] for i in start.tolist()])
    return len(counted.context.encode(text, followed=True)) / max(int(counted.counts[start].sum()), 1)


def _order_of_fixed_count(filler: Filler, counted: CountedBank, room: int, where: str) -> Indices:
    """For fillers whose order depends on the number of pieces: the largest number that fits, by bisection."""

    def tokens(count: int) -> int:
        return int(counted.counts[filler.arrange(count)].sum())

    low, high = 0, 1
    while tokens(high) <= room:
        low, high = high, high * 2
        if filler.limit is not None and low >= filler.limit:
            raise _too_short(counted, tokens(filler.limit), room, where)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tokens(middle) <= room else (low, middle)
    # Spare pieces for cuts, other than the whole ones if there are any.
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
