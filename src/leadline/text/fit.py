"""From a draft to a document of exactly the asked length: never over, never a token short, or a LengthError.

The document is laid out stretch by stretch, one stretch for each asked length (several in nested reading). In a
stretch, whole pieces of the haystack fill the room between the facts, and one cut piece takes up the remaining
tokens. Counting is by the real tokenisation throughout; where a joint makes a token more or less, the cut piece
gives way. The search is bounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.errors import LengthError, SourceError, TokenizerError
from leadline.core.types import Document, Draft, Fact, Frame, Planted, Probe, Question
from leadline.text.assembly import Assembly
from leadline.text.bank import CountedBank, count_bank
from leadline.text.cuts import cut_piece

if TYPE_CHECKING:
    from leadline.core.types import Ids, Indices

ATTEMPTS = 80
"""How many cut pieces are tried for one stretch. A handful suffices with real tokenizers."""


def fit(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """Lay a draft out at its exact length in one tokenizer, inside one model's frame."""
    fitting = _Fitting(draft, tokenizer, frame)
    document = fitting.document()
    counted = fitting.counted
    counted.documents += 1
    if _is_sampled(counted.documents, len(document.ids)) and not _is_true(document, tokenizer):
        counted.careful = True
        document = _Fitting(draft, tokenizer, frame).document()
        if not _is_true(document, tokenizer):
            raise TokenizerError(
                "this tokenizer gives a whole prompt other tokens than its parts, so lengths cannot be promised",
                where=f"{draft.id} in {tokenizer.fingerprint}",
                fix="use the model's own tokenizer.json, or tokenizer=server",
            )
    return document


def _is_sampled(number: int, tokens: int) -> bool:
    """The first document of a bank is checked whole, and of short ones the 2nd, 4th, 8th ...: long ones cost more to
    check than to make, and a server's receipt checks every one of them for nothing."""
    return number == 1 or (tokens <= 8192 and number & (number - 1) == 0)


def _is_true(document: Document, tokenizer: Tokenizer) -> bool:
    """Whether the longest prompt, tokenised whole, has the tokens we say."""
    probe = max(document.probes, key=lambda p: p.prompt_tokens)
    return np.array_equal(tokenizer.encode(document.prompt_text(probe)), document.prompt_ids(probe))


@dataclass(frozen=True, slots=True)
class _Ask:
    """A question with what follows the document when it is put, and where the document must end."""

    question: Question
    tail: str
    closing: str
    prompt_tokens: int
    cut: int
    """Tokens the prompt may have before the closing, if no joint gives or takes one."""


@dataclass(frozen=True, slots=True)
class _Settled:
    """A question whose place is found: everything a Probe needs but the document's text."""

    ask: _Ask
    tokens_before: int
    closing_ids: Ids
    characters: int


@dataclass(frozen=True, slots=True)
class _Layout:
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


@dataclass(frozen=True, slots=True)
class _Sized:
    fact: Fact
    tokens: int
    target: float
    """Where it should start, in tokens of the prompt."""


