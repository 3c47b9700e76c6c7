"""`niah_forms`: needles that are paraphrased, asked for by association, in pieces, or among hard distractors.

literal       the question names the key that the needle has, as in `niah`
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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import cycle, islice, pairwise
from typing import ClassVar, Literal

from msgspec.structs import replace
from pydantic import Field, model_validator

from leadline.core.drafts import Fact
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, of_split
from leadline.core.types import Cell, ValueKind
from leadline.tasks.niah import DEFAULT_KEYS, INSTRUCTION, KINDS, Key, KeyAndValues, KeyedNeedles
from leadline.tasks.wording import PromptPart
from leadline.tasks.words import ADJECTIVES, NOUNS, draw_new, draw_new_value

NeedleMatch = Literal["", "literal", "paraphrase", "association"]
Hard = Literal["", "qualifier", "near_miss", "contradiction"]

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


PEOPLE: dict[str, tuple[str, ...]] = {"paraphrase": PARAPHRASE_WORDINGS, "association": ASSOCIATION_WORDINGS}
PIECES: dict[str, tuple[str, ...]] = {"beginning": BEGINNINGS, "middle": MIDDLES, "end": ENDS}

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
    clues: list[Association] = []
    concept, groups = "", frozenset[str]()
    for line in _lines("associations.txt"):
        if line.startswith("== "):
            concept, *named = (part.strip() for part in line[3:].split("@"))
            groups = frozenset(named)
        else:
            clues.append(Association(line, concept, groups))
    return tuple(clues)


@cache
def paraphrases() -> dict[str, tuple[tuple[str, str], ...]]:
    """By section: what the needle says, and what the question says."""
    sections: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for line in _lines("paraphrases.txt"):
        if line.startswith("== "):
            section = line[3:]
            continue
        said, question = line.split(" | ")
        sections.setdefault(section, []).append((said, question))
    return {name: tuple(pairs) for name, pairs in sections.items()}


def _lines(name: str) -> list[str]:
    text = files("leadline.tasks").joinpath(name).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


# --- keys ---


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
    chosen = _take(draw.choice(free), taken)
    return Key(f"{draw_name(draw, taken)} {chosen.clue}", f"the person who {chosen.concept}")


def unasked_clues(count: int, draw: random.Random, taken: set[str], split: Split) -> list[str]:
    """Clues of people whom no question means, from as few concepts as give `count`. Where the table ends, some of them
    are said of several people; none where nothing of it is left."""
    clues: list[str] = []
    while len(clues) < count and (free := _free_clues(taken, split)):
        concept = _take(draw.choice(free), taken).concept
        clues += [association.clue for association in _clues(split) if association.concept == concept]
    return list(islice(cycle(clues), count))


def _take(chosen: Association, taken: set[str]) -> Association:
    """Rules out what its clue might mean besides."""
    taken.update((chosen.concept, *(f"@{group}" for group in chosen.groups)))
    return chosen


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
    digits = [m.start() for m in re.finditer(r"\d", key)]
    changed = draw.choice(digits[1:])
    return f"{key[:changed]}{draw.choice('0123456789')}{key[changed + 1 :]}"


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
    words = _WORD.findall(text.casefold())
    return frozenset(_stem(word) for word in words if word not in _FUNCTION_WORDS)


def lexical_overlap(question: str, needle: str) -> float:
    """The share of the question's content words that the needle has too."""
    question_words = content_words(question)
    return len(question_words & content_words(needle)) / len(question_words) if question_words else 0.0


# --- the task ---


