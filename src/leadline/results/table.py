"""What wrong answers had in common, by task and length: copied demonstrations, other chains, duplicates ..."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, get_args

from leadline.core.format import format_depth, format_length, format_percent, format_percent_range, sanitise
from leadline.core.types import FailureClass, Record
from leadline.stats.intervals import Estimate, Interval
from leadline.stats.marginals import Marginal, marginals
from leadline.stats.observations import Column, Failures, Key, Observations, observations
from leadline.stats.sequential import anytime

# --- Records to the tidy table that every figure, page and terminal is drawn from.
#
# A place is a task, a length and a depth. Nothing leaves the count: a place has as many samples as were planned, and
# each of them is done (answered), failed (no answer came) or missing (not asked yet). Means and intervals are those of
# `leadline.stats`: over answered samples, by document; `if_failed_wrong` says what the failed ones could take away.

FAILURE_CLASSES: tuple[FailureClass, ...] = get_args(FailureClass)
COUNTING_RULE = (
    "Means are over answered samples. A sample that got no answer after every attempt is failed: "
    "it is counted and shown, and never scored."
)
COUNTING_RULE_ZERO = "Means count a sample that got no answer after every attempt as wrong, because this was asked for."


class Place(NamedTuple):
    """`depth` is None where a task has no single place for its evidence."""

    task: str
    length: int
    depth: float | None


@dataclass(frozen=True, slots=True)
class Tally:
    """All samples of one place, or of several taken together."""

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


@dataclass(frozen=True, slots=True)
class Table:
    """One run by place, and pooled. Keys of the pooled views are tuples of what they keep apart."""

    samples: Observations
    cells: Mapping[Place, Tally]
    by_task_and_length: Mapping[tuple[str, int], Tally]
    by_length: Mapping[int, Tally]
    by_task: Mapping[str, Tally]
    whole: Tally
    failures: Failures = "excluded"
    """How samples without an answer enter the means."""
    details: Mapping[tuple[str, int], Mapping[str, int]] = field(default_factory=dict)
    """By task and length, how often each finer class of wrong answer was seen."""

    @property
    def counting_rule(self) -> str:
        return COUNTING_RULE if self.failures == "excluded" else COUNTING_RULE_ZERO

    @property
    def tasks(self) -> list[str]:
        return list(self.by_task)

    @property
    def lengths(self) -> list[int]:
        return sorted(self.by_length)

    def lengths_of(self, task: str) -> list[int]:
        return sorted({length for name, length in self.by_task_and_length if name == task})

    def depths_of(self, task: str) -> list[float | None]:
        depths = {p.depth for p in self.cells if p.task == task}
        return sorted(depths, key=lambda d: (d is not None, d or 0.0))

    def has_depths(self, task: str) -> bool:
        return self.depths_of(task) != [None]


def tabulate(
    records: Iterable[Record], planned: Mapping[Place, int], failures: Failures = "excluded", *, stopped: bool = False
) -> Table:
    """The table of a run: what was planned first, then anything recorded without being planned.

    `stopped` says that the answers themselves decided how many there are: intervals then hold at every look.
    """
    counts: dict[Place, Counter[FailureClass]] = {}
    details: dict[tuple[str, int], Counter[str]] = {}
    samples = observations(_counted(records, counts, details))
    places = dict.fromkeys([*planned, *counts])
    asked = {p: max(planned.get(p, 0), sum(counts.get(p, {}).values())) for p in places}
    pool = _Pool(samples, asked, counts, failures, stopped)
    return Table(
        samples=samples,
        cells={Place(*key): tally for key, tally in pool.by("task", "length", "depth")},  # type: ignore[arg-type]
        by_task_and_length={(str(t), int(n or 0)): tally for (t, n), tally in pool.by("task", "length")},
        by_length={int(n or 0): tally for (n,), tally in pool.by("length")},
        by_task={str(t): tally for (t,), tally in pool.by("task")},
        whole=next(tally for _, tally in pool.by()),
        failures=failures,
        details=details,
    )


def _counted(
    records: Iterable[Record],
    counts: dict[Place, Counter[FailureClass]],
    details: dict[tuple[str, int], Counter[str]],
) -> Iterator[Record]:
    for record in records:
        place = Place(record.cell.task, record.cell.length, record.cell.depth)
        if place not in counts:
            counts[place] = Counter()
        counts[place][record.failure_class] += 1
        if record.detail and not record.failed:  # no answer is no wrong answer
            details.setdefault(place[:2], Counter())[record.detail] += 1
        yield record


@dataclass(frozen=True, slots=True)
class _Pool:
    samples: Observations
    planned: Mapping[Place, int]
    counts: Mapping[Place, Counter[FailureClass]]
    failures: Failures
    stopped: bool

    def by(self, *columns: Column) -> Iterator[tuple[Key, Tally]]:
        """A tally for every value of the columns, in the order of the plan."""
        at: Sequence[int] = [Place._fields.index(c) for c in columns]
        planned: dict[Key, int] = {} if columns else {(): 0}  # a whole there is, even of nothing
        classes: dict[Key, Counter[FailureClass]] = {}
        for place, count in self.planned.items():
            key = tuple(place[i] for i in at)
            planned[key] = planned.get(key, 0) + count
            classes.setdefault(key, Counter()).update(self.counts.get(place, {}))
        found = (
            {m.key: m for m in marginals(self.samples, columns, planned=planned, failures=self.failures)}
            if len(self.samples)
            else {}
        )
        estimates = self._estimates(columns, found)
        for key, count in planned.items():
            marginal, seen = found.get(key), classes.get(key, Counter())
            yield (
                key,
                Tally(
                    planned=count,
                    done=marginal.counts.done if marginal else 0,
                    failed=marginal.counts.failed if marginal else 0,
                    estimate=estimates.get(key),
                    if_failed_wrong=marginal.mean_if_failures_were_zero if marginal else None,
                    classes={c: seen[c] for c in FAILURE_CLASSES if seen[c]},
                ),
            )

    def _estimates(self, columns: Sequence[Column], found: Mapping[Key, Marginal]) -> dict[Key, Estimate]:
        """The means that there are, with intervals for a fixed number of samples or, where the run stopped by itself,
        for any."""
        known = {key: m.estimate for key, m in found.items() if m.estimate.n}
        if not self.stopped:
            return known
        samples = self.samples if self.failures == "excluded" else self.samples.counted("zero")
        keys, code = samples.codes(columns)
        return {key: anytime(samples.take(code == keys.index(key)), estimate) for key, estimate in known.items()}


def planned_places(
    tasks: Iterable[str], lengths: Sequence[int], depths: Sequence[float], samples: int, *, depthless: Iterable[str]
) -> dict[Place, int]:
    """The full grid of a spec. Tasks in `depthless` have one place per length."""
    without = set(depthless)
    return {
        Place(task, length, depth): samples
        for task in tasks
        for length in lengths
        for depth in ((None,) if task in without else depths)
    }


# --- What wrong answers had in common, by task and length: copied demonstrations, other chains, duplicate


@dataclass(frozen=True, slots=True)
class DetailRow:
    """How often one thing was seen in the answers of a task, at each length of the table."""

    task: str
    detail: str
    counts: tuple[int, ...]


def detail_rows(table: Table) -> list[DetailRow]:
    """Task by task, what was seen most often first."""
    rows = []
    for task in table.tasks:
        seen = {n: table.details.get((task, n), {}) for n in table.lengths}
        names = dict.fromkeys(name for counts in seen.values() for name in counts)
        made = [DetailRow(task, name, tuple(seen[n].get(name, 0) for n in table.lengths)) for name in names]
        rows += sorted(made, key=lambda row: (-sum(row.counts), row.detail))
    return rows


def format_cell(place: Place, tally: Tally) -> str:
    """A cell in words: where it is, its value with interval, how many samples stand behind it."""
    at = f"{sanitise(place.task, 60)}, length {format_length(place.length)}"
    if place.depth is not None:
        at += f", depth {format_depth(place.depth)}"
    counts = f"{tally.done} of {tally.planned} answered" + (f", {tally.failed} failed" if tally.failed else "")
    if tally.estimate is None:
        return f"{at}: no data, {counts}"
    return f"{at}: {format_percent(tally.mean)}%, 95% interval {format_percent_range(tally.interval)}%, {counts}"
