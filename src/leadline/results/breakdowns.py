"""What a run says by what was asked: strata with a verdict for each task, questions without an answer, wordings of a
sweep, and answers from memory.

A stratum is the samples of one task with one value of a label below (an operation, a number of needles). Damage often
shows in the hardest stratum first while the mean of the task looks level.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from leadline.core.answers import Completion
from leadline.core.records import FailureClass, Needs, Record
from leadline.results.table import Table
from leadline.stats.effective import EffectiveLength
from leadline.stats.intervals import Estimate, mean_interval
from leadline.stats.marginals import marginals
from leadline.stats.observations import Failures

STRATA = ("operation", "needles")
"""Labels whose values are strata."""


@dataclass(frozen=True, slots=True)
class Stratum:
    """One value of a label, over the lengths."""

    task: str
    label: str
    value: str
    by_length: Mapping[int, Estimate]


@dataclass(slots=True)
class StratumCounter:
    """Collects scores by stratum while the records of a run are read."""

    failures: Failures = "excluded"
    _found: dict[tuple[str, str, str], dict[int, tuple[list[float], list[str]]]] = field(default_factory=dict)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._add(record, record.question.labels)

    def _add(self, record: Record, labels: Mapping[str, str]) -> None:
        score = record.score
        if score is None and self.failures == "zero":
            score = 0.0
        if score is None:
            return
        for label in STRATA:
            value = labels.get(label)
            if value:
                lengths = self._found.setdefault((record.cell.task, label, value), {})
                scores, clusters = lengths.setdefault(record.cell.length, ([], []))
                scores.append(score)
                clusters.append(record.cluster)

    def strata(self) -> list[Stratum]:
        """Of every task and label with several values, in their natural order."""
        values: dict[tuple[str, str], int] = {}
        for task, label, _ in self._found:
            values[task, label] = values.get((task, label), 0) + 1
        return [
            Stratum(*key, {n: mean_interval(*scores) for n, scores in sorted(lengths.items())})
            for key, lengths in sorted(self._found.items(), key=lambda item: _natural(item[0]))
            if values[key[:2]] > 1
        ]


@dataclass(slots=True)
class NeedsCounter:
    """Collects, for every graded answer whose evidence is known, what its question needs of the document."""

    failures: Failures = "excluded"
    task: list[str] = field(default_factory=list)
    cluster: list[str] = field(default_factory=list)
    score: list[float] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    span: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.needs is not None:
                self._add(record, record.needs)

    def _add(self, record: Record, needs: Needs) -> None:
        score = record.score
        if score is None and self.failures == "zero":
            score = 0.0
        if score is None:
            return
        self.task.append(record.cell.task)
        self.cluster.append(record.cluster)
        self.score.append(score)
        self.length.append(record.cell.length)
        self.span.append(needs.span)
        self.tokens.append(needs.tokens)
        self.pieces.append(needs.pieces)

    def __len__(self) -> int:
        return len(self.task)


def _natural(key: tuple[str, str, str]) -> tuple[str, str, list[tuple[int, int, str]]]:
    """Numbers inside a value in the order of their size."""
    parts = re.split(r"(\d+)", key[2])
    return key[0], key[1], [(0, int(p), "") if p.isdigit() else (1, 0, p) for p in parts]


@dataclass(frozen=True, slots=True)
class TaskVerdict:
    """What a run says about one task, in the fewest numbers."""

    task: str
    effective: EffectiveLength | None
    longest: int
    mean: Estimate | None
    """At the longest length."""
    weakest: Stratum | None
    """The stratum with the lowest mean at the longest length; None if none is below that of the task."""
    mistake: str
    """The most frequent detail of its wrong answers; empty if there is none, or if several tie."""
    mistakes: int

    @property
    def weakest_mean(self) -> Estimate | None:
        return self.weakest.by_length.get(self.longest) if self.weakest else None


def task_verdicts(
    table: Table, strata: Sequence[Stratum], effective: Mapping[str, EffectiveLength]
) -> list[TaskVerdict]:
    """One for each task."""
    verdicts = []
    for task in table.tasks:
        longest = max((n for n in table.lengths_of(task) if table.by_task_and_length[task, n].estimate), default=0)
        here = [s for s in strata if s.task == task and longest in s.by_length]
        details: Counter[str] = Counter()
        for (of, _), seen in table.details.items():
            details.update(seen if of == task else {})
        mistake, mistakes = _most_frequent(details)
        tally = table.by_task_and_length.get((task, longest))
        weakest = min(here, key=lambda s: s.by_length[longest].mean, default=None)
        if weakest and tally and weakest.by_length[longest].mean >= (tally.mean or 0.0):
            weakest = None
        if weakest and sum(s.by_length[longest].mean == weakest.by_length[longest].mean for s in here) > 1:
            weakest = None  # of several that tie none is the weakest
        verdicts.append(
            TaskVerdict(
                task,
                effective.get(task),
                longest,
                tally.estimate if tally else None,
                weakest,
                mistake,
                mistakes,
            )
        )
    return verdicts


def _most_frequent(counts: Counter[str]) -> tuple[str, int]:
    """The most frequent one and its count; of several that tie none is."""
    [(first, most), (_, next_most), *_] = [*counts.most_common(2), ("", 0), ("", 0)]
    return (first, most) if most > next_most else ("", 0)


@dataclass(frozen=True, slots=True)
class AbsentRates:
    """One task at one length. Failed samples are not counted."""

    task: str
    length: int
    accuracy: Estimate | None
    """Over the questions that have an answer."""
    false_abstentions: Estimate | None
    """Share of the questions that have an answer for which the model says that there is none."""
    false_alarms: Estimate | None
    """Share of the questions without an answer for which the model gives one."""


def absent_rates(records: Iterable[Record]) -> list[AbsentRates]:
    """By task and length, in that order; empty where no task has the option."""
    both_kinds: dict[tuple[str, int], tuple[list[Record], list[Record]]] = {}
    for record in records:
        if record.question.absent is not None and not record.failed:
            both = both_kinds.setdefault((record.cell.task, record.cell.length), ([], []))
            both[record.question.absent].append(record)
    return [
        AbsentRates(
            task,
            length,
            accuracy=_mean(present, [r.score or 0.0 for r in present]),
            false_abstentions=_share(present, "false_abstention"),
            false_alarms=_share(absent, "false_alarm"),
        )
        for (task, length), (present, absent) in sorted(both_kinds.items())
    ]


def _share(records: Sequence[Record], wanted: FailureClass) -> Estimate | None:
    return _mean(records, [float(r.failure_class == wanted) for r in records])


def _mean(records: Sequence[Record], values: Sequence[float]) -> Estimate | None:
    return mean_interval(values, [r.cluster for r in records]) if records else None


_WORDING = re.compile(r"(?P<task>[^\[\]]+)\[(?P<before>(?:.*,)?)wording=(?P<number>[^,\]]+)(?P<after>(?:,.*)?)\]")


@dataclass(frozen=True, slots=True)
class WordingSpread:
    """One task at one length, or at all of them (None)."""

    task: str
    length: int | None
    mean: Estimate
    """Over the samples of all wordings, clustered by haystack."""
    means: dict[str, float]
    """By the number of the wording, from 1."""

    @property
    def lowest(self) -> tuple[str, float]:
        return min(self.means.items(), key=lambda item: item[1])

    @property
    def highest(self) -> tuple[str, float]:
        return max(self.means.items(), key=lambda item: item[1])

    @property
    def deviation(self) -> float:
        """The standard deviation of the wordings' means."""
        centre = sum(self.means.values()) / len(self.means)
        return math.sqrt(sum((m - centre) ** 2 for m in self.means.values()) / (len(self.means) - 1))


