"""`leadline correlate`: whether a cheap score ranks models as an expensive one does, and which tasks agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from leadline.console.output import echo, print_json, print_table, warn
from leadline.core.errors import UsageError
from leadline.core.format import format_count, format_length, format_span
from leadline.features.correlate.charts import format_correlation, scatter, task_tree
from leadline.features.correlate.correlation import (
    Correlation,
    Method,
    TaskCorrelation,
    correlations,
    over_lengths,
    task_correlation,
    task_scores,
)
from leadline.report.charts.render import write_figure
from leadline.report.comparison import titles
from leadline.results.run import load_run
from leadline.results.score_files import Point, read_task_table
from leadline.store.submissions import read_submission, scores_of


def correlate(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Two files of scores, the second to compare with: a submission of `leadline run --submission`, "
            '{"model": score}, or CSV with the columns name and score. '
            "With --tasks: runs of several models, or a CSV table of published scores.",
            metavar="SUBMISSION TARGETS | RUN...",
        ),
    ],
    tasks: Annotated[
        bool, typer.Option("--tasks", help="Correlate tasks over models instead, to see which measure the same.")
    ] = False,
    each: Annotated[
        Literal["length", "model"],
        typer.Option(help="With --tasks: one point per model and length, or one per model (its mean)."),
    ] = "length",
    metric: Annotated[str, typer.Option(help="Metric of the submission. [default: its first]")] = "",
    target_metric: Annotated[str, typer.Option(help="Metric of the targets, if they are a submission.")] = "",
    resamples: Annotated[int, typer.Option(min=100, max=1_000_000, help="Bootstrap resamples of the models.")] = 5000,
    seed: Annotated[int, typer.Option(help="Random seed of the bootstrap.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Path of the figure, without its suffix.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Correlate scores of models: Spearman, Pearson, Kendall and skipped Spearman, with bootstrap intervals."""
    if tasks:
        _correlate_tasks(files, each=each, resamples=resamples, seed=seed, figure=figure, as_json=json)
        return
    if len(files) != 2:
        raise UsageError(
            f"expected two files, got {len(files)}",
            where="correlate",
            fix="give a submission and its targets, or add --tasks to correlate the tasks of runs",
        )
    submission, targets = files
    scored = read_submission(submission)
    name = metric or scored.metric
    proxy, target = scores_of(scored, name), scores_of(read_submission(targets), target_metric)
    for entry in scored.entries:
        if entry.name not in proxy:
            warn(f"{entry.name} has no {name}: {entry.error or 'not measured'}")
    both = [model for model in proxy if model in target]
    for model in sorted({*proxy, *target} - {*both}):
        warn(f"{model} is left out: it has no {'target' if model in proxy else name}")
    xs, ys = [proxy[m] for m in both], [target[m] for m in both]
    for scores, whose in ((xs, name), (ys, "target")):
        if len(scores) > 1 and len(set(scores)) == 1:
            raise UsageError(
                f"all {len(scores)} models have the same {whose}, so they cannot be ranked",
                where="correlate",
                fix="give models that differ, or another score with --metric or --target-metric",
            )
    by_method = correlations(xs, ys, resamples=resamples, seed=seed)
    lower = next((e.scores[name].better for e in scored.entries if name in e.scores), "higher") == "lower"
    label = f"{name}, sign reversed: lower is better" if lower else name
    drawn = scatter(both, xs, ys, by_method, proxy_name=label, target_name=target_metric or targets.stem)
    written = write_figure(drawn, figure or submission.with_name(f"{submission.stem}-{name}"))
    outliers = [both[i] for i in by_method["skipped spearman"].outliers]
    if not json:
        _show_correlations(by_method, outliers)
        if lower:
            echo(f"{name} is better when lower; its sign was reversed")
        for path in written:
            echo(path)
        return
    print_json(
        {
            "metric": name,
            "turned_round": lower,
            "models": [{"name": m, "proxy": x, "target": y} for m, x, y in zip(both, xs, ys, strict=True)],
            "outliers": outliers,
            "centre": "median",
            "resamples": by_method["spearman"].resamples,
            "seed": by_method["spearman"].seed,
            "correlations": {
                method: {"value": correlation.value, "low": correlation.interval.low, "high": correlation.interval.high}
                for method, correlation in by_method.items()
            },
            "figures": written,
        }
    )


