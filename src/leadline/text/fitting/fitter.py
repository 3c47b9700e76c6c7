"""From a draft to a document of exactly the asked length: not a token more or less, or a LengthError.

    Fitter.fit          checks, and verifies some documents whole
    _DocumentSearch     fills the document stretch by stretch, one for each asked length (several in nested reading)
    StretchWriter       layout.py: whole pieces between the facts, one cut piece for the remaining tokens
    Assembly            assembly.py: the growing text with its exact tokens
    CountedBank         bank.py: the haystack's pieces with their tokens, and which of them can be joined
    ContextTokenizer    joints.py: tokens of a text that other text surrounds

Counting is by the real tokenisation throughout. Where a joint makes a token more or less, the cut piece is made shorter
or longer. The search is bounded.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NoReturn, cast

import numpy as np

from leadline.core.contracts import Tokenizer
from leadline.core.errors import LengthError, TokenizerError
from leadline.core.format import format_list
from leadline.core.types import Composer, Document, Draft, Fact, Filler, Frame, Match, Planted, Probe, Question, Room
from leadline.text.corpora import Corpus, CorpusTokens
from leadline.text.fitting.assembly import Assembly, Span
from leadline.text.fitting.bank import CountedBank, count_bank
from leadline.text.fitting.joints import ContextTokenizer
from leadline.text.fitting.layout import Layout, SizedFact, StretchWriter
from leadline.text.fitting.order import PieceOrder, order_pieces
from leadline.text.fitting.verbatim import common_start, make_probe, prompt_suffix, verbatim_document
from leadline.text.sources import Stretch

if TYPE_CHECKING:
    from leadline.core.types import Ids, Indices

RECUTS = 3
"""How often the end of a layout is written again before another layout is chosen."""
COMPOSITIONS = 12
"""How often a composer is asked again, with the tokens that joints took or gave."""
FEW = 16
"""Tokens that joints may take or give in total while the bank's counts are still trusted."""
CHECKED_TOKENS = 8192
"""Longer documents are verified only once for each bank."""
MOST_CORPORA = 8


