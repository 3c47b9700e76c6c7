"""InfiniteBench's synthetic tasks (arXiv 2402.13718), generated at any exact length, with depth where it has a place.

number_string  a number of repeated digits in a text of noise
math_find      the largest, second or third largest number of a list
math_calc      every intermediate result of a long sum
code_run       the value that a chain of functions returns

`passkey` and `kv` of leadline.tasks.passkey_kv_lines are the other two. Wordings are our own; scores are by
InfiniteBench's rules beside our own stricter ones. docs/longbench.md says how the data differ from the published files.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from leadline.core.drafts import Composer, Draft, DraftQuestion, Fact, Filler, PieceBank, SegmentSize
from leadline.core.seeds import bulk_rng, digest, rng, seed_of
from leadline.core.spec import Suite
from leadline.core.types import Cell, Cluster
from leadline.tasks.passkey_kv_lines import Passkey
from leadline.tasks.placement import SPARE, fact_depths, fill_lines, guard_places
from leadline.tasks.question_files import DocumentPile
from leadline.tasks.wording import PromptPart, WordedTask, question_parts

if TYPE_CHECKING:
    from leadline.core.types import Indices

Rank = Literal["largest", "second largest", "third largest"]
RANKS: tuple[Rank, ...] = ("largest", "second largest", "third largest")


@dataclass(frozen=True, slots=True)
class RandomPieces:
    """An endless random order of a bank's pieces, with repetitions. No piece is cut: half a number is another number,
    and a number without its sign is no step of a sum."""

    bank: PieceBank
    seed: int

    def least(self, counts: Indices) -> int:
        return int(counts.min())

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        """Pieces in their order, the last dozen selected so that the tokens add up."""
        room = sum(tokens for tokens, _ in segment_sizes)
        again = sum(retry for _, retry in segment_sizes)
        drawn = 1 << (room + 2 * SPARE).bit_length()  # a longer order begins with the shorter one
        order = bulk_rng(self.seed, "pieces").integers(0, len(self.bank.pieces), drawn)[again:]
        used, segments = 0, []
        for tokens, _ in segment_sizes:
            lines = fill_lines(counts[order[used:]], tokens, None)
            if lines is None:
                return None
            whole, chosen, _ = lines
            segments.append(np.concatenate([order[used : used + whole], order[used + whole :][chosen]]))
            used += whole + SPARE
        return segments


@cache
def _bank(name: str, pieces: tuple[str, ...]) -> PieceBank:
    return PieceBank(name, digest(list(pieces)), pieces, contiguous=False)


class NumberString(Passkey):
    """Find the number of repeated digits in a text of noise."""

    digits: int = Field(10, ge=3, le=40, description="digits of the number")
    repeats: int = Field(2, ge=1, le=20, description="how often each digit is repeated before the next one")

    def parts(self) -> Mapping[str, PromptPart]:
        return NUMBER_STRING

    def key(self, draw: random.Random) -> str:
        digits = [draw.choice("123456789")]
        while len(digits) * self.repeats < self.digits:
            digits.append(draw.choice([d for d in "0123456789" if d != digits[-1]]))
        return "".join(d * self.repeats for d in digits)[: self.digits]


NUMBER_STRING = question_parts(
    "Somewhere in the text below a sequence of digits is given. Find it and keep it in mind.\n\n",
    "\n\nQuestion: What is the sequence of digits?",
    "The sequence of digits is",
    needle=PromptPart(
        ("The sequence of digits is {key}. Keep it in mind: {key} is the sequence.",), needs=("key",), planted=True
    ),
)


class Synthetic(WordedTask):
    """Shared by the generated tasks: one question a document, scored by InfiniteBench's rule for `dataset`."""

    category: ClassVar[str] = "aggregation"
    dataset: ClassVar[str]

    def _ask(
        self,
        cell: Cell,
        filler: Filler | Composer,
        facts: Sequence[Fact],
        targets: tuple[str, ...] = (),
        *,
        count_targets: Callable[[str], tuple[str, ...]] | None = None,
        allowance: int,
        needed: Sequence[Fact] | None = None,
        whole_document: bool = False,
        scorers: tuple[str, ...] = ("match.all", "infinitebench"),
        **values: object,
    ) -> Draft:
        """A document of this filler with one question, whose placeholders have `values`. It needs the facts `needed`,
        or all."""
        return self.new_draft(
            (cell,),
            filler=filler,
            facts=tuple(facts),
            questions=(
                DraftQuestion(
                    cell=cell,
                    text=self.fill("question", **values),
                    answer_prefix=self.fill("prefix"),
                    targets=targets,
                    count_targets=count_targets,
                    allowance=allowance,
                    scorers=scorers,
                    facts=tuple(fact.id for fact in (facts if needed is None else needed)),
                    whole_document=whole_document,
                    dataset=self.dataset,
                ),
            ),
        )