def _show_correlations(by_method: dict[Method, Correlation], outliers: Sequence[str]) -> None:
    rows = [
        (method, f"{correlation.value:.3f}", format_span(correlation.interval.low, correlation.interval.high, ".3f"))
        for method, correlation in by_method.items()
    ]
    print_table(rows, ("correlation", "value", "95% interval"), right=frozenset({1}))
    first = by_method["spearman"]
    echo(f"\n{first.n} models, {first.resamples:,} resamples of models, seed {first.seed}")
    if outliers:
        echo(f"outliers: {', '.join(outliers)}")


# --- --tasks: which tasks measure the same, over several models


def _correlate_tasks(
    files: Sequence[Path], *, each: str, resamples: int, seed: int, figure: Path | None, as_json: bool
) -> None:
    """From runs of several models, or from one table of published scores."""
    is_table = len(files) == 1 and files[0].is_file()
    scores = task_scores(read_task_table(files[0]) if is_table else _scores_of_runs(files))
    for model, length in scores.left_out:
        warn(f"{model}{f' at {format_length(length)}' if length else ''} is left out: it does not have every task")
    if each == "model" and scores.points:
        scores = over_lengths(scores)
    correlation = task_correlation(scores, resamples=resamples, seed=seed)
    written = write_figure(task_tree(correlation), figure or Path("task-correlation"))
    if as_json:
        print_json(
            {
                "tasks": list(correlation.tasks),
                "spearman": _matrix(correlation.matrix),
                "low": _matrix(correlation.low),
                "high": _matrix(correlation.high),
                "clusters": [list(cluster) for cluster in correlation.clusters],
                "merges": [
                    {"tasks": [correlation.tasks[i] for i in merge.tasks], "distance": merge.distance}
                    for merge in correlation.merges
                ],
                "cut": correlation.cut,
                "models": list(scores.models),
                "points": correlation.points,
                "each": each,
                "resamples": correlation.resamples,
                "seed": seed,
                "figures": written,
            }
        )
        return
    _show_tasks(correlation)
    for path in written:
        echo(path)


def _scores_of_runs(folders: Sequence[Path]) -> dict[Point, dict[str, float]]:
    """The mean score of each task, for each run and length."""
    runs = [load_run(folder) for folder in folders]
    modes = sorted({run.reading for run in runs})
    if len(modes) > 1:
        raise UsageError(
            f"the runs have different reading modes: {' and '.join(modes)}",
            where="correlate --tasks",
            fix="give runs of one reading mode; modes are never mixed",
        )
    scores: dict[Point, dict[str, float]] = {}
    for run, name in zip(runs, titles(runs), strict=True):
        for (task, length), tally in run.table.by_task_and_length.items():
            if tally.mean is not None:
                scores.setdefault((name, length), {})[task] = tally.mean
    return scores


def _matrix(matrix: Any) -> list[list[float | None]]:
    return [[None if value != value else round(float(value), 6) for value in row] for row in matrix]


def _show_tasks(correlation: TaskCorrelation) -> None:
    numbers = [str(n) for n in range(1, len(correlation.tasks) + 1)]
    rows = [
        (
            numbers[i],
            task,
            *(format_correlation(value) if i != j else "" for j, value in enumerate(correlation.matrix[i])),
        )
        for i, task in enumerate(correlation.tasks)
    ]
    print_table(rows, ("", "task", *numbers), right=frozenset({0, *range(2, len(numbers) + 2)}))
    echo(
        f"\nSpearman over {format_count(correlation.models, 'model')}, {format_count(correlation.points, 'point')}; "
        "--json has the 95% intervals"
    )
    for number, cluster in enumerate(correlation.clusters, 1):
        echo(f"cluster {number}: {', '.join(cluster)}")
