"""`leadline run`: measure a model, or a list of models."""

from __future__ import annotations

import dataclasses
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.many_models import (
    IncludeModelOption,
    ModelsOption,
    ShardOption,
    finish_models,
    listed_models,
    measure_models,
    model_runs,
)
from leadline.cli.process import prepare_process
from leadline.console.options import (
    NAME_HELP,
    STEP_HELP,
    TRACKER_HELP,
    RunOptions,
    UntilOption,
    model_of,
    spec_of,
    suite_of,
    with_flags,
    with_rule,
)
from leadline.console.output import continue_if_unread, echo, print_json, show_money, warn
from leadline.console.progress import ProgressListener, SanitisingConsole
from leadline.console.serving import ServeOption, serving
from leadline.core.errors import FailedSamples, LeadlineError, RunStopped, UsageError
from leadline.core.money import format_money
from leadline.core.spec import Logging, Spec
from leadline.results.run import Run
from leadline.results.summary import totals_values
from leadline.results.totals import Totals, cache_warning, format_cache_use, format_seconds_saved
from leadline.results.verdict import effective_in, failures_fix, format_more
from leadline.run.measure import CheckModel, Measured, check_model, measure_spec


@with_flags
def run(
    flags: RunOptions,
    keep_prompts: Annotated[
        bool, typer.Option("--keep-prompts", help="Save every prompt in the run's folder.")
    ] = False,
    figure: Annotated[bool, typer.Option(help="Draw heatmap.png at the end.")] = True,
    checks: Annotated[
        bool, typer.Option(help="Check a server with about ten small requests first; `leadline doctor` has all checks.")
    ] = True,
    until: UntilOption = "",
    serve: ServeOption = "",
    base: Annotated[
        Path | None, typer.Option(metavar="RUN", help="With --until verdict: the run to compare with.")
    ] = None,
    gate: Annotated[
        str,
        typer.Option(
            metavar="RULES",
            help='With --until verdict: smallest accepted changes in points, such as "overall >= -1; task:* >= -3".',
        ),
    ] = "",
    log_to: Annotated[
        list[str] | None, typer.Option(help=f"Log the result at the end: {TRACKER_HELP}", metavar="TRACKER:DESTINATION")
    ] = None,
    step: Annotated[str | None, typer.Option(metavar="N|auto", help=f"With --log-to. {STEP_HELP} [default: 0]")] = None,
    run_name: Annotated[str, typer.Option(metavar="NAME", help=f"With --log-to. {NAME_HELP}", show_default=False)] = "",
    models: ModelsOption = None,
    include_model: IncludeModelOption = None,
    shard: ShardOption = "",
    submission: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.json", help="With a list of models: write their scores here, for `leadline correlate`."
        ),
    ] = None,
) -> None:
    """Measure a model, or a list of models. Run the same command again to continue an interrupted run.

    A list (--models, or `models` in the spec) gives one run per model in a common folder, and one page for all. With
    --ray a model runs as replicas on several GPUs, and several models run at the same time.
    """
    listed = listed_models(flags, models, shard, include_model)
    check = check_model if checks else None
    logging = _logging(log_to or [], step, run_name)
    if submission is not None and not listed:
        raise UsageError("--submission needs a list of models", where="--submission", fix="add --models FILE")
    if listed and serve:
        raise UsageError("one server cannot be a list of models", where="--serve", fix="give one --model")
    if listed:
        folder, runs = model_runs(flags, listed, until, logging)
        _refuse_unused_gate("", base, gate)
        prepare_process(*(run.spec for run in runs))
        results = measure_models(runs, keep_prompts=keep_prompts, check=check)
        finish_models(results, folder, as_json=flags.json_, page=figure, submission=submission, shard=shard)
        raise_first(error for result in results for error in result.step_errors)
        return
    with serving(serve, model_of(flags) if serve else "", flags.out) as served:
        spec = with_rule(spec_of(dataclasses.replace(flags, model=served) if serve else flags), until)
        if logging is not None:
            spec = spec.model_copy(update={"log": logging})
        _refuse_unused_gate(spec.until, base, gate)
        measured = measure_with_progress(
            spec, flags.out, suite=suite_of(flags), keep_prompts=keep_prompts, check=check, base=base, gate=gate
        )
    finish(measured, as_json=flags.json_, figure=figure)