class NeedleForms(KeyedNeedles):
    """Find values that the question's words do not lead to: paraphrases, associations, pieces, hard distractors.

    Without match, pieces or hard, needles are paraphrased. Depths, distractors and everything else are as in `niah`;
    pieces of a value are `spread` apart from first to last.
    """

    version: ClassVar[str] = "6"

    match: NeedleMatch = Field(
        "",
        description="the question describes the key in other words (paraphrase, the default), asks by what the needle "
        "implies (association), or names the key (literal, the default with pieces and hard)",
    )
    pieces: int = Field(
        0, ge=0, le=3, description="2 or 3: split each value into this many pieces, `spread` apart from first to last"
    )
    hard: Hard = Field(
        "",
        description="distractors with the same key and another qualifier, with near_miss keys, or an earlier value "
        "that the one asked for replaces (contradiction)",
    )

    @model_validator(mode="after")
    def _form_is_possible(self) -> NeedleForms:
        if self.is_list:
            raise ValueError("haystack=needles is for plain needles: use niah")
        if not (self.match or self.pieces or self.hard):
            object.__setattr__(self, "match", "paraphrase")
        if self.is_described and (self.pieces > 1 or self.hard or self.key_kind != "words"):
            raise ValueError("pieces, hard and key_kind are for keys that the question names: match=literal")
        if self.pieces > 1 and self.hard:
            raise ValueError("pieces and hard are two tests: set one of them")
        if self.hard == "qualifier" and max(self.keys, self.queries) > len(QUALIFIERS):
            raise ValueError(f"hard=qualifier has {len(QUALIFIERS)} qualifiers: set keys and queries to no more")
        if self.pieces == 3 and self.value_kind == "words":
            raise ValueError("pieces=3 needs values of three parts: set value_kind to numbers or uuids")
        return self

    @property
    def is_described(self) -> bool:
        """Whether needle and question call the key by other words."""
        return self.match in PEOPLE

    # --- texts ---

    def instruction_part(self) -> PromptPart:
        text = INSTRUCTION
        if self.is_described:
            text = INSTRUCTION_ABOUT_PEOPLE
        elif self.pieces > 1:
            text = INSTRUCTION_FOR_PIECES
        elif self.hard == "contradiction":
            text = INSTRUCTION_FOR_CORRECTIONS
        return PromptPart((text,), may=(*KINDS, "pieces", "joined"), opens=True)

    def instruction(self) -> str:
        return self.fill("instruction", **self.kinds, pieces=self.pieces, joined=JOINED[self.value_kind])

    def needle_parts(self) -> dict[str, PromptPart]:
        if self.pieces > 1:
            texts = {name: PIECES[name] for name in PIECE_PARTS[self.pieces]}
        elif self.is_described:
            texts = {"needle": PEOPLE[self.match]}
        else:
            return super().needle_parts()
        return {
            name: PromptPart(wordings, needs=("key", "value"), may=KINDS, planted=True)
            for name, wordings in texts.items()
        }

    def sentences(self, needle: KeyAndValues, value: str) -> list[str]:
        if self.pieces < 2:
            return super().sentences(needle, value)
        pieces = zip(PIECE_PARTS[self.pieces], split_value(value, self.value_kind, self.pieces), strict=True)
        wording = needle.wording % len(BEGINNINGS)
        return [
            self.planted(self.one_of(part, wording, needle.key).format(key=needle.key, value=piece, **self.kinds))
            for part, piece in pieces
        ]

    @property
    def sentences_per_value(self) -> int:
        return max(self.pieces, 1)

    def form_labels(self, question: str, facts: Sequence[Fact]) -> dict[str, str]:
        forms = {"match": self.match, "pieces": str(self.pieces or ""), "hard": self.hard}
        overlap = lexical_overlap(question, " ".join(fact.text for fact in facts))
        return {name: form for name, form in forms.items() if form} | {"overlap": f"{overlap:.2f}"}

    # --- what is drawn ---

    def draw_key(self, draw: random.Random, taken: set[str]) -> Key:
        if self.match == "paraphrase":
            return draw_paraphrase(draw, taken, self.split)
        if self.match == "association":
            return draw_association(draw, taken, self.split)
        return super().draw_key(draw, taken)

    def keys_for(self, cells: Sequence[Cell]) -> int:
        if not self.keys and self.hard in ("qualifier", "near_miss"):
            return max(self.queries, DEFAULT_KEYS)  # every question has distractors that are nearly its own
        return super().keys_for(cells)

    def draw_guards(self, count: int, draw: random.Random, taken: set[str]) -> list[KeyAndValues]:
        if self.match != "association":
            return super().draw_guards(count, draw, taken)
        clues = unasked_clues(count, draw, taken, self.split)
        return [self.draw_needle(draw, taken, f"{draw_name(draw, taken)} {clue}") for clue in clues]

    def draw_needles(self, keys: int, draw: random.Random, taken: set[str]) -> list[KeyAndValues]:
        if not self.hard:
            return super().draw_needles(keys, draw, taken)
        queried = [self.draw_needle(draw, taken) for _ in range(self.queries)]
        more = range(keys - self.queries)
        if self.hard == "near_miss":
            names = [near_miss(queried[n % len(queried)].key, self.key_kind, draw, taken, self.split) for n in more]
            return [*queried, *(self.draw_needle(draw, taken, name) for name in names)]
        if self.hard == "qualifier":
            qualifiers = draw.sample(QUALIFIERS, keys)
            qualified = [replace(n, key=f"{n.key} at {q}") for n, q in zip(queried, qualifiers, strict=False)]
            names = [f"{queried[n % len(queried)].key} at {q}" for n, q in enumerate(qualifiers[len(queried) :])]
            return [*qualified, *(self.draw_needle(draw, taken, name) for name in names)]
        needles = [*queried, *(self.draw_needle(draw, taken) for _ in more)]
        return [replace(n, replaced=tuple(self._other_value(draw, taken) for _ in n.values)) for n in needles]

    def _other_value(self, draw: random.Random, taken: set[str]) -> str:
        return draw_new_value(self.value_kind, draw, taken, self.split)

    def shown_mistakes(
        self, queried: Sequence[KeyAndValues], others: Sequence[KeyAndValues]
    ) -> Mapping[str, tuple[str, ...]]:
        if self.pieces > 1:
            pieces = (split_value(v, self.value_kind, self.pieces) for n in queried for v in n.values)
            return {HALF: tuple(piece for value_pieces in pieces for piece in value_pieces)}
        if self.hard == "contradiction":
            return {MISTAKES[self.hard]: tuple(v for n in queried for v in n.replaced)}
        return {MISTAKES[self.hard]: tuple(v for n in others for v in n.values)} if self.hard else {}
