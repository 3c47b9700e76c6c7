"""Cut pieces: the beginning of some text that has an exact number of tokens, to fill what whole pieces leave."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from leadline.text.fitting.bank import CountedBank
from leadline.text.fitting.order import ATTEMPTS, LONG_PIECE, PieceOrder

WHOLE_SENTENCE_ATTEMPTS = ATTEMPTS // 4
"""The first attempts, which cut a sentence from its beginning."""
CUT_CANDIDATES = 96
"""Sentences that are considered for one cut."""

_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class CutPiece:
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
        if order.counted.closes is not None:
            begin = at % len(order)
            places = _known_places(order, begin, sizes)
            if places is not None:
                return _cut_at(order, begin, places)
        elif len(sizes) == 1:
            found = _cut_one_sentence(order, at, sizes[0], no_space)
            if found is not None:
                return found
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
    if any(p < 0 for p in places) or not (anywhere or all(_ends_word(text, p) for p in places)):
        return None
    return CutPiece(text[: places[-1]], pieces, tuple(places[-1] - p for p in places))


# --- from the tokens of whole pieces ------------------------------------------------------------


def _known_places(order: PieceOrder, at: int, sizes: Sequence[int]) -> list[tuple[int, int]] | None:
    """For each size, the position of the piece that it ends in and the characters of that piece; None if that is not
    known because of a joint that is not sound, the end of the order, or a tokenizer that does not say."""
    places, ends = [], order.ends
    for size in sizes:
        if not size:
            places.append((at, 0))
            continue
        tokens = int(ends[at]) + size
        last = int(ends.searchsorted(tokens)) - 1
        if last >= len(order.pieces) or not (order.all_sound or order.sound[at:last].all()):
            return None
        end = order.counted.token_end(int(order.pieces[last]), tokens - int(ends[last]))
        if end is None:
            return None
        places.append((last, end))
    return places


def _cut_at(order: PieceOrder, at: int, places: Sequence[tuple[int, int]]) -> CutPiece | None:
    """The text from a position up to the last of some places in pieces, if words end at all of them."""
    texts, (last, end) = order.counted.bank.pieces, places[-1]
    if not _ends_word(texts[int(order.pieces[last])], end):
        return None
    written = [texts[i] for i in order.pieces[at : last + 1].tolist()]
    text = "".join(written)
    lengths = [sum(map(len, written[: piece - at])) + characters for piece, characters in places]
    if not all(_ends_word(text, length) for length in lengths):
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
        place = counted.piece_end(piece, size)
        if place and _ends_word(text, place):
            return CutPiece(text[:place], number + 1, (0,))
    return None


# --- from the tokens of the text ----------------------------------------------------------------


def _text_from(order: PieceOrder, at: int, least: int) -> tuple[str, int, int]:
    """Text of at least `least` counted tokens from a position on, and its pieces and tokens."""
    at %= len(order)
    stop = int(order.ends.searchsorted(order.ends[at] + least))
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


def _ends_word(text: str, place: int) -> bool:
    if place == 0:
        return True
    return not text[place - 1].isspace() and (place == len(text) or text[place].isspace())


def _ends_by_counting(counted: CountedBank, text: str, most: int) -> list[int]:
    """Where tokens end, for a tokenizer that does not say: by counting beginnings that end with a word. -1 where a
    token ends inside a word."""
    ends: list[int] = []
    for place in range(1, len(text) + 1):
        if _ends_word(text, place):
            count = len(counted.context.encode(text[:place]))
            ends.extend([-1] * (count - 1 - len(ends)))
            ends[count - 1 :] = [place]
            if count >= most:
                break
    return ends
