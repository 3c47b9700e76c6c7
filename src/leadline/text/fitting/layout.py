"""The layout of one stretch of a document: which whole pieces fill it, which piece is cut, and where facts go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.errors import SourceError
from leadline.core.types import Fact, Filler
from leadline.text.fitting.assembly import Assembly
from leadline.text.fitting.bank import CountedBank

if TYPE_CHECKING:
    import numpy.typing as npt

    from leadline.core.types import Indices

ATTEMPTS = 80
"""Layouts that are tried for one stretch. A handful suffices with real tokenizers."""
WHOLE_SENTENCE_ATTEMPTS = ATTEMPTS // 4
"""The first attempts, which cut a sentence from its beginning."""
LEAVE_OUT_EVERY = 20
"""Attempts after which one more whole piece is left out, which leaves a longer rest to cut."""
CUT_CANDIDATES = 96
"""Sentences that are considered for one cut."""
LAST_CANDIDATES = 12
"""Sentences that are considered for a cut in which several questions end, as it must have words that end at all."""
LONG_PIECE = 400
"""Tokens of a piece from which the ends of all its tokens are not looked up. Longer ones, such as lists without full
stops, are left out where the text has enough others: no fact could be placed inside them."""
MOST_TEXT = 4
"""Times the text needed that is drawn in search of pieces that are not long."""
CUT_PLACES = 16
"""Boundaries before a fact at the end that are considered for the cut piece."""
SPARE_PIECES = 24
"""Pieces beyond those that fill the document, where the order depends on their number."""
NO_FACT_HERE = 1 << 40
"""Added to the distance of a boundary at which no fact may be placed."""

_WORD = re.compile(r"\s*\S+")
SAFETY = 1.02
"""Pieces arranged for each one that is expected to be needed: a second try costs more than a few too many."""
SHARE_PIECES = 120
"""Pieces at the start of a document that are tokenised together, to see how their counts add up."""


# --- the order of pieces ------------------------------------------------------------------------


def order_pieces(
    filler: Filler, counted: CountedBank, room: int, facts: int, where: str, *, stretches: int = 1
) -> Indices:
    """Pieces in the haystack's order for `room` tokens, of which facts take up `facts`. There are more of them, because
    attempts at a layout skip some in each stretch."""
    if not filler.prefix_stable:
        return _order_of_fixed_count(filler, counted, room, where)
    mean = max(counted.mean_tokens, 0.5)
    spare = stretches * (ATTEMPTS + LAST_CANDIDATES)
    goal = room + spare * mean
    least = wanted = int(1.2 * max(room, 0) / mean) + spare
    if counted.bank.alike:  # some pieces are drawn more often than others: the last document says how many are needed
        wanted = max(least, int(SAFETY * goal / max(counted.arranged_tokens, 0.5)))
    while True:
        order = filler.arrange(wanted)
        counts = counted.counts[order]
        short = counts <= LONG_PIECE
        share = _share_of_counted(order[:SHARE_PIECES], counted)
        reached = np.cumsum(np.where(short, counts, 0)) * share
        if len(order) < wanted or reached[-1] >= goal:
            break
        if counts.sum() * share >= MOST_TEXT * goal:  # long pieces only, however many are drawn
            break
        wanted = int(wanted * 1.5)
    if counted.bank.alike:
        counted.arranged_tokens = float(reached[-1] / len(order))
        enough = max(int(np.searchsorted(reached, goal)) + 1, least)  # however many were arranged
        order, counts, short = order[:enough], counts[:enough], short[:enough]
    if (tokens := int(counts.sum() * share)) < room - facts:
        raise _too_short(counted, tokens, room, where)
    without_long = int(counts[short].sum() * share)
    return order[short] if without_long >= room + mean and not short.all() else order


def _share_of_counted(start: Indices, counted: CountedBank) -> float:
    """True tokens for each counted one. Below 1 where a tokenizer joins what the bank holds apart, for example the
    parts of a line in a tokenizer that does not split words."""
    bank = counted.bank
    if bank.contiguous or bank.closes is None:
        return 1.0  # whole sentences or lines, with sound joints
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


# --- one stretch --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Layout:
    """What fills one stretch: whole pieces with facts between them, one cut piece among them, a last cut piece."""

    pieces: Indices
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


@dataclass(frozen=True, slots=True)
class SizedFact:
    fact: Fact
    tokens: int
    target: float
    """Where it should start, in tokens of the prompt."""


@dataclass(slots=True)
class StretchWriter:
    """Chooses layouts from a haystack in its order, and writes them to an assembly."""

    counted: CountedBank
    order: Indices
    assembly: Assembly
    opening_characters: int
    """Instructions and template before the body."""
    _sound: npt.NDArray[np.bool_] | None = None
    """Whether each joint of the pieces that are being written is sound; looked up at once if facts divide them."""

    def choose(
        self, used: int, room: int, beyond: Sequence[int], wanted: Sequence[float], attempt: int
    ) -> Layout | None:
        """A layout of `room` tokens from position `used` of the order on; None when this attempt finds none.

        `beyond` has for each question the tokens that its prompt may have in addition, `wanted` for each fact the
        tokens of pieces that should precede it.
        """
        pieces = self.order[used:]
        reach = np.cumsum(self.counted.counts[pieces])
        # Later attempts leave out whole pieces and cut a longer piece, in case the joints here cannot fit.
        whole = max(int(np.searchsorted(reach, room, side="right")) - attempt // LEAVE_OUT_EVERY, 0)
        while whole and not self._closes(int(pieces[whole - 1])):
            whole -= 1
        rest = room - (int(reach[whole - 1]) if whole else 0)
        if beyond[-1]:
            return self._choose_for_several(pieces[:whole], used + whole, rest, beyond, wanted, attempt)
        if rest == 0:
            return Layout(pieces[:whole], used + whole, (0,) * len(beyond), *self.place(pieces[:whole], wanted))
        return self._choose_for_one(pieces[:whole], used + whole, rest, len(beyond), wanted, attempt)

    def _choose_for_one(
        self, pieces: Indices, at: int, rest: int, questions: int, wanted: Sequence[float], attempt: int
    ) -> Layout | None:
        """All questions end the document at one place; a cut piece has the `rest` tokens."""
        if self.counted.closes is None and (0 < attempt < WHOLE_SENTENCE_ATTEMPTS or (wanted and not len(pieces))):
            # Few sentences are as long as a long rest. A short whole one before the cut leaves a shorter rest.
            shorter = np.flatnonzero(self.counted.counts[self.order[at : at + CUT_CANDIDATES]] < rest)
            if len(shorter):
                at += int(shorter[(attempt - 1) % len(shorter)])
                rest -= int(self.counted.counts[self.order[at]])
                pieces = np.append(pieces, self.order[at])
                at += 1
        else:
            at = self._skip(at, attempt)
        places, cut_place = self.place(pieces, wanted, cut_tokens=rest)
        cut = self._cut(at, [rest], attempt, no_space=self._follows_space(pieces[:cut_place]))
        if cut is None:
            return None
        used = self._next_beginning(at + cut.pieces)
        return Layout(pieces, used, (0,) * questions, places, cut_place, cut.text, rest, cut_at=at, attempt=attempt)

    def _choose_for_several(
        self, pieces: Indices, at: int, rest: int, beyond: Sequence[int], wanted: Sequence[float], attempt: int
    ) -> Layout | None:
        """Questions of different lengths end the document at different places, all inside a last cut piece. Every
        prompt keeps at least one of its tokens, so that none ends at a joint made for other text."""
        kept = 1 + attempt % 6
        while len(pieces) and (rest < kept or not self._closes(int(pieces[-1]))):
            rest += int(self.counted.counts[pieces[-1]])
            pieces, at = pieces[:-1], at - 1
        cut_tokens, at = rest - kept, self._skip(at, attempt)
        if cut_tokens < 0:
            return None
        cut = self._cut(at, [cut_tokens], attempt) if cut_tokens else None
        last_at = at + (cut.pieces if cut else 0)
        if cut is None and cut_tokens:
            return None
        last, sizes = None, [kept + b for b in beyond]
        for _ in range(LAST_CANDIDATES):
            last = last or self._cut(last_at, sizes, attempt)
            last_at = last_at if last else self._skip(last_at, 1)
        if last is None:
            return None
        used = self._next_beginning(last_at + last.pieces)
        places, cut_place = self.place(pieces, wanted, cut_tokens, last=True)
        text = cut.text if cut else ""
        return Layout(pieces, used, last.offsets, places, cut_place, text, cut_tokens, last.text, at, attempt)

    def recut(self, layout: Layout, tokens: int) -> Layout | None:
        """The same layout with a cut piece of another size. If a last cut piece follows it, the new cut is taken from
        after that one, so that they have no text in common."""
        if not layout.cut or tokens < 1:
            return None
        at = layout.used if layout.last else layout.cut_at
        before = layout.pieces[: layout.cut_place]
        cut = self._cut(at, [tokens], layout.attempt, no_space=self._follows_space(before))
        if cut is None:
            return None
        return replace(layout, cut=cut.text, cut_tokens=tokens, used=self._next_beginning(at + cut.pieces))

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
        barred = np.zeros(count + 1, np.int64)
        if self.counted.closes is not None:
            barred[1:] = np.where(self.counted.closes[pieces], 0, NO_FACT_HERE)
        if not self._at_start:
            barred[0] = NO_FACT_HERE  # the stretch before may end with a cut piece or a fact
        if last:
            barred[count] = NO_FACT_HERE
        bounds = np.concatenate(([0], np.cumsum(self.counted.counts[pieces])))
        if not cut_tokens:
            return _nearest(bounds, barred, wanted), count
        end, cut_place = count - last, count
        places = _nearest(bounds + cut_tokens * (np.arange(count + 1) >= end), barred, wanted)
        free, candidates = np.flatnonzero(barred == 0), [count]
        if end in places:
            candidates = np.setdiff1d(free[free < end], places)[: -CUT_PLACES - 1 : -1].tolist() or [count]
        found = []
        for cut_place in candidates:
            there, near = barred.copy(), int(np.searchsorted(free, cut_place))
            there[cut_place] = NO_FACT_HERE
            there[free[near : near + 2]] = NO_FACT_HERE  # one whole sentence after it would read as its end
            shifted = bounds + cut_tokens * (np.arange(count + 1) > cut_place)
            places = _nearest(shifted, there, wanted)
            found.append((float(np.abs(shifted[list(places)] - wanted).max(initial=0)), places, cut_place))
        _, places, cut_place = min(found, key=itemgetter(0))
        return places, cut_place

    # --- writing ---

    def write_before_cut(self, layout: Layout, facts: Sequence[Fact]) -> None:
        """Writes the whole pieces before the cut piece, and the facts among them."""
        several = len(facts) > 1 and len(layout.pieces) > 1
        self._sound = self.counted.joints(layout.pieces) if several else None
        self._write(layout, facts, 0, layout.cut_place)

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
            self._add_pieces(pieces, written, place)
            written = max(written, place)
            following = self._text(pieces, place) or (layout.cut if place <= layout.cut_place else "") or layout.last
            self._plant(fact, following or "".join(f.text for f in facts[number + 1 : number + 2]))
        self._add_pieces(pieces, written, min(stop, len(pieces)))

    # --- positions in the order ---

    def _closes(self, piece: int) -> bool:
        """Whether a sentence or line ends with this piece."""
        return self.counted.closes is None or bool(self.counted.closes[piece])

    def _next_beginning(self, used: int) -> int:
        """The next position at which a sentence or line begins."""
        while 0 < used < len(self.order) and not self._closes(int(self.order[used - 1])):
            used += 1
        return used

    def _skip(self, at: int, sentences: int) -> int:
        """The position after some sentences or lines."""
        if self.counted.closes is None:
            return at + sentences
        for _ in range(sentences):
            at = self._next_beginning(at + 1)
        return at

    def _cut(self, at: int, sizes: Sequence[int], attempt: int, *, no_space: bool = False) -> CutPiece | None:
        return cut_piece(self.counted, self.order, at, sizes, attempt, no_space=no_space)

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

    def _add_pieces(self, pieces: Indices, start: int, stop: int) -> None:
        if start >= stop:
            return
        text = self._text(pieces, start)
        if self._respaced(text) != text:
            self._add_text(text)
            start += 1
        sound = None if self._sound is None else self._sound[start : max(stop - 1, start)]
        self.assembly.add_pieces(pieces[start:stop], sound)

    def _add_text(self, text: str) -> None:
        self.assembly.add_text(self._respaced(text))

    def _respaced(self, text: str) -> str:
        """The text with leading white space as needed here: none at the start or after white space, else some.
        Indentation is kept."""
        if self._at_start:
            return text.lstrip()
        if self.assembly.ends_with_space():
            return text if text.startswith("  ") else text.lstrip(" ")
        return text if text[:1].isspace() and not text.startswith("  ") else self.counted.separator + text

    def _plant(self, fact: Fact, following: str) -> None:
        """Adds a fact as a sentence among sentences, or as a line among lines. `following` is the text after it."""
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


def _nearest(bounds: Indices, barred: Indices, wanted: Sequence[float]) -> tuple[int, ...]:
    """For each wanted position the nearest boundary that is not barred; never one before that of the fact before."""
    free = np.flatnonzero(barred == 0)
    if not len(wanted) or not len(free):
        return tuple(
            np.maximum.accumulate([int((np.abs(bounds - want) + barred).argmin()) for want in wanted]).tolist()
        )
    at, want = bounds[free], np.asarray(wanted)
    after = np.searchsorted(at, want)
    before = np.searchsorted(at, at[np.maximum(after - 1, 0)])  # the first of equal ones
    after = np.minimum(after, len(free) - 1)
    nearest = free[np.where(np.abs(at[after] - want) < np.abs(at[before] - want), after, before)]
    return tuple(np.maximum.accumulate(nearest).tolist())


# --- cut pieces ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CutPiece:
    """The beginning of some text that has an exact number of tokens, to fill what whole pieces leave."""

    text: str
    pieces: int
    """Pieces of the order that it was taken from."""
    offsets: tuple[int, ...]
    """For each wanted size, the characters to leave off at the end of `text`."""


def cut_piece(
    counted: CountedBank, order: Indices, at: int, sizes: Sequence[int], attempt: int, *, no_space: bool = False
) -> CutPiece | None:
    """The text from position `at` of the order on, cut so that it has beginnings of all wanted sizes in tokens.

    Cuts are at the ends of words. If whole sentences do not give the wanted sizes, later attempts begin some words into
    a sentence (a haystack may have only one), and the last attempts cut anywhere. `sizes` ascends; its last is above 0.
    `no_space` when the text must begin without white space.
    """
    if len(sizes) == 1 and attempt < WHOLE_SENTENCE_ATTEMPTS and counted.closes is None:
        found = _cut_one_sentence(counted, order, at, sizes[0], no_space)
        if found is not None:
            return found
    skipped_words = 1 + attempt % 16 if attempt >= WHOLE_SENTENCE_ATTEMPTS else 0
    anywhere = attempt >= ATTEMPTS * 3 // 4
    for factor in (1, 2, 4):  # a bank may count more tokens than its pieces have side by side
        text, pieces, tokens = _text_from(counted, order, at, factor * (sizes[-1] + 4 * skipped_words))
        if skipped_words:
            text = text[[m.start() for m in _WORD.finditer(text)][: skipped_words + 1][-1] :]
        ends = _first_ends(counted, text, sizes[-1], len(text) / max(tokens, 1))
        if len(ends) >= sizes[-1]:
            break
    else:
        return None
    places = [ends[size - 1] if size else 0 for size in sizes]
    if any(p < 0 for p in places) or not (anywhere or all(_ends_word(text, p) for p in places)):
        return None
    return CutPiece(text[: places[-1]], pieces, tuple(places[-1] - p for p in places))


def _cut_one_sentence(counted: CountedBank, order: Indices, at: int, size: int, no_space: bool) -> CutPiece | None:
    """The next sentence with a beginning of the wanted size; wraps around at the end of the order."""
    count, at = min(CUT_CANDIDATES, len(order)), at % len(order)
    window = np.concatenate([order[at : at + count], order[: max(at + count - len(order), 0)]])
    counts = counted.counts[window]
    candidates = (counts >= size) & (counts <= LONG_PIECE) & (counted.begins_with_space[window] != no_space)
    for number in np.flatnonzero(candidates).tolist():
        piece = int(window[number])
        text = counted.bank.pieces[piece]
        place = counted.piece_end(piece, size)
        if place and _ends_word(text, place):
            return CutPiece(text[:place], number + 1, (0,))
    return None


def _text_from(counted: CountedBank, order: Indices, at: int, least: int) -> tuple[str, int, int]:
    """Text of at least `least` counted tokens from a position on, and its pieces and tokens."""
    text, pieces, tokens = "", 0, 0
    while tokens < least and pieces < len(order):
        piece = int(order[(at + pieces) % len(order)])
        text += counted.bank.pieces[piece]
        tokens += int(counted.counts[piece])
        pieces += 1
    return text, pieces, tokens


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