FIND = question_parts(
    "Below is a list of numbers. A question about the list follows.\n\nNumbers: ",
    "\n\nQuestion: Which is the {rank} number in the list? Answer with the number alone.",
    "The number is",
)
LOWEST, HIGHEST = 1000, 9000
"""Numbers of the list; larger ones are planted."""


class MathFind(Synthetic):
    """Find the largest, second or third largest number of a list. Depth is where the numbers above all others are."""

    version: ClassVar[str] = "3"
    dataset: ClassVar[str] = "math_find"

    rank: Rank = Field("largest", description="which number is asked for")
    spread: float = Field(0.1, ge=0, le=1, description="width of the band that holds the largest numbers")
    answer_tokens: int = Field(16, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return FIND

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        draw = rng(seed, "math_find", *cell.coordinates)
        count = RANKS.index(self.rank) + 1
        above = sorted(draw.sample(range(HIGHEST, 10_000), count), reverse=True)
        depths = fact_depths(cell, self.spread, count, draw)
        facts = tuple(
            Fact(f"{cell.key}#{n}", f"{number},", depth, cell.length)
            for n, (number, depth) in enumerate(zip(draw.sample(above, count), depths, strict=True))
        )
        before, after = (
            tuple(
                Fact(f"{cell.key}#{end}{n}", f"{draw.randrange(LOWEST, HIGHEST)},", depth, length)
                for n, (depth, length) in enumerate(guards)
            )
            for end, guards in zip(("before", "after"), guard_places(cells, seed, tokens=4), strict=True)
        )
        numbers = _bank("numbers", tuple(f" {number}," for number in range(LOWEST, HIGHEST)))
        return self._ask(
            cell,
            RandomPieces(numbers, _haystack(seed, self.cluster(cells))),
            (*before, *facts, *after),
            (str(above[-1]),),
            needed=facts,
            whole_document=True,
            allowance=self.answer_tokens,
            rank=self.rank,
        )


CALC = question_parts(
    "Below is a long sum. Work it out from left to right, beginning with 0, and keep every result.\n\n",
    "\n\nWrite down the result after each operation, in order and separated by commas, and nothing else.",
    "The results are",
)


class MathCalc(Synthetic):
    """Give every intermediate result of a long sum. The answer is about as long as the sum."""

    version: ClassVar[str] = "2"
    dataset: ClassVar[str] = "math_calc"

    answer_share: float = Field(0.5, gt=0, lt=0.9, description="share of the length that the answer may have")

    @property
    def has_depth(self) -> bool:
        return False

    def parts(self) -> Mapping[str, PromptPart]:
        return CALC

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        steps = _bank("sum", tuple(f" {sign} {number}" for sign in "+-" for number in range(1, 100)))
        return self._ask(
            cell,
            RandomPieces(steps, _haystack(seed, self.cluster(cells))),
            (),
            count_targets=running_sums,
            allowance=max(int(cell.length * self.answer_share), 1),
            scorers=("infinitebench",),
        )


def running_sums(text: str) -> tuple[str, ...]:
    """Every result of `0 + 12 - 7 ...` from left to right."""
    sums, total = [], 0
    for sign, number in re.findall(r"([+-]) (\d+)", text):
        total += int(number) if sign == "+" else -int(number)
        sums.append(str(total))
    return tuple(sums)


RUN = question_parts(
    "Below is a program of small functions. A question about one call follows.\n\n",
    "\n\nQuestion: What does {call} return? Work it out without running the program and answer with the number alone.",
    "The return value is",
)
NAMES = 900_000
"""Functions are named by six digits: those of the haystack come first in a fixed order, those of a chain later."""
MOST_FUNCTIONS = 1 << 19
"""The most functions of a haystack: enough for ten million tokens, and names enough are left for chains."""


class CodeRun(Synthetic):
    """Work out what a chain of functions returns. Depth is the middle of the band that holds the chain."""

    version: ClassVar[str] = "1"
    dataset: ClassVar[str] = "code_run"
    category: ClassVar[str] = "tracing"

    calls: int = Field(4, ge=1, le=16, description="functions in the chain that is asked for")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band that holds the chain")
    answer_tokens: int = Field(16, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return RUN

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        draw = rng(seed, "code_run", *cell.coordinates)
        size = min(1 << (cell.length // 5).bit_length(), MOST_FUNCTIONS)
        names = [_name(n) for n in draw.sample(range(size, NAMES), self.calls)]
        steps = [draw.choice((-1, 1)) * draw.randrange(2, 100) for _ in names]
        texts = [
            _function(name, f"{names[number + 1]}(x)" if number + 1 < len(names) else "x", step)
            for number, (name, step) in enumerate(zip(names, steps, strict=True))
        ]
        depths = fact_depths(cell, self.spread, self.calls, draw)
        facts = tuple(
            Fact(f"{cell.key}#{n}", text, depth, cell.length)
            for n, (text, depth) in enumerate(zip(draw.sample(texts, len(texts)), depths, strict=True))
        )
        argument = draw.randrange(1, 1000)
        everything = bulk_rng("functions").permutation(size)
        pile = DocumentPile(
            _functions(size), everything[:0], everything, _haystack(seed, self.cluster(cells)), prefix_stable=True
        )
        return self._ask(
            cell,
            pile,
            facts,
            (str(argument + sum(steps)),),
            allowance=self.answer_tokens,
            call=f"{names[0]}({argument})",
        )


def _function(name: str, inner: str, step: int) -> str:
    return f"def {name}(x):\n    return {inner} {'+' if step >= 0 else '-'} {abs(step)}"


def _name(number: int) -> str:
    return f"func_{100_000 + number * 7919 % NAMES}"


@cache
def _functions(size: int) -> PieceBank:
    """Functions that nothing asks about: each calls another one, so that all look alike."""
    draw = rng("functions")
    pieces = []
    for number in range(size):
        step = draw.choice((-1, 1)) * draw.randrange(2, 100)
        inner = "x" if draw.random() < 0.25 else f"{_name(draw.randrange(size))}(x)"
        pieces.append(_function(_name(number), inner, step) + "\n\n")
    return PieceBank(f"{size} functions", digest(pieces), pieces, contiguous=False, ending="\n\n")


def _haystack(seed: int, cluster: Cluster) -> int:
    return seed_of(seed, "haystack", *cluster.coordinates, cluster.depth)


INFINITEBENCH_SYNTHETIC = Suite(
    name="infinitebench-synthetic",
    summary="InfiniteBench's synthetic tasks, generated: no download, any length, five depths",
    values={
        "tasks": ["passkey", "number_string", "kv", "math_find", "code_run"],
        "lengths": "4k,16k,32k,64k,128k",
        "samples": 10,
        "depths": 5,
        "reading": "fresh",
    },
)
