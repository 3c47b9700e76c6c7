"""RULER's summary: of the samples of a run, and of tables of published scores, compared with the averages they print.

Effective length is RULER's: the longest length whose score is above a line, 85.6 in the paper (Llama-2-7B-chat at 4k).
Beside it, the longest length that keeps a share of the row's own score at its shortest length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from leadline.core.errors import SourceError, UsageError
from leadline.core.files import read_text, table_rows
from leadline.core.format import format_length
from leadline.core.spec import parse_length
from leadline.stats.intervals import Estimate, Interval, t_quantile
from leadline.stats.marginals import GroupMeans, group_means, marginals
from leadline.stats.observations import Failures, FloatArray, Observations, parts_by_category, parts_by_task

# --- RULER's averages: the mean, and two means weighted towards long or short prompts
#
# wAvg (inc) weighs the lengths 1, 2, 3 ... from the shortest up, for people who use long prompts; wAvg (dec) the
# other way round (Hsieh et al. 2024). Least squares on the published table recovers these weights.


@dataclass(frozen=True, slots=True)
class RulerAverage:
    """Three summaries of one row of scores by length."""

    average: float
    increasing: float
    decreasing: float


@dataclass(frozen=True, slots=True)
class RulerAverageEstimate:
    average: Estimate
    increasing: Estimate
    decreasing: Estimate


def ruler_average(scores: Mapping[int, float]) -> RulerAverage:
    """From the score of each length, on whatever scale they are."""
    if not scores:
        raise UsageError("a row without a score has no average", where="wAvg")
    row = np.array([scores[length] for length in sorted(scores)])
    flat, up, down = _weights(len(row))
    return RulerAverage(float(flat @ row), float(up @ row), float(down @ row))


def ruler_average_estimate(
    data: Observations, *, failures: Failures = "excluded", confidence: float = 0.95
) -> RulerAverageEstimate:
    """The same from samples, with intervals; documents that serve several lengths are counted once."""
    counted = data.counted(failures)
    lengths, code = np.unique(counted.length, return_inverse=True)
    if len(lengths) == 0:
        raise UsageError("no sample has a score", where="wAvg")
    groups = group_means(counted, code.astype(np.int64), len(lengths))
    whole = group_means(counted, np.zeros(len(counted), dtype=np.int64), 1)
    made = [_weighted(groups, weights, whole, confidence) for weights in _weights(len(lengths))]
    return RulerAverageEstimate(*made)


def _weights(count: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    rising = np.arange(1, count + 1) / (count * (count + 1) / 2)
    return np.full(count, 1 / count), rising, rising[::-1]


def _weighted(groups: GroupMeans, weights: FloatArray, whole: GroupMeans, confidence: float) -> Estimate:
    mean = float(weights @ groups.means)
    deviation = float(np.sqrt(weights @ groups.covariance @ weights))
    half = t_quantile(confidence, max(float(whole.degrees[0]), 1.0)) * deviation
    interval = Interval(mean - half, mean + half, confidence, "t over documents")
    clusters = int(whole.n_clusters[0])
    return Estimate(mean, interval, int(whole.n[0]), clusters)


# --- The samples of a run


@dataclass(frozen=True, slots=True)
class SuiteRow:
    """One task, one category or the whole suite: scores by length, where there are any, and what follows from them."""

    name: str
    scores: Mapping[int, Estimate]
    averages: RulerAverageEstimate | None
    """None where a length has no answer: an average over other lengths would not be comparable."""
    effective: LongestLength | None
    effective_own: LongestLength | None


@dataclass(frozen=True, slots=True)
class SuiteSummary:
    """RULER's summary of a run. `published` is the whole by RULER's own scorer, where every answer has its score."""

    lengths: tuple[int, ...]
    tasks: tuple[SuiteRow, ...]
    """Those of one category follow each other."""
    categories: tuple[SuiteRow, ...]
    whole: SuiteRow
    published: SuiteRow | None
    threshold: float
    """In percent."""


def suite_summary(
    samples: Observations,
    categories: Mapping[str, str],
    *,
    published: Observations | None = None,
    failures: Failures = "excluded",
    threshold: float = 85.6,
) -> SuiteSummary:
    """`categories` has the category of every task, in the order in which tasks are shown."""
    lengths = tuple(sorted(set(samples.length.tolist())))

    def row(name: str, data: Observations) -> SuiteRow:
        if not len(data.counted(failures)):
            return SuiteRow(name, {}, None, None, None)
        found = {int(m.key[0] or 0): m.estimate for m in marginals(data, ("length",), failures=failures)}
        scores = {length: estimate for length, estimate in found.items() if estimate.n}
        percent = {length: 100 * estimate.mean for length, estimate in scores.items()}
        averages = ruler_average_estimate(data, failures=failures) if len(scores) == len(lengths) else None
        own = SHARE * percent[min(percent)]
        above, above_own = (
            longest_passing(percent, lambda score: score > threshold),
            longest_passing(percent, lambda s: s >= own - 1e-9),
        )
        return SuiteRow(name, scores, averages, above, above_own)

    by_task = parts_by_task(samples)
    order = list(dict.fromkeys(categories.values()))
    tasks = sorted((task for task in categories if task in by_task), key=lambda task: order.index(categories[task]))
    by_category = parts_by_category(samples, categories)
    return SuiteSummary(
        lengths=lengths,
        tasks=tuple(row(task, by_task[task]) for task in tasks),
        categories=tuple(row(name, by_category[name]) for name in order if name in by_category),
        whole=row("average", samples),
        published=None if published is None else row("ruler.v1", published),
        threshold=threshold,
    )


# --- Tables of published scores by length

THRESHOLD = 85.6
TABLE_FIX = "give a CSV file with a name in the first column and a column for each length"
SHARE = 0.85
ROUNDING = 0.1
"""Printed scores and printed averages are each off by up to half of 0.1."""

EMPTY = frozenset(("", "-", "–", "—", "n/a", "na", "nan", "tbd", "none"))
AVERAGES = {"average": "average", "avg": "average", "wavginc": "increasing", "wavgdec": "decreasing"}
_TASK_NAME = re.compile(r"(?:ruler_)?(?:niah|vt|cwe|fwe|qa)(?:_|$)")


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """One line of a table: scores by length in percent, and what else it prints."""

    name: str
    scores: Mapping[int, float]
    printed: Mapping[str, float] = field(default_factory=dict)
    printed_effective: str = ""


@dataclass(frozen=True, slots=True)
class ScoreTable:
    rows: tuple[ScoreRow, ...]
    lengths: tuple[int, ...]
    of_tasks: bool
    """Whether rows are tasks of one model, so that their mean is the model's score."""


