"""What needles and their questions say: plain, paraphrased, by association, in pieces, among hard distractors.

literal       the question names the key that the needle has (the default)
paraphrase    needle and question describe a person in other words: "the physician who limps", "the doctor with the
              bad leg"
association   the needle tells what somebody did, the question asks by what that implies: "watched the guard change at
              Buckingham Palace", "the person who was in London" (NoLiMa's idea, arXiv 2502.05167; the table is ours)
pieces        the value is split over two or three places, all of which are needed
hard          distractors whose keys are nearly the one asked for, or an earlier value that a later one replaces

The answer is a value as in every needle, drawn anew for each sample: it can be checked exactly, and nothing that people
do in the haystack can be mistaken for it. NoLiMa shows that models which find every needle by its words lose most of
them when question and needle have none in common, so the overlap is on the record of every sample that has a form.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import Literal

from leadline.core.errors import UsageError
from leadline.core.seeds import Split, of_split
from leadline.core.types import ValueKind
from leadline.tasks.words import ADJECTIVES, NOUNS, draw_new, draw_new_value

NeedleMatch = Literal["", "literal", "paraphrase", "association"]
Hard = Literal["", "qualifier", "near_miss", "contradiction"]

# --- a key that question and needle share ---

INSTRUCTION = (
    "The text below mentions {kinds} that belong to certain names. Read it and remember the {kinds}; "
    "a question about them follows.\n\n"
)
OWN_INSTRUCTION = "Read the text below. A question about it follows.\n\n"
WORDINGS = (
    "The {kind} kept for {key} is {value}.",
    "In the register, {key} stands beside the {kind} {value}.",
    "Whoever asks about {key} is to be given the {kind} {value}.",
    "Note that {key} was assigned the {kind} {value}.",
    "The harbour office filed {key} under the {kind} {value}.",
)
QUESTIONS = (
    "\n\nQuestion: Which {kind} belongs to {key}?",
    "\n\nQuestion: What is the {kind} that goes with {key}?",
    "\n\nQuestion: According to the text, which {kind} is the one for {key}?",
)
QUESTIONS_FOR_SEVERAL = (
    "\n\nQuestion: Which {kinds} belong to {key}? Name all of them.",
    "\n\nQuestion: What are all the {kinds} that go with {key}?",
    "\n\nQuestion: According to the text, which {kinds} are the ones for {key}? Give every one.",
)
PREFIX = "The {kind} for {key} is"
PREFIX_FOR_SEVERAL = "The {kinds} for {key} are"

# --- other forms ---

PARAPHRASE_WORDINGS = (
    "The card of {key} reads {value}.",
    "Somebody pencilled {value} on the door of {key}.",
    "{value} is stamped inside the hat of {key}.",
    "On the mailbox of {key} somebody scratched {value}.",
    "The locker of {key} bears the label {value}.",
)
INSTRUCTION_ABOUT_PEOPLE = (
    "The text below mentions {kinds} that belong to certain people. Read it and remember the {kinds}; a question about "
    "them follows.\n\n"
)
ASSOCIATION_WORDINGS = (
    "{key}, and the badge on the coat said {value}.",
    "{key}; the ticket in the pocket was marked {value}.",
    "{key}, with {value} printed on the name tag.",
    "{key}, holding a card with {value} on it.",
    "{key}; {value} was sewn into the collar.",
)

INSTRUCTION_FOR_PIECES = (
    "The text below mentions {kinds} that belong to certain names. Each {kind} is told in {pieces} pieces at different "
    "places; {joined}. Read the text and remember the {kinds}; a question about them follows.\n\n"
)
JOINED = {"words": "a hyphen joins them", "numbers": "nothing stands between them", "uuids": "a hyphen joins them"}
BEGINNINGS = (
    "The {kind} kept for {key} begins with {value}.",
    "Note that the {kind} of {key} opens with {value}.",
    "In the register, the {kind} beside {key} starts with {value}.",
)
MIDDLES = (
    "After its beginning, the {kind} kept for {key} goes on with {value}.",
    "Note that {value} is the middle of the {kind} of {key}.",
    "In the register, {value} is what the {kind} beside {key} has in the middle.",
)
ENDS = (
    "The {kind} kept for {key} ends with {value}.",
    "Note that the {kind} of {key} closes with {value}.",
    "In the register, the {kind} beside {key} has {value} at its end.",
)
PIECE_PARTS = {2: ("beginning", "end"), 3: ("beginning", "middle", "end")}

INSTRUCTION_FOR_CORRECTIONS = (
    "The text below mentions {kinds} that belong to certain names. Where a name is mentioned twice with different "
    "{kinds}, the later mention counts. Read the text and remember the {kinds}; a question about them follows.\n\n"
)


def form_instruction(match: NeedleMatch, pieces: int, hard: Hard) -> str:
    """The instruction that a form needs; empty where the plain one will do."""
    if match in ("paraphrase", "association"):
        return INSTRUCTION_ABOUT_PEOPLE
    if pieces > 1:
        return INSTRUCTION_FOR_PIECES
    return INSTRUCTION_FOR_CORRECTIONS if hard == "contradiction" else ""


def form_wordings(match: NeedleMatch, pieces: int) -> dict[str, tuple[str, ...]]:
    """The texts of each planted part that a form has; none where the plain ones will do."""
    if pieces > 1:
        forms = {"beginning": BEGINNINGS, "middle": MIDDLES, "end": ENDS}
        return {name: forms[name] for name in PIECE_PARTS[pieces]}
    described = {"paraphrase": PARAPHRASE_WORDINGS, "association": ASSOCIATION_WORDINGS}
    return {"needle": described[match]} if match in described else {}


# --- tables ---

QUALIFIERS = tuple(
    f"the {which} {what}"
    for what in ("office", "ledger", "branch", "archive")
    for which in ("northern", "southern", "eastern", "western", "upper", "lower", "old", "new", "first", "second")
)
HALF = "half of a split needle"
NEAR_MISS, OTHER_QUALIFIER, REPLACED = "near-miss key", "same key, another qualifier", "stale fact"
MISTAKES: dict[Hard, str] = {"qualifier": OTHER_QUALIFIER, "near_miss": NEAR_MISS, "contradiction": REPLACED}
"""The detail of an answer that gives the value of such a distractor."""

FIRST_NAMES = tuple(
    """
    Alva Amadou Anouk Beata Bilal Bruna Carys Chidi Clio Dario Edda Ewan Fadil Gita Goran Hanne Hugo Ilka Imre Ines
    Jorge Juno Kaito Kamila Kofi Lale Levi Lucia Malik Mira Nadim Nils Noor Odile Omar Pavel Petra Quinn Rafa Rosa Sami
    Sena Tariq Tilda Ugo Vera Wanda Yara Yusuf Zeno
    """.split()
)
LAST_NAMES = tuple(
    f"{first}{last}"
    for first in ("Al", "Ber", "Bran", "Cor", "Dor", "El", "Fal", "Gar", "Hol", "Ing", "Kes", "Lor", "Mar", "Nor", "Os")
    for last in ("dahl", "enko", "holt", "ini", "kvist", "mond", "oveda", "rup", "stead", "wick")
)


@dataclass(frozen=True, slots=True)
class Association:
    """What somebody did, and what that implies: both complete a sentence about a person."""

    clue: str
    concept: str
    groups: frozenset[str]
    """Concepts with a group in common are never in one document: a clue of one might fit the other."""


@cache
def associations() -> tuple[Association, ...]:
    found: list[Association] = []
    concept, groups = "", frozenset[str]()
    for line in _lines("associations.txt"):
        if line.startswith("== "):
            concept, *named = (part.strip() for part in line[3:].split("@"))
            groups = frozenset(named)
        else:
            found.append(Association(line, concept, groups))
    return tuple(found)


@cache
def paraphrases() -> dict[str, tuple[tuple[str, str], ...]]:
    """By section: what the needle says, and what the question says."""
    found: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in _lines("paraphrases.txt"):
        if line.startswith("== "):
            section = line[3:]
            continue
        said, asked = line.split(" | ")
        found.setdefault(section, []).append((said, asked))
    return {name: tuple(pairs) for name, pairs in found.items()}


def _lines(name: str) -> list[str]:
    text = files("leadline.tasks").joinpath(name).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class KeyAndValues:
    """One key with its values, and the index of the wording used for it."""

    key: str
    values: tuple[str, ...]
    wording: int
    asked: str = ""
    """What the question calls the key; empty if it names the key itself."""
    replaced: tuple[str, ...] = ()
    """Values of an earlier mention, which the values replace."""

    @property
    def name(self) -> str:
        return self.asked or self.key


# --- keys ---

SPARE_CLUES = 64
"""Clues that are left before needles at the ends of a document take any: one that is drawn rules out some others."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the needle says it and as the question does."""

    said: str
    asked: str


