"""Data files of published benchmarks, read into one form: LongBench (v1 and E), LongBench v2 and InfiniteBench.

A data set is a `.jsonl` file in a folder or in a zip archive as published, or `data.json` for LongBench v2. Every row
is checked; a row of another version of the data is an error that names the line.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from leadline.core.errors import SourceError
from leadline.core.seeds import digest_bytes
from leadline.features.published.row_files import DataRow, RowKind, json_rows

LETTERS = "ABCD"
SAMPLE = RowKind(
    "a sample of this benchmark",
    "the file may be of another version; docs/longbench.md names the revisions that are read",
)
HUNDREDS = (100, 100, 100)


@dataclass(frozen=True, slots=True)
class Dataset:
    """One data set of a benchmark: how it is scored, and how many tokens an answer may have."""

    name: str
    category: str
    metric: str
    new_tokens: int
    samples: int
    first_line: bool = False
    """Whether only the first line of an answer counts."""
    e_samples: tuple[int, ...] = ()
    """The samples of each length bin of LongBench-E, if that has it too."""

    @property
    def in_e(self) -> bool:
        return bool(self.e_samples)


LONGBENCH = {
    dataset.name: dataset
    for dataset in (
        Dataset("narrativeqa", "single-document QA", "qa_f1", 128, 200),
        Dataset("qasper", "single-document QA", "qa_f1", 128, 200, e_samples=(100, 100, 24)),
        Dataset("multifieldqa_en", "single-document QA", "qa_f1", 64, 150, e_samples=(67, 70, 13)),
        Dataset("multifieldqa_zh", "single-document QA", "qa_f1_zh", 64, 200),
        Dataset("hotpotqa", "multi-document QA", "qa_f1", 32, 200, e_samples=HUNDREDS),
        Dataset("2wikimqa", "multi-document QA", "qa_f1", 32, 200, e_samples=HUNDREDS),
        Dataset("musique", "multi-document QA", "qa_f1", 32, 200),
        Dataset("dureader", "multi-document QA", "rouge_zh", 128, 200),
        Dataset("gov_report", "summarisation", "rouge", 512, 200, e_samples=HUNDREDS),
        Dataset("qmsum", "summarisation", "rouge", 512, 200),
        Dataset("multi_news", "summarisation", "rouge", 512, 200, e_samples=(100, 100, 94)),
        Dataset("vcsum", "summarisation", "rouge_zh", 512, 200),
        Dataset("trec", "few-shot", "classification", 64, 200, first_line=True, e_samples=HUNDREDS),
        Dataset("triviaqa", "few-shot", "qa_f1", 32, 200, first_line=True, e_samples=HUNDREDS),
        Dataset("samsum", "few-shot", "rouge", 128, 200, first_line=True, e_samples=HUNDREDS),
        Dataset("lsht", "few-shot", "classification", 64, 200, first_line=True),
        Dataset("passage_count", "synthetic", "count", 32, 200, e_samples=HUNDREDS),
        Dataset("passage_retrieval_en", "synthetic", "retrieval", 32, 200, e_samples=HUNDREDS),
        Dataset("passage_retrieval_zh", "synthetic", "retrieval_zh", 32, 200),
        Dataset("lcc", "code", "code_similarity", 64, 500, e_samples=HUNDREDS),
        Dataset("repobench-p", "code", "code_similarity", 64, 500, e_samples=HUNDREDS),
    )
}
"""arXiv 2308.14508, THUDM/LongBench @ 2e00731."""
E_BINS: tuple[tuple[int | None, str], ...] = ((4000, "0-4k"), (8000, "4-8k"), (None, "8k+"))
"""LongBench-E's length bins, by the length in words that its files state."""
V2_SAMPLES = {"overall": 503, "easy": 192, "hard": 311, "short": 180, "medium": 215, "long": 108}
"""arXiv 2412.15204: samples by difficulty and by length."""

INFINITEBENCH = {
    dataset.name: dataset
    for dataset in (
        Dataset("passkey", "Retrieve.PassKey", "first_integer", 6, 590),
        Dataset("number_string", "Retrieve.Number", "first_integer", 12, 590),
        Dataset("kv_retrieval", "Retrieve.KV", "word_among", 50, 500),
        Dataset("longbook_sum_eng", "En.Sum", "summary", 1200, 103),
        Dataset("longbook_qa_eng", "En.QA", "english_f1", 40, 351),
        Dataset("longbook_choice_eng", "En.MC", "chosen_option", 40, 229),
        Dataset("longdialogue_qa_eng", "En.Dia", "character_named", 40, 200),
        Dataset("longbook_qa_chn", "Zh.QA", "chinese_f1", 40, 175),
        Dataset("code_debug", "Code.Debug", "debugged_function", 5, 394),
        Dataset("code_run", "Code.Run", "last_integer", 5, 400),
        Dataset("math_calc", "Math.Calc", "leading_run", 30_000, 50),
        Dataset("math_find", "Math.Find", "first_number", 3, 350),
    )
}
"""arXiv 2402.13718, OpenBMB/InfiniteBench @ 88b3daa. The category is the name used in the paper's table."""


