"""Needles in a haystack: facts of the form key -> value, planted in long text, asked for by key.

After Kamradt's needle test (2023) and the retrieval tasks of RULER (arXiv 2404.06654). The wordings are our own. Every
sample draws its own needle, wording and part of the haystack, and the question does not repeat the needle's sentence.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact, Filler
from leadline.core.errors import UsageError
from leadline.core.seeds import rng, seed_of
from leadline.core.types import Cell, Reading, ValueKind
from leadline.tasks.languages import TranslatedTask, translated_needle_parts
from leadline.tasks.needle_forms import (
    BEGINNINGS,
    INSTRUCTION,
    JOINED,
    OWN_INSTRUCTION,
    PIECE_PARTS,
    PREFIX,
    PREFIX_FOR_SEVERAL,
    QUALIFIERS,
    QUESTIONS,
    QUESTIONS_FOR_SEVERAL,
    WORDINGS,
    Distraction,
    Hard,
    KeyAndValues,
    NeedleMatch,
    associations_left,
    draw_association,
    draw_paraphrase,
    form_instruction,
    form_wordings,
    lexical_overlap,
    shown_mistakes,
    split_value,
)
from leadline.tasks.needle_lines import NeedleLines
from leadline.tasks.placement import balanced_rank, depths_on_both_sides, fact_depths, guard_places
from leadline.tasks.wording import (
    SCORERS,
    PromptPart,
    RetrievalTask,
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


class Needle(TranslatedTask, RetrievalTask):
    """Find values by their keys in a long text.

    Depth is where the needle that is asked for starts. Several such needles are spread evenly over a band of width
    `spread` around the depth. Of the other needles as many come before them as after them, on average, at every depth;
    a document with several questions, or made of needles, has some at both of its ends. With placement=anywhere all
    needles are placed at random.
    """

    version: ClassVar[str] = "4"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "retrieval"

    haystack: str = Field(
        "prose", description="prose, legal, medical, chat, code, noise, needles, a path, or a mixture a:0.5,b:0.5"
    )
    unit: Unit = Field("sentence", description="what a path or mixture is cut into: sentence or paragraph")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
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
    needle: str = Field("", description="your own sentence instead of a generated one (with question and answers)")
    question: str = Field("", description="the question that your own needle answers")
    answers: tuple[str, ...] = Field((), description="strings of which any one counts as your own needle's answer")
    match: NeedleMatch = Field(
        "",
        description="the question names the key (literal, the default), describes it in other words (paraphrase), or "
        "asks by what the needle implies (association)",
    )
    pieces: int = Field(
        0, ge=0, le=3, description="2 or 3: split each value into this many pieces, `spread` apart from first to last"
    )
    hard: Hard = Field(
        "",
        description="distractors with the same key and another qualifier, with near_miss keys, or an earlier value "
        "that the one asked for replaces (contradiction)",
    )

    order: Literal["", "coherent", "shuffled"] = Field(
        "", description="the haystack's sentences as they are (coherent, the default), or the same ones shuffled"
    )

    per_document: int = Field(
        0, ge=0, le=256, description="samples that one document answers in shared and nested reading; 0: one"
    )

    @model_validator(mode="after")
    def _own_needle_is_whole(self) -> Needle:
        given = [bool(self.needle), bool(self.question), bool(self.answers)]
        if any(given) and not all(given):
            raise ValueError("needle, question and answers belong together: give all three")
        if self.queries > self.keys > 0:
            # As in RULER, where asking for four keys plants four.
            object.__setattr__(self, "keys", self.queries)
        if self.absent and (self.needle or self.queries > 1):
            raise ValueError("absent is for generated needles and one query: leave out needle and queries")
        if self.needle and not any(_has_phrase(self.needle, answer) for answer in self.answers):
            raise ValueError(
                f"no answer ({', '.join(map(repr, self.answers))}) is in the needle, so none could be right: "
                "give one as the needle words it"
            )
        return self

    @model_validator(mode="after")
    def _form_is_possible(self) -> Needle:
        described, formed = self.match in ("paraphrase", "association"), self.pieces > 1 or bool(self.hard)
        if (described or formed) and (self.needle or self.haystack == "needles"):
            raise ValueError("match, pieces and hard are for generated needles in a haystack of text")
        if described and (formed or self.key_kind != "words"):
            raise ValueError("pieces, hard and key_kind are for keys that the question names: match=literal")
        if self.pieces > 1 and self.hard:
            raise ValueError("pieces and hard are two tests: set one of them")
        if self.hard == "qualifier" and max(self.keys, self.queries) > len(QUALIFIERS):
            raise ValueError(f"hard=qualifier has {len(QUALIFIERS)} qualifiers: set keys and queries to no more")
        if self.pieces == 3 and self.value_kind == "words":
            raise ValueError("pieces=3 needs values of three parts: set value_kind to numbers or uuids")
        english = {
            "match": described, "pieces": self.pieces > 1, "hard": bool(self.hard), "absent": bool(self.absent),
            "haystack": self.haystack == "needles", "queries": self.queries > 1, "values": self.values > 1,
            "value_kind": self.value_kind == "words",
        }  # fmt: skip
        clashing = next((name for name, differs in english.items() if differs), "")
        if self.language and clashing:
            given = f"{clashing}={getattr(self, clashing)}"
            raise ValueError(f"{given} is in English only: leave it out, or leave out language={self.language}")
        return self

    @property
    def samples_per_document(self) -> int:
        return self.per_document or 1

    def parts(self) -> Mapping[str, PromptPart]:
        if self.needle:
            return {
                "instruction": PromptPart((OWN_INSTRUCTION,), opens=True),
                "question": PromptPart(("\n\n{question}",), needs=("question",), asks=True),
                "prefix": PromptPart(("",)),
            }
        if self.translation:
            return {**translated_needle_parts(self.translation), **noise_part(self.haystack)}
        several = self.queries * self.values > 1
        instruction = form_instruction(self.match, self.pieces, self.hard) or INSTRUCTION
        kinds = ("kind", "kinds", "type", "types")
        return {
            "instruction": PromptPart((instruction,), may=(*kinds, "pieces", "joined"), opens=True),
            **self._needle_parts(kinds),
            "question": PromptPart(
                QUESTIONS_FOR_SEVERAL if several else QUESTIONS, needs=("key|serial",), may=kinds, asks=True
            ),
            "prefix": PromptPart((PREFIX_FOR_SEVERAL if several else PREFIX,), may=("key", "serial", *kinds)),
            **noise_part(self.haystack),
            **self.absent_parts(),
        }

    def _needle_parts(self, kinds: tuple[str, ...]) -> dict[str, PromptPart]:
        lines = self.haystack == "needles"
        plain = {"needle": WORDINGS[:1] if lines else WORDINGS}
        return {
            name: PromptPart(texts, needs=("key", "value"), may=kinds, planted=True, lines=lines)
            for name, texts in (form_wordings(self.match, self.pieces) or plain).items()
        }

    def sources(self) -> Sequence[Source]:
        return () if self.haystack == "needles" else (self._source(),)

    def _source(self) -> Source:
        own = self.translation.haystack if self.translation and self.haystack == "prose" else self.haystack
        return worded_source(self, own, unit=self.unit, repeat=self.repeat)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        if self.needle and len(cells) > 1:
            raise UsageError(
                "your own needle is one sentence with one answer and cannot be planted at several depths at once",
                where=cells[0].task,
                fix="use --reading fresh, or leave out needle, question and answers",
            )
        taken: set[str] = set()
        keys = self._keys_for(cells)
        alone = len(cells) == 1 and self.haystack != "needles"
        planted = [self._cell(cell, seed, taken, keys, alone=alone) for cell in cells]
        before, after, guards = ([], [], []) if alone else self._guards(cells, seed, taken)
        everything = [*(fact_value for part in planted for fact_value in part.values), *guards]
        questions = tuple(part.ask(everything) for part in planted)
        return self.new_draft(
            cells,
            head=self.fill("instruction", **self.kinds, pieces=self.pieces, joined=JOINED[self.value_kind]),
            filler=self._filler(cells, seed, taken),
            facts=(*before, *(fact for part in planted for fact in part.facts), *after),
            questions=questions,
        )

    def _guards(self, cells: Sequence[Cell], seed: int, taken: set[str]) -> tuple[list[Fact], list[Fact], list[str]]:
        """Needles at both ends that nothing asks for, and their values; none where no distractor is wanted."""
        if 0 < self.keys <= self.queries and self.haystack != "needles":
            return [], [], []
        draw = rng(seed, "guards", "needles", *cells[0].coordinates)
        values: list[str] = []
        ends: list[list[Fact]] = []
        for end, places in zip(("before", "after"), guard_places(cells, seed), strict=True):
            if self.match == "association":  # whose table is short: one at each end, while there are any
                places = [place for place in dict.fromkeys(places) if associations_left(taken, self.split)]
            needles = [self._needle(draw, taken) for _ in places]
            values += [value for needle in needles for value in needle.values[:1]]
            ends.append(
                [
                    Fact(f"{cells[0].key}#{end}{number}", self._texts(needle, needle.values[0])[-1], depth, length)
                    for number, (needle, (depth, length)) in enumerate(zip(needles, places, strict=True))
                ]
            )
        return ends[0], ends[1], values

    def _keys_for(self, cells: Sequence[Cell]) -> int:
        """Keys planted for each cell. By default a document has four of one form at every length, so that a value
        cannot be recognised by its form: in shared and nested reading those of other depths count."""
        if self.keys or self.haystack == "needles":
            return self.keys or self.queries
        if self.hard in ("qualifier", "near_miss"):  # every question has distractors that are nearly its own
            return max(self.queries, DEFAULT_KEYS)
        fewest = min(Counter(cell.length for cell in cells).values())
        return max(self.queries, -(-DEFAULT_KEYS // fewest))

    def _filler(self, cells: Sequence[Cell], seed: int, taken: set[str]) -> Filler:
        cluster = self.cluster(cells)
        if self.haystack == "needles":
            drawn = seed_of(seed, "haystack", *cluster.coordinates)
            line = filled_in(self.texts("needle")[0], ("key", "value"), **self.kinds)
            return NeedleLines(self.key_kind, self.value_kind, line, drawn, frozenset(taken), self.split)
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

    @property
    def kinds(self) -> dict[str, str]:
        """What the texts call the values."""
        kind = self.value_kind
        if self.translation:
            return dict(self.translation.forms[kind])
        return {"kind": SINGULAR[kind], "kinds": PLURAL[kind], "type": kind[:-1], "types": kind}

    def _cell(self, cell: Cell, seed: int, taken: set[str], keys: int, *, alone: bool) -> _CellNeedles:
        """What is planted and asked for one cell, drawn from the cell's coordinates. `alone` in its document, its
        distractors are on both sides of it."""
        draw = rng(seed, "needle", *cell.coordinates)
        if self.needle:
            return self._own(cell, draw)
        needles = [self._needle(draw, taken) for _ in range(self.queries if self.hard else keys)]
        if self.hard:
            one = partial(self._needle, draw, taken)
            needles = Distraction(self.hard, self.key_kind, self.value_kind, self.split, one).around(
                needles, keys, draw, taken
            )
        asked, others = needles[: self.queries], needles[self.queries :]
        before = balanced_rank(cell, seed, len(others) + 1) if alone and cell.depth is not None else None
        facts, needed = self._facts(cell, needles, draw, before)
        values = tuple(v for n in needles for v in (*n.values, *n.replaced))
        mistakes = shown_mistakes(asked, others, self.hard, self.value_kind, self.pieces)
        other = ""
        if self.is_absent(cell, seed):
            other = self._needle(rng(seed, "absent key", *cell.coordinates), taken).name
        return _CellNeedles(self, cell, facts, tuple(asked), values, draw, needed, mistakes, other)

    def _needle(self, draw: random.Random, taken: set[str], key: str = "") -> KeyAndValues:
        asked = ""
        if self.match in ("paraphrase", "association"):
            drawn = (draw_paraphrase if self.match == "paraphrase" else draw_association)(draw, taken, self.split)
            key, asked = drawn.said, drawn.asked
        if self.translation and self.key_kind == "words":
            key = self.translation.draw_key(draw, taken, self.split)
        key = key or draw_new_value(self.key_kind, draw, taken, self.split)
        values = tuple(draw_new_value(self.value_kind, draw, taken, self.split) for _ in range(self.values))
        return KeyAndValues(key, values, 0 if self.haystack == "needles" else draw.randrange(len(WORDINGS)), asked)

    def _facts(
        self, cell: Cell, needles: Sequence[KeyAndValues], draw: random.Random, before: int | None
    ) -> tuple[tuple[Fact, ...], tuple[str, ...]]:
        """What is planted, and the ids of what the answer needs. `before` of the distractors precede that, or any
        number where it is None."""
        pieces = max(self.pieces, 1)
        count = self.queries * self.values * pieces
        depths = fact_depths(cell, self.spread, count, draw)
        if pieces > 1:
            depths.sort()  # the pieces of a value stand in their order
        others = (len(needles) - self.queries) * self.values * pieces
        if before is None:
            depths += [draw.random() for _ in range(others)]
        else:
            depths += depths_on_both_sides(depths, before * self.values * pieces, others, draw)
        facts: list[Fact] = []
        replaced: list[Fact] = []
        for number, needle in enumerate(needles):
            for value_number, value in enumerate(needle.values):
                texts = self._texts(needle, value)
                for piece, text in enumerate(texts):
                    name = f"{cell.key}#{number}.{value_number}" + (f".{piece}" if len(texts) > 1 else "")
                    facts.append(Fact(name, text, depths[len(facts)], cell.length))
                for old in needle.replaced[value_number : value_number + 1]:
                    [text] = self._texts(needle, old)
                    earlier = facts[-1].depth * draw.random()
                    replaced.append(Fact(f"{cell.key}#{number}.{value_number}.replaced", text, earlier, cell.length))
        needed = tuple(fact.id for fact in facts[:count])
        first = facts[count : count + (before or 0) * self.values * pieces]
        # Of several at one place, those before the one asked for come first, and of two mentions the replaced one.
        return (*replaced, *first, *facts[:count], *facts[count + len(first) :]), needed

    def _texts(self, needle: KeyAndValues, value: str) -> list[str]:
        """The sentences that tell a value: one, or one for each of its pieces."""
        if self.pieces > 1:
            pieces = zip(PIECE_PARTS[self.pieces], split_value(value, self.value_kind, self.pieces), strict=True)
            return [
                self._planted(
                    self.one_of(part, needle.wording % len(BEGINNINGS), needle.key).format(
                        key=needle.key, value=piece, **self.kinds
                    )
                )
                for part, piece in pieces
            ]
        # In a haystack of needles all lines have the same wording.
        first = self.texts("needle")[0] if self.haystack == "needles" else ""
        text = first or self.one_of("needle", needle.wording, needle.key)
        return [self._planted(text.format(key=needle.key, value=value, **self.kinds))]

    def _planted(self, sentence: str) -> str:
        """The sentence as the haystack would have it: among lines of Python it is a comment."""
        is_code = self.haystack in CODE_SOURCES or self.haystack.endswith(".py")
        return f"# {sentence}" if is_code else sentence

    def _own(self, cell: Cell, draw: random.Random) -> _CellNeedles:
        [depth] = fact_depths(cell, self.spread, 1, draw)
        fact = Fact(f"{cell.key}#0", self._planted(self.needle), depth, cell.length)
        return _CellNeedles(self, cell, (fact,), (), self.answers, draw, (fact.id,))

    @property
    def allowance(self) -> int:
        count = self.queries * self.values
        fixed = self.answer_tokens or (64 if count == 1 else 128)
        longest = max(map(len, self.answers)) if self.needle else count * (LONGEST_VALUE[self.value_kind] + 2)
        return answer_allowance(fixed, longest)


def _has_phrase(text: str, phrase: str) -> bool:
    """Whether the text has the phrase in any letter case, and not as part of a longer word or number."""
    letter = r"[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"  # Han and kana are written without spaces
    phrase = phrase.strip()
    start, end = (letter if re.match(letter, edge) else "" for edge in (phrase[:1], phrase[-1:]))
    whole = (f"(?<!{start})" if start else "") + re.escape(phrase) + (f"(?!{end})" if end else "")
    return bool(phrase) and re.search(whole, text, re.IGNORECASE) is not None


@dataclass(frozen=True, slots=True)
class _CellNeedles:
    """The facts of one cell, and the question about them."""

    task: Needle
    cell: Cell
    facts: tuple[Fact, ...]
    asked: tuple[KeyAndValues, ...]
    values: tuple[str, ...]
    draw: random.Random
    needed: tuple[str, ...]
    """Ids of the facts that the answer needs."""
    mistakes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    absent_key: str = ""
    """A key that no needle has, to be asked for in place of the planted one."""

    def ask(self, everything: Sequence[str]) -> DraftQuestion:
        """The question, with every other planted value as a distractor."""
        task = self.task
        if task.needle:
            return DraftQuestion(
                cell=self.cell, text=task.fill("question", question=task.question), answer_prefix=task.fill("prefix"),
                targets=task.answers,
                allowance=task.allowance, scorers=SCORERS["any"], facts=self.needed,
                labels={"form": "own"}, match="any", family="needle",
            )  # fmt: skip
        targets = tuple(v for n in self.asked for v in n.values)
        asked_for = [self.absent_key] if self.absent_key else [n.name for n in self.asked]
        names = listed(asked_for)
        keys = {"key": names, "serial": serial(asked_for), **task.kinds}
        asked = task.one_of("question", self.draw.randrange(len(QUESTIONS)), names).format(**keys)
        return DraftQuestion(
            cell=self.cell,
            text=asked,
            answer_prefix=task.fill("prefix", **keys),
            targets=targets,
            allowance=task.allowance,
            scorers=SCORERS["all"],
            facts=self.needed,
            distractors=tuple(v for v in everything if v not in targets),
            labels={"wording": self._wording(), **self._form(asked)},
            family="needle",
            value_kind=task.value_kind,
            mistakes=self.mistakes,
            absent=bool(self.absent_key) or None,
        )

    def _form(self, question: str) -> dict[str, str]:
        """How needle and question are related, where the options ask for a form; older records have no such labels."""
        task = self.task
        form = {"match": task.match, "pieces": str(task.pieces or ""), "hard": task.hard}
        if not any(form.values()):
            return {}
        facts = " ".join(fact.text for fact in self.facts if fact.id in self.needed)
        return {k: v for k, v in form.items() if v} | {"overlap": f"{lexical_overlap(question, facts):.2f}"}

    def _wording(self) -> str:
        own = self.task.wording.get("needle")
        defaults = self.task.parts()["needle"].default if own else ()
        if own and len(own) == 1 and own[0] in defaults:
            return str(defaults.index(own[0]))
        return "own" if own else str(self.asked[0].wording)
