"""Records as columns: the one place where statistics read a record.

Everything else in this room works on `Observations`, so that a simulation with planted truth and a real run go
through the same functions. A failed sample (`Record.failed`: no answer, or a prompt that was not read as sent) stays a
row, with no value; `counted` says how it enters a mean.

Failures are left out of means by default, and shown beside them. A time-out says something about a server, not
about what the model could read; a zero would turn a flaky night into a finding. Where no answer *is* the finding
(a model that runs out of memory at 128k), ask for "zero".
"""

from __future__ import annotations

import math
import re
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from leadline.core.records import Record, batched

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
WordArray = npt.NDArray[np.str_]
DigestArray = npt.NDArray[np.uint64]

T = TypeVar("T", bound=np.generic)

Failures = Literal["excluded", "zero"]
Column = Literal["task", "length", "depth", "sample", "cluster"]
CELL: tuple[Column, ...] = ("task", "length", "depth")
GroupKey = tuple[str | int | float | None, ...]
_SWEEP = re.compile(r"\[[^\]]*\]")


@dataclass(frozen=True, slots=True)
class Observations:
    """One row a sample. `depth` is NaN where a task has none; `value` is NaN where the sample failed."""

    task: WordArray
    length: IntArray
    depth: FloatArray
    sample: IntArray
    cluster: WordArray
    """The haystack: samples of one are correlated, and so are the differences of two models on them."""
    value: FloatArray
    failed: BoolArray
    prompt: DigestArray = field(default_factory=lambda: np.zeros(0, dtype=np.uint64))
    """The digest of the prompt's text as a number; 0 where it is not known."""
    _numbered: dict[Column, tuple[npt.NDArray[Any], IntArray]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Of each column that was needed as numbers: values in order, and which of them each row has. Parts keep the values
    of the whole, so that names are sorted once."""
    _codes: dict[tuple[Column, ...], tuple[IntArray, IntArray]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What `compact` gives for the columns that were asked for."""
    known_means: list[tuple[IntArray, Any]] = field(default_factory=list, init=False, repr=False, compare=False)
    """Groups of these rows with their `GroupMeans`: table, figures and effective lengths need many of them again."""

    def __post_init__(self) -> None:
        if len(self.prompt) != len(self.value):
            object.__setattr__(self, "prompt", np.zeros(len(self.value), dtype=np.uint64))

    def __len__(self) -> int:
        return len(self.value)

    def take(self, rows: BoolArray | IntArray) -> Observations:
        if rows.dtype == np.bool_ and rows.all():
            return self
        part = Observations(
            self.task[rows], self.length[rows], self.depth[rows], self.sample[rows],
            self.cluster[rows], self.value[rows], self.failed[rows], self.prompt[rows],
        )  # fmt: skip
        part._numbered.update((column, (values, code[rows])) for column, (values, code) in self._numbered.items())
        return part

    def with_values(self, value: FloatArray) -> Observations:
        """The same rows with other values. What is known of the other columns is shared."""
        other = replace(self, value=value)
        object.__setattr__(other, "_numbered", self._numbered)
        object.__setattr__(other, "_codes", self._codes)
        return other

    def joined(self, other: Observations) -> Observations:
        """The rows of both, one after the other."""
        columns = (np.concatenate([getattr(self, c.name), getattr(other, c.name)]) for c in fields(self) if c.init)
        return Observations(*columns)

    def counted(self, failures: Failures = "excluded") -> Observations:
        """The rows that enter a mean, each with a value."""
        if failures == "zero":
            return replace(self, value=np.where(self.failed, 0.0, self.value), failed=np.zeros_like(self.failed))
        return self.take(~self.failed) if self.failed.any() else self

    def codes(self, columns: Sequence[Column]) -> tuple[list[GroupKey], IntArray]:
        """The distinct values of some columns, in order, and which of them each row has."""
        parts, kept, code = self._coded(columns)
        keys: list[GroupKey] = []
        for number in kept.tolist():
            key: list[str | int | float | None] = []
            for values, _ in reversed(parts):
                number, at = divmod(number, len(values))
                key.append(_plain(values[at]))
            keys.append(tuple(reversed(key)))
        return keys, code

    def code(self, columns: Sequence[Column]) -> IntArray:
        """Which of the distinct values of some columns each row has."""
        return self._coded(columns)[2]

    @property
    def lengths(self) -> IntArray:
        """The different lengths in order."""
        return np.array(self.codes(("length",))[0], dtype=np.int64).reshape(-1)

    @property
    def documents(self) -> int:
        """The number of different haystacks."""
        return int(self.code(("cluster",)).max(initial=-1)) + 1

    def _coded(self, columns: Sequence[Column]) -> tuple[list[tuple[npt.NDArray[Any], IntArray]], IntArray, IntArray]:
        parts = [self._numbers(column) for column in columns]
        if tuple(columns) not in self._codes:
            mixed = np.zeros(len(self), dtype=np.int64)
            for values, inverse in parts:
                mixed = mixed * len(values) + inverse
            self._codes[tuple(columns)] = compact(mixed)
        kept, code = self._codes[tuple(columns)]
        return parts, kept if columns else np.zeros(1, dtype=np.int64), code

    def _numbers(self, column: Column) -> tuple[npt.NDArray[Any], IntArray]:
        if column not in self._numbered:
            values = getattr(self, column)
            self._numbered[column] = np.unique(values, return_inverse=True, equal_nan=column == "depth")
        return self._numbered[column]


SPARSE = 8
"""Codes up to this many times their number are counted in a table; larger ones are sorted."""


def compact(code: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct codes (0 or more) in order, and which of them each row has: what `np.unique` gives, which takes ten
    times as long for the codes of a large run."""
    highest = int(code.max(initial=-1))
    if highest > SPARSE * len(code):
        kept, number = np.unique(code, return_inverse=True)
        return kept, number.astype(np.int64)
    kept = distinct_codes(code)
    if len(kept) == highest + 1:
        return kept, code
    number = np.zeros(highest + 1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return kept, number[code]


def distinct_codes(code: IntArray) -> IntArray:
    """The distinct codes (0 or more) in order."""
    highest = int(code.max(initial=-1))
    if highest > SPARSE * len(code):
        return distinct(code)
    seen = np.zeros(highest + 1, dtype=np.bool_)
    seen[code] = True
    return np.flatnonzero(seen).astype(np.int64)


def distinct(values: npt.NDArray[T]) -> npt.NDArray[T]:
    """The distinct values in order. `np.unique` finds them in a hash table, which takes longer than to sort them."""
    in_order = np.sort(values)
    is_first = np.ones(len(in_order), dtype=np.bool_)
    is_first[1:] = in_order[1:] != in_order[:-1]
    return in_order[is_first]


def observations(records: Iterable[Record]) -> Observations:
    """The records as columns. A later record of a cell replaces an earlier one: a resumed run asks failures again.
    Log-probability measures are left out: their scores are not shares of right answers."""
    names: dict[str, int] = {}
    task, length, sample, prompt = array("q"), array("q"), array("q"), array("Q")
    depth, value, failed = array("d"), array("d"), array("b")
    clusters: list[str] = []
    for batch in batched(records):  # whole records of a large run would fill the memory
        answers = [record for record in batch if not record.wants_logprobs]
        cells, scores = [record.cell for record in answers], [record.score for record in answers]
        task.extend([names.setdefault(cell.task, len(names)) for cell in cells])
        length.extend([cell.length for cell in cells])
        depth.extend([math.nan if cell.depth is None else cell.depth for cell in cells])
        sample.extend([cell.sample for cell in cells])
        clusters += [sys.intern(record.cluster) for record in answers]
        value.extend([math.nan if score is None else score for score in scores])
        failed.extend([score is None for score in scores])
        prompt.extend([_number(record.prompt_digest) for record in answers])
    every = Observations(
        task=np.array(list(names), dtype=np.str_)[np.array(task, dtype=np.int64)],
        length=np.array(length, dtype=np.int64),
        depth=np.array(depth, dtype=np.float64),
        sample=np.array(sample, dtype=np.int64),
        # The members of a sweep have the same haystacks.
        cluster=np.array([_SWEEP.sub("", name) if "[" in name else name for name in clusters], dtype=np.str_),
        value=np.array(value, dtype=np.float64),
        failed=np.array(failed, dtype=np.bool_),
        prompt=np.array(prompt, dtype=np.uint64),
    )
    return every.take(_newest_by_cell(every))


def _newest_by_cell(data: Observations) -> IntArray:
    """The last row of every cell, in the order of task, length, depth (none first) and sample."""
    columns = data.sample, np.nan_to_num(data.depth, nan=-1.0), data.length, data.code(("task",))
    order = np.lexsort(columns)  # rows of a cell stay in their order
    is_last = np.ones(len(order), dtype=np.bool_)
    is_last[:-1] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    return order[is_last]


def _number(digest: str) -> int:
    try:
        return int(digest[:16], 16) if digest else 0
    except ValueError:  # that of a damaged record
        return 0


def _plain(value: np.generic) -> str | int | float | None:
    plain: str | int | float = value.item()
    return None if isinstance(plain, float) and np.isnan(plain) else plain


DEPTH_BANDS: Mapping[str, tuple[float, float]] = {
    "first third": (0.0, 1 / 3),
    "middle third": (1 / 3, 2 / 3),
    "last third": (2 / 3, 1.0),
}
"""From the first number up to the second, which belongs to the next band unless it is 1."""


def parts_by_task(data: Observations) -> dict[str, Observations]:
    tasks, code = data.codes(("task",))
    return {str(task): data.take(code == number) for number, (task,) in enumerate(tasks)}


def parts_by_category(data: Observations, categories: Mapping[str, str]) -> dict[str, Observations]:
    """`categories` says which category a task belongs to; a task it does not name is its own."""
    tasks, code = data.codes(("task",))
    of_task = [categories.get(str(task), str(task)) for (task,) in tasks]
    return {name: data.take(np.array([name == of for of in of_task])[code]) for name in sorted(set(of_task))}


def parts_by_depth(data: Observations) -> dict[str, Observations]:
    parts = {}
    for name, (low, high) in DEPTH_BANDS.items():
        rows = (data.depth >= low) & ((data.depth < high) | ((high >= 1) & (data.depth <= 1)))
        if rows.any():
            parts[name] = data.take(rows)
    return parts
