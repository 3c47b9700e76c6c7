"""From a draft to a document of exactly the asked length: never over, never a token short, or a LengthError.

The document is laid out stretch by stretch, one stretch for each asked length (several in nested reading). In a
stretch, whole pieces of the haystack fill the room between the facts, and one cut piece takes up the remaining
tokens. Counting is by the real tokenisation throughout; where a joint makes a token more or less, the cut piece
gives way. The search is bounded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn, cast

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.errors import LengthError, SourceError, TokenizerError
from leadline.core.types import Composer, Document, Draft, Fact, Filler, Frame, Planted, Probe, Question, Room
from leadline.text.fitting.assembly import Assembly
from leadline.text.fitting.bank import CountedBank, count_bank
from leadline.text.fitting.layout import ATTEMPTS, Layout, Layouter, Sized

if TYPE_CHECKING:
    from leadline.core.types import Ids, Indices


# --- What follows a document when a question is put to it: the question, the end of the template, the answer prefix.


def prompt_suffix(question: Question, frame: Frame) -> tuple[str, str]:
    """What ends the user's turn, and everything from there to where the answer begins."""
    prefix = question.answer_prefix
    if frame.prefill:
        tail = question.text + ("" if frame.after else _gap(question))
        return tail, tail + frame.after + prefix
    tail = (question.text + _gap(question) + prefix).rstrip()
    return tail, tail + frame.after


def _gap(question: Question) -> str:
    """A line break where no template parts the question from the beginning of its answer."""
    text, prefix = question.text, question.answer_prefix
    return "\n" if text and prefix and not (text[-1].isspace() or prefix[0].isspace()) else ""


# --- How much of a haystack a document takes: enough of its order for the longest question, or an error that says so.

SPARE_PIECES = 24
"""Beyond those that fill the document, where the order depends on how many there are."""


def haystack_size(filler: Filler, counted: CountedBank, room: int, elsewhere: int, where: str) -> Indices:
    """Pieces in the haystack's order for `room` tokens, of which `elsewhere` are taken up by facts."""
    counts = counted.counts
    if not filler.prefix_stable:
        return _whole_order(filler, counted, room, where)
    typical = max(counted.typical, 0.5)
    wanted = int(1.2 * max(room, 0) / typical) + 96
    thrift = _thrift(filler, counted)
    while True:
        order = filler.arrange(wanted)
        tokens = int(counts[order].sum() * thrift)
        if len(order) < wanted or tokens >= room + 64 * typical:
            break
        wanted = int(wanted * 1.5)
    if tokens < room - elsewhere:
        raise _too_short(counted, tokens, room, where)
    return order


def _thrift(filler: Filler, counted: CountedBank) -> float:
    """True tokens for each counted one. Below 1 where a tokenizer joins what the bank holds apart, as when the
    parts of a line are counted one by one and words are not cut up."""
    bank = counted.bank
    if bank.contiguous or bank.closes is None:
        return 1.0  # whole sentences and lines, whose joints are proven
    start = filler.arrange(120)
    text = "".join([bank.pieces[i] for i in start.tolist()])
    return len(counted.encode(text, followed=True)) / max(int(counted.counts[start].sum()), 1)


def _whole_order(filler: Filler, counted: CountedBank, room: int, where: str) -> Indices:
    """For fillers whose order depends on how much there is: the largest count that fits, by bisection."""
    counts = counted.counts
    low, high = 0, 1
    while int(counts[filler.arrange(high)].sum()) <= room:
        low, high = high, high * 2
        if filler.limit is not None and low >= filler.limit:
            raise _too_short(counted, int(counts[filler.arrange(filler.limit)].sum()), room, where)
    while high - low > 1:
        middle = (low + high) // 2
        if int(counts[filler.arrange(middle)].sum()) <= room:
            low = middle
        else:
            high = middle
    # Spare pieces for cuts: such as the whole ones are not, where there are any.
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