def wording_spreads(table: Table) -> list[WordingSpread]:
    """By task and length; empty where no task was asked in several wordings."""
    members: dict[str, dict[str, str]] = {}
    for task in table.tasks:
        label = _WORDING.fullmatch(task)
        if label is not None:
            others = f"{label['before']}{label['after']}".strip(",")
            name = f"{label['task']}[{others}]" if others else label["task"]
            members.setdefault(name, {})[label["number"]] = task
    wide: list[WordingSpread] = []
    for name, tasks in members.items():
        if len(tasks) > 1:
            lengths = table.lengths_of(next(iter(tasks.values())))
            spreads = (_spread(table, name, tasks, at) for at in (*lengths, *([None] if len(lengths) > 1 else [])))
            wide += [spread for spread in spreads if spread is not None]
    return wide


def _spread(table: Table, name: str, tasks: dict[str, str], length: int | None) -> WordingSpread | None:
    tallies = {
        number: table.by_task[task] if length is None else table.by_task_and_length[task, length]
        for number, task in tasks.items()
    }
    means = {number: tally.mean for number, tally in tallies.items() if tally.mean is not None}
    samples = table.counted
    mine = np.isin(samples.task, list(tasks.values()))
    if length is not None:
        mine &= samples.length == length
    if len(means) < 2:
        return None
    [whole] = marginals(samples.take(mine), ())
    return WordingSpread(name, length, whole.estimate, means)


NO_CONTEXT = "no_context"
_PUNCTUATION = string.punctuation + string.whitespace


@dataclass(frozen=True, slots=True)
class FromMemory:
    """Of the questions of a task at a length that were answered both ways."""

    task: str
    length: int
    both: int
    right_without: int
    """Right without the document."""
    wrong: int
    """Wrong with the document ..."""
    wrong_from_memory: int
    """... and in the same words without it."""


def from_memory(records: Iterable[Record]) -> list[FromMemory]:
    """By task and length. Pairs are found by question and place in the grid, whatever the tasks are called."""
    read: list[Record] = []
    without: dict[tuple[object, ...], Record] = {}
    for record in records:
        if isinstance(record.outcome, Completion) and record.score is not None:
            if NO_CONTEXT in record.question.labels:
                without[_place(record)] = record
            else:
                read.append(record)
    groups: dict[tuple[str, int], list[tuple[Record, Record]]] = {}
    for record in read if without else ():
        other = without.get(_place(record))
        if other is not None:
            groups.setdefault((record.cell.task, record.cell.length), []).append((record, other))
    return [_count(task, length, pairs) for (task, length), pairs in sorted(groups.items())]


def _count(task: str, length: int, pairs: list[tuple[Record, Record]]) -> FromMemory:
    wrong = [(record, other) for record, other in pairs if record.score == 0]
    return FromMemory(
        task=task,
        length=length,
        both=len(pairs),
        right_without=sum(other.score == 1 for _, other in pairs),
        wrong=len(wrong),
        wrong_from_memory=sum(_said(record) == _said(other) != "" for record, other in wrong),
    )


def _place(record: Record) -> tuple[object, ...]:
    cell = record.cell
    return (record.question.text, record.question.targets, cell.length, cell.depth, cell.sample)


def _said(record: Record) -> str:
    """The answer's first line, without letter case and the punctuation around it."""
    assert isinstance(record.outcome, Completion)  # only answers are paired
    first = record.outcome.text.strip().partition("\n")[0]
    return " ".join(first.casefold().strip(_PUNCTUATION).split())
