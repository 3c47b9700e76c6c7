"""Records to the table that every figure, page and terminal view is drawn from.

A place is a task, a length and a depth: that which was asked for, or the depth of the grid that is nearest to where the
fact really was, if no sentence ended near enough. Nothing leaves the count: a place has as many samples as planned,
and each is done (answered), failed (no answer, or a prompt not read as sent) or missing (not asked yet). Means and
intervals are those of `leadline.stats`: over answered samples, clustered by document.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, get_args

import numpy as np

from leadline.core.format import NO_NUMBER, format_depth, format_length, format_percent, format_percent_range, sanitise
from leadline.core.records import FailureClass, Record, batched
from leadline.core.types import Cell
from leadline.stats.intervals import Estimate, Interval
from leadline.stats.marginals import Marginal, marginals
from leadline.stats.observations import Column, Failures, FloatArray, GroupKey, Observations, observations
from leadline.stats.sequential import anytime

FAILURE_CLASSES: tuple[FailureClass, ...] = get_args(FailureClass)
COUNTING_RULE = (
    "Means are over answered samples. A sample without an answer after every attempt, or whose prompt was not read as "
    "sent, counts as failed and is excluded from the means."
)
PUBLISHED = "ruler.v1"
"""The scorer whose numbers compare with published ones; the headline scorer is never above it."""
STRICT = "ruler.strict"
"""The scorer that takes no answer with other values; the headline scorer is never below it."""
BESIDE_HEADLINE = (PUBLISHED, STRICT)
COUNTING_RULE_ZERO = "Failed samples count as wrong in means, effective lengths and shapes, because this was asked for."


class GridPoint(NamedTuple):
    """`depth` is None where the evidence of a task is not at one depth."""

    task: str
    length: int
    depth: float | None


@dataclass(frozen=True, slots=True)
class Tally:
    """All samples of one place, or of several places pooled."""

    planned: int
    done: int
    failed: int
    estimate: Estimate | None
    if_failed_wrong: float | None
    """The mean if every failed sample had been answered wrongly."""
    classes: Mapping[FailureClass, int]

    @property
    def missing(self) -> int:
        return max(0, self.planned - self.done - self.failed)

    @property
    def mean(self) -> float | None:
        return self.estimate.mean if self.estimate else None

    @property
    def interval(self) -> Interval | None:
        return self.estimate.interval if self.estimate else None


RIGHT: tuple[FailureClass, ...] = ("correct", "measured")


def format_class(failure_class: str) -> str:
    return failure_class.replace("_", " ")


class WrongAnswer(NamedTuple):
    """A class of wrong answer, and a finer one where it is known: `distractor`, `another planted value`."""

    failure_class: FailureClass
    detail: str

    def __str__(self) -> str:
        name = format_class(self.failure_class)
        return f"{name}: {self.detail}" if self.detail else name


class Table:
    """One run by place, and pooled. Each view is computed when it is first read.

    `planned` has the samples of every place, including places that were recorded without being planned. With `stopped`,
    a stopping rule chose the number of samples, so intervals are confidence sequences.
    """

    def __init__(
        self,
        samples: Observations,
        planned: Mapping[GridPoint, int],
        classes: Mapping[GridPoint, Counter[FailureClass]],
        wrong: Mapping[tuple[str, int], Mapping[WrongAnswer, int]],
        failures: Failures = "excluded",
        *,
        stopped: bool = False,
        regridded: Mapping[Cell, float] | None = None,
        beside: Mapping[str, Mapping[Cell, float]] | None = None,
    ) -> None:
        """`regridded` has the cells that are counted at another depth, `beside` for each scorer that graded every
        answer those whose score by it is not that of the headline."""
        self.regridded = len(regridded or {})
        """Samples at another depth of the grid than was asked for."""
        self.requested = samples
        """The samples at the depths that were asked for, by which two runs are paired."""
        self.samples = replace(samples, depth=_changed(samples, samples.depth, regridded)) if regridded else samples
        self.failures = failures
        """How samples without an answer are counted."""
        self.wrong = wrong
        """By task and length, how often each class and finer class of wrong answer was seen."""
        self._planned = planned
        self._classes = classes
        self._stopped = stopped
        self._beside = beside or {}

    @cached_property
    def details(self) -> Mapping[tuple[str, int], Mapping[str, int]]:
        """By task and length, how often each finer class of wrong answer was seen, whatever its class."""
        by_column: dict[tuple[str, int], Counter[str]] = {}
        for column, seen in self.wrong.items():
            for answer, count in seen.items():
                if answer.detail:
                    by_column.setdefault(column, Counter())[answer.detail] += count
        return by_column

    def __str__(self) -> str:
        """A line for each task and length: samples, mean and interval."""
        rows: list[tuple[str, ...]] = [("task", "length", "planned", "answered", "failed", "mean", "95% interval")]
        for (task, length), tally in self.by_task_and_length.items():
            counts = (f"{count:,}" for count in (tally.planned, tally.done, tally.failed))
            mean = f"{format_percent(tally.mean)}%" if tally.estimate else NO_NUMBER
            interval = format_percent_range(tally.interval)
            rows.append((sanitise(task, 60), format_length(length), *counts, mean, interval))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])) for row in rows)
        return "\n".join("  ".join(cells) for cells in lines)

    @cached_property
    def counted(self) -> Observations:
        """The samples for statistics: where this was asked for, failed ones are scores of zero."""
        return self._with_failures(self.samples)

    def _with_failures(self, samples: Observations) -> Observations:
        return samples.counted("zero") if self.failures == "zero" else samples

    @cached_property
    def published(self) -> Observations | None:
        """The same samples with the scores of `ruler.v1`; None where some answer was not scored by it."""
        return self.scored_by(PUBLISHED)

    def scored_by(self, scorer: str) -> Observations | None:
        """The same samples with the scores of another scorer; None where some answer was not scored by it."""
        if scorer not in self._beside:
            return None
        return self._with_failures(
            replace(self.samples, value=_changed(self.requested, self.samples.value, self._beside[scorer]))
        )

    @cached_property
    def cells(self) -> Mapping[GridPoint, Tally]:
        return {GridPoint(*key): tally for key, tally in self._by("task", "length", "depth")}  # type: ignore[arg-type]

    @cached_property
    def by_task_and_length(self) -> Mapping[tuple[str, int], Tally]:
        return {(str(task), int(length or 0)): tally for (task, length), tally in self._by("task", "length")}

    @cached_property
    def by_length(self) -> Mapping[int, Tally]:
        return {int(length or 0): tally for (length,), tally in self._by("length")}

    @cached_property
    def by_task(self) -> Mapping[str, Tally]:
        return {str(task): tally for (task,), tally in self._by("task")}

    @cached_property
    def whole(self) -> Tally:
        return next(tally for _, tally in self._by())

    @property
    def counting_rule(self) -> str:
        return COUNTING_RULE if self.failures == "excluded" else COUNTING_RULE_ZERO

    @property
    def where_failures_count(self) -> str:
        """How failed samples are counted, after their number: `are in no mean`."""
        return "are in no mean" if self.failures == "excluded" else "count as wrong"

    @cached_property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(point.task for point in self._planned))

    @cached_property
    def lengths(self) -> list[int]:
        return sorted({point.length for point in self._planned})

    def lengths_of(self, task: str) -> list[int]:
        return sorted({point.length for point in self._planned if point.task == task})

    def depths_of(self, task: str) -> list[float | None]:
        depths = {point.depth for point in self._planned if point.task == task}
        return sorted(depths, key=lambda d: (d is not None, d or 0.0))

    def has_depths(self, task: str) -> bool:
        return self.depths_of(task) != [None]

    def _by(self, *columns: Column) -> Iterator[tuple[GroupKey, Tally]]:
        """A tally for every value of the columns, in the order of the plan."""
        at = [GridPoint._fields.index(c) for c in columns]
        planned: dict[GroupKey, int] = {} if columns else {(): 0}  # the whole exists even if nothing was planned
        classes: dict[GroupKey, Counter[FailureClass]] = {}
        for point, count in self._planned.items():
            key = tuple(point[i] for i in at)
            planned[key] = planned.get(key, 0) + count
            classes.setdefault(key, Counter()).update(self._classes.get(point, {}))
        by_key: dict[GroupKey, Marginal] = {}
        if len(self.samples):
            by_key = {m.key: m for m in marginals(self.samples, columns, failures=self.failures)}
        estimates = self._estimates(columns, by_key)
        for key, count in planned.items():
            marginal, seen = by_key.get(key), classes.get(key, Counter())
            tally = Tally(
                planned=count,
                done=marginal.done if marginal else 0,
                failed=marginal.failed if marginal else 0,
                estimate=estimates.get(key),
                if_failed_wrong=marginal.mean_if_failures_were_zero if marginal else None,
                classes={c: seen[c] for c in FAILURE_CLASSES if seen[c]},
            )
            yield key, tally

    def _estimates(self, columns: Sequence[Column], by_key: Mapping[GroupKey, Marginal]) -> dict[GroupKey, Estimate]:
        """Means with intervals for a fixed number of samples or, where a rule stopped the run, for any number."""
        known = {key: m.estimate for key, m in by_key.items() if m.estimate.n}
        if not self._stopped:
            return known
        keys, code = self.counted.codes(columns)
        return {key: anytime(self.counted.take(code == keys.index(key)), estimate) for key, estimate in known.items()}


def tabulate(
    records: Iterable[Record],
    planned: Mapping[GridPoint, int],
    failures: Failures = "excluded",
    *,
    stopped: bool = False,
) -> Table:
    """The table of a run: planned places first, then any that were recorded without being planned."""
    classes: dict[GridPoint, Counter[FailureClass]] = {}
    wrong: dict[tuple[str, int], Counter[WrongAnswer]] = {}
    samples_at: dict[GridPoint, int] = dict(planned)
    rows: dict[str, list[float]] = {}
    """By task, the depths of the grid in order."""
    regridded: dict[Cell, float] = {}
    beside: dict[str, dict[Cell, float]] = {scorer: {} for scorer in BESIDE_HEADLINE}
    for depth, task in sorted((point.depth, point.task) for point in planned if point.depth is not None):
        if depth not in rows.setdefault(task, []):
            rows[task].append(depth)

    seen: Counter[tuple[tuple[str, int], float | None, tuple[FailureClass, str, bool]]] = Counter()
    """How many samples have this place, class and detail, and failed or not."""

    def counted() -> Iterator[Record]:
        for batch in batched(records):
            depths = [_nearest_row(record, rows.get(record.cell.task, ())) for record in batch]
            for record, depth in zip(batch, depths, strict=True):
                cell = record.cell
                if depth != cell.depth and depth is not None and cell not in regridded:
                    regridded[cell] = depth
                    for at, change in ((cell.depth, -1), (depth, 1)):
                        point = GridPoint(cell.task, cell.length, at)
                        samples_at[point] = samples_at.get(point, 0) + change
            places = [(record.cell.task, record.cell.length) for record in batch]
            kinds = [(record.failure_class, record.detail, record.failed) for record in batch]
            seen.update(zip(places, depths, kinds, strict=True))
            _note_scores(beside, batch)
            yield from batch

    samples = observations(counted())
    for (place, at, (failure_class, detail, failed)), count in seen.items():
        classes.setdefault(GridPoint(*place, at), Counter())[failure_class] += count
        if not failed and (detail or failure_class not in RIGHT):
            wrong.setdefault(place, Counter())[WrongAnswer(failure_class, detail)] += count
    places = dict.fromkeys([*samples_at, *classes])
    samples_at = {p: max(samples_at.get(p, 0), sum(classes.get(p, {}).values())) for p in places}
    return Table(samples, samples_at, classes, wrong, failures, stopped=stopped, regridded=regridded, beside=beside)


def _note_scores(beside: dict[str, dict[Cell, float]], records: Iterable[Record]) -> None:
    """Keeps what other scorers than the first say; one that did not grade an answer is left out for good."""
    for scorer in tuple(beside):
        for record in records:
            score = record.scores.get(scorer)
            if record.failed:
                continue
            if score is None:
                del beside[scorer]
                break
            if score.value != record.score:
                beside[scorer][record.cell] = score.value


def _changed(samples: Observations, values: FloatArray, changes: Mapping[Cell, float]) -> FloatArray:
    """The values of all samples, with those of some cells replaced."""
    known = {(c.task, c.length, -1.0 if c.depth is None else c.depth, c.sample): v for c, v in changes.items()}
    columns = samples.task, samples.length, np.nan_to_num(samples.depth, nan=-1.0), samples.sample
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return np.array([known.get(row, value) for row, value in zip(rows, values.tolist(), strict=True)], np.float64)


def _nearest_row(record: Record, rows: Sequence[float]) -> float | None:
    """The depth of the grid nearest to where the sample's one fact is; the asked one if there is no such fact. `rows`
    are the depths of the grid, ascending."""
    requested, facts = record.cell.depth, record.facts
    if requested is None or len(facts) != 1 or (real := facts[0].depth) == requested or requested not in rows:
        return requested
    at = bisect(rows, real)
    low, high = rows[max(0, at - 1)], rows[min(at, len(rows) - 1)]
    if real - low == high - real:
        return high if high == requested else low
    return low if real - low < high - real else high


def planned_points(
    tasks: Iterable[str], lengths: Sequence[int], depths: Sequence[float], samples: int, *, depthless: Iterable[str]
) -> dict[GridPoint, int]:
    """The full grid of a spec. Tasks in `depthless` have one place per length."""
    without = set(depthless)
    return {
        GridPoint(task, length, depth): samples
        for task in tasks
        for length in lengths
        for depth in ((None,) if task in without else depths)
    }


@dataclass(frozen=True, slots=True)
class ScorerGap:
    """A task and length at which another scorer's mean lies outside of the interval of the headline score."""

    task: str
    length: int
    headline: Estimate
    scorer: str
    mean: float


