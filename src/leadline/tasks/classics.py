"""The simple classics, for comparison with older reports.

passkey  a number in a text that says nothing (Mohtashami and Jaggi 2023, arXiv 2305.16300)
kv       the value of one key among pairs of a JSON object (Liu et al. 2023, arXiv 2307.03172)
lines    the content of one named line among many (Li et al. 2023, "How long can open-source LLMs truly promise on
         context length?")

Wordings are ours. Depth, exact length and reading modes are those of every other task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from leadline.core.contracts import Source, Task
from leadline.core.seeds import rng, seed_of, side_of
from leadline.core.types import Cell, Draft, Fact, Question, Reading
from leadline.tasks.coordinates import cluster_of, document_of, family_of, places
from leadline.tasks.needle_lines import NeedleLines
from leadline.tasks.values import Kind, draw_new
from leadline.text.sources import open_source

SCORERS = ("match.all", "ruler.v1", "ruler.strict")


class Passkey(Task):
    """Find the one pass key in a text that says nothing."""

    version: ClassVar[str] = "1"
    category: ClassVar[str] = "retrieval"

    haystack: str = Field("noise", description="noise, prose, code, a path, or a mixture prose:0.5,code:0.5")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    digits: int = Field(5, ge=3, le=40, description="digits of the pass key")
    answer_tokens: int = Field(32, ge=1, description="tokens for the answer")

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return open_source(self.haystack, repeat=self.repeat)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells  # a text has but one pass key
        draw = rng(seed, "passkey", family_of(cell.task), cell.length, cell.depth, cell.sample)
        key = ""
        while not key or side_of(key) != self.split:
            key = str(draw.randrange(10 ** (self.digits - 1), 10**self.digits))
        [depth] = places(cell, 0.0, 1, draw)
        fact = Fact(f"{cell.key}#0", f"The pass key is {key}. Keep it in mind: {key}.", depth, cell.length)
        name = cluster_of(cells)
        drawn = seed_of(seed, "haystack", family_of(name), *name.split("/")[-2:])
        return Draft(
            id=document_of(cells),
            cluster=name,
            head="Somewhere in the text below a pass key is given. Find it and keep it in mind.\n\n",
            filler=self._source().filler(seed=drawn),
            facts=(fact,),
            questions=(
                Question(
                    cell=cell,
                    text="\n\nQuestion: What is the pass key?",
                    answer_prefix="The pass key is",
                    targets=(key,),
                    allowance=self.answer_tokens,
                    scorers=SCORERS,
                    facts=(fact.id,),
                    labels={"family": "needle", "value_kind": "numbers"},
                ),
            ),
        )


@dataclass(frozen=True, slots=True)
class _Line:
    key: str
    value: str
    fact: Fact


class Lines(Task):
    """Find the content of one line among many of the same form."""

    version: ClassVar[str] = "1"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "retrieval"
    wording: ClassVar[str] = "line {key}: its content is {value}."
    head: ClassVar[str] = "Below are lines, each with a name and a content. Keep them in mind; a question follows.\n\n"
    asked: ClassVar[str] = "\n\nQuestion: What is the content of line {key}?"
    prefix: ClassVar[str] = "The content of line {key} is"

    key_kind: Kind = Field("words", description="keys are words, numbers or uuids")
    value_kind: Kind = Field("numbers", description="values are words, numbers (7 digits) or uuids")
    answer_tokens: int = Field(64, ge=1, description="tokens for the answer")

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        taken: set[str] = set()
        lines = [self._line(cell, seed, taken) for cell in cells]
        name = cluster_of(cells)
        drawn = seed_of(seed, "lines", family_of(name), *name.split("/")[-2:])
        return Draft(
            id=document_of(cells),
            cluster=name,
            head=self.head,
            filler=NeedleLines(self.key_kind, self.value_kind, self.wording, drawn, frozenset(taken), self.split),
            facts=tuple(line.fact for line in lines),
            questions=tuple(self._ask(cell, line, lines) for cell, line in zip(cells, lines, strict=True)),
        )

    def _line(self, cell: Cell, seed: int, taken: set[str]) -> _Line:
        draw = rng(seed, "lines", family_of(cell.task), cell.length, cell.depth, cell.sample)
        key = draw_new(self.key_kind, draw, taken, self.split)
        value = draw_new(self.value_kind, draw, taken, self.split)
        [depth] = places(cell, 0.0, 1, draw)
        return _Line(key, value, Fact(f"{cell.key}#0", self.wording.format(key=key, value=value), depth, cell.length))

    def _ask(self, cell: Cell, line: _Line, lines: Sequence[_Line]) -> Question:
        return Question(
            cell=cell,
            text=self.asked.format(key=line.key),
            answer_prefix=self.prefix.format(key=line.key),
            targets=(line.value,),
            allowance=self.answer_tokens,
            scorers=SCORERS,
            facts=(line.fact.id,),
            distractors=tuple(other.value for other in lines if other is not line),
            labels={"family": "needle", "value_kind": self.value_kind},
        )


class KeyValue(Lines):
    """Find the value of one key among the pairs of a JSON object."""

    wording: ClassVar[str] = '"{key}": "{value}",'
    head: ClassVar[str] = (
        "Below is a stretch of a JSON object, one key with its value on each line. A question about it follows.\n\n"
    )
    asked: ClassVar[str] = '\n\nQuestion: What is the value of the key "{key}"?'
    prefix: ClassVar[str] = 'The value of "{key}" is'

    key_kind: Kind = Field("uuids", description="keys are words, numbers or uuids")
    value_kind: Kind = Field("uuids", description="values are words, numbers (7 digits) or uuids")
