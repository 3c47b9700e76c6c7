"""`leadline score`: grade prediction files of published benchmarks. `leadline summarize`: published scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from leadline.console.output import (
    DEFAULT_THRESHOLD,
    ThresholdOption,
    echo,
    print_json,
    print_table,
    threshold_share,
    warn,
)
from leadline.core.errors import SourceError, UsageError
from leadline.core.format import format_length
from leadline.features.published.grade import (
    GradedTask,
    PublishedScore,
    grade,
    grade_logs,
    grade_published,
)
from leadline.features.published.harness_logs import find_harness_logs
from leadline.features.published.prediction_files import Benchmark, read_prediction_files, recognise
from leadline.features.published.results import PrintedScore, PrintedTable, read_printed_table
from leadline.features.published.write_back import write_scores_back
from leadline.results.score_files import RowSummary, ScoreRow, mean_of_tasks, read_table, summarise
from leadline.scorers.overlap import EditBackend
from leadline.stats.intervals import Estimate, Interval
from leadline.stats.ruler_summary import ranks
from leadline.store.ruler_files import find_predictions


def score(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE", help="Prediction files, such as pred/TASK.jsonl, or their folders.")
    ],
    benchmark: Annotated[
        Literal["ruler", "longbench", "longbench-e", "longbench-v2", "infinitebench", "babilong"] | None,
        typer.Option(
            "--as",
            help="The benchmark that the predictions answer, and by whose rules they are graded. "
            "[default: recognised by the fields of the first line]",
            show_default=False,
        ),
    ] = None,
    code_metric: Annotated[
        Literal["difflib", "levenshtein"],
        typer.Option(help="LongBench: the program behind fuzzywuzzy's similarity of code. Published tables have both."),
    ] = "difflib",
    compensated: Annotated[
        bool, typer.Option("--compensated", help="LongBench v2: an answer without a choice counts 0.25.")
    ] = False,
    fine_bins: Annotated[
        bool, typer.Option("--fine-bins", help="LongBench-E: bins up to 32k+ instead of 8k+.")
    ] = False,
    data: Annotated[
        Path | None,
        typer.Option(help="The benchmark's own data: a prediction for a sample that is not in them is an error."),
    ] = None,
    write_back: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help="Inspect logs: write our scores for Inspect's scorer `precomputed_scores`; several logs have a "
            "FILE-LOG.jsonl each.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Grade prediction files: the benchmark's own score, and a stricter one where there is one, with 95% intervals.

    Logs of other harnesses are recognised: samples_TASK_DATE.jsonl of lm-evaluation-harness, and Inspect's .eval.
    """
    if benchmark is None:
        benchmark = recognise(files) or "ruler"
        if benchmark != "ruler":
            warn(f"graded as {benchmark}, by the fields of the first line; --as chooses another")
    if benchmark != "ruler":
        _score_published(
            benchmark, files, data, code_metric=code_metric, compensated=compensated, fine_bins=fine_bins, json=json
        )
        return
    if data is not None:
        raise UsageError("RULER has no data file to check", where="--data", fix="leave out --data")
    found = find_harness_logs(files)
    logs = found.logs if write_back is not None else found.all_read()
    for note in dict.fromkeys(note for log in logs for note in log.notes):
        warn(note)
    unwritten = write_scores_back(found, write_back) if write_back is not None else None
    if unwritten is not None and not any(task.answers for log in logs for task in log.tasks):
        raise unwritten
    graded = grade_logs(logs) if logs else grade(find_predictions(files))
    if not graded:
        raise SourceError("no predictions found", where=", ".join(map(str, files)), fix="give pred/TASK.jsonl files")
    mean = _mean(graded)
    if json:
        print_json({"tasks": [_as_json(g) for g in graded], "mean": _averages_as_json(mean) if mean else None})
    else:
        _show_graded(graded, mean)
    if unwritten is not None:
        raise unwritten


