"""The simple classics, for comparison with older reports.

passkey  a number in a text of noise (Mohtashami and Jaggi 2023, arXiv 2305.16300)
kv       the value of one key among pairs of a JSON object (Liu et al. 2023, arXiv 2307.03172)
lines    the content of one named line among many (Li et al. 2023, "How long can open-source LLMs truly promise on
         context length?")

The wordings are our own. Depth, exact length and reading modes work as in every other task.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field, model_validator

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.seeds import rng, seed_of, split_of
from leadline.core.types import Cell, Reading, ValueKind
from leadline.tasks.languages import TranslatedTask
from leadline.tasks.needle_lines import NeedleLines
from leadline.tasks.placement import fact_depths, guard_places
from leadline.tasks.wording import SCORERS, PromptPart, RetrievalTask, WordedTask, filled_in, question_parts
from leadline.tasks.words import draw_new_value
from leadline.text.sources import open_source, stretch_of

PASSKEY = question_parts(
    "Somewhere in the text below a pass key is given. Find it and keep it in mind.\n\n",
    "\n\nQuestion: What is the pass key?",
    "The pass key is",
    needle=PromptPart(("The pass key is {key}. Keep it in mind: {key}.",), needs=("key",), planted=True),
)


def _line(text: str) -> PromptPart:
    return PromptPart((text,), needs=("key", "value"), planted=True, lines=True)


LINES = question_parts(
    "Below are lines, each with a name and a content. Keep them in mind; a question follows.\n\n",
    "\n\nQuestion: What is the content of line {key}?",
    "The content of line {key} is",
    line=_line("line {key}: its content is {value}."),
)
KEY_VALUE = question_parts(
    "Below is a stretch of a JSON object, one key with its value on each line. A question about it follows.\n\n",
    '\n\nQuestion: What is the value of the key "{key}"?',
    'The value of "{key}" is',
    line=_line('"{key}": "{value}",'),
)


class Passkey(WordedTask):
    """Find the pass key in a text of noise."""

    version: ClassVar[str] = "3"
    category: ClassVar[str] = "retrieval"

    haystack: str = Field("noise", description="noise, prose, code, a path, or a mixture prose:0.5,code:0.5")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    digits: int = Field(5, ge=3, le=40, description="digits of the pass key")
    answer_tokens: int = Field(32, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return PASSKEY

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return open_source(self.haystack, repeat=self.repeat)

    def key(self, draw: random.Random) -> str:
        return str(draw.randrange(10 ** (self.digits - 1), 10**self.digits))

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells  # a text has one pass key
        draw = rng(seed, "passkey", *cell.coordinates)
        key = self.key(draw)
        while split_of(key) != self.split:
            key = self.key(draw)
        [depth] = fact_depths(cell, 0.0, 1, draw)
        fact = Fact(f"{cell.key}#0", self.fill("needle", key=key), depth, cell.length)
        cluster = self.cluster(cells)
        return self.new_draft(
            cells,
            filler=stretch_of(self._source(), cluster, seed, tokens=cell.length),
            facts=(fact,),
            questions=(
                DraftQuestion(
                    cell=cell,
                    text=self.fill("question"),
                    answer_prefix=self.fill("prefix"),
                    targets=(key,),
                    allowance=self.answer_tokens,
                    scorers=SCORERS["all"],
                    facts=(fact.id,),
                    family="needle",
                    value_kind="numbers",
                ),
            ),
        )


@dataclass(frozen=True, slots=True)
class _PlantedLine:
    key: str
    value: str
    fact: Fact
    absent_key: str = ""
    """A name that no line has, to be asked for in place of this one's."""


class LineRetrieval(RetrievalTask):
    """Find the content of one line among many of the same form."""

    version: ClassVar[str] = "5"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "retrieval"

    key_kind: ValueKind = Field("words", description="keys are words, numbers or uuids")
    value_kind: ValueKind = Field("numbers", description="values are words, numbers (7 digits) or uuids")
    answer_tokens: int = Field(64, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return LINES | self.absent_parts()

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        taken: set[str] = set()
        lines = [self._line(cell, seed, taken) for cell in cells]
        before, after = guard_places(cells, seed, tokens=len(lines[0].fact.text) // 2)
        draw = rng(seed, "guards", "lines", *cells[0].coordinates)
        first, last = (
            [self._guard(f"{cells[0].key}#{end}{n}", *guard, draw, taken) for n, guard in enumerate(guards)]
            for end, guards in (("before", before), ("after", after))
        )
        cluster = self.cluster(cells)
        drawn = seed_of(seed, "lines", *cluster.coordinates)
        needle_text = filled_in(self.texts("line")[0], ("key", "value"))
        return self.new_draft(
            cells,
            filler=NeedleLines(self.key_kind, self.value_kind, needle_text, drawn, frozenset(taken), self.split),
            facts=(line.fact for line in (*first, *lines, *last)),
            questions=(self._ask(cell, line, (*lines, *first, *last)) for cell, line in zip(cells, lines, strict=True)),
        )

    def _line(self, cell: Cell, seed: int, taken: set[str]) -> _PlantedLine:
        draw = rng(seed, "lines", *cell.coordinates)
        key = draw_new_value(self.key_kind, draw, taken, self.split)
        value = draw_new_value(self.value_kind, draw, taken, self.split)
        [depth] = fact_depths(cell, 0.0, 1, draw)
        text = self.fill("line", key=key, value=value)
        other = ""
        if self.is_absent(cell, seed):
            other = draw_new_value(self.key_kind, rng(seed, "absent key", *cell.coordinates), taken, self.split)
        return _PlantedLine(key, value, Fact(f"{cell.key}#0", text, depth, cell.length), other)

    def _guard(self, fact_id: str, depth: float, length: int, draw: random.Random, taken: set[str]) -> _PlantedLine:
        """A line at an end of the list, so that none that is asked for is its first or last."""
        key = draw_new_value(self.key_kind, draw, taken, self.split)
        value = draw_new_value(self.value_kind, draw, taken, self.split)
        return _PlantedLine(key, value, Fact(fact_id, self.fill("line", key=key, value=value), depth, length))

    def _ask(self, cell: Cell, line: _PlantedLine, lines: Sequence[_PlantedLine]) -> DraftQuestion:
        return DraftQuestion(
            cell=cell,
            text=self.fill("question", key=line.absent_key or line.key),
            answer_prefix=self.fill("prefix", key=line.absent_key or line.key),
            targets=(line.value,),
            allowance=self.answer_tokens,
            scorers=SCORERS["all"],
            facts=(line.fact.id,),
            distractors=tuple(other.value for other in lines if other is not line),
            family="needle",
            value_kind=self.value_kind,
            absent=bool(line.absent_key) or None,
        )


class KeyValue(TranslatedTask, LineRetrieval):
    """Find the value of one key among the pairs of a JSON object."""

    key_kind: ValueKind = Field("uuids", description="keys are words, numbers or uuids")
    value_kind: ValueKind = Field("uuids", description="values are words, numbers (7 digits) or uuids")

    @model_validator(mode="after")
    def _language_is_possible(self) -> KeyValue:
        if self.language and (self.absent or "words" in (self.key_kind, self.value_kind)):
            raise ValueError("language: absent, and keys or values of words, are in English only")
        return self

    def parts(self) -> Mapping[str, PromptPart]:
        if self.translation:
            texts = self.translation
            return question_parts(
                texts.pairs_instruction, texts.pairs_question, texts.pairs_prefix, line=KEY_VALUE["line"]
            )
        return KEY_VALUE | self.absent_parts()
