"""Following assignments through long text: which variables come to hold a value?

After RULER's variable tracking (arXiv 2404.06654): one chain of four hops in five-letter names among lines of noise,
and one demonstration, whose names and value are drawn anew for every document and are never the document's own.
Wordings are ours. Further chains have values of their own and are distractors.
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
from leadline.core.seeds import rng, seed_of, side_of
from leadline.core.types import Cell, Cluster, Draft, Fact, Question, Reading, document_name
from leadline.tasks.wording import Part, Worded, answer_forms, demonstration_part
from leadline.text.sources import Unit, open_source

INSTRUCTION = (
    "The text below hides assignments to variables. A variable holds a number, or what another variable holds. "
    "Keep track of who holds what; a question about it follows.\n\n"
)
QUESTION = "\n\nQuestion: Which variables hold the value {value}, directly or through others? Name all {count} of them."
PREFIX = "The variables that hold {value} are these {count}:"
FIRST = "LET {name} = {value}."
NEXT = "LET {name} = {other}."
PARTS = {
    "instruction": Part((INSTRUCTION,), opens=True),
    "first": Part((FIRST,), needs=("name", "value"), planted=True),
    "next": Part((NEXT,), needs=("name", "other"), planted=True),
    "question": Part((QUESTION,), needs=("value",), may=("count",), asks=True),
    "prefix": Part((PREFIX,), may=("value", "count")),
    "demonstration": demonstration_part("another text"),
}

DEMONSTRATION_LETTERS = 3
DEMONSTRATION_LINES = 8
SHORT_DEMONSTRATION_LINES = 2
SHORT_BELOW = 2048
"""Lines of noise in the demonstration: fewer below so many tokens, where it would fill the document."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Names that hold one value, each through the one before it."""

    value: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Planted:
    """The chains of one cell, the asked-for one first, and the facts that its question needs."""

    cell: Cell
    chains: tuple[Chain, ...]
    facts: tuple[Fact, ...]
    needed: tuple[str, ...]


