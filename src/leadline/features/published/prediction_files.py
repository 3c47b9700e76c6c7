"""Prediction files of published benchmarks, read into one form: LongBench (v1, E, v2), InfiniteBench, BABILong.

A line that ends in junk after its JSON object is read and noted with line and column, since such files exist among the
published ones; any other damage is an error that names the line, and nothing is scored. So are two predictions for one
sample, more predictions than a task has samples, and, where the data are given, one for a sample that is not in them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from leadline.core.errors import SourceError, UsageError
from leadline.core.files import read_text, table_rows
from leadline.features.published.benchmark_files import (
    INFINITEBENCH,
    LONGBENCH,
    V2_SAMPLES,
    open_infinitebench,
    open_longbench,
    open_longbench_v2,
    refuse_pickle,
)
from leadline.features.published.row_files import DataRow, RowKind

Benchmark = Literal["longbench", "longbench-e", "longbench-v2", "infinitebench", "babilong"]

MOST_BYTES = 1 << 20
"""Of a file that are read to recognise it."""


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
    id: str = ""
    """The sample's id, where the file has it."""
    where: str = ""
    """File and line."""


@dataclass(slots=True)
class PredictionFiles:
    answers: list[PublishedAnswer]
    notes: list[str]
    """Oddities that were read all the same."""


def read_prediction_files(benchmark: Benchmark, paths: Sequence[Path], *, data: Path | None = None) -> PredictionFiles:
    """All predictions, checked. `data` is the benchmark's own data, which the samples must then be of."""
    read, suffix = _READERS[benchmark]
    sizes = _sizes(benchmark)
    predictions = PredictionFiles([], [])
    for path in paths:
        files = sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path]
        if path.is_dir() and benchmark in ("longbench", "longbench-e", "infinitebench"):
            others = [file for file in files if task_of(file) not in sizes]
            files = [file for file in files if file not in others]
            predictions.notes += [f"{file}: left out, its name is no task of {benchmark}" for file in others]
        if not files:
            raise SourceError(
                f"no {suffix} files of {benchmark} in this folder",
                where=str(path),
                fix=f"give {benchmark}'s predictions",
            )
        for file in files:
            predictions.answers.extend(read(file, predictions.notes))
    if not predictions.answers:
        raise SourceError("the files hold no predictions", where=", ".join(map(str, paths)))
    by_task: dict[str, list[PublishedAnswer]] = {}
    for answer in predictions.answers:
        by_task.setdefault(answer.task, []).append(answer)
    for task, answers in by_task.items():
        predictions.notes += _check_samples(benchmark, task, answers, sizes.get(task))
        if data is not None:
            _check_against(benchmark, task, answers, data)
    if len(by_task) > 1 and (missing := [task for task in sizes if task not in by_task]):
        predictions.notes.append(f"no predictions for {', '.join(missing)}: a mean over tasks is without them")
    return predictions


