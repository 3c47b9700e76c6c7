"""The i-th of several alike: one item of a conversation, among items of the same kind and topic.

After MRCR (Vodrahalli et al. 2024, Michelangelo, arXiv 2409.12640) in the form of OpenAI's data set `openai/mrcr`: a
user asks for poems, riddles, letters ... about topics, an assistant writes them, and at the end one of them is to be
repeated word for word, named by its kind, its topic and its number, after a code word. Here the items are invented, the
length is exact, and depth is where the turn asked for begins.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, product
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from pydantic import Field

from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank, SegmentSize
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, bulk_rng, digest, of_split, rng, seed_of
from leadline.core.turns import ASSISTANT, USER, closes, opens
from leadline.core.types import Cell, Reading
from leadline.scorers.mrcr import MRCR_SCORERS, WRONG_ORDINAL
from leadline.tasks.wording import PromptPart, RetrievalTask
from leadline.tasks.words import draw_new

if TYPE_CHECKING:
    from leadline.core.types import Indices


# --- Invented items ---
#
# Poems, riddles, letters ... about topics, and a conversation in which they are asked for.
#
# An item has a first line of its kind about its topic, and lines of a beginning and an end that go with any other:
#
#     user       Write a riddle about a lighthouse keeper.
#     assistant  Guess this if you can, for a lighthouse keeper is hidden in it.
#                The old bell ringer polished a copper kettle before the rain.
#                ...
#
# So a few hundred pieces, counted once, give some hundred thousand lines, and no two items of a document are alike.


# --- words ---

KINDS = {
    "poem": ("O {topic}, what the evening owes to you", "Of {topic} I sing, and of little else",
             "Softly now, for {topic} has come to the page"),
    "riddle": ("Guess this if you can, for {topic} is hidden in it", "I have three clues, and {topic} holds them all",
               "What is it that {topic} would never tell"),
    "letter": ("Dear friend, you asked me about {topic}", "My dear aunt, there is news of {topic}",
               "To whom it may concern, on the matter of {topic}"),
    "note": ("A short note, so that {topic} is not forgotten", "Written in haste, and about {topic} only",
             "For the file on {topic}, as seen today"),
    "fable": ("Long ago {topic} went out to learn a lesson", "There was once {topic} that trusted nobody",
              "In a far country {topic} made a bargain"),
    "speech": ("Friends and neighbours, let me speak of {topic}", "Tonight we raise a glass to {topic}",
               "I did not come here to praise {topic}"),
    "diary entry": ("Tuesday, and all day long nothing but {topic}", "Woke early, thinking of {topic}",
                    "Before I sleep I must set down what {topic} did"),
    "postcard": ("Greetings from the coast, where {topic} is the talk of all", "Wish you were here to see {topic}",
                 "The weather is fine and {topic} sends its regards"),
    "advertisement": ("Now in every shop, the true story of {topic}", "Why wait another day for {topic}",
                      "Ask your grocer, he knows all about {topic}"),
    "lullaby": ("Hush now, {topic} is asleep at last", "Close your eyes, for {topic} keeps the watch",
                "Sleep, little one, while {topic} counts the stars"),
    "toast": ("Here is to {topic}, and to those who waited", "Lift your cups, for {topic} is among us",
              "May {topic} never want for company"),
    "weather report": ("A calm morning, say those who follow {topic}", "Rain by noon, and no sign of {topic}",
                       "From the north a cold wind, and with it {topic}"),
}  # fmt: skip
"""Kinds of items, with what their first line may say of the topic."""
TOPICS = tuple(
    f"{owner} {thing}"
    for owner, thing in product(
        "a borrowed|a broken|a wandering|a singing|a forgotten|a stubborn|a silver|a sleepless|a painted|a travelling|"
        "a homesick|a polite".split("|"),
        "lighthouse|umbrella|tapir|clockmaker|accordion|snowplough|beekeeper|staircase|pelican|gardener|teapot|"
        "violin|ferry|windmill|tortoise|postman|chandelier|bicycle|scarecrow|librarian".split("|"),
    )
)
_SUBJECTS = (
    "the old bell ringer|a baker's youngest son|the woman from the ferry|my neighbour's cousin|the night porter|"
    "a tired surveyor|the widow next door|an honest smuggler|the schoolmaster|a retired acrobat|the glass blower|"
    "two quiet sisters|the harbour pilot|a boy with red boots|the mayor's gardener|an uncle of mine|the piano tuner|"
    "a travelling dentist|the last tram driver|a lonely cartographer|the tall apprentice|a careful forger|"
    "the innkeeper's wife|a poet without shoes|the signal man|an absent-minded judge"
).split("|")
_VERBS = (
    "polished|lost|painted|borrowed|carried home|hid|repaired|counted|admired|wrapped up|sold|found|described|forgot"
).split("|")
_OBJECTS = (
    "a copper kettle|three loaves of rye|the wrong suitcase|an empty birdcage|a box of buttons|the town's only map|"
    "seven green candles|a wooden leg|the choir's songbook|a barrel of herring|somebody's spectacles|a paper crown|"
    "the key to the cellar|half a bicycle|an old brass lamp|a jar of plum jam|the second-best ladder|a torn sail|"
    "nine pairs of gloves|a clock without hands|the count's umbrella|a sack of walnuts|one silver spoon|a blue door"
).split("|")
_ENDINGS = (
    "before the rain|on the way to market|while nobody was looking|for the third time|at the edge of the wood|"
    "under the railway bridge|with great ceremony|to everyone's surprise|in the middle of the night|"
    "after the wedding|and said nothing of it|because of a wager|as the bells were ringing|beside the frozen canal"
).split("|")
_ASIDES = (
    "Thank you.|Good.|One moment, please.|Fine, let us go on.|That will do for now.|Very well, and thank you for that."
).split("|")
_REPLIES = (
    "Gladly.|Of course.|You are welcome.|Take your time.|As you like.|There is no hurry at all.|I am here.|"
    "Tell me when you need the next one.|Good to hear.|That was a pleasure to write.|Any time.|Please go on.|"
    "I was not quite sure about the ending of that one.|Whenever you are ready.|Ask for as many of them as you like.|"
    "It was no trouble.|There are more where these came from, and some of them are longer than you would think.|"
    "Then I shall wait here until you have thought of another thing that you would like to read.|Certainly.|"
    "Some of these come easily and some of them do not, but all of them are written with care."
).split("|")
"""Small talk. It fills the tokens that are too few for an item."""
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth", "eleventh")


def request(kind: str, topic: str) -> str:
    return f"Write {'an' if kind[0] in 'aeiou' else 'a'} {kind} about {topic}."


class Pair(NamedTuple):
    """What an item is: its kind and topic, by number."""

    kind: int
    topic: int


# --- the bank ---


class Blocks(NamedTuple):
    """Where the blocks of pieces begin: requests are the first."""

    firsts: int
    beginnings: int
    ends: int
    lasts: int
    asides: int
    replies: int
    stop: int


@dataclass(frozen=True, slots=True)
class ItemBank:
    """The pieces of items: requests, first lines, and the beginnings, ends and last ends of other lines; and small
    talk with its replies."""

    bank: PieceBank
    kinds: tuple[str, ...]
    topics: tuple[str, ...]
    first_lines: int
    """First lines of each kind and topic."""
    beginnings: tuple[str, ...]
    ends: tuple[str, ...]
    blocks: Blocks

    def requests(self, kinds: Indices, topics: Indices) -> Indices:
        return kinds * len(self.topics) + topics

    def firsts(self, kinds: Indices, topics: Indices, variants: Indices) -> Indices:
        return self.blocks.firsts * (1 + variants) + self.requests(kinds, topics)

    def first_line(self, pair: Pair, variant: int) -> str:
        return _first_line(self.kinds[pair.kind], self.topics[pair.topic], variant)


@cache
def item_bank(split: Split) -> ItemBank:
    """The bank of a split. Train and test have neither topics nor beginnings of lines in common."""
    kinds, topics = tuple(KINDS), of_split(TOPICS, split)
    beginnings = of_split((f"{who[0].upper()}{who[1:]} {did}" for who, did in product(_SUBJECTS, _VERBS)), split)
    ends = tuple(f" {what} {how}." for what, how in product(_OBJECTS, _ENDINGS))
    pairs, variants = list(product(kinds, topics)), min(map(len, KINDS.values()))
    user_turn, after_reply = (opens(USER, ASSISTANT), closes(USER, ASSISTANT)), closes(ASSISTANT, USER)
    replies = [*_REPLIES, *(f"{first} {second}" for first, second in product(_REPLIES, _REPLIES) if first != second)]
    blocks = [
        [f"{user_turn[0]}{request(*pair)}{user_turn[1]}" for pair in pairs],
        [f"{opens(ASSISTANT, USER)}{_first_line(*pair, n)}\n" for n in range(variants) for pair in pairs],
        beginnings,
        [f"{end}\n" for end in ends],
        [f"{end}{after_reply}" for end in ends],
        [f"{user_turn[0]}{aside}{user_turn[1]}" for aside in _ASIDES],
        [f"{opens(ASSISTANT, USER)}{reply}{after_reply}" for reply in replies],
    ]
    pieces = [piece for block in blocks for piece in block]
    bank = PieceBank(
        f"invented items ({split})", digest(pieces), pieces, contiguous=False,
        ends_sentence=[piece.endswith(after_reply) for piece in pieces],
    )  # fmt: skip
    starts = Blocks(*accumulate(map(len, blocks)))
    return ItemBank(bank, kinds, topics, variants, beginnings, ends, starts)


def _first_line(kind: str, topic: str, variant: int) -> str:
    return _sentence(KINDS[kind][variant].format(topic=topic))


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'?' if text.startswith(('What', 'Why')) else '.'}"


def draw_item(bank: ItemBank, pair: Pair, lines: int, draw: random.Random, taken: set[str]) -> str:
    """The text of an item: a first line, and others that no item in `taken` has."""
    texts = [bank.first_line(pair, draw.randrange(bank.first_lines))]
    while len(texts) < lines:
        line = draw.choice(bank.beginnings) + draw.choice(bank.ends)
        if line not in taken:
            taken.add(line)
            texts.append(line)
    return "\n".join(texts)


# --- the conversation around the items that are asked for ---

_TRIES = 100
"""Tries to draw an item of exactly the tokens that are left."""


@dataclass(frozen=True, slots=True)
class ItemExchanges:
    """Requests and items in random order, of an exact number of tokens: the last item of a stretch fills the tokens
    that are left. A shorter conversation is the beginning of a longer one."""

    items: ItemBank
    lines: int
    seed: int
    excluded: frozenset[Pair]
    """Pairs that are asked for, with or without an answer: no other item may be one of them."""

    @property
    def bank(self) -> PieceBank:
        return self.items.bank

    def least(self, counts: Indices) -> int:
        at = self.items.blocks
        return int(counts[at.asides : at.replies].min() + counts[at.replies :].min())

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        at = self.items.blocks
        line_tokens = float(counts[at.beginnings : at.ends].mean() + counts[at.ends : at.lasts].mean())
        rows = self._rows(64 + int(sum(room.tokens for room in segment_sizes) / (line_tokens * (self.lines - 1))))
        segments, used = [], 0
        for number, room in enumerate(segment_sizes):
            filled = self._stretch(rows[used:], room, counts, number)
            if filled is None:
                return None
            whole, tail = filled
            segments.append(np.concatenate([rows[used : used + whole].reshape(-1), tail]))
            used += whole + 1
        return segments

    def _stretch(self, rows: Indices, room: SegmentSize, counts: Indices, number: int) -> tuple[int, Indices] | None:
        """The number of whole rows that fill the room, and an exchange that fills the rest."""
        reach = np.cumsum(counts[rows].sum(axis=1))
        most = int(np.searchsorted(reach, room.tokens, side="right"))
        for whole in range(most, max(most - 3, -1), -1):
            rest = room.tokens - (int(reach[whole - 1]) if whole else 0)
            if rest == 0:
                return whole, np.empty(0, np.int64)
            draw = bulk_rng(self.seed, "tail", number, whole, room.retry)
            tail = self._item(rows[whole, :2], rest, counts, draw)
            tail = self._small_talk(rest, counts, draw) if tail is None else tail
            if tail is not None:
                return whole, tail
        return None

    def _item(self, first_pieces: Indices, rest: int, counts: Indices, draw: np.random.Generator) -> Indices | None:
        """An exchange of exactly `rest` tokens: lines are drawn, and the end of the last chosen by its size."""
        at = self.items.blocks
        left = rest - int(counts[first_pieces].sum())
        line_tokens = float(counts[at.beginnings : at.ends].mean() + counts[at.ends : at.lasts].mean())
        sizes = counts[at.lasts : at.asides]
        for attempt in range(_TRIES if left > 0 else 0):
            count = max(round(left / line_tokens) + (0, 1, -1)[attempt % 3], 1)
            beginnings = draw.integers(at.beginnings, at.ends, count)
            middle = draw.integers(at.ends, at.lasts, count - 1)
            wanted = left - int(counts[beginnings].sum()) - int(counts[middle].sum())
            fitting = np.flatnonzero(sizes == wanted)
            if len(fitting):
                lines = np.empty(2 * count, np.int64)
                lines[0::2] = beginnings
                lines[1::2] = np.append(middle, at.lasts + fitting[draw.integers(len(fitting))])
                return np.concatenate([first_pieces, lines])
        return None

    def _small_talk(self, rest: int, counts: Indices, draw: np.random.Generator) -> Indices | None:
        """A remark and a reply of exactly `rest` tokens together."""
        at = self.items.blocks
        sizes = counts[at.asides : at.replies, None] + counts[None, at.replies :]
        fitting = np.argwhere(sizes == rest)
        if not len(fitting):
            return None
        aside, reply = fitting[draw.integers(len(fitting))]
        return np.array([at.asides + aside, at.replies + reply], np.int64)

    def _rows(self, count: int) -> Indices:
        """Exchanges, one row of pieces each. A longer list begins with the shorter one."""
        items, at = self.items, self.items.blocks
        streams = bulk_rng(self.seed, "exchanges").spawn(3 + 2 * (self.lines - 1))
        pairs = len(items.kinds) * len(items.topics)
        size = 1 << max(count * pairs // (pairs - len(self.excluded)), 1).bit_length()
        kinds = streams[0].integers(0, len(items.kinds), size)
        topics = streams[1].integers(0, len(items.topics), size)
        variants = streams[2].integers(0, items.first_lines, size)
        columns = [items.requests(kinds, topics), items.firsts(kinds, topics, variants)]
        for number in range(self.lines - 1):
            ends = (at.lasts, at.asides) if number == self.lines - 2 else (at.ends, at.lasts)
            columns.append(streams[3 + 2 * number].integers(at.beginnings, at.ends, size))
            columns.append(streams[4 + 2 * number].integers(*ends, size))
        taken = [pair.kind * len(items.topics) + pair.topic for pair in self.excluded]
        return np.stack(columns, axis=1)[~np.isin(columns[0], taken)]


# --- the task ---


QUESTION = (
    "Repeat, word for word, the {ordinal} {kind} about {topic} that you wrote in this conversation. "
    "Begin your answer with {code} and a space, and write nothing else besides."
)
CHARACTERS_PER_TOKEN = 3
"""Fewer than in any usual tokenizer, so that an answer has tokens to spare; the fitter allows more where it must."""


class Mrcr(RetrievalTask):
    """Repeat the i-th item of a kind and topic from a conversation of many.

    Depth is where the turn that is asked for begins. In shared and nested reading the questions of a length are about
    as few groups of items as they need, so that one conversation answers many.
    """

    version: ClassVar[str] = "1"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "retrieval"
    absent_clause: ClassVar[str] = ' If there is no such item, answer "{reply}" and nothing else.'

    needles: int = Field(2, ge=1, le=10, description="items of the same kind and topic; several make a sweep: 2,4,8")
    lines: int = Field(6, ge=3, le=60, description="lines of an item; about 13 tokens each")
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 for enough")

    per_document: int = Field(
        0, ge=0, le=256, description="samples that one document answers in shared and nested reading; 0: one"
    )

    @property
    def samples_per_document(self) -> int:
        return self.per_document or 1

    def parts(self) -> Mapping[str, PromptPart]:
        question = PromptPart((QUESTION,), needs=("ordinal", "kind", "topic", "code"))
        return {"question": question} | self.absent_parts()

    def reminder(self) -> str:
        return opens(USER, ASSISTANT) + super().reminder()

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster = self.cluster(cells)
        items, taken = item_bank(self.split), _Taken(set(), set())
        groups = []
        for length in sorted({cell.length for cell in cells}):
            groups += self._groups([cell for cell in cells if cell.length == length], items, taken, seed)
        items_of_cells = {cell: (group, item) for group in groups for item in group.items if (cell := item.cell)}
        questions = tuple(self._ask(*items_of_cells[cell], items, groups, taken, seed) for cell in cells)
        drawn = seed_of(seed, "mrcr", *cluster.coordinates)
        return self.new_draft(
            cells,
            head="",
            filler=ItemExchanges(items, self.lines, drawn, frozenset(taken.pairs)),
            facts=(fact for group in groups for fact in group.facts(items)),
            questions=questions,
            conversation=True,
        )

    def _groups(self, cells: Sequence[Cell], items: ItemBank, taken: _Taken, seed: int) -> list[_Group]:
        """Groups of items for the cells of one length: every cell asks for one item, the others stand anywhere."""
        draw = rng(seed, "mrcr groups", *(c for cell in cells for c in cell.coordinates))
        shuffled = list(cells)
        draw.shuffle(shuffled)
        count = -(-len(cells) // self.needles)
        groups = []
        for number in range(count):
            pair = taken.new_pair(items, draw)
            own = [_Item(cell, draw.random() if cell.depth is None else cell.depth) for cell in shuffled[number::count]]
            others = [_Item(None, draw.random()) for _ in range(self.needles - len(own))]
            placed = sorted([*own, *others], key=lambda item: item.depth)
            texts = tuple(draw_item(items, pair, self.lines, draw, taken.lines) for _ in placed)
            groups.append(_Group(f"{cells[0].key}#{number}", cells[0].length, pair, tuple(placed), texts))
        return groups

    def _ask(
        self, group: _Group, item: _Item, items: ItemBank, groups: Sequence[_Group], taken: _Taken, seed: int
    ) -> DraftQuestion:
        cell, number = item.cell, group.items.index(item)
        assert cell is not None
        draw = rng(seed, "mrcr question", *cell.coordinates)
        code = draw_code(draw, self.split)
        pair, ordinal, absent = group.pair, number, self.is_absent(cell, seed)
        if absent:  # one more than there are, or of a kind and topic that was never asked for
            beyond = draw.random() < 0.5
            pair, ordinal = (pair, self.needles) if beyond else (taken.new_pair(items, draw), number)
        others = tuple(f"{code} {text}" for n, text in enumerate(group.texts) if n != number)
        elsewhere = tuple(text for other in groups if other is not group for text in other.texts)
        target = f"{code} {group.texts[number]}"
        return DraftQuestion(
            cell=cell,
            text=opens(USER, ASSISTANT)
            + self.fill(
                "question", ordinal=ORDINALS[ordinal], kind=items.kinds[pair.kind], topic=items.topics[pair.topic],
                code=code,
            ),
            answer_prefix="",
            targets=(target,),
            allowance=self.answer_tokens or len(target) // CHARACTERS_PER_TOKEN,
            scorers=MRCR_SCORERS,
            facts=(f"{group.name}.{number}",),
            order_facts=tuple(f"{group.name}.{n}" for n in range(number)),
            distractors=elsewhere,
            mistakes={WRONG_ORDINAL: others} if others else {},
            labels={"needles": str(self.needles), "kind": items.kinds[pair.kind]},
            ordinal=ordinal + 1,
            family="mrcr",
            answer_form="{answer}",
            code_word=code,
            absent=absent or None,
        )  # fmt: skip


def draw_code(draw: random.Random, split: Split) -> str:
    """A word of four syllables that no language has."""
    return draw_new(
        lambda: "".join(draw.choice("bdfgklmnprstvz") + draw.choice("aeiou") for _ in range(4)), set(), split
    )


@dataclass(frozen=True, slots=True)
class _Taken:
    """The kinds, topics and lines that the items of a document already use."""

    pairs: set[Pair]
    lines: set[str]

    def new_pair(self, items: ItemBank, draw: random.Random) -> Pair:
        kinds_and_topics = len(items.kinds) * len(items.topics)
        if len(self.pairs) + 1 >= kinds_and_topics:  # one is left for the items that no question asks for
            raise UsageError(
                f"one conversation has {kinds_and_topics:,} kinds and topics, too few for these questions",
                where="mrcr",
                fix="ask fewer samples of a document (per_document), at fewer depths or lengths",
            )
        while True:
            pair = Pair(draw.randrange(len(items.kinds)), draw.randrange(len(items.topics)))
            if pair not in self.pairs:
                self.pairs.add(pair)
                return pair


@dataclass(frozen=True, slots=True)
class _Item:
    """One item of a group, at a depth; `cell` asks for it."""

    cell: Cell | None
    depth: float


@dataclass(frozen=True, slots=True)
class _Group:
    """Items of one kind and topic, in their order, with their texts."""

    name: str
    length: int
    pair: Pair
    items: tuple[_Item, ...]
    texts: tuple[str, ...]

    def facts(self, bank: ItemBank) -> list[Fact]:
        """The exchanges to plant, in the form they have between two others."""
        request_text = request(bank.kinds[self.pair.kind], bank.topics[self.pair.topic])
        before = opens(USER, ASSISTANT) + request_text + closes(USER, ASSISTANT) + opens(ASSISTANT, USER)
        return [
            Fact(f"{self.name}.{number}", before + text + closes(ASSISTANT, USER), item.depth, self.length)
            for number, (item, text) in enumerate(zip(self.items, self.texts, strict=True))
        ]
