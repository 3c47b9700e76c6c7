"""Counting over a whole list of records: nothing can be skipped, and nothing can be looked up.

The idea is that of OOLONG (arXiv 2511.02817): how often, most and least frequent, more or less common, by user, by
period. The records are invented, so there is nothing to download and their topics are certain. Truth is counted in the
text that is sent, at every cut. docs/aggregate.md says what differs.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from leadline.core.contracts import Placement
from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank, SegmentSize
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, bulk_rng, digest_text, rng, seed_of
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import PAD, SPARE, fill_lines, spread_depths, without_pads
from leadline.tasks.qa_fiction import pool
from leadline.tasks.wording import PromptPart, WordedTask, question_part
from leadline.tasks.words import MONTHS, listed

if TYPE_CHECKING:
    from leadline.core.types import Indices


# --- A list of records with an exact number of tokens: messages of invented users, each with a date and one topic ---
#
# Brabeck | 14 March 2031 | The parcel has not arrived yet. | delivery
#
# Some topics and users are more frequent than others, by weights that every document draws; in the first and last
# records of a list all topics are equally likely, so that they do not show which is the most frequent. The topic is
# in the record, or follows from the message: each message is about one topic without doubt. A longer list begins
# with the shorter one.


YEAR = 2031
DAYS = 28
MONTHS_OF_LIST = 3
"""Months that the records of a list are of, so that there are several records of each month and topic."""
EVEN_RECORDS = 6
"""The first and last records of a list, in which all topics are equally likely."""
CHOSEN_RECORDS = 4
"""Records that are selected by their tokens. They are few, because some topics have more messages of the right size."""
MONTH_OF = {f"{day} {month} {YEAR}": month for month in MONTHS for day in range(1, DAYS + 1)}
USERS = 1024
"""Users in the bank; a document has some of them."""

MESSAGES: dict[str, tuple[str, ...]] = {
    "delivery": (
        "The parcel has not arrived yet.",
        "Your driver left the box at the wrong house.",
        "The courier never rang the bell.",
        "My package has been stuck in the depot for days.",
        "Shipping was promised within two days and took nine.",
        "The tracking page still says the parcel is on its way.",
        "Half of the shipment is missing from the van.",
        "Please send the package to my new address.",
        "The box came soaked and with a torn corner.",
        "When will the courier bring the second parcel?",
    ),
    "billing": (
        "I was charged twice for one order.",
        "The invoice shows the wrong amount.",
        "Why is there a fee on my bill?",
        "My card was debited after the free month.",
        "Please send me a corrected invoice.",
        "The tax on the receipt does not add up.",
        "You billed me in another currency.",
        "The discount is missing from the bill.",
        "I want the double payment returned to my card.",
        "The total on the invoice is too high by ten.",
    ),
    "password": (
        "I forgot my password.",
        "The link to reset my password has expired.",
        "My account is locked after three wrong passwords.",
        "The new password is not accepted at login.",
        "I never get the code for logging in.",
        "How do I change the password of my account?",
        "Someone else tried to log in to my account.",
        "The login page turns my password down.",
        "My user name and password stopped working today.",
        "Please unlock my login.",
    ),
    "praise": (
        "Thank you, the staff were wonderful.",
        "I love this shop and tell everyone about it.",
        "This is the best service I have ever had.",
        "Great work, I am very happy with everything.",
        "Your team deserves a medal.",
        "Five stars from me, simply perfect.",
        "I just wanted to say how pleased I am.",
        "What a lovely surprise, thanks so much.",
        "Keep it up, you are doing splendidly.",
        "My compliments to the whole crew.",
    ),
    "cancellation": (
        "Please cancel my subscription.",
        "I want to end my contract at once.",
        "Stop my membership from next month on.",
        "How do I cancel the order I placed today?",
        "I no longer want the plan, end it please.",
        "Take me off the plan and close it.",
        "I hereby give notice of the end of my contract.",
        "Cancel everything that I have booked.",
        "My membership should not be renewed.",
        "I called the order off, please confirm the cancellation.",
    ),
    "hours": (
        "When do you open on Sundays?",
        "Are you open on public holidays?",
        "At what time does the shop close today?",
        "Is the desk open before nine?",
        "What are the opening hours in winter?",
        "Do you close over lunch?",
        "Until what hour can I visit the showroom?",
        "Is the branch open late on Fridays?",
        "Which days is the counter closed?",
        "How long are you open this evening?",
    ),
}
TOPICS = tuple(MESSAGES)
TOPIC_OF = {text: topic for topic, texts in MESSAGES.items() for text in texts}
TOPIC_WEIGHTS = (7.0, 5.5, 4.5, 3.5, 2.5, 1.5)


@dataclass(frozen=True, slots=True)
class RecordLine:
    """One record."""

    month: str
    day: int
    user: str
    text: str

    def written(self, *, with_topic: bool) -> str:
        line = f"{self.user} | {self.day} {self.month} {YEAR} | {self.text}"
        return f"{line} | {TOPIC_OF[self.text]}" if with_topic else line


@dataclass(frozen=True, slots=True)
class _RecordBank:
    """Dates, users and messages, each a range of pieces; the pad is the last piece."""

    bank: PieceBank
    dates: int
    users: tuple[str, ...]
    texts: tuple[int, ...]
    """The first message of each topic, by position among the messages."""


@cache
def _bank(split: Split, with_topics: bool) -> _RecordBank:
    users = pool("last", split)[:USERS]
    dates = [f" {day} {month} {YEAR} |" for month in MONTHS for day in range(1, DAYS + 1)]
    ends = [f" {text} | {topic}\n" if with_topics else f" {text}\n" for text, topic in TOPIC_OF.items()]
    pieces = [*dates, *(f"{user} |" for user in users), *ends, PAD]
    ends_sentence = tuple(piece.endswith("\n") for piece in pieces)
    name = f"records with topics {'given' if with_topics else 'to be inferred'}"
    bank = PieceBank(
        name, digest_text("\n".join(pieces)), pieces, contiguous=False, ends_sentence=ends_sentence, ending="\n"
    )
    starts = np.cumsum([0, *(len(texts) for texts in MESSAGES.values())])
    return _RecordBank(bank, len(dates), users, tuple(starts.tolist()))


@dataclass(frozen=True, slots=True)
class RecordList:
    """The records of one document, without those that are planted in it."""

    users: int
    with_topics: bool
    seed: int
    split: Split

    @property
    def bank(self) -> PieceBank:
        return _bank(self.split, self.with_topics).bank

    def names(self) -> tuple[list[str], list[str]]:
        """The users of this document, and others, for planted records."""
        bank = _bank(self.split, self.with_topics)
        order = self._user_order(bank).tolist()
        named = [bank.users[i] for i in order]
        return named[: self.users], named[self.users :]

    def months(self) -> list[str]:
        """The months of this document."""
        return [MONTHS[i] for i in self._month_order().tolist()]

    def least(self, counts: Indices) -> int:
        """The shortest record that may be drawn: there is no question about an empty list."""
        bank = _bank(self.split, self.with_topics)
        users = bank.dates + len(bank.users)
        return int(counts[: bank.dates].min() + counts[bank.dates : users].min() + counts[users:-1].min())

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        bank = _bank(self.split, self.with_topics)
        pad, last = int(counts[-1]), len(bank.bank.pieces) - 1
        typical = counts[: bank.dates].mean() + counts[bank.dates : -1].mean() + 1
        lines = self._rows(
            bank, int(1.5 * sum(room for room, _ in segment_sizes) / typical) + 2 * SPARE * len(segment_sizes)
        )
        sizes = counts[lines].sum(axis=1)
        used, segments = 0, []
        for number, (tokens, retry) in enumerate(segment_sizes):
            start, ends = used + retry, self._rows(bank, EVEN_RECORDS, f"ends of {number} {retry} ")
            ends = ends[np.cumsum(counts[ends].sum(axis=1)) < tokens / 2]
            filling = fill_lines(sizes[start:], tokens - int(counts[ends].sum()), pad, CHOSEN_RECORDS)
            if filling is None:
                return None
            whole, chosen, pads = filling
            rows = np.concatenate([lines[start : start + whole], lines[start + whole :][chosen], ends])
            if not len(rows) and not number:
                return None
            segments.append(np.concatenate([rows.reshape(-1), np.full(pads, last)]))
            used = start + whole + SPARE
        return segments

    def _user_order(self, bank: _RecordBank) -> Indices:
        return bulk_rng(self.seed, "users").permutation(len(bank.users))

    def _month_order(self) -> Indices:
        return bulk_rng(self.seed, "months").permutation(len(MONTHS))[:MONTHS_OF_LIST]

    def _rows(self, bank: _RecordBank, count: int, name: str = "") -> Indices:
        """Records as rows of three pieces: user, date, message."""
        size = 1 << max(count, 2).bit_length()

        def drawn(what: str, weights: Sequence[float]) -> Indices:
            """A column drawn by the weights. A longer column begins with the shorter one."""
            bounds = np.cumsum(weights) / np.sum(weights)
            return np.searchsorted(bounds, bulk_rng(self.seed, name + what).random(size)[:count], side="right")

        days = drawn("dates", np.ones(MONTHS_OF_LIST * DAYS).tolist())
        dates = self._month_order()[days // DAYS] * DAYS + days % DAYS
        users = self._user_order(bank)[drawn("by", np.linspace(3.0, 1.0, self.users).tolist())]
        weights = np.array(TOPIC_WEIGHTS)[bulk_rng(self.seed, "weights").permutation(len(TOPICS))]
        topics = drawn("topics", weights.tolist())
        topics[:EVEN_RECORDS] = drawn("even topics", np.ones(len(TOPICS)).tolist())[:EVEN_RECORDS]
        starts, within = np.array(bank.texts), bulk_rng(self.seed, name + "texts").random(size)[:count]
        texts = starts[topics] + (within * (starts[topics + 1] - starts[topics])).astype(np.int64)
        return np.stack([bank.dates + users, dates, bank.dates + len(bank.users) + texts], axis=1)


# --- truth ----------------------------------------------------------------------------------------

Counts = Counter[tuple[str, str, str]]
"""Records by user, month and topic."""


@dataclass(slots=True)
class CountedRecords:
    """The records of the text that is sent, counted once for all questions at the same cut."""

    fields: int
    """Fields of a record: four if its topic is given, else three."""
    _text: str = ""
    _counts: Counts = field(default_factory=Counter)

    def read(self, text: str) -> Counts:
        if text != self._text:
            parts = without_pads(text).replace("\n", " | ").split(" | ")
            users, dates, said = (parts[n :: self.fields] for n in range(3))
            months, topics = map(MONTH_OF.__getitem__, dates), map(TOPIC_OF.__getitem__, said)
            self._text, self._counts = text, Counter(zip(users, months, topics, strict=True))
        return self._counts


Wanted = Callable[[str, str, str], bool]


def total(counts: Counts, wanted: Wanted) -> int:
    return sum(times for key, times in counts.items() if wanted(*key))


def extreme(counts: Counts, *, most: bool) -> tuple[str, ...]:
    """The topics with the most or fewest records; several where they are equal."""
    by_topic = dict.fromkeys(TOPICS, 0)
    for (_, _, topic), times in counts.items():
        by_topic[topic] += times
    best = (max if most else min)(by_topic.values())
    return tuple(topic for topic, times in by_topic.items() if times == best)


# --- the task ---


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
"""A list of this many tokens or more has several records of each user and topic."""

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
        questions, used = [], set[tuple[int, str]]()
        for number, cell in enumerate(cells):
            draw = rng(seed, "aggregate", *cell.coordinates)
            operation = self.operations[cell.sample % len(self.operations)]
            user, planted = draw.choice(users), tuple[Fact, ...]()
            if cell.depth is not None:
                operation, user = "user", others[number]
            question = self._new_question(cell, operation, user, records, draw, used)
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
        """The records of a user, around the depth of the cell. All numbers of records are equally likely."""
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
        records = [
            RecordLine(draw.choice(months), draw.randint(1, DAYS), user, draw.choice(MESSAGES[topic]))
            for topic in topics
        ]
        return tuple(
            Fact(f"{cell.key}#{n}", record.written(with_topic=self.topics == "given"), depth, cell.length)
            for n, (record, depth) in enumerate(zip(records, depths, strict=True))
        )

    def _new_question(
        self,
        cell: Cell,
        operation: CountOperation,
        user: str,
        records: RecordList,
        draw: random.Random,
        used: set[tuple[int, str]],
    ) -> _CountQuestion:
        """A question that was not asked of this cut before, if there is one."""
        users, months = records.names()[0], records.months()
        by_topic = cell.depth is not None or cell.length >= LONG
        for tries in range(64):
            question = _draw_question(operation, user, months, draw, by_topic=by_topic)
            if (cell.length, question.key) not in used:
                break
            if cell.depth is None:
                user = draw.choice(users)
                if operation in ("most", "least") or tries > 8:  # there are few of these questions
                    operation = draw.choice(OPERATIONS[3:])
        used.add((cell.length, question.key))
        return question

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
    """The other possible answers, where there are few."""
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
    first, second = total(counts, lambda u, m, t: t == topic), total(counts, lambda u, m, t: t == other)
    return (MORE if first > second else LESS if first < second else SAME,)
