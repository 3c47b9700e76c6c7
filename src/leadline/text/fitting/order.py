"""The order of a haystack's pieces for one document: their number, the tokens up to each, and the beginnings of
sentences.

All positions count pieces of the order. Sums of tokens and beginnings of sentences are computed once, so that an
attempt at a layout is a few binary searches.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import Filler
from leadline.core.errors import SourceError
from leadline.text.fitting.bank import CountedBank

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

ATTEMPTS = 80
"""Layouts that are tried for one stretch. A handful suffices with real tokenizers."""
LAST_CANDIDATES = 12
"""Sentences that are considered for a cut in which several questions end, as it must have words that end at all."""
LONG_PIECE = 400
"""Tokens of a piece from which the ends of all its tokens are not looked up. Longer ones, such as lists without full
stops, are left out where the text has enough others: no fact could be placed inside them."""
MOST_TEXT = 4
"""Times the text needed that is drawn in search of pieces that are not long."""
SPARE_PIECES = 24
"""Pieces beyond those that fill the document, where the order depends on their number."""
SAFETY = 1.02
"""Pieces arranged for each one that is expected to be needed: a second try costs more than a few too many."""
SHARE_PIECES = 120
"""Pieces at the start of a document that are tokenised together, to see how their counts add up."""


class PieceOrder:
    """Pieces of a bank in an order, with the sums over all of it."""

    def __init__(self, counted: CountedBank, pieces: Indices) -> None:
        self.counted = counted
        self.pieces = pieces
        self.ends = np.concatenate(([0], counted.counts[pieces].cumsum()))
        """Tokens before each position, and of all pieces."""

    def __len__(self) -> int:
        return len(self.pieces)

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
    def _closed(self) -> Indices:
        """Positions before which a sentence or line ends, ascending."""
        ends_sentence = self.counted.ends_sentence
        assert ends_sentence is not None
        return ends_sentence[self.pieces].nonzero()[0] + 1

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
        return int(self.ends.searchsorted(self.ends[used] + room, side="right")) - used - 1

    def sentence_end(self, used: int, at: int) -> int:
        """The last position from `used` to `at` at which a sentence or line ends; `used` if there is none."""
        if self.counted.ends_sentence is None:
            return at
        before = int(self._closed.searchsorted(at, side="right"))
        return max(int(self._closed[before - 1]), used) if before else used

    def sentence_ends(self, start: int, stop: int) -> Indices:
        """The positions after `start` and up to `stop` at which a sentence or line ends."""
        if self.counted.ends_sentence is None:
            return np.arange(start + 1, stop + 1)
        first, end = self._closed.searchsorted([start, stop], side="right").tolist()
        return self._closed[first:end]

    def next_beginning(self, at: int) -> int:
        """The first position from `at` on at which a sentence or line begins."""
        if self.counted.ends_sentence is None or not 0 < at < len(self.pieces):
            return at
        following = int(self._closed.searchsorted(at))
        return int(self._closed[following]) if following < len(self._closed) else len(self.pieces)

    def skip(self, at: int, sentences: int) -> int:
        """The position after some sentences or lines. Beyond the end every position counts as one."""
        return int(self.skips(at, range(sentences, sentences + 1))[0])

    def skips(self, at: int, sentences: range) -> Indices:
        """The positions after some numbers of sentences or lines."""
        numbers = np.arange(sentences.start, sentences.stop)
        if self.counted.ends_sentence is None or at >= len(self.pieces):
            return at + numbers
        closed = self._closed
        numbers += int(closed.searchsorted(at + 1)) - 1
        extra = int(len(closed) and closed[-1] == len(self.pieces))
        positions = len(self.pieces) - len(closed) + extra + numbers
        inside = closed[numbers[: max(len(closed) - int(numbers[0]), 0)]]
        positions[: len(inside)] = inside
        if sentences.start == 0:
            positions[0] = at
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
        order = filler.arrange(wanted)
        counts = counted.counts[order]
        short = counts <= LONG_PIECE
        share = _share_of_counted(order[:SHARE_PIECES], counted)
        reached = (counts if short.all() else np.where(short, counts, 0)).cumsum() * share
        if len(order) < wanted or reached[-1] >= goal:
            break
        if counts.sum() * share <= 0:
            raise counted.no_tokens()
        if counts.sum() * share >= MOST_TEXT * goal:  # long pieces only, however many are drawn
            break
        wanted = int(wanted * 1.5)
    if counted.bank.uniform_joints:
        counted.arranged_tokens = float(reached[-1] / len(order))
        enough = max(int(np.searchsorted(reached, goal)) + 1, least)  # however many were arranged
        order, counts, short = order[:enough], counts[:enough], short[:enough]
    if (tokens := int(counts.sum() * share)) < room - facts:
        raise _too_short(counted, tokens, room, where)
    without_long = int(counts[short].sum() * share)
    return PieceOrder(counted, order[short] if without_long >= room + mean and not short.all() else order)


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
