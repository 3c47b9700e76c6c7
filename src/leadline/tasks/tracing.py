"""Following assignments through long text: which variables come to hold a value?

After RULER's variable tracking (arXiv 2404.06654): one chain of four hops in five-letter names among lines of noise,
and one demonstration, whose names and value are drawn for every document and differ from the document's.
The wordings are our own. Further chains have other values and are distractors.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import ClassVar

from pydantic import Field

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.seeds import rng
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import spread_depths
from leadline.tasks.wording import (
    SCORERS,
    PromptPart,
    WordedTask,
    answer_allowance,
    answer_forms,
    demonstration_part,
    noise_line,
    noise_part,
    worded_source,
)
from leadline.tasks.words import draw_new
from leadline.text.sources import Unit, stretch_of

INSTRUCTION = (
    "The text below hides assignments to variables. A variable holds a number, or what another variable holds. "
    "Keep track of who holds what; a question about it follows.\n\n"
)
QUESTION = "\n\nQuestion: Which variables hold the value {value}, directly or through others? Name all {count} of them."
PREFIX = "The variables that hold {value} are these {count}:"
FIRST = "LET {name} = {value}."
NEXT = "LET {name} = {other}."
PARTS = {
    "instruction": PromptPart((INSTRUCTION,), opens=True),
    "first": PromptPart((FIRST,), needs=("name", "value"), planted=True),
    "next": PromptPart((NEXT,), needs=("name", "other"), planted=True),
    "question": PromptPart((QUESTION,), needs=("value",), may=("count",), asks=True),
    "prefix": PromptPart((PREFIX,), may=("value", "count")),
    "demonstration": demonstration_part("another text"),
}

RULER_CHAIN_CHARACTERS = 5 * (5 + 2)
"""Of RULER's answer, five names of five letters in a list, which has 30 tokens."""
DEMONSTRATION_LETTERS = 3
DEMONSTRATION_LINES = 8
SHORT_DEMONSTRATION_LINES = 2
SHORT_BELOW = 2048
"""Lines of noise in the demonstration; fewer below SHORT_BELOW tokens, where it would fill the document."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Variables that hold one value, each assigned from the one before it."""

    value: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _CellChains:
    """The chains of one cell, the one asked for first, and the facts that its question needs."""

    cell: Cell
    chains: tuple[Chain, ...]
    facts: tuple[Fact, ...]
    needed: tuple[str, ...]


