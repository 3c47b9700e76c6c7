"""The rest that whole pieces leave: a cut piece with an exact number of tokens, and the places of facts and of the cut
piece among the whole ones."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leadline.text.fitting.bank import LONG_PIECE, CountedBank
from leadline.text.fitting.joints import ends_word
from leadline.text.fitting.order import ATTEMPTS, PieceOrder

if TYPE_CHECKING:
    from leadline.core.types import Indices

WHOLE_SENTENCE_ATTEMPTS = ATTEMPTS // 4
"""The first attempts, which cut a sentence from its beginning."""
CUT_CANDIDATES = 96
"""Sentences that are considered for one cut."""
CUT_PLACES = 16
"""Boundaries before a fact at the end that are considered for the cut piece."""

_WORD = re.compile(r"\s*\S+")


class CutPiece(NamedTuple):
    """The beginning of some text that has an exact number of tokens."""

    text: str
    pieces: int
    """Pieces of the order that it was taken from."""
    offsets: tuple[int, ...]
    """For each wanted size, the characters to leave off at the end of `text`."""


def cut_piece(
    order: PieceOrder, at: int, sizes: Sequence[int], attempt: int, *, no_space: bool = False
) -> CutPiece | None:
    """The text from position `at` of the order on, cut so that it has beginnings of all wanted sizes in tokens.

    Cuts are at the ends of words. If whole sentences do not give the wanted sizes, later attempts begin some words into
    a sentence (a haystack may have only one), and the last attempts cut anywhere. `sizes` ascends; its last is above 0.
    `no_space` when the text must begin without white space.
    """
    if attempt < WHOLE_SENTENCE_ATTEMPTS:
        if order.counted.ends_sentence is not None:
            begin = at % len(order)
            places = _known_places(order, begin, sizes)
            if places is not None:
                return _cut_at(order, begin, places)
        elif len(sizes) == 1:
            cut = _cut_one_sentence(order, at, sizes[0], no_space)
            if cut is not None:
                return cut
    return cut_by_tokenising(order, at, sizes, attempt)


def cut_by_tokenising(order: PieceOrder, at: int, sizes: Sequence[int], attempt: int) -> CutPiece | None:
    """`cut_piece` of any text: the ends of its tokens are looked up in the text that is to be cut."""
    counted = order.counted
    skipped_words = 1 + attempt % 16 if attempt >= WHOLE_SENTENCE_ATTEMPTS else 0
    anywhere = attempt >= ATTEMPTS * 3 // 4
    for factor in (1, 2, 4):  # a bank may count more tokens than its pieces have side by side
        text, pieces, tokens = _text_from(order, at, factor * (sizes[-1] + 4 * skipped_words))
        if skipped_words:
            text = text[[m.start() for m in islice(_WORD.finditer(text), skipped_words + 1)][-1] :]
        ends = _first_ends(counted, text, sizes[-1], len(text) / max(tokens, 1))
        if len(ends) >= sizes[-1]:
            break
    else:
        return None
    places = [ends[size - 1] if size else 0 for size in sizes]
    if any(p < 0 for p in places) or not (anywhere or all(ends_word(text, p) for p in places)):
        return None
    return CutPiece(text[: places[-1]], pieces, tuple(places[-1] - p for p in places))


# --- from the tokens of whole pieces ------------------------------------------------------------


def may_end_word(order: PieceOrder, positions: Sequence[int], size: int) -> Iterator[bool]:
    """For each position of the order, whether a word may end `size` tokens after it; False where the first attempts
    of `cut_piece` would find that none does. In a tokenizer of bytes that is at most places."""
    if order.counted.ends_sentence is None or not order.all_sound:
        yield from (True for _ in positions)
        return
    sums, pieces, may_end = order.sums, order.pieces, order.counted.may_end_word
    for at in positions:
        tokens = sums[at % len(pieces)] + size
        last = bisect_left(sums, tokens) - 1
        yield last >= len(pieces) or may_end(int(pieces[last]), tokens - sums[last])


def _known_places(order: PieceOrder, at: int, sizes: Sequence[int]) -> list[tuple[int, int]] | None:
    """For each size, the position of the piece that it ends in and the characters of that piece; None if that is not
    known because of a joint that is not sound, the end of the order, or a tokenizer that does not say."""
    places, sums = [], order.sums
    for size in sizes:
        if not size:
            places.append((at, 0))
            continue
        tokens = int(sums[at]) + size
        last = bisect_left(sums, tokens) - 1
        if last >= len(order.pieces) or not (order.all_sound or order.sound[at:last].all()):
            return None
        end = order.counted.token_end(int(order.pieces[last]), tokens - int(sums[last]))
        if end is None:
            return None
        places.append((last, end))
    return places


def _cut_at(order: PieceOrder, at: int, places: Sequence[tuple[int, int]]) -> CutPiece | None:
    """The text from a position up to the last of some places in pieces, if words end at all of them."""
    texts, (last, end) = order.counted.bank.pieces, places[-1]
    if not ends_word(texts[int(order.pieces[last])], end):
        return None
    written = [texts[i] for i in order.pieces[at : last + 1].tolist()]
    text = "".join(written)
    lengths = [sum(map(len, written[: piece - at])) + characters for piece, characters in places]
    if not all(ends_word(text, length) for length in lengths):
        return None
    return CutPiece(text[: lengths[-1]], last + 1 - at, tuple(lengths[-1] - length for length in lengths))


def _cut_one_sentence(order: PieceOrder, at: int, size: int, no_space: bool) -> CutPiece | None:
    """The next sentence with a beginning of the wanted size; wraps around at the end of the order."""
    counted, pieces = order.counted, order.pieces
    count, at = min(CUT_CANDIDATES, len(pieces)), at % len(pieces)
    window = np.concatenate([pieces[at : at + count], pieces[: max(at + count - len(pieces), 0)]])
    counts = counted.counts[window]
    candidates = (counts >= size) & (counts <= LONG_PIECE) & (counted.begins_with_space[window] != no_space)
    for number in np.flatnonzero(candidates).tolist():
        piece = int(window[number])
        text = counted.bank.pieces[piece]
        end = counted.piece_end(piece, size)
        if end and ends_word(text, end):
            return CutPiece(text[:end], number + 1, (0,))
    return None


# --- from the tokens of the text ----------------------------------------------------------------


def _text_from(order: PieceOrder, at: int, least: int) -> tuple[str, int, int]:
    """Text of at least `least` counted tokens from a position on, and its pieces and tokens."""
    at %= len(order)
    stop = bisect_left(order.sums, order.sums[at] + least)
    if stop <= len(order):
        some = order.pieces[at:stop]
    else:  # on from the beginning of the order
        more = least - int(order.ends[-1] - order.ends[at])
        some = np.concatenate([order.pieces[at:], order.pieces[: min(int(order.ends.searchsorted(more)), at)]])
    return "".join(order.counted.texts(some)), len(some), int(order.counted.counts[some].sum())


def _first_ends(counted: CountedBank, text: str, most: int, characters_per_token: float) -> Sequence[int]:
    """Where the first `most` tokens end; a long text is not tokenised much further than that."""
    enough = int(2 * most * characters_per_token) + 100
    ends = counted.context.ends(text[:enough])
    if ends is None:
        return _ends_by_counting(counted, text, most)
    return ends if len(ends) > most or enough >= len(text) else counted.context.ends(text) or ()


def _ends_by_counting(counted: CountedBank, text: str, most: int) -> list[int]:
    """Where tokens end, for a tokenizer that does not say: by counting beginnings that end with a word. -1 where a
    token ends inside a word."""
    ends: list[int] = []
    for end in range(1, len(text) + 1):
        if ends_word(text, end):
            count = len(counted.context.encode(text[:end]))
            ends.extend([-1] * (count - 1 - len(ends)))
            ends[count - 1 :] = [end]
            if count >= most:
                break
    return ends


# --- places of facts and of the cut piece -------------------------------------------------------


class Boundaries:
    """The boundaries of some whole pieces, and those of them at which facts may be."""

    def __init__(self, tokens: Indices, free: Sequence[int], free_tokens: Sequence[int]) -> None:
        """`tokens` has those of the pieces before each boundary; `free` the numbers of the free boundaries, and
        `free_tokens` the tokens before these."""
        self.tokens = tokens
        self.free = free
        self.free_tokens = free_tokens

    def choose_places(self, wanted: Sequence[float], cut_tokens: int, end: int) -> tuple[tuple[int, ...], int]:
        """The boundary nearest to each wanted position, and one for the cut piece that no fact is at.

        The cut piece is at the last boundary. If a fact goes to `end`, next to it, the cut piece is at an earlier
        boundary instead: where the worst placed fact misses its position least.
        """
        last = len(self.tokens) - 1
        if not self.free:
            tokens = self.tokens.tolist()
            return _ascending(_nearest(tokens, want, 0, last + 1) for want in wanted), last
        tail = bisect_left(self.free, end)
        taken = _ascending(self.free[self._nearest_free(want, cut_tokens, tail, tail)] for want in wanted)
        if not cut_tokens:
            return taken, last
        before = self.free[max(tail - CUT_PLACES - len(wanted), 0) : tail] if end in taken else []
        candidates = [place for place in reversed(before) if place not in taken][:CUT_PLACES]
        if not candidates:
            return self._places_beside(last, wanted, cut_tokens)[1], last
        # Facts before all candidates have their places, wherever the cut piece is.
        first = bisect_left(self.free, candidates[-1])
        early = len(list(takewhile(lambda want: bisect_left(self.free_tokens, want) < first, wanted)))
        missed = max(
            (abs(self.tokens[place] - want) for place, want in zip(taken[:early], wanted, strict=False)), default=0
        )
        candidate_places = [(self._places_beside(place, wanted[early:], cut_tokens), place) for place in candidates]
        (_, places), cut_place = min(candidate_places, key=lambda option: max(option[0][0], missed))
        return (*taken[:early], *places), cut_place

    def _places_beside(self, cut_place: int, wanted: Sequence[float], cut_tokens: int) -> tuple[float, tuple[int, ...]]:
        """By how much the worst placed fact misses its position, and the places of facts, when the cut piece is at
        `cut_place`. No fact is there, nor at the next free boundary: one whole sentence after a cut one would read as
        its end."""
        near = bisect_left(self.free, cut_place)
        if near == 0 and len(self.free) <= 2:  # no free boundary is left
            starts = [int(n) + cut_tokens * (place > cut_place) for place, n in enumerate(self.tokens)]
            places = _ascending(_nearest(starts, want, 0, len(starts)) for want in wanted)
        else:
            places = _ascending(self.free[self._nearest_free(want, cut_tokens, near, near + 2)] for want in wanted)
        starts = [int(self.tokens[place]) + cut_tokens * (place > cut_place) for place in places]
        return max((abs(start - want) for start, want in zip(starts, wanted, strict=True)), default=0.0), places

    def _nearest_free(self, want: float, cut_tokens: int, stop: int, start: int) -> int:
        """The number of the free boundary nearest to a wanted position, before number `stop` or from `start` on, where
        the cut piece precedes it. There is one."""
        tokens = self.free_tokens
        if start >= len(tokens):
            return _nearest(tokens, want, 0, stop)
        high = _nearest(tokens, want - cut_tokens, start, len(tokens))
        if not stop:
            return high
        low = _nearest(tokens, want, 0, stop)
        return high if abs(tokens[high] + cut_tokens - want) < abs(tokens[low] - want) else low


def _nearest(tokens: Sequence[int], want: float, start: int, stop: int) -> int:
    """The number of the value nearest to a wanted one from `start` to `stop`; the first of equally near ones."""
    at = bisect_left(tokens, want, start, stop)
    if at > start and (at == stop or want - tokens[at - 1] <= tokens[at] - want):
        at -= 1
        while at > start and tokens[at - 1] == tokens[at]:
            at -= 1
    return at


def _ascending(places: Iterable[int]) -> tuple[int, ...]:
    """The places, none before the one of the fact before."""
    ascending: list[int] = []
    for place in places:
        ascending.append(max(place, ascending[-1]) if ascending else place)
    return tuple(ascending)
