"""The search for one document of an exact length: stretch after stretch, until the prompts of all questions are exact.

Whole pieces and facts leave some tokens, which a cut piece fills. Where a joint makes a token more or less, the cut
piece is made shorter or longer. The search is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, NoReturn, cast

import msgspec
import numpy as np

from leadline.core.drafts import Composer, Draft, DraftQuestion, Fact, Filler, SegmentSize
from leadline.core.errors import LengthError
from leadline.core.types import Document, Frame, Planted, Probe
from leadline.text.fitting.assembly import Assembly, Span, common_start, make_probe, prompt_suffix
from leadline.text.fitting.bank import CountedBank
from leadline.text.fitting.layout import Layout, SizedFact, StretchWriter
from leadline.text.fitting.order import ATTEMPTS, PieceOrder, longer_order, order_pieces

if TYPE_CHECKING:
    from leadline.core.types import Ids

NESTED_LAYOUT = "2"
"""Version of the layout of documents that answer several lengths."""
RECUTS = 3
"""The number of times that the end of a layout is written again before another layout is chosen."""
RECUT_ANYHOW = ATTEMPTS * 3 // 4
"""The attempt from which the cut piece alone makes up for any difference: with another layout, as many facts at one
place would take and give as many tokens again."""
COMPOSITIONS = 12
"""The number of times that a composer is asked again, with the tokens that joints took or gave."""
FEW = 16
"""Tokens that joints may take or give in total while the bank's counts are still trusted."""
DOTS = (" .", ".", " -", " ..", " ,")
"""Dots, repeated to fill the last tokens if no cut piece does. One of them is a token in every tokenizer we know, and
lists are read without lines of them."""
DOTTED_LAYOUTS = 12
"""Layouts, each with one whole piece less, that are tried with each kind of dots."""
DOT_COUNTS = 6
"""The number of times that dots are counted again, if joints took or gave tokens."""
MOST_SPARED = 8
"""Tokens of a length that may go to the answer where a text cannot have them."""
SAME_SCALE = 0.05
"""Attempts whose sizes differ by a smaller share have their facts at the same places."""


def search_document(draft: Draft, counted: CountedBank, frame: Frame) -> Document:
    """Composed to size if the haystack can do that, else whole pieces and cut ones in its order."""
    if hasattr(draft.filler, "compose"):
        search = DocumentSearch(draft, counted, frame, cast(Composer, draft.filler))
        document = search.document() if search.can_compose else None
        if document is not None:
            return document
        if not isinstance(draft.filler, Filler):
            search.fail()
    document = DocumentSearch(draft, counted, frame).document()
    assert document is not None  # only a composer gives up without an error
    return document


class _Ask(NamedTuple):
    """A question, the part of its prompt after the document, and the end of the document for it."""

    question: DraftQuestion
    user_suffix: str
    suffix: str
    prompt_tokens: int
    cut: int
    """Tokens of the prompt before the suffix, if no joint takes or gives one."""

    @property
    def length(self) -> int:
        return self.question.cell.length

    def cut_at(self, cut: int) -> _Ask:
        """The same with the document cut earlier, and the allowance larger by as much."""
        spare = self.cut - cut
        if not spare:
            return self
        question = msgspec.structs.replace(self.question, allowance=self.question.allowance + spare)
        return self._replace(question=question, prompt_tokens=self.prompt_tokens - spare, cut=cut)


def _with_shared_end(asks: Sequence[_Ask]) -> list[_Ask]:
    """The same questions, all of a length with the cut of the longest: the others have more tokens for the answer."""
    first: dict[int, int] = {}
    for ask in asks:
        first[ask.length] = min(first.get(ask.length, ask.cut), ask.cut)
    return [ask.cut_at(first[ask.length]) for ask in asks]


class _SettledAsk(NamedTuple):
    """A question whose end of the document is found: everything a Probe needs except the document's text."""

    ask: _Ask
    tokens_before: int
    suffix_ids: Ids
    characters: int


