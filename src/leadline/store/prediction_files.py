"""Prediction files of published benchmarks, read into one form: LongBench (v1, E, v2), InfiniteBench, BABILong.

A line that ends in junk after its JSON object is read and noted with line and column, since such files exist among the
published ones; any other damage is an error that names the line, and nothing of the file is scored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from leadline.core.errors import SourceError
from leadline.core.files import read_text, table_rows

Benchmark = Literal["longbench", "longbench-e", "longbench-v2", "infinitebench", "babilong"]
BENCHMARKS: tuple[Benchmark, ...] = ("longbench", "longbench-e", "longbench-v2", "infinitebench", "babilong")


@dataclass(frozen=True, slots=True)
class PublishedAnswer:
    """One answer with what it is graded against."""

    task: str
    prediction: str
    reference: Any
    """As the benchmark has it: a list of texts, a number, a letter, ..."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """What results are broken down by: length, difficulty, domain."""
    classes: tuple[str, ...] = ()
    question: str = ""


@dataclass(slots=True)
class PredictionFiles:
    answers: list[PublishedAnswer]
    notes: list[str]
    """What was odd and read all the same."""


def read_prediction_files(benchmark: Benchmark, paths: Sequence[Path]) -> PredictionFiles:
    read, suffix = _READERS[benchmark]
    found = PredictionFiles([], [])
    for path in paths:
        files = sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path]
        if not files:
            raise SourceError(
                f"no {suffix} files in this folder", where=str(path), fix=f"give {benchmark}'s predictions"
            )
        for file in files:
            found.answers.extend(read(file, found.notes))
    if not found.answers:
        raise SourceError("the files hold no predictions", where=", ".join(map(str, paths)))
    return found


def _longbench(path: Path, notes: list[str]) -> Iterator[PublishedAnswer]:
    task = path.stem.removesuffix("_e")
    for row in _rows(path, notes):
        yield PublishedAnswer(
            task,
            row.text("pred"),
            row.texts("answers"),
            {"length": str(row.value.get("length", ""))},
            tuple(row.texts("all_classes")) if row.value.get("all_classes") else (),
        )


def _longbench_v2(path: Path, notes: list[str]) -> Iterator[PublishedAnswer]:
    for row in _rows(path, notes):
        groups = {name: row.text(name) for name in ("difficulty", "length", "domain")}
        letter = row.value.get("pred")
        said = row.value.get("response")
        # Files that keep the response are parsed by the official rule; others have the letter alone.
        prediction = said if isinstance(said, str) else f"The correct answer is ({letter})" if letter else ""
        yield PublishedAnswer("longbench-v2", prediction, row.text("answer"), groups)


def _infinitebench(path: Path, notes: list[str]) -> Iterator[PublishedAnswer]:
    task = re.sub(r"^preds_", "", path.stem)
    for row in _rows(path, notes):
        label = row.value.get("ground_truth", row.value.get("label"))
        if label is None:
            raise row.error("it has neither ground_truth nor label")
        yield PublishedAnswer(task, row.text("prediction" if "prediction" in row.value else "pred"), label)


_BABILONG_NAME = re.compile(r"^(qa\d+)_(\d+[kM])")


def _babilong(path: Path, notes: list[str]) -> Iterator[PublishedAnswer]:
    name = _BABILONG_NAME.match(path.name)
    if name is None:
        raise SourceError("the file's name has no task and length", where=str(path), fix="name it qa1_4k_....csv")
    rows = list(table_rows(read_text(path), str(path)))
    header = rows[0][1] if rows else []
    for number, cells in rows[1:]:
        row = dict(zip(header, cells, strict=False))
        if not {"target", "output", "question"} <= row.keys():
            raise SourceError(
                "a row lacks target, output or question",
                where=f"{path}:{number}",
                fix="give the .csv files of BABILong's evaluation",
            )
        yield PublishedAnswer(name[1], row["output"], row["target"], {"length": name[2]}, question=row["question"])


@dataclass(frozen=True, slots=True)
class _Row:
    value: Mapping[str, Any]
    where: str

    def error(self, what: str) -> SourceError:
        return SourceError(f"not a prediction of this benchmark: {what}", where=self.where, fix="see docs/published.md")

    def text(self, name: str) -> str:
        value = self.value.get(name)
        if not isinstance(value, str):
            raise self.error(f"{name} is missing" if value is None else f"{name} is no text")
        return value

    def texts(self, name: str) -> list[str]:
        value = self.value.get(name)
        if not isinstance(value, list) or not value:
            raise self.error(f"{name} is not a list of texts")
        return [str(item) for item in value]


_LINE_FIX = "every line is one JSON object; see docs/published.md"


def _rows(path: Path, notes: list[str]) -> Iterator[_Row]:
    text = read_text(path, fix="give UTF-8 .jsonl files")
    decoder = json.JSONDecoder()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        start = len(line) - len(line.lstrip())
        try:
            value, end = decoder.raw_decode(line, start)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"not JSON: {error}", where=f"{path}:{number}", fix=_LINE_FIX) from None
        if line[end:].strip():
            notes.append(f"{path}:{number}:{end + 1}: ignored {line[end:].strip()[:40]!r} after the JSON object")
        if not isinstance(value, dict):
            raise SourceError("not a JSON object", where=f"{path}:{number}", fix=_LINE_FIX)
        yield _Row(value, f"{path}:{number}")


_READERS: dict[Benchmark, tuple[Callable[[Path, list[str]], Iterator[PublishedAnswer]], str]] = {
    "longbench": (_longbench, ".jsonl"),
    "longbench-e": (_longbench, ".jsonl"),
    "longbench-v2": (_longbench_v2, ".jsonl"),
    "infinitebench": (_infinitebench, ".jsonl"),
    "babilong": (_babilong, ".csv"),
}
