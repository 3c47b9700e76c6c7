"""A world of invented people, firms and towns, and the documents that tell about them.

    person --birthplace--> town      firm --founder--> person      town --mayor--> person
    person --home-------> town       firm --seat----> town         town --river--> river
    person --firm-------> firm

A chain of such relations is a question with as many hops, and each hop is told in a document of its own.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from leadline.core.digest import digest
from leadline.core.seeds import Split, part_of, rng
from leadline.core.types import PieceBank

# --- Invented names of people, towns, rivers and firms: pronounceable, and nobody's.
#
# Names are put together from syllables once a process. No name of a pool stands inside another name of it, so that one
# cannot be taken for another where answers are looked for as substrings.

Pool = Literal["first", "last", "place", "river"]

# No beginning ends another, and no ending holds another: then no name can stand inside another one.
_BEGINNINGS = "B Br D Dr F Fl G Gr H J Kl Kr M N P Pl Qu Sk Sl T Tr V W Y Z".split()
_VOWELS = "a e i o u ai".split()
_MIDDLES = "b bl d dr g k kl l ld lm lv m mb n nd ng nv p pl r rd rk rl rn rv s sk st t tr v x z".split()
_ENDINGS: dict[Pool, list[str]] = {
    "first": "ael and eda elia enn essa iko ilde ina iro onne ora osh ula us ya".split(),
    "last": "abeck adine ahl amont anski arro asund ediger elkar esque evall igan ingast omer oquist orval".split(),
    "place": "abury adel aford aholm amere anza astead avik egrad emark enthal esk estow eville imouth ovar".split(),
    "river": "ach adour aine ambra awen edra eln enz essa iffe innet isla ode omber onde uir una".split(),
}
_SIZES: dict[Pool, int] = {"first": 400, "last": 3000, "place": 24_000, "river": 4000}

TRADES = (
    "Brickworks Canneries Carriages Ceramics Chandlers Clockworks Cordage Cranes Dairies Dredging Dyeworks Enamels "
    "Engraving Ferries Forges Foundry Freight Furnaces Glassworks Instruments Ironworks Lamps Leather Lenses Looms "
    "Millwork Optics Orchards Pipelines Porcelain Presses Printers Pumps Quarries Rigging Ropes Sailcloth Saltworks "
    "Shipyards Signals Tanneries Tiles Timber Tools Turbines Varnish Weighbridges Woollens"
).split()


@cache
def pool(kind: Pool, split: Split) -> tuple[str, ...]:
    """The names of a kind on one side of the split. First names are on both: a person goes by the last one."""
    return _names(kind) if kind == "first" else part_of(_names(kind), split)


@cache
def _names(kind: Pool) -> tuple[str, ...]:
    ways = itertools.product(_BEGINNINGS, _VOWELS, _MIDDLES, _ENDINGS[kind])
    return tuple(rng("names", kind).sample(["".join(parts) for parts in ways], _SIZES[kind]))


# --- A world of invented people, firms and towns, and the documents that tell about them.

Kind = Literal["person", "firm", "place", "river"]
DOCUMENT = "Document:\n{text}"
"""How a document is printed; its title would be its subject."""
KINDS: tuple[Kind, ...] = ("person", "firm", "place")
"""Those that documents are written about."""


@dataclass(frozen=True, slots=True)
class Relation:
    """What a document tells about its subject: how to ask for it, and how to speak of it in a longer question."""

    of: Kind
    name: str
    to: Kind
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

_TEXTS: Mapping[Kind, tuple[str, ...]] = {
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
        "people work there. It began with orders from a single {job}, and now sells {product} to four countries.",
        "From its head office in {seat}, {subject} sells {product}. {founder}, who founded the firm in {year}, had "
        "been a {job} before. A staff of {count} keeps it going, and nobody there speaks of {habit} before noon.",
        "Few firms make better {product} than {subject}. The founder, {founder}, started in {year} with a borrowed "
        "{instrument} and one {job}. Today {count} people are on the books, and the head office is in {seat}.",
    ),
    "place": (
        "{subject} lies on the river {river} and has {count} thousand inhabitants. Its market is known for {product}. "
        "The mayor, {mayor}, used to be a {job}, and opened the town's museum in {year}.",
        "Through {subject} flows the river {river}, which rose over its banks in {year}. The town has need of a {job}. "
        "Its mayor is {mayor}, who collects {product} and is seen at {habit} now and then.",
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
    """Everybody and everything that documents in a pile tell about."""

    split: Split
    entities: Mapping[Kind, tuple[str, ...]]
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

    def invent(self, kind: Kind, draw: random.Random, taken: set[str]) -> str:
        """A name that this world does not know, nor whoever else is in the document; it is taken then."""
        while True:
            name = draw_name(kind, self.split, draw)
            if name not in self.names and name not in taken:
                taken.add(name)
                return name

    def tell(self, kind: Kind, subject: str, draw: random.Random, known: Mapping[str, str] | None = None) -> str:
        """A document about a subject: what is `known`, and for the rest whatever is said of others in this world."""
        told = {r.name: draw.choice(self.entities[r.to]) for r in RELATIONS if r.of == kind}
        return self.form.format(title=subject, text=write(kind, subject, told | dict(known or {}), draw))


@cache
def world(split: Split, size: int, form: str = DOCUMENT) -> World:
    """A world with so many documents, the same for everybody."""
    draw = rng("world", split, size)
    # Half of all towns and rivers at most: the others are for whoever is asked about.
    places, rivers = (min(size // share, len(pool(kind, split)) // 2) for kind, share in _SHARES)
    firms = size * 7 // 20
    counts: dict[Kind, int] = {"person": size - firms - places, "firm": firms, "place": places, "river": rivers}
    entities: dict[Kind, tuple[str, ...]] = {}
    for kind, count in counts.items():
        drawn: dict[str, None] = {}
        while len(drawn) < count:
            drawn.setdefault(draw_name(kind, split, draw))
        entities[kind] = tuple(drawn)
    made = World(split, entities, (), form)
    documents = tuple(made.tell(kind, subject, draw) for kind in KINDS for subject in entities[kind])
    return World(split, entities, documents, form)


def draw_name(kind: Kind, split: Split, draw: random.Random) -> str:
    if kind == "person":
        return f"{draw.choice(pool('first', split))} {draw.choice(pool('last', split))}"
    if kind == "firm":
        return f"{draw.choice(pool('last', split))} {draw.choice(TRADES)}"
    return draw.choice(pool(kind, split))


def namesake(kind: Kind, name: str, split: Split, draw: random.Random) -> str:
    """Another person or firm of the same family name; for a town just another one."""
    first, _, last = name.partition(" ")
    if kind == "person":
        return f"{draw.choice(pool('first', split))} {last}"
    return f"{first} {draw.choice(TRADES)}" if kind == "firm" else draw_name(kind, split, draw)


def write(kind: Kind, subject: str, told: Mapping[str, str], draw: random.Random) -> str:
    """A document's text: one of several of its kind, with small things of no importance."""
    job, other = draw.sample(_JOBS, 2)
    return draw.choice(_TEXTS[kind]).format(
        subject=subject,
        last=subject.rpartition(" ")[2],
        job=job,
        other=other,
        instrument=draw.choice(_INSTRUMENTS),
        habit=draw.choice(_HABITS),
        product=draw.choice(_PRODUCTS),
        year=draw.randrange(1890, 2020),
        count=draw.randrange(12, 400),
        **told,
    )
