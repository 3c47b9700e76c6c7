"""What items lose inside a document, in a report: a table by length, a figure by depth, JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from leadline.core.format import (
    format_depth,
    format_length,
    format_percent,
    format_percent_range,
    format_tokens,
    sanitise,
)
from leadline.features.embed.loss import POINTS, ItemLoss, item_losses
from leadline.report.sections import ReportSection, SectionFigure, SectionPart, SectionText
from leadline.report.text_table import TextTable
from leadline.results.run import Run
from leadline.results.summary import estimate_values
from leadline.stats.intervals import Estimate

if TYPE_CHECKING:
    from leadline.report.charts.theme import Figure

TITLE = "Loss against the items alone"
NOTE = (
    "Points that the same items lose inside a document, against their score alone (length 0). Pairs are by item; "
    "intervals are 95% over items."
)


def embed_section(runs: Sequence[Run], names: Sequence[str]) -> ReportSection | None:
    """An entry point of `leadline.report_sections`."""
    losses_of_runs = [item_losses(run.table.samples, run.alone, run.table.failures) for run in runs]
    if not any(losses_of_runs):
        return None
    if len(runs) > 1:
        rows = [
            (sanitise(name, 60), loss.task, format_percent(loss.alone.mean) + "%", format_length_of_loss(loss))
            for name, losses in zip(names, losses_of_runs, strict=True)
            for loss in losses
        ]
        return ReportSection(TITLE, (SectionText(NOTE), TextTable("", ("run", "task", "alone", "lost"), rows, names=2)))
    return ReportSection(
        TITLE, tuple(_parts(losses_of_runs[0])), [_values(loss) for loss in losses_of_runs[0]], link="Loss"
    )


def _parts(losses: Sequence[ItemLoss]) -> Iterator[SectionPart]:
    for loss in losses:
        yield SectionText(f"{sanitise(loss.task, 60)}: {format_length_of_loss(loss)}.")
    yield SectionText(NOTE)
    for loss in losses:
        rows = [
            (
                format_length(length),
                _percent(loss.scores[length]),
                format_points(estimate),
                str(estimate.n_clusters),
            )
            for length, estimate in loss.by_length.items()
        ]
        rows.insert(0, ("0", _percent(loss.alone), "", str(loss.alone.n)))
        yield TextTable(sanitise(loss.task, 60), ("length", "score", "loss in points", "items"), rows)
        if loss.unpaired:
            yield SectionText(f"{loss.unpaired} answers are in no pair: they, or their item alone, have no score.")
    yield SectionFigure("loss", lambda narrow: _figure(losses, narrow))


def format_length_of_loss(loss: ItemLoss) -> str:
    """`5 points are lost at about 9k (surely between 4k and 32k)`, or the bounds that are known."""
    points, at = f"{100 * POINTS:.0f} points", loss.at
    measured = sorted(loss.by_length)
    if not measured:
        return "no item was answered both alone and in a document"
    if at.kept == measured[-1]:
        return f"less than {points} are lost up to {format_length(measured[-1])}"
    low = f"surely less up to {format_length(at.kept)}" if at.kept else "not surely less at any length"
    high = f"surely more at {format_length(at.lost)}" if at.lost else "not surely more at any length"
    if at.point is None:
        return f"the means lose less than {points} at every length ({low}, {high})"
    return f"{points} are lost at about {format_tokens(at.point)} ({low}, {high})"


def _figure(losses: Sequence[ItemLoss], narrow: bool) -> Figure:
    from leadline.report.charts.panels import CurvePanel, panel_figure  # altair

    panels = []
    for loss in losses:
        labels = [format_length(length) for length in loss.by_length]
        scores = {"0": loss.alone, **{format_length(n): score for n, score in loss.scores.items()}}
        panels.append(CurvePanel(f"{loss.task}: score", "length (0: alone)", ["0", *labels], {"score": scores}))
        series = {
            f"depth {format_depth(depth)}": {format_length(n): estimate for n, estimate in estimates.items()}
            for depth, estimates in loss.by_depth.items()
        }
        whole = {"all": {format_length(n): estimate for n, estimate in loss.by_length.items()}}
        title = f"{loss.task}: loss by depth of the item" if len(series) > 1 else f"{loss.task}: loss"
        panels.append(CurvePanel(title, "length", labels, series if len(series) > 1 else whole, difference=True))
    return panel_figure(panels, f"{NOTE} Below 0 is lost.", TITLE, narrow=narrow)


def _percent(estimate: Estimate) -> str:
    return f"{format_percent(estimate.mean)}%  {format_percent_range(estimate.interval)}"


def format_points(estimate: Estimate) -> str:
    """`-12 (-20 to -4)`."""
    low, high = estimate.interval.low, estimate.interval.high
    return f"{100 * estimate.mean:+.0f} ({100 * low:+.0f} to {100 * high:+.0f})"


def _values(loss: ItemLoss) -> dict[str, Any]:
    return {
        "task": loss.task,
        "alone": estimate_values(loss.alone),
        "points": 100 * POINTS,
        "lost_at": {"kept": loss.at.kept, "lost": loss.at.lost, "point": loss.at.point},
        "lengths": [
            {"length": n, "score": estimate_values(loss.scores[n]), "loss": estimate_values(estimate)}
            for n, estimate in loss.by_length.items()
        ],
        "depths": [
            {"depth": depth, "length": n, "loss": estimate_values(estimate)}
            for depth, estimates in loss.by_depth.items()
            for n, estimate in estimates.items()
        ],
        "unpaired": loss.unpaired,
    }
