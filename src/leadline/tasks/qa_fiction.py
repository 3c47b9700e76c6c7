"""Questions about invented people, firms and towns: nothing to download, and nothing a model can have memorised.

The form is that of RULER's QA tasks (arXiv 2404.06654): a pile of documents, one of which has the answer, or one for
each hop of the question. All other documents are of the same kind, about others. There is no limit to the number of
samples, and piles reach a million tokens.

    person --birthplace--> town      firm --founder--> person      town --mayor--> person
    person --home-------> town       firm --seat----> town         town --river--> river
    person --firm-------> firm
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar, Literal

import msgspec
import numpy as np
from pydantic import Field

from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank
from leadline.core.seeds import Split, digest, of_split, rng, seed_of
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import fact_depths, guard_places
from leadline.tasks.qa import ask, parts_of
from leadline.tasks.question_files import DocumentPile
from leadline.tasks.wording import PromptPart, RetrievalTask

# --- invented names ---
#
# Made of syllables. No name of a pool is a substring of another, so that substring scorers cannot confuse them.

NamePool = Literal["first", "last", "place", "river"]

# No beginning ends another and no ending contains another, so no name can be a substring of another.
_BEGINNINGS = "B Br D Dr F Fl G Gr H J Kl Kr M N P Pl Qu Sk Sl T Tr V W Y Z".split()
_VOWELS = "a e i o u ai".split()
_MIDDLES = "b bl d dr g k kl l ld lm lv m mb n nd ng nv p pl r rd rk rl rn rv s sk st t tr v x z".split()
_ENDINGS: dict[NamePool, list[str]] = {
    "first": "ael and eda elia enn essa iko ilde ina iro onne ora osh ula us ya".split(),
    "last": "abeck adine ahl amont anski arro asund ediger elkar esque evall igan ingast omer oquist orval".split(),
    "place": "abury adel aford aholm amere anza astead avik egrad emark enthal esk estow eville imouth ovar".split(),
    "river": "ach adour aine ambra awen edra eln enz essa iffe innet isla ode omber onde uir una".split(),
}
_SIZES: dict[NamePool, int] = {"first": 400, "last": 3000, "place": 24_000, "river": 4000}

TRADES = (
    "Brickworks Canneries Carriages Ceramics Chandlers Clockworks Cordage Cranes Dairies Dredging Dyeworks Enamels "
    "Engraving Ferries Forges Foundry Freight Furnaces Glassworks Instruments Ironworks Lamps Leather Lenses Looms "
    "Millwork Optics Orchards Pipelines Porcelain Presses Printers Pumps Quarries Rigging Ropes Sailcloth Saltworks "
    "Shipyards Signals Tanneries Tiles Timber Tools Turbines Varnish Weighbridges Woollens"
).split()


@cache
def pool(kind: NamePool, split: Split) -> tuple[str, ...]:
    """The names of a kind in one split. First names are in both: the last name identifies a person."""
    return _names(kind) if kind == "first" else of_split(_names(kind), split)


@cache
def _names(kind: NamePool) -> tuple[str, ...]:
    ways = itertools.product(_BEGINNINGS, _VOWELS, _MIDDLES, _ENDINGS[kind])
    return tuple(rng("names", kind).sample(["".join(parts) for parts in ways], _SIZES[kind]))


# --- the world and its documents ---

EntityKind = Literal["person", "firm", "place", "river"]
DOCUMENT = "Document:\n{text}"
"""How a document is printed; its title would be its subject."""
KINDS: tuple[EntityKind, ...] = ("person", "firm", "place")
"""The kinds that have documents."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A statement of a document about its subject, with its question and its phrase inside a longer question."""

    of: EntityKind
    name: str
    to: EntityKind
    question: str
    phrase: str


RELATIONS = (
    Relation("person", "birthplace", "place", "In which town was {x} born?", "the town where {x} was born"),
    Relation("person", "home", "place", "In which town does {x} live?", "the town where {x} lives"),
    Relation("person", "firm", "firm", "Which firm does {x} work for?", "the firm that {x} works for"),
    Relation("firm", "founder", "person", "Who founded {x}?", "the founder of {x}"),
    Relation("firm", "seat", "place", "In which town does {x} have its head office?",
             "the town where {x} has its head office"),
    Relation("place", "mayor", "person", "Who is the mayor of {x}?", "the mayor of {x}"),
    Relation("place", "river", "river", "Which river flows through {x}?", "the river that flows through {x}"),
)  # fmt: skip

