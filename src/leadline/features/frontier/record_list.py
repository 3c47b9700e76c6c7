"""A list of records with an exact number of tokens: messages of invented users, each with a date and one topic.

    Brabeck | 14 March 2031 | The parcel has not arrived yet. | delivery

Some topics and users are more frequent than others, by weights that every document draws; in the first and last
records of a list all topics are equally likely, so that they do not show which is the most frequent. The topic is
in the record, or follows from the message: each message is about one topic without doubt. A longer list begins
with the shorter one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from leadline.core.drafts import PieceBank, SegmentSize
from leadline.core.seeds import Split, bulk_rng, digest_text
from leadline.tasks.placement import PAD, SPARE, fill_lines, without_pads
from leadline.tasks.qa_fiction import pool
from leadline.tasks.words import MONTHS

if TYPE_CHECKING:
    from leadline.core.types import Indices

YEAR = 2031
DAYS = 28
MONTHS_OF_LIST = 3
"""Months that the records of a list are of, so that there are several records of each month and topic."""
EVEN_RECORDS = 6
"""The first and last records of a list, in which all topics are equally likely."""
CHOSEN_RECORDS = 4
"""Records that are selected by their tokens, so few because some topics have more messages of the right size."""
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

    def written(self, *, given: bool) -> str:
        line = f"{self.user} | {self.day} {self.month} {YEAR} | {self.text}"
        return f"{line} | {TOPIC_OF[self.text]}" if given else line


@dataclass(frozen=True, slots=True)
class _RecordBank:
    """Dates, users and messages, each a range of pieces; the pad is the last piece."""

    bank: PieceBank
    dates: int
    users: tuple[str, ...]
    texts: tuple[int, ...]
    """The first message of each topic, by position among the messages."""


@cache
def _bank(split: Split, given: bool) -> _RecordBank:
    users = pool("last", split)[:USERS]
    dates = [f" {day} {month} {YEAR} |" for month in MONTHS for day in range(1, DAYS + 1)]
    ends = [f" {text} | {topic}\n" if given else f" {text}\n" for text, topic in TOPIC_OF.items()]
    pieces = [*dates, *(f"{user} |" for user in users), *ends, PAD]
    closes = tuple(piece.endswith("\n") for piece in pieces)
    name = f"records with topics {'given' if given else 'to be inferred'}"
    bank = PieceBank(name, digest_text("\n".join(pieces)), pieces, contiguous=False, ends_sentence=closes, ending="\n")
    starts = np.cumsum([0, *(len(texts) for texts in MESSAGES.values())])
    return _RecordBank(bank, len(dates), users, tuple(starts.tolist()))


@dataclass(frozen=True, slots=True)
class RecordList:
    """The records of one document, without those that are planted in it."""

    users: int
    given: bool
    seed: int
    split: Split

    @property
    def bank(self) -> PieceBank:
        return _bank(self.split, self.given).bank

    def names(self) -> tuple[list[str], list[str]]:
        """The users of this document, and others, for planted records."""
        bank = _bank(self.split, self.given)
        order = self._user_order(bank).tolist()
        named = [bank.users[i] for i in order]
        return named[: self.users], named[self.users :]

    def months(self) -> list[str]:
        """The months of this document."""
        return [MONTHS[i] for i in self._month_order().tolist()]

    def least(self, counts: Indices) -> int:
        """The shortest record that may be drawn: there is no question about an empty list."""
        bank = _bank(self.split, self.given)
        users = bank.dates + len(bank.users)
        return int(counts[: bank.dates].min() + counts[bank.dates : users].min() + counts[users:-1].min())

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        bank = _bank(self.split, self.given)
        pad, last = int(counts[-1]), len(bank.bank.pieces) - 1
        typical = counts[: bank.dates].mean() + counts[bank.dates : -1].mean() + 1
        lines = self._rows(
            bank, int(1.5 * sum(room for room, _ in segment_sizes) / typical) + 2 * SPARE * len(segment_sizes)
        )
        sizes = counts[lines].sum(axis=1)
        used, segments = 0, []
        for number, (room, again) in enumerate(segment_sizes):
            start, ends = used + again, self._rows(bank, EVEN_RECORDS, f"ends of {number} {again} ")
            ends = ends[np.cumsum(counts[ends].sum(axis=1)) < room / 2]
            found = fill_lines(sizes[start:], room - int(counts[ends].sum()), pad, CHOSEN_RECORDS)
            if found is None:
                return None
            whole, chosen, pads = found
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
            """A column, by the weights; of a longer list the beginning is the same."""
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
    """Of a record: four if its topic is given, else three."""
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
    found = dict.fromkeys(TOPICS, 0)
    for (_, _, topic), times in counts.items():
        found[topic] += times
    best = (max if most else min)(found.values())
    return tuple(topic for topic, times in found.items() if times == best)
