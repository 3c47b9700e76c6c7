"""LongBench, LongBench-E, LongBench v2 and InfiniteBench on their own data, as published.

The texts are real, so a sample has the length it has: the length of a cell is the limit for prompt and answer. `fit`
decides about samples that are longer. Prompts have the published structure in our own words; --templates takes the
official wording. docs/longbench.md says what is the same as published and what is not.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from leadline.core.contracts import Origin
from leadline.core.errors import UnknownName
from leadline.core.seeds import bulk_rng
from leadline.core.spec import Suite
from leadline.core.types import Cell, Draft, Question, document_name
from leadline.store.benchmark_files import (
    INFINITEBENCH,
    LETTERS,
    LONGBENCH,
    BenchmarkFile,
    BenchmarkSample,
    open_infinitebench,
    open_longbench,
    open_longbench_v2,
)
from leadline.tasks.wording import PromptPart, WordedTask
from leadline.text.downloads import find_data

LongBenchName = Literal[
    "narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "dureader",
    "gov_report", "qmsum", "multi_news", "vcsum", "trec", "triviaqa", "samsum", "lsht", "passage_count",
    "passage_retrieval_en", "passage_retrieval_zh", "lcc", "repobench-p",
]  # fmt: skip
InfiniteBenchName = Literal[
    "passkey", "number_string", "kv_retrieval", "longbook_sum_eng", "longbook_qa_eng", "longbook_choice_eng",
    "longdialogue_qa_eng", "longbook_qa_chn", "code_debug", "code_run", "math_calc", "math_find",
]  # fmt: skip
E_BINS = ((4000, "0-4k"), (8000, "4-8k"), (None, "8k+"))
"""LongBench-E's length bins, by the length in words that its files state."""


class PublishedTask(WordedTask):
    """Samples of a published benchmark, each with its own text. The benchmarks differ in prompts, files and labels."""

    category: ClassVar[str] = "published"

    data: str = Field("", description="folder, archive or file with the data; default: what `sources pull` downloaded")
    fit: Literal["middle", "refuse", "drop"] = Field(
        "middle", description="a longer prompt: cut its middle as published, count it as failed, or leave it out"
    )
    answer_tokens: int = Field(0, ge=0, description="tokens for the answer; 0 takes the published number")

    @property
    def has_depth(self) -> bool:
        return False

    def opened(self) -> BenchmarkFile:
        raise NotImplementedError

    def scores(self) -> tuple[str, ...]:
        raise NotImplementedError

    def new_tokens(self) -> int:
        raise NotImplementedError

    def templated(self) -> bool:
        return True

    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        """The text before the context, and the text after it."""
        raise NotImplementedError

    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        """Labels for the record: what scorers need, and what results are broken down by."""
        raise NotImplementedError

    def sources(self) -> Sequence[Origin]:
        return (self.opened(),)

    def most_samples(self) -> int:
        return len(self.opened().samples)

    def draft(self, cells: Sequence[Cell], *, seed: int) -> Draft:
        (cell,) = cells
        file = self.opened()
        # A fixed random order: some of the samples are then a fair sample of all, and more of them continue the same.
        number = int(bulk_rng("published", file.name).permutation(len(file.samples))[cell.sample])
        sample = file.samples[number]
        instruction, question = self.ask(sample)
        return Draft(
            id=document_name(cells),
            cluster=document_name(cells),
            head=instruction + sample.context,
            filler=None,
            facts=(),
            questions=(
                Question(
                    cell=cell,
                    text=question,
                    answer_prefix="",
                    targets=sample.references,
                    allowance=self.answer_tokens or self.new_tokens(),
                    scorers=self.scores(),
                    labels={"sample_id": sample.id, **self.label(sample)},
                    match="any",
                ),
            ),
            overlong=self.fit,
            templated=self.templated(),
        )

    def place(self, download: str) -> Path:
        return find_data(self.data or download, folders=True)


# --- LongBench ------------------------------------------------------------------------------------


