"""What is shown when a run has ended: the table, the picture, the counts, and whether anything failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from leadline.cli.output import print_json, warn
from leadline.core.errors import FailedSamples, RenderError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from leadline.results.run import Run
    from leadline.run.summary import Summary


def finish(summary: Summary, *, as_json: bool, figure: bool = True, found: Mapping[str, str] | None = None) -> None:
    """Shows the result, then fails if samples failed: never hidden behind exit code 0."""
    from leadline.results.run import load_run

    run = load_run(summary.folder)
    if as_json:
        from leadline.results.summary import summary as table

        picture = _draw(run) if figure else None
        print_json(summary.as_json() | {"heatmap": picture, "report": table(run), "until": found})
    else:
        _show(run, summary, figure=figure)
        if found is not None:
            typer.secho(f"{found['outcome']}: {found['sentence'].removeprefix('undecided: ')}", bold=True)
            typer.echo(found["saving"])
    if summary.failed:
        raise failed_samples(summary)


def failed_samples(summary: Summary) -> FailedSamples:
    kinds = "; ".join(f"{count} {why}: {summary.messages[why]}" for why, count in summary.failures.most_common(3))
    return FailedSamples(
        f"{summary.failed:,} of {summary.planned:,} samples have no answer ({kinds})",
        where=str(summary.folder),
        fix="run the same command again: only these are asked",
    )


def _draw(run: Run) -> Path | None:
    """The main figure of a run. A figure that cannot be drawn is a warning: the run itself is complete."""
    from leadline.report.charts.heatmap import heatmap
    from leadline.report.charts.logprobs import has_perplexity_and_retrieval, logprob_curves, perplexity_and_retrieval
    from leadline.report.charts.render import write_figure

    if has_perplexity_and_retrieval(run) and run.table.tasks:
        name, figure = "trap", perplexity_and_retrieval(run)
    elif run.measures and not run.table.tasks:
        name, figure = "log-probabilities", logprob_curves(run)
    else:
        name, figure = "heatmap", heatmap(run)
    try:
        return write_figure(figure, run.folder / name, ["png"])[0]
    except RenderError as error:
        warn(f"no figure: {error.what}")
        return None


def _show(run: Run, summary: Summary, *, figure: bool) -> None:
    from rich.console import Console

    from leadline.report.terminal import show_run

    show_run(run, Console())
    typer.echo()
    typer.echo(f"samples   {summary.planned:,} planned, {summary.done:,} answered, {summary.failed:,} failed")
    if came_out := _answers_words(summary):
        typer.echo(f"answers   {came_out}")
    receipts = summary.receipts
    typer.echo(f"receipts  {receipts.ok:,} agree, {receipts.wrong:,} disagree, {receipts.absent:,} not given")
    typer.echo(f"records   {summary.folder}")
    picture = _draw(run) if figure else None  # after the results: drawing can fail
    if picture is not None:
        typer.echo(f"{'heatmap' if picture.stem == 'heatmap' else 'figure ':<9} {picture}")
        if picture.stem == "trap":
            from leadline.report.charts.logprobs import format_perplexity_and_retrieval

            typer.echo(format_perplexity_and_retrieval(run))
    if receipts.wrong:
        warn(
            f"the model's own token count differs from ours for {receipts.wrong:,} prompts, "
            f"by {receipts.worst:+,} at worst: lengths are not what they seem"
        )
    if truncated := summary.classes.get("input_truncated"):
        warn(f"{truncated:,} prompts were refused or cut short for their length")


def _answers_words(summary: Summary) -> str:
    """`80 correct, 12 distractor, 8 refused`: a zero that was refused is not one that was not found."""
    asked = {name: count for name, count in summary.classes.most_common() if name not in ("measured", "error")}
    first = {"correct": asked.get("correct", 0)} if asked else {}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in (first | asked).items())