# --- Documents whose text is given and not ours to fit: prompts made elsewhere, questions without a document.
#
# Their length is what it is. It is counted as everywhere else, so that the model's receipt can be compared with it.


def verbatim(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """A draft without filler as it stands: its head is the whole text."""
    text = frame.before + draft.head
    ids = tokenizer.encode(text)
    start = len(tokenizer.encode(frame.before))
    return Document(
        id=draft.id,
        cluster=draft.cluster,
        frame=frame,
        text=text,
        ids=ids,
        body_start=min(start, len(ids)),
        body_start_characters=len(frame.before),
        facts=(),
        probes=tuple(_probe(q, text, ids, start, tokenizer, frame) for q in draft.questions),
    )


def _probe(question: Question, text: str, ids: Ids, start: int, tokenizer: Tokenizer, frame: Frame) -> Probe:
    tail, closing = prompt_suffix(question, frame)
    prompt = tokenizer.encode(text + closing)
    cut = min(_common(ids, prompt), len(prompt) - 1)
    targets = question.targets
    return Probe(
        cell=question.cell,
        cut=cut,
        cut_characters=len(text),
        tail=tail,
        closing_ids=prompt[cut:],
        prompt_tokens=len(prompt) + frame.extra_tokens,
        question=question.text.strip(),
        answer_prefix=question.answer_prefix,
        targets=targets(text[len(frame.before) :]) if callable(targets) else targets,
        distractors=question.distractors,
        facts=(),
        allowance=question.allowance,
        scorers=question.scorers,
        labels=question.labels,
        match=question.match,
        family=question.family,
        value_kind=question.value_kind,
        demonstration=question.demonstration,
        body_tokens=max(len(ids) - start, 0),
    )


def _common(left: Ids, right: Ids) -> int:
    """How many tokens two texts begin with in common."""
    size = min(len(left), len(right))
    same = left[:size] == right[:size]
    return size if bool(np.all(same)) else int(same.argmin())


# --- From a draft to a document of exactly the asked length: never over, never a token short, or a Length

RECUTS = 3
"""How often the end of a layout is laid anew before another layout is chosen."""
COMPOSITIONS = 12
"""How often a composer is asked again, with what joints took or gave."""
FEW = 16
"""Tokens that joints may take or give in all while the bank's counts are still to be trusted."""


def fit(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """Lay a draft out at its exact length in one tokenizer, inside one model's frame."""
    if draft.filler is None:
        return verbatim(draft, tokenizer, frame)
    counted = count_bank(draft.filler.bank, tokenizer)
    document = _laid_out(draft, counted, frame)
    counted.documents += 1
    if _is_sampled(counted.documents, len(document.ids)) and not _is_true(document, tokenizer):
        counted.careful = True
        document = _laid_out(draft, counted, frame)
        if not _is_true(document, tokenizer):
            raise TokenizerError(
                "this tokenizer gives a whole prompt other tokens than its parts, so lengths cannot be promised",
                where=f"{draft.id} in {tokenizer.fingerprint}",
                fix="use the model's own tokenizer.json, or tokenizer=server",
            )
    return document


def _laid_out(draft: Draft, counted: CountedBank, frame: Frame) -> Document:
    """Composed to measure where the haystack can, else whole pieces and cut ones in its order."""
    if hasattr(draft.filler, "compose"):
        fitting = _Fitting(draft, counted, frame, cast(Composer, draft.filler))
        document = fitting.document() if fitting.can_compose else None
        if document is not None:
            return document
        if not isinstance(draft.filler, Filler):
            fitting.no_layout()
    document = _Fitting(draft, counted, frame).document()
    assert document is not None  # only a composer gives up without an error
    return document


def _is_sampled(number: int, tokens: int) -> bool:
    """The first document of a bank is checked whole, and of short ones the 2nd, 4th, 8th ...: long ones cost more to
    check than to make, and a server's receipt checks every one of them for nothing."""
    return number == 1 or (tokens <= 8192 and number & (number - 1) == 0)


def _is_true(document: Document, tokenizer: Tokenizer) -> bool:
    """Whether the longest prompt, tokenised whole, has the tokens we say."""
    probe = max(document.probes, key=lambda p: p.prompt_tokens)
    [ids] = tokenizer.encode_batch([document.prompt_text(probe)])  # quicker than `encode`: nobody asks for offsets
    return np.array_equal(ids, document.prompt_ids(probe))


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


class _Fitting:
    def __init__(self, draft: Draft, counted: CountedBank, frame: Frame, composer: Composer | None = None) -> None:
        self.draft = draft
        self.counted = counted
        self.frame = frame
        self.composer = composer
        self.opening = frame.before + draft.head
        self.opening_tokens = len(self.counted.encode(self.opening, first=True, followed=True))
        self.assembly = Assembly(self.counted)
        self.used = 0
        """Pieces of the filler's order that are spent."""
        self.rooms: list[Room] = []
        """What the composer was asked for, stretch by stretch."""
        self.asks = sorted((self._ask(q) for q in draft.questions), key=lambda a: (a.question.cell.length, a.cut))
        order = np.empty(0, np.int64) if composer else self._order()
        self.layouter = Layouter(self.counted, order, self.assembly, len(self.opening))
        self.settled: list[_Settled] = []

    @property
    def can_compose(self) -> bool:
        """Whether each length has one end of the document for all its questions: a list has no cut piece that several
        could end in."""
        return len({(a.question.cell.length, a.cut) for a in self.asks}) == len(self._lengths)

    # --- sizes ---

    def _ask(self, question: Question) -> _Ask:
        tail, closing = prompt_suffix(question, self.frame)
        prompt = question.cell.length - question.allowance - self.frame.extra_tokens
        return _Ask(question, tail, closing, prompt, prompt - len(self.counted.encode(closing)))

    def _order(self) -> Indices:
        """Enough of the haystack for the longest question."""
        filler, longest = self.draft.filler, self.asks[-1]
        filler = cast(Filler, filler)  # a composer alone never gets here; asking a protocol takes a tenth of a fit
        facts = sum(self._fact_tokens(f) for f in self.draft.facts)
        where = f"{self.draft.id} at length {longest.question.cell.length:,}"
        return haystack_size(filler, self.counted, longest.cut - self.opening_tokens, facts, where)

    def _fact_tokens(self, fact: Fact) -> int:
        return len(self.counted.encode(" " + fact.text))

    # --- layout ---

    @property
    def _lengths(self) -> list[int]:
        return sorted({a.question.cell.length for a in self.asks})

    def document(self) -> Document | None:
        """The document; None when a composer cannot write one."""
        if self.opening:
            self.assembly.add_text(self.opening)
        waiting = [self._sized(f) for f in self.draft.facts]
        for length in self._lengths:
            asks = [a for a in self.asks if a.question.cell.length == length]
            last = length == self._lengths[-1]
            end = min(a.cut for a in asks)
            here = [f for f in waiting if last or f.fact.length <= length or f.target + f.tokens <= end]
            waiting = [f for f in waiting if f not in here]
            if not self._stretch(asks, sorted(here, key=lambda f: f.target)):
                if self.composer:
                    return None
                self.no_layout(asks[0])
        return self._finished()

    def _sized(self, fact: Fact) -> Sized:
        tokens = self._fact_tokens(fact)
        cuts = [a.cut for a in self.asks if a.question.cell.length == fact.length]
        if not cuts:
            raise ValueError(f"fact {fact.id} stands in no asked length ({fact.length})")
        room = min(cuts) - self.opening_tokens - tokens
        return Sized(fact, tokens, self.opening_tokens + fact.depth * max(room, 0))

    def _stretch(self, asks: Sequence[_Ask], facts: Sequence[Sized]) -> bool:
        """Fill up to where `asks` are put, so that every one of them is exact; False when no layout was."""
        begun = self.assembly.token_count
        room = asks[0].cut - begun - sum(f.tokens for f in facts)
        least = self.composer.least(self.counted.counts) if self.composer and not self.rooms else 0
        if room < least:
            self._no_room(asks[0], facts, short=least - room)
        mark, spare, tried = self.assembly.mark(), room, Counter[int]()
        for attempt in range(COMPOSITIONS if self.composer else ATTEMPTS):
            layout = self._choose(asks, Room(spare, tried[spare]), attempt)
            tried[spare] += 1
            if layout is None:
                continue
            off = self._lay(asks, layout, facts, begun, spare / max(room, 1))
            if off == 0:
                self.rooms.append(Room(spare, tried[spare] - 1))
                return True
            self.assembly.back_to(mark)
            if self.composer and isinstance(self.composer, Filler) and (off is None or abs(off) > FEW):
                return False  # the tokenizer joins what the bank counts apart: cutting is the surer way
            if off is not None and spare >= off:
                # Joints took or gave tokens: the cut piece makes up for it. Many, if the bank counts too much.
                spare -= off if abs(off) < FEW else round(off * spare / max(spare + off, 1))
        return False

    def _lay(
        self, asks: Sequence[_Ask], layout: Layout, facts: Sequence[Sized], begun: int, scale: float
    ) -> int | None:
        """Lay a layout and say by how much it is off. Its end is laid anew with a longer or shorter cut where joints
        took or gave a few tokens, so that the rest need not be."""
        following = self.layouter.lay_pieces(layout, facts, begun, scale)
        mark, offs = self.assembly.mark(), []
        for _ in range(RECUTS):
            self.layouter.lay_end(layout, following)
            off = self._try(asks, layout.offsets)
            if off == 0:
                self.used = layout.used
                return 0
            offs.append(off)
            other = self.layouter.recut(layout, layout.rest - off) if off and abs(off) < FEW else None
            if other is None:
                break
            self.assembly.back_to(mark)
            layout = other
        return offs[0]  # what the layout that was asked for is off by

    def _choose(self, asks: Sequence[_Ask], room: Room, attempt: int) -> Layout | None:
        if self.composer is None:
            return self.layouter.choose(self.used, room.tokens, [a.cut - asks[0].cut for a in asks], attempt)
        stretches = self.composer.compose([*self.rooms, room], self.counted.counts)
        return None if stretches is None else Layout(stretches[-1], "", 0, "", (0,) * len(asks), 0)

    def _no_room(self, ask: _Ask, facts: Sequence[Sized], *, short: int) -> None:
        cell = ask.question.cell
        held = "the shortest text there is" if not facts else "1 fact" if len(facts) == 1 else f"{len(facts)} facts"
        raise LengthError(
            f"{cell.length:,} tokens cannot hold this: instructions, question, {held} and "
            f"{ask.question.allowance} tokens for the answer need {short:,} more",
            where=f"{self.draft.id} at length {cell.length:,}",
            fix=f"the shortest length that can hold it is about {cell.length + short:,}",
            floor=cell.length + short,
        )

    def no_layout(self, ask: _Ask | None = None) -> NoReturn:
        ask = ask or self.asks[-1]
        raise LengthError(
            f"no cut of the haystack {self.counted.bank.name!r} makes this prompt exactly {ask.prompt_tokens:,} tokens "
            "in this tokenizer",
            where=f"{self.draft.id} at length {ask.question.cell.length:,}",
            fix="use another length, or a haystack with more varied sentences",
        )

    def _try(self, asks: Sequence[_Ask], offsets: Sequence[int]) -> int | None:
        """0 when every question is exact, the common difference when there is one, else None."""
        found, differences = [], set()
        for ask, offset in zip(asks, offsets, strict=True):
            if offset and offset >= len(self.assembly.open_text):
                return None  # nothing is left to join the question to: its white space went
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
            match=question.match,
            family=question.family,
            value_kind=question.value_kind,
            demonstration=question.demonstration,
            body_tokens=ask.cut - body_start,
        )
