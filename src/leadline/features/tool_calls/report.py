"""Tool calls in a report: the share that passes each step, by length, and the faults of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.core.format import format_length, format_percent, format_percent_range, sanitise
from leadline.core.records import Record
from leadline.features.tool_calls.scorers import STEPS
from leadline.report.sections import ReportSection, SectionFigure, SectionPart, SectionText
from leadline.report.text_table import TextTable
from leadline.results.run import Run
from leadline.results.summary import estimate_values
from leadline.stats.intervals import Estimate, mean_interval

if TYPE_CHECKING:
    from leadline.report.charts.theme import Figure

TITLE = "Tool calls, step by step"
NAMES = {
    "call": "a call",
    "json": "valid JSON",
    "tool": "right tool",
    "arguments": "required arguments",
    "values": "right values",
}
NOTE = (
    "Share of answers that get past each step: a call at all, valid JSON, the right tool, the required arguments, "
    "their values. Where two lines part, that step breaks. Failed samples are left out."
)
MOST_SHOWN = 8


@dataclass(frozen=True, slots=True)
class CallSteps:
    """For one task, by step and length: the share of answers that pass this step and all before it."""

    task: str
    passed: Mapping[str, Mapping[int, Estimate]]
    broken: Mapping[tuple[str, str], Mapping[int, int]]
    """By step and fault, the number of answers at each length in which it broke first."""

    @property
    def lengths(self) -> list[int]:
        return sorted(self.passed[STEPS[0]])


def call_steps(records: Sequence[Record]) -> list[CallSteps]:
    """Of every task that is graded by `tool_calls`."""
    tasks: dict[str, list[tuple[Record, str]]] = {}
    for record in records:
        score = record.scores.get("tool_calls")
        if score is not None and not record.failed:
            tasks.setdefault(record.cell.task, []).append((record, score.explanation))
    return [_steps(task, graded) for task, graded in tasks.items()]


def _steps(task: str, graded: Sequence[tuple[Record, str]]) -> CallSteps:
    passed: dict[str, dict[int, Estimate]] = {}
    lengths = sorted({record.cell.length for record, _ in graded})
    for number, step in enumerate(STEPS):
        passed[step] = {}
        for length in lengths:
            here = [(record, why) for record, why in graded if record.cell.length == length]
            values = [float(not why or STEPS.index(_step_of(why)) > number) for _, why in here]
            passed[step][length] = mean_interval(values, [record.cluster for record, _ in here])
    broken: dict[tuple[str, str], Counter[int]] = {}
    for record, why in graded:
        if why:
            first, _, shown = why.partition(": ")
            broken.setdefault((first, shown), Counter())[record.cell.length] += 1
    return CallSteps(task, passed, broken)


def _step_of(why: str) -> Any:
    return why.partition(": ")[0]


def tool_calls_section(runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    """An entry point of `leadline.report_sections`."""
    steps_of_runs = [call_steps(list(run.records)) if _has_calls(run) else [] for run in runs]
    if not any(steps_of_runs):
        return None
    if len(runs) > 1:
        rows = [
            (sanitise(name, 60), steps.task, *(_at(steps, step, steps.lengths[-1]) for step in STEPS))
            for name, steps_of_run in zip(names, steps_of_runs, strict=True)
            for steps in steps_of_run
        ]
        table = TextTable("at the longest length", ("run", "task", *NAMES.values()), rows, names=2)
        return ReportSection(TITLE, (SectionText(NOTE), table))
    return ReportSection(
        TITLE, tuple(_parts(steps_of_runs[0])), [_values(steps) for steps in steps_of_runs[0]], link="Tool calls"
    )


def _has_calls(run: Run) -> bool:
    return any(metric.startswith("tool_calls") for metric in run.metrics.values())


def _parts(steps_of_tasks: Sequence[CallSteps]) -> Iterator[SectionPart]:
    for steps in steps_of_tasks:
        yield SectionText(f"{sanitise(steps.task, 60)}: {format_first_break(steps)}.")
    yield SectionText(NOTE)
    for steps in steps_of_tasks:
        rows = [(NAMES[step], *(_at(steps, step, length) for length in steps.lengths)) for step in STEPS]
        yield TextTable(sanitise(steps.task, 60), ("step", *map(format_length, steps.lengths)), rows)
        most = sorted(steps.broken.items(), key=lambda item: -sum(item[1].values()))[:MOST_SHOWN]
        if most:
            rows = [
                (f"{NAMES[step]}: {shown}", *(str(counts.get(length, "")) for length in steps.lengths))
                for (step, shown), counts in most
            ]
            yield TextTable("", ("first broken step", *map(format_length, steps.lengths)), rows)
    yield SectionFigure("tool-calls", lambda narrow: _figure(steps_of_tasks, narrow))


def format_first_break(steps: CallSteps) -> str:
    """The step that breaks most often at the longest length."""
    longest = steps.lengths[-1]
    lost = Counter({key[0]: 0 for key in steps.broken})
    for (step, _), counts in steps.broken.items():
        lost[step] += counts.get(longest, 0)
    total = steps.passed["values"][longest]
    right = f"{format_percent(total.mean)}% of calls are right at {format_length(longest)}"
    if not sum(lost.values()):
        return right
    step, count = lost.most_common(1)[0]
    return f"{right}; the step that breaks most often is {NAMES[step]} ({count} of {sum(lost.values())})"


def _at(steps: CallSteps, step: str, length: int) -> str:
    estimate = steps.passed[step][length]
    return f"{format_percent(estimate.mean)}%  {format_percent_range(estimate.interval)}"


def _figure(steps_of_tasks: Sequence[CallSteps], narrow: bool) -> Figure:
    from leadline.report.charts.panels import CurvePanel, panel_figure  # altair

    panels = [
        CurvePanel(
            steps.task,
            "context length (tokens)",
            [format_length(n) for n in steps.lengths],
            {NAMES[s]: {format_length(n): e for n, e in by_length.items()} for s, by_length in steps.passed.items()},
            y_title="share of calls past the step",
        )
        for steps in steps_of_tasks
    ]
    return panel_figure(panels, f"{NOTE} Bands: 95% intervals.", TITLE, narrow=narrow)


def _values(steps: CallSteps) -> dict[str, Any]:
    return {
        "task": steps.task,
        "passed": {
            s: [{"length": n, **(estimate_values(e) or {})} for n, e in by.items()] for s, by in steps.passed.items()
        },
        "broken": [
            {"step": step, "shows": shown, "counts": {str(n): count for n, count in counts.items()}}
            for (step, shown), counts in steps.broken.items()
        ],
    }
