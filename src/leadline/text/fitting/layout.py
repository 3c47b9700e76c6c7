"""Where everything stands in one stretch of a document: whole pieces, cut pieces, and facts between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.types import Fact
from leadline.text.fitting.assembly import Assembly
from leadline.text.fitting.bank import CountedBank
from leadline.text.fitting.joints import encode_after

if TYPE_CHECKING:
    from leadline.core.types import Indices


# --- Cut pieces: a beginning of a piece that is exactly so many tokens long, to take up what whole pieces leave over.

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


# --- Where everything stands in one stretch of a document: whole pieces, cut pieces, and facts between th


@dataclass(frozen=True, slots=True)
class Layout:
    """What fills one stretch."""

    pieces: Indices
    cut: str
    """A cut piece after the whole ones; facts at the very end follow it."""
    rest: int
    """Tokens the cut piece is to have."""
    last: str
    """A cut piece after everything, where questions end the document at different places."""
    offsets: tuple[int, ...]
    """For each question, the characters of the end that it leaves off."""
    used: int
    cut_at: int = 0
    """Where in the order the cut piece was looked for."""
    attempt: int = 0
    """At which attempt: later ones cut in other ways."""


@dataclass(frozen=True, slots=True)
class Sized:
    fact: Fact
    tokens: int
    target: float
    """Where it should start, in tokens of the prompt."""


@dataclass(slots=True)
class Layouter:
    """Chooses layouts from a haystack in its order, and lays them into an assembly."""

    counted: CountedBank
    order: Indices
    assembly: Assembly
    opening_characters: int

    def choose(self, used: int, spare: int, beyond: Sequence[int], attempt: int) -> Layout | None:
        """Whole pieces for `spare` tokens and a cut piece for the rest of them."""
        pieces = self.order[used:]
        reach = np.cumsum(self.counted.counts[pieces])
        # Later attempts leave out whole pieces and cut a longer stretch instead, should the joints at this one not fit.
        whole = max(int(np.searchsorted(reach, spare, side="right")) - attempt // 6, 0)
        while whole and not self._closes(int(pieces[whole - 1])):
            whole -= 1
        rest = spare - (int(reach[whole - 1]) if whole else 0)
        if not beyond[-1]:
            if rest == 0:
                return Layout(pieces[:whole], "", 0, "", (0,) * len(beyond), used + whole)
            return self._choose_for_one(pieces[:whole], used + whole, rest, len(beyond), attempt)
        return self._choose_for_several(pieces[:whole], used + whole, rest, beyond, attempt)

    def _choose_for_one(self, pieces: Indices, at: int, rest: int, asks: int, attempt: int) -> Layout | None:
        """All questions end the document at one place: after a cut piece of `rest` tokens."""
        if 0 < attempt < FIRST_ATTEMPTS and self.counted.closes is None:
            # Few sentences are as long as a long rest: a shorter whole one before the cut leaves one that more are.
            shorter = np.flatnonzero(self.counted.counts[self.order[at : at + LOOKED_AT]] < rest)
            if len(shorter):
                at += int(shorter[(attempt - 1) % len(shorter)])
                rest -= int(self.counted.counts[self.order[at]])
                pieces = np.append(pieces, self.order[at])
                at += 1
        else:
            at = self._further(at, attempt)
        cut = cut_piece(self.counted, self.order, at, [rest], attempt, bare=self._bare_after(pieces))
        if cut is None:
            return None
        ended = self._beginning(at + cut.pieces)
        return Layout(pieces, cut.text, rest, "", (0,) * asks, ended, at, attempt)

    def _choose_for_several(
        self, pieces: Indices, at: int, rest: int, beyond: Sequence[int], attempt: int
    ) -> Layout | None:
        """Questions of different lengths end the document at different places: all of them in a last cut piece, of
        which every question keeps at least a token, so that none ends on a joint made for other text."""
        kept = 1 + attempt % 6
        while len(pieces) and (rest < kept or not self._closes(int(pieces[-1]))):
            rest += int(self.counted.counts[pieces[-1]])
            pieces, at = pieces[:-1], at - 1
        cut_tokens, at = rest - kept, self._further(at, attempt)
        if cut_tokens < 0:
            return None
        cut = cut_piece(self.counted, self.order, at, [cut_tokens], attempt) if cut_tokens else None
        last_at = at + (cut.pieces if cut else 0)
        last = cut_piece(self.counted, self.order, last_at, [kept + b for b in beyond], attempt)
        if last is None or (cut is None and cut_tokens):
            return None
        ended = self._beginning(last_at + last.pieces)
        return Layout(pieces, cut.text if cut else "", cut_tokens, last.text, last.offsets, ended, at, attempt)

    def _bare_after(self, pieces: Indices) -> bool:
        """Whether what follows these pieces begins without white space."""
        if not len(pieces):
            return self._at_start or self.assembly.ends_with_space()
        return self.counted.bank.pieces[int(pieces[-1])][-1].isspace()

    def _closes(self, piece: int) -> bool:
        """Whether a sentence or line ends with this piece."""
        return self.counted.closes is None or bool(self.counted.closes[piece])

    def _beginning(self, used: int) -> int:
        """The next place in the order where a sentence or line begins."""
        while 0 < used < len(self.order) and not self._closes(int(self.order[used - 1])):
            used += 1
        return used

    def _further(self, at: int, sentences: int) -> int:
        """The place in the order some sentences or lines on."""
        if self.counted.closes is None:
            return at + sentences
        for _ in range(sentences):
            at = self._beginning(at + 1)
        return at

    def recut(self, layout: Layout, tokens: int) -> Layout | None:
        """The same layout with a cut piece of another size. Where a last cut piece stands after it, it is taken from
        what follows that one, so that neither holds the other's words."""
        if not layout.cut or tokens < 1:
            return None
        at, bare = layout.used if layout.last else layout.cut_at, self._bare_after(layout.pieces)
        cut = cut_piece(self.counted, self.order, at, [tokens], layout.attempt, bare=bare)
        if cut is None:
            return None
        return replace(layout, cut=cut.text, rest=tokens, used=self._beginning(at + cut.pieces))

    def lay_pieces(self, layout: Layout, facts: Sequence[Sized], begun: int, scale: float) -> list[Fact]:
        """Whole pieces with facts at the nearest boundaries. Returns the facts that stand after the cut piece.

        `scale` is what the bank counts for each true token: above 1 where a tokenizer joins what it holds apart.
        """
        pieces = layout.pieces
        bounds = np.concatenate(([0], np.cumsum(self.counted.counts[pieces])))
        end = int(bounds[-1])
        open_bounds = self._bounds_in_mid_line(pieces)
        placed, before = 0, 0
        following: list[Fact] = []
        for fact in facts:
            want = (fact.target - begun - before) * scale
            before += fact.tokens
            if following or (layout.cut and want - end > layout.rest / 2):
                following.append(fact.fact)
                continue
            nearest = max(int((np.abs(bounds - want) + open_bounds).argmin()), placed)
            self._add(pieces[placed:nearest])
            placed = nearest
            self._plant(fact.fact, next_piece=self._text(pieces[placed:]) or layout.cut or layout.last)
        self._add(pieces[placed:])
        return following

    def lay_end(self, layout: Layout, following: Sequence[Fact]) -> None:
        """The cut piece, facts at the very end, and the last cut piece."""
        if layout.cut:
            self._add_text(layout.cut)
        for fact_at_end in following:
            self._plant(fact_at_end, next_piece=layout.last)
        if layout.last:
            self._add_text(layout.last)

    def _bounds_in_mid_line(self, pieces: Indices) -> Indices:
        """A large number for every bound between two pieces where no fact may stand, 0 for the others."""
        closes = self.counted.closes
        barred = np.zeros(len(pieces) + 1, np.int64)
        if closes is not None:
            barred[1:] = np.where(closes[pieces], 0, 1 << 40)
        return barred

    def _text(self, pieces: Indices) -> str:
        return self.counted.bank.pieces[int(pieces[0])] if len(pieces) else ""

    @property
    def _at_start(self) -> bool:
        return self.assembly.length <= self.opening_characters

    def _add(self, pieces: Indices) -> None:
        """Whole pieces; the first of them may need its white space mended."""
        text = self._text(pieces)
        if text and self._mended(text) != text:
            self._add_text(text)
            pieces = pieces[1:]
        self.assembly.add_pieces(pieces)

    def _add_text(self, text: str) -> None:
        self.assembly.add_text(self._mended(text))

    def _mended(self, text: str) -> str:
        """White space at a beginning would melt into the instructions; none between words would join them."""
        if self._at_start or self.assembly.ends_with_space():
            return text.lstrip(" ") if not self._at_start else text.lstrip()
        return text if text[:1].isspace() else " " + text

    def _plant(self, fact: Fact, next_piece: str) -> None:
        """A sentence among sentences, or a line among lines, as its neighbours are."""
        ending = self.counted.bank.ending
        if not self._at_start and not self.assembly.ends_with_space():
            if not ending:
                self.assembly.add_text(" " + fact.text, span=fact.id)
                return
            self.assembly.add_text(ending)
        after = self.assembly.trailing_space()
        if self._at_start:
            after = "" if next_piece[:1].isspace() else next_piece[len(next_piece.rstrip()) :] or ending or "\n"
        self.assembly.add_text(fact.text, span=fact.id)
        if after and next_piece:
            self.assembly.add_text(after)
