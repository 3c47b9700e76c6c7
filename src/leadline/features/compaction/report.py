"""Recall at retained tokens: by compactor, length, age and kind of the facts, with false memories beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.core.answers import Completion, Failure
from leadline.core.format import (
    format_count,
    format_depth,
    format_length,
    format_percent,
    format_percent_range,
    format_tokens,
    sanitise,
)
from leadline.core.records import Record
from leadline.features.compaction.false_memories import false_memory
from leadline.report.sections import ReportSection, SectionFigure, SectionPart, SectionText
from leadline.report.text_table import TextTable
from leadline.results.run import Run
from leadline.results.summary import estimate_values
from leadline.stats.intervals import Estimate, mean_interval

if TYPE_CHECKING:
    from leadline.report.charts.theme import Figure

Key = TypeVar("Key")
TITLE = "Recall after compaction"
NOTE = (
    "Share of planted facts that are answered from what the compactor retained, and of answers that state another "
    "value (false memories). Retained: tokens of what was kept, in the mean. `none` is the session itself."
)


@dataclass(frozen=True, slots=True)
class Recall:
    """Of one compactor at one length."""

    compactor: str
    length: int
    retained: float
    recall: Estimate
    false: Estimate
    seconds: float
    """Of compacting, for each session."""
    read: float = 0.0
    """Tokens that the compactor's model read and wrote for each session, and their cost, if known."""
    written: float = 0.0
    money: float | None = None


@dataclass(frozen=True, slots=True)
class CompactionResults:
    recalls: Sequence[Recall]
    by_age: Mapping[str, Mapping[float, Estimate]]
    by_kind: Mapping[str, Mapping[str, Estimate]]
    failures: Mapping[str, Sequence[str]]
    """By compactor, the reasons why sessions could not be compacted."""


def compaction_results(records: Sequence[Record], titles: Iterable[str] = ()) -> CompactionResults:
    """From records of the task, under any name. Lengths rise, and compactors are in the order of `titles`, the tasks of
    the run: answers come in any order. Failed samples are counted by the error of their compactor."""
    order = {title: number for number, title in enumerate(titles)}
    mine = [record for record in records if "compactor" in record.question.labels]
    mine.sort(key=lambda record: (record.cell.length, order.get(record.cell.task, len(order))))
    graded = [record for record in mine if record.scores]
    failures: dict[str, list[str]] = {}
    for record in mine:
        if isinstance(record.outcome, Failure) and record.outcome.why == "compaction":
            reason = record.outcome.message.removeprefix(f"{record.question.labels['compactor']}: ")
            failures.setdefault(_name(record), []).append(reason)
    recalls = [
        Recall(
            name,
            length,
            fmean(_retained(record) for record in of_cell),
            _mean(of_cell),
            _false(of_cell),
            fmean(record.preparation_seconds for record in of_cell),
            _label_mean(of_cell, "compactor_read") or 0.0,
            _label_mean(of_cell, "compactor_written") or 0.0,
            _label_mean(of_cell, "compactor_money"),
        )
        for (name, length), of_cell in _grouped(graded, lambda record: (_name(record), record.cell.length)).items()
    ]
    by_age: dict[str, dict[float, Estimate]] = {}
    by_kind: dict[str, dict[str, Estimate]] = {}
    for name, records_of_name in _grouped(graded, _name).items():
        ages = _grouped(
            [r for r in records_of_name if r.cell.depth is not None], lambda record: record.cell.depth or 0.0
        )
        by_age[name] = {age: _mean(of_age) for age, of_age in sorted(ages.items())}
        kinds = _grouped(records_of_name, lambda record: record.question.labels["operation"])
        by_kind[name] = {kind: _mean(of_kind) for kind, of_kind in sorted(kinds.items())}
    return CompactionResults(recalls, by_age, by_kind, failures)


def _label_mean(records: Sequence[Record], label: str) -> float | None:
    known = [float(r.question.labels[label]) for r in records if label in r.question.labels]
    return fmean(known) if known else None


def _name(record: Record) -> str:
    labels = record.question.labels
    rounds = labels.get("rounds", "1")
    return labels["compactor"] if rounds == "1" else f"{labels['compactor']}, {rounds} rounds"


def _retained(record: Record) -> float:
    return float(record.question.labels.get("retained", record.body_tokens))


