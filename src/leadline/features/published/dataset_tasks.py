"""Published benchmarks on their own data: what they have in common, LongBench v2 and InfiniteBench.

The texts are real, so a sample has the length it has: the length of a cell is the limit for prompt and answer. `fit`
decides about samples that are longer. Prompts have the published structure in our own words; --templates takes the
official wording. docs/longbench.md says what is the same as published and what is not.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from pydantic import Field

from leadline.core.contracts import Task, TextOrigin
from leadline.core.drafts import Draft, DraftQuestion
from leadline.core.seeds import bulk_rng
from leadline.core.spec import Suite
from leadline.core.types import Cell, Reference
from leadline.features.published.benchmark_files import (
    INFINITEBENCH,
    LETTERS,
    BenchmarkFile,
    BenchmarkSample,
    open_infinitebench,
    open_longbench_v2,
)
from leadline.tasks.wording import PromptPart, WordedTask, question_parts, verbatim_draft
from leadline.text.downloads import find_data

InfiniteBenchName = Literal[
    "passkey", "number_string", "kv_retrieval", "longbook_sum_eng", "longbook_qa_eng", "longbook_choice_eng",
    "longdialogue_qa_eng", "longbook_qa_chn", "code_debug", "code_run", "math_calc", "math_find",
]  # fmt: skip


S = TypeVar("S", covariant=True)


class SampleFile(TextOrigin, Protocol[S]):
    """The samples of some files, read and checked."""

    @property
    def samples(self) -> Sequence[S]: ...


def published_sample(file: SampleFile[S], cell: Cell) -> S:
    """The sample of a cell, in a fixed random order: the first few are a fair sample of all, and more continue them."""
    return file.samples[int(bulk_rng("published", file.name).permutation(len(file.samples))[cell.sample])]


class PublishedSamples(Task):
    """Samples of published files, each with its own text."""

    category: ClassVar[str] = "published"

    @property
    def has_depth(self) -> bool:
        return False

    @abstractmethod
    def opened(self) -> SampleFile[Any]:
        """The data, read and checked."""

    def sources(self) -> Sequence[TextOrigin]:
        return (self.opened(),)

    def max_samples(self) -> int:
        return len(self.opened().samples)


class PublishedTask(PublishedSamples, WordedTask):
    """A benchmark whose prompts are worded here. The benchmarks differ in prompts, files and labels."""

    data: str = Field("", description="folder, archive or file with the data; default: what `sources pull` downloaded")
    fit: Literal["middle", "refuse", "drop"] = Field(
        "middle", description="a longer prompt: cut its middle as published, count it as failed, or leave it out"
    )
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 takes the published number")

    @abstractmethod
    def opened(self) -> BenchmarkFile: ...

    @abstractmethod
    def scores(self) -> tuple[str, ...]:
        """The scorers, the official one first."""

    @abstractmethod
    def new_tokens(self) -> int:
        """The published number of tokens for an answer."""

    @abstractmethod
    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        """The text before the context, and the text after it."""

    @abstractmethod
    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        """Labels for the record: what results are broken down by."""

    @abstractmethod
    def grading_dataset(self) -> str:
        """The data set whose rule grades the answer."""

    def reference(self, sample: BenchmarkSample) -> Reference | None:
        """The gold answer as the file has it, where the rule needs more than the references as texts."""
        return None

    def templated(self) -> bool:
        return True

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        sample: BenchmarkSample = published_sample(self.opened(), cell)
        instruction, question = self.ask(sample)
        return verbatim_draft(
            instruction + sample.context,
            DraftQuestion(
                cell=cell,
                text=question,
                answer_prefix="",
                targets=sample.references,
                allowance=self.answer_tokens or self.new_tokens(),
                scorers=self.scores(),
                labels={"sample_id": sample.id, **self.label(sample)},
                match="any",
                dataset=self.grading_dataset(),
                choices=tuple(sample.classes),
                reference=self.reference(sample),
            ),
            text=sample.context,
            on_overflow=self.fit,
            templated=self.templated(),
        )

    def data_path(self, download: str) -> Path:
        return find_data(self.data or download, folders=True)


# --- LongBench v2 ---------------------------------------------------------------------------------

V2_PARTS = question_parts(
    "Read the text below; a question with four choices follows.\n\n<text>\n",
    "\n</text>\n\nQuestion: {question}\n(A) {a}\n(B) {b}\n(C) {c}\n(D) {d}\n\nOne choice is right. Answer with this "
    'sentence and no other: "The correct answer is (X)", with A, B, C or D for X.',
)


class LongBenchV2(PublishedTask):
    """LongBench v2 (arXiv 2412.15204): 503 questions with four choices about texts of 8k to 2M words."""

    version: ClassVar[str] = "1"

    def parts(self) -> Mapping[str, PromptPart]:
        return V2_PARTS

    def opened(self) -> BenchmarkFile:
        return open_longbench_v2(self.data_path("longbench-v2"))

    def scores(self) -> tuple[str, ...]:
        return ("longbench_v2", "longbench_v2.compensated")

    def new_tokens(self) -> int:
        return 128

    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        choices = dict(zip("abcd", sample.options, strict=True))
        question = self.fill("question", question=sample.question, **choices)
        return self.fill("instruction"), question.removeprefix("\n</text>") if self.no_context else question

    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        return {**sample.groups, "bin": sample.groups["length"]}

    def grading_dataset(self) -> str:
        return "longbench-v2"


# --- InfiniteBench --------------------------------------------------------------------------------

_BOOK = "Read the book below; a task about it follows.\n\n"
INFINITEBENCH_TEXTS: dict[str, tuple[str, str, str]] = {
    "passkey": (
        "A pass key is hidden in the text below, which says nothing else of use. Find it and keep it in mind.\n\n",
        "What is the pass key?",
        "The pass key is",
    ),
    "number_string": (
        "A sequence of digits is hidden in the text below, which says nothing else of use. Find it.\n\n",
        "What is the sequence of digits?",
        "The sequence of digits is",
    ),
    "kv_retrieval": (
        "Below is a JSON object with keys and values.\n\n",
        "Give the value that belongs to this key in the JSON object.\n{input}",
        "",
    ),
    "longbook_sum_eng": (_BOOK, "Summarise the book.", "Summary:"),
    "longbook_qa_eng": (_BOOK, "Answer the question in as few words as possible.\n\nQuestion: {input}", "Answer:"),
    "longbook_choice_eng": (
        _BOOK,
        "Answer the question with the letter of one choice.\n\nQuestion: {input}\n{options}",
        "The letter of the right answer is",
    ),
    "longdialogue_qa_eng": (
        'Below is a dialogue from which one name is blotted out; "$$MASK$$" stands in its place.\n\n',
        'Which character is "$$MASK$$"? Answer with the name alone.',
        "The name is",
    ),
    "longbook_qa_chn": ("请通读下面的书，然后回答问题。\n\n", "请用尽可能少的字回答问题。\n\n问题：{input}", "答案："),
    "code_debug": (
        "Below is the code of a repository. One of its functions has an obvious error put in on purpose.\n\n",
        "Which of these functions has the error? Answer with the letter of one choice.\n{options}",
        "The right choice is:",
    ),
    "code_run": (
        "Below is a long program of simple functions that call each other.\n\n",
        "{input} Work it out without running code and answer with the number alone.",
        "The return value is",
    ),
    "math_calc": (
        "Below is a long sum of numbers.\n\n",
        "Go through it from left to right and write down the result after each operation, separated by commas.",
        "The results are",
    ),
    "math_find": ("Below is a list of numbers.\n\n", "{input}", "The number is"),
}


Family = Literal["gpt4", "kimi", "claude2", "yarn-mistral"]
OPENED_ANSWERS: dict[Family, frozenset[str]] = {
    "gpt4": frozenset(),
    "kimi": frozenset({"passkey", "number_string", "math_calc"}),
    "claude2": frozenset({"passkey", "number_string", "longbook_qa_eng", "math_calc"}),
    "yarn-mistral": frozenset(name for name in INFINITEBENCH_TEXTS if name not in ("kv_retrieval", "math_find")),
}
"""The data sets whose prompts begin the answer, by family."""
AFTER_THE_TEXT_FOR_KIMI = frozenset({"passkey", "number_string", "kv_retrieval", "math_find", "math_calc"})
"""Kimi's other prompts have the text as a file that follows the question."""


