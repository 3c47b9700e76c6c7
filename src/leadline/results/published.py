"""Scores of published benchmarks, divided as their papers divide them: by length bin, difficulty, domain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from leadline.core.types import Record
from leadline.stats.intervals import Estimate, mean_interval

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


@dataclass(slots=True)
class _Samples:
    values: list[float] = field(default_factory=list)
    uncut: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    metrics: dict[str, None] = field(default_factory=dict)
    missing: int = 0

    def add(self, record: Record, without: float | None) -> None:
        score = record.score
        if score is None:
            self.missing += 1
            return
        self.values.append(score)
        if "fit" not in record.labels:
            self.uncut.append(score)
        if without is not None:
            self.memory.append(without)
        self.metrics[scored_by(record)] = None


def scored_by(record: Record) -> str:
    """The metric behind a record's score: of a scorer that has one for each data set the metric it chose."""
    name, first = next(iter(record.scores.items()))
    return first.explanation if name in _BY_DATASET else name


_BY_DATASET = ("longbench", "longbench.levenshtein", "longbench.strict", "infinitebench")


def group_scores(records: Iterable[Record], without_text: Iterable[Record] = ()) -> list[GroupScore]:
    """In the order of tasks and limits, all samples first. Records of other tasks are left out."""
    published = [record for record in records if "sample_id" in record.labels]
    memory = {_sample(r): r.score for r in without_text if "sample_id" in r.labels}
    tasks = {(record.labels["dataset"], record.cell.task) for record in published}
    once = len({dataset for dataset, _ in tasks}) == len(tasks)  # a sweep of data sets needs no other name
    found: dict[tuple[str, int, str], _Samples] = {}
    for record in published:
        task = record.labels["dataset"] if once else record.cell.task
        for group in (ALL, *(record.labels[name] for name in DIVISIONS if record.labels.get(name))):
            found.setdefault((task, record.cell.length, group), _Samples()).add(record, memory.get(_sample(record)))
    order = list(dict.fromkeys(task for task, _, _ in found))
    places = sorted(found, key=lambda place: (order.index(place[0]), place[1], place[2] != ALL, place[2]))
    return [_score(*place, found[place]) for place in places]


def _sample(record: Record) -> tuple[str, str, int]:
    return record.labels["dataset"], record.labels["sample_id"], record.cell.length


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


def _estimate(values: Sequence[float]) -> Estimate | None:
    # Every sample has a text of its own.
    return mean_interval(values, [str(number) for number in range(len(values))]) if values else None


def means_over_tasks(scores: Sequence[GroupScore]) -> dict[tuple[int, str], float]:
    """By limit and group, every data set counted once, as LongBench and InfiniteBench make their means. Only for groups
    that several data sets have."""
    places = dict.fromkeys((one.length, one.group) for one in scores)
    found = {}
    for length, group in places:
        values = [one.score.mean for one in scores if (one.length, one.group) == (length, group) and one.score]
        if len(values) > 1:
            found[length, group] = fmean(values)
    return found
