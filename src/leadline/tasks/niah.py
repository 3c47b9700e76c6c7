"""Needles in a haystack: facts of the form key -> value, planted in long text, asked for by key.

After Kamradt's needle test (2023) and the retrieval tasks of RULER (arXiv 2404.06654). The wordings are our own. Every
sample draws its own needle, wording and part of the haystack, and the question does not repeat the needle's sentence.

NeedleTask      the haystack that a needle is planted in; the base of `niah_own` (niah_own.py) too
KeyedNeedles    keys with values, and the question about them; the base of `niah_forms` (niah_forms.py) too
Needle          `niah`: the question names the key
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import msgspec
from pydantic import Field, model_validator

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact, Filler
from leadline.core.errors import UsageError
from leadline.core.seeds import rng, seed_of
from leadline.core.types import Cell, Reading, ValueKind
from leadline.tasks.languages import TranslatedTask, translated_needle_parts
from leadline.tasks.needle_lines import NeedleLines
from leadline.tasks.placement import balanced_rank, depths_on_both_sides, fact_depths, guard_places
from leadline.tasks.wording import (
    SCORERS,
    PromptPart,
    RetrievalTask,
    WordedTask,
    answer_allowance,
    filled_in,
    noise_part,
    serial,
    worded_source,
)
from leadline.tasks.words import LONGEST_VALUE, PLURAL, SINGULAR, draw_new_value, listed
from leadline.text.fillers import ShuffledFiller
from leadline.text.sources import Unit, stretch_of

CODE_SOURCES = ("code", "python-code")
DEFAULT_KEYS = 4
"""With a single needle "the first number of seven digits" is a right answer to any question."""
KINDS = ("kind", "kinds", "type", "types")
"""Placeholders for what a value is called."""

INSTRUCTION = (
    "The text below mentions {kinds} that belong to certain names. Read it and remember the {kinds}; "
    "a question about them follows.\n\n"
)
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


OPTION_TASKS = {
    **dict.fromkeys(("match", "pieces", "hard"), "niah_forms"),
    **dict.fromkeys(("needle", "question", "answers"), "niah_own"),
    **dict.fromkeys(
        ("key_kind", "value_kind", "keys", "values", "queries", "spread", "absent", "per_document", "language"), "niah"
    ),
}
"""The needle task that has an option, for users who give it to another."""


class NeedleTask(WordedTask):
    """A task that plants sentences in a haystack."""

    category: ClassVar[str] = "retrieval"
    options_elsewhere: ClassVar[Mapping[str, str]] = OPTION_TASKS

    haystack: str = Field(
        "prose", description="prose, legal, medical, reports, chat, code, noise, a path, or a mixture a:0.5,b:0.5"
    )
    unit: Unit = Field("sentence", description="what a path or mixture is cut into: sentence or paragraph")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    order: Literal["", "coherent", "shuffled"] = Field(
        "", description="the haystack's sentences as they are (coherent, the default), or the same ones shuffled"
    )

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return worded_source(self, self.haystack_name, unit=self.unit, repeat=self.repeat)

    @property
    def haystack_name(self) -> str:
        """The haystack as `open_source` knows it."""
        return self.haystack

    def haystack_of(self, cells: Sequence[Cell], seed: int) -> Filler:
        """The part of the haystack that the document of these cells has."""
        cluster = self.cluster(cells)
        filler = stretch_of(self._source(), cluster, seed, tokens=max(c.length for c in cells))
        if self.order != "shuffled":
            return filler
        if cluster.nested:
            raise UsageError(
                "a shuffled haystack has another order at each length, so one document cannot be read for all of them",
                where=cells[0].task,
                fix="use --reading fresh or shared, or order=coherent",
            )
        return ShuffledFiller(filler, seed_of(seed, "order", *cluster.coordinates))

    def planted(self, sentence: str) -> str:
        """The sentence as the haystack would have it: among lines of Python it is a comment."""
        is_code = self.haystack in CODE_SOURCES or self.haystack.endswith(".py")
        return f"# {sentence}" if is_code else sentence


class Key(msgspec.Struct, frozen=True):
    """A key as the needle says it and as the question does."""

    in_needle: str
    in_question: str = ""
    """What the question calls it; empty if it names the key itself."""


class KeyAndValues(msgspec.Struct, frozen=True):
    """One key with its values, and the index of the wording used for it."""

    key: str
    values: tuple[str, ...]
    wording: int
    in_question: str = ""
    replaced: tuple[str, ...] = ()
    """Values of an earlier mention, which the values replace."""

    @property
    def name(self) -> str:
        return self.in_question or self.key


class KeyedNeedles(NeedleTask, RetrievalTask):
    """Find values by their keys in a long text.

    Depth is where the needle that is asked for starts. Several such needles are spread evenly over a band of width
    `spread` around the depth. Of the other needles as many come before them as after them, on average, at every depth;
    a document with several questions, or made of needles, has some at both of its ends. With placement=anywhere all
    needles are placed at random.
    """

    version: ClassVar[str] = "5"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")

    key_kind: ValueKind = Field("words", description="keys are words, numbers or uuids")
    value_kind: ValueKind = Field("numbers", description="values are words, numbers (7 digits) or uuids")
    keys: int = Field(
        0,
        ge=0,
        le=500,
        description="keys planted for a question; those not asked for are distractors. 0: four a document",
    )
    values: int = Field(1, ge=1, le=64, description="values planted for each key")
    queries: int = Field(1, ge=1, le=64, description="keys asked for at once")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds several needles asked for")
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 chooses 64, or 128 or more for several")
    per_document: int = Field(
        0, ge=0, le=256, description="samples that one document answers in shared and nested reading; 0: one"
    )

    @model_validator(mode="after")
    def _queries_are_planted(self) -> KeyedNeedles:
        if self.queries > self.keys > 0:
            # As in RULER, where asking for four keys plants four.
            object.__setattr__(self, "keys", self.queries)
        if self.absent and self.queries > 1:
            raise ValueError("absent is for one query: leave out queries")
        return self

    @property
    def samples_per_document(self) -> int:
        return self.per_document or 1

    @property
    def is_list(self) -> bool:
        """Whether the haystack itself is made of needles."""
        return self.haystack == "needles"

    # --- texts ---

    def parts(self) -> Mapping[str, PromptPart]:
        several = self.queries * self.values > 1
        return {
            "instruction": self.instruction_part(),
            **self.needle_parts(),
            "question": PromptPart(
                QUESTIONS_FOR_SEVERAL if several else QUESTIONS, needs=("key|serial",), may=KINDS, asks=True
            ),
            "prefix": PromptPart((PREFIX_FOR_SEVERAL if several else PREFIX,), may=("key", "serial", *KINDS)),
            **noise_part(self.haystack),
            **self.absent_parts(),
        }

    def instruction_part(self) -> PromptPart:
        return PromptPart((INSTRUCTION,), may=KINDS, opens=True)

    def needle_parts(self) -> dict[str, PromptPart]:
        """The texts that are planted, by part. In a haystack of needles all lines have the same wording."""
        texts = WORDINGS[:1] if self.is_list else WORDINGS
        return {"needle": PromptPart(texts, needs=("key", "value"), may=KINDS, planted=True, lines=self.is_list)}

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        """What the texts call the values."""
        kind = self.value_kind
        return {"kind": SINGULAR[kind], "kinds": PLURAL[kind], "type": kind[:-1], "types": kind}

    def instruction(self) -> str:
        return self.fill("instruction", **self.kinds)

    def sentences(self, needle: KeyAndValues, value: str) -> list[str]:
        """The sentences that tell a value: `sentences_per_value` of them."""
        text = self.texts("needle")[0] if self.is_list else self.one_of("needle", needle.wording, needle.key)
        return [self.planted(text.format(key=needle.key, value=value, **self.kinds))]

    @property
    def sentences_per_value(self) -> int:
        return 1

    def form_labels(self, question: str, facts: Sequence[Fact]) -> dict[str, str]:
        """How question and needle are related, on the record; nothing for plain needles."""
        return {}

    # --- what is drawn ---

    def draw_key(self, draw: random.Random, taken: set[str]) -> Key:
        return Key(draw_new_value(self.key_kind, draw, taken, self.split))

    def draw_needle(self, draw: random.Random, taken: set[str], key: str = "") -> KeyAndValues:
        named = Key(key) if key else self.draw_key(draw, taken)
        values = tuple(draw_new_value(self.value_kind, draw, taken, self.split) for _ in range(self.values))
        return KeyAndValues(
            named.in_needle, values, 0 if self.is_list else draw.randrange(len(WORDINGS)), named.in_question
        )

    def draw_needles(self, keys: int, draw: random.Random, taken: set[str]) -> list[KeyAndValues]:
        """The needles of one cell, those asked for first."""
        return [self.draw_needle(draw, taken) for _ in range(keys)]

    def shown_mistakes(
        self, queried: Sequence[KeyAndValues], others: Sequence[KeyAndValues]
    ) -> Mapping[str, tuple[str, ...]]:
        """Wrong answers that show what went wrong, by what they show."""
        return {}

    def keys_for(self, cells: Sequence[Cell]) -> int:
        """Keys planted for each cell. By default a document has four of one form at every length, so that a value
        cannot be recognised by its form: in shared and nested reading those of other depths count."""
        if self.keys or self.is_list:
            return self.keys or self.queries
        lengths = [cell.length for cell in cells]
        fewest = min(map(lengths.count, lengths))
        return max(self.queries, -(-DEFAULT_KEYS // fewest))

    def draw_guards(self, count: int, draw: random.Random, taken: set[str]) -> list[KeyAndValues]:
        """Needles that nothing asks for, to stand at the ends of the document; none where there are none left."""
        return [self.draw_needle(draw, taken) for _ in range(count)]

    # --- the document ---

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        taken: set[str] = set()
        keys = self.keys_for(cells)
        alone = len(cells) == 1 and not self.is_list
        planted = [self._cell(cell, seed, taken, keys, alone=alone) for cell in cells]
        before, after, guards = ([], [], []) if alone else self._guards(cells, seed, taken)
        every_value = [*(value for part in planted for value in part.values), *guards]
        questions = tuple(part.ask(every_value) for part in planted)
        return self.new_draft(
            cells,
            head=self.instruction(),
            filler=self._lines(cells, seed, taken) if self.is_list else self.haystack_of(cells, seed),
            facts=(*before, *(fact for part in planted for fact in part.facts), *after),
            questions=questions,
        )

    def sources(self) -> Sequence[Source]:
        return () if self.is_list else super().sources()

    def _lines(self, cells: Sequence[Cell], seed: int, taken: set[str]) -> Filler:
        drawn = seed_of(seed, "haystack", *self.cluster(cells).coordinates)
        needle_text = filled_in(self.texts("needle")[0], ("key", "value"), **self.kinds)
        return NeedleLines(self.key_kind, self.value_kind, needle_text, drawn, frozenset(taken), self.split)

    def _guards(self, cells: Sequence[Cell], seed: int, taken: set[str]) -> tuple[list[Fact], list[Fact], list[str]]:
        """Needles at both ends that nothing asks for, and their values; none where no distractor is wanted."""
        if 0 < self.keys <= self.queries and not self.is_list:
            return [], [], []
        draw = rng(seed, "guards", "needles", *cells[0].coordinates)
        before, after = guard_places(cells, seed)
        needles = iter(self.draw_guards(len(before) + len(after), draw, taken))
        values: list[str] = []
        ends: list[list[Fact]] = []
        for end, places in (("before", before), ("after", after)):
            guards = list(zip(places, needles, strict=False))
            values += [value for _, needle in guards for value in needle.values[:1]]
            ends.append(
                [
                    Fact(f"{cells[0].key}#{end}{number}", self.sentences(needle, needle.values[0])[-1], depth, length)
                    for number, ((depth, length), needle) in enumerate(guards)
                ]
            )
        return ends[0], ends[1], values

    def _cell(self, cell: Cell, seed: int, taken: set[str], keys: int, *, alone: bool) -> _CellNeedles:
        """What is planted and asked for one cell, drawn from the cell's coordinates. `alone` in its document, its
        distractors are on both sides of it."""
        draw = rng(seed, "needle", *cell.coordinates)
        needles = self.draw_needles(keys, draw, taken)
        queried, others = needles[: self.queries], needles[self.queries :]
        before = balanced_rank(cell, seed, len(others) + 1) if alone and cell.depth is not None else None
        facts, needed = self._facts(cell, needles, draw, before)
        values = tuple(v for n in needles for v in (*n.values, *n.replaced))
        absent_key = ""
        if self.is_absent(cell, seed):
            absent_key = self.draw_needle(rng(seed, "absent key", *cell.coordinates), taken).name
        mistakes = self.shown_mistakes(queried, others)
        return _CellNeedles(self, cell, facts, tuple(queried), values, draw, needed, mistakes, absent_key)

    def _facts(
        self, cell: Cell, needles: Sequence[KeyAndValues], draw: random.Random, before: int | None
    ) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
        """What is planted, and the ids of what the answer needs. `before` of the distractors precede that, or any
        number where it is None."""
        per_value = self.sentences_per_value
        count = self.queries * self.values * per_value
        depths = fact_depths(cell, self.spread, count, draw)
        if per_value > 1:
            depths.sort()  # the pieces of a value stand in their order
        others = (len(needles) - self.queries) * self.values * per_value
        if before is None:
            depths += [draw.random() for _ in range(others)]
        else:
            depths += depths_on_both_sides(depths, before * self.values * per_value, others, draw)
        facts: list[Fact] = []
        replaced: list[Fact] = []
        key = cell.key
        for number, needle in enumerate(needles):
            for value_number, value in enumerate(needle.values):
                texts = self.sentences(needle, value)
                for piece, text in enumerate(texts):
                    name = f"{key}#{number}.{value_number}" + (f".{piece}" if len(texts) > 1 else "")
                    facts.append(Fact(name, text, depths[len(facts)], cell.length))
                for old in needle.replaced[value_number : value_number + 1]:
                    [text] = self.sentences(needle, old)
                    earlier = facts[-1].depth * draw.random()
                    replaced.append(Fact(f"{key}#{number}.{value_number}.replaced", text, earlier, cell.length))
        needed = tuple(fact.id for fact in facts[:count])
        first = facts[count : count + (before or 0) * self.values * per_value]
        # Of several at one place, those before the one asked for come first, and of two mentions the replaced one.
        return (*replaced, *first, *facts[:count], *facts[count + len(first) :]), needed

    @property
    def allowance(self) -> int:
        count = self.queries * self.values
        fixed = self.answer_tokens or (64 if count == 1 else 128)
        return answer_allowance(fixed, count * (LONGEST_VALUE[self.value_kind] + 2))


class Needle(TranslatedTask, KeyedNeedles):
    """Find values by their keys in a long text. The question names the key as the needle does.

    Depth is where the needle that is asked for starts. Several such needles are spread evenly over a band of width
    `spread` around the depth. Of the other needles as many come before them as after them, on average, at every depth;
    a document with several questions, or made of needles, has some at both of its ends. With placement=anywhere all
    needles are placed at random.
    """

    haystack: str = Field(
        "prose",
        description="prose, legal, medical, reports, chat, code, noise, needles, a path, or a mixture a:0.5,b:0.5",
    )

    @model_validator(mode="after")
    def _language_has_texts(self) -> Needle:
        english = {
            "absent": bool(self.absent), "haystack": self.is_list, "queries": self.queries > 1,
            "values": self.values > 1, "value_kind": self.value_kind == "words",
        }  # fmt: skip
        clashing = next((name for name, differs in english.items() if differs), "")
        if self.language and clashing:
            option = f"{clashing}={getattr(self, clashing)}"
            raise ValueError(f"{option} is in English only: leave it out, or leave out language={self.language}")
        return self

    def parts(self) -> Mapping[str, PromptPart]:
        if self.translation:
            return {**translated_needle_parts(self.translation), **noise_part(self.haystack)}
        return super().parts()

    @property
    def haystack_name(self) -> str:
        return self.translation.haystack if self.translation and self.haystack == "prose" else self.haystack

    @cached_property
    def kinds(self) -> Mapping[str, str]:
        return self.translation.forms[self.value_kind] if self.translation else super().kinds

    def draw_key(self, draw: random.Random, taken: set[str]) -> Key:
        if self.translation and self.key_kind == "words":
            return Key(self.translation.draw_key(draw, taken, self.split))
        return super().draw_key(draw, taken)


@dataclass(frozen=True, slots=True)
class _CellNeedles:
    """The facts of one cell, and the question about them."""

    task: KeyedNeedles
    cell: Cell
    facts: tuple[Fact, ...]
    queried: tuple[KeyAndValues, ...]
    values: tuple[str, ...]
    draw: random.Random
    needed: tuple[str, ...]
    """Ids of the facts that the answer needs."""
    mistakes: Mapping[str, tuple[str, ...]]
    absent_key: str
    """A key that no needle has, to be asked for in place of the planted one; empty for none."""

    def ask(self, every_value: Sequence[str]) -> DraftQuestion:
        """The question, with every other planted value as a distractor."""
        task = self.task
        targets = tuple(v for n in self.queried for v in n.values)
        asked_for = [self.absent_key] if self.absent_key else [n.name for n in self.queried]
        names = listed(asked_for)
        keys = {"key": names, "serial": serial(asked_for), **task.kinds}
        question = task.one_of("question", self.draw.randrange(len(QUESTIONS)), names).format(**keys)
        needed_facts = [fact for fact in self.facts if fact.id in self.needed]
        return DraftQuestion(
            cell=self.cell,
            text=question,
            answer_prefix=task.fill("prefix", **keys),
            targets=targets,
            allowance=task.allowance,
            scorers=SCORERS["all"],
            facts=self.needed,
            distractors=tuple(v for v in every_value if v not in targets),
            labels={"wording": self._wording(), **task.form_labels(question, needed_facts)},
            family="needle",
            value_kind=task.value_kind,
            mistakes=self.mistakes,
            absent=bool(self.absent_key) or None,
        )

    def _wording(self) -> str:
        own = self.task.wording.get("needle")
        defaults = self.task.parts()["needle"].default if own else ()
        if own and len(own) == 1 and own[0] in defaults:
            return str(defaults.index(own[0]))
        return "own" if own else str(self.queried[0].wording)
