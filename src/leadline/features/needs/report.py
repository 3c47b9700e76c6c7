"""Accuracy against what a question needs: the total length, the tokens from the first to the last evidence, the tokens
of the evidence itself, and the number of pieces.

Reported after a finding of AgentLongBench (arXiv 2601.20730): accuracy follows the tokens that an answer needs more
closely than the total length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leadline.core.format import format_length, format_percent, format_percent_range, sanitise
from leadline.report.sections import ReportSection, SectionFigure, SectionPart, SectionText
from leadline.report.text_table import TextTable
from leadline.results.breakdowns import NeedsCounter
from leadline.results.run import Run
from leadline.results.summary import estimate_values
from leadline.stats.concordance import Concordance, concordance
from leadline.stats.intervals import Estimate, Interval, mean_interval

if TYPE_CHECKING:
    from leadline.report.charts.theme import Figure

TITLE = "What a question needs"
AXES = {
    "length": "total length",
    "span": "first to last evidence",
    "tokens": "tokens of evidence",
    "pieces": "pieces of evidence",
}
LEAST_SPREAD = 4
"""The largest span must be at least this multiple of the smallest: single needles of some 20 tokens do not differ."""
RIGHT = 0.5
"""Scores above it count as right answers."""
NOTE = (
    "Concordance: of two answers to one task, one right and one wrong, how often the wrong one has the larger value. "
    "50% says nothing."
)


@dataclass(frozen=True, slots=True)
class NeedsAxis:
    """One quantity: the mean score in each octave of it, and how well it separates wrong answers from right ones."""

    name: str
    means: Mapping[int, Estimate]
    """By the lower end of the octave; by the number itself for lengths."""
    concordance: Concordance | None

    @property
    def labels(self) -> list[str]:
        exact = self.name == "length"
        return [format_length(low) if exact or low < 2 else f"{format_length(low)}+" for low in self.means]


def needs_axes(counter: NeedsCounter) -> list[NeedsAxis]:
    """The quantities that differ between questions; empty where the evidence shows no more than the length."""
    if not len(counter) or max(counter.span) < LEAST_SPREAD * max(min(counter.span), 1):
        return []
    right = [score > RIGHT for score in counter.score]
    axes = []
    for name in AXES:
        values: list[int] = getattr(counter, name)
        if len(set(values)) > 1:
            groups = values if name == "length" else [_octave(value) for value in values]
            axes.append(
                NeedsAxis(name, _means(counter, groups), concordance(values, right, counter.task, counter.cluster))
            )
    return axes


def _octave(value: int) -> int:
    return 1 << (value.bit_length() - 1) if value > 0 else 0


def _means(counter: NeedsCounter, groups: Sequence[int]) -> dict[int, Estimate]:
    members: dict[int, tuple[list[float], list[str]]] = {}
    for group, score, cluster in zip(groups, counter.score, counter.cluster, strict=True):
        scores, clusters = members.setdefault(group, ([], []))
        scores.append(score)
        clusters.append(cluster)
    return {group: mean_interval(*members[group]) for group in sorted(members)}


def needs_section(runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    """An entry point of `leadline.report_sections`."""
    axes = [needs_axes(run.needs) for run in runs]
    if not any(axes):
        return None
    if len(runs) > 1:
        return ReportSection(TITLE, (SectionText(NOTE), _side_by_side(axes, names)))
    gap = span_gap(axes[0])
    values, expected = [_values(axis) for axis in axes[0]], gap is None or gap.low <= 0
    return ReportSection(TITLE, tuple(_parts(axes[0])), values, link="Needs", page_only=expected)


def _parts(axes: Sequence[NeedsAxis]) -> Iterator[SectionPart]:
    if sentence := format_strongest(axes):
        yield SectionText(sentence)
    yield SectionText(NOTE)
    rows = []
    for axis in axes:
        labels, means = axis.labels, list(axis.means.values())
        ends = (f"{labels[0]}: {_format_estimate(means[0])}", f"{labels[-1]}: {_format_estimate(means[-1])}")
        rows.append((AXES[axis.name], _format_concordance(axis.concordance), *ends))
    yield TextTable("", ("quantity", "concordance", "score where least", "score where most"), rows)
    yield SectionFigure("needs", lambda narrow: _figure(axes, narrow))


def _figure(axes: Sequence[NeedsAxis], narrow: bool) -> Figure:
    from leadline.report.charts.panels import CurvePanel, panel_figure  # altair

    panels = []
    for axis in axes:
        title = AXES[axis.name]
        means = dict(zip(axis.labels, axis.means.values(), strict=True))
        unit = "pieces" if axis.name == "pieces" else "tokens"
        panels.append(CurvePanel(title, unit, axis.labels, {title: means}))
    note = "Score by total length, and by what the questions need. Octaves: 1k+ is 1k to 2k. Bands: 95% intervals."
    return panel_figure(panels, note, "Accuracy against what a question needs", narrow=narrow)


def span_gap(axes: Sequence[NeedsAxis]) -> Interval | None:
    """The concordance of wrong answers with the span of the evidence, less that with the total length; None where
    either does not vary."""
    known = {axis.name: axis.concordance for axis in axes if axis.concordance is not None}
    length, span = known.get("length"), known.get("span")
    return None if length is None or span is None else span.minus(length)


def format_strongest(axes: Sequence[NeedsAxis]) -> str:
    """Whether wrong answers follow a quantity of the evidence more than the length, or less, as far as that is known;
    empty without both."""
    known = {axis.name: axis.concordance for axis in axes if axis.concordance is not None}
    length, span, gap = known.get("length"), known.get("span"), span_gap(axes)
    if length is None or span is None or gap is None:
        return ""
    numbers = (
        f"(concordance {format_percent(span.value)}% and {format_percent(length.value)}%, "
        f"difference {100 * gap.low:+.0f} to {100 * gap.high:+.0f} points)"
    )
    if gap.low > 0:
        return f"Wrong answers follow the span of the evidence more than the total length {numbers}."
    if gap.high < 0:
        return f"Wrong answers follow the total length more than the span of the evidence {numbers}."
    return f"Whether wrong answers follow the total length or the span of the evidence is not decided {numbers}."


def _format_concordance(concordance: Concordance | None) -> str:
    if concordance is None:
        return "all right or all wrong"
    return f"{format_percent(concordance.value)}%  {format_percent_range(concordance.interval)}"


def _format_estimate(estimate: Estimate) -> str:
    return f"{format_percent(estimate.mean)}%  {format_percent_range(estimate.interval)}"


def _side_by_side(axes: Sequence[Sequence[NeedsAxis]], names: Sequence[str]) -> TextTable:
    rows = []
    for name, own_axes in zip(names, axes, strict=True):
        by_axis = {axis.name: axis.concordance for axis in own_axes}
        rows.append((sanitise(name, 60), *(_format_concordance(by_axis[a]) if a in by_axis else "" for a in AXES)))
    return TextTable("", ("run", *AXES.values()), rows)


def _values(axis: NeedsAxis) -> dict[str, Any]:
    concordance = axis.concordance
    concordance_as_json = concordance and {
        "value": concordance.value,
        "low": concordance.interval.low,
        "high": concordance.interval.high,
    }
    return {
        "quantity": axis.name,
        "concordance": concordance_as_json,
        "scores": [{"from": low, **(estimate_values(estimate) or {})} for low, estimate in axis.means.items()],
    }
