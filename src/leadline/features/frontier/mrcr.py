"""The i-th of several alike: one item of a conversation, among items of the same kind and topic.

After MRCR (Vodrahalli et al. 2024, Michelangelo, arXiv 2409.12640) in the form of OpenAI's data set `openai/mrcr`: a
user asks for poems, riddles, letters ... about topics, an assistant writes them, and at the end one of them is to be
repeated word for word, named by its kind, its topic and its number, after a code word. Here the items are invented, the
length is exact, and depth is the place of the turn that is asked for.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, rng, seed_of
from leadline.core.turns import ASSISTANT, USER, closes, opens
from leadline.core.types import Cell, Reading
from leadline.features.frontier.mrcr_items import ORDINALS, ItemBank, ItemExchanges, Pair, draw_item, item_bank, request
from leadline.scorers.copies import MRCR_SCORERS, WRONG_ORDINAL
from leadline.tasks.wording import PromptPart, RetrievalTask
from leadline.tasks.words import draw_new

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
        asked = {cell: (group, item) for group in groups for item in group.items if (cell := item.cell)}
        questions = tuple(self._ask(*asked[cell], items, groups, taken, seed) for cell in cells)
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
    """What the items of a document already are and say."""

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
        """The exchanges to plant, as they stand between two others."""
        asked = request(bank.kinds[self.pair.kind], bank.topics[self.pair.topic])
        before = opens(USER, ASSISTANT) + asked + closes(USER, ASSISTANT) + opens(ASSISTANT, USER)
        return [
            Fact(f"{self.name}.{number}", before + text + closes(ASSISTANT, USER), item.depth, self.length)
            for number, (item, text) in enumerate(zip(self.items, self.texts, strict=True))
        ]
