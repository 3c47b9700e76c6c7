"""`leadline correlate`: does a cheap score rank models as an expensive one does, and one task as another?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.stats.correlate import Correlation, Method
    from leadline.stats.task_correlation import Point, TaskCorrelation


# --- `leadline correlate --tasks`: which tasks measure the same, over several models.


def correlate_tasks(
    files: Sequence[Path], *, each: str, resamples: int, seed: int, figure: Path | None, as_json: bool
) -> None:
    """From runs of several models, or one table of published scores."""
    from leadline.cli.output import print_json, warn
    from leadline.report.charts.correlation import task_tree
    from leadline.report.charts.render import write_figure
    from leadline.stats.task_correlation import over_lengths, read_task_table, task_correlation, task_scores

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
    _show_tasks(found)
    for path in written:
        typer.echo(path)


def _from_runs(folders: Sequence[Path]) -> dict[Point, dict[str, float]]:
    """A point for each run and length. Runs of one model under another name each."""
    from leadline.core.errors import UsageError
    from leadline.report.comparison import titles
    from leadline.results.run import load_run

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


def _show_tasks(found: TaskCorrelation) -> None:
    from leadline.cli.output import print_table
    from leadline.report.charts.correlation import format_correlation

    numbers = [str(n) for n in range(1, len(found.tasks) + 1)]
    rows = [
        (numbers[i], task, *(format_correlation(value) if i != j else "" for j, value in enumerate(found.matrix[i])))
        for i, task in enumerate(found.tasks)
    ]
    print_table(rows, ("", "task", *numbers), right=frozenset({0, *range(2, len(numbers) + 2)}))
    typer.echo()
    typer.echo(f"Spearman over {found.models} models, {found.points} points; 95% intervals are in --json")
    for number, cluster in enumerate(found.clusters, 1):
        typer.echo(f"cluster {number}: {', '.join(cluster)}")


# --- `leadline correlate`: does a cheap score rank models as an expensive one does, and one task as anoth


def correlate(
    files: Annotated[
        list[Path],
        typer.Argument(
            help='What `leadline submit` wrote, and the scores to agree with: {"model": score}, CSV, or a submission. '
            "With --tasks: runs of several models, or a CSV table of published scores.",
            metavar="SUBMISSION TARGETS | RUN...",
        ),
    ],
    tasks: Annotated[
        bool, typer.Option("--tasks", help="Correlate tasks over models instead: which of them measure the same.")
    ] = False,
    each: Annotated[
        Literal["length", "model"],
        typer.Option(help="With --tasks: a point for each length of a model, or its mean."),
    ] = "length",
    metric: Annotated[str, typer.Option(help="Of the submission; its first when not given.")] = "",
    target_metric: Annotated[str, typer.Option(help="Of the targets, where they are a submission.")] = "",
    centre: Annotated[
        Literal["median", "mcd"], typer.Option(help="What outliers are far from: medians, or the densest half.")
    ] = "median",
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap over models.")] = 5000,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Where the figure goes, less its ending.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead.")] = False,
) -> None:
    """Correlate scores of models: Spearman, Pearson, Kendall and skipped Spearman, with bootstrap intervals."""

    from leadline.core.errors import UsageError

    if tasks:
        correlate_tasks(files, each=each, resamples=resamples, seed=seed, figure=figure, as_json=json)
        return
    if len(files) != 2:
        raise UsageError(
            f"{len(files)} file{'s' if len(files) > 1 else ''} given, and two are needed",
            where="correlate",
            fix="give a submission and its targets, or add --tasks to correlate the tasks of runs",
        )
    _correlate_scores(files[0], files[1], metric, target_metric, centre, resamples, seed, figure, as_json=json)


def _correlate_scores(
    submission: Path,
    targets: Path,
    metric: str,
    target_metric: str,
    centre: Literal["median", "mcd"],
    resamples: int,
    seed: int,
    figure: Path | None,
    *,
    as_json: bool,
) -> None:
    from leadline.cli.output import print_json, warn
    from leadline.core.errors import UsageError
    from leadline.report.charts.correlation import scatter
    from leadline.report.charts.render import write_figure
    from leadline.stats.correlate import correlations
    from leadline.store.submissions import read_submission, read_targets, scores_of

    made = read_submission(submission)
    name = metric or made.metric
    proxy, target = scores_of(made, name), read_targets(targets, target_metric)
    for entry in made.entries:
        if entry.name not in proxy:
            warn(f"{entry.name} has no {name}: {entry.error or 'not measured'}")
    both = [model for model in proxy if model in target]
    for model in sorted({*proxy, *target} - {*both}):
        warn(f"{model} is left out: it has no {'target' if model in proxy else name}")
    xs, ys = [proxy[m] for m in both], [target[m] for m in both]
    for scores, whose in ((xs, f"the same {name}"), (ys, "the same target")):
        if len(scores) > 1 and len(set(scores)) == 1:
            fix = "give models that differ, or another score with --metric or --target-metric"
            raise UsageError(
                f"all {len(scores)} models have {whose}: there is nothing to rank", where="correlate", fix=fix
            )
    found = correlations(xs, ys, resamples=resamples, seed=seed, centre=centre)
    lower = next((e.scores[name].better for e in made.entries if name in e.scores), "higher") == "lower"
    shown = f"{name}, turned round: lower is better" if lower else name
    drawn = scatter(both, xs, ys, found, proxy_name=shown, target_name=target_metric or targets.stem)
    written = write_figure(drawn, figure or submission.with_name(f"{submission.stem}-{name}"))
    if as_json:
        print_json(_as_json(name, lower, both, xs, ys, found, centre) | {"figures": written})
        return
    _show(found, both, lower, name)
    for path in written:
        typer.echo(path)


def _as_json(
    name: str,
    lower: bool,
    models: Sequence[str],
    xs: Sequence[float],
    ys: Sequence[float],
    found: dict[Method, Correlation],
    centre: str,
) -> dict[str, Any]:
    first = next(iter(found.values()))
    return {
        "metric": name,
        "turned_round": lower,
        "models": [{"name": m, "proxy": x, "target": y} for m, x, y in zip(models, xs, ys, strict=True)],
        "outliers": [models[i] for i in found["skipped spearman"].outliers],
        "centre": centre,
        "resamples": first.resamples,
        "seed": first.seed,
        "correlations": {
            method: {"value": one.value, "low": one.interval.low, "high": one.interval.high}
            for method, one in found.items()
        },
    }


def _show(found: dict[Method, Correlation], models: Sequence[str], lower: bool, name: str) -> None:
    from leadline.cli.output import print_table

    rows = [
        (method, f"{one.value:.3f}", f"{one.interval.low:.3f} to {one.interval.high:.3f}")
        for method, one in found.items()
    ]
    print_table(rows, ("correlation", "value", "95% interval"), right=frozenset({1}))
    first = next(iter(found.values()))
    typer.echo()
    typer.echo(f"{first.n} models, {first.resamples:,} resamples of models, seed {first.seed}")
    if lower:
        typer.echo(f"{name} is better when lower, and was turned round")
    if outliers := [models[i] for i in found["skipped spearman"].outliers]:
        typer.echo(f"outliers: {', '.join(outliers)}")
