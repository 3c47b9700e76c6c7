"""Counting over a whole list of records: nothing can be skipped, and nothing can be looked up.

The idea is that of OOLONG (arXiv 2511.02817): how often, most and least frequent, more or less common, by user, by
period. The records are invented, so there is nothing to download and their topics are certain. Truth is counted in the
text that is sent, at every cut. docs/aggregate.md says what differs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field

from leadline.core.contracts import Placement
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.errors import UsageError
from leadline.core.seeds import rng, seed_of
from leadline.core.types import Cell, Reading
from leadline.features.frontier.record_list import (
    DAYS,
    MESSAGES,
    TOPICS,
    CountedRecords,
    Counts,
    RecordLine,
    RecordList,
    Wanted,
    extreme,
    total,
)
from leadline.tasks.placement import spread_depths
from leadline.tasks.wording import PromptPart, WordedTask, question_part
from leadline.tasks.words import listed

CountOperation = Literal["count", "most", "least", "compare", "user", "period"]
OPERATIONS: tuple[CountOperation, ...] = ("count", "most", "least", "compare", "user", "period")
SCORERS = ("aggregate", "aggregate.strict")
ANSWER = "Answer: {answer}"
MORE, LESS, SAME = "more common", "less common", "same frequency"
RECORDS_PLANTED = (3, 12)
"""Fewest and most records of a user whose records are all around one depth."""
OF_TOPIC_PLANTED = (1, 6)
"""The same for those of one topic, where the question is about them."""
LONG = 8192
"""Tokens from which on a list has several records of each user and topic."""

INSTRUCTION = (
    "Below are messages to a shop, one on each line: the user who wrote it, the date, and the message. Every message "
    "is about one of these topics: {topics}. Keep count of them; a question about all of them follows.\n\n"
)
GIVEN = (
    "Below are messages to a shop, one on each line: the user who wrote it, the date, the message, and its topic, "
    "which is one of these: {topics}. Keep count of them; a question about all of them follows.\n\n"
)
FORM = " Reply with one line of this form and nothing after it:\nAnswer: {what}"
QUESTIONS = {
    "count": "\n\nQuestion: How many of the messages are about {topic}?",
    "most": "\n\nQuestion: Which topic do the most messages have?",
    "least": "\n\nQuestion: Which topic do the fewest messages have?",
    "compare": (
        "\n\nQuestion: Are messages about {topic} more common than messages about {other}, less common, or do both "
        "have the same frequency?"
    ),
    "user": "\n\nQuestion: How many messages did {user} write?",
    "user_topic": "\n\nQuestion: How many of the messages that {user} wrote are about {topic}?",
    "period": "\n\nQuestion: How many of the messages written in {month} are about {topic}?",
}
WHAT = {"most": "the topic", "least": "the topic", "compare": f'"{MORE}", "{LESS}" or "{SAME}"'}


class Aggregate(WordedTask):
    """Count records over a whole list, by topic, user and month.

    With placement=depth the question is about a user whose records are all in a band of width `spread` around the
    depth; with placement=anywhere, the default, about the whole list.
    """

    version: ClassVar[str] = "2"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "aggregation"

    placement: Placement = Field("anywhere", description="records asked for all over the list, or around a depth")
    operations: tuple[CountOperation, ...] = Field(OPERATIONS, min_length=1, description="what is asked, in turn")
    topics: Literal["given", "inferred"] = Field(
        "given", description="each record names its topic, or it has to be inferred from the message"
    )
    users: int = Field(12, ge=2, le=200, description="users of a list")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds the records of one user")
    per_document: int = Field(
        12, ge=1, le=256, description="samples that one list answers, at each depth, in shared and nested reading"
    )
    answer_tokens: int = Field(96, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        topics = INSTRUCTION if self.topics == "inferred" else GIVEN
        return {
            "instruction": PromptPart((topics,), needs=("topics",), opens=True),
            **{name: question_part(text) for name, text in QUESTIONS.items()},
            "form": PromptPart((FORM,), may=("what",)),
        }

    @property
    def samples_per_document(self) -> int:
        return self.per_document

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster = self.cluster(cells)
        records = RecordList(
            self.users, self.topics == "given", seed_of(seed, "records", *cluster.coordinates), self.split
        )
        users, others = records.names()
        if self.has_depth and len(cells) > len(others):
            raise UsageError(
                f"one list has {len(others):,} users whose records can be around a depth, not {len(cells):,}",
                where=cells[0].task,
                fix="ask fewer samples of a document (per_document), at fewer depths or lengths",
            )
        counted = CountedRecords(4 if self.topics == "given" else 3)
        facts: list[Fact] = []
        questions, asked = [], set[tuple[int, str]]()
        for number, cell in enumerate(cells):
            draw = rng(seed, "aggregate", *cell.coordinates)
            operation = self.operations[cell.sample % len(self.operations)]
            user, planted = draw.choice(users), tuple[Fact, ...]()
            if cell.depth is not None:
                operation, user = "user", others[number]
            question = self._new_question(cell, operation, user, records, draw, asked)
            if cell.depth is not None:
                planted = self._plant(cell, question, records.months(), draw)
                facts.extend(planted)
            questions.append(self._ask(cell, question, counted, tuple(f.id for f in planted)))
        return self.new_draft(
            cells,
            head=self.fill("instruction", topics=listed(TOPICS)),
            filler=records,
            facts=tuple(facts),
            questions=tuple(questions),
            shared_end=True,
        )

    def _plant(
        self, cell: Cell, question: _CountQuestion, months: Sequence[str], draw: random.Random
    ) -> tuple[Fact, ...]:
        """The records of a user, around the depth of the cell, as many as any other number."""
        user, topic = question.named["user"], question.named.get("topic")
        if topic is None:
            topics = [draw.choice(TOPICS) for _ in range(draw.randint(*RECORDS_PLANTED))]
        else:
            others = [other for other in TOPICS if other != topic]
            topics = [topic] * draw.randint(*OF_TOPIC_PLANTED) + [
                draw.choice(others) for _ in range(draw.randint(2, 6))
            ]
            draw.shuffle(topics)
        depths = spread_depths(cell.depth, self.spread, len(topics), draw)
        made = [
            RecordLine(draw.choice(months), draw.randint(1, DAYS), user, draw.choice(MESSAGES[topic]))
            for topic in topics
        ]
        return tuple(
            Fact(f"{cell.key}#{n}", record.written(given=self.topics == "given"), depth, cell.length)
            for n, (record, depth) in enumerate(zip(made, depths, strict=True))
        )

    def _new_question(
        self,
        cell: Cell,
        operation: CountOperation,
        user: str,
        records: RecordList,
        draw: random.Random,
        asked: set[tuple[int, str]],
    ) -> _CountQuestion:
        """A question that was not asked of this cut before, where there is another."""
        users, months = records.names()[0], records.months()
        by_topic = cell.depth is not None or cell.length >= LONG
        for tries in range(64):
            made = _draw_question(operation, user, months, draw, by_topic=by_topic)
            if (cell.length, made.key) not in asked:
                break
            if cell.depth is None:
                user = draw.choice(users)
                if operation in ("most", "least") or tries > 8:  # there are only so many of these
                    operation = draw.choice(OPERATIONS[3:])
        asked.add((cell.length, made.key))
        return made

    def _ask(
        self, cell: Cell, question: _CountQuestion, counted: CountedRecords, facts: tuple[str, ...]
    ) -> DraftQuestion:
        text = self.fill(question.part, **question.named)
        return DraftQuestion(
            cell=cell,
            text=text + self.fill("form", what=WHAT.get(question.operation, "the number")),
            answer_prefix="",
            count_targets=lambda sent: question.truth(counted.read(sent)),
            allowance=self.answer_tokens,
            scorers=SCORERS,
            facts=facts,
            distractors=_choices(question.operation),
            labels={"operation": question.operation, "topics": self.topics},
            match="any",
            family="records",
            answer_form=ANSWER,
        )


def _choices(operation: CountOperation) -> tuple[str, ...]:
    """What other answers there are, where the answer is one of a few."""
    return TOPICS if operation in ("most", "least") else (MORE, LESS, SAME) if operation == "compare" else ()


@dataclass(frozen=True, slots=True)
class _CountQuestion:
    """A question and the function that answers it from the counted records."""

    operation: CountOperation
    part: str
    named: Mapping[str, str]
    truth: Callable[[Counts], tuple[str, ...]]

    @property
    def key(self) -> str:
        return " ".join((self.part, *self.named.values()))


def _draw_question(
    operation: CountOperation, user: str, months: Sequence[str], draw: random.Random, *, by_topic: bool
) -> _CountQuestion:
    topic, other = draw.sample(TOPICS, 2)
    month = draw.choice(months)
    if operation == "count":
        return _CountQuestion(operation, "count", {"topic": topic}, _number(lambda u, m, t: t == topic))
    if operation in ("most", "least"):
        return _CountQuestion(operation, operation, {}, partial(extreme, most=operation == "most"))
    if operation == "compare":
        named = {"topic": topic, "other": other}
        return _CountQuestion(operation, "compare", named, lambda c: _compared(c, topic, other))
    if operation == "period":
        named = {"month": month, "topic": topic}
        return _CountQuestion(operation, "period", named, _number(lambda u, m, t: m == month and t == topic))
    if draw.random() < 0.5 or not by_topic:
        return _CountQuestion(operation, "user", {"user": user}, _number(lambda u, m, t: u == user))
    named = {"user": user, "topic": topic}
    return _CountQuestion(operation, "user_topic", named, _number(lambda u, m, t: u == user and t == topic))


def _number(wanted: Wanted) -> Callable[[Counts], tuple[str, ...]]:
    return lambda counts: (str(total(counts, wanted)),)


def _compared(counts: Counts, topic: str, other: str) -> tuple[str, ...]:
    one, two = total(counts, lambda u, m, t: t == topic), total(counts, lambda u, m, t: t == other)
    return (MORE if one > two else LESS if one < two else SAME,)