class DocumentSearch:
    """The search for one document: fills stretch after stretch until the prompts of all questions are exact."""

    def __init__(self, draft: Draft, counted: CountedBank, frame: Frame, composer: Composer | None = None) -> None:
        self.draft = draft
        self.counted = counted
        self.frame = frame
        self.composer = composer
        self.opening = frame.before + draft.head
        self.opening_tokens = len(counted.context.encode(self.opening, first=True, followed=True))
        if counted.bank.has_own_spacing:
            suffixes = [prompt_suffix(question, frame)[1] for question in draft.questions]
            counted.context.encode_ahead([*suffixes, *(fact.text for fact in draft.facts)])
        asks = [self._ask(q) for q in draft.questions]
        self.asks = sorted(_with_shared_end(asks) if draft.shared_end else asks, key=lambda a: (a.length, a.cut))
        self.lengths = sorted({a.length for a in self.asks})
        sizes = [self._tokens_of(fact) for fact in draft.facts]
        self.longest_fact = max(sizes, default=0) if counted.bank.has_own_spacing else 0
        """Of a conversation: items in an order that is asked for must not change places because one is longer."""
        self.facts = [self._sized(fact, tokens) for fact, tokens in zip(draft.facts, sizes, strict=True)]
        self.assembly = Assembly(counted)
        order = PieceOrder(counted, np.empty(0, np.int64)) if composer else self._order()
        self.writer = StretchWriter(counted, order, self.assembly, len(self.opening))
        self.used = 0
        """Pieces of the order that are used up."""
        self.segments: list[SegmentSize] = []
        """The requests to the composer, stretch by stretch."""
        self.composed: Counter[int] = Counter()
        """The number of requests for a number of tokens in this stretch."""
        self.is_final: list[_SettledAsk] = []

    @property
    def can_compose(self) -> bool:
        """Whether all questions of a length end the document at one place: a list has no cut piece that several
        questions could end in."""
        return len({(a.length, a.cut) for a in self.asks}) == len(self.lengths)

    def _ask(self, question: DraftQuestion) -> _Ask:
        user_suffix, suffix = prompt_suffix(question, self.frame)
        prompt = question.cell.length - question.allowance - self.frame.extra_tokens - question.correction
        encode, ending = self.counted.context.encode, self.counted.bank.ending
        if not self.draft.shared_end or not ending:
            return _Ask(question, user_suffix, suffix, prompt, prompt - len(encode(suffix)))
        line_end = "a" + ending  # its line break may be joined with those of the question
        return _Ask(
            question,
            user_suffix,
            suffix,
            prompt,
            prompt - len(encode(line_end + suffix)) + len(encode(line_end, followed=True)),
        )

    def _tokens_of(self, fact: Fact) -> int:
        ending = self.counted.bank.ending if self.draft.shared_end else ""
        if self.counted.bank.has_own_spacing:
            return len(self.counted.context.encode(fact.text, followed=True))
        text = fact.text + ending if ending else " " + fact.text
        return len(self.counted.context.encode(text, followed=bool(ending)))

    def _sized(self, fact: Fact, tokens: int) -> SizedFact:
        cuts = [a.cut for a in self.asks if a.length == fact.length]
        if not cuts:
            raise ValueError(f"fact {fact.id} has length {fact.length}, which no question has")
        body = min(cuts) - self.opening_tokens
        room = body - (self.longest_fact or tokens)
        return SizedFact(fact, tokens, self.opening_tokens + fact.depth * max(room, 0), fact.depth * body)

    def _order(self) -> PieceOrder:
        """Enough of the haystack for the longest question."""
        filler, longest = cast(Filler, self.draft.filler), self.asks[-1]  # checking a protocol is slow
        facts = sum(f.tokens for f in self.facts)
        where = f"{self.draft.id} at length {longest.length:,}"
        room = longest.cut - self.opening_tokens
        return order_pieces(filler, self.counted, room, facts, where, stretches=len(self.lengths))

    def document(self) -> Document | None:
        """The document; None when a composer cannot write one."""
        if self.opening:
            self.assembly.add_text(self.opening)
        waiting = self.facts
        for length in self.lengths:
            asks = [a for a in self.asks if a.length == length]
            last, end = length == self.lengths[-1], min(a.cut for a in asks)
            here = [
                f
                for f in waiting
                if last or f.fact.length <= length or f.target + (self.longest_fact or f.tokens) <= end
            ]
            taken = {f.fact.id for f in here}
            waiting = [f for f in waiting if f.fact.id not in taken]
            if not self._fill_or_spare(asks, sorted(here, key=lambda f: f.rank)):
                if self.composer:
                    return None
                self.fail(asks[0])
        return self._finish()

    def _fill_or_spare(self, asks: Sequence[_Ask], facts: Sequence[SizedFact]) -> bool:
        """Fills a stretch; where no text does, a token or some more of its room go to the allowance of the answer."""
        if self._fill_stretch(asks, facts):
            return True
        if isinstance(self.composer, Filler):
            return False  # its pieces can be cut
        room = asks[0].cut - self.assembly.token_count - sum(f.tokens for f in facts)
        spares = range(1, min(MOST_SPARED, room) + 1)
        if any(self._fill_stretch([a.cut_at(a.cut - spare) for a in asks], facts) for spare in spares):
            return True
        if room < FEW:  # the text between facts takes it all
            self._fail_for_room(asks[0], len(facts), short=FEW)
        return False

    def _fill_stretch(self, asks: Sequence[_Ask], facts: Sequence[SizedFact]) -> bool:
        """Fills the document up to where `asks` end it, so that all their prompts are exact; False if no layout did."""
        begun = self.assembly.token_count
        room = asks[0].cut - begun - sum(f.tokens for f in facts)
        first = not self.segments or self.draft.conversation
        least = self.composer.least(self.counted.counts) if self.composer and first else 0
        if room < least and not (room == 0 and self.draft.conversation):
            self._fail_for_room(asks[0], len(facts), short=least - room)
        state, tokens, attempt, self.composed = self.assembly.checkpoint(), room, 0, Counter()
        wanted = _wanted(facts, begun, 1.0 if room else 0.0)
        self._extend_order(room)
        self.writer.begin_stretch()
        while (layout := self._choose(asks, tokens, wanted, attempt)) is not None:
            off = self._write(asks, layout, [f.fact for f in facts])
            if off == 0:
                self.segments.append(SegmentSize(tokens, self.composed[tokens] - 1))
                return True
            self.assembly.restore(state)
            few = FEW + 2 * len(facts)  # each fact has two joints of its own
            if self.composer and isinstance(self.composer, Filler) and (off is None or abs(off) > few):
                return False  # the tokenizer joins what the bank counts apart: cutting is more reliable
            if off is not None and tokens >= off:
                # Joints took or gave tokens: the cut piece makes up for it. Many, if the bank counts too much.
                tokens -= off if abs(off) < FEW else round(off * tokens / max(tokens + off, 1))
                # Many facts must not move between attempts, or their joints would take and give tokens every time.
                scale = tokens / max(room, 1)
                wanted = _wanted(facts, begun, 1.0 if self.draft.shared_end and abs(scale - 1) < SAME_SCALE else scale)
            attempt = layout.attempt + 1
        if self.counted.bank.has_own_spacing or isinstance(self.composer, Filler):
            return False  # dots are no turn of a conversation; pieces that are in an order can be cut first
        return self._fill_with_dots(asks, facts, room)

    def _fill_with_dots(self, asks: Sequence[_Ask], facts: Sequence[SizedFact], room: int) -> bool:
        """The last resort, as for a list whose entries all have six tokens: whole pieces, and dots for the rest."""
        begun, state = self.assembly.token_count, self.assembly.checkpoint()
        wanted, planted = _wanted(facts, begun, 1.0), [f.fact for f in facts]
        for dots in DOTS:
            for left_out in range(DOTTED_LAYOUTS):
                count, tried = 1, set[int]()
                while 0 < count <= room and count not in tried and len(tried) < DOT_COUNTS:
                    tried.add(count)
                    layout, segment = self._dotted_layout(asks, room, wanted, dots, count, left_out)
                    if layout is None:
                        break
                    self.writer.begin_stretch()
                    self.writer.write_before_cut(layout, planted)
                    self.writer.write_from_cut(layout, planted)
                    off = self._settle(asks, layout.offsets)
                    if off == 0:
                        self.used = layout.used
                        self.segments.append(segment)
                        return True
                    self.assembly.restore(state)
                    count -= off or 0
        return False

    def _dotted_layout(
        self, asks: Sequence[_Ask], room: int, wanted: Sequence[float], dots: str, count: int, left_out: int
    ) -> tuple[Layout | None, SegmentSize]:
        """Whole pieces with some tokens less than `room`, and `count` dots, in which all questions end the document."""
        beyond = [a.cut - asks[0].cut for a in asks]
        sizes = [count + tokens for tokens in beyond]
        offsets = tuple(len(dots) * (sizes[-1] - size) for size in sizes)
        segment = SegmentSize(room - 1 - left_out)
        if self.composer:
            composed = self.composer.compose([*self.segments, segment], self.counted.counts)
            if composed is None:
                return None, segment
            pieces, used = composed[-1], 0
            sound = self.counted.joints(pieces) if len(pieces) else np.zeros(0, np.bool_)
        else:
            order = self.writer.order
            used = order.sentence_end(self.used, self.used + max(order.whole(self.used, room - 1) - left_out, 0))
            pieces, sound = order.run(self.used, used)
        places, cut_place = self.writer.place(pieces, wanted, count, last=bool(beyond[-1]))
        text = (dots * sizes[-1]).lstrip() if self.counted.bank.ending else dots * sizes[-1]  # on a line of their own
        cut, last = ("", text) if beyond[-1] else (text, "")
        return Layout(pieces, sound, used, offsets, places, cut_place, cut, count, last), segment

    def _extend_order(self, room: int) -> None:
        """Attempts at earlier stretches may have skipped so much of the order that too little is left for this one."""
        order = self.writer.order
        if self.composer is None and self.used and order.left(self.used) < room:
            spare = int(ATTEMPTS * self.counted.mean_tokens)
            filler = cast(Filler, self.draft.filler)
            order = longer_order(order, filler, room - order.left(self.used) + spare)
            self.writer.order, self.used = order, order.next_beginning(self.used)

    def _choose(self, asks: Sequence[_Ask], tokens: int, wanted: Sequence[float], first: int) -> Layout | None:
        """The layout of the next attempt, counted from `first`, that finds one; None when there is none."""
        if self.composer is None:
            return self.writer.choose(self.used, tokens, [a.cut - asks[0].cut for a in asks], wanted, first)
        for attempt in range(first, COMPOSITIONS):
            size = SegmentSize(tokens, self.composed[tokens])
            self.composed[tokens] += 1
            stretches = self.composer.compose([*self.segments, size], self.counted.counts)
            if stretches is not None:
                pieces = stretches[-1]
                sound = self.counted.joints(pieces) if len(pieces) else np.zeros(0, np.bool_)
                places, end = self.writer.place(pieces, wanted)
                return Layout(pieces, sound, 0, (0,) * len(asks), places, end, attempt=attempt)
        return None

    def _write(self, asks: Sequence[_Ask], layout: Layout, facts: Sequence[Fact]) -> int | None:
        """Writes a layout and returns by how many tokens it is off, or None if questions differ in that. If joints took
        or gave a few tokens, only the part from the cut on is written again, with a longer or shorter cut."""
        state, offs = self.writer.write_before_cut(layout, facts), []
        for _ in range(RECUTS):
            self.writer.write_from_cut(layout, facts)
            off = self._settle(asks, layout.offsets)
            if off == 0:
                self.used = layout.used
                return 0
            offs.append(off)
            recuts = off is not None and (abs(off) < FEW or layout.attempt >= RECUT_ANYHOW)
            other = self.writer.recut(layout, layout.cut_tokens - off) if off and recuts else None
            if other is None:
                break
            self.assembly.restore(state)
            layout = other
        return offs[0]  # of the layout that was asked for

    def _doubled_line_break(self, ask: _Ask) -> int:
        """1 where a question that begins with one line break follows a text that ends in one: it is the same one."""
        begins_with_break = ask.suffix.startswith("\n") and not ask.suffix.startswith("\n\n")
        return int(begins_with_break and self.assembly.open_text.endswith("\n"))

    def _settle(self, asks: Sequence[_Ask], offsets: Sequence[int]) -> int | None:
        """0 if all prompts are exact, and their questions are then settled; the common difference if there is one."""
        settled, differences = [], set()
        for ask, left_off in zip(asks, offsets, strict=True):
            if left_off and left_off >= len(self.assembly.open_text):
                return None  # no text is left to join the question to
            # A doubled line break may be all there is: the question begins with it, so the joint before is the same.
            offset = left_off or self._doubled_line_break(ask)
            suffix_ids = self.assembly.suffix_ids(ask.suffix, leave_off=offset)
            differences.add(self.assembly.tokens + len(suffix_ids) - ask.prompt_tokens)
            if self.draft.shared_end and differences != {0}:
                break  # the others differ by as much
            settled.append(_SettledAsk(ask, self.assembly.tokens, suffix_ids, self.assembly.length - offset))
        if differences == {0}:
            self.is_final.extend(settled)
            return 0
        return differences.pop() if len(differences) == 1 else None

    def _fail_for_room(self, ask: _Ask, facts: int, *, short: int) -> NoReturn:
        held = "the shortest text there is" if not facts else "1 fact" if facts == 1 else f"{facts} facts"
        raise LengthError(
            f"{ask.length:,} tokens cannot hold this: instructions, question, {held} and "
            f"{ask.question.allowance} tokens for the answer",
            where=f"{self.draft.id} at length {ask.length:,}",
            fix=f"the shortest length that can hold it is about {ask.length + short:,}",
            shortest=ask.length + short,
        )

    def fail(self, ask: _Ask | None = None) -> NoReturn:
        ask = ask or self.asks[-1]
        raise LengthError(
            f"no cut of the haystack {self.counted.bank.name!r} makes this prompt exactly {ask.prompt_tokens:,} tokens "
            "in this tokenizer",
            where=f"{self.draft.id} at length {ask.length:,}",
            fix="use another length, or a haystack with more varied sentences",
        )

    # --- results ---

    def _finish(self) -> Document:
        text = self.assembly.finish()
        start = self.assembly.token_at(len(self.opening))
        spans = {span.id: span for span in self.assembly.spans}
        probes = {s.ask.question.cell: self._probe(s, text, start) for s in self.is_final}
        return Document(
            id=self.draft.id,
            cluster=self.draft.cluster,
            frame=self.frame,
            text=text,
            tokens=self.assembly.ids,
            body_start=start,
            body_start_characters=len(self.opening),
            facts=tuple(self._planted(f, start, spans) for f in self.draft.facts),
            probes=tuple(probes[q.cell] for q in self.draft.questions),
        )

    def _planted(self, fact: Fact, body_start: int, spans: Mapping[str, Span]) -> Planted:
        span = spans[fact.id]
        start, end = self.assembly.token_at(span.start) - body_start, self.assembly.token_at(span.end) - body_start
        cut = min(s.ask.cut for s in self.is_final if s.ask.length == fact.length)
        room = cut - body_start - (end - start)
        depth = min(max(start / room, 0.0), 1.0) if room > 0 else 0.0
        return Planted(fact.id, fact.text, start, end, fact.depth, round(depth, 6))

    def _probe(self, settled: _SettledAsk, text: str, body_start: int) -> Probe:
        ask = settled.ask
        # The tokens that document and prompt have in common may reach into those of the suffix.
        rest = self.assembly.ids_from(settled.tokens_before, len(settled.suffix_ids))
        shared = min(common_start(rest, settled.suffix_ids), len(settled.suffix_ids) - 1)
        return make_probe(
            ask.question, text, ask.user_suffix, settled.suffix_ids[shared:], cut=settled.tokens_before + shared,
            cut_characters=settled.characters, body=len(self.opening),
            prompt_tokens=ask.prompt_tokens + self.frame.extra_tokens + ask.question.correction,
            body_tokens=ask.cut - body_start,
        )  # fmt: skip


def _wanted(facts: Sequence[SizedFact], begun: int, scale: float) -> list[float]:
    """For each fact, the tokens of pieces that should precede it in a stretch after `begun` tokens.

    `scale` is the bank's count for each true token: above 1 where a tokenizer joins what the bank holds apart.
    """
    sizes = accumulate((f.tokens for f in facts), initial=0)
    return [(f.target - begun - before) * scale for f, before in zip(facts, sizes, strict=False)]