@dataclass(frozen=True, slots=True)
class BenchmarkSample:
    """One question about one text."""

    id: str
    context: str
    question: str
    """May be empty: summaries ask nothing."""
    label: Any
    """The reference as the benchmark's own rule takes it: texts, a number, a letter, a list."""
    options: tuple[str, ...] = ()
    """The four choices of a multiple-choice question."""
    classes: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)
    """What results are broken down by: length in words, difficulty, domain."""

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(map(str, _flat(self.label)))


@dataclass(frozen=True)
class BenchmarkFile:
    """The samples of one data set in the file's order. Also a TextOrigin."""

    name: str
    raw: bytes
    samples: tuple[BenchmarkSample, ...]

    @cached_property
    def digest(self) -> str:
        return digest_bytes(self.raw)


@cache
def open_longbench(path: Path, dataset: str) -> BenchmarkFile:
    """A data set of LongBench or LongBench-E (`qasper_e`), from a folder, its `data.zip`, or a single file."""
    return _opened(path, f"{dataset}.jsonl", _longbench_sample)


@cache
def open_longbench_v2(path: Path) -> BenchmarkFile:
    """LongBench v2: `data.json`, a list of 503 questions; also one question a line."""
    return _opened(path, "data.json", _longbench_v2_sample)


@cache
def open_infinitebench(path: Path, dataset: str) -> BenchmarkFile:
    return _opened(path, f"{dataset}.jsonl", _infinitebench_sample)


def _opened(path: Path, file: str, read: Callable[[DataRow], BenchmarkSample]) -> BenchmarkFile:
    raw, where = _read(path, file)
    samples = tuple(read(row) for row in json_rows(raw, where, SAMPLE))
    if not samples:
        raise SourceError("the file has no samples", where=where)
    return BenchmarkFile(file, raw, samples)


def _read(path: Path, file: str) -> tuple[bytes, str]:
    """The bytes of a data set, and where they are for error messages."""
    fix = f"give the folder or archive that holds {file}, or {file} itself; see `leadline sources pull`"
    try:
        if path.is_dir():
            files = sorted(path.rglob(file))
            if not files:
                raise SourceError(f"no {file} in this folder", where=str(path), fix=fix)
            return files[0].read_bytes(), str(files[0])
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                inside = [name for name in archive.namelist() if Path(name).name == file]
                if not inside:
                    raise SourceError(f"no {file} in this archive", where=str(path), fix=fix)
                return archive.read(inside[0]), f"{path}, {inside[0]}"
        refuse_pickle(path)
        return path.read_bytes(), str(path)
    except (OSError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise SourceError(f"cannot be read: {error}", where=str(path), fix=fix) from None


def refuse_pickle(path: Path) -> None:
    """Refuses a pickle, by its name or its first bytes."""
    start = b""
    if path.is_file():
        with path.open("rb") as file:
            start = file.read(2)
    if path.suffix in (".pickle", ".pkl") or (start[:1] == b"\x80" and start[1:] in (b"\2", b"\3", b"\4", b"\5")):
        raise SourceError(
            "a pickle can run any code, so it is not read", where=str(path), fix="give the benchmark's .jsonl or .json"
        )


def _longbench_sample(row: DataRow) -> BenchmarkSample:
    return BenchmarkSample(
        str(row.value.get("_id", row.number)),
        row.text("context"),
        row.text("input"),
        row.texts("answers"),
        classes=tuple(map(str, row.value.get("all_classes") or ())),
        groups={"length": str(row.value.get("length", "")), "language": str(row.value.get("language") or "")},
    )


def _longbench_v2_sample(row: DataRow) -> BenchmarkSample:
    answer = row.text("answer")
    if answer not in LETTERS or len(answer) != 1:
        raise row.error(f"answer is {answer!r}, not A, B, C or D")
    return BenchmarkSample(
        row.text("_id"),
        row.text("context"),
        row.text("question"),
        answer,
        options=tuple(row.text(f"choice_{letter}") for letter in LETTERS),
        groups={name: row.text(name) for name in ("difficulty", "length", "domain", "sub_domain")},
    )


def _infinitebench_sample(row: DataRow) -> BenchmarkSample:
    answer = row.value.get("answer")
    if answer is None or answer == []:
        raise row.error("answer is missing")
    options = row.value.get("options") or ()
    if not isinstance(options, Sequence) or isinstance(options, str):
        raise row.error("options is not a list")
    return BenchmarkSample(
        str(row.value.get("id", row.number)),
        row.text("context"),
        row.text("input"),
        answer,
        options=tuple(map(str, options)),
        groups={"prefix": str(row.value.get("prefix", ""))},
    )


def _flat(label: Any) -> list[Any]:
    return [inner for item in label for inner in _flat(item)] if isinstance(label, list) else [label]