def _score_published(
    benchmark: Benchmark,
    files: list[Path],
    data: Path | None,
    *,
    code_metric: EditBackend,
    compensated: bool,
    fine_bins: bool,
    json: bool,
) -> None:
    read = read_prediction_files(benchmark, files, data=data)
    for note in read.notes:
        warn(note)
    scores = grade_published(benchmark, read.answers, backend=code_metric, compensated=compensated, fine_bins=fine_bins)
    means = _published_means(scores)
    if json:
        rows = [
            {"task": s.task, "group": s.group, "metric": s.metric, "samples": s.official.n, "score": s.score}
            | {"official": _estimate_as_json(s.official), "strict": _estimate_as_json(s.strict) if s.strict else None}
            for s in scores
        ]
        print_json({"benchmark": benchmark, "tasks": rows, "means": means, "notes": read.notes})
        return
    table = [
        (
            s.task,
            s.group or "all",
            str(s.official.n),
            s.metric,
            f"{s.score:g}",
            _range(s.official),
            *((f"{100 * s.strict.mean:.2f}", _range(s.strict)) if s.strict else ("-", "-")),
        )
        for s in scores
    ]
    header = ("task", "group", "samples", "metric", "score", "95 %", "strict", "95 %")
    print_table(table, header, right=frozenset({2, 4, 5, 6, 7}))
    for group, value in means.items():
        echo(f"mean of tasks{f', {group}' if group else ''}: {value:.2f}")


def _published_means(graded: list[PublishedScore]) -> dict[str, float]:
    """By group, where several tasks have it: the mean of the published scores, every task counted once."""
    groups: dict[str, list[float]] = {}
    for s in graded:
        groups.setdefault(s.group, []).append(s.score)
    return {group: sum(scores) / len(scores) for group, scores in groups.items() if len(scores) > 1}


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