class Fitter:
    """Makes the documents of one model, in its tokenizer and its frame. Owns all caches of tokens.

    `plain` is the frame of a text without a chat template, for models that give log-probabilities.
    """

    def __init__(
        self, tokenizer: Tokenizer, frame: Frame, plain: Frame | None = None, untemplated: Frame | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.frame = frame
        self.plain = plain
        self.untemplated = untemplated
        self.depths: tuple[float, ...] = ()
        """Those the run began with, which share a text so that no two documents have the same stretch of it."""
        self.added_depths: tuple[float, ...] = ()
        """And those it was extended by."""
        self._context = ContextTokenizer(tokenizer)
        self._banks: dict[str, CountedBank] = {}
        self._corpora: dict[tuple[str, str, int, int, int], CorpusTokens] = {}
        self._lock = threading.Lock()

    def fit(self, draft: Draft) -> Document:
        """The draft as a document of its exact length. A draft without filler is used verbatim."""
        with self._lock:
            if draft.filler is None:
                return verbatim_document(draft, self.tokenizer, self._frame_for(draft))
            enough = tuple(map(self._with_enough_tokens, draft.questions))
            counted, filler = self._bank(draft.filler), draft.filler
            if isinstance(filler, Stretch):
                filler = filler.placed(counted.starts, self.depths, self.added_depths)
            return self._fitted(replace(draft, questions=enough, filler=filler), counted)

    def starts(self, stretches: Iterable[Stretch]) -> tuple[list[int], Indices]:
        """The first pieces of stretches of one text, and the tokens before each of its pieces and in all."""
        some = list(stretches)
        with self._lock:
            ends = self._bank(some[0]).starts
        return [one.placed(ends, self.depths, self.added_depths).start for one in some], ends

    def share_text(self, depths: Sequence[float], added: Sequence[float] = ()) -> None:
        """Sets the depths of the run: all of them, and those of them that it was extended by."""
        self.depths, self.added_depths = tuple(d for d in depths if d not in added), tuple(added)

    def answer_tokens(self, targets: Sequence[str], match: Match) -> int:
        """Tokens of a right answer: all targets in a list, or the shortest where any one will do, and an end token."""
        if not targets:
            return 0
        text = f" {format_list(targets)}." if match == "all" else f" {min(targets, key=len)}."
        return len(self.tokenizer.encode(text)) + 1

    def _with_enough_tokens(self, question: Question) -> Question:
        """The question with an allowance that is enough for its answer in this tokenizer, unless it is fixed."""
        targets = question.targets
        if question.fixed_allowance or callable(targets):
            return question
        if sum(len(t.encode()) + 2 for t in targets) + 8 <= question.allowance:  # enough in any tokenizer
            return question
        needed = self.answer_tokens(targets, question.match)
        return question if needed <= question.allowance else replace(question, allowance=needed)

    def _frame_for(self, draft: Draft) -> Frame:
        return self.frame if draft.templated else self.untemplated or self.frame

    def corpus(self, corpus: Corpus, *, least: int, most: int, seed: int) -> CorpusTokens:
        """The documents of a corpus in tokens; of those with `least` tokens or more the first `most`."""
        if self.plain is None:
            raise TokenizerError("this model has no frame for plain text", where=corpus.name)
        key = (corpus.name, corpus.digest, least, most, seed)
        with self._lock:
            if key not in self._corpora:
                if len(self._corpora) >= MOST_CORPORA:
                    del self._corpora[next(iter(self._corpora))]
                self._corpora[key] = CorpusTokens(corpus, self.tokenizer, self.plain, least=least, most=most, seed=seed)
            return self._corpora[key]

    def _bank(self, filler: Filler | Composer) -> CountedBank:
        digest = filler.bank.digest
        if digest not in self._banks:
            self._banks[digest] = count_bank(filler.bank, self._context)
        return self._banks[digest]

    def _fitted(self, draft: Draft, counted: CountedBank) -> Document:
        frame = self._frame_for(draft)
        document = _search(draft, counted, frame)
        counted.documents += 1
        if self._is_checked(counted.documents, document) and not self._is_exact(document):
            counted.careful = True
            document = _search(draft, counted, frame)
            if not self._is_exact(document):
                raise TokenizerError(
                    "this tokenizer gives a whole prompt other tokens than its parts, so lengths cannot be promised",
                    where=f"{draft.id} in {self.tokenizer.fingerprint}",
                    fix="use the model's own tokenizer.json, or tokenizer=server",
                )
        return document

    @staticmethod
    def _is_checked(number: int, document: Document) -> bool:
        """The first document of a bank is verified, and of short ones the 2nd, 4th, 8th ... too. Verifying a long
        document takes longer than making it, and a server's own count verifies every one of them."""
        return number == 1 or (len(document.ids) <= CHECKED_TOKENS and number & (number - 1) == 0)

    def _is_exact(self, document: Document) -> bool:
        """Whether the longest prompt, tokenised whole, has the tokens that the document says."""
        probe = max(document.probes, key=lambda p: p.prompt_tokens)
        [ids] = self.tokenizer.encode_batch([document.prompt_text(probe)])  # faster than `encode`: no offsets
        return np.array_equal(ids, document.prompt_ids(probe))


# --- questions and probes -----------------------------------------------------------------------


# --- the search ---------------------------------------------------------------------------------


def _wanted(facts: Sequence[SizedFact], begun: int, scale: float) -> list[float]:
    """For each fact, the tokens of pieces that should precede it in a stretch after `begun` tokens.

    `scale` is the bank's count for each true token: above 1 where a tokenizer joins what the bank holds apart.
    """
    sizes = np.cumsum([0, *(f.tokens for f in facts)])
    return [(f.target - begun - before) * scale for f, before in zip(facts, sizes.tolist(), strict=False)]


def _search(draft: Draft, counted: CountedBank, frame: Frame) -> Document:
    """Composed to size if the haystack can do that, else whole pieces and cut ones in its order."""
    if hasattr(draft.filler, "compose"):
        search = _DocumentSearch(draft, counted, frame, cast(Composer, draft.filler))
        document = search.document() if search.can_compose else None
        if document is not None:
            return document
        if not isinstance(draft.filler, Filler):
            search.fail()
    document = _DocumentSearch(draft, counted, frame).document()
    assert document is not None  # only a composer gives up without an error
    return document


@dataclass(frozen=True, slots=True)
class _Ask:
    """A question, what follows the document in its prompt, and where the document must end for it."""

    question: Question
    tail: str
    closing: str
    prompt_tokens: int
    cut: int
    """Tokens of the prompt before the closing, if no joint takes or gives one."""

    @property
    def length(self) -> int:
        return self.question.cell.length

    def cut_at(self, cut: int) -> _Ask:
        """The same with the document cut earlier, and the allowance larger by as much."""
        spare = self.cut - cut
        if not spare:
            return self
        question = replace(self.question, allowance=self.question.allowance + spare)
        return replace(self, question=question, prompt_tokens=self.prompt_tokens - spare, cut=cut)


def _with_one_end(asks: Sequence[_Ask]) -> list[_Ask]:
    """The same questions, all of a length with the cut of the longest: the others have more tokens for the answer."""
    first: dict[int, int] = {}
    for ask in asks:
        first[ask.length] = min(first.get(ask.length, ask.cut), ask.cut)
    return [ask.cut_at(first[ask.length]) for ask in asks]


@dataclass(frozen=True, slots=True)
class _SettledAsk:
    """A question whose end of the document is found: everything a Probe needs except the document's text."""

    ask: _Ask
    tokens_before: int
    closing_ids: Ids
    characters: int


class _DocumentSearch:
    """The search for one document: fills stretch after stretch until the prompts of all questions are exact."""

    def __init__(self, draft: Draft, counted: CountedBank, frame: Frame, composer: Composer | None = None) -> None:
        self.draft = draft
        self.counted = counted
        self.frame = frame
        self.composer = composer
        self.opening = frame.before + draft.head
        self.opening_tokens = len(counted.context.encode(self.opening, first=True, followed=True))
        asks = [self._ask(q) for q in draft.questions]
        self.asks = sorted(_with_one_end(asks) if draft.one_end else asks, key=lambda a: (a.length, a.cut))
        self.lengths = sorted({a.length for a in self.asks})
        self.facts = [self._sized(fact) for fact in draft.facts]
        self.assembly = Assembly(counted)
        order = PieceOrder(counted, np.empty(0, np.int64)) if composer else self._order()
        self.writer = StretchWriter(counted, order, self.assembly, len(self.opening))
        self.used = 0
        """Pieces of the order that are used up."""
        self.rooms: list[Room] = []
        """What the composer was asked for, stretch by stretch."""
        self.composed: Counter[int] = Counter()
        """How often it was asked for a number of tokens in this stretch."""
        self.settled: list[_SettledAsk] = []

    @property
    def can_compose(self) -> bool:
        """Whether all questions of a length end the document at one place: a list has no cut piece that several
        questions could end in."""
        return len({(a.length, a.cut) for a in self.asks}) == len(self.lengths)

    def _ask(self, question: Question) -> _Ask:
        tail, closing = prompt_suffix(question, self.frame)
        prompt = question.cell.length - question.allowance - self.frame.extra_tokens
        encode, ending = self.counted.context.encode, self.counted.bank.ending
        if not self.draft.one_end or not ending:
            return _Ask(question, tail, closing, prompt, prompt - len(encode(closing)))
        line = "a" + ending  # its line break may be joined with those of the question
        return _Ask(
            question, tail, closing, prompt, prompt - len(encode(line + closing)) + len(encode(line, followed=True))
        )

    def _sized(self, fact: Fact) -> SizedFact:
        cuts = [a.cut for a in self.asks if a.length == fact.length]
        if not cuts:
            raise ValueError(f"fact {fact.id} has length {fact.length}, which no question has")
        ending = self.counted.bank.ending if self.draft.one_end else ""
        text = fact.text + ending if ending else " " + fact.text
        tokens = len(self.counted.context.encode(text, followed=bool(ending)))
        room = min(cuts) - self.opening_tokens - tokens
        return SizedFact(fact, tokens, self.opening_tokens + fact.depth * max(room, 0))

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
            here = [f for f in waiting if last or f.fact.length <= length or f.target + f.tokens <= end]
            taken = {f.fact.id for f in here}
            waiting = [f for f in waiting if f.fact.id not in taken]
            if not self._fill_stretch(asks, sorted(here, key=lambda f: f.target)):
                if self.composer:
                    return None
                self.fail(asks[0])
        return self._finish()

    def _fill_stretch(self, asks: Sequence[_Ask], facts: Sequence[SizedFact]) -> bool:
        """Fills the document up to where `asks` end it, so that all their prompts are exact; False if no layout did."""
        begun = self.assembly.token_count
        room = asks[0].cut - begun - sum(f.tokens for f in facts)
        least = self.composer.least(self.counted.counts) if self.composer and not self.rooms else 0
        if room < least:
            self._fail_for_room(asks[0], len(facts), short=least - room)
        state, tokens, attempt, self.composed = self.assembly.checkpoint(), room, 0, Counter()
        wanted = _wanted(facts, begun, 1.0 if room else 0.0)
        while (layout := self._choose(asks, tokens, wanted, attempt)) is not None:
            off = self._write(asks, layout, [f.fact for f in facts])
            if off == 0:
                self.rooms.append(Room(tokens, self.composed[tokens] - 1))
                return True
            self.assembly.restore(state)
            if self.composer and isinstance(self.composer, Filler) and (off is None or abs(off) > FEW):
                return False  # the tokenizer joins what the bank counts apart: cutting is more reliable
            if off is not None and tokens >= off:
                # Joints took or gave tokens: the cut piece makes up for it. Many, if the bank counts too much.
                tokens -= off if abs(off) < FEW else round(off * tokens / max(tokens + off, 1))
                wanted = _wanted(facts, begun, tokens / max(room, 1))
            attempt = layout.attempt + 1
        return False

    def _choose(self, asks: Sequence[_Ask], tokens: int, wanted: Sequence[float], first: int) -> Layout | None:
        """The layout of the next attempt, counted from `first`, that finds one; None when there is none."""
        if self.composer is None:
            return self.writer.choose(self.used, tokens, [a.cut - asks[0].cut for a in asks], wanted, first)
        for attempt in range(first, COMPOSITIONS):
            room = Room(tokens, self.composed[tokens])
            self.composed[tokens] += 1
            stretches = self.composer.compose([*self.rooms, room], self.counted.counts)
            if stretches is not None:
                pieces = stretches[-1]
                sound = self.counted.joints(pieces) if len(pieces) else np.zeros(0, np.bool_)
                places, end = self.writer.place(pieces, wanted)
                return Layout(pieces, sound, 0, (0,) * len(asks), places, end, attempt=attempt)
        return None

    def _write(self, asks: Sequence[_Ask], layout: Layout, facts: Sequence[Fact]) -> int | None:
        """Writes a layout and returns by how many tokens it is off, or None if questions differ in that. If joints took
        or gave a few tokens, only the part from the cut on is written again, with a longer or shorter cut."""
        self.writer.write_before_cut(layout, facts)
        state, offs = self.assembly.checkpoint(), []
        for _ in range(RECUTS):
            self.writer.write_from_cut(layout, facts)
            off = self._settle(asks, layout.offsets)
            if off == 0:
                self.used = layout.used
                return 0
            offs.append(off)
            other = self.writer.recut(layout, layout.cut_tokens - off) if off and abs(off) < FEW else None
            if other is None:
                break
            self.assembly.restore(state)
            layout = other
        return offs[0]  # of the layout that was asked for

    def _doubled_line_break(self, ask: _Ask) -> int:
        """1 where a question that begins with one line break follows a text that ends in one: it is the same one."""
        one = ask.closing.startswith("\n") and not ask.closing.startswith("\n\n")
        return int(one and self.assembly.open_text.endswith("\n"))

    def _settle(self, asks: Sequence[_Ask], offsets: Sequence[int]) -> int | None:
        """0 if all prompts are exact, and their questions are then settled; the common difference if there is one."""
        found, differences = [], set()
        for ask, offset in zip(asks, offsets, strict=True):
            offset = offset or self._doubled_line_break(ask)
            if offset and offset >= len(self.assembly.open_text):
                return None  # no text is left to join the question to
            closing_ids = self.assembly.closing_ids(ask.closing, leave_off=offset)
            differences.add(self.assembly.tokens + len(closing_ids) - ask.prompt_tokens)
            if self.draft.one_end and differences != {0}:
                break  # the others differ by as much
            found.append(_SettledAsk(ask, self.assembly.tokens, closing_ids, self.assembly.length - offset))
        if differences == {0}:
            self.settled.extend(found)
            return 0
        return differences.pop() if len(differences) == 1 else None

    def _fail_for_room(self, ask: _Ask, facts: int, *, short: int) -> NoReturn:
        held = "the shortest text there is" if not facts else "1 fact" if facts == 1 else f"{facts} facts"
        raise LengthError(
            f"{ask.length:,} tokens cannot hold this: instructions, question, {held} and "
            f"{ask.question.allowance} tokens for the answer need {short:,} more",
            where=f"{self.draft.id} at length {ask.length:,}",
            fix=f"the shortest length that can hold it is about {ask.length + short:,}",
            floor=ask.length + short,
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
        text, ids = self.assembly.finish()
        start = self.assembly.token_at(len(self.opening))
        spans = {span.id: span for span in self.assembly.spans}
        probes = {s.ask.question.cell: self._probe(s, text, ids, start) for s in self.settled}
        return Document(
            id=self.draft.id,
            cluster=self.draft.cluster,
            frame=self.frame,
            text=text,
            ids=ids,
            body_start=start,
            body_start_characters=len(self.opening),
            facts=tuple(self._planted(f, start, spans) for f in self.draft.facts),
            probes=tuple(probes[q.cell] for q in self.draft.questions),
        )

    def _planted(self, fact: Fact, body_start: int, spans: Mapping[str, Span]) -> Planted:
        span = spans[fact.id]
        start, end = self.assembly.token_at(span.start) - body_start, self.assembly.token_at(span.end) - body_start
        cut = min(s.ask.cut for s in self.settled if s.ask.length == fact.length)
        room = cut - body_start - (end - start)
        depth = min(max(start / room, 0.0), 1.0) if room > 0 else 0.0
        return Planted(fact.id, fact.text, start, end, fact.depth, round(depth, 6))

    def _probe(self, settled: _SettledAsk, text: str, ids: Ids, body_start: int) -> Probe:
        ask = settled.ask
        # The tokens that document and prompt have in common may reach into those of the closing.
        rest = ids[settled.tokens_before : settled.tokens_before + len(settled.closing_ids)]
        shared = min(common_start(rest, settled.closing_ids), len(settled.closing_ids) - 1)
        return make_probe(
            ask.question, text, ask.tail, settled.closing_ids[shared:], cut=settled.tokens_before + shared,
            cut_characters=settled.characters, body=len(self.opening),
            prompt_tokens=ask.prompt_tokens + self.frame.extra_tokens, body_tokens=ask.cut - body_start,
        )  # fmt: skip
