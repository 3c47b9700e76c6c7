"""Questions whose answer is not in the document: the option `absent` of every task that retrieves something.

A model that always names something looks perfect in a needle test. With `absent=0.2` a fifth of the questions ask for
what the document does not have, and the right answer is to say so (after OneRuler, arXiv 2503.01996, and the IDK task
of Michelangelo, arXiv 2409.12640). Every question then says how to answer in that case, so that nothing in its form
tells which kind it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import Field

from leadline.core.drafts import Draft, Question
from leadline.core.seeds import rng
from leadline.core.types import Cell
from leadline.tasks.wording import PromptPart, WordedTask

CLAUSE = ' If the text does not say, answer "{reply}".'
REPLY = "not there"
PREFIX = "Answer:"
_GOLDEN = 0.6180339887498949


class RetrievalTask(WordedTask):
    """A task whose questions may ask for what is not there.

    A subclass merges `absent_parts()` into its `parts()`. In `draft`, where `is_absent(cell, seed)`, it asks for
    something of the same form that the document does not have, and sets `absent=True` on that question. Everything else
    (how to answer, targets, scores) is done here.
    """

    absent: float = Field(
        0.0, ge=0, le=1, description="share of questions whose answer is not in the document; right is to say so"
    )

    later_options: ClassVar[frozenset[str]] = WordedTask.later_options | {"absent"}
    absent_clause: ClassVar[str] = CLAUSE
    """What follows every question; `{reply}` is what to answer."""

    def absent_parts(self) -> dict[str, PromptPart]:
        """The texts for this option; none while it is not set."""
        if not self.absent:
            return {}
        return {
            "absent": PromptPart((self.absent_clause,), needs=("reply",), asks=True),
            "absent_reply": PromptPart((REPLY,)),
            "absent_prefix": PromptPart((PREFIX,)),
        }

    def is_absent(self, cell: Cell, seed: int) -> bool:
        """Whether the question of this cell has no answer. Over the samples of a length and depth the share is met to
        within one question, and a larger share contains a smaller one."""
        if not self.absent:
            return False
        first = rng(seed, "absent", cell.task_family, cell.length, cell.depth).random()
        return (first + cell.sample * _GOLDEN) % 1 < self.absent

    def write(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        draft = super().write(cells, seed=seed)
        if not self.absent:
            return draft
        return replace(draft, questions=tuple(map(self._with_clause, draft.questions)))

    def _with_clause(self, question: Question) -> Question:
        reply = self.fill("absent_reply")
        asked = replace(
            question,
            text=question.text + self.fill("absent", reply=reply),
            answer_prefix=self.fill("absent_prefix") if question.answer_prefix else "",
            absent=bool(question.absent),
        )
        if not question.absent:
            return asked
        kept = question.targets if isinstance(question.targets, tuple) else ()
        others = tuple(dict.fromkeys((*kept, *question.distractors)))
        return replace(asked, targets=(reply,), match="any", facts=(), distractors=others, mistakes={})
