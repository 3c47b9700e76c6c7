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
from leadline.text.as_given import as_given
from leadline.text.assembly import Assembly
from leadline.text.bank import CountedBank, count_bank
from leadline.text.closing import closing_of
from leadline.text.cuts import ATTEMPTS
from leadline.text.layout import Layouter, Sized

if TYPE_CHECKING:
    from leadline.core.types import Ids, Indices


def fit(draft: Draft, tokenizer: Tokenizer, frame: Frame) -> Document:
    """Lay a draft out at its exact length in one tokenizer, inside one model's frame."""
    if draft.filler is None:
        return as_given(draft, tokenizer, frame)
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


class _Fitting:
    def __init__(self, draft: Draft, tokenizer: Tokenizer, frame: Frame) -> None:
        assert draft.filler is not None  # without one it is laid out as it stands
        self.draft = draft
        self.filler = draft.filler
        self.frame = frame
        self.counted: CountedBank = count_bank(self.filler.bank, tokenizer)
        self.opening = frame.before + draft.head
        self.opening_tokens = len(self.counted.encode(self.opening, first=True))
        self.assembly = Assembly(self.counted)
        self.used = 0
        """Pieces of the filler's order that are spent."""
        self.asks = sorted((self._ask(q) for q in draft.questions), key=lambda a: (a.question.cell.length, a.cut))
        self.layouter = Layouter(self.counted, self._order(), self.assembly, len(self.opening))
        self.settled: list[_Settled] = []

    # --- sizes ---

    def _ask(self, question: Question) -> _Ask:
        tail, closing = closing_of(question, self.frame)
        prompt = question.cell.length - question.allowance - self.frame.extra_tokens
        return _Ask(question, tail, closing, prompt, prompt - len(self.counted.encode(closing)))

    def _order(self) -> Indices:
        """Enough of the haystack for the longest question, or an error that says how much is missing."""
        room = self.asks[-1].cut - self.opening_tokens
        filler, counts = self.filler, self.counted.counts
        if not filler.prefix_stable:
            return self._whole_order(room)
        typical = max(float(counts.mean()), 0.5)
        wanted = int(1.2 * max(room, 0) / typical) + 96
        thrift = self._thrift()
        while True:
            order = filler.arrange(wanted)
            tokens = int(counts[order].sum() * thrift)
            if len(order) < wanted or tokens >= room + 64 * typical:
                break
            wanted = int(wanted * 1.5)
        if tokens < room - sum(self._fact_tokens(f) for f in self.draft.facts):
            self._too_short(tokens, room)
        return order

    def _thrift(self) -> float:
        """True tokens for each counted one. Below 1 where a tokenizer joins what the bank holds apart, as when the
        parts of a line are counted one by one and words are not cut up."""
        bank = self.counted.bank
        if bank.contiguous or bank.closes is None or not self.filler.prefix_stable:
            return 1.0  # whole sentences and lines, whose joints are proven
        start = self.filler.arrange(120)
        text = "".join([bank.pieces[i] for i in start.tolist()])
        return len(self.counted.encode(text, followed=True)) / max(int(self.counted.counts[start].sum()), 1)

    def _whole_order(self, room: int) -> Indices:
        """For fillers whose order depends on how much there is: the largest count that fits, by bisection."""
        filler, counts = self.filler, self.counted.counts
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

    def _sized(self, fact: Fact) -> Sized:
        tokens = self._fact_tokens(fact)
        cuts = [a.cut for a in self.asks if a.question.cell.length == fact.length]
        if not cuts:
            raise ValueError(f"fact {fact.id} stands in no asked length ({fact.length})")
        room = min(cuts) - self.opening_tokens - tokens
        return Sized(fact, tokens, self.opening_tokens + fact.depth * max(room, 0))

    def _stretch(self, asks: Sequence[_Ask], facts: Sequence[Sized]) -> None:
        """Fill up to where `asks` are put, so that every one of them is exact."""
        first = asks[0].cut
        begun = self.assembly.token_count
        room = first - begun - sum(f.tokens for f in facts)
        if room < 0:
            self._no_room(asks[0], facts, short=-room)
        mark, used, spare = self.assembly.mark(), self.used, room
        for attempt in range(ATTEMPTS):
            layout = self.layouter.choose(used, spare, [a.cut - first for a in asks], attempt)
            if layout is None:
                continue
            self.layouter.lay(layout, facts, begun)
            off = self._try(asks, layout.offsets)
            if off == 0:
                self.used = layout.used
                return
            self.assembly.back_to(mark)
            if off is not None and spare >= off:
                # Joints took or gave tokens: the cut piece makes up for it. Many, if the bank counts too much.
                spare -= off if abs(off) < 16 else round(off * spare / max(spare + off, 1))
        self._no_cut(asks[0])

    def _no_room(self, ask: _Ask, facts: Sequence[Sized], *, short: int) -> None:
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
