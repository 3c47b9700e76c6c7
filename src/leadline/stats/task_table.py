"""Published scores by model and task, as tables print them:

model,length,niah_single_1,vt ...      a row for each model (and length, if there is such a column), a column a task
model,task,4k,8k ...                   a row for each model and task, a column for each length
"""

from __future__ import annotations

from pathlib import Path

from leadline.core.errors import UsageError
from leadline.stats.ruler_table import AVERAGES, EMPTY, length_of, read_cells, score_of
from leadline.stats.task_correlation import Point

Scores = dict[Point, dict[str, float]]


def read_task_table(path: Path) -> Scores:
    """The score of each task, by model and length."""
    header, *body = read_cells(path)
    names = [name.lower() for name in header]
    lengths = {column: length for column, name in enumerate(header) if (length := length_of(name)) is not None}
    if "task" in names:
        return _by_task(header, body, lengths, names.index("task"), path)
    if lengths:
        raise UsageError(
            "the table has a column for each length and none that says which task",
            where=str(path),
            fix="add a column `task`, or give a column for each task",
        )
    return _by_model(header, body, names, path)


def _by_model(header: list[str], body: list[list[str]], names: list[str], path: Path) -> Scores:
    length_column = names.index("length") if "length" in names else None
    kinds = ["".join(c for c in name if c.isalpha()) for name in names]
    columns = [c for c in range(1, len(header)) if c != length_column and kinds[c] not in AVERAGES]
    scores: Scores = {}
    for number, line in enumerate(body, 2):
        where = f"{path}:{number}"
        point = (line[0], _length_in(line[length_column], where) if length_column is not None else None)
        if point in scores:
            raise UsageError(f"{line[0]} stands in the table twice", where=where, fix="add a column `length`")
        scores[point] = {
            header[c]: score_of(line[c], f"{where}, column {header[c]}")
            for c in columns
            if c < len(line) and line[c].lower() not in EMPTY
        }
    return scores


def _by_task(header: list[str], body: list[list[str]], lengths: dict[int, int], task: int, path: Path) -> Scores:
    if not lengths:
        raise UsageError("no column of the table is a length", where=str(path), fix="name columns 4k, 8k ...")
    model = header.index("model") if "model" in header else 0
    scores: Scores = {}
    for number, line in enumerate(body, 2):
        for column, length in lengths.items():
            if column < len(line) and line[column].lower() not in EMPTY:
                value = score_of(line[column], f"{path}:{number}, column {header[column]}")
                scores.setdefault((line[model], length), {})[line[task]] = value
    return scores


def _length_in(text: str, where: str) -> int:
    length = length_of(text)
    if length is None:
        raise UsageError(f"{text!r} is not a length", where=where, fix="write 4096, 4k or 128k")
    return length