class Tracing(Worded):
    """Follow assignments from variable to variable, and name all that hold a value.

    The lines of a chain stand in order. Depth is the middle of a band of width `spread`, and the asked-for chain is
    drawn over that band; with placement=anywhere over the whole text, as in the paper. Other chains stand anywhere.
    """

    version: ClassVar[str] = "1"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "tracing"

    chains: int = Field(1, ge=1, le=64, description="chains in the text; one is asked for, the others are distractors")
    hops: int = Field(4, ge=1, le=32, description="steps of a chain, which has one variable more")
    letters: int = Field(5, ge=3, le=12, description="capital letters of a name")
    spread: float = Field(0.2, ge=0, le=1, description="band around the depth that the asked-for chain stands in")
    haystack: str = Field("noise", description="noise, prose, code, a path, or a mixture prose:0.5,code:0.5")
    unit: Unit = Field("sentence", description="what a path or mixture is cut into: sentence or paragraph")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    demonstration: bool = Field(True, description="show one solved example before the text")
    answer_tokens: int = Field(30, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, Part]:
        return PARTS

    def sources(self) -> Sequence[Source]:
        return (self._source(),)

    def _source(self) -> Source:
        return open_source(self.haystack, unit=self.unit, repeat=self.repeat)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster = Cluster.of(cells)
        draw = rng(seed, "demonstration", *cluster.coordinates, cells[0].depth)
        taken = self._capitals()
        shown = self._chain(draw, taken, DEMONSTRATION_LETTERS)
        planted = [self._plant(cell, seed, taken) for cell in cells]
        everything = [name for part in planted for chain in part.chains for name in chain.names]
        return Draft(
            id=document_name(cells),
            cluster=cluster.name,
            head=(self._demonstrated(shown, draw, min(c.length for c in cells)) if self.demonstration else "")
            + self.say("instruction"),
            filler=self._source().filler(seed=seed_of(seed, "haystack", *cluster.coordinates)),
            facts=tuple(fact for part in planted for fact in part.facts),
            questions=tuple(self._question(part, everything, shown) for part in planted),
        )

    def _capitals(self) -> set[str]:
        """Words that the text has of itself and that could be taken for names."""
        return {word for part in self.parts() for text in self.texts(part) for word in _CAPITALS.findall(text)}

    def _lines(self, chain: Chain) -> list[str]:
        steps = zip(chain.names[1:], chain.names, strict=False)
        first = self.say("first", name=chain.names[0], value=chain.value)
        return [first, *(self.say("next", name=name, other=other) for name, other in steps)]

    def _chain(self, draw: random.Random, taken: set[str], letters: int) -> Chain:
        """A chain whose names and value nothing else in the document has."""

        def new(text: str) -> bool:
            return text not in taken and side_of(text) == self.split

        names: list[str] = []
        while len(names) <= self.hops:
            name = "".join(draw.choices(ascii_uppercase, k=letters))
            if new(name):
                names.append(name)
                taken.add(name)
        value = next(v for v in iter(lambda: str(draw.randrange(10_000, 99_999)), "") if new(v))
        taken.add(value)
        return Chain(value, tuple(names))

    def _plant(self, cell: Cell, seed: int, taken: set[str]) -> _Planted:
        draw = rng(seed, "tracing", *cell.coordinates)
        chains = tuple(self._chain(draw, taken, self.letters) for _ in range(self.chains))
        facts = []
        for number, chain in enumerate(chains):
            depth = cell.depth if number == 0 else None
            for step, (line, at) in enumerate(zip(self._lines(chain), self._depths(depth, draw), strict=True)):
                facts.append(Fact(f"{cell.key}#{number}.{step}", line, at, cell.length))
        return _Planted(cell, chains, tuple(facts), tuple(f.id for f in facts[: self.hops + 1]))

    def _depths(self, depth: float | None, draw: random.Random) -> list[float]:
        """Where the lines of a chain stand, in order: anywhere, or one in each part of a band around a depth."""
        count = self.hops + 1
        if depth is None:
            return sorted(draw.random() for _ in range(count))
        low = min(max(depth - self.spread / 2, 0.0), 1.0 - self.spread)
        return [low + self.spread * (number + draw.random()) / count for number in range(count)]

    def _question(self, part: _Planted, everything: Sequence[str], shown: Chain) -> Question:
        chain = part.chains[0]
        held = {"value": chain.value, "count": len(chain.names)}
        return Question(
            cell=part.cell,
            text=self.say("question", **held),
            answer_prefix=self.say("prefix", **held),
            targets=chain.names,
            allowance=self.answer_tokens,
            scorers=("ruler.v1", "ruler.strict", "match.all"),
            facts=part.needed,
            distractors=tuple(name for name in everything if name not in chain.names),
            labels={"hops": str(self.hops), "chains": str(self.chains)},
            family="tracing",
            demonstration=(*shown.names, shown.value) if self.demonstration else (),
        )

    def _demonstrated(self, shown: Chain, draw: random.Random, length: int) -> str:
        """A small text with a chain of its own, its question and the right answer."""
        noise = open_source("noise").filler(seed=0).bank.pieces[0]
        count = DEMONSTRATION_LINES if length >= SHORT_BELOW else SHORT_DEMONSTRATION_LINES
        lines = [noise] * count
        before = sorted(draw.choices(range(count + 1), k=len(shown.names)))
        for step, (line, place) in enumerate(zip(self._lines(shown), before, strict=True)):
            lines.insert(place + step, line + "\n")
        held = {"value": shown.value, "count": len(shown.names)}
        return self.say(
            "demonstration",
            instruction=self.say("instruction"),
            document="".join(lines).rstrip("\n"),
            question=self.say("question", **held),
            prefix=self.say("prefix", **held),
            **answer_forms(shown.names),
        )


_CAPITALS = re.compile(r"\b[A-Z]{3,}\b")
