"""The layout of one stretch of a document: which whole pieces fill it, which piece is cut, and where facts go."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from leadline.core.drafts import Fact
from leadline.text.fitting.assembly import Assembly, Checkpoint
from leadline.text.fitting.bank import CountedBank
from leadline.text.fitting.cuts import CUT_CANDIDATES, WHOLE_SENTENCE_ATTEMPTS, Boundaries, cut_piece, may_end_word
from leadline.text.fitting.order import ATTEMPTS, LAST_CANDIDATES, PieceOrder

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

LEAVE_OUT_EVERY = 20
"""Attempts after which one more whole piece is left out, which leaves a longer rest to cut."""


class Layout(NamedTuple):
    """The content of one stretch: whole pieces with facts between them, one cut piece among them, a last cut piece."""

    pieces: Indices
    sound: npt.NDArray[np.bool_]
    """Whether the joint of each piece and the next is sound."""
    used: int
    """Position in the order after this stretch."""
    offsets: tuple[int, ...]
    """For each question, the characters at the end that are not part of its prompt."""
    places: tuple[int, ...]
    """For each fact, the number of whole pieces before it; one more if only a cut piece is there for it to follow."""
    cut_place: int
    """The number of whole pieces before the cut piece. No fact has this place, so that no fact is next to it."""
    cut: str = ""
    cut_tokens: int = 0
    last: str = ""
    """The last cut piece, where questions end the document at different places."""
    cut_at: int = 0
    """Position in the order at which the cut piece was searched."""
    attempt: int = 0

    def begins_like(self, other: Layout) -> bool:
        """Whether the text up to the cut piece is the same. Not where a fact is beside the cut piece, since what
        follows a fact decides about the white space after it."""
        end = self.cut_place
        return (
            end == other.cut_place
            and self.places == other.places
            and end not in self.places
            and np.array_equal(self.pieces[:end], other.pieces[:end])
        )


class SizedFact(NamedTuple):
    fact: Fact
    tokens: int
    target: float
    """The position where it should start, in tokens of the prompt."""
    rank: float
    """Facts are in this order. It does not depend on the fact's own size, so that of two facts the one with the smaller
    depth is first, and those of one depth and length keep the order of the draft."""


@dataclass(slots=True)
class StretchWriter:
    """Chooses layouts from a haystack in its order, and writes them to an assembly."""

    counted: CountedBank
    order: PieceOrder
    assembly: Assembly
    opening_characters: int
    """Instructions and template before the body."""
    _written: tuple[Layout, Checkpoint] | None = None
    """The attempt before at this stretch, and the text up to its cut piece."""

    def begin_stretch(self) -> None:
        """Forgets the attempts at the stretch before."""
        self._written = None

    def choose(self, used: int, room: int, beyond: Sequence[int], wanted: Sequence[float], first: int) -> Layout | None:
        """A layout of `room` tokens from position `used` of the order on; None when no attempt from `first` on finds
        one. `beyond` has for each question the tokens that its prompt may have in addition, `wanted` for each fact the
        tokens of pieces that should precede it."""
        order = self.order
        for start in range(first - first % LEAVE_OUT_EVERY, ATTEMPTS, LEAVE_OUT_EVERY):
            # Later attempts leave out whole pieces and cut a longer piece, in case the joints here cannot fit.
            at = order.sentence_end(used, used + max(order.whole(used, room) - start // LEAVE_OUT_EVERY, 0))
            rest = room - int(order.ends[at] - order.ends[used]) if at > used else room
            attempts = range(max(first, start), start + LEAVE_OUT_EVERY)
            if beyond[-1]:
                layout = self._choose_for_several(used, at, rest, beyond, wanted, attempts)
            elif rest == 0:
                pieces, sound = order.run(used, at)
                places, end = self._place_run(used, at, wanted)
                return Layout(pieces, sound, at, (0,) * len(beyond), places, end, attempt=attempts[0])
            elif self.counted.ends_sentence is None:
                layout = self._choose_sentences(used, at, rest, len(beyond), wanted, attempts)
            else:
                layout = self._choose_parts(used, at, rest, len(beyond), wanted, attempts)
            if layout is not None:
                return layout
        return None

    def _choose_parts(
        self, used: int, at: int, rest: int, questions: int, wanted: Sequence[float], attempts: range
    ) -> Layout | None:
        """The pieces from `used` to `at`, which are parts of sentences or lines. All questions end the document at one
        place; a cut piece has the `rest` tokens. Each attempt skips one more sentence or line."""
        positions = self.order.skips(at, attempts)
        promising = may_end_word(self.order, positions, rest)
        for attempt, cut_at, hopeful in zip(attempts, positions, promising, strict=True):
            if not hopeful and attempt < WHOLE_SENTENCE_ATTEMPTS:
                continue
            cut = cut_piece(self.order, cut_at, [rest], attempt)
            if cut is not None:
                pieces, sound = self.order.run(used, at)
                places, cut_place = self._place_run(used, at, wanted, cut_tokens=rest)
                end = self.order.next_beginning(cut_at + cut.pieces)
                return Layout(
                    pieces, sound, end, (0,) * questions, places, cut_place, cut.text, rest, "", cut_at, attempt
                )
        return None

    def _choose_sentences(
        self, used: int, at: int, rest: int, questions: int, wanted: Sequence[float], attempts: range
    ) -> Layout | None:
        """The same for pieces that are whole sentences or lines. As few of them are as long as a long rest, a short
        whole one before the cut leaves a shorter rest."""
        order, counts = self.order, self.counted.counts
        some = order.pieces[at : at + CUT_CANDIDATES]
        for attempt in attempts:
            (pieces, sound), cut_at, size = order.run(used, at), at + attempt, rest
            if 0 < attempt < WHOLE_SENTENCE_ATTEMPTS or (wanted and not len(pieces)):
                cut_at, shorter = at, np.flatnonzero(counts[some] < rest)
                if len(shorter):
                    number = int(shorter[(attempt - 1) % len(shorter)])
                    size = rest - int(counts[some[number]])
                    pieces, cut_at = np.append(pieces, some[number]), at + number + 1
                    sound = np.append(sound, self.counted.joints(pieces[-2:]))
            places, cut_place = self.place(pieces, wanted, cut_tokens=size)
            no_space = self._follows_space(pieces[:cut_place])
            cut = cut_piece(order, cut_at, [size], attempt, no_space=no_space)
            if cut is not None:
                end = order.next_beginning(cut_at + cut.pieces)
                return Layout(
                    pieces, sound, end, (0,) * questions, places, cut_place, cut.text, size, "", cut_at, attempt
                )
        return None

    def _choose_for_several(
        self, used: int, at: int, rest: int, beyond: Sequence[int], wanted: Sequence[float], attempts: range
    ) -> Layout | None:
        """The pieces from `used` to `at`, or some less. Questions of different lengths end the document at different
        places, all inside a last cut piece. Every prompt keeps at least one of its tokens, so that none ends at a joint
        made for other text."""
        layouts = (self._attempt_for_several(used, at, rest, beyond, wanted, attempt) for attempt in attempts)
        return next((layout for layout in layouts if layout is not None), None)

    def _attempt_for_several(
        self, used: int, at: int, rest: int, beyond: Sequence[int], wanted: Sequence[float], attempt: int
    ) -> Layout | None:
        kept, order = 1 + attempt % 6, self.order
        while at > used and (rest < kept or order.sentence_end(at - 1, at) < at):
            at -= 1
            rest += int(order.ends[at + 1] - order.ends[at])
        pieces, sound = order.run(used, at)
        cut_tokens, at = rest - kept, order.skip(at, attempt)
        if cut_tokens < 0:
            return None
        cut = cut_piece(order, at, [cut_tokens], attempt) if cut_tokens else None
        last_at = at + (cut.pieces if cut else 0)
        if cut is None and cut_tokens:
            return None
        last, sizes = None, [kept + b for b in beyond]
        for _ in range(LAST_CANDIDATES):
            last = last or cut_piece(order, last_at, sizes, attempt)
            last_at = last_at if last else order.skip(last_at, 1)
        if last is None:
            return None
        used = order.next_beginning(last_at + last.pieces)
        places, cut_place = self.place(pieces, wanted, cut_tokens, last=True)
        text = cut.text if cut else ""
        return Layout(pieces, sound, used, last.offsets, places, cut_place, text, cut_tokens, last.text, at, attempt)

    def recut(self, layout: Layout, tokens: int) -> Layout | None:
        """The same layout with a cut piece of another size. If a last cut piece follows it, the new cut is taken from
        after that one, so that they have no text in common."""
        if not layout.cut or tokens < 1:
            return None
        at = layout.used if layout.last else layout.cut_at
        no_space = self._follows_space(layout.pieces[: layout.cut_place])
        cut = cut_piece(self.order, at, [tokens], layout.attempt, no_space=no_space)
        if cut is None:
            return None
        used = self.order.next_beginning(at + cut.pieces)
        return layout._replace(cut=cut.text, cut_tokens=tokens, used=used)

    # --- places of facts and of the cut piece ---

    def place(
        self, pieces: Indices, wanted: Sequence[float], cut_tokens: int = 0, *, last: bool = False
    ) -> tuple[tuple[int, ...], int]:
        """The boundary of pieces nearest to each wanted position, and one for the cut piece that no fact is at.

        The cut piece ends the stretch. If a fact goes there, it is before the last whole pieces instead.
        """
        count = len(pieces)
        if not count:
            return tuple(int(bool(cut_tokens) and not last and want > cut_tokens / 2) for want in wanted), 0
        order = PieceOrder(self.counted, pieces)
        return self._make_boundaries(order, 0, count, last=last).choose_places(wanted, cut_tokens, count - last)

    def _place_run(
        self, used: int, at: int, wanted: Sequence[float], cut_tokens: int = 0
    ) -> tuple[tuple[int, ...], int]:
        """`place` for the pieces between two positions of the order."""
        if at <= used:
            return self.place(self.order.pieces[:0], wanted, cut_tokens)
        return self._make_boundaries(self.order, used, at).choose_places(wanted, cut_tokens, at - used)

    def _make_boundaries(self, order: PieceOrder, start: int, stop: int, *, last: bool = False) -> Boundaries:
        """Facts may be where sentences or lines end; not at the start of a stretch, as the one before may end with a
        cut piece or a fact, and not at the end where a last cut piece follows."""
        first, end = bisect_right(order.breaks, start), bisect_right(order.breaks, stop - last)
        first -= self._at_start
        free, free_tokens, tokens = order.breaks[first:end], order.break_sums[first:end], order.ends[start : stop + 1]
        if start:
            before = int(tokens[0])
            free = [place - start for place in free]
            free_tokens = [count - before for count in free_tokens]
            tokens = tokens - before
        return Boundaries(tokens, free, free_tokens)

    # --- writing ---

    def write_before_cut(self, layout: Layout, facts: Sequence[Fact]) -> Checkpoint:
        """Writes the whole pieces before the cut piece, and the facts among them. Where the attempt before wrote the
        same, that is returned to."""
        if self._written is not None and layout.begins_like(self._written[0]):
            state = self._written[1]
            self.assembly.restore(state)
        else:
            self._write(layout, facts, 0, layout.cut_place)
            state = self.assembly.checkpoint()
        self._written = layout, state
        return state

    def write_from_cut(self, layout: Layout, facts: Sequence[Fact]) -> None:
        """Writes the cut piece and everything after it."""
        if layout.cut:
            space, following = self.assembly.trailing_space(), self._text(layout.pieces, layout.cut_place)
            self._add_text(layout.cut)
            if following and not following[0].isspace():
                self.assembly.add_text(space)
        self._write(layout, facts, layout.cut_place, len(layout.pieces) + 1)
        if layout.last:
            self._add_text(layout.last)

    def _write(self, layout: Layout, facts: Sequence[Fact], start: int, stop: int) -> None:
        """Writes the pieces from place `start` to `stop`, and the facts on this side of the cut piece."""
        pieces, written = layout.pieces, start
        for number, (fact, place) in enumerate(zip(facts, layout.places, strict=True)):
            if (place > layout.cut_place) != (stop > layout.cut_place):
                continue
            self._add_pieces(layout, written, place)
            written = max(written, place)
            following = self._text(pieces, place) or (layout.cut if place <= layout.cut_place else "") or layout.last
            self._plant(fact, following or "".join(f.text for f in facts[number + 1 : number + 2]))
        self._add_pieces(layout, written, stop)

    # --- white space ---

    @property
    def _at_start(self) -> bool:
        return self.assembly.length <= self.opening_characters

    def _follows_space(self, pieces: Indices) -> bool:
        """Whether white space, or nothing of the body, precedes what follows these pieces."""
        if not len(pieces):
            return self._at_start or self.assembly.ends_with_space()
        return self.counted.bank.pieces[int(pieces[-1])][-1].isspace()

    def _text(self, pieces: Indices, place: int) -> str:
        return self.counted.bank.pieces[int(pieces[place])] if place < len(pieces) else ""

    def _add_pieces(self, layout: Layout, start: int, stop: int) -> None:
        text = self._text(layout.pieces, start) if start < stop else ""
        if text and self._respaced(text) != text:
            self._add_text(text)
            start += 1
        self.assembly.add_pieces(layout.pieces[start:stop], layout.sound[start : max(stop - 1, start)])

    def _add_text(self, text: str) -> None:
        self.assembly.add_text(self._respaced(text))

    def _respaced(self, text: str) -> str:
        """The text with leading white space as needed here: none at the start or after white space, else some.
        Indentation is kept."""
        if self._at_start:
            return text.lstrip()
        if self.counted.bank.has_own_spacing:
            return text
        if self.assembly.ends_with_space():
            return text if text.startswith("  ") else text.lstrip(" ")
        return text if text[:1].isspace() and not text.startswith("  ") else self.counted.separator + text

    def _plant(self, fact: Fact, following: str) -> None:
        """Adds a fact as a sentence among sentences, or as a line among lines. `following` is the text after it."""
        if self.counted.bank.has_own_spacing:
            self.assembly.add_text(self._respaced(fact.text), span=fact.id)
            return
        separator = self.counted.separator
        if not self._at_start and not self.assembly.ends_with_space():
            if separator == " ":
                self.assembly.add_text(" " + fact.text, span=fact.id)
                return
            self.assembly.add_text(separator)
        after = self.assembly.trailing_space()
        if self._at_start:
            after = following[len(following.rstrip()) :] or separator.strip(" ")
            after = "" if following[:1].isspace() else after
        self.assembly.add_text(fact.text, span=fact.id)
        if after and following:
            self.assembly.add_text(after)
