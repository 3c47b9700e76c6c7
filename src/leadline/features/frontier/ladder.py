"""A ladder of tasks over one pile of small questions: copy one, copy and solve it, solve it, solve it when it is given.

The idea is that of RULER v2 (NVIDIA-NeMo/Gym, benchmarks/ruler2): a model that fails in one step may find the question
and not solve it, solve it and not find it, or do each and not both. The questions are generated and simple, so the
failing step is named. docs/ladder.md says what differs.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank, SegmentSize
from leadline.core.errors import UsageError
from leadline.core.seeds import Split, bulk_rng, digest_text, of_split, rng, seed_of
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import PAD, SPARE, fact_depths, fill_lines, guard_places
from leadline.tasks.wording import PromptPart, WordedTask, question_part

if TYPE_CHECKING:
    from leadline.core.types import Indices

Step = Literal["retrieve", "two_steps", "one_step", "solve"]
STEPS: tuple[Step, ...] = ("retrieve", "two_steps", "one_step", "solve")
SCORERS = ("ladder", "ladder.strict")
ANSWER = "Answer: {answer}"
SOLVED_WRONG, OTHER_QUESTION = "found, solved wrong", "another question"

KEPT_KEYS = 2048
MOST_ASKED = 512
KEYS = 1 << 17
NUMBERS = (*range(11, 100), *range(101, 1000, 3), *range(1003, 10_000, 19))
"""Of several sizes, so that lines differ in tokens in every tokenizer."""
KINDS = ("Largest", "Smallest")
NUMBERS_ASKED = 6
LINE_TOKENS = 28

INSTRUCTION = (
    "Below are numbered questions, one on each line: which of some numbers is the largest, or the smallest? Keep them "
    "in mind; you will be asked for one of them.\n\n"
)
LAST_LINE = " End with a line of this form:\nAnswer: the number"
TEXTS: dict[Step, str] = {
    "retrieve": "\n\nCopy question {key} word for word, without its number, and write nothing else.",
    "two_steps": "\n\nFirst copy question {key} word for word, then solve it." + LAST_LINE,
    "one_step": "\n\nSolve question {key}. Do not copy it." + LAST_LINE,
    "solve": "\n\nSolve this question. {text}" + LAST_LINE,
}


class Ladder(WordedTask):
    """Copy a question out of many, copy and solve it, solve it at once, or solve it when it is given."""

    version: ClassVar[str] = "3"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "steps"

    steps: tuple[Step, ...] = Field(
        STEPS,
        min_length=1,
        description="what is asked, in turn: retrieve, two_steps (copy, then solve), one_step, solve (control)",
    )
    per_document: int = Field(
        4, ge=1, le=256, description="samples that one pile answers, at each depth, in shared and nested reading"
    )
    answer_tokens: int = Field(96, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return {
            "instruction": PromptPart((INSTRUCTION,), opens=True),
            **{step: question_part(text) for step, text in TEXTS.items()},
        }

    @property
    def samples_per_document(self) -> int:
        return self.per_document

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        cluster = self.cluster(cells)
        pile = QuestionPile(max(c.length for c in cells), seed_of(seed, "pile", *cluster.coordinates), self.split)
        before, after = guard_places(cells, seed, LINE_TOKENS)
        keys = iter(pile.kept_keys(len(cells) + len(before) + len(after), questions=len(cells)))
        planted = [self._plant(cell, next(keys), seed) for cell in cells]
        draw = rng(seed, "ladder guards", *cells[0].coordinates)
        first, last = (
            [_guard(f"{cells[0].key}#{end}{n}", next(keys), *guard, draw) for n, guard in enumerate(guards)]
            for end, guards in (("before", before), ("after", after))
        )
        return self.new_draft(
            cells,
            filler=pile,
            facts=(*first, *(question.fact for question in planted), *last),
            questions=(self._ask(question, planted) for question in planted),
            shared_end=True,
        )

    def _plant(self, cell: Cell, key: str, seed: int) -> _Planted:
        draw = rng(seed, "ladder", *cell.coordinates)
        solved = _draw_question(draw)
        [depth] = fact_depths(cell, 0.0, 1, draw)
        return _Planted(cell, key, solved, _line(f"{cell.key}#0", key, solved, depth, cell.length))

    def _ask(self, question: _Planted, planted: Sequence[_Planted]) -> DraftQuestion:
        step, solved = self.steps[question.cell.sample % len(self.steps)], question.solved
        copies = step == "retrieve"
        others = tuple(o.solved.text if copies else o.solved.answer for o in planted if o is not question)
        mistakes = {OTHER_QUESTION: others} if copies else {SOLVED_WRONG: solved.wrong, OTHER_QUESTION: others}
        return DraftQuestion(
            cell=question.cell,
            text=self.fill(step, **({"text": solved.text} if step == "solve" else {"key": question.key})),
            answer_prefix="",
            targets=(solved.text if copies else solved.answer,),
            allowance=self.answer_tokens,
            scorers=SCORERS,
            facts=(question.fact.id,),
            labels={"operation": step.replace("_", " ")},
            family="ladder",
            answer_form="" if copies else ANSWER,
            mistakes=mistakes,
        )


@dataclass(frozen=True, slots=True)
class _SolvedQuestion:
    text: str
    answer: str
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Planted:
    cell: Cell
    key: str
    solved: _SolvedQuestion
    fact: Fact


def _line(fact_id: str, key: str, solved: _SolvedQuestion, depth: float, length: int) -> Fact:
    return Fact(fact_id, f"Question {key}: {solved.text}", depth, length)


def _guard(fact_id: str, key: str, depth: float, length: int, draw: random.Random) -> Fact:
    """A question at an end of the pile: the first and the last question are never asked for."""
    return _line(fact_id, key, _draw_question(draw), depth, length)


def _draw_question(draw: random.Random) -> _SolvedQuestion:
    kind, numbers = draw.choice(KINDS), draw.sample(NUMBERS, NUMBERS_ASKED)
    right = (max if kind == KINDS[0] else min)(numbers)
    listed = ", ".join(map(str, numbers[:-1]))
    return _SolvedQuestion(  # few words besides the numbers: a copy of another question must not look like a good one
        f"{kind}: {listed} or {numbers[-1]}?",
        str(right),
        tuple(str(n) for n in numbers if n != right),
    )


# --- the pile -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _LadderBank:
    bank: PieceBank
    keys: tuple[str, ...]
    ranges: tuple[tuple[int, int], ...]
    """The possible pieces of each part of a line."""


@cache
def _bank(keys: int, split: Split) -> _LadderBank:
    drawn = bulk_rng("question keys").choice(9_000_000, 2 * keys, replace=False) + 1_000_000
    names = of_split(map(str, drawn.tolist()), split)[:keys]
    columns = [
        [f"Question {name}:" for name in names],
        [f" {kind}:" for kind in KINDS],
        [f" {n}," for n in NUMBERS],
        [f" {n}" for n in NUMBERS],
        [f" or {n}?\n" for n in NUMBERS],
    ]
    pieces = [*(piece for column in columns for piece in column), PAD]
    ends = np.cumsum([len(column) for column in columns]).tolist()
    ranges = tuple(zip([0, *ends[:-1]], ends, strict=True))
    ends_sentence = tuple(piece.endswith("\n") for piece in pieces)
    bank = PieceBank(
        "questions", digest_text("".join(pieces)), pieces, contiguous=False, ends_sentence=ends_sentence, ending="\n"
    )
    return _LadderBank(bank, names, ranges)


@dataclass(frozen=True, slots=True)
class QuestionPile:
    """The questions of one document, without those that are asked for. A longer pile begins with the shorter one."""

    longest: int
    seed: int
    split: Split

    @property
    def _bank(self) -> _LadderBank:
        size = 1 << 12
        while size < min(self.longest // 12, KEYS) + 2 * SPARE + KEPT_KEYS:
            size *= 2
        return _bank(size, self.split)

    @property
    def bank(self) -> PieceBank:
        return self._bank.bank

    def kept_keys(self, count: int, *, questions: int) -> list[str]:
        """Keys for planted questions, which no other line has. `questions` of them are asked for."""
        if questions > MOST_ASKED or count > KEPT_KEYS:
            raise UsageError(
                f"one pile answers at most {MOST_ASKED} questions, not {questions}",
                where="ladder",
                fix="ask fewer samples of a document (per_document), at fewer depths",
            )
        keys = self._bank.keys
        return [keys[i] for i in bulk_rng(self.seed, "kept keys").permutation(KEPT_KEYS)[:count].tolist()]

    def least(self, counts: Indices) -> int:
        return 0

    def compose(self, segment_sizes: Sequence[SegmentSize], counts: Indices) -> list[Indices] | None:
        bank = self._bank
        low, high = bank.ranges[2]
        more = (NUMBERS_ASKED - 3) * float(counts[low:high].mean())
        typical = sum(float(counts[low:high].mean()) for low, high in bank.ranges) + more
        wanted = int(1.1 * sum(room for room, _ in segment_sizes) / typical) + 3 * SPARE * len(segment_sizes)
        lines, pad, last = self._rows(bank, wanted), int(counts[-1]), len(bank.bank.pieces) - 1
        sizes = counts[lines].sum(axis=1)
        used, segments = 0, []
        for tokens, retry in segment_sizes:
            start = used + retry
            filling = fill_lines(sizes[start:], tokens, pad)
            if filling is None:
                return None
            whole, chosen, pads = filling
            rows = np.concatenate([lines[start : start + whole], lines[start + whole :][chosen]])
            segments.append(np.concatenate([rows.reshape(-1), np.full(pads, last)]))
            used = start + whole + SPARE
        return segments

    def _rows(self, bank: _LadderBank, count: int) -> Indices:
        size = 1 << max(count, 2).bit_length()
        keys = bulk_rng(self.seed, "keys").permutation(len(bank.keys) - KEPT_KEYS) + KEPT_KEYS
        columns = [keys[np.arange(count) % len(keys)]]
        for number, column in enumerate((1, *[2] * (NUMBERS_ASKED - 2), 3, 4)):
            low, high = bank.ranges[column]
            columns.append(bulk_rng(self.seed, "column", number).integers(low, high, size)[:count])
        return np.stack(columns, axis=1)
