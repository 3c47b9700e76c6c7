"""Scores of published benchmarks, divided as their papers divide them: by length bin, difficulty, domain; and the error
bars of tables that others published, from the number of samples behind each score."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from leadline.core.errors import SourceError
from leadline.core.files import parse_json, read_text
from leadline.core.records import Record
from leadline.features.published.benchmark_files import E_BINS, INFINITEBENCH, LONGBENCH, V2_SAMPLES
from leadline.results.score_files import EMPTY, length_of, read_cells, score_of
from leadline.stats.intervals import Estimate, Interval, mean_interval, normal_quantile, wilson

DIVISIONS = ("bin", "difficulty", "domain")
ALL = "all"


@dataclass(frozen=True, slots=True)
class GroupScore:
    """The samples of one data set at one limit that have something in common; the group `all` has every sample."""

    task: str
    length: int
    group: str
    score: Estimate | None
    """Of the first scorer, from 0 to 1; None if nothing was answered."""
    metric: str
    cut: int
    """Prompts that lost their middle, among those answered."""
    not_sent: int
    """Prompts that were refused or left out for their length, or got no answer."""
    whole: Estimate | None
    """Of the samples that were not cut, where some were."""
    memory: Estimate | None = None
    """Of the same samples asked without their text (`--no-context`), where they were."""


_ScoredText = tuple[float, str]
"""A score, and the text that the question was about: several questions of qmsum or of a book are about one."""


@dataclass(slots=True)
class _Samples:
    values: list[_ScoredText] = field(default_factory=list)
    uncut: list[_ScoredText] = field(default_factory=list)
    memory: list[_ScoredText] = field(default_factory=list)
    metrics: dict[str, None] = field(default_factory=dict)
    missing: int = 0

    def add(self, record: Record, without: float | None) -> None:
        score = record.score
        if score is None:
            self.missing += 1
            return
        self.values.append((score, record.cluster))
        if "fit" not in record.question.labels:
            self.uncut.append((score, record.cluster))
        if without is not None:
            self.memory.append((without, record.cluster))
        self.metrics[record.metric] = None


def group_scores(records: Iterable[Record], without_text: Iterable[Record] = ()) -> list[GroupScore]:
    """In the order of tasks and limits, all samples first. Records of other tasks are left out."""
    published = [record for record in records if "sample_id" in record.question.labels]
    memory = {_sample(r): r.score for r in without_text if "sample_id" in r.question.labels}
    tasks = {(record.question.dataset, record.cell.task) for record in published}
    once = len({dataset for dataset, _ in tasks}) == len(tasks)  # a sweep of data sets needs no other name
    samples: dict[tuple[str, int, str], _Samples] = {}
    for record in published:
        task = record.question.dataset if once else record.cell.task
        for group in (ALL, *(record.question.labels[name] for name in DIVISIONS if record.question.labels.get(name))):
            samples.setdefault((task, record.cell.length, group), _Samples()).add(record, memory.get(_sample(record)))
    order = list(dict.fromkeys(task for task, _, _ in samples))
    cells = sorted(samples, key=lambda cell: (order.index(cell[0]), cell[1], cell[2] != ALL, cell[2]))
    return [_score(*cell, samples[cell]) for cell in cells]


def _sample(record: Record) -> tuple[str, str, int]:
    return record.question.dataset, record.question.labels["sample_id"], record.cell.length


def _score(task: str, length: int, group: str, samples: _Samples) -> GroupScore:
    cut = len(samples.values) - len(samples.uncut)
    return GroupScore(
        task,
        length,
        group,
        _estimate(samples.values),
        ", ".join(samples.metrics),
        cut,
        samples.missing,
        _estimate(samples.uncut) if cut else None,
        _estimate(samples.memory),
    )


def _estimate(scored: Sequence[_ScoredText]) -> Estimate | None:
    return mean_interval([score for score, _ in scored], [text for _, text in scored]) if scored else None


def means_over_tasks(scores: Sequence[GroupScore]) -> dict[tuple[int, str], float]:
    """By limit and group, every data set counted once, as LongBench and InfiniteBench make their means. Only for groups
    that several data sets have."""
    groups = dict.fromkeys((score.length, score.group) for score in scores)
    means = {}
    for length, group in groups:
        values = [
            score.score.mean for score in scores if (score.length, score.group) == (length, group) and score.score
        ]
        if len(values) > 1:
            means[length, group] = fmean(values)
    return means


# --- tables that others published -------------------------------------------------------------------

_ALIASES = {
    "mfen": "multifieldqa_en", "mfzh": "multifieldqa_zh", "pcount": "passage_count", "pre": "passage_retrieval_en",
    "przh": "passage_retrieval_zh", "rbp": "repobench-p", "2wikiqa": "2wikimqa", "dureaderzh": "dureader",
}  # fmt: skip
_YES_OR_NO = frozenset(
    ("first_integer", "word_among", "chosen_option", "character_named", "debugged_function", "last_integer",
     "first_number", "accuracy")
)  # fmt: skip
"""Metrics by which an answer is right or wrong and nothing between."""


@dataclass(frozen=True, slots=True)
class PrintedScore:
    """One number of a published table, in percent, and how sure it is."""

    model: str
    task: str
    metric: str
    printed: str
    score: float | None
    """None for what is no number, such as `<5`."""
    samples: int | None
    interval: Interval | None
    """From 0 to 1; where answers get partial credit the widest that a mean of such scores can have."""


@dataclass(frozen=True, slots=True)
class PrintedTable:
    benchmark: str
    scores: tuple[PrintedScore, ...]
    left_out: tuple[str, ...]
    """Rows or columns that are no task."""

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(score.model for score in self.scores))

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(score.task for score in self.scores))

    def mean(self, model: str) -> tuple[float, Interval] | None:
        """Over tasks, each counted once; None unless every task has a number and a number of samples."""
        scores = [score for score in self.scores if score.model == model]
        shares = [(score.score / 100, score.samples) for score in scores if score.score is not None and score.samples]
        if self.benchmark == "LongBench v2" or len(scores) < 2 or len(shares) < len(scores):
            return None
        mean = fmean(share for share, _ in shares)
        error = math.sqrt(math.fsum(share * (1 - share) / n for share, n in shares)) / len(shares)
        half = normal_quantile(0.95) * error
        return 100 * mean, Interval(max(mean - half, 0), min(mean + half, 1), 0.95, "normal, over tasks")

    def notes(self) -> list[str]:
        by_metric: dict[str, list[str]] = {}
        for score in self.scores:
            by_metric.setdefault(score.metric, [])
            if score.task not in by_metric[score.metric]:
                by_metric[score.metric].append(score.task)
        notes = []
        if code := by_metric.get("code_similarity"):
            notes.append(
                f"{', '.join(code)}: the table does not say whether code similarity is difflib's or "
                "python-Levenshtein's, which is 1.4 to 3.2 points higher on the same answers"
            )
        if rouge := [task for name in ("rouge", "rouge_zh") for task in by_metric.get(name, ())]:
            notes.append(
                f"{', '.join(rouge)}: ROUGE-L of LongBench's package is up to ten points above that of rouge_score; "
                "a table that has the other does not compare with this one"
            )
        if by_metric.keys() - _YES_OR_NO:
            notes.append(
                "where an answer gets partial credit (F1, ROUGE-L, similarity), the interval is the widest that a mean "
                "of such scores can have; `leadline score` gives the true one from the predictions"
            )
        if self.left_out:
            notes.append(f"not a task of {self.benchmark}, left out: {', '.join(self.left_out)}")
        return notes


def read_printed_table(path: Path, samples: int | None = None) -> PrintedTable | None:
    """A table of LongBench, LongBench v2 or InfiniteBench: a CSV file with tasks as rows or columns, or the result.json
    that the benchmark's own script writes. None for a table of another kind. `samples` are those behind every score."""
    if path.suffix == ".json":
        return _from_json(path, samples)
    (_, header), *body = read_cells(path)
    rows = [line[0] for _, line in body]
    benchmark, known = max(_benchmarks().items(), key=lambda b: max(_hits(rows, b[1]), _hits(header, b[1])))
    if max(_hits(rows, known), _hits(header, known)) < 2 or any(length_of(name) is not None for name in header):
        return None
    tasks_down = _hits(rows, known) >= _hits(header, known)
    printed = []
    for number, line in body:
        cells = dict(zip(header[1:], line[1:], strict=False))
        counted = next((cells.pop(name) for name in list(cells) if name.lower() in ("samples", "n")), "")
        n = samples if samples or not counted.isdigit() else int(counted)
        for column, text in cells.items():
            model, task = (column, line[0]) if tasks_down else (line[0], column)
            printed.append(_Printed(model, task, text, n, f"{path}:{number}, column {column}"))
    return _printed_table(benchmark, known, printed)


