"""Invented reports as a corpus: coherent, with people, firms and works that come back, and nobody has ever read them.

Each document is one report about a growing cast. What is said of a work once (price, workers, who leads it) is kept in
a ledger and said again later in other words, so that far context is worth having; a model cannot know any of it by
heart, since every seed writes other reports.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from leadline.core.digest import digest
from leadline.core.seeds import rng
from leadline.tasks import report_texts as texts
from leadline.tasks.fiction_names import TRADES, pool
from leadline.text.corpora import Corpus, open_corpus

NAME = "reports"
VERSION = "1"
CHARACTERS_PER_TOKEN = 8
"""More than any tokenizer makes of them, words counted whole included, so that a report is always long enough."""
_WORKS_A_CHAPTER = 3
_PARAGRAPHS_A_SECTION = (2, 5)


@dataclass(frozen=True)
class Reports:
    """Any number of reports, each as long as it is wanted. A longer report begins as a shorter one does."""

    name: str = NAME
    digest: str = field(default_factory=lambda: digest([NAME, VERSION]))

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        return write_report(seed, number, tokens * CHARACTERS_PER_TOKEN)


def open_documents(name: str, field: str) -> Corpus:
    """The corpus a name means, invented reports among them."""
    return Reports() if name == NAME else open_corpus(name, field)


@lru_cache(maxsize=64)
def write_report(seed: int, number: int, characters: int) -> str:
    """A report of at least so many characters, ending with a paragraph."""
    writer = _Writer(rng(seed, NAME, VERSION, number))
    parts = [writer.title(), writer.opening()]
    size = sum(map(len, parts))
    while size < characters:
        section = writer.section()
        parts.append(section)
        size += len(section) + 2
    return "\n\n".join(parts)


@dataclass(frozen=True, slots=True)
class _Work:
    """A work under way, with what was said of it when it was begun."""

    thing: str
    town: str
    firm: str
    lead: str
    sum: str
    staff: int
    months: int
    month: str
    year: int


class _Writer:
    """Writes one report from its beginning on, and remembers what it has said."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._office = draw.choice(texts.OFFICES)
        self._year = draw.randrange(1880, 1990)
        self._town = draw.choice(pool("place", "test"))
        self._works: list[_Work] = []
        self._people = [self._person() for _ in range(6)]
        self._section = 0

    def title(self) -> str:
        return f"{self._office}: Report on public works in and around {self._town}, {self._year + 3}"

    def opening(self) -> str:
        draw = self._draw
        return draw.choice(texts.OPENING).format(
            office=self._office, town=self._town, count=draw.randrange(3, 60), month=draw.choice(texts.MONTHS),
            year=self._year + 2, span=f"the years {self._year} to {self._year + 2}",
        )  # fmt: skip

    def section(self) -> str:
        """A heading and some paragraphs; every few sections the cast grows."""
        self._section += 1
        if len(self._works) < _WORKS_A_CHAPTER or self._draw.random() < 0.3:
            self._works.append(self._begin())
            self._people.append(self._person())
            work, first = self._works[-1], [self._fill(texts.BEGUN, self._works[-1])]
        else:
            work, first = self._draw.choice(self._works), []
        heading = f"{self._section}. {self._fill(texts.HEADINGS, work)}"
        count = self._draw.randint(*_PARAGRAPHS_A_SECTION)
        return "\n\n".join([heading, *first, *(self._paragraph(work) for _ in range(count))])

    def _paragraph(self, work: _Work) -> str:
        kinds = [texts.PROGRESS, texts.VOICES, texts.LETTERS, texts.ADVICE]
        if len(self._works) > 1:
            kinds.append(texts.COMPARED)
        return self._fill(self._draw.choice(kinds), work)

    def _begin(self) -> _Work:
        draw = self._draw
        taken = {work.thing for work in self._works}
        while (thing := draw.choice(texts.THINGS).format(adj=draw.choice(texts.ADJECTIVES))) in taken:
            if len(taken) > len(texts.THINGS) * len(texts.ADJECTIVES) // 2:
                break  # a very long report may have two of a name, in two towns
        return _Work(
            thing=thing,
            town=draw.choice(pool("place", "test")) if draw.random() < 0.6 else self._town,
            firm=f"{draw.choice(pool('last', 'test'))} {draw.choice(TRADES)}",
            lead=self._person(),
            sum=f"{draw.uniform(0.4, 80):.2f}",
            staff=draw.randrange(11, 900),
            months=draw.randrange(5, 70),
            month=draw.choice(texts.MONTHS),
            year=self._year + draw.randrange(3),
        )

    def _person(self) -> str:
        return f"{self._draw.choice(pool('first', 'test'))} {self._draw.choice(pool('last', 'test'))}"

    def _fill(self, forms: Sequence[str], work: _Work) -> str:
        """One of the forms about a work. What the ledger holds is taken from there, the rest is drawn."""
        draw = self._draw
        second = draw.choice([w for w in self._works if w is not work] or [work])
        defects = draw.randrange(2, 90)
        slots = {
            **_said_of(work),
            **{f"{name}2": value for name, value in _said_of(second).items()},
            "office": self._office,
            "other": draw.choice(self._people),
            "later": f"{draw.choice(texts.MONTHS)} {work.year + draw.randrange(1, 4)}",
            "trouble": draw.choice(texts.TROUBLES),
            "job": draw.choice(texts.JOBS),
            "remark": draw.choice(texts.REMARKS),
            "share": draw.randrange(4, 97),
            "defects": defects,
            "fixed": draw.randrange(defects),
            "weeks": draw.randrange(2, 30),
            "more": draw.randrange(3, 60),
            "fewer": draw.randrange(2, max(3, int(work.staff))),
            "offers": draw.randrange(2, 12),
            "extra": f"{draw.uniform(0.1, 9):.2f}",
            "fair": draw.choice(("fair", "low", "high")),
            "dearer": "dearer" if float(work.sum) > float(second.sum) else "cheaper",
        }
        slots["recalled"] = draw.choice(texts.RECALLED).format(**slots)
        return draw.choice(forms).format(**slots)


def _said_of(work: _Work) -> dict[str, object]:
    return {
        "thing": work.thing, "Thing": work.thing[0].upper() + work.thing[1:], "town": work.town, "firm": work.firm,
        "lead": work.lead, "sum": work.sum, "staff": work.staff, "months": work.months, "month": work.month,
        "year": work.year,
    }  # fmt: skip