def means_by(table: Table, scorer: str) -> dict[tuple[str, int], float]:
    """The mean by another scorer of every task and length; empty where some answer was not scored by it."""
    samples = table.scored_by(scorer)
    if samples is None or not len(samples):
        return {}
    means = marginals(samples, ("task", "length"))
    return {(str(m.key[0]), int(m.key[1] or 0)): m.estimate.mean for m in means if m.estimate.n}


def scorer_gaps(table: Table) -> list[ScorerGap]:
    """Where `ruler.v1` or `ruler.strict` differ from the headline score by more than its interval."""
    return [
        ScorerGap(*key, tally.estimate, scorer, means[key])
        for scorer in BESIDE_HEADLINE
        if (means := means_by(table, scorer))
        for key, tally in table.by_task_and_length.items()
        if tally.estimate and key in means and _leaves(tally.estimate, means[key])
    ]


def _leaves(headline: Estimate, mean: float) -> bool:
    # An interval near 100% ends close above its mean: a small difference is not worth a remark.
    inside = headline.interval.low <= mean <= headline.interval.high
    return not inside and abs(mean - headline.mean) > headline.interval.half_width


@dataclass(frozen=True, slots=True)
class WrongAnswerRow:
    """How often one class of wrong answer was seen in a task, at each length of the table."""

    task: str
    answer: WrongAnswer
    counts: tuple[int, ...]


