"""`leadline summarize`: averages and effective lengths from a table of scores, and whether the table agrees."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from leadline.stats.ruler_table import RowSummary


def summarize(
    table: Annotated[Path, typer.Argument(help="A CSV file: a row for each model or task, a column for each length.")],
    threshold: Annotated[float, typer.Option(help="A length is effective when its score is above this.")] = 85.6,
    share: Annotated[float, typer.Option(min=0, max=100, help="Percent of a row's own shortest-length score.")] = 85.0,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Sum up published scores as RULER does: average, wAvg, effective length."""
    from leadline.cli.screen import print_json
    from leadline.stats.ruler_table import mean_of_tasks, read_table, summarise

    read = read_table(table)
    rows = [*read.rows, mean_of_tasks(read.rows)] if read.of_tasks else list(read.rows)
    found = [summarise(row, threshold=threshold, share=share / 100) for row in rows]
    if json:
        print_json([_words(summary) for summary in found])
    else:
        _show(found, read.lengths, threshold, share)


def _words(summary: RowSummary) -> dict[str, Any]:
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


def _show(found: list[RowSummary], lengths: tuple[int, ...], threshold: float, share: float) -> None:
    from leadline.cli.screen import print_table, warn
    from leadline.stats.ruler_table import length_words

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
