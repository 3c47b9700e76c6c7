"""`niah_own`: one sentence of the user's in a long text, and a question about it (Kamradt's needle test, 2023)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field, model_validator

from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.seeds import rng
from leadline.core.types import Cell
from leadline.tasks.niah import NeedleTask
from leadline.tasks.placement import fact_depths
from leadline.tasks.wording import SCORERS, PromptPart, answer_allowance, noise_part

INSTRUCTION = "Read the text below. A question about it follows.\n\n"


class OwnNeedle(NeedleTask):
    """Find a sentence of your own in a long text. Set needle, question and answers; without them it plants an example.

    Depth is where the sentence starts. It is the only one of its kind in the text; `niah` draws new needles for every
    sample and plants others of the same form beside them.
    """

    version: ClassVar[str] = "4"

    needle: str = Field(
        "On a rainy day in Porto, the best thing to do is to ride tram 18 with a bag of roasted chestnuts.",
        description="the sentence to plant",
    )
    question: str = Field(
        "What is the best thing to do on a rainy day in Porto?", description="the question that the sentence answers"
    )
    answers: tuple[str, ...] = Field(("tram 18",), description="strings of which any one counts as the answer")
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 chooses 64, or more for long answers")

    @model_validator(mode="after")
    def _needle_is_whole(self) -> OwnNeedle:
        own = {"needle", "question", "answers"} & self.model_fields_set
        if own and (len(own) < 3 or not all((self.needle, self.question, self.answers))):
            raise ValueError("needle, question and answers belong together: give all three")
        if not any(_has_phrase(self.needle, answer) for answer in self.answers):
            raise ValueError(
                f"no answer ({', '.join(map(repr, self.answers))}) is in the needle, so none could be right: "
                "give one as the needle words it"
            )
        return self

    def parts(self) -> Mapping[str, PromptPart]:
        return {
            "instruction": PromptPart((INSTRUCTION,), opens=True),
            "question": PromptPart(("\n\n{question}",), needs=("question",), asks=True),
            "prefix": PromptPart(("",)),
            **noise_part(self.haystack),
        }

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        [cell] = cells  # one sentence with one answer cannot be planted at several depths at once
        [depth] = fact_depths(cell, 0.0, 1, rng(seed, "needle", *cell.coordinates))
        fact = Fact(f"{cell.key}#0", self.planted(self.needle), depth, cell.length)
        question = DraftQuestion(
            cell=cell,
            text=self.fill("question", question=self.question),
            answer_prefix=self.fill("prefix"),
            targets=self.answers,
            allowance=self.allowance,
            scorers=SCORERS["any"],
            facts=(fact.id,),
            labels={"form": "own"},
            match="any",
            family="needle",
        )
        return self.new_draft(cells, filler=self.haystack_of(cells, seed), facts=(fact,), questions=(question,))

    @property
    def allowance(self) -> int:
        return answer_allowance(self.answer_tokens or 64, max(map(len, self.answers)))


def _has_phrase(text: str, phrase: str) -> bool:
    """Whether the text has the phrase in any letter case, and not as part of a longer word or number."""
    letter = r"[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"  # Han and kana are written without spaces
    phrase = phrase.strip()
    start, end = (letter if re.match(letter, edge) else "" for edge in (phrase[:1], phrase[-1:]))
    whole = (f"(?<!{start})" if start else "") + re.escape(phrase) + (f"(?!{end})" if end else "")
    return bool(phrase) and re.search(whole, text, re.IGNORECASE) is not None
