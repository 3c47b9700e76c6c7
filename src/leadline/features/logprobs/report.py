"""Log-probability metrics in a report: a table of one run, a table a metric of several, curves, and JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from leadline.core.format import NO_NUMBER, format_length, format_percent, format_span, sanitise
from leadline.report.sections import ReportSection, SectionFigure, SectionPart, SectionText
from leadline.report.text_table import TextCell, TextTable
from leadline.results.run import MetricName, Run
from leadline.stats.intervals import Estimate

if TYPE_CHECKING:
    from leadline.report.charts.theme import Figure

ByLength = Mapping[int, Estimate]
TITLE = "Log-probabilities over length"
PERPLEXITY_NOTE = (
    "Perplexity is an average over all tokens, few of which need the distant context: it can stay flat while accuracy "
    "falls."
)


def logprob_section(runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    """An entry point of `leadline.report_sections`."""
    if not any(run.logprobs for run in runs):
        return None
    if len(runs) > 1:
        return ReportSection(TITLE, tuple(_tables_by_metric(runs, names)))
    (run,) = runs
    return ReportSection(TITLE, tuple(_parts(run)), logprob_values(run), link="Log-probabilities")


def _parts(run: Run) -> Iterator[SectionPart]:
    yield SectionText(PERPLEXITY_NOTE)
    yield metric_table(run)
    yield SectionFigure("log-probabilities", lambda narrow: _curves(run, narrow), is_main=not run.table.tasks)
    if run.logprobs.by_distance:
        yield SectionText("By distance back to the answer", "heading")
        yield SectionFigure("log-probabilities-by-distance", lambda narrow: _distances(run, narrow))
    if run.table.tasks and metric_by_length(run, "mean_nll"):
        sentence = format_perplexity_and_retrieval(run)
        yield SectionText("Perplexity beside retrieval", "heading")
        if sentence:
            yield SectionText(sentence)
        yield SectionFigure("trap", lambda narrow: perplexity_and_retrieval(run), is_main=True)


def _curves(run: Run, narrow: bool) -> Figure:
    from leadline.features.logprobs.charts import logprob_curves  # altair

    return logprob_curves(run, narrow=narrow)


def _distances(run: Run, narrow: bool) -> Figure:
    from leadline.features.logprobs.charts import distance_curves  # altair

    return distance_curves(run, narrow=narrow)


def perplexity_and_retrieval(run: Run) -> Figure:
    from leadline.features.logprobs.charts import perplexity_figure  # altair

    accuracy = {n: t.estimate for n, t in sorted(run.table.by_length.items()) if t.estimate is not None}
    return perplexity_figure(metric_by_length(run, "mean_nll"), accuracy, metric_by_length(run, "retrieval_gain"))


def metric_table(run: Run) -> TextTable:
    """Every metric at every length."""
    names = [metric.name for metric in run.logprobs.estimates]
    rows = []
    for metric, lengths in run.logprobs.estimates.items():
        name = sanitise(metric.name if names.count(metric.name) == 1 else f"{metric.task}: {metric.name}", 48)
        for length, estimate in lengths.items():
            interval = format_span(estimate.interval.low, estimate.interval.high)
            numbers = (format_length(length), str(estimate.n_clusters), f"{estimate.mean:.4g}", interval)
            rows.append((name, sanitise(metric.unit, 60), *numbers))
    return TextTable("", ("metric", "unit", "length", "docs", "mean", "95% interval"), rows, names=2)


def _tables_by_metric(runs: Sequence[Run], names: Sequence[str]) -> Iterator[TextTable]:
    """One for each metric, since units differ."""
    for metric in dict.fromkeys(metric for run in runs for metric in run.logprobs.estimates):
        estimates = [run.logprobs.estimates.get(metric, {}) for run in runs]
        lengths = sorted({length for by_length in estimates for length in by_length})
        rows: list[tuple[str | TextCell, ...]] = [
            (sanitise(name, 60), *(_estimate_cell(by_length.get(length)) for length in lengths))
            for name, by_length in zip(names, estimates, strict=True)
        ]
        yield TextTable("", (_metric_title(metric), *map(format_length, lengths)), rows)


def _metric_title(metric: MetricName) -> str:
    return sanitise(f"{metric.task}: {metric.name}" + (f", {metric.unit}" if metric.unit else ""), 60)


def _estimate_cell(estimate: Estimate | None) -> TextCell:
    if estimate is None:
        return TextCell(NO_NUMBER)
    return TextCell(f"{estimate.mean:.4g}", format_span(estimate.interval.low, estimate.interval.high))


def logprob_values(run: Run) -> list[dict[str, Any]]:
    """For JSON. The ends of an interval over one document do not exist."""
    return [
        {
            "task": metric.task,
            "metric": metric.name,
            "unit": metric.unit,
            "lengths": [{"length": n, **_estimate_values(estimate)} for n, estimate in by_length.items()],
            "distances": [
                {"distance": n, **_estimate_values(estimate)}
                for n, estimate in run.logprobs.by_distance.get(metric, {}).items()
            ],
        }
        for metric, by_length in run.logprobs.estimates.items()
    ]


def _estimate_values(estimate: Estimate) -> dict[str, Any]:
    ends = {"low": estimate.interval.low, "high": estimate.interval.high}
    finite = {name: end if math.isfinite(end) else None for name, end in ends.items()}
    return {"mean": estimate.mean, **finite, "documents": estimate.n_clusters}


# --- perplexity beside retrieval ----------------------------------------------------------------


def metric_by_length(run: Run, name: str) -> ByLength:
    """A metric by length; where several tasks have it, that of the task with its name."""
    by_task = {m.task: lengths for m, lengths in run.logprobs.estimates.items() if m.name == name}
    return by_task.get(name) or next(iter(by_task.values()), {})


def format_perplexity_and_retrieval(run: Run) -> str:
    """Both changes in a sentence; empty unless accuracy falls by more than chance."""
    losses = metric_by_length(run, "mean_nll")
    known = {n: t.estimate for n, t in run.table.by_length.items() if t.estimate is not None and n in losses}
    if len(known) < 2:
        return ""
    short, long = min(known), max(known)
    if known[long].interval.high >= known[short].interval.low:
        return ""
    before, after = math.exp(losses[short].mean), math.exp(losses[long].mean)
    fell = f"{format_percent(known[short].mean)}% to {format_percent(known[long].mean)}%"
    return (
        f"From {format_length(short)} to {format_length(long)}, perplexity changes from {before:.3g} to {after:.3g} "
        f"({after / before - 1:+.0%}) while retrieval accuracy falls from {fell}."
    )