_TEXTS: Mapping[EntityKind, tuple[str, ...]] = {
    "person": (
        "{subject} was born in {birthplace} and learned to play the {instrument} at an early age. After some years as "
        "a {job}, {last} joined {firm} in {year} and has worked there ever since. {last} lives in {home} and is fond "
        "of {habit}.",
        "The {job} {subject} lives in {home}, in a house that once belonged to a {other}. Born in {birthplace}, {last} "
        "came to {habit} late. Since {year} {last} has been employed by {firm}, and still plays the {instrument} on "
        "Sundays.",
        "Colleagues at {firm}, where {subject} has worked since {year}, speak of a patient {job}. {last} comes from "
        "{birthplace} but has made a home in {home}. In the evenings there is time for {habit}, or for the "
        "{instrument}.",
    ),
    "firm": (
        "{subject} was founded in {year} by {founder}. The firm has its head office in {seat}, and about {count} "
        "people work there. It began with orders from a single {job}, and now sells {product} in four countries.",
        "From its head office in {seat}, {subject} sells {product}. {founder}, who founded the firm in {year}, had "
        "been a {job} before. A staff of {count} keeps it going, and nobody there speaks of {habit} before noon.",
        "Few firms make better {product} than {subject}. The founder, {founder}, started in {year} with a borrowed "
        "{instrument} and one {job}. Today {count} people are on the books, and the head office is in {seat}.",
    ),
    "place": (
        "{subject} lies on the river {river} and has {count} thousand inhabitants. Its market is known for {product}. "
        "The mayor, {mayor}, used to be a {job}. The town's museum was opened in {year}.",
        "Through {subject} flows the river {river}, which rose over its banks in {year}. The town has need of a {job}. "
        "Its mayor is {mayor}, who collects {product} and is fond of {habit}.",
        "Every spring {subject} holds a fair of {product}, first held in {year}. {mayor} has been mayor for {count} "
        "months. Boats on the river {river} carry visitors to it, and a {job} plays the {instrument}.",
    ),
}

_JOBS = (
    "baker|barrel maker|beekeeper|bookbinder|bridge keeper|cartographer|chemist|clerk|cook|cooper|dyer|falconer|"
    "farrier|ferry pilot|gardener|glazier|hatter|joiner|lamplighter|lens grinder|librarian|lock keeper|mason|midwife|"
    "miller|notary|painter|piano tuner|postmaster|printer|roofer|saddler|sailmaker|schoolteacher|shepherd|surveyor|"
    "tailor|tanner|thatcher|toolmaker|translator|veterinarian|watchmaker|weaver|wheelwright"
).split("|")
_YEARS: Mapping[EntityKind, tuple[int, int]] = {"person": (2006, 2020), "firm": (1975, 2006), "place": (1890, 2020)}
"""Of what a document tells. Nobody joins a firm before it was founded, and all who work can still be alive."""
_INSTRUMENTS = "bassoon cello clarinet concertina cornet fiddle flute guitar harp lute mandolin trumpet viola".split()
_HABITS = (
    "chess|birdwatching|rowing|long walks|crossword puzzles|cold swims|night trains|amateur dramatics|card games|"
    "mending clocks|growing pears|old maps|stargazing|bread baking|kite flying|letter writing|fencing|gardening"
).split("|")
_PRODUCTS = (
    "weather vanes|ship's bells|copper kettles|garden gates|felt hats|brass hinges|paper lanterns|oak barrels|"
    "tide tables|glass floats|linen thread|water pumps|walking sticks|bicycle lamps|music boxes|roof tiles|"
    "fishing nets|ink stands|barometers|window locks|tin soldiers|candle moulds|rope ladders|salt cellars"
).split("|")

_SHARES: tuple[tuple[Literal["place", "river"], int], ...] = (("place", 5), ("river", 8))


@dataclass(frozen=True)
class World:
    """The entities that the documents of a pile are about."""

    split: Split
    entities: Mapping[EntityKind, tuple[str, ...]]
    documents: tuple[str, ...]
    form: str = DOCUMENT

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(name for kind in self.entities.values() for name in kind)

    @cached_property
    def bank(self) -> PieceBank:
        pieces = [document + "\n\n" for document in self.documents]
        name = f"{len(pieces):,} invented documents ({self.split})"
        return PieceBank(name, digest(pieces), pieces, contiguous=False, ending="\n\n")

    def invent(self, kind: EntityKind, draw: random.Random, taken: set[str]) -> str:
        return self.new_name(lambda: draw_name(kind, self.split, draw), taken)

    def new_name(self, draw: Callable[[], str], taken: set[str]) -> str:
        """Drawn until it is neither in this world nor in `taken`; it is added to `taken`."""
        while True:
            name = draw()
            if name not in self.names and name not in taken:
                taken.add(name)
                return name

    def document(
        self, kind: EntityKind, subject: str, draw: random.Random, known: Mapping[str, str] | None = None
    ) -> str:
        """A document about a subject with the `known` relations; the others are drawn from this world."""
        relations = {r.name: draw.choice(self.entities[r.to]) for r in RELATIONS if r.of == kind}
        return self.form.format(title=subject, text=write(kind, subject, relations | dict(known or {}), draw))


