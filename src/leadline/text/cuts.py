"""Cut pieces: a beginning of a piece that is exactly so many tokens long, to take up what whole pieces leave over."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.text.bank import CountedBank
from leadline.text.contexts import encode_after

if TYPE_CHECKING:
    from leadline.core.types import Indices


ATTEMPTS = 80
"""How many layouts are tried for one stretch of a document. A handful suffices with real tokenizers."""

FIRST_ATTEMPTS = ATTEMPTS // 4
"""Of them, those that cut a sentence from its beginning."""

LOOKED_AT = 96
"""Sentences that are looked at for one cut."""
LONG = 400
"""Tokens from which a piece is not worth being looked up whole."""

_WORD = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class CutPiece:
    text: str
    pieces: int
    """How many pieces of the order it was taken from."""
    offsets: tuple[int, ...]
    """For each wanted size, the characters to leave off at the end of `text`."""


def cut_piece(
    counted: CountedBank, order: Indices, at: int, wanted: Sequence[int], attempt: int, *, bare: bool = False
) -> CutPiece | None:
    """The text from piece `at` of the order on, cut so that every wanted number of tokens is a beginning of it.

    Cuts fall at word ends. Where whole sentences do not give the wanted sizes, later attempts begin some words into one
    (a haystack may have but one sentence), and the last ones cut anywhere. `wanted` ascends; its last is above 0.
    """
    if len(wanted) == 1 and attempt < FIRST_ATTEMPTS and counted.closes is None:
        found = _one_sentence(counted, order, at, wanted[0], bare)
        if found is not None:
            return found
    skipped = 1 + attempt % 16 if attempt >= FIRST_ATTEMPTS else 0
    anywhere = attempt >= ATTEMPTS * 3 // 4
    for generous in (1, 2, 4):  # a bank may count more tokens than its pieces have side by side
        text, pieces, tokens = _from(counted, order, at, generous * (wanted[-1] + 4 * skipped))
        if skipped:
            text = text[[m.start() for m in _WORD.finditer(text)][: skipped + 1][-1] :]
        ends = _ends(counted, text, wanted[-1], len(text) / max(tokens, 1))
        if len(ends) >= wanted[-1]:
            break
    else:
        return None
    places = [ends[w - 1] if w else 0 for w in wanted]
    if any(p < 0 for p in places) or not (anywhere or all(_ends_a_word(text, p) for p in places)):
        return None
    return CutPiece(text[: places[-1]], pieces, tuple(places[-1] - p for p in places))


def _one_sentence(counted: CountedBank, order: Indices, at: int, wanted: int, bare: bool) -> CutPiece | None:
    """The next sentence of which a beginning has the wanted size, by ends of tokens that are looked up once a sentence.

    `bare` when it follows white space, so that it must begin without any, as it is to be used as it stands.
    """
    window = _window(order, at)
    counts = counted.counts[window]
    fitting = (counts >= wanted) & (counts <= LONG) & (counted.begins_with_space[window] != bare)
    for number in np.flatnonzero(fitting).tolist():
        piece = int(window[number])
        text = counted.bank.pieces[piece]
        place = counted.piece_end(piece, wanted)
        if place and _ends_a_word(text, place):
            return CutPiece(text[:place], number + 1, (0,))
    return None


def _window(order: Indices, at: int) -> Indices:
    """The sentences that are looked at from a place in the order on; after its end comes its beginning."""
    size = min(LOOKED_AT, len(order))
    at %= len(order)
    window = order[at : at + size]
    return window if len(window) == size else np.concatenate([window, order[: size - len(window)]])


def _from(counted: CountedBank, order: Indices, at: int, least: int) -> tuple[str, int, int]:
    """Text of at least so many counted tokens from a place in the order on, with its pieces and tokens."""
    text, pieces, tokens = "", 0, 0
    while tokens < least and pieces < len(order):
        piece = int(order[(at + pieces) % len(order)])
        text += counted.bank.pieces[piece]
        tokens += int(counted.starts[piece + 1] - counted.starts[piece])
        pieces += 1
    return text, pieces, tokens


def _ends(counted: CountedBank, text: str, most: int, characters_per_token: float) -> Sequence[int]:
    """Where the first `most` tokens end; a long piece is not tokenised beyond what is needed."""
    enough = int(2 * most * characters_per_token) + 100
    ends = counted.ends(text[:enough])
    if ends is None:
        return _ends_by_counting(counted.tokenizer, text, most)
    return ends if len(ends) > most or enough >= len(text) else counted.ends(text) or ()


def _ends_a_word(text: str, place: int) -> bool:
    if place == 0:
        return True
    return not text[place - 1].isspace() and (place == len(text) or text[place].isspace())


def _ends_by_counting(tokenizer: Tokenizer, text: str, most: int) -> list[int]:
    """Where tokens end, as far as counting beginnings that end with a word can tell; -1 where it cannot."""
    ends: list[int] = []
    places = [i for i in range(1, len(text) + 1) if _ends_a_word(text, i)]
    for place in places:
        count = len(encode_after(tokenizer, text[:place]))
        ends.extend([-1] * (count - 1 - len(ends)))
        ends[count - 1 :] = [place]
        if count >= most:
            break
    return ends
