"""What was measured, from the compact records: numbers of proxies, answers to questions, and what each run read."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Scores = dict[str, float]
"""By variant."""
Floats = npt.NDArray[np.float64]
GridPoint = tuple[str, int]
"""A task and a length."""


@dataclass(frozen=True, slots=True)
class Row:
    """Numbers of one document, or of one place in it."""

    document: str
    depth: float | None
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Question:
    """One that was put to some variants. `document` is what answers share their luck by."""

    task: str
    length: int
    document: str
    depth: float


@dataclass
class Records:
    rows: dict[tuple[str, str, int], list[Row]] = field(default_factory=lambda: defaultdict(list))
    """By variant, task and length."""
    answers: dict[str, dict[Question, float]] = field(default_factory=lambda: defaultdict(dict))
    """By variant."""
    tokens: dict[tuple[str, str], int] = field(default_factory=dict)
    """Read by a variant in a run."""

    @classmethod
    def read(cls, file: Path) -> Records:
        made = cls()
        with gzip.open(file, "rt") as lines:
            for line in lines:
                made.add(json.loads(line))
        return made

    def add(self, row: Sequence[Any]) -> None:
        variant, run = row[:2]
        if row[2] == "cost":
            self.tokens[variant, run] = row[3]["tokens"]
            return
        task, length, depth, sample, document, value = row[2:]
        if isinstance(value, dict):
            self.rows[variant, task, length].append(Row(document, depth, value))
        elif value is not None:
            # A round has its own samples, and a haystack is shared by the depths of one.
            self.answers[variant][Question(task, length, f"{run}/{sample}", depth)] = value

    @cached_property
    def variants(self) -> list[str]:
        return list(self.answers)

    @cached_property
    def lengths(self) -> list[int]:
        return sorted({q.length for q in self.common})

    @cached_property
    def common(self) -> list[Question]:
        """Questions that every variant was asked."""
        return [q for q in self.answers[self.variants[0]] if all(q in asked for asked in self.answers.values())]

    @cached_property
    def everything(self) -> list[Question]:
        return list(dict.fromkeys(q for asked in self.answers.values() for q in asked))

    # --- answers --------------------------------------------------------------------------------

    def accuracy(self, questions: Iterable[Question], lengths: Collection[int] = ()) -> Scores:
        """The mean over lengths and tasks, each counting the same. Where not all variants were asked all questions, a
        variant's mean is what is left after taking out how hard its questions are: the least-squares fit of one number
        for each variant and one for each question."""
        places: dict[GridPoint, list[Question]] = defaultdict(list)
        for q in questions:
            if not lengths or q.length in lengths:
                places[q.task, q.length].append(q)
        means = np.mean([_fitted(self._table(group)) for group in places.values()], axis=0)
        return dict(zip(self.variants, means.tolist(), strict=True))

    def _table(self, questions: Sequence[Question]) -> Floats:
        return np.array([[self.answers[v].get(q, math.nan) for q in questions] for v in self.variants])

    def tokens_asked(self, questions: Iterable[Question], *, fresh: bool = False) -> int:
        """Read for these questions, or, when fresh, what reading a document for each of them would take."""
        prompts = {q if fresh or q.task == "single" else (q.task, q.length, q.document): q.length for q in questions}
        return sum(prompts.values())

    # --- proxies --------------------------------------------------------------------------------

    def documents(self, task: str, length: int) -> list[str]:
        """Those that every variant with such a run has read."""
        shelves = [{r.document for r in rows} for (_, t, n), rows in self.rows.items() if (t, n) == (task, length)]
        return sorted(set.intersection(*shelves)) if shelves else []


def _fitted(table: Floats) -> Floats:
    """A mean for each row of a table with holes, as if all columns had been there."""
    rows = np.nanmean(table, axis=1)
    if np.isnan(table).any():
        for _ in range(100):
            columns = np.nanmean(table - rows[:, None], axis=0)
            rows = np.nanmean(table - columns, axis=1)
        rows = rows + np.mean(columns)
    return np.asarray(rows)


Transform = Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A number of records, averaged over documents and then over lengths, and turned so that higher is better."""

    name: str
    task: str
    number: str
    sign: int = 1
    weight: str = ""
    """Where records count differently: the number by which they do."""
    is_ratio: bool = False
    """Whether `number` is what stands above the weight already, and not yet to be multiplied by it."""
    depths: tuple[float, ...] = ()
    """Those that count; all when empty."""
    of: Transform = float
    anchor_tokens: int = 0
    """Read besides the document for each place in it."""

    def scores(self, records: Records, lengths: Sequence[int], documents: Mapping[int, Collection[str]] = {}) -> Scores:
        """Of every variant that has it at all these lengths."""
        found = {}
        for variant in records.variants:
            values = [self._value(records.rows.get((variant, self.task, n), ()), documents.get(n)) for n in lengths]
            if all(math.isfinite(value) for value in values):
                found[variant] = self.sign * float(np.mean(values))
        return found

    def _value(self, rows: Iterable[Row], documents: Collection[str] | None) -> float:
        tops, weights = [], []
        for row in rows:
            counts = not self.depths or row.depth in self.depths
            if counts and (documents is None or row.document in documents) and self.number in row.numbers:
                weight = row.numbers[self.weight] if self.weight else 1.0
                tops.append(self.of(row.numbers[self.number]) * (1.0 if self.is_ratio else weight))
                weights.append(weight)
        return math.fsum(tops) / math.fsum(weights) if math.fsum(weights) else math.nan

    def places(self, records: Records, length: int) -> int:
        """In a document."""
        rows = records.rows[records.variants[0], self.task, length]
        there = {r.depth for r in rows if self.number in r.numbers and (not self.depths or r.depth in self.depths)}
        return len(there)

    def tokens(self, records: Records, counts: Mapping[int, int]) -> int:
        """Read for so many documents of each length."""
        if self.task == "proxies" and self.number == "longppl":
            return sum(records.tokens[records.variants[0], f"proxies-{n}"] for n in counts)
        return sum(k * (n + self.anchor_tokens * self.places(records, n)) for n, k in counts.items())
