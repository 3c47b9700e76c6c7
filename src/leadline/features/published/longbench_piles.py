"""LongBench's pile-shaped data sets at an exact length: demonstrations, paragraphs and code snippets.

The texts of a data set's samples are taken apart into their items, and a document of any length is made of them again.
What a sample needs is placed at the depth of the cell: the paragraph that its summary is of, the only demonstration of
its class, the articles about its question, the snippets of its own repository. Items that would also give the answer
are left out. docs/longbench.md says what differs from the published data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from leadline.core.drafts import Draft, DraftQuestion, Fact, PieceBank
from leadline.core.errors import SourceError
from leadline.core.seeds import Split, bulk_rng, rng, seed_of, split_of
from leadline.core.types import Cell
from leadline.features.published.benchmark_files import LONGBENCH, BenchmarkFile, BenchmarkSample, open_longbench
from leadline.features.published.longbench import LONGBENCH_PARTS, UNTEMPLATED, scorers_of
from leadline.tasks.qa import DocumentQuestions
from leadline.tasks.question_files import FileQuestion, QuestionCorpus
from leadline.tasks.wording import PromptPart, question_part
from leadline.text.downloads import find_data

if TYPE_CHECKING:
    from leadline.core.types import Indices

PileName = Literal[
    "dureader", "trec", "triviaqa", "samsum", "lsht", "passage_count", "passage_retrieval_en", "passage_retrieval_zh",
    "repobench-p",
]  # fmt: skip
WITH_EVIDENCE = frozenset(("dureader", "trec", "lsht", "passage_retrieval_en", "passage_retrieval_zh", "repobench-p"))
"""The others have no evidence among the items: a sample brings its own passage or dialogue, or all items count."""
PARAGRAPH = "Paragraph: "
"""What precedes a paragraph that is to be counted. A number would tell repetitions apart."""
ABOUT = 0.4
"""An article is about a question if it has this share of the question's pairs of neighbouring characters. In the real
samples at hand a question's own search results have 0.44 to 1, and the random articles beside them at most 0.31."""
NEW_SHARES = (0.4, 1.0)
"""Of the paragraphs to be counted, the share that is new and no repetition: between these, drawn for each sample."""

_AFTER_EXAMPLES = question_part("\n\n{input}")
_PARTS = {
    **LONGBENCH_PARTS,
    **{name: {**LONGBENCH_PARTS[name], "question": _AFTER_EXAMPLES} for name in ("trec", "triviaqa", "samsum", "lsht")},
    "passage_retrieval_en": {
        **LONGBENCH_PARTS["passage_retrieval_en"],
        "instruction": PromptPart(
            ("Below are numbered paragraphs, and after them a summary of one of them. Find out which.\n\n",), opens=True
        ),
    },
}


class LongBenchPile(DocumentQuestions):
    """A pile-shaped data set of LongBench (arXiv 2308.14508) at any exact length, what it needs at a depth."""

    version: ClassVar[str] = "1"
    category: ClassVar[str] = "published"

    dataset: PileName = Field("passage_retrieval_en", description="data set; several make a sweep")
    data: str = Field("", description="folder, archive or file with the data; default: what `sources pull` downloaded")
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 takes the published number")

    @property
    def has_depth(self) -> bool:
        return self.placement == "depth" and self.dataset in WITH_EVIDENCE

    def parts(self) -> Mapping[str, PromptPart]:
        return _PARTS[self.dataset]

    def corpus(self) -> QuestionCorpus:
        return open_pile(find_data(self.data or "longbench", folders=True), self.dataset, self.split)

    def question(
        self, cell: Cell, file_question: FileQuestion, facts: Sequence[Fact], others: tuple[str, ...]
    ) -> DraftQuestion:
        input_value = {"input": file_question.text} if "input" in self.parts()["question"].needs else {}
        return DraftQuestion(
            cell=cell,
            text=self.fill("question", **input_value),
            answer_prefix="",
            targets=file_question.answers,
            count_targets=_distinct_paragraphs if self.dataset == "passage_count" else None,
            allowance=self.answer_tokens or LONGBENCH[self.dataset].new_tokens,
            scorers=scorers_of(self.dataset),
            facts=tuple(fact.id for fact in facts),
            distractors=tuple(other for other in others if other not in file_question.answers),
            labels=file_question.labels,
            match="any",
            dataset=self.dataset,
            choices=file_question.choices,
        )

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        templated = self.dataset not in UNTEMPLATED
        if self.dataset != "passage_count":
            return replace(super().draft(cells, seed=seed), templated=templated)
        cluster, bank = self.cluster(cells), self.corpus().bank
        no_question = FileQuestion("", (), (), ())
        return self.new_draft(
            cells,
            filler=RepeatedParagraphs(bank, seed_of(seed, "paragraphs", *cluster.coordinates)),
            facts=(),
            questions=(self.question(cell, no_question, (), ()) for cell in cells),
        )