def _parts(instruction: str, question: str) -> dict[str, PromptPart]:
    needs = ("input",) if "{input}" in question else ()
    return {
        "instruction": PromptPart((instruction,), opens=True),
        "question": PromptPart((question,), needs=needs, asks=True),
    }


_BRIEF = "in as few words as possible, without explanation"
_PASSAGES = _parts(
    f"Below are several passages. Answer a question from them {_BRIEF}.\n\n",
    f"\n\nAnswer the question from the passages above {_BRIEF}.\n\nQuestion: {{input}}\nAnswer:",
)
_EXAMPLES = {"question": PromptPart(("\n{input}",), needs=("input",), asks=True)}
_SUMMARY = "\n\nWrite a one-page summary of the {text} above.\n\nSummary:"
LONGBENCH_PARTS: dict[str, dict[str, PromptPart]] = {
    "narrativeqa": _parts(
        f"Below is a story, a book or a film script. Answer a question about it {_BRIEF}.\n\nStory:\n",
        f"\n\nAnswer the question about the story above {_BRIEF}.\n\nQuestion: {{input}}\nAnswer:",
    ),
    "qasper": _parts(
        f"Below is a scientific article. Answer a question about it {_BRIEF}; if the article does not answer it, write "
        '"unanswerable"; answer a yes/no question with "yes", "no" or "unanswerable".\n\nArticle:\n',
        f"\n\nAnswer the question about the article above {_BRIEF}; if the article does not answer it, write "
        '"unanswerable"; answer a yes/no question with "yes", "no" or "unanswerable".\n\nQuestion: {input}\nAnswer:',
    ),
    "multifieldqa_en": _parts(
        "Read the text below and answer a question about it briefly.\n\n",
        f"\n\nAnswer the question about the text above {_BRIEF}.\n\nQuestion: {{input}}\nAnswer:",
    ),
    "multifieldqa_zh": _parts(
        "请先通读下面的文章，再用简短的话回答一个问题。\n\n",
        "\n\n请根据上面的文章回答问题，只写答案，不要解释。\n\n问题：{input}\n回答：",
    ),
    "hotpotqa": _PASSAGES,
    "2wikimqa": _PASSAGES,
    "musique": _PASSAGES,
    "dureader": _parts(
        "请先通读下面的几篇文章，再回答一个问题。\n\n文章：\n",
        "\n\n请根据上面的文章回答问题。\n\n问题：{input}\n回答：",
    ),
    "gov_report": _parts(
        "Below is a report of a government agency. Write a one-page summary of it.\n\nReport:\n",
        _SUMMARY.format(text="report"),
    ),
    "qmsum": _parts(
        "Below is the transcript of a meeting. Answer a question about it in one or more sentences.\n\nTranscript:\n",
        "\n\nAnswer the question about the meeting above in one or more sentences.\n\nQuestion: {input}\nAnswer:",
    ),
    "multi_news": _parts(
        "Below are several news articles. Write a one-page summary of all of them.\n\nNews:\n",
        _SUMMARY.format(text="news"),
    ),
    "vcsum": _parts(
        "下面是一次会议的记录，请写一段话概括其内容。\n\n会议记录：\n", "\n\n请概括上面的会议内容。\n\n会议总结："
    ),
    "trec": {
        "instruction": PromptPart(("Name the type of the question. Solved examples come first.\n\n",), opens=True),
        **_EXAMPLES,
    },
    "triviaqa": {
        "instruction": PromptPart(
            ("Answer the question from its passage, with the answer alone. Solved examples come first.\n\n",),
            opens=True,
        ),
        **_EXAMPLES,
    },
    "samsum": {
        "instruction": PromptPart(
            ("Summarise the dialogue in a few short sentences. Solved examples come first.\n\n",), opens=True
        ),
        **_EXAMPLES,
    },
    "lsht": {"instruction": PromptPart(("请判断新闻属于哪一类，先看几个例子。\n\n",), opens=True), **_EXAMPLES},
    "passage_count": _parts(
        "Below are paragraphs, some of which may be repeated. Find out how many different paragraphs there are.\n\n",
        "\n\nHow many paragraphs are left when every repetition is removed? Answer with the number alone, such as 1, 2 "
        "or 3.\n\nThe number is:",
    ),
    "passage_retrieval_en": _parts(
        "Below are 30 numbered paragraphs, and after them a summary of one of them. Find out which.\n\n",
        "\n\nThe summary is:\n\n{input}\n\nWhich paragraph is it a summary of? Answer in the form "
        '"Paragraph 1", "Paragraph 2" and so on.\n\nThe answer is:',
    ),
    "passage_retrieval_zh": _parts(
        "下面有若干编号的段落，最后给出其中一段的摘要，请找出是哪一段。\n\n",
        "\n\n摘要如下：\n\n{input}\n\n这是哪一段的摘要？请按“段落1”“段落2”的格式回答。\n\n答案是：",
    ),
    "lcc": _parts("Complete the code below with its next line.\n", "\nThe next line of code is:\n"),
    "repobench-p": _parts("Complete the code below with its next line.\n", "\n{input}\nThe next line of code is:\n"),
}
UNTEMPLATED = frozenset(("trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"))
"""Few-shot and code data sets, which are published without chat template."""