class _Fitting:
    def __init__(self, draft: Draft, tokenizer: Tokenizer, frame: Frame) -> None:
        self.draft = draft
        self.frame = frame
        self.counted: CountedBank = count_bank(draft.filler.bank, tokenizer)
        self.opening = frame.before + draft.head
        self.opening_tokens = len(self.counted.encode(self.opening, first=True))
        self.assembly = Assembly(self.counted)
        self.used = 0
        """Pieces of the filler's order that are spent."""
        self.asks = sorted((self._ask(q) for q in draft.questions), key=lambda a: (a.question.cell.length, a.cut))
        self.order = self._order()
        self.settled: list[_Settled] = []

    # --- sizes ---

    def _ask(self, question: Question) -> _Ask:
        prefix = question.answer_prefix
        tail = question.text if self.frame.prefill else (question.text + prefix).rstrip()
        closing = tail + self.frame.after + (prefix if self.frame.prefill else "")
        prompt = question.cell.length - question.allowance - self.frame.extra_tokens
        return _Ask(question, tail, closing, prompt, prompt - len(self.counted.encode(closing)))

    def _order(self) -> Indices:
        """Enough of the haystack for the longest question, or an error that says how much is missing."""
        room = self.asks[-1].cut - self.opening_tokens
        filler, counts = self.draft.filler, self.counted.counts
        if not filler.prefix_stable:
            return self._whole_order(room)
        typical = max(float(counts.mean()), 0.5)
        wanted = int(1.2 * max(room, 0) / typical) + 96
        while True:
            order = filler.arrange(wanted)
            tokens = int(counts[order].sum())
            if len(order) < wanted or tokens >= room + 64 * typical:
                break
            wanted = int(wanted * 1.5)
        if tokens < room - sum(self._fact_tokens(f) for f in self.draft.facts):
            self._too_short(tokens, room)
        return order

    def _whole_order(self, room: int) -> Indices:
        """For fillers whose order depends on how much there is: the largest count that fits, by bisection."""
        filler, counts = self.draft.filler, self.counted.counts
        low, high = 0, 1
        while int(counts[filler.arrange(high)].sum()) <= room:
            low, high = high, high * 2
            if filler.limit is not None and low >= filler.limit:
                self._too_short(int(counts[filler.arrange(filler.limit)].sum()), room)
        while high - low > 1:
            middle = (low + high) // 2
            if int(counts[filler.arrange(middle)].sum()) <= room:
                low = middle
            else:
                high = middle
        return np.concatenate([filler.arrange(low), filler.arrange(high)[low:]]) if low else filler.arrange(high)

    def _too_short(self, tokens: int, room: int) -> None:
        raise SourceError(
            f"the haystack {self.counted.bank.name!r} has {tokens:,} tokens and the document needs about {room:,}: "
            f"{room - tokens:,} are missing",
            where=f"{self.draft.id} at length {self.asks[-1].question.cell.length:,}",
            fix="give more text, a shorter length, or repeat=true to use the text more than once",
        )

    def _fact_tokens(self, fact: Fact) -> int:
        return len(self.counted.encode(" " + fact.text))

    # --- layout ---

    def document(self) -> Document:
        if self.opening:
            self.assembly.add_text(self.opening)
        lengths = sorted({a.question.cell.length for a in self.asks})
        waiting = [self._sized(f) for f in self.draft.facts]
        for number, length in enumerate(lengths):
            asks = [a for a in self.asks if a.question.cell.length == length]
            last = number == len(lengths) - 1
            end = min(a.cut for a in asks)
            here = [f for f in waiting if last or f.fact.length <= length or f.target + f.tokens <= end]
            waiting = [f for f in waiting if f not in here]
            self._stretch(asks, sorted(here, key=lambda f: f.target))
        return self._finished()

    def _sized(self, fact: Fact) -> _Sized:
        tokens = self._fact_tokens(fact)
        cuts = [a.cut for a in self.asks if a.question.cell.length == fact.length]
        if not cuts:
            raise ValueError(f"fact {fact.id} stands in no asked length ({fact.length})")
        room = min(cuts) - self.opening_tokens - tokens
        return _Sized(fact, tokens, self.opening_tokens + fact.depth * max(room, 0))

    def _stretch(self, asks: Sequence[_Ask], facts: Sequence[_Sized]) -> None:
        """Fill up to where `asks` are put, so that every one of them is exact."""
        first = asks[0].cut
        begun = self.assembly.token_count
        room = first - begun - sum(f.tokens for f in facts)
        if room < 0:
            self._no_room(asks[0], facts, short=-room)
        mark, used, spare = self.assembly.mark(), self.used, room
        give = 12 + 4 * len(facts)  # what joints can add up to
        for attempt in range(ATTEMPTS):
            layout = self._layout(used, spare, [a.cut - first for a in asks], attempt)
            if layout is None:
                continue
            self._lay(layout, facts, begun)
            off = self._try(asks, layout.offsets)
            if off == 0:
                self.used = layout.used
                return
            self.assembly.back_to(mark)
            if off is not None and spare >= off and abs(spare - off - room) <= give:
                spare -= off  # joints took or gave tokens: the cut piece makes up for it
        self._no_cut(asks[0])

    def _layout(self, used: int, spare: int, beyond: Sequence[int], attempt: int) -> _Layout | None:
        """Whole pieces for `spare` tokens and a cut piece for the rest of them."""
        pieces = self.order[used:]
        reach = np.cumsum(self.counted.counts[pieces])
        # Later attempts leave out whole pieces and cut a longer stretch instead, should the joints at this one not fit.
        whole = max(int(np.searchsorted(reach, spare, side="right")) - attempt // 6, 0)
        rest = spare - (int(reach[whole - 1]) if whole else 0)
        at, anywhere = used + whole + attempt, attempt > 0.75 * ATTEMPTS
        if not beyond[-1]:
            if rest == 0:
                return _Layout(pieces[:whole], "", 0, "", (0,) * len(beyond), used + whole)
            cut = cut_piece(self.counted, self.order, at, [rest], anywhere=anywhere)
            if cut is None:
                return None
            return _Layout(pieces[:whole], cut.text, rest, "", (0,) * len(beyond), self._beginning(at + cut.pieces))
        return self._layout_for_several(pieces[:whole], used + whole, rest, beyond, attempt)

    def _layout_for_several(
        self, pieces: Indices, at: int, rest: int, beyond: Sequence[int], attempt: int
    ) -> _Layout | None:
        """Questions of different lengths end the document at different places: all of them in a last cut piece, of
        which every question keeps at least a token, so that none ends on a joint made for other text."""
        kept, anywhere = 1 + attempt % 6, attempt > 0.75 * ATTEMPTS
        if rest < kept and len(pieces):
            rest += int(self.counted.counts[pieces[-1]])
            pieces, at = pieces[:-1], at - 1
        cut_tokens, at = rest - kept, at + attempt
        if cut_tokens < 0:
            return None
        cut = cut_piece(self.counted, self.order, at, [cut_tokens], anywhere=anywhere) if cut_tokens else None
        last_at = at + (cut.pieces if cut else 0)
        last = cut_piece(self.counted, self.order, last_at, [kept + b for b in beyond], anywhere=anywhere)
        if last is None or (cut is None and cut_tokens):
            return None
        ended = self._beginning(last_at + last.pieces)
        return _Layout(pieces, cut.text if cut else "", cut_tokens, last.text, last.offsets, ended)

    def _beginning(self, used: int) -> int:
        """The next place in the order where a line or sentence begins."""
        closes = self.counted.bank.closes
        while closes is not None and 0 < used < len(self.order) and not closes[int(self.order[used - 1])]:
            used += 1
        return used

    def _lay(self, layout: _Layout, facts: Sequence[_Sized], begun: int) -> None:
        """Pieces with facts at the nearest boundaries, the cut piece, facts at the very end, the last cut piece."""
        pieces = layout.pieces
        bounds = np.concatenate(([0], np.cumsum(self.counted.counts[pieces])))
        end = int(bounds[-1])
        open_bounds = self._bounds_in_mid_line(pieces)
        placed, before, following = 0, 0, []
        for fact in facts:
            want = fact.target - begun - before
            before += fact.tokens
            if layout.cut and want - end > layout.rest / 2:
                following.append(fact.fact)
                continue
            nearest = max(int((np.abs(bounds - want) + open_bounds).argmin()), placed)
            self._add(pieces[placed:nearest])
            placed = nearest
            self._plant(fact.fact, next_piece=self._text(pieces[placed:]) or layout.cut or layout.last)
        self._add(pieces[placed:])
        if layout.cut:
            self._add_text(layout.cut)
        for fact_at_end in following:
            self._plant(fact_at_end, next_piece=layout.last)
        if layout.last:
            self._add_text(layout.last)

    def _bounds_in_mid_line(self, pieces: Indices) -> Indices:
        """A large number for every bound between two pieces where no fact may stand, 0 for the others."""
        closes = self.counted.bank.closes
        barred = np.zeros(len(pieces) + 1, np.int64)
        if closes is not None:
            barred[1:] = np.where(np.asarray(closes)[pieces], 0, 1 << 40)
        return barred

    def _text(self, pieces: Indices) -> str:
        return self.counted.bank.pieces[int(pieces[0])] if len(pieces) else ""

    @property
    def _at_start(self) -> bool:
        return self.assembly.length <= len(self.opening)

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
        if not self._at_start and not self.assembly.ends_with_space():
            self.assembly.add_text(" " + fact.text, span=fact.id)
            return
        after = self.assembly.trailing_space()
        if self._at_start:
            after = "" if next_piece[:1].isspace() else next_piece[len(next_piece.rstrip()) :] or "\n"
        self.assembly.add_text(fact.text, span=fact.id)
        if after and next_piece:
            self.assembly.add_text(after)

    def _no_room(self, ask: _Ask, facts: Sequence[_Sized], *, short: int) -> None:
        cell = ask.question.cell
        raise LengthError(
            f"{cell.length:,} tokens cannot hold this: instructions, question, {len(facts)} facts "
            f"and {ask.question.allowance} tokens for the answer need {short:,} more",
            where=f"{self.draft.id} at length {cell.length:,}",
            fix=f"the shortest length that can hold it is about {cell.length + short:,}",
            floor=cell.length + short,
        )

    def _no_cut(self, ask: _Ask) -> None:
        raise LengthError(
            f"no cut of the haystack {self.counted.bank.name!r} makes this prompt exactly {ask.prompt_tokens:,} tokens "
            f"in this tokenizer ({ATTEMPTS} tried)",
            where=f"{self.draft.id} at length {ask.question.cell.length:,}",
            fix="use another length, or a haystack with more varied sentences",
        )

    def _try(self, asks: Sequence[_Ask], offsets: Sequence[int]) -> int | None:
        """0 when every question is exact, the common difference when there is one, else None."""
        found, differences = [], set()
        for ask, offset in zip(asks, offsets, strict=True):
            closing_ids = self.assembly.closed_with(ask.closing, leave_off=offset)
            differences.add(self.assembly.tokens + len(closing_ids) - ask.prompt_tokens)
            found.append(_Settled(ask, self.assembly.tokens, closing_ids, self.assembly.length - offset))
        if differences == {0}:
            self.settled.extend(found)
            return 0
        return differences.pop() if len(differences) == 1 else None

    # --- results ---

    def _finished(self) -> Document:
        text, ids = self.assembly.finish()
        start_characters = len(self.opening)
        start = self.assembly.token_at(start_characters)
        facts = tuple(self._planted(f, start) for f in self.draft.facts)
        probes = {s.ask.question.cell: self._probe(s, text, ids, start) for s in self.settled}
        return Document(
            id=self.draft.id,
            cluster=self.draft.cluster,
            frame=self.frame,
            text=text,
            ids=ids,
            body_start=start,
            body_start_characters=start_characters,
            facts=facts,
            probes=tuple(probes[q.cell] for q in self.draft.questions),
        )

    def _planted(self, fact: Fact, body_start: int) -> Planted:
        span = next(s for s in self.assembly.spans if s.id == fact.id)
        start, end = self.assembly.token_at(span.start) - body_start, self.assembly.token_at(span.end) - body_start
        cut = min(s.ask.cut for s in self.settled if s.ask.question.cell.length == fact.length)
        room = cut - body_start - (end - start)
        depth = min(max(start / room, 0.0), 1.0) if room > 0 else 0.0
        return Planted(fact.id, fact.text, start, end, fact.depth, round(depth, 6))

    def _probe(self, settled: _Settled, text: str, ids: Ids, body_start: int) -> Probe:
        ask, question = settled.ask, settled.ask.question
        # What the document and the prompt have in common may reach into the closing's own tokens.
        rest = ids[settled.tokens_before : settled.tokens_before + len(settled.closing_ids)]
        same = rest == settled.closing_ids[: len(rest)]
        shared = int(same.argmin()) if not same.all() else len(rest)
        shared = min(shared, len(settled.closing_ids) - 1)
        targets = question.targets
        if callable(targets):
            targets = targets(text[len(self.opening) : settled.characters])
        return Probe(
            cell=question.cell,
            cut=settled.tokens_before + shared,
            cut_characters=settled.characters,
            tail=ask.tail,
            closing_ids=settled.closing_ids[shared:],
            prompt_tokens=ask.prompt_tokens + self.frame.extra_tokens,
            question=question.text.strip(),
            answer_prefix=question.answer_prefix,
            targets=targets,
            distractors=question.distractors,
            facts=question.facts,
            allowance=question.allowance,
            scorers=question.scorers,
            labels=question.labels,
            body_tokens=ask.cut - body_start,
        )
