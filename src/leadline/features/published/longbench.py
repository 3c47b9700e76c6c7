"""LongBench, LongBench-E and MiniLongBench on their own data: the prompt of each data set, and the suites.

`edition=mini` asks the samples that MiniLongBench (arXiv 2505.19959) chose. minilongbench.json names them by a digest
of what every version of the data states about a sample: its length and its references.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from leadline.core.errors import SourceError, UnknownName
from leadline.core.seeds import digest_text
from leadline.features.published.benchmark_files import (
    E_BINS,
    LONGBENCH,
    BenchmarkFile,
    BenchmarkSample,
    open_longbench,
)
from leadline.features.published.dataset_tasks import PublishedTask, published_suite
from leadline.tasks.wording import Parts, PromptPart, question_parts, without_needs

LongBenchName = Literal[
    "narrativeqa", "qasper", "multifieldqa_en", "multifieldqa_zh", "hotpotqa", "2wikimqa", "musique", "dureader",
    "gov_report", "qmsum", "multi_news", "vcsum", "trec", "triviaqa", "samsum", "lsht", "passage_count",
    "passage_retrieval_en", "passage_retrieval_zh", "lcc", "repobench-p",
]  # fmt: skip


_BRIEF = "in as few words as possible, without explanation"
_PASSAGES = question_parts(
    f"Below are several passages. Answer a question from them {_BRIEF}.\n\n",
    f"\n\nAnswer the question from the passages above {_BRIEF}.\n\nQuestion: {{input}}\nAnswer:",
)
_AFTER_EXAMPLES = "\n{input}"
_SUMMARY = "\n\nWrite a one-page summary of the {text} above.\n\nSummary:"
LONGBENCH_PARTS: dict[str, Parts] = {
    "narrativeqa": question_parts(
        f"Below is a story, a book or a film script. Answer a question about it {_BRIEF}.\n\nStory:\n",
        f"\n\nAnswer the question about the story above {_BRIEF}.\n\nQuestion: {{input}}\nAnswer:",
    ),
    "qasper": question_parts(
        f"Below is a scientific article. Answer a question about it {_BRIEF}; if the article does not answer it, write "
        '"unanswerable"; answer a yes/no question with "yes", "no" or "unanswerable".\n\nArticle:\n',
        f"\n\nAnswer the question about the article above {_BRIEF}; if the article does not answer it, write "
        '"unanswerable"; answer a yes/no question with "yes", "no" or "unanswerable".\n\nQuestion: {input}\nAnswer:',
    ),
    "multifieldqa_en": question_parts(
        "Read the text below and answer a question about it briefly.\n\n",
        f"\n\nAnswer the question about the text above {_BRIEF}.\n\nQuestion: {{input}}\nAnswer:",
    ),
    "multifieldqa_zh": question_parts(
        "请先通读下面的文章，再用简短的话回答一个问题。\n\n",
        "\n\n请根据上面的文章回答问题，只写答案，不要解释。\n\n问题：{input}\n回答：",
    ),
    "hotpotqa": _PASSAGES,
    "2wikimqa": _PASSAGES,
    "musique": _PASSAGES,
    "dureader": question_parts(
        "请先通读下面的几篇文章，再回答一个问题。\n\n文章：\n",
        "\n\n请根据上面的文章回答问题。\n\n问题：{input}\n回答：",
    ),
    "gov_report": question_parts(
        "Below is a report of a government agency. Write a one-page summary of it.\n\nReport:\n",
        _SUMMARY.format(text="report"),
    ),
    "qmsum": question_parts(
        "Below is the transcript of a meeting. Answer a question about it in one or more sentences.\n\nTranscript:\n",
        "\n\nAnswer the question about the meeting above in one or more sentences.\n\nQuestion: {input}\nAnswer:",
    ),
    "multi_news": question_parts(
        "Below are several news articles. Write a one-page summary of all of them.\n\nNews:\n",
        _SUMMARY.format(text="news"),
    ),
    "vcsum": question_parts(
        "下面是一次会议的记录，请写一段话概括其内容。\n\n会议记录：\n", "\n\n请概括上面的会议内容。\n\n会议总结："
    ),
    "trec": question_parts("Name the type of the question. Solved examples come first.\n\n", _AFTER_EXAMPLES),
    "triviaqa": question_parts(
        "Answer the question from its passage, with the answer alone. Solved examples come first.\n\n", _AFTER_EXAMPLES
    ),
    "samsum": question_parts(
        "Summarise the dialogue in a few short sentences. Solved examples come first.\n\n", _AFTER_EXAMPLES
    ),
    "lsht": question_parts("请判断新闻属于哪一类，先看几个例子。\n\n", _AFTER_EXAMPLES),
    "passage_count": question_parts(
        "Below are paragraphs, some of which may be repeated. Find out how many different paragraphs there are.\n\n",
        "\n\nHow many paragraphs are left when every repetition is removed? Answer with the number alone, such as 1, 2 "
        "or 3.\n\nThe number is:",
    ),
    "passage_retrieval_en": question_parts(
        "Below are 30 numbered paragraphs, and after them a summary of one of them. Find out which.\n\n",
        "\n\nThe summary is:\n\n{input}\n\nWhich paragraph is it a summary of? Answer in the form "
        '"Paragraph 1", "Paragraph 2" and so on.\n\nThe answer is:',
    ),
    "passage_retrieval_zh": question_parts(
        "下面有若干编号的段落，最后给出其中一段的摘要，请找出是哪一段。\n\n",
        "\n\n摘要如下：\n\n{input}\n\n这是哪一段的摘要？请按“段落1”“段落2”的格式回答。\n\n答案是：",
    ),
    "lcc": question_parts("Complete the code below with its next line.\n", "\nThe next line of code is:\n"),
    "repobench-p": question_parts(
        "Complete the code below with its next line.\n", "\n{input}\nThe next line of code is:\n"
    ),
}
UNTEMPLATED = frozenset(("trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"))
"""Few-shot and code data sets, which are published without chat template."""


def scorers_of(dataset: str) -> tuple[str, ...]:
    """The official scorer of a data set, and what says more beside it."""
    beside = {
        "code_similarity": ("longbench.levenshtein",),
        "rouge": ("rouge.google",),
        **dict.fromkeys(("count", "retrieval", "retrieval_zh", "classification"), ("longbench.strict",)),
    }
    return ("longbench", *beside.get(LONGBENCH[dataset].metric, ()))


class LongBench(PublishedTask):
    """A data set of LongBench (arXiv 2308.14508): real texts in English, Chinese and code, with its own metric."""

    version: ClassVar[str] = "1"

    dataset: LongBenchName = Field("multifieldqa_en", description="data set; several make a sweep")
    edition: Literal["v1", "e", "mini"] = Field(
        "v1", description="v1, e for LongBench-E with its even length bins, or mini for the samples of MiniLongBench"
    )

    def parts(self) -> Mapping[str, PromptPart]:
        parts = without_needs(LONGBENCH_PARTS[self.dataset])
        return parts | {"question": replace(parts["question"], may=("input",))}

    def opened(self) -> BenchmarkFile:
        if self.edition == "e" and not LONGBENCH[self.dataset].in_e:
            raise UnknownName("data set of LongBench-E", self.dataset, [n for n, d in LONGBENCH.items() if d.in_e])
        path = self.data_path("longbench")
        if self.edition == "mini":
            return _open_mini(path, self.dataset)
        return open_longbench(path, self.dataset + ("_e" if self.edition == "e" else ""))

    def scores(self) -> tuple[str, ...]:
        return scorers_of(self.dataset)

    def new_tokens(self) -> int:
        return LONGBENCH[self.dataset].new_tokens

    def templated(self) -> bool:
        return self.dataset not in UNTEMPLATED

    def ask(self, sample: BenchmarkSample) -> tuple[str, str]:
        return self.fill("instruction"), self.fill("question", input=sample.question)

    def label(self, sample: BenchmarkSample) -> dict[str, str]:
        words = int(float(sample.groups["length"] or 0))
        return {"words": str(words), "bin": next(name for end, name in E_BINS if end is None or words < end)}

    def grading_dataset(self) -> str:
        return self.dataset


@cache
def _open_mini(path: Path, dataset: str) -> BenchmarkFile:
    file = open_longbench(path, dataset)
    chosen = set(mini_samples()[dataset])
    samples = tuple(sample for sample in file.samples if sample_digest(sample) in chosen)
    if len(samples) != len(chosen):
        raise SourceError(
            f"{len(samples)} of the {len(chosen)} samples of MiniLongBench are in this file",
            where=f"{path}, {file.name}",
            fix="give LongBench's own file in whole; docs/longbench.md names the revision that is read",
        )
    return BenchmarkFile(f"{file.name}, MiniLongBench", file.raw, samples)


@cache
def mini_samples() -> dict[str, list[str]]:
    """The samples of MiniLongBench by data set, in the order of LongBench's files."""
    content = json.loads((Path(__file__).parent / "minilongbench.json").read_text())
    return dict(content["samples"])


def sample_digest(sample: BenchmarkSample) -> str:
    return digest_text("\n".join((sample.groups["length"], *sample.references)), 12)


# --- suites ---------------------------------------------------------------------------------------

LONGBENCH_SUITE = published_suite(
    "longbench",
    "LongBench: 21 data sets, 4,750 samples, prompts of at most 32k",
    "longbench_dataset",
    list(LONGBENCH),
    "32k",
)
LONGBENCH_E_SUITE = published_suite(
    "longbench-e",
    "LongBench-E: 13 data sets in even length bins",
    "longbench_dataset",
    [name for name, dataset in LONGBENCH.items() if dataset.in_e],
    "32k",
    edition="e",
)
LONGBENCH_MINI_SUITE = published_suite(
    "longbench-mini",
    "MiniLongBench: 222 of its 237 samples of LongBench, for a ranking at 5 % of the cost",
    "longbench_dataset",
    list(mini_samples()),
    "32k",
    edition="mini",
)