class LongBench(PublishedTask):
    """A data set of LongBench (arXiv 2308.14508): real texts in English, Chinese and code, with its own metric."""

    version: ClassVar[str] = "1"

    dataset: LongBenchName = Field("multifieldqa_en", description="data set; several make a sweep")
    edition: Literal["v1", "e"] = Field("v1", description="v1, or e for LongBench-E with its even length bins")

    def parts(self) -> Mapping[str, PromptPart]:
        return LONGBENCH_PARTS[self.dataset]

    def opened(self) -> BenchmarkFile:
        if self.edition == "e" and not LONGBENCH[self.dataset].in_e:
            raise UnknownName("data set of LongBench-E", self.dataset, [n for n, d in LONGBENCH.items() if d.in_e])
        return open_longbench(self.place("longbench"), self.dataset + ("_e" if self.edition == "e" else ""))

    def scores(self) -> tuple[str, ...]:
        metric = LONGBENCH[self.dataset].metric
        beside = {
            "code_similarity": ("longbench.levenshtein",),
            "rouge": ("rouge.google",),
            **dict.fromkeys(("count", "retrieval", "retrieval_zh", "classification"), ("longbench.strict",)),
        }
        return ("longbench", *beside.get(metric, ()))

    def new_tokens(self) -> int:
        return LONGBENCH[self.dataset].new_tokens

    def templated(self) -> bool:
        return self.dataset not in UNTEMPLATED

    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        return self.fill("instruction"), self.fill("question", input=sample.question)

    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        words = int(float(sample.groups["length"] or 0))
        found = {
            "dataset": self.dataset,
            "words": str(words),
            "bin": next(name for end, name in E_BINS if end is None or words < end),
        }
        return found | ({"classes": json.dumps(sample.classes, ensure_ascii=False)} if sample.classes else {})


# --- LongBench v2 ---------------------------------------------------------------------------------

V2_PARTS = {
    "instruction": PromptPart(("Read the text below; a question with four choices follows.\n\n<text>\n",), opens=True),
    "question": PromptPart(
        (
            "\n</text>\n\nQuestion: {question}\n(A) {a}\n(B) {b}\n(C) {c}\n(D) {d}\n\nOne choice is right. Answer with "
            'this sentence and no other: "The correct answer is (X)", with A, B, C or D for X.',
        ),
        needs=("question", "a", "b", "c", "d"),
        asks=True,
    ),
}


class LongBenchV2(PublishedTask):
    """LongBench v2 (arXiv 2412.15204): 503 questions with four choices about texts of 8k to 2M words."""

    version: ClassVar[str] = "1"

    def parts(self) -> Mapping[str, PromptPart]:
        return V2_PARTS

    def opened(self) -> BenchmarkFile:
        return open_longbench_v2(self.place("longbench-v2"))

    def scores(self) -> tuple[str, ...]:
        return ("longbench_v2", "longbench_v2.compensated")

    def new_tokens(self) -> int:
        return 128

    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        choices = dict(zip("abcd", sample.options, strict=True))
        return self.fill("instruction"), self.fill("question", question=sample.question, **choices)

    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        return {"dataset": "longbench-v2", **sample.groups, "bin": sample.groups["length"]}


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