@dataclass(frozen=True, slots=True)
class _Printed:
    model: str
    task: str
    text: str
    samples: int | None
    where: str


def _from_json(path: Path, samples: int | None) -> PrintedTable:
    """LongBench's result.json: {task: score}, or {task: {bin: score}} of LongBench-E."""
    content: Any = parse_json(read_text(path), str(path))
    known = _benchmarks()["LongBench"]
    model = path.resolve().parent.name
    if not isinstance(content, dict) or not _hits(list(content), known):
        raise SourceError("not a result.json of LongBench", where=str(path), fix='it has {"qasper": 43.2, ...}')
    printed = []
    for task, score in content.items():
        bins = score if isinstance(score, dict) else {"": score}
        for name, value in bins.items():
            at = next((n for n, (_, bin_name) in enumerate(E_BINS) if bin_name == name), None)
            counts = LONGBENCH[known[_plain(task)][0]].e_samples if _plain(task) in known else ()
            n = samples or (counts[at] if at is not None and counts else 0 if name else None)
            title = f"{task} {name}" if name else task
            printed.append(_Printed(model, title, str(value), n, f"{path}, {title}"))
    return _printed_table("LongBench", known, printed)


def _printed_table(benchmark: str, known: Mapping[str, _Task], printed: Sequence[_Printed]) -> PrintedTable:
    scores, left_out = [], []
    for cell in printed:
        name = _plain(cell.task.split(" ")[0]) if benchmark == "LongBench" else _plain(cell.task)
        if name not in known:
            left_out.append(cell.task)
            continue
        if cell.text.strip().lower() in EMPTY:
            continue
        title, metric, published = known[name]
        score = None if cell.text.strip().startswith("<") else score_of(cell.text.strip(), cell.where)
        scores.append((cell, title, metric, score, published if cell.samples is None else cell.samples))
    scale = 100 if all(score is None or score <= 1 for _, _, _, score, _ in scores) else 1
    return PrintedTable(
        benchmark,
        tuple(
            PrintedScore(
                cell.model,
                f"{title} {cell.task.split(' ', 1)[1]}" if benchmark == "LongBench" and " " in cell.task else title,
                metric,
                cell.text.strip(),
                None if score is None else scale * score,
                n or None,
                wilson(scale * score / 100 * n, n) if score is not None and n else None,
            )
            for cell, title, metric, score, n in scores
        ),
        tuple(dict.fromkeys(left_out)),
    )


_Task = tuple[str, str, int]
"""The name of a task, its metric, and the number of its samples."""


def _benchmarks() -> dict[str, dict[str, _Task]]:
    """By benchmark, its tasks by the names that tables have for them."""
    longbench = {_plain(name): (name, dataset.metric, dataset.samples) for name, dataset in LONGBENCH.items()}
    longbench |= {alias: longbench[_plain(name)] for alias, name in _ALIASES.items()}
    infinite = {
        _plain(name): (dataset.name, dataset.metric, dataset.samples)
        for dataset in INFINITEBENCH.values()
        for name in (dataset.name, dataset.category)
    }
    v2 = {name: (name, "accuracy", samples) for name, samples in V2_SAMPLES.items()}
    return {"LongBench": longbench, "InfiniteBench": infinite, "LongBench v2": v2}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _hits(names: Sequence[str], known: Mapping[str, _Task]) -> int:
    return sum(_plain(name) in known for name in names)