def draw_paraphrase(draw: random.Random, taken: set[str], split: Split) -> Key:
    """A person with a trait, in two wordings."""
    persons, traits = paraphrases()["persons"], paraphrases()["traits"]
    for _ in range(4000):
        person, trait = draw.choice(persons), draw.choice(traits)
        said = f"{person[0]} {trait[0]}"
        if said not in taken and of_split([said], split):
            taken.add(said)
            return Key(said, f"{person[1]} {trait[1]}")
    raise _used_up(len(persons) * len(traits))


def draw_association(draw: random.Random, taken: set[str], split: Split) -> Key:
    """What somebody did, with a name before it, and what the person is asked for by. No concept of a document might
    be meant by the clue of another."""
    free = _free_clues(taken, split)
    if not free:
        raise _used_up(len({a.concept for a in _clues(split)}))
    chosen = draw.choice(free)
    taken.update((chosen.concept, *(f"@{group}" for group in chosen.groups)))
    return Key(f"{draw_name(draw, taken)} {chosen.clue}", f"the person who {chosen.concept}")


def associations_left(taken: set[str], split: Split) -> int:
    """How many clues may still be drawn, fewer of which can be in one document: more than are needed at its ends."""
    return max(len(_free_clues(taken, split)) - SPARE_CLUES, 0)