class Tracing(WordedTask):
    """Follow assignments from variable to variable, and name all that hold a value.

    The lines of a chain are in order. Depth is the middle of a band of width `spread` that holds the chain asked for;
    with placement=anywhere it is spread over the whole text, as in the paper. Other chains are placed at random.
    """

    version: ClassVar[str] = "3"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "tracing"

    chains: int = Field(1, ge=1, le=64, description="chains in the text; one is asked for, the others are distractors")
    hops: int = Field(4, ge=1, le=32, description="steps of a chain, which has one variable more")
    letters: int = Field(5, ge=3, le=12, description="capital letters of a name")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds the chain asked for")
    haystack: str = Field("noise", description="noise, prose, code, a path, or a mixture prose:0.5,code:0.5")
    unit: Unit = Field("sentence", description="what a path or mixture is cut into: sentence or paragraph")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    demonstration: bool = Field(True, description="show one solved example before the text")
    answer_tokens: int = Field(30, ge=1, description="tokens for the answer; more for longer chains than RULER's")

    def parts(self) -> Mapping[str, PromptPart]:
        return PARTS | noise_part(self.haystack)

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return worded_source(self, self.haystack, unit=self.unit, repeat=self.repeat)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster = self.cluster(cells)
        draw = rng(seed, "demonstration", *cluster.coordinates, cells[0].depth)
        taken = self._capitals()
        shown = self._chain(draw, taken, DEMONSTRATION_LETTERS)
        planted = [self._plant(cell, seed, taken) for cell in cells]
        everything = [name for part in planted for chain in part.chains for name in chain.names]
        return self.new_draft(
            cells,
            head=(self._demonstrated(shown, draw, min(c.length for c in cells)) if self.demonstration else "")
            + self.fill("instruction"),
            filler=stretch_of(self._source(), cluster, seed, tokens=max(c.length for c in cells)),
            facts=(fact for part in planted for fact in part.facts),
            questions=(self._question(part, everything, shown) for part in planted),
        )

    def _capitals(self) -> set[str]:
        """Capital words of the task's own texts, which could be taken for names."""
        return {word for part in self.parts() for text in self.texts(part) for word in _CAPITALS.findall(text)}

    def _lines(self, chain: Chain) -> list[str]:
        steps = zip(chain.names[1:], chain.names, strict=False)
        first = self.fill("first", name=chain.names[0], value=chain.value)
        return [first, *(self.fill("next", name=name, other=other) for name, other in steps)]

    def _chain(self, draw: random.Random, taken: set[str], letters: int) -> Chain:
        """A chain whose names and value occur nowhere else in the document."""
        names = [
            draw_new(lambda: "".join(draw.choices(ascii_uppercase, k=letters)), taken, self.split)
            for _ in range(self.hops + 1)
        ]
        value = draw_new(lambda: str(draw.randrange(10_000, 99_999)), taken, self.split)
        return Chain(value, tuple(names))

    def _plant(self, cell: Cell, seed: int, taken: set[str]) -> _CellChains:
        draw = rng(seed, "tracing", *cell.coordinates)
        chains = tuple(self._chain(draw, taken, self.letters) for _ in range(self.chains))
        facts = []
        for number, chain in enumerate(chains):
            depth = cell.depth if number == 0 else None
            depths = spread_depths(depth, self.spread, self.hops + 1, draw)
            for step, (sentence, at) in enumerate(zip(self._lines(chain), depths, strict=True)):
                facts.append(Fact(f"{cell.key}#{number}.{step}", sentence, at, cell.length))
        return _CellChains(cell, chains, tuple(facts), tuple(f.id for f in facts[: self.hops + 1]))

    def _question(self, part: _CellChains, everything: Sequence[str], shown: Chain) -> DraftQuestion:
        chain = part.chains[0]
        held = {"value": chain.value, "count": len(chain.names)}
        return DraftQuestion(
            cell=part.cell,
            text=self.fill("question", **held),
            answer_prefix=self.fill("prefix", **held),
            targets=chain.names,
            allowance=answer_allowance(
                self.answer_tokens, len(chain.names) * (self.letters + 2), RULER_CHAIN_CHARACTERS
            ),
            scorers=SCORERS["all"],
            facts=part.needed,
            distractors=tuple(name for name in everything if name not in chain.names),
            labels={"hops": str(self.hops), "chains": str(self.chains)},
            family="tracing",
            demonstration=(*shown.names, shown.value) if self.demonstration else (),
        )

    def _demonstrated(self, shown: Chain, draw: random.Random, length: int) -> str:
        """A short text with its own chain, question and right answer."""
        noise = self.texts("noise")[0] + "\n" if self.haystack == "noise" else noise_line()
        count = DEMONSTRATION_LINES if length >= SHORT_BELOW else SHORT_DEMONSTRATION_LINES
        lines = [noise] * count
        before = sorted(draw.choices(range(count + 1), k=len(shown.names)))
        for step, (sentence, at) in enumerate(zip(self._lines(shown), before, strict=True)):
            lines.insert(at + step, sentence + "\n")
        held = {"value": shown.value, "count": len(shown.names)}
        return self.fill(
            "demonstration",
            instruction=self.fill("instruction"),
            document="".join(lines).rstrip("\n"),
            question=self.fill("question", **held),
            prefix=self.fill("prefix", **held),
            **answer_forms(shown.names),
        )


_CAPITALS = re.compile(r"\b[A-Z]{3,}\b")