@cache
def world(split: Split, size: int, form: str = DOCUMENT) -> World:
    """The world with `size` documents."""
    draw = rng("world", split, size)
    # At most half of all towns and rivers; the others are for the questions.
    places, rivers = (min(size // share, len(pool(kind, split)) // 2) for kind, share in _SHARES)
    firms = size * 7 // 20
    counts: dict[EntityKind, int] = {"person": size - firms - places, "firm": firms, "place": places, "river": rivers}
    entities: dict[EntityKind, tuple[str, ...]] = {}
    for kind, count in counts.items():
        drawn: dict[str, None] = {}
        while len(drawn) < count:
            drawn.setdefault(draw_name(kind, split, draw))
        entities[kind] = tuple(drawn)
    bare = World(split, entities, (), form)
    documents = tuple(bare.document(kind, subject, draw) for kind in KINDS for subject in entities[kind])
    return World(split, entities, documents, form)


def draw_name(kind: EntityKind, split: Split, draw: random.Random) -> str:
    if kind == "person":
        return f"{draw.choice(pool('first', split))} {draw.choice(pool('last', split))}"
    if kind == "firm":
        return f"{draw.choice(pool('last', split))} {draw.choice(TRADES)}"
    return draw.choice(pool(kind, split))


def namesake(kind: EntityKind, name: str, split: Split, draw: random.Random) -> str:
    """Another person or firm of the same family name; for a town just another one."""
    first, _, last = name.partition(" ")
    if kind == "person":
        return f"{draw.choice(pool('first', split))} {last}"
    return f"{first} {draw.choice(TRADES)}" if kind == "firm" else draw_name(kind, split, draw)


def write(kind: EntityKind, subject: str, relations: Mapping[str, str], draw: random.Random) -> str:
    """The text of a document: one of several wordings, with irrelevant details drawn at random."""
    job, other = draw.sample(_JOBS, 2)
    return draw.choice(_TEXTS[kind]).format(
        subject=subject,
        last=subject.rpartition(" ")[2],
        job=job,
        other=other,
        instrument=draw.choice(_INSTRUMENTS),
        habit=draw.choice(_HABITS),
        product=draw.choice(_PRODUCTS),
        year=draw.randrange(*_YEARS[kind]),
        count=draw.randrange(12, 400),
        **relations,
    )


# --- the task ---

CHARACTERS_PER_TOKEN = 6.2
"""An upper bound over all tokenizers, so that a world is always large enough."""
CHARACTERS_PER_DOCUMENT = 240
DOCUMENT_TOKENS = 80
SMALLEST_WORLD = 512


class Fiction(RetrievalTask):
    """Answer questions about invented people, firms and towns over a pile of documents.

    Depth is where the document that answers starts. A question of several hops needs as many documents; they are in
    random order, spread evenly over a band of width `spread` around the depth.
    """

    version: ClassVar[str] = "7"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "question answering"

    hops: int = Field(1, ge=1, le=6, description="documents that must be combined to answer")
    namesakes: int = Field(1, ge=0, le=20, description="documents about others of the same last name, anywhere")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds the documents of several hops")
    answer_tokens: int = Field(32, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return parts_of(DOCUMENT) | self.absent_parts()

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        around = world(self.split, world_size(max(c.length for c in cells)), self.texts("document")[0])
        taken: set[str] = set()
        stories = [self._story(cell, around, seed, taken) for cell in cells]
        answers = tuple(story.answer for story in stories)
        before, after = self._guards(cells, around, seed, taken)
        cluster = self.cluster(cells)
        return self.new_draft(
            cells,
            filler=DocumentPile(
                around.bank,
                np.arange(len(around.documents)),
                np.arange(0),
                seed_of(seed, "fiction", *cluster.coordinates),
                prefix_stable=True,
            ),
            facts=(*before, *(fact for story in stories for fact in (*story.gold, *story.namesakes)), *after),
            questions=(story.ask(self, answers) for story in stories),
        )

    def _guards(
        self, cells: Sequence[Cell], around: World, seed: int, taken: set[str]
    ) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
        """Documents at both ends of the pile, so that none that is asked about is its first or last."""
        draw = rng(seed, "guards", "fiction", *cells[0].coordinates)

        def written(end: str, places: Sequence[tuple[float, int]]) -> tuple[Fact, ...]:
            facts = []
            for number, (depth, length) in enumerate(places):
                kind = draw.choice(KINDS)
                text = around.document(kind, around.invent(kind, draw, taken), draw)
                facts.append(Fact(f"{cells[0].key}#{end}{number}", text, depth, length))
            return tuple(facts)

        before, after = guard_places(cells, seed, DOCUMENT_TOKENS)
        return written("before", before), written("after", after)

    def _story(self, cell: Cell, around: World, seed: int, taken: set[str]) -> _Story:
        draw = rng(seed, "fiction", *cell.coordinates)
        path = draw_path(self.hops, draw)
        names = [around.invent(path[0].of, draw, taken), *(around.invent(r.to, draw, taken) for r in path)]
        documents = [
            around.document(relation.of, name, draw, {relation.name: value})
            for relation, name, value in zip(path, names, names[1:], strict=False)
        ]
        draw.shuffle(documents)
        depths = fact_depths(cell, self.spread, len(documents), draw)
        gold = tuple(
            Fact(f"{cell.key}#{number}", text, depth, cell.length)
            for number, (text, depth) in enumerate(zip(documents, depths, strict=True))
        )
        others, values = self._namesakes(path[0], names[0], cell, around, draw, taken)
        other = self._nobody(path[0], names[0], cell, around, seed, taken) if self.is_absent(cell, seed) else ""
        return _Story(cell, tuple(path), names[0], names[-1], gold, others, values, other)

    def _nobody(self, relation: Relation, subject: str, cell: Cell, around: World, seed: int, taken: set[str]) -> str:
        """A namesake of the subject that no document is about."""
        draw = rng(seed, "absent subject", *cell.coordinates)
        return around.new_name(lambda: namesake(relation.of, subject, self.split, draw), taken)

    def _namesakes(
        self, relation: Relation, subject: str, cell: Cell, around: World, draw: random.Random, taken: set[str]
    ) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
        """Documents about others with the same last name, and the values they give."""
        facts: list[Fact] = []
        values: list[str] = []
        for number in range(self.namesakes):
            name = around.new_name(lambda: namesake(relation.of, subject, self.split, draw), taken)
            values.append(draw.choice(around.entities[relation.to]))
            text = around.document(relation.of, name, draw, {relation.name: values[-1]})
            facts.append(Fact(f"{cell.key}#namesake{number}", text, draw.random(), cell.length))
        return tuple(facts), tuple(values)


@dataclass(frozen=True, slots=True)
class _Story:
    """The documents of one cell, and the question about them."""

    cell: Cell
    path: tuple[Relation, ...]
    subject: str
    answer: str
    gold: tuple[Fact, ...]
    namesakes: tuple[Fact, ...]
    namesake_values: tuple[str, ...]
    nobody: str = ""
    """Someone that no document is about, to be asked about in place of the subject."""

    def ask(self, task: Fiction, answers: tuple[str, ...]) -> DraftQuestion:
        spoken = self.nobody or self.subject
        for relation in self.path[:-1]:
            spoken = relation.phrase.format(x=spoken)
        text = self.path[-1].question.format(x=spoken)
        others = (*self.namesake_values, *answers)
        question = ask(task, self.cell, text, (self.answer,), self.gold, allowance=task.answer_tokens, others=others)
        labels = {**question.labels, "relation": ".".join((self.path[0].of, *(r.name for r in self.path)))}
        return msgspec.structs.replace(question, labels=labels, absent=bool(self.nobody) or None)


def draw_path(hops: int, draw: random.Random) -> list[Relation]:
    """A chain of relations. Only the last may end at a river, which has no document."""
    kind: EntityKind = draw.choice(KINDS)
    path: list[Relation] = []
    while len(path) < hops:
        last = len(path) == hops - 1
        path.append(draw.choice([r for r in RELATIONS if r.of == kind and (last or r.to in KINDS)]))
        kind = path[-1].to
    return path


def world_size(length: int) -> int:
    """Documents needed for a prompt of `length` tokens in any tokenizer, in steps, so that lengths share worlds."""
    needed = int(length * CHARACTERS_PER_TOKEN / CHARACTERS_PER_DOCUMENT) + 1
    size = SMALLEST_WORLD
    while size < needed:
        size *= 2
    return size * 3 // 4 if SMALLEST_WORLD < needed <= size * 3 // 4 else size


FICTION_1 = Fiction(hops=1)
FICTION_2 = Fiction(hops=2)