# --- counting ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RepeatedParagraphs:
    """Paragraphs of which some repeat an earlier one. A shorter text is the beginning of a longer one."""

    bank: PieceBank
    seed: int
    prefix_stable: ClassVar[bool] = True
    limit: ClassVar[None] = None

    def arrange(self, count: int) -> Indices:
        low, high = NEW_SHARES
        share = low + (high - low) * rng(self.seed, "share").random()
        fresh = bulk_rng(self.seed, "new").random(count) < share
        earlier = bulk_rng(self.seed, "earlier").random(count)
        unused = iter(bulk_rng(self.seed, "order").permutation(len(self.bank.pieces)).tolist())
        drawn: list[int] = []
        for number in range(count):
            piece = next(unused, None) if fresh[number] or not drawn else None
            drawn.append(drawn[int(earlier[number] * number)] if piece is None else piece)
        return np.array(drawn, np.int64)


def _distinct_paragraphs(text: str) -> tuple[str, ...]:
    """The number of different paragraphs. One that was cut for the exact length counts as the one it is part of."""
    bodies = {part.strip().removeprefix(PARAGRAPH.strip()).strip() for part in text.split("\n\n")} - {""}
    return (str(sum(not any(body != other and body in other for other in bodies) for body in bodies)),)


# --- from samples to items ----------------------------------------------------------------------------

_STARTS = {
    "dureader": r"文章\d+\n",
    "trec": r"Question: ",
    "triviaqa": r"Passage:\n",
    "samsum": r"Dialogue: ",
    "lsht": r"新闻内容：",
    "passage_count": r"Paragraph \d+: ",
    "passage_retrieval_en": r"Paragraph \d+: ",
    "passage_retrieval_zh": r"段落\d+：",
    "repobench-p": r"[\w./-]+\.(?:py|java)\n",
}
"""What an item begins with, at the start of a line."""
_CLASS = {"trec": "\nType:", "lsht": "\n类别："}
_NUMBERED = {"passage_retrieval_en": "Paragraph {}", "passage_retrieval_zh": "段落{}"}
_COLON = {"passage_retrieval_en": ": ", "passage_retrieval_zh": "："}


@cache
def open_pile(path: Path, dataset: str, split: Split) -> QuestionCorpus:
    """The items of all samples of a data set, each once, and a question for each sample that can be asked of them."""
    file = open_longbench(path, dataset)
    items = [_items(sample.context, dataset) for sample in file.samples]
    if not all(items):
        number = next(n for n, sample_items in enumerate(items, 1) if not sample_items)
        raise SourceError(
            f"sample {number} of {dataset} has no {_STARTS[dataset]!r} in its text",
            where=f"{path}, {file.name}",
            fix="give LongBench's own file; docs/longbench.md names the revision that is read",
        )
    every = dict.fromkeys(item for own in items for item in own if split_of(item) == split)
    pile = _Pile(dataset, file, list(every), items, {item: number for number, item in enumerate(every)})
    samples = zip(file.samples, items, strict=True)
    questions = tuple(question for sample, own in samples for question in pile.questions(sample, own, split))
    if not questions and dataset != "passage_count":
        raise SourceError(f"no sample of {dataset} can be asked over a pile", where=f"{path}, {file.name}")
    return QuestionCorpus(file.name, pile.printed, questions, fillers=len(every))


def _items(text: str, dataset: str) -> list[str]:
    start = re.compile(_STARTS[dataset])
    parts = [part.rstrip() for part in re.split(rf"(?m)^(?={_STARTS[dataset]})", text) if start.match(part)]
    if "passage" in dataset:  # the number is no part of a paragraph
        return [" ".join(start.sub("", part, count=1).split()) for part in parts]
    return [start.sub("", part, count=1) for part in parts] if dataset == "dureader" else parts


def _is_about(question: str, item: str) -> bool:
    letters = re.sub(r"\W", "", question)
    pairs = {letters[i : i + 2] for i in range(len(letters) - 1)}
    text = re.sub(r"\W", "", item)
    return bool(pairs) and sum(pair in text for pair in pairs) >= ABOUT * len(pairs)