def _free_clues(taken: set[str], split: Split) -> list[Association]:
    return [a for a in _clues(split) if a.concept not in taken and not any(f"@{group}" in taken for group in a.groups)]


@cache
def _clues(split: Split) -> tuple[Association, ...]:
    return tuple(a for a in associations() if of_split([a.clue], split))


def draw_name(draw: random.Random, taken: set[str]) -> str:
    while True:
        name = f"{draw.choice(FIRST_NAMES)} {draw.choice(LAST_NAMES)}"
        if name not in taken:
            taken.add(name)
            return name


def _used_up(entries: int) -> UsageError:
    return UsageError(
        f"the table of needles has {entries:,} entries that can stand in one document, and more are needed",
        where="match",
        fix="use fewer keys, or --reading fresh or shared, where a document has fewer needles",
    )


def near_miss(key: str, kind: ValueKind, draw: random.Random, taken: set[str], split: Split) -> str:
    """A key that differs from this one in one half, or in one digit."""
    return draw_new(lambda: _changed(key, kind, draw), taken, split)


def _changed(key: str, kind: ValueKind, draw: random.Random) -> str:
    if kind == "words":
        first, second = key.split("-")
        alike = [a for a in ADJECTIVES if a[:1] == first[:1]], [n for n in NOUNS if n[:1] == second[:1]]
        return f"{draw.choice(alike[0])}-{second}" if draw.random() < 0.5 else f"{first}-{draw.choice(alike[1])}"
    places = [m.start() for m in re.finditer(r"\d", key)]
    place = draw.choice(places[1:])
    return f"{key[:place]}{draw.choice('0123456789')}{key[place + 1 :]}"


# --- distractors that are nearly right ---


