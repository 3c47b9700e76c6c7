"""Where everything stands in one stretch of a document: whole pieces, cut pieces, and facts between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.types import Fact
from leadline.text.assembly import Assembly
from leadline.text.bank import CountedBank
from leadline.text.cuts import FIRST_ATTEMPTS, LOOKED_AT, cut_piece

if TYPE_CHECKING:
    from leadline.core.types import Indices


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