def wrong_answer_rows(table: Table) -> list[WrongAnswerRow]:
    """By task, the most frequent first."""
    rows = []
    for task in table.tasks:
        seen = {n: table.wrong.get((task, n), {}) for n in table.lengths}
        answers = dict.fromkeys(answer for counts in seen.values() for answer in counts)
        of_task = [
            WrongAnswerRow(task, answer, tuple(seen[n].get(answer, 0) for n in table.lengths)) for answer in answers
        ]
        rows += sorted(of_task, key=lambda row: (-sum(row.counts), row.answer))
    return rows


def format_cell(point: GridPoint, tally: Tally) -> str:
    """`niah, length 4k, depth 50%: 80%, 95% interval 60–93%, 10 of 10 answered`."""
    mean = "no data" if tally.estimate is None else format_mean(tally)
    failed = f", {tally.failed} failed" if tally.failed else ""
    return f"{format_grid_point(*point)}: {mean}, {tally.done} of {tally.planned} answered{failed}"


def format_grid_point(task: str, length: int, depth: float | None) -> str:
    """`niah, length 4k, depth 50%`."""
    at = f"{sanitise(task, 60)}, length {format_length(length)}"
    return at if depth is None else f"{at}, depth {format_depth(depth)}"


def format_mean(estimate: Tally | Estimate) -> str:
    """`80%, 95% interval 60–93%`."""
    return f"{format_percent(estimate.mean)}%, 95% interval {format_percent_range(estimate.interval)}%"