def measure_with_progress(
    spec: Spec,
    out: Path | None,
    *,
    suite: str = "",
    keep_prompts: bool = False,
    check: CheckModel | None = None,
    base: Path | None = None,
    gate: str = "",
) -> Measured:
    """Measures one model, with its progress in the terminal."""
    prepare_process(spec)
    with ProgressListener(rule=bool(spec.until)) as listener:
        return measure_spec(
            spec, out, suite=suite, listen=listener, keep_prompts=keep_prompts, check=check, base=base, gate=gate
        )


def _refuse_unused_gate(until: str, base: Path | None, gate: str) -> None:
    """A gate that is not applied would look like one that was passed."""
    if (base or gate) and not until.strip().startswith("verdict"):
        raise UsageError(
            "no gate is applied at the end of this run",
            where="--gate" if gate else "--base",
            fix='add --until "verdict 0.95", or compare afterwards: leadline compare BASE RUN --gate ...',
        )


def _logging(trackers: Sequence[str], step: str | None, run_name: str) -> Logging | None:
    """The trackers of the command line; None where there are none, and those of the spec file count."""
    if trackers:
        return Logging(to=tuple(trackers), step=step or "0", run_name=run_name)
    if step is not None or run_name:
        raise UsageError(
            "this option has no effect without --log-to",
            where="--step" if step is not None else "--run-name",
            fix="add --log-to, for example --log-to tensorboard:logs, or use `leadline log` later",
        )
    return None


# --- what is shown when a run has ended


def finish(measured: Measured, *, as_json: bool, figure: bool = True, page: Path | None = None) -> None:
    """Shows the result, then raises if it is not complete or a step after the run failed. Names the page where there
    is one, else the command that writes it."""
    run, rule = measured.run, measured.rule
    stopping = {"outcome": rule.step.outcome, "sentence": rule.sentence, "saving": rule.saving} if rule else None
    if as_json:
        from leadline.report.sections import run_values

        picture = _draw(run) if figure else None
        print_json(totals_values(run) | {"heatmap": picture, "report": run_values(run), "until": stopping})
    else:
        _show(run, figure=figure)
        if stopping is not None:
            echo(f"{stopping['outcome']}: {stopping['sentence']}", bold=True)
            echo(stopping["saving"])
        if rule is not None and rule.used_up:
            echo(f"{rule.used_up:9} used up{_what_more_would_decide(measured)}")
        if page is not None:
            echo(f"page      {page}  # every answer; open it in a browser")
        else:
            _name_report_command(run)
    raise_if_incomplete(run)
    raise_first(measured.errors)


def _what_more_would_decide(measured: Measured) -> str:
    """`; about 3.40 usd more would settle the rest`, or in samples; empty where the length is known."""
    run, rule = measured.run, measured.rule
    effective = effective_in(run, run.table.counted)
    if rule is None or effective is None or not effective.open_lengths:
        return ""
    if rule.used_up == "budget" and rule.step.more and rule.step.spent and run.money:
        more = format_money(run.money * rule.step.more / rule.step.spent, run.tariff.currency if run.tariff else "")
        return f"; about {more} more would settle the rest: the same command with a higher --budget continues"
    return f"; {format_more(run, effective)}"


def _name_report_command(run: Run) -> None:
    program = "leadline" if shutil.which("leadline") else sys.argv[0]  # `make demo` does not change the PATH
    echo(f"next      {shlex.join([program, 'report', str(run.folder)])}  # a page with every answer")


def raise_first(errors: Iterable[LeadlineError]) -> None:
    """Raises the first error of the steps after a run, when its result has been shown."""
    for error in errors:
        raise error


