"""Questions over a pile of documents, one or two of which hold the answer.

After RULER's QA tasks (arXiv 2404.06654), which put SQuAD (Rajpurkar et al. 2018) and HotpotQA (Yang et al. 2018) into
long prompts. Here the documents that answer are placed at the depth of the grid, questions come from the whole file
and not from its beginning, and no other document of the prompt contains an answer.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
import numpy as np
from pydantic import Field

from leadline.core.contracts import Source
from leadline.core.drafts import Draft, DraftQuestion, Fact
from leadline.core.errors import LengthError, UsageError
from leadline.core.seeds import bulk_rng, rng, seed_of
from leadline.core.types import Cell, Reading
from leadline.tasks.placement import fact_depths
from leadline.tasks.question_files import (
    TITLED,
    UNTITLED,
    DocumentPile,
    FileQuestion,
    NumberedPile,
    QuestionCorpus,
    open_corpus,
)
from leadline.tasks.wording import SCORERS, Parts, PromptPart, RetrievalTask, WordedTask, question_parts
from leadline.text.downloads import find_data

if TYPE_CHECKING:
    from leadline.core.types import Indices

HEAD = "Read the documents below. A question about them follows.\n\n"
QUESTION = "\n\nAnswer the question in as few words as you can.\nQuestion: {question}"
PREFIX = "Answer:"

CHARACTERS_FOR_ALL = 2.0
"""Characters per token of the length that the gold documents may take together: about half of it."""
CHARACTERS_FOR_ALL_NESTED = 1.2
"""The same for nested reading, where a longer prompt contains the gold documents of the shorter ones."""


class DocumentQuestions(WordedTask):
    """Questions over a pile of documents of an exact length, of which some answer and no others do.

    Depth is where the document that answers starts. If two are needed, they are at both ends of a band of width
    `spread` around the depth. A subclass has the documents and questions, and the wording of a question.
    """

    readings: ClassVar[tuple[Reading, ...]] = ("fresh", "shared", "nested")
    category: ClassVar[str] = "question answering"

    related: bool = Field(True, description="fill with documents of the same article or context before any others")
    repeat: bool = Field(False, description="use documents more than once when there are too few")
    spread: float = Field(0.2, ge=0, le=1, description="width of the band between two documents that answer together")

    @abstractmethod
    def corpus(self) -> QuestionCorpus:
        """The documents and the questions about them."""

    @abstractmethod
    def question(
        self, cell: Cell, file_question: FileQuestion, facts: Sequence[Fact], others: tuple[str, ...]
    ) -> DraftQuestion:
        """A question as it is put; `others` are answers to other questions about the prompt."""

    def leaves_out_gold(self, cell: Cell, seed: int) -> bool:
        """Whether the documents that answer the question of this cell are left out, so that it has no answer."""
        return False

    def sources(self) -> Sequence[Source]:
        return (self.corpus(),)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        corpus = self.corpus()
        chosen = self._choose(corpus, cells, seed)
        absent = [self.leaves_out_gold(cell, seed) for cell in cells]
        facts = [
            [] if left_out else self._facts(corpus, cell, question, seed)
            for cell, question, left_out in zip(cells, chosen, absent, strict=True)
        ]
        everything = tuple(dict.fromkeys(answer for question in chosen for answer in question.answers))
        return self.new_draft(
            cells,
            filler=self._pile(corpus, cells, chosen, seed),
            facts=(fact for own in facts for fact in own),
            questions=tuple(
                msgspec.structs.replace(self.question(cell, q, own, everything), absent=left_out or None)
                for cell, q, own, left_out in zip(cells, chosen, facts, absent, strict=True)
            ),
        )

    def _choose(self, corpus: QuestionCorpus, cells: Sequence[Cell], seed: int) -> list[FileQuestion]:
        """A question for each cell. The samples of a cell differ, and no question can be answered from the gold
        documents of another."""
        order = bulk_rng(seed, "questions", cells[0].task_family).permutation(len(corpus.questions))
        share = CHARACTERS_FOR_ALL_NESTED if self.cluster(cells).nested else CHARACTERS_FOR_ALL
        chosen: list[FileQuestion] = []
        for cell in cells:
            together = sum(c.length == cell.length for c in cells)
            most = min(cell.length, int(share * cell.length / together))
            fitting = order[corpus.sizes[order] <= most]
            first = cell.sample + seed_of("questions", cell.length, cell.depth) % 1_000_003
            candidates = (corpus.questions[fitting[(first + n) % len(fitting)]] for n in range(len(fitting)))
            question = next((q for q in candidates if not any(_clash(q, other) for other in chosen)), None)
            if question is None:
                raise _too_short(corpus, cell, together, share)
            chosen.append(question)
        return chosen

    def _facts(self, corpus: QuestionCorpus, cell: Cell, question: FileQuestion, seed: int) -> list[Fact]:
        gold = list(question.gold)
        draw = rng(seed, "gold", *cell.coordinates)
        draw.shuffle(gold)
        depths = fact_depths(cell, self.spread, len(gold), draw)
        return [
            Fact(f"{cell.key}#{number}", corpus.documents[document], depth, cell.length)
            for number, (document, depth) in enumerate(zip(gold, depths, strict=True))
        ]

    def _pile(
        self, corpus: QuestionCorpus, cells: Sequence[Cell], chosen: Sequence[FileQuestion], seed: int
    ) -> DocumentPile:
        """Every document that answers none of the questions."""
        free = np.arange(len(corpus.documents)) < len(corpus.bank.pieces)
        near = np.zeros(len(corpus.documents), np.bool_)
        for question in chosen:
            free[[*question.gold, *question.holders]] = False
            near[list(question.related)] = self.related
        first: Indices = np.flatnonzero(near & free)
        then: Indices = np.flatnonzero(~near & free)
        cluster = self.cluster(cells)
        drawn = seed_of(seed, "pile", *cluster.coordinates)
        return DocumentPile(corpus.bank, first, then, drawn, repeat=self.repeat, prefix_stable=cluster.nested)


class Questions(RetrievalTask, DocumentQuestions):
    """Answer questions over a pile of documents, read from a SQuAD or HotpotQA file.

    Depth is where the document that answers starts. If two are needed, they are at both ends of a band of width
    `spread` around the depth.
    """

    version: ClassVar[str] = "3"

    data: str = Field("squad", description="squad, hotpotqa (`leadline sources pull`), or a file in either's format")
    titles: bool = Field(False, description="print each document's title above it")
    questions: int = Field(2000, ge=0, description="questions drawn from the file, once for all runs; 0 takes all")
    answer_tokens: int = Field(32, ge=1, description="tokens for the answer")

    def parts(self) -> Mapping[str, PromptPart]:
        return parts_of(TITLED if self.titles else UNTITLED, numbers=True) | self.absent_parts()

    def leaves_out_gold(self, cell: Cell, seed: int) -> bool:
        return self.is_absent(cell, seed)

    def corpus(self) -> QuestionCorpus:
        return self._corpus("data")

    def _corpus(self, option: str) -> QuestionCorpus:
        form, path = self.texts("document")[0], find_data(self.data, option=option)
        return open_corpus(path, form=form, split=self.split, most=self.questions)

    def question(
        self, cell: Cell, file_question: FileQuestion, facts: Sequence[Fact], others: tuple[str, ...]
    ) -> DraftQuestion:
        return ask(
            self, cell, file_question.text, file_question.answers, facts, allowance=self.answer_tokens, others=others
        )

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        corpus = self._corpus(f"{cells[0].task_family}.data")  # tasks of one suite have data of their own
        return self._numbered(corpus, cells, seed) if corpus.numbered else super().draft(cells, seed=seed)

    def _numbered(self, corpus: QuestionCorpus, cells: Sequence[Cell], seed: int) -> Draft:
        if self.absent:
            raise UsageError(
                "absent is not for numbered documents", where=cells[0].task, fix="print documents without {number}"
            )
        if len(cells) > 1:
            raise UsageError(
                "numbered documents answer one question each", where=cells[0].task, fix="use --reading fresh"
            )
        [cell], [question] = cells, self._choose(corpus, cells, seed)
        gold, depths = list(question.gold), None
        draw = rng(seed, "gold", *cell.coordinates)
        draw.shuffle(gold)
        if cell.depth is not None:
            depths = tuple(fact_depths(cell, self.spread, len(gold), draw))
        pile = self._pile(corpus, cells, [question], seed)
        filler = NumberedPile(corpus.numbered_bank, tuple(gold), pile, depths)
        return self.new_draft(cells, filler, facts=(), questions=(self.question(cell, question, (), ()),))


def parts_of(document: str, *, numbers: bool = False) -> Parts:
    """The texts of a task that asks about documents; `document` is how one is printed, perhaps with a number."""
    may = ("title", "number") if numbers else ("title",)
    printed = PromptPart((document,), needs=("text",), may=may, planted=True)
    return question_parts(HEAD, QUESTION, PREFIX, document=printed)


def ask(
    task: WordedTask,
    cell: Cell,
    text: str,
    answers: tuple[str, ...],
    facts: Sequence[Fact],
    *,
    allowance: int,
    others: tuple[str, ...],
) -> DraftQuestion:
    """A question for which any of the answers is right; `others` are answers to other questions about the prompt."""
    return DraftQuestion(
        cell=cell,
        text=task.fill("question", question=text),
        answer_prefix=task.fill("prefix"),
        targets=answers,
        allowance=allowance,
        scorers=SCORERS["any"],
        facts=tuple(fact.id for fact in facts),
        distractors=tuple(other for other in others if other not in answers),
        labels={"hops": str(len(facts))},
        match="any",
        family="questions",
    )


def _clash(question: FileQuestion, other: FileQuestion) -> bool:
    """Whether the gold documents of one could answer the other."""
    gold, others = set(question.gold), set(other.gold)
    return bool(gold & others or gold & other.holders or others & question.holders)


def _too_short(corpus: QuestionCorpus, cell: Cell, together: int, share: float) -> LengthError:
    smallest = int(np.sort(corpus.sizes)[: 4 * together].max())
    shortest = max(smallest, int(smallest * together / share) + 1)
    return LengthError(
        f"{cell.length:,} tokens cannot hold the documents that answer {together} "
        f"question{'s' if together > 1 else ''} of {corpus.name}",
        where=cell.key,
        fix=f"lengths from about {shortest:,} can; or ask at fewer depths",
        shortest=shortest if shortest > cell.length else None,
    )


QA_1 = Questions(data="squad")
QA_2 = Questions(data="hotpotqa", titles=True)
