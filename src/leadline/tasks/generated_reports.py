"""Generated reports as a corpus: coherent texts with recurring people, firms and works, in no training data.

Each document is one report about a growing set of works. Facts about a work (price, workers, who leads it) are kept and
repeated later in other words, so that far context helps. Every seed gives other reports, so that no model has
memorised them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache

from leadline.core.seeds import digest, rng
from leadline.tasks.qa_fiction import TRADES, pool
from leadline.tasks.words import MONTHS
from leadline.text.corpora import Corpus, open_corpus

# --- templates, by kind of paragraph -------------------------------------------------------------

OPENING = (
    "The {office} commissioned this report after {count} complaints about works in {town} and its neighbours. It "
    "covers {span} and names every person who was heard. Figures are those of the books unless a footnote says so.",
    "This report was asked for by the {office} in {month} {year}. It follows {count} sites, most of them near {town}, "
    "and puts side by side what was promised, what was paid and what stands there today.",
    "When the {office} closed its accounts for {span}, auditors found {count} entries that nobody could explain. This "
    "report goes through them one by one, beginning with those in {town}.",
)

BEGUN = (
    "{Thing} in {town} was begun in {month} {year}. {firm} won the contract at {sum} million crowns, and {lead} was "
    "put in charge. The plans foresaw {staff} workers and a building time of {months} months.",
    "In {month} {year} the council of {town} voted for {thing}. Of {offers} offers that of {firm} was taken, at {sum} "
    "million crowns for {months} months of work. {lead} has led it from the first day, with {staff} people.",
    "{lead}, who had worked for {firm} for years, took charge of {thing} at {town} in {month} {year}. The contract "
    "speaks of {sum} million crowns, {staff} workers and {months} months.",
    "Nobody in {town} remembers who first proposed {thing}. The papers show that {firm} signed for it in {month} "
    "{year}, at {sum} million crowns, and that {lead} has answered for it since. {staff} workers were hired for "
    "{months} months.",
)

PROGRESS = (
    "By {later} some {share} percent of the work at {town} had been done. {lead} put the delay down to {trouble}, and "
    "asked {firm} for {more} more workers. {remark}",
    "An inspection of {thing} in {later} found {defects} defects, of which {fixed} have been put right. The inspector, "
    "{other}, blamed {trouble}. {remark}",
    "Work on {thing} stood still for {weeks} weeks in {later} because of {trouble}. {firm} went on paying its "
    "{staff} people all the same. {remark}",
    "In {later} {lead} wrote to the {office} that {thing} would need {extra} million crowns beyond what was agreed. "
    "The letter names {trouble} as the cause. {remark}",
    "The crew at {town} had reached {share} percent by {later}. Then {trouble} cost them {weeks} weeks, as {lead} "
    "reported to {other}. {remark}",
)

RECALLED = (
    "It should be recalled that {firm} had agreed to build {thing} for {sum} million crowns, under {lead}, with "
    "{staff} workers.",
    "As was said above, {thing} stands in {town} and has been led by {lead} since {month} {year}.",
    "{firm}, it will be remembered, signed for {months} months and {sum} million crowns.",
    "The contract for {thing}, signed in {month} {year}, had put the price at {sum} million crowns.",
    "{lead}, who is in charge of {thing} in {town}, had been promised {staff} workers by {firm}.",
)

VOICES = (
    '"We counted the stones twice," said {other}, a {job} from {town}, "and there were never enough of them." '
    "{recalled}",
    '{other}, {job} in {town}, had another view: "The trouble was {trouble}, and everybody knew it by {later}." '
    "{recalled}",
    "Asked about {thing}, {other} handed over a ledger in which {defects} deliveries were crossed out. {recalled} The "
    "{job} would say no more.",
    "A {job} named {other} kept a diary of the works. The entry for {later} mentions {trouble} and {weeks} days of "
    "rain. {recalled}",
)

COMPARED = (
    "Set beside {thing2} in {town2}, which cost {sum2} million crowns, {thing} was {dearer}. {firm2} had {staff2} "
    "workers there; {firm} had {staff} in {town}. The difference, the auditors write, lies in {trouble}.",
    "Two works invite comparison. {Thing} in {town}, under {lead}, was priced at {sum} million crowns; {thing2} in "
    "{town2}, under {lead2}, at {sum2} million. The first was {dearer}, and {trouble} explains only part of it.",
    "{lead2}, who built {thing2} at {town2} with {staff2} people, was asked to look at the books of {lead}. The price "
    "of {sum} million crowns seemed {fair} to the visitor, the {staff} workers did not.",
)

LETTERS = (
    "{other} to {lead}, {later}: The barges for {town} are held up by {trouble}. We can send {more} more men to "
    "{thing} next week, not before. Please tell {firm} that the price of {sum} million crowns cannot be kept.",
    "{lead} to the {office}, {later}: You ask why {thing} is late. {firm} promised {staff} workers, and I have never "
    "had more than {fewer}. The rest is {trouble}.",
    "{firm} to {other}, {later}: Our offer for {thing} was {sum} million crowns and stays so. If {town} wants it "
    "sooner than in {months} months, {town} must see to {trouble} itself.",
)

ADVICE = (
    "The authors recommend that {firm} repay {extra} million crowns, and that {lead} be heard again before {thing} is "
    "opened. {other} is to report on {trouble} within {weeks} weeks.",
    "It is advised to finish {thing} with the {staff} workers who are there, to pay no more than the {sum} million "
    "crowns agreed with {firm}, and to leave {trouble} to the town of {town}.",
    "Nothing speaks against opening {thing} to the public of {town}, once the {defects} defects are put right. Whether "
    "{lead} should lead another work for the {office} is left open.",
)

REMARKS = (
    "No one was found who would sign for it.",
    "The minutes of that meeting are lost.",
    "A photograph in the annex shows the state of things.",
    "The town paid without asking.",
    "This agrees with what the foreman said.",
    "The two accounts cannot both be right.",
    "Interest was not counted.",
    "The bank confirmed the sum a month afterwards.",
    "It rained through most of that season.",
    "Why it took so long is dealt with below.",
)

HEADINGS = (
    "The works at {town}", "What was paid for {thing}", "{lead} and the books", "Letters about {thing}",
    "Hearing in {town}", "{firm} answers", "Second inspection of {thing}", "A comparison", "Open questions in {town}",
)  # fmt: skip

OFFICES = (
    "Audit Office", "Board of Works", "Harbour Commission", "Court of Accounts", "Ministry of Roads and Water",
    "Chamber of Surveyors", "Office for Public Buildings", "Inspectorate of Bridges",
)  # fmt: skip

THINGS = (
    "the {adj} bridge", "the {adj} reservoir", "the {adj} breakwater", "the {adj} pumping station", "the {adj} school",
    "the {adj} grain store", "the {adj} lock", "the {adj} tram depot", "the {adj} lighthouse", "the {adj} hospital",
    "the {adj} water tower", "the {adj} market hall", "the {adj} dry dock", "the {adj} telegraph line",
    "the {adj} retaining wall", "the {adj} ferry landing", "the {adj} gasworks", "the {adj} public baths",
)  # fmt: skip

ADJECTIVES = (
    "upper lower eastern western old new long short inner outer first second third northern southern grey red white "
    "covered iron stone timber hanging double half-built disputed temporary great little middle far near sunken raised"
).split()

TROUBLES = (
    "a strike of the masons", "late deliveries of cement", "floods in the lower quarter", "a quarrel over land",
    "rotten timber", "a forged invoice", "missing drawings", "an outbreak of fever", "frost in the foundations",
    "the loss of two barges", "a change of mayor", "unpaid wages", "soft ground", "a lawsuit by the millers",
    "wrong measurements", "a shortage of coal", "stolen copper", "the price of slate", "a broken crane",
    "new rules for scaffolding", "a landslide above the road", "a fire in the workshop",
)  # fmt: skip

JOBS = (
    "ferryman", "innkeeper", "surveyor", "clerk", "carpenter", "schoolteacher", "diver", "quarryman", "bookkeeper",
    "signalman", "roofer", "widow of a foreman", "notary", "retired engineer", "cart driver", "glazier",
)  # fmt: skip


# --- the corpus ---------------------------------------------------------------------------------

NAME = "reports"
VERSION = "1"
CHARACTERS_PER_TOKEN = 8
"""More than any tokenizer has in these reports, even one that counts words, so that a report is long enough."""
_WORKS_A_CHAPTER = 3
_PARAGRAPHS_A_SECTION = (2, 5)


@dataclass(frozen=True)
class Reports:
    """Any number of reports of any length. A shorter report is the beginning of a longer one."""

    name: str = NAME
    digest: str = field(default_factory=lambda: digest([NAME, VERSION]))

    def text(self, number: int, *, tokens: int, seed: int) -> str | None:
        return write_report(seed, number, tokens * CHARACTERS_PER_TOKEN)


def open_documents(name: str, field: str) -> Corpus:
    """The corpus of this name: generated reports, or one that `open_corpus` knows."""
    return Reports() if name == NAME else open_corpus(name, field)


@lru_cache(maxsize=64)
def write_report(seed: int, number: int, characters: int) -> str:
    """A report of at least `characters` characters, ending with a whole section."""
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
    """A construction work, with the facts that its first paragraph states."""

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
    """Writes one report from its beginning on, and keeps the facts that it has stated."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._office = draw.choice(OFFICES)
        self._year = draw.randrange(1880, 1990)
        self._town = draw.choice(pool("place", "test"))
        self._works: list[_Work] = []
        self._people = [self._person() for _ in range(6)]
        self._section = 0

    def title(self) -> str:
        return f"{self._office}: Report on public works in and around {self._town}, {self._year + 3}"

    def opening(self) -> str:
        draw = self._draw
        return draw.choice(OPENING).format(
            office=self._office, town=self._town, count=draw.randrange(3, 60), month=draw.choice(MONTHS),
            year=self._year + 2, span=f"the years {self._year} to {self._year + 2}",
        )  # fmt: skip

    def section(self) -> str:
        """A heading and some paragraphs; every few sections a work is added."""
        self._section += 1
        if len(self._works) < _WORKS_A_CHAPTER or self._draw.random() < 0.3:
            self._works.append(self._begin())
            self._people.append(self._person())
            work, first = self._works[-1], [self._fill(BEGUN, self._works[-1])]
        else:
            work, first = self._draw.choice(self._works), []
        heading = f"{self._section}. {self._fill(HEADINGS, work)}"
        count = self._draw.randint(*_PARAGRAPHS_A_SECTION)
        return "\n\n".join([heading, *first, *(self._paragraph(work) for _ in range(count))])

    def _paragraph(self, work: _Work) -> str:
        kinds = [PROGRESS, VOICES, LETTERS, ADVICE]
        if len(self._works) > 1:
            kinds.append(COMPARED)
        return self._fill(self._draw.choice(kinds), work)

    def _begin(self) -> _Work:
        draw = self._draw
        taken = {work.thing for work in self._works}
        while (thing := draw.choice(THINGS).format(adj=draw.choice(ADJECTIVES))) in taken:
            if len(taken) > len(THINGS) * len(ADJECTIVES) // 2:
                break  # a very long report may have two works of one name
        return _Work(
            thing=thing,
            town=draw.choice(pool("place", "test")) if draw.random() < 0.6 else self._town,
            firm=f"{draw.choice(pool('last', 'test'))} {draw.choice(TRADES)}",
            lead=self._person(),
            sum=f"{draw.uniform(0.4, 80):.2f}",
            staff=draw.randrange(11, 900),
            months=draw.randrange(5, 70),
            month=draw.choice(MONTHS),
            year=self._year + draw.randrange(3),
        )

    def _person(self) -> str:
        return f"{self._draw.choice(pool('first', 'test'))} {self._draw.choice(pool('last', 'test'))}"

    def _fill(self, templates: Sequence[str], work: _Work) -> str:
        """One of the templates, filled with the facts of a work and, for the rest, with drawn values."""
        draw = self._draw
        second = draw.choice([w for w in self._works if w is not work] or [work])
        defects = draw.randrange(2, 90)
        slots = {
            **_facts_of(work),
            **{f"{name}2": value for name, value in _facts_of(second).items()},
            "office": self._office,
            "other": draw.choice(self._people),
            "later": f"{draw.choice(MONTHS)} {work.year + draw.randrange(1, 4)}",
            "trouble": draw.choice(TROUBLES),
            "job": draw.choice(JOBS),
            "remark": draw.choice(REMARKS),
            "share": draw.randrange(4, 97),
            "defects": defects,
            "fixed": draw.randrange(defects),
            "weeks": draw.randrange(2, 30),
            "more": draw.randrange(3, 60),
            "fewer": draw.randrange(2, max(3, work.staff)),
            "offers": draw.randrange(2, 12),
            "extra": f"{draw.uniform(0.1, 9):.2f}",
            "fair": draw.choice(("fair", "low", "high")),
            "dearer": "dearer" if float(work.sum) > float(second.sum) else "cheaper",
        }
        slots["recalled"] = draw.choice(RECALLED).format(**slots)
        return draw.choice(templates).format(**slots)


def _facts_of(work: _Work) -> dict[str, object]:
    return {**asdict(work), "Thing": work.thing[0].upper() + work.thing[1:]}