def raise_if_incomplete(run: Run) -> None:
    """Raises what gives a run its exit code: failed samples, answers that are no measurement, samples not asked."""
    if run.totals.failed > run.totals.failures["left_out"]:
        raise _failed_samples(run)
    if problem := run.totals.answer_problem:
        raise FailedSamples(f"the model was not measured: {problem.what}", where=str(run.folder), fix=problem.fix)
    if run.totals.missing:
        raise RunStopped(
            f"{run.totals.missing:,} of {run.totals.planned:,} planned samples have no record",
            where=str(run.folder),
            fix="run the same command again: only these are asked",
        )


def _failed_samples(run: Run) -> FailedSamples:
    totals = run.totals
    kinds = "; ".join(f"{count} {why}: {totals.messages[why]}" for why, count in totals.failures.most_common(3))
    answer = "valid answer" if totals.truncated else "answer"
    return FailedSamples(
        f"{totals.failed:,} of {totals.planned:,} samples have no {answer} ({kinds})",
        where=str(run.folder),
        fix=failures_fix(run),
    )


def _draw(run: Run) -> Path | None:
    """The main figure of a run. A figure that cannot be drawn is a warning: the run itself is complete."""
    try:
        return _write_main_figure(run)
    except (LeadlineError, OSError, MemoryError, ImportError, RuntimeError) as error:  # RuntimeError: no more threads
        warn(f"no figure: {error.what if isinstance(error, LeadlineError) else error}")
        return None


def _write_main_figure(run: Run) -> Path:
    from leadline.report.charts.heatmap import heatmap  # altair
    from leadline.report.charts.render import write_figure
    from leadline.report.sections import main_figure

    chosen = main_figure(run)
    if chosen is None:
        return write_figure(heatmap(run), run.folder / "heatmap", ["png"])[0]
    return write_figure(chosen.draw(False), run.folder / chosen.name, ["png"])[0]


def _show(run: Run, *, figure: bool) -> None:
    from leadline.report.terminal import receipt_notes

    totals, receipts = run.totals, run.receipts
    with continue_if_unread():
        _show_results(run)
    picture = _draw(run) if figure else None  # after the results: drawing can fail
    if picture is not None:
        echo(f"{'heatmap' if picture.stem == 'heatmap' else 'figure ':<9} {picture}")
    if receipts.different:
        warn(
            f"the model's own token count differs from ours for {receipts.different:,} prompts, "
            f"by {receipts.largest_difference:+,} at worst; " + " ".join(receipt_notes(receipts))
        )
    if unused := cache_warning(totals.cache, run.manifest.fingerprints):
        warn(unused)
    if refused := totals.failures.get("context_length"):
        warn(f"{refused:,} prompts were refused for their length")


def _show_results(run: Run) -> None:
    from leadline.report.terminal import show_run

    show_run(run, SanitisingConsole())
    totals, receipts = run.totals, run.receipts
    echo()
    echo(f"samples   {totals.planned:,} planned, {totals.done:,} answered, {totals.failed:,} failed")
    if answers := _format_answers(totals):
        echo(f"answers   {answers}")
    estimates = f", {receipts.estimated:,} of estimated lengths" if receipts.estimated else ""
    compared = f"{receipts.equal:,} equal, {receipts.different:,} different, {receipts.not_given:,} not given"
    echo(f"receipts  {compared}{estimates}")
    if used := format_cache_use(totals.cache):
        echo(f"tokens    {used}")
    show_money(run.paid, run.paid_to_judges)
    if saved := format_seconds_saved(totals.cache):
        echo(f"time      {saved}")
    echo(f"records   {run.folder}")


def _format_answers(totals: Totals) -> str:
    """`80 correct, 12 distractor, 8 refused`."""
    classes = {name: count for name, count in totals.classes.most_common() if name not in ("measured", "error")}
    first = {"correct": classes.get("correct", 0)} if classes else {}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in (first | classes).items())
