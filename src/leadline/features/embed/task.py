"""A short question inside a long document: what does an evaluation lose by length and position alone?

After CRE (arXiv 2605.23170), which puts reasoning tasks into filler: one model lost 88 points at 64k with the task in
the middle, and a copy of it at the end restored them. Here the item is the user's own, or generated; it is the same at
every length and depth, and length 0 asks it alone, in the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import msgspec
from pydantic import Field, model_validator

from leadline.core.contracts import Source, Task, TextOrigin
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.files import expand_path
from leadline.core.seeds import rng
from leadline.core.types import Cell, Reading
from leadline.features.embed.items import EvalItem, ItemFile, ItemSource, generated_item, read_items
from leadline.tasks.placement import fact_depths
from leadline.tasks.wording import PromptPart, WordedTask, verbatim_draft
from leadline.text.sources import open_source, stretch_of

HOW = {
    "number": 'End with "Answer:" and the number.',
    "choice": 'End with "Answer:" and the letter of the right choice.',
    "text": 'End with "Answer:" and the answer alone.',
}
QUESTION = (
    "\n\nThis text has one task in it, between [task] and [end of task]. Do that task; nothing else in the text "
    "matters. {how}"
)
PARTS = {
    "item": PromptPart(("[task] {item} [end of task]",), needs=("item",), planted=True),
    "question": PromptPart((QUESTION,), may=("how",), asks=True),
    "prefix": PromptPart(("",)),
}
SCORERS = ("embed", "embed.strict")


class Embed(WordedTask):
    """Answer a short question inside a long document. Depth is where it is; length 0 is the question alone."""

    version: ClassVar[str] = "1"
    readings: ClassVar[tuple[Reading, ...]] = ("fresh",)
    category: ClassVar[str] = "own questions"
    has_length_zero: ClassVar[bool] = True

    data: str = Field("", description="a JSONL or CSV file of questions and answers; empty generates them")
    items: ItemSource = Field("all", description="without data: arithmetic, ordering or logic, or all in turn")
    haystack: str = Field("prose", description="prose, code, chat, agent, noise, a path, or a mixture")
    repeat: bool = Field(False, description="use the haystack more than once when it is too short")
    answer_tokens: int = Field(256, ge=1, description="tokens for the answer, with the steps that lead to it")

    @model_validator(mode="after")
    def _item_is_in_the_document(self) -> Embed:
        if self.no_context:
            raise ValueError("no_context: the item is in the document; --lengths 0,4k asks it alone")
        return self

    def parts(self) -> Mapping[str, PromptPart]:
        return PARTS

    def sources(self) -> Sequence[TextOrigin]:
        return (self._source(), *([self.item_file] if self.data else []))

    def max_samples(self) -> int | None:
        return len(self.item_file.items) if self.data else None

    @cached_property
    def item_file(self) -> ItemFile:
        """Read once for a task, so that a run keeps its items when the file is changed during it."""
        return read_items(expand_path(self.data))

    def _source(self) -> Source:
        return open_source(self.haystack, repeat=self.repeat)

    def item(self, sample: int, seed: int) -> EvalItem:
        """The item of a sample: the same at every length and depth."""
        if self.data:
            return self.item_file.items[sample]
        return generated_item(self.items, sample, seed, self.split)

    def write(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        if cells[0].length:
            return super().write(cells, seed=seed)
        draft = Task.write(self, cells, seed=seed)  # the item alone has no document
        if self.question_at not in ("before", "both"):
            return draft
        [question] = draft.questions
        head = f"{question.text.strip()}\n\n{draft.head}"
        if self.question_at == "before":
            question = msgspec.structs.replace(question, text=self.reminder(), question_before_document=question.text)
        return replace(draft, head=head, questions=(question,))

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        item = self.item(cell.sample, seed)
        planted = self.fill("item", item=item.text)
        fact_id = f"{cell.key}#0"
        question = DraftQuestion(
            cell=cell,
            text=self.fill("question", how=HOW[item.kind]),
            answer_prefix=self.fill("prefix"),
            targets=item.targets,
            allowance=self.answer_tokens,
            scorers=(item.scorer, *SCORERS) if item.scorer else SCORERS,
            facts=(fact_id,),
            distractors=item.distractors,
            labels={"item": item.id, **({"operation": item.group} if item.group else {})},
            match="any",
            family="items",
            answer_form="Answer: {answer}",
            value_kind="numbers" if item.kind == "number" else None,
            choices=item.choices,
        )
        if not cell.length:
            alone = msgspec.structs.replace(question, facts=())
            return verbatim_draft(planted, alone)
        [depth] = fact_depths(cell, 0.0, 1, rng(seed, "embed depth", *cell.coordinates))
        filler = stretch_of(self._source(), self.cluster(cells), seed, tokens=cell.length)
        return self.new_draft(cells, filler, (Fact(fact_id, planted, depth, cell.length),), (question,), head="")
