"""Files of published scores: tables by length as RULER prints them, compared with the averages they print, and tables
by model and task."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from leadline.core.errors import SourceError, UsageError
from leadline.core.files import delimiter_of, read_text, table_rows
from leadline.core.lengths import parse_length
from leadline.stats.ruler_summary import SHARE, THRESHOLD, LongestLength, RulerAverages, longest_passing, ruler_average

TABLE_FIX = "give a CSV file with a name in the first column and a column for each length"
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
class RowSummary:
    row: ScoreRow
    averages: RulerAverages[float]
    effective: LongestLength
    effective_own: LongestLength
    disagreements: tuple[str, ...]
    """What the table prints that its own scores do not give."""


def read_cells(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file with their line numbers, whatever separates the cells, empty rows left out."""
    text = read_text(path, fix=TABLE_FIX)
    rows = list(table_rows(text, str(path), delimiter=delimiter_of(text)))
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
    rows = [_row(header, lengths, cells, f"{path}:{number}") for number, cells in body]
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


def length_of(name: str) -> int | None:
    try:
        return parse_length(name) if name[:1].isdigit() else None
    except UsageError:
        return None


def _row(header: Sequence[str], lengths: Mapping[int, int], cells: Sequence[str], where: str) -> ScoreRow:
    scores: dict[int, float] = {}
    printed: dict[str, float] = {}
    effective = ""
    for number, text in enumerate(cells[: len(header)]):
        kind = re.sub(r"[^a-z]", "", header[number].lower())
        if text.lower() in EMPTY:
            continue
        if number in lengths:
            scores[lengths[number]] = score_of(text, f"{where}, column {header[number]}")
        elif kind in AVERAGES:
            printed[AVERAGES[kind]] = score_of(text, f"{where}, column {header[number]}")
        elif kind.startswith("effective"):
            effective = text
    return ScoreRow(cells[0], scores, printed, effective)


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


def _disagreements(row: ScoreRow, averages: RulerAverages[float], effective: LongestLength) -> list[str]:
    differences = []
    names = {"average": "average", "increasing": "wAvg (inc)", "decreasing": "wAvg (dec)"}
    for key, printed in row.printed.items():
        ours = getattr(averages, key)
        if abs(ours - printed) > ROUNDING + 1e-9:
            differences.append(f"{names[key]} is printed as {printed:g}; the scores give {ours:.1f}")
    bound = row.printed_effective.lower().replace(">", "at least").replace("<", "below").replace(" ", "")
    if bound and bound != str(effective).replace(" ", ""):
        differences.append(f"effective length is printed as {row.printed_effective}; the scores give {effective}")
    return differences


# --- Published scores by model and task
#
# model,length,niah_single_1,vt ...      a row for each model (and length, if there is such a column), a column a task
# model,task,4k,8k ...                   a row for each model and task, a column for each length

Point = tuple[str, int | None]
"""A model and a length; None when its lengths are taken together."""
ScoresByPoint = dict[Point, dict[str, float]]


def read_task_table(path: Path) -> ScoresByPoint:
    """The score of each task, by model and length."""
    (_, header), *body = read_cells(path)
    names = [name.lower() for name in header]
    lengths = {column: length for column, name in enumerate(header) if (length := length_of(name)) is not None}
    if "task" in names:
        model = names.index("model") if "model" in names else 0
        return _by_task(header, body, lengths, model, names.index("task"), path)
    if lengths:
        raise UsageError(
            "the table has a column for each length and none that says which task",
            where=str(path),
            fix="add a column `task`, or give a column for each task",
        )
    return _by_model(header, body, names, path)


def _by_model(header: list[str], body: list[tuple[int, list[str]]], names: list[str], path: Path) -> ScoresByPoint:
    length_column = names.index("length") if "length" in names else None
    kinds = ["".join(c for c in name if c.isalpha()) for name in names]
    columns = [c for c in range(1, len(header)) if c != length_column and kinds[c] not in AVERAGES]
    scores: ScoresByPoint = {}
    for number, cells in body:
        where = f"{path}:{number}"
        cells += [""] * (len(header) - len(cells))
        point = (cells[0], _length_in(cells[length_column], where) if length_column is not None else None)
        if point in scores:
            raise UsageError(f"{cells[0]} is in the table twice", where=where, fix="add a column `length`")
        scores[point] = {
            header[c]: score_of(cells[c], f"{where}, column {header[c]}")
            for c in columns
            if cells[c].lower() not in EMPTY
        }
    return scores


def _by_task(
    header: list[str], body: list[tuple[int, list[str]]], lengths: dict[int, int], model: int, task: int, path: Path
) -> ScoresByPoint:
    if not lengths:
        raise UsageError("no column of the table is a length", where=str(path), fix="name columns 4k, 8k ...")
    scores: ScoresByPoint = {}
    for number, cells in body:
        cells += [""] * (len(header) - len(cells))
        for column, length in lengths.items():
            if cells[column].lower() not in EMPTY:
                value = score_of(cells[column], f"{path}:{number}, column {header[column]}")
                scores.setdefault((cells[model], length), {})[cells[task]] = value
    return scores


def _length_in(text: str, where: str) -> int:
    length = length_of(text)
    if length is None:
        raise UsageError(f"{text!r} is not a length", where=where, fix="write 4096, 4k or 128k")
    return length