@dataclass(frozen=True, slots=True)
class Distraction:
    """Adds the distractors that `hard` names to the needles asked for. `needle` draws one, for a key if it is given."""

    hard: Hard
    key_kind: ValueKind
    value_kind: ValueKind
    split: Split
    needle: Callable[[str], KeyAndValues]

    def around(
        self, asked: Sequence[KeyAndValues], keys: int, draw: random.Random, taken: set[str]
    ) -> list[KeyAndValues]:
        more = range(keys - len(asked))
        if self.hard == "near_miss":
            names = [near_miss(asked[n % len(asked)].key, self.key_kind, draw, taken, self.split) for n in more]
            return [*asked, *map(self.needle, names)]
        if self.hard == "qualifier":
            places = draw.sample(QUALIFIERS, keys)
            qualified = [replace(n, key=f"{n.key} at {place}") for n, place in zip(asked, places, strict=False)]
            names = [f"{asked[n % len(asked)].key} at {place}" for n, place in enumerate(places[len(asked) :])]
            return [*qualified, *map(self.needle, names)]
        needles = [*asked, *(self.needle("") for _ in more)]
        return [replace(n, replaced=tuple(self._value(draw, taken) for _ in n.values)) for n in needles]

    def _value(self, draw: random.Random, taken: set[str]) -> str:
        return draw_new_value(self.value_kind, draw, taken, self.split)


def shown_mistakes(
    asked: Sequence[KeyAndValues], others: Sequence[KeyAndValues], hard: Hard, kind: ValueKind, pieces: int
) -> Mapping[str, tuple[str, ...]]:
    """Wrong answers that show what went wrong."""
    if pieces > 1:
        return {HALF: tuple(piece for n in asked for v in n.values for piece in split_value(v, kind, pieces))}
    if hard == "contradiction":
        return {MISTAKES[hard]: tuple(v for n in asked for v in n.replaced)}
    return {MISTAKES[hard]: tuple(v for n in others for v in n.values)} if hard else {}


# --- values in pieces ---


def split_value(value: str, kind: ValueKind, pieces: int) -> tuple[str, ...]:
    """A value in two or three pieces, none of which is the whole; a hyphen between two of them is in neither."""
    if kind == "numbers":
        sizes: Sequence[int] = (0, 3, 7) if pieces == 2 else (0, 2, 4, 7)
        return tuple(value[a:b] for a, b in pairwise(sizes))
    parts = value.split("-")
    ends = [len(parts) * n // pieces for n in range(pieces + 1)]
    return tuple("-".join(parts[a:b]) for a, b in pairwise(ends))


# --- literal overlap ---

_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = frozenset(
    """
    a about after again all also an and another any anything are as at away be because been before behind being beside
    but by can cannot could did do does down each every everybody everything except for from had has have he her here
    his how i if in inside instead into is it its just least less like lot many may more most much must never no nobody
    not nothing of off on once one ones only onto or other others our out over own per question same she should since
    so some somebody something still than that the their them then there these they this those through to too two
    under until up very was were what when where whether which while who whoever whole whom whose will with without
    would you your 's s
    """.split()
)
_ENDINGS = ("ings", "edly", "ies", "ers", "ing", "ed", "es", "er", "ly", "s")
_LEAST_STEM = 3


@cache
def _stem(word: str) -> str:
    """A word without its ending: `belongs` and `belong`, `keys` and `key` are the same."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            word = word[: -len(ending)]
            break
    if len(word) > _LEAST_STEM and word[-1] == word[-2]:
        word = word[:-1]  # stopped, running
    return word[:-1] if word.endswith(("e", "y", "i")) and len(word) > _LEAST_STEM else word


def content_words(text: str) -> frozenset[str]:
    """The stems of a text's words that have a meaning of their own."""
    found = _WORD.findall(text.casefold())
    return frozenset(_stem(word) for word in found if word not in _FUNCTION_WORDS)


def lexical_overlap(question: str, needle: str) -> float:
    """The share of the question's content words that the needle has too."""
    asked = content_words(question)
    return len(asked & content_words(needle)) / len(asked) if asked else 0.0