class InfiniteBench(PublishedTask):
    """A data set of InfiniteBench (arXiv 2402.13718): twelve tasks of 100k tokens and more, with its own rules."""

    version: ClassVar[str] = "2"

    dataset: InfiniteBenchName = Field("longbook_qa_eng", description="data set; several make a sweep")
    family: Family = Field(
        "gpt4",
        description="order of the prompt as published for a model: gpt4 puts the question last; kimi first, but last "
        "in passkey, number_string, kv and math; claude2 last, and opens some answers; yarn-mistral (also used for Yi "
        "and ChatGLM3) last, and opens nearly all",
    )

    def parts(self) -> Mapping[str, PromptPart]:
        about, task, opening = INFINITEBENCH_TEXTS[self.dataset]
        first = self.family == "kimi" and self.dataset not in AFTER_THE_TEXT_FOR_KIMI
        if first and not self.no_context:  # without a text, the question is all there is
            return {
                "instruction": PromptPart((f"{about}{task}\n\n",), may=("input", "options"), opens=True),
                "question": PromptPart(("\n\nNow give the answer.",), may=("input", "options"), asks=True),
            }
        ending = f"\n{opening}" if self.dataset in OPENED_ANSWERS[self.family] else ""
        return {
            "instruction": PromptPart((about,), may=("input", "options"), opens=True),
            "question": PromptPart((f"\n\n{task}{ending}",), may=("input", "options"), asks=True),
        }

    def opened(self) -> BenchmarkFile:
        return open_infinitebench(self.data_path("infinitebench"), self.dataset)

    def scores(self) -> tuple[str, ...]:
        return ("infinitebench",)

    def new_tokens(self) -> int:
        return INFINITEBENCH[self.dataset].new_tokens

    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        options = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, sample.options, strict=False))
        values = {"input": sample.question.strip(), "options": options}
        return self.fill("instruction", **values), self.fill("question", **values)

    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        return {}

    def grading_dataset(self) -> str:
        return self.dataset

    def reference(self, sample: BenchmarkSample) -> Reference:
        reference: Reference = sample.label
        if self.dataset in ("longbook_choice_eng", "code_debug") and sample.options:
            text = reference[0] if isinstance(reference, list) else reference
            if text in sample.options:  # the rule takes the option's text and its letter
                reference = [text, LETTERS[sample.options.index(text)]]
        return reference


# --- suites ---------------------------------------------------------------------------------------


def published_suite(name: str, summary: str, task: str, datasets: Sequence[str], length: str, **options: Any) -> Suite:
    """A suite of all data sets of a benchmark, with every sample they have."""
    tasks = [{"name": task, "label": dataset, "options": {"dataset": dataset, **options}} for dataset in datasets]
    return Suite(
        name=name, summary=summary, values={"tasks": tasks, "lengths": length, "samples": 1000, "reading": "fresh"}
    )


LONGBENCH_V2_SUITE = Suite(
    name="longbench-v2",
    summary="LongBench v2: 503 questions with four choices, prompts of at most 120k",
    values={"tasks": [{"name": "longbench_v2"}], "lengths": "120000", "samples": 503, "reading": "fresh"},
)
INFINITEBENCH_SUITE = published_suite(
    "infinitebench",
    "InfiniteBench: 12 data sets, prompts of at most 128k",
    "infinitebench_dataset",
    list(INFINITEBENCH),
    "128k",
)