def recognise(paths: Sequence[Path]) -> Benchmark | None:
    """The benchmark whose fields the first line has; None where it may be RULER's or cannot be read."""
    path = next(iter(paths), Path())
    first = next(iter(sorted([*path.rglob("*.jsonl"), *path.rglob("*.csv")])), None) if path.is_dir() else path
    if first is None or not first.is_file():
        return None
    if first.suffix == ".csv":
        return "babilong" if _BABILONG_NAME.match(first.name) else None
    try:
        with first.open("rb") as file:
            row = json.loads(file.readline(MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(row, Mapping) or "outputs" in row:
        return None
    if "answers" in row and "pred" in row:
        return "longbench-e" if first.stem.endswith("_e") or first.parent.name.startswith("pred_e") else "longbench"
    if {"difficulty", "domain", "answer"} <= row.keys():
        return "longbench-v2"
    return "infinitebench" if "ground_truth" in row or task_of(first) in INFINITEBENCH else None


def task_of(path: Path) -> str:
    """The task that a file of predictions is named after."""
    return path.stem.removeprefix("preds_").removesuffix("_e")


def _sizes(benchmark: Benchmark) -> dict[str, int]:
    """The number of samples of every task."""
    if benchmark == "longbench-e":
        return {name: sum(dataset.e_samples) for name, dataset in LONGBENCH.items() if dataset.in_e}
    if benchmark == "longbench-v2":
        return {"longbench-v2": V2_SAMPLES["overall"]}
    tasks = {"longbench": LONGBENCH, "infinitebench": INFINITEBENCH}.get(benchmark, {})
    return {name: dataset.samples for name, dataset in tasks.items()}


_OTHER_SIZES = {("infinitebench", "longbook_qa_chn"): 189}
"""Samples of an earlier version of the data, on which published predictions are."""


def _check_samples(
    benchmark: Benchmark, task: str, answers: Sequence[PublishedAnswer], size: int | None
) -> Iterator[str]:
    """Raises for a sample that is there twice or cannot exist. Notes a number that is not the benchmark's."""
    seen: dict[str, str] = {}
    for answer in answers:
        if answer.id and answer.id in seen:
            raise SourceError(
                f"sample {answer.id} of {task} has a second prediction; the first is at {seen[answer.id]}",
                where=answer.where,
                fix="give one file of predictions for each task",
            )
        seen[answer.id] = answer.where
    most = max(size or len(answers), _OTHER_SIZES.get((benchmark, task), 0))
    if len(answers) > most:
        raise SourceError(
            f"{task} has {most:,} samples, and this is prediction {most + 1:,}",
            where=answers[most].where,
            fix="give one file of predictions for each task",
        )
    if size is not None and len(answers) != size:
        why = "some are missing" if len(answers) < size else "the data are of another version"
        yield f"{task}: {len(answers):,} predictions for {size:,} samples: {why}"


def _check_against(benchmark: Benchmark, task: str, answers: Sequence[PublishedAnswer], data: Path) -> None:
    """Raises for a prediction whose sample is not in the data: by its id, or by its length and references."""
    if benchmark == "babilong":
        raise UsageError("the data of BABILong are not read", where="--data", fix="leave out --data")
    if benchmark == "longbench-v2":
        known = {sample.id for sample in open_longbench_v2(data).samples}
    elif benchmark == "infinitebench":
        known = {sample.id for sample in open_infinitebench(data, task).samples}
    else:
        file = open_longbench(data, f"{task}_e" if benchmark == "longbench-e" else task)
        known = {_described(sample.groups["length"], sample.references) for sample in file.samples}
    for answer in answers:
        if (answer.id or _described(answer.groups.get("length", ""), answer.reference)) not in known:
            raise SourceError(
                f"a prediction for a sample of {task} that is not in the data",
                where=answer.where,
                fix=f"give the data that were asked; these are {data}",
            )


def _described(length: str, references: Sequence[str]) -> str:
    return "\n".join((length, *references))


def _longbench(path: Path, notes: list[str]) -> Iterator[PublishedAnswer]:
    task = task_of(path)
    for row in _rows(path, notes):
        yield PublishedAnswer(
            task,
            row.text("pred"),
            row.texts("answers"),
            {"length": _whole_number(row, "length")},
            tuple(row.texts("all_classes")) if row.value.get("all_classes") else (),
            where=row.where,
        )


def _longbench_v2(path: Path, notes: list[str]) -> Iterator[PublishedAnswer]:
    for row in _rows(path, notes):
        groups = {name: row.text(name) for name in ("difficulty", "length", "domain")}
        letter = row.value.get("pred")
        response = row.value.get("response")
        # Files that keep the response are parsed by the official rule; others have the letter alone.
        prediction = response if isinstance(response, str) else f"The correct answer is ({letter})" if letter else ""
        name = str(row.value.get("_id") or "")
        yield PublishedAnswer("longbench-v2", prediction, row.text("answer"), groups, id=name, where=row.where)


def _infinitebench(path: Path, notes: list[str]) -> Iterator[PublishedAnswer]:
    task = task_of(path)
    for row in _rows(path, notes):
        label = row.value.get("ground_truth", row.value.get("label"))
        if label is None:
            raise row.error("it has neither ground_truth nor label")
        if isinstance(label, list) and (not label or None in label):
            raise row.error("its ground truth is empty or null")
        prediction = row.text("prediction" if "prediction" in row.value else "pred")
        yield PublishedAnswer(task, prediction, label, id=str(row.value.get("id", "")), where=row.where)


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


def _whole_number(row: DataRow, name: str) -> str:
    """As text; empty if the row has none."""
    value = row.value.get(name, "")
    text = str(value).removesuffix(".0")
    if value not in ("", None) and not re.fullmatch(r"[0-9]{1,12}", text):
        raise row.error(f"{name} is no whole number")
    return "" if value is None else text


PREDICTION = RowKind("a prediction of this benchmark", "every line is one JSON object; see docs/published.md")


def _rows(path: Path, notes: list[str]) -> Iterator[DataRow]:
    refuse_pickle(path)
    text = read_text(path, fix="give UTF-8 .jsonl files")
    decoder = json.JSONDecoder()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        start = len(line) - len(line.lstrip())
        try:
            value, end = decoder.raw_decode(line, start)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"not JSON: {error}", where=f"{path}:{number}", fix=PREDICTION.fix) from None
        if line[end:].strip():
            notes.append(f"{path}:{number}:{end + 1}: ignored {line[end:].strip()[:40]!r} after the JSON object")
        yield DataRow.of(value, number, f"{path}:{number}", PREDICTION)


_READERS: dict[Benchmark, tuple[Callable[[Path, list[str]], Iterator[PublishedAnswer]], str]] = {
    "longbench": (_longbench, ".jsonl"),
    "longbench-e": (_longbench, ".jsonl"),
    "longbench-v2": (_longbench_v2, ".jsonl"),
    "infinitebench": (_infinitebench, ".jsonl"),
    "babilong": (_babilong, ".csv"),
}
