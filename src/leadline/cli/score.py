"""`leadline score`: grade predictions made elsewhere, from RULER's own prediction files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from leadline.run.grade import GradedTask
    from leadline.stats.intervals import Estimate
    from leadline.stats.ruler_summary import RowSummary


# --- `leadline score`: grade predictions made elsewhere, from RULER's own prediction files.


def score(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="RULER's pred/TASK.jsonl, or folders that hold them.")
    ],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Grade RULER's own prediction files: its numbers, and stricter ones with intervals."""
    from leadline.cli.output import print_json
    from leadline.core.errors import SourceError
    from leadline.run.grade import grade
    from leadline.store.ruler_files import find_predictions

    graded = grade(find_predictions(files))
    if not graded:
        raise SourceError("the files hold no predictions", where=", ".join(map(str, files)))
    mean = _mean(graded)
    if json:
        print_json({"tasks": [_words(g) for g in graded], "mean": _mean_words(mean) if mean else None})
    else:
        _show(graded, mean)


def _mean(graded: list[GradedTask]) -> RowSummary | None:
    """The mean over tasks by length, where every task has every length."""
    from leadline.stats.ruler_summary import Row, mean_of_tasks, summarise

    tasks: dict[str, dict[int, float]] = {}
    for g in graded:
        if g.length is not None:
            tasks.setdefault(g.task, {})[g.length] = 100 * g.published.mean
    if len(tasks) < 2 or not set.intersection(*map(set, tasks.values())):
        return None
    return summarise(mean_of_tasks([Row(task, scores) for task, scores in tasks.items()]))


def _words(g: GradedTask) -> dict[str, Any]:
    return {
        "task": g.task,
        "length": g.length,
        "samples": g.published.n,
        "metric": g.metric,
        "score": g.score,
        "nulls": f"{g.nulls}/{g.published.n}",
        "ruler.v1": _estimate(g.published),
        "ruler.strict": _estimate(g.strict),
    }


def _estimate(estimate: Estimate) -> dict[str, float]:
    return {"mean": estimate.mean, "low": estimate.interval.low, "high": estimate.interval.high}


def _mean_words(mean: RowSummary) -> dict[str, Any]:
    return {
        "scores": {str(length): value for length, value in mean.row.scores.items()},
        "average": mean.averages.average,
        "wavg_inc": mean.averages.increasing,
        "wavg_dec": mean.averages.decreasing,
        "effective": mean.effective.words,
        "effective_own": mean.effective_own.words,
    }


def _show(graded: list[GradedTask], mean: RowSummary | None) -> None:
    from leadline.cli.output import print_table
    from leadline.stats.ruler_summary import length_words

    rows = [
        (
            g.task,
            "-" if g.length is None else length_words(g.length),
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
        typer.echo(f"{mean.row.name} at {length_words(length)}: {value:.2f}")
    averages = mean.averages
    typer.echo(
        f"average {averages.average:.2f}, wAvg (inc) {averages.increasing:.2f}, wAvg (dec) {averages.decreasing:.2f}"
    )
    typer.echo(f"effective length: {mean.effective.words} above 85.6, {mean.effective_own.words} at 85 % of its own")


def _range(estimate: Estimate) -> str:
    return f"{100 * estimate.interval.low:.1f}-{100 * estimate.interval.high:.1f}"


# --- `leadline summarize`: averages and effective lengths from a table of scores, and whether the table agrees.


def summarize(
    table: Annotated[Path, typer.Argument(help="A CSV file: a row for each model or task, a column for each length.")],
    threshold: Annotated[float, typer.Option(help="A length is effective when its score is above this.")] = 85.6,
    share: Annotated[float, typer.Option(min=0, max=100, help="Percent of a row's own shortest-length score.")] = 85.0,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Sum up published scores as RULER does: average, wAvg, effective length."""
    from leadline.cli.output import print_json
    from leadline.stats.ruler_summary import mean_of_tasks, read_table, summarise

    read = read_table(table)
    rows = [*read.rows, mean_of_tasks(read.rows)] if read.of_tasks else list(read.rows)
    found = [summarise(row, threshold=threshold, share=share / 100) for row in rows]
    if json:
        print_json([_table_words(summary) for summary in found])
    else:
        _show_table(found, read.lengths, threshold, share)


def _table_words(summary: RowSummary) -> dict[str, Any]:
    averages = summary.averages
    return {
        "name": summary.row.name,
        "scores": {str(length): score for length, score in sorted(summary.row.scores.items())},
        "average": averages.average,
        "wavg_inc": averages.increasing,
        "wavg_dec": averages.decreasing,
        "effective": summary.effective.words,
        "effective_tokens": summary.effective.length,
        "effective_own": summary.effective_own.words,
        "effective_own_tokens": summary.effective_own.length,
        "consistent": not summary.disagreements,
        "disagreements": list(summary.disagreements),
    }


def _show_table(found: list[RowSummary], lengths: tuple[int, ...], threshold: float, share: float) -> None:
    from leadline.cli.output import print_table, warn
    from leadline.stats.ruler_summary import length_words

    header = ("", *map(length_words, lengths), "avg", "wAvg inc", "wAvg dec", f">{threshold:g}", f"{share:g}% of own")
    rows = [
        (
            s.row.name,
            *(f"{s.row.scores[n]:.1f}" if n in s.row.scores else "-" for n in lengths),
            *(f"{v:.1f}" for v in (s.averages.average, s.averages.increasing, s.averages.decreasing)),
            s.effective.words,
            s.effective_own.words,
        )
        for s in found
    ]
    print_table(rows, header, right=frozenset(range(1, len(header))))
    for summary in found:
        for disagreement in summary.disagreements:
            warn(f"{summary.row.name}: {disagreement}")
