"""What is shown when a run has ended: the table, the figure, the counts, and whether anything failed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer
from rich.console import Console

from leadline.cli.output import print_json, warn
from leadline.core.errors import FailedSamples, RenderError, RunStopped
from leadline.results.run import Run, Totals
from leadline.results.summary import summary, totals_values


def finish(run: Run, *, as_json: bool, figure: bool = True, found: Mapping[str, str] | None = None) -> None:
    """Shows the result, then raises FailedSamples if samples failed. `found` is what a stopping rule found."""
    if as_json:
        picture = _draw(run) if figure else None
        print_json(totals_values(run) | {"heatmap": picture, "report": summary(run), "until": found})
    else:
        _show(run, figure=figure)
        if found is not None:
            typer.secho(f"{found['outcome']}: {found['sentence']}", bold=True)
            typer.echo(found["saving"])
    if run.totals.failed > run.totals.failures["left_out"]:
        raise failed_samples(run)
    if run.totals.missing:
        raise RunStopped(
            f"{run.totals.missing:,} of {run.totals.planned:,} planned samples have no record",
            where=str(run.folder),
            fix="run the same command again: only these are asked",
        )


def failed_samples(run: Run) -> FailedSamples:
    totals = run.totals
    kinds = "; ".join(f"{count} {why}: {totals.messages[why]}" for why, count in totals.failures.most_common(3))
    fix = "run the same command again: only these are asked"
    if totals.truncated:
        fix = f"give the server a longer context, or ask shorter --lengths; then {fix}"
    answer = "valid answer" if totals.truncated else "answer"
    return FailedSamples(
        f"{totals.failed:,} of {totals.planned:,} samples have no {answer} ({kinds})",
        where=str(run.folder),
        fix=fix,
    )


def _draw(run: Run) -> Path | None:
    """The main figure of a run. A figure that cannot be drawn is a warning: the run itself is complete."""
    from leadline.report.charts.heatmap import heatmap  # altair
    from leadline.report.charts.logprobs import has_perplexity_and_retrieval, logprob_curves, perplexity_and_retrieval
    from leadline.report.charts.render import write_figure

    if has_perplexity_and_retrieval(run) and run.table.tasks:
        name, figure = "trap", perplexity_and_retrieval(run)
    elif run.logprobs and not run.table.tasks:
        name, figure = "log-probabilities", logprob_curves(run)
    else:
        name, figure = "heatmap", heatmap(run)
    try:
        return write_figure(figure, run.folder / name, ["png"])[0]
    except RenderError as error:
        warn(f"no figure: {error.what}")
        return None


def _show(run: Run, *, figure: bool) -> None:
    from leadline.report.terminal import receipt_notes, show_run

    show_run(run, Console())
    totals, receipts = run.totals, run.receipts
    typer.echo()
    typer.echo(f"samples   {totals.planned:,} planned, {totals.done:,} answered, {totals.failed:,} failed")
    if answers := _format_answers(totals):
        typer.echo(f"answers   {answers}")
    typer.echo(f"receipts  {receipts.equal:,} agree, {receipts.different:,} disagree, {receipts.not_given:,} not given")
    typer.echo(f"records   {run.folder}")
    picture = _draw(run) if figure else None  # after the results: drawing can fail
    if picture is not None:
        typer.echo(f"{'heatmap' if picture.stem == 'heatmap' else 'figure ':<9} {picture}")
        if picture.stem == "trap":
            from leadline.report.charts.logprobs import format_perplexity_and_retrieval  # altair

            typer.echo(format_perplexity_and_retrieval(run))
    if receipts.different:
        warn(
            f"the model's own token count differs from ours for {receipts.different:,} prompts, "
            f"by {receipts.largest_difference:+,} at worst; " + " ".join(receipt_notes(receipts))
        )
    if refused := totals.failures.get("context_length"):
        warn(f"{refused:,} prompts were refused for their length")


def _format_answers(totals: Totals) -> str:
    """`80 correct, 12 distractor, 8 refused`."""
    asked = {name: count for name, count in totals.classes.most_common() if name not in ("measured", "error")}
    first = {"correct": asked.get("correct", 0)} if asked else {}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in (first | asked).items())
