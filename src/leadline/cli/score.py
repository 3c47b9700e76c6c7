"""`leadline score` grades RULER's prediction files; `leadline summarize` summarizes tables of published scores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from leadline.cli.output import print_json, print_table, warn
from leadline.core.errors import SourceError
from leadline.core.format import format_length
from leadline.run.grade import GradedTask, grade
from leadline.stats.intervals import Estimate
from leadline.stats.ruler_summary import RowSummary, ScoreRow, mean_of_tasks, read_table, summarise
from leadline.store.ruler_files import find_predictions


def score(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="RULER's pred/TASK.jsonl files, or folders with them.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Grade RULER's prediction files: RULER's own score, and a stricter one, both with 95% intervals."""
    graded = grade(find_predictions(files))
    if not graded:
        raise SourceError("no predictions found", where=", ".join(map(str, files)), fix="give pred/TASK.jsonl files")
    mean = _mean(graded)
    if json:
        print_json({"tasks": [_as_json(g) for g in graded], "mean": _mean_as_json(mean) if mean else None})
    else:
        _show_graded(graded, mean)


def _mean(graded: list[GradedTask]) -> RowSummary | None:
    """The mean over tasks at the lengths that all tasks have."""
    tasks: dict[str, dict[int, float]] = {}
    for g in graded:
        if g.length is not None:
            tasks.setdefault(g.task, {})[g.length] = 100 * g.published.mean
    if len(tasks) < 2 or not set.intersection(*map(set, tasks.values())):
        return None
    return summarise(mean_of_tasks([ScoreRow(task, scores) for task, scores in tasks.items()]))


def _as_json(g: GradedTask) -> dict[str, Any]:
    return {
        "task": g.task,
        "length": g.length,
        "samples": g.published.n,
        "metric": g.metric,
        "score": g.score,
        "nulls": f"{g.nulls}/{g.published.n}",
        "ruler.v1": _estimate_as_json(g.published),
        "ruler.strict": _estimate_as_json(g.strict),
    }


def _estimate_as_json(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.mean, "low": estimate.interval.low, "high": estimate.interval.high}


def _mean_as_json(mean: RowSummary) -> dict[str, Any]:
    return {
        "scores": {str(length): value for length, value in mean.row.scores.items()},
        "average": mean.averages.average,
        "wavg_inc": mean.averages.increasing,
        "wavg_dec": mean.averages.decreasing,
        "effective": str(mean.effective),
        "effective_own": str(mean.effective_own),
    }


def _show_graded(graded: list[GradedTask], mean: RowSummary | None) -> None:
    rows = [
        (
            g.task,
            "-" if g.length is None else format_length(g.length),
            str(g.published.n),
            f"{g.score:.2f}",
            _range(g.published),
            f"{100 * g.strict.mean:.2f}",
            _range(g.strict),
            f"{g.nulls}/{g.published.n}",
        )
        for g in graded
    ]
    header = ("task", "length", "samples", "RULER", "95 %", "strict", "95 %", "nulls")
    print_table(rows, header, right=frozenset(range(1, 8)))
    if mean is None:
        return
    typer.echo()
    for length, value in mean.row.scores.items():
        typer.echo(f"{mean.row.name} at {format_length(length)}: {value:.2f}")
    averages = mean.averages
    typer.echo(
        f"average {averages.average:.2f}, wAvg (inc) {averages.increasing:.2f}, wAvg (dec) {averages.decreasing:.2f}"
    )
    typer.echo(f"effective length: {mean.effective} above 85.6, {mean.effective_own} at 85 % of its own")


def _range(estimate: Estimate) -> str:
    return f"{100 * estimate.interval.low:.1f}-{100 * estimate.interval.high:.1f}"


# --- leadline summarize


def summarize(
    table: Annotated[Path, typer.Argument(help="CSV file with one row per model or task and one column per length.")],
    threshold: Annotated[float, typer.Option(help="A length is effective if its score is above this.")] = 85.6,
    share: Annotated[
        float, typer.Option(min=0, max=100, help="Second criterion: percent of the row's score at its shortest length.")
    ] = 85.0,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Summarize a table of published scores as RULER does: average, wAvg, effective length."""
    read = read_table(table)
    rows = [*read.rows, mean_of_tasks(read.rows)] if read.of_tasks else list(read.rows)
    found = [summarise(row, threshold=threshold, share=share / 100) for row in rows]
    if json:
        print_json([_summary_as_json(summary) for summary in found])
        return
    header = (
        "",
        *map(format_length, read.lengths),
        "avg",
        "wAvg inc",
        "wAvg dec",
        f">{threshold:g}",
        f"{share:g}% of own",
    )
    cells = [
        (
            s.row.name,
            *(f"{s.row.scores[n]:.1f}" if n in s.row.scores else "-" for n in read.lengths),
            *(f"{v:.1f}" for v in (s.averages.average, s.averages.increasing, s.averages.decreasing)),
            str(s.effective),
            str(s.effective_own),
        )
        for s in found
    ]
    print_table(cells, header, right=frozenset(range(1, len(header))))
    for summary in found:
        for disagreement in summary.disagreements:
            warn(f"{summary.row.name}: {disagreement}")


def _summary_as_json(summary: RowSummary) -> dict[str, Any]:
    return {
        "name": summary.row.name,
        "scores": {str(length): score for length, score in sorted(summary.row.scores.items())},
        "average": summary.averages.average,
        "wavg_inc": summary.averages.increasing,
        "wavg_dec": summary.averages.decreasing,
        "effective": str(summary.effective),
        "effective_tokens": summary.effective.length,
        "effective_own": str(summary.effective_own),
        "effective_own_tokens": summary.effective_own.length,
        "consistent": not summary.disagreements,
        "disagreements": list(summary.disagreements),
    }