@dataclass(frozen=True, slots=True)
class LongestLength:
    """The longest length that is good enough; None when none is. `beyond` when it is the longest of all."""

    length: int | None
    shortest: int
    beyond: bool

    def __str__(self) -> str:
        """As tables print it: `<4k`, `32k`, `>128k`."""
        if self.length is None:
            return f"<{format_length(self.shortest)}"
        return f"{'>' if self.beyond else ''}{format_length(self.length)}"


@dataclass(frozen=True, slots=True)
class RowSummary:
    row: ScoreRow
    averages: RulerAverage
    effective: LongestLength
    effective_own: LongestLength
    disagreements: tuple[str, ...]
    """What the table prints that its own scores do not give."""


def read_cells(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file with their line numbers, whatever separates the cells, empty rows left out."""
    text = read_text(path, fix=TABLE_FIX)
    first = next((line for line in text.splitlines() if line.strip()), "")
    rows = list(table_rows(text, str(path), delimiter=max(",;\t", key=first.count)))
    if not rows:
        raise SourceError("the table is empty", where=str(path), fix=TABLE_FIX)
    return [(number, [cell.strip() for cell in row]) for number, row in rows]


def read_table(path: Path) -> ScoreTable:
    """A CSV file with a name in its first column and a column for each length (`4k`, `128K`, `4096`)."""
    (_, header), *body = read_cells(path)
    lengths = {number: length for number, name in enumerate(header) if (length := length_of(name)) is not None}
    if not lengths:
        raise UsageError(
            "no column of the table is a length", where=str(path), fix="name columns 4k, 8k ... or 4096, 8192 ..."
        )
    rows = [_row(header, lengths, line, f"{path}:{number}") for number, line in body]
    rows = [row for row in rows if row.scores]
    if not rows:
        raise SourceError("no row of the table has a score", where=str(path), fix=TABLE_FIX)
    of_tasks = header[0].lower() in ("task", "tasks") or all(_TASK_NAME.match(row.name) for row in rows)
    return ScoreTable(_in_percent(rows), tuple(sorted(lengths.values())), of_tasks)


def summarise(row: ScoreRow, *, threshold: float = THRESHOLD, share: float = SHARE) -> RowSummary:
    own = share * row.scores[min(row.scores)]
    averages = ruler_average(row.scores)
    effective = longest_passing(row.scores, lambda score: score > threshold)
    effective_own = longest_passing(row.scores, lambda score: score >= own - 1e-9)
    return RowSummary(row, averages, effective, effective_own, tuple(_disagreements(row, averages, effective)))


def mean_of_tasks(rows: Sequence[ScoreRow]) -> ScoreRow:
    """RULER's score of a length: the plain mean over tasks, where every task has a score."""
    common = set.intersection(*(set(row.scores) for row in rows))
    if not common:
        raise UsageError("there is no length at which every task has a score", where="mean of tasks")
    return ScoreRow(
        f"mean of {len(rows)} tasks",
        {length: math.fsum(row.scores[length] for row in rows) / len(rows) for length in sorted(common)},
    )


def longest_passing(scores: Mapping[int, float], good: Callable[[float], bool]) -> LongestLength:
    passed = [length for length, score in scores.items() if good(score)]
    longest = max(passed, default=None)
    return LongestLength(longest, min(scores), longest == max(scores))


def length_of(name: str) -> int | None:
    try:
        return parse_length(name) if name[:1].isdigit() else None
    except UsageError:
        return None


def _row(header: Sequence[str], lengths: Mapping[int, int], line: Sequence[str], where: str) -> ScoreRow:
    scores: dict[int, float] = {}
    printed: dict[str, float] = {}
    effective = ""
    for number, text in enumerate(line[: len(header)]):
        kind = re.sub(r"[^a-z]", "", header[number].lower())
        if text.lower() in EMPTY:
            continue
        if number in lengths:
            scores[lengths[number]] = score_of(text, f"{where}, column {header[number]}")
        elif kind in AVERAGES:
            printed[AVERAGES[kind]] = score_of(text, f"{where}, column {header[number]}")
        elif kind.startswith("effective"):
            effective = text
    return ScoreRow(line[0], scores, printed, effective)


def score_of(text: str, where: str) -> float:
    try:
        value = float(text.rstrip("%").replace(",", "."))
    except ValueError:
        raise UsageError(f"{text!r} is not a score", where=where, fix="write a number, or - for none") from None
    if not 0 <= value <= 100:
        raise UsageError(f"{text} is not a score", where=where, fix="scores run from 0 to 100, or from 0 to 1")
    return value


def _in_percent(rows: Sequence[ScoreRow]) -> tuple[ScoreRow, ...]:
    """Scores from 0 to 1 are read as shares when no score of the table is above 1."""
    if max(score for row in rows for score in row.scores.values()) > 1:
        return tuple(rows)
    return tuple(
        ScoreRow(r.name, {k: 100 * v for k, v in r.scores.items()}, {k: 100 * v for k, v in r.printed.items()},
            r.printed_effective)
        for r in rows
    )  # fmt: skip


def _disagreements(row: ScoreRow, averages: RulerAverage, effective: LongestLength) -> list[str]:
    found = []
    names = {"average": "average", "increasing": "wAvg (inc)", "decreasing": "wAvg (dec)"}
    for key, printed in row.printed.items():
        ours = getattr(averages, key)
        if abs(ours - printed) > ROUNDING + 1e-9:
            found.append(f"{names[key]} is printed as {printed:g}; the scores give {ours:.1f}")
    if row.printed_effective and row.printed_effective.lower().replace(" ", "") != str(effective):
        found.append(f"effective length is printed as {row.printed_effective}; the scores give {effective}")
    return found