def _grouped(records: Sequence[Record], key: Callable[[Record], Key]) -> dict[Key, list[Record]]:
    groups: dict[Key, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def _mean(records: Sequence[Record]) -> Estimate:
    return mean_interval([record.score or 0.0 for record in records], [record.cluster for record in records])


def _false(records: Sequence[Record]) -> Estimate:
    texts = [r.outcome.text if isinstance(r.outcome, Completion) else "" for r in records]
    values = [float(bool(false_memory(r.question, text))) for r, text in zip(records, texts, strict=True)]
    return mean_interval(values, [record.cluster for record in records])


def compaction_section(runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    """An entry point of `leadline.report_sections`."""
    has_compaction = [any(task.partition("[")[0] == "compaction" for task in run.manifest.tasks) for run in runs]
    results_of_runs = [
        compaction_results(list(run.records), run.manifest.tasks) if compacts else None
        for run, compacts in zip(runs, has_compaction, strict=True)
    ]
    if not any(results and (results.recalls or results.failures) for results in results_of_runs):
        return None
    if len(runs) > 1:
        rows = [
            (sanitise(name, 60), *_row(recall))
            for name, results in zip(names, results_of_runs, strict=True)
            for recall in (results.recalls if results else ())
        ]
        return ReportSection(TITLE, (SectionText(NOTE), TextTable("", ("run", *COLUMNS), rows, names=2)))
    [results] = results_of_runs
    assert results is not None
    return ReportSection(TITLE, tuple(_parts(results)), _values(results), link="Compaction")


COLUMNS = ("compactor", "session", "retained", "recall", "false memories", "seconds", "compactor's tokens")


def _row(recall: Recall) -> tuple[str, ...]:
    return (
        sanitise(recall.compactor, 40),
        format_length(recall.length),
        format_tokens(recall.retained),
        _percent(recall.recall),
        _percent(recall.false),
        f"{recall.seconds:.2g}",
        _spent(recall),
    )


def _spent(recall: Recall) -> str:
    """Tokens that its model read and wrote for each session, and money."""
    if not recall.read:
        return "-"
    money = "" if recall.money is None else f", {recall.money:.2g} of money"
    return f"{format_tokens(recall.read)} + {format_tokens(recall.written)}{money}"


def _percent(estimate: Estimate) -> str:
    return f"{format_percent(estimate.mean)}%  {format_percent_range(estimate.interval)}"


def _parts(results: CompactionResults) -> Iterator[SectionPart]:
    yield SectionText(NOTE)
    for name, reasons in results.failures.items():
        count = format_count(len(reasons), "session")
        failure = sanitise(f"{name}: {count} could not be compacted: {reasons[0]}", 300)
        yield SectionText(failure, "warning")
    yield TextTable("", COLUMNS, [_row(recall) for recall in results.recalls])
    kinds = sorted({kind for recalls in results.by_kind.values() for kind in recalls})
    rows = [
        (sanitise(name, 40), *(_percent(recalls[kind]) if kind in recalls else "" for kind in kinds))
        for name, recalls in results.by_kind.items()
    ]
    yield TextTable("by kind of fact, all lengths", ("compactor", *kinds), rows, wrapped=True)
    if results.recalls:
        yield SectionFigure("compaction", lambda narrow: _figure(results, narrow))


def _figure(results: CompactionResults, narrow: bool) -> Figure:
    from leadline.report.charts.panels import CurvePanel, panel_figure  # altair

    by_retained = sorted(results.recalls, key=lambda recall: recall.retained)
    ticks = retained_ticks(by_retained)
    series: dict[str, dict[str, Estimate]] = {name: {} for name in results.by_age}  # so that colours are the same
    for recall, tick in zip(by_retained, ticks, strict=True):
        series[recall.compactor][tick] = recall.recall
    labels = list(dict.fromkeys(ticks))
    panels = [CurvePanel("recall at retained tokens", "tokens retained", labels, series, y_title="recall")]
    ages = sorted({age for recalls in results.by_age.values() for age in recalls})
    by_age = {
        name: {format_depth(age): estimate for age, estimate in recalls.items()}
        for name, recalls in results.by_age.items()
    }
    if len(ages) > 1:
        panels.append(
            CurvePanel(
                "recall by age",
                "place in the session (0%: oldest)",
                [format_depth(a) for a in ages],
                by_age,
                y_title="recall",
            )
        )
    return panel_figure(panels, f"{NOTE} Bands: 95% intervals.", TITLE, narrow=narrow)


def retained_ticks(recalls: Sequence[Recall]) -> list[str]:
    """The retained tokens of each; with the session's length where one compactor retained as much of several."""
    tokens = [(recall.compactor, format_tokens(recall.retained)) for recall in recalls]
    return [
        f"{retained} of {format_length(recall.length)}" if tokens.count((name, retained)) > 1 else retained
        for recall, (name, retained) in zip(recalls, tokens, strict=True)
    ]


def _values(results: CompactionResults) -> dict[str, Any]:
    return {
        "compactors": [
            {
                "compactor": recall.compactor,
                "length": recall.length,
                "retained": recall.retained,
                "recall": estimate_values(recall.recall),
                "false_memories": estimate_values(recall.false),
                "seconds": recall.seconds,
                "compactor_read": recall.read,
                "compactor_written": recall.written,
                "compactor_money": recall.money,
            }
            for recall in results.recalls
        ],
        "kinds": {
            name: {kind: estimate_values(estimate) for kind, estimate in recalls.items()}
            for name, recalls in results.by_kind.items()
        },
        "failed": {name: len(reasons) for name, reasons in results.failures.items()},
    }