def _averages_as_json(summary: RowSummary) -> dict[str, Any]:
    return {
        "scores": {str(length): score for length, score in sorted(summary.row.scores.items())},
        "average": summary.averages.average,
        "wavg_inc": summary.averages.increasing,
        "wavg_dec": summary.averages.decreasing,
        "effective": str(summary.effective),
        "effective_own": str(summary.effective_own),
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
    echo()
    for length, value in mean.row.scores.items():
        echo(f"{mean.row.name} at {format_length(length)}: {value:.2f}")
    averages = mean.averages
    echo(f"average {averages.average:.2f}, wAvg (inc) {averages.increasing:.2f}, wAvg (dec) {averages.decreasing:.2f}")
    echo(f"effective length: {mean.effective} above {DEFAULT_THRESHOLD}, {mean.effective_own} at 85 % of its own")


def _range(estimate: Estimate) -> str:
    return f"{100 * estimate.interval.low:.1f}-{100 * estimate.interval.high:.1f}"


# --- leadline summarize


def summarize(
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="CSV file with one row per model or task and one column per length; or scores by task of LongBench, "
            "LongBench v2 or InfiniteBench, also as result.json.",
        ),
    ],
    threshold: ThresholdOption = DEFAULT_THRESHOLD,
    share: Annotated[
        float, typer.Option(min=0, max=100, help="Second criterion: percent of the row's score at its shortest length.")
    ] = 85.0,
    samples: Annotated[
        int | None, typer.Option(min=1, help="Samples behind each score by task. [default: those of the benchmark]")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Summarize published scores: by length as RULER does (average, wAvg, effective length); by task, error bars."""
    printed = read_printed_table(table, samples)
    if printed is not None:
        _show_printed(printed, json=json)
        return
    threshold_share(threshold)
    read = read_table(table)
    rows = [*read.rows, mean_of_tasks(read.rows)] if read.of_tasks else list(read.rows)
    summaries = [summarise(row, threshold=threshold, share=share / 100) for row in rows]
    ranking = [] if read.of_tasks or len(summaries) == 1 else _rankings(summaries)
    if json:
        rows_as_json = [_summary_as_json(summary) for summary in summaries]
        print_json(
            [row_as_json | ranks for row_as_json, ranks in zip(rows_as_json, ranking, strict=True)]
            if ranking
            else rows_as_json
        )
        return
    header = (
        "",
        *map(format_length, read.lengths),
        "avg",
        "wAvg inc",
        "wAvg dec",
        f">{threshold:g}",
        f"{share:g}% of own",
        *(("rank inc", "rank dec") if ranking else ()),
    )
    cells = [
        (
            s.row.name,
            *(f"{s.row.scores[n]:.1f}" if n in s.row.scores else "-" for n in read.lengths),
            *(f"{v:.1f}" for v in (s.averages.average, s.averages.increasing, s.averages.decreasing)),
            str(s.effective),
            str(s.effective_own),
            *(map(str, ranking[number].values()) if ranking else ()),
        )
        for number, s in enumerate(summaries)
    ]
    print_table(cells, header, right=frozenset(range(1, len(header))))
    for summary in summaries:
        for disagreement in summary.disagreements:
            warn(f"{summary.row.name}: {disagreement}")


def _show_printed(table: PrintedTable, *, json: bool) -> None:
    """Scores of tasks with the error bars that follow from the number of samples."""
    means = {model: table.mean(model) for model in table.models}
    if json:
        rows = [
            {
                "model": score.model,
                "task": score.task,
                "metric": score.metric,
                "printed": score.printed,
                "score": score.score,
            }
            | {"samples": score.samples, **_bounds(score.interval)}
            for score in table.scores
        ]
        values = {model: {"mean": mean[0], **_bounds(mean[1])} for model, mean in means.items() if mean}
        print_json({"benchmark": table.benchmark, "scores": rows, "means": values, "notes": table.notes()})
        return
    cells = {(score.task, score.model): score for score in table.scores}
    lines = []
    for task in table.tasks:
        scores = [cells.get((task, model)) for model in table.models]
        n = next((str(score.samples) for score in scores if score and score.samples), "-")
        lines.append((task, n, *(_printed(score) for score in scores)))
    if any(means.values()):
        shown = (f"{m[0]:.2f} ({100 * m[1].low:.1f}-{100 * m[1].high:.1f})" if m else "-" for m in means.values())
        lines.append((f"mean of {len(table.tasks)} tasks", "", *shown))
    print_table(lines, (table.benchmark, "samples", *table.models), right=frozenset(range(1, len(table.models) + 2)))
    echo("Scores in percent with 95 % intervals.")
    for note in table.notes():
        warn(note)


def _printed(score: PrintedScore | None) -> str:
    if score is None:
        return "-"
    if score.interval is None or score.score is None:
        return score.printed
    return f"{score.score:g} ({100 * score.interval.low:.1f}-{100 * score.interval.high:.1f})"


def _bounds(interval: Interval | None) -> dict[str, float | None]:
    return {
        "low": None if interval is None else 100 * interval.low,
        "high": None if interval is None else 100 * interval.high,
    }


def _rankings(summaries: Sequence[RowSummary]) -> list[dict[str, int]]:
    """The ranks of models by both weighted averages, as RULER's table has them."""
    rising, falling = (
        ranks([round(getattr(s.averages, name), 1) for s in summaries]) for name in ("increasing", "decreasing")
    )
    return [{"rank_inc": up, "rank_dec": down} for up, down in zip(rising, falling, strict=True)]


def _summary_as_json(summary: RowSummary) -> dict[str, Any]:
    return {
        "name": summary.row.name,
        **_averages_as_json(summary),
        "effective_tokens": summary.effective.length,
        "effective_own_tokens": summary.effective_own.length,
        "consistent": not summary.disagreements,
        "disagreements": list(summary.disagreements),
    }
