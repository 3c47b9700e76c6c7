"""`leadline correlate --tasks`: which tasks measure the same, over several models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.stats.task_correlation import Point, TaskCorrelation


def correlate_tasks(
    files: Sequence[Path], *, each: str, resamples: int, seed: int, figure: Path | None, as_json: bool
) -> None:
    """From runs of several models, or one table of published scores."""
    from leadline.cli.screen import print_json, warn
    from leadline.report.figures import write_figure
    from leadline.report.task_tree import task_tree
    from leadline.stats.task_correlation import over_lengths, task_correlation, task_scores
    from leadline.stats.task_table import read_task_table

    tables = [path for path in files if path.is_file()]
    read = read_task_table(tables[0]) if len(files) == 1 and tables else _from_runs(files)
    scores = task_scores(read)
    for model, length in scores.left_out:
        warn(f"{model}{f' at {length:,}' if length else ''} is left out: it does not have every task")
    if each == "model" and scores.points:
        scores = over_lengths(scores)
    found = task_correlation(scores, resamples=resamples, seed=seed)
    written = write_figure(task_tree(found), figure or Path("task-correlation"))
    if as_json:
        print_json(_words(found, scores.models, each, seed) | {"figures": written})
        return
    _show(found)
    for path in written:
        typer.echo(path)


def _from_runs(folders: Sequence[Path]) -> dict[Point, dict[str, float]]:
    """A point for each run and length. Runs of one model under another name each."""
    from leadline.core.errors import UsageError
    from leadline.report.comparison import titles
    from leadline.report.load import load_run

    runs = [load_run(folder) for folder in folders]
    modes = sorted({run.reading for run in runs})
    if len(modes) > 1:
        raise UsageError(
            f"runs are read {' and '.join(modes)}, and reading modes are never mixed",
            where="correlate --tasks",
            fix="give runs of one reading mode",
        )
    scores: dict[Point, dict[str, float]] = {}
    for run, name in zip(runs, titles(runs), strict=True):
        for (task, length), tally in run.table.by_task_and_length.items():
            if tally.mean is not None:
                scores.setdefault((name, length), {})[task] = tally.mean
    return scores


def _words(found: TaskCorrelation, models: Sequence[str], each: str, seed: int) -> dict[str, Any]:
    def rows(matrix: Any) -> list[list[float | None]]:
        return [[None if value != value else round(float(value), 6) for value in row] for row in matrix]

    return {
        "tasks": list(found.tasks),
        "spearman": rows(found.matrix),
        "low": rows(found.low),
        "high": rows(found.high),
        "clusters": [list(cluster) for cluster in found.clusters],
        "merges": [
            {"tasks": [found.tasks[i] for i in merge.tasks], "distance": merge.distance} for merge in found.merges
        ],
        "cut": found.cut,
        "models": list(models),
        "points": found.points,
        "each": each,
        "resamples": found.resamples,
        "seed": seed,
    }


def _show(found: TaskCorrelation) -> None:
    from leadline.cli.screen import print_table
    from leadline.report.task_tree import number_words

    numbers = [str(n) for n in range(1, len(found.tasks) + 1)]
    rows = [
        (numbers[i], task, *(number_words(value) if i != j else "" for j, value in enumerate(found.matrix[i])))
        for i, task in enumerate(found.tasks)
    ]
    print_table(rows, ("", "task", *numbers), right=frozenset({0, *range(2, len(numbers) + 2)}))
    typer.echo()
    typer.echo(f"Spearman over {found.models} models, {found.points} points; 95% intervals are in --json")
    for number, cluster in enumerate(found.clusters, 1):
        typer.echo(f"cluster {number}: {', '.join(cluster)}")