class InfiniteBench(PublishedTask):
    """A data set of InfiniteBench (arXiv 2402.13718): twelve tasks of 100k tokens and more, with its own rules."""

    version: ClassVar[str] = "1"

    dataset: InfiniteBenchName = Field("longbook_qa_eng", description="data set; several make a sweep")
    family: Literal["gpt4", "kimi", "claude2"] = Field(
        "gpt4",
        description="order of the prompt as published for a model: gpt4 puts the question last, kimi first, claude2 "
        "(also used for YaRN-Mistral, Yi and ChatGLM3) last and opens the answer",
    )

    def parts(self) -> Mapping[str, PromptPart]:
        about, task, opening = INFINITEBENCH_TEXTS[self.dataset]
        needs = tuple(name for name in ("input", "options") if f"{{{name}}}" in task)
        if self.family == "kimi":
            return {
                "instruction": PromptPart((f"{about}{task}\n\n",), needs=needs, may=("input", "options"), opens=True),
                "question": PromptPart(("\n\nNow give the answer.",), may=("input", "options"), asks=True),
            }
        ending = f"\n{opening}" if opening and self.family == "claude2" else ""
        return {
            "instruction": PromptPart((about,), may=("input", "options"), opens=True),
            "question": PromptPart((f"\n\n{task}{ending}",), needs=needs, may=("input", "options"), asks=True),
        }

    def opened(self) -> BenchmarkFile:
        return open_infinitebench(self.place("infinitebench"), self.dataset)

    def scores(self) -> tuple[str, ...]:
        return ("infinitebench",)

    def new_tokens(self) -> int:
        return INFINITEBENCH[self.dataset].new_tokens

    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        options = "\n".join(f"{letter}. {text}" for letter, text in zip(LETTERS, sample.options, strict=False))
        given = {"input": sample.question.strip(), "options": options}
        return self.fill("instruction", **given), self.fill("question", **given)

    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        reference = sample.label
        if self.dataset in ("longbook_choice_eng", "code_debug") and sample.options:
            text = reference[0] if isinstance(reference, list) else reference
            if text in sample.options:  # the rule takes the option's text and its letter
                reference = [text, LETTERS[sample.options.index(text)]]
        return {"dataset": self.dataset, "reference": json.dumps(reference, ensure_ascii=False)}


# --- suites ---------------------------------------------------------------------------------------


def _suite(name: str, summary: str, task: str, datasets: Sequence[str], length: str, **options: Any) -> Suite:
    tasks = [{"name": task, "label": one, "options": {"dataset": one, **options}} for one in datasets]
    return Suite(
        name=name, summary=summary, values={"tasks": tasks, "lengths": length, "samples": 1000, "reading": "fresh"}
    )


LONGBENCH_SUITE = _suite(
    "longbench",
    "LongBench: 21 data sets, 4,750 samples, prompts of at most 32k",
    "longbench_dataset",
    list(LONGBENCH),
    "32k",
)
LONGBENCH_E_SUITE = _suite(
    "longbench-e",
    "LongBench-E: 13 data sets in even length bins",
    "longbench_dataset",
    [name for name, one in LONGBENCH.items() if one.in_e],
    "32k",
    edition="e",
)
LONGBENCH_V2_SUITE = Suite(
    name="longbench-v2",
    summary="LongBench v2: 503 questions with four choices, prompts of at most 120k",
    values={"tasks": [{"name": "longbench_v2"}], "lengths": "120000", "samples": 503, "reading": "fresh"},
)
INFINITEBENCH_SUITE = _suite(
    "infinitebench",
    "InfiniteBench: 12 data sets, prompts of at most 128k",
    "infinitebench_dataset",
    list(INFINITEBENCH),
    "128k",
)