class _Pile:
    """The items of one data set, and what a sample needs of them."""

    def __init__(
        self, dataset: str, file: BenchmarkFile, items: list[str], own: list[list[str]], numbers: Mapping[str, int]
    ) -> None:
        self.dataset, self.items, self.numbers = dataset, items, numbers
        self.blocks = []
        if dataset == "repobench-p":
            self.blocks = ["\n".join(texts) for texts in own]
        elif dataset == "dureader":
            questions = [sample.question for sample in file.samples]
            self.blocks = [
                "\n\n".join(i for i in texts if _is_about(q, i)) for q, texts in zip(questions, own, strict=True)
            ]
        self.block_of = {sample.id: number for number, sample in enumerate(file.samples)}
        mark = _CLASS.get(dataset, "")
        self.classes = [item.rpartition(mark)[2].strip() for item in items] if mark else []
        # Numbers of paragraphs say nothing about their order.
        order = rng("numbers", file.name).sample(range(1, len(items) + 1), len(items))
        self.label = {item: _NUMBERED.get(dataset, "").format(n) for item, n in zip(items, order, strict=True)}

    @property
    def printed(self) -> tuple[str, ...]:
        """The items as they are printed, then the texts that answer a question and are never filler."""
        if self.dataset in _NUMBERED:
            return tuple(f"{self.label[item]}{_COLON[self.dataset]}{item}" for item in self.items)
        before = PARAGRAPH if self.dataset == "passage_count" else ""
        return (*(before + item for item in self.items), *self.blocks)

    def questions(self, sample: BenchmarkSample, own: list[str], split: Split) -> Iterator[FileQuestion]:
        if split_of(sample.question) == split and self.dataset != "passage_count":
            evidence = _EVIDENCE[self.dataset](self, sample, own)
            if evidence is not None:
                gold, holders, answers = evidence
                related = [self.numbers[item] for item in own if item in self.numbers]
                yield FileQuestion(
                    sample.question, answers, gold, related, frozenset(holders), {"source_id": sample.id},
                    tuple(sample.classes),
                )  # fmt: skip

    def one_of_its_class(self, sample: BenchmarkSample, own: list[str]) -> _Evidence | None:
        """One demonstration of the sample's class, the first of its own if it has one; no other is in the text."""
        same = [n for n, name in enumerate(self.classes) if name in sample.references]
        copies = self._copies(sample)
        usable = [n for n in same if n not in copies]
        mine = [n for n in usable if self.items[n] in own]
        gold = (mine or usable)[:1]
        return (tuple(gold), {*same, *copies} - set(gold), sample.references) if gold else None

    def its_paragraph(self, sample: BenchmarkSample, own: list[str]) -> _Evidence | None:
        named = re.search(r"\d+", sample.references[0])
        number = int(named[0]) if named else 0
        if not 1 <= number <= len(own) or own[number - 1] not in self.numbers:
            return None
        gold = own[number - 1]
        return (self.numbers[gold],), set(), (self.label[gold],)

    def its_snippets(self, sample: BenchmarkSample, own: list[str]) -> _Evidence:
        next_line = sample.references[0].strip()
        mine = set(own)
        same = {n for n, item in enumerate(self.items) if item in mine or (next_line and next_line in item)}
        return (len(self.items) + self.block_of[sample.id],), same, sample.references

    def its_articles(self, sample: BenchmarkSample, own: list[str]) -> _Evidence | None:
        block = self.block_of[sample.id]
        same = {n for n, item in enumerate(self.items) if _is_about(sample.question, item)}
        return ((len(self.items) + block,), same, sample.references) if self.blocks[block] else None

    def nothing(self, sample: BenchmarkSample, own: list[str]) -> _Evidence:
        return (), self._copies(sample), sample.references

    def _copies(self, sample: BenchmarkSample) -> set[int]:
        """Demonstrations of another sample that solve this one."""
        opening = sample.question.strip()
        return {n for n, item in enumerate(self.items) if opening and item.startswith(opening)}


_Evidence = tuple[tuple[int, ...], set[int], tuple[str, ...]]
"""What a sample needs, other items that would give its answer, and the accepted answers."""
_EVIDENCE: dict[str, Callable[[_Pile, BenchmarkSample, list[str]], _Evidence | None]] = {
    "trec": _Pile.one_of_its_class,
    "lsht": _Pile.one_of_its_class,
    "triviaqa": _Pile.nothing,
    "samsum": _Pile.nothing,
    "passage_retrieval_en": _Pile.its_paragraph,
    "passage_retrieval_zh": _Pile.its_paragraph,
    "repobench-p": _Pile.its_snippets,
    "dureader": _Pile.its_articles,
}
