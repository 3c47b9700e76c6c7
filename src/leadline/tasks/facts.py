"""A base class for own tasks: a sentence, the question about it, and its answer."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from typing import ClassVar

from pydantic import Field

from leadline.core.contracts import Source, Task
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.errors import UsageError
from leadline.core.seeds import rng, split_of
from leadline.core.types import Cell, Reading
from leadline.tasks.wording import SCORERS, answer_allowance
from leadline.text.sources import open_source

DRAWS = 200
"""How often a fact is drawn again where another of the document has its question, or where it is of the other split."""


class FactTask(Task):
    """A task that plants a sentence in a long text and asks about it. A subclass writes `fact`, and nothing else:

        class Rooms(FactTask):
            def fact(self, draw):
                meeting, room = draw.randint(100, 999), draw.randint(10_000, 99_999)
                return f"Meeting {meeting} is in room {room}.", f"Which room is meeting {meeting} in?", room

    All reading modes, splits and depths follow from that.
    """

    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "retrieval"

    haystack: str = Field("prose", description="the text around the facts: a name, a file, a folder or a mixture")
    answer_tokens: int = Field(16, ge=1, description="tokens for the answer; a longer answer gets more")

    def fact(self, draw: random.Random) -> tuple[str, str, object]:
        """A sentence, the question that only it answers, and the answer. Everything random comes from `draw`."""
        raise NotImplementedError

    def sources(self) -> Sequence[Source]:
        return (open_source(self.haystack),)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        facts, questions = [], dict[str, DraftQuestion]()
        for cell in cells:
            sentence, question, answer = self._draw(cell, seed, questions.keys())
            facts.append(Fact(cell.key, f" {sentence.strip()}", cell.depth or 0.0, cell.length))
            questions[question] = DraftQuestion(
                f"\n\nQuestion: {question}",
                "Answer:",
                (answer,),
                answer_allowance(self.answer_tokens, len(answer)),
                SCORERS["all"],
                (cell.key,),
                cell=cell,
            )
        cluster = self.cluster(cells)
        filler = open_source(self.haystack).filler(seed=rng(seed, cluster.name).getrandbits(32))
        head = "Read the text, and answer the question after it.\n\n"
        return Draft(cluster.name, cluster.name, head, filler, tuple(facts), tuple(questions.values()))

    def _draw(self, cell: Cell, seed: int, taken_questions: Collection[str]) -> tuple[str, str, str]:
        """A fact of this split whose question no other fact of the document has."""
        draw = rng(seed, cell.task, cell.length, cell.depth, cell.sample)
        for _ in range(DRAWS):
            sentence, question, answer = self.fact(draw)
            value = str(answer)
            if value not in sentence:
                raise UsageError(
                    f"the answer {value!r} is not in its sentence {sentence!r}",
                    where=cell.task,
                    fix="return (sentence, question, answer) with the answer word for word in the sentence",
                )
            if question not in taken_questions and split_of(value) == self.split:
                return sentence, question, value
        raise UsageError(
            f"{DRAWS} draws gave no new question whose answer is of the split {self.split}",
            where=cell.task,
            fix="let fact() draw from more names and values: numbers of five digits, or a long list of words",
        )
