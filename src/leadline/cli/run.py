"""`leadline run`: measure a model, or a list of models."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from leadline.console.options import (
    NAME_HELP,
    STEP_HELP,
    TRACKER_HELP,
    RunOptions,
    UntilOption,
    spec_of,
    suite_of,
    with_flags,
    with_rule,
)
from leadline.console.output import continue_if_unread, echo, print_json, show_money, warn
from leadline.console.progress import ProgressListener, SanitisingConsole
from leadline.core.contracts import Model, Remote
from leadline.core.errors import (
    FailedSamples,
    JudgeRefused,
    LeadlineError,
    RunStopped,
    ServerError,
    UsageError,
)
from leadline.core.spec import Judging, Spec
from leadline.features.judges.asking import check_judges
from leadline.results.run import Run
from leadline.results.summary import totals_values
from leadline.results.totals import Totals, cache_warning, format_cache_use, format_seconds_saved
from leadline.results.verdict import failures_fix
from leadline.run.engine import CheckModel, measure
from leadline.run.identity import folder_name
from leadline.run.plan import RUNS
from leadline.store.runs import without_brackets


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
        list[str] | None, typer.Option(help=f"Log the result at the end: {TRACKER_HELP}", metavar="TRACKER:PLACE")
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
    check = check_server if checks else None
    if submission is not None and not listed:
        raise UsageError("--submission needs a list of models", where="--submission", fix="add --models FILE")
    if listed:
        folder, runs = model_runs(flags, listed, until)
        _refuse_unused_gate("", base, gate)
        log = _prepare_logging(log_to or [], step, run_name, [run.spec.model for run in runs])
        for planned in runs:
            check_judges(planned.spec)
        results = measure_models(runs, keep_prompts=keep_prompts, check=check)
        refusals = [_judge(result.run.folder, result.entrant.spec) for result in results if result.run is not None]
        try:
            finish_models(results, folder, as_json=flags.json_, page=figure, submission=submission, shard=shard)
        finally:
            for result in results:
                if result.run is not None:
                    log(result.run.folder)
        if refused := next(filter(None, refusals), None):
            raise refused
        return
    spec = spec_of(flags)
    check_judges(spec)
    _refuse_unused_gate(until or spec.until, base, gate)
    log = _prepare_logging(log_to or [], step, run_name, [spec.model])
    spec = with_rule(spec, until)
    found = None
    if spec.until:
        from leadline.run.until import measure_until  # imports scipy

        with ProgressListener(rule=True) as listener:
            stopped = measure_until(
                spec, folder_of(flags, spec), base=base, gate=gate, fixed=spec.samples, listen=listener,
                keep_prompts=keep_prompts, check=check,
            )  # fmt: skip
        measured = stopped.run
        found = {"outcome": stopped.step.outcome, "sentence": stopped.sentence, "saving": stopped.saving}
    else:
        measured = measure_one(spec, folder_of(flags, spec), keep_prompts=keep_prompts, check=check)
    refused = _judge(measured.folder, spec)
    try:
        finish(measured, as_json=flags.json_, figure=figure, found=found)
    finally:  # runs with failed samples are logged too
        log(measured.folder)
    if refused is not None:
        raise refused


def folder_of(flags: RunOptions, spec: Spec) -> Path | None:
    """--out, or the folder of a suite: with its name, unless the run is in one with the name of its first task, as
    they were called before. None is the default of the spec."""
    if flags.out is not None or not (suite := suite_of(flags)):
        return flags.out
    former = without_brackets(RUNS / folder_name(spec))
    return former if former.exists() else RUNS / folder_name(spec, suite)


def _judge(folder: Path, spec: Spec) -> LeadlineError | None:
    """Grades the answers if the spec has judges. A judge that may not grade does not hide the run: it is returned."""
    if not spec.judges.models:
        return None
    from leadline.features.judges.command import failed_verdicts, grade  # imports scipy

    asked = spec.judges
    try:
        result = grade(
            folder, asked.models, rubric=asked.rubric, own_family=asked.own_family, floor=asked.floor,
            limits=spec.limits, trust=True,
        )  # fmt: skip
    except (JudgeRefused, ServerError) as error:
        warn(f"a judge did not grade: {error.what}")
        return error
    return failed_verdicts(result.failed, folder)


def check_server(model: Model) -> Sequence[str]:
    """What the cheap checks of `leadline doctor` find; nothing for a model in this process."""
    if not isinstance(model, Remote):
        return ()
    from leadline.features.doctor.checks import cheap_findings  # openai, jinja2

    return cheap_findings(model)


def measure_one(spec: Spec, out: Path | None, *, keep_prompts: bool = False, check: CheckModel | None = None) -> Run:
    """Measures one model, with its progress in the terminal."""
    with ProgressListener() as listener:
        without = spec.model_copy(update={"judges": Judging()})  # they follow with a progress bar of their own
        return measure(without, out, listen=listener, keep_prompts=keep_prompts, check=check)


def _refuse_unused_gate(until: str, base: Path | None, gate: str) -> None:
    """A gate that is not applied would look like one that was passed."""
    if (base or gate) and not until.strip().startswith("verdict"):
        raise UsageError(
            "no gate is applied at the end of this run",
            where="--gate" if gate else "--base",
            fix='add --until "verdict 0.95", or compare afterwards: leadline compare BASE RUN --gate ...',
        )


def _prepare_logging(
    trackers: Sequence[str], step: str | None, run_name: str, models: Sequence[str]
) -> Callable[[Path], None]:
    """Checks the tracker options before the run. Returns the function that logs a finished run."""
    if trackers:
        from leadline.features.trackers.command import check_trackers, log_finished  # imports altair

        check_trackers(trackers, step or "0", models)
        return partial(log_finished, trackers=trackers, step=step or "0", run_name=run_name)
    if step is not None or run_name:
        raise UsageError(
            "this option has no effect without --log-to",
            where="--step" if step is not None else "--run-name",
            fix="add --log-to, for example --log-to tensorboard:logs, or use `leadline log` later",
        )
    return lambda folder: None


# --- what is shown when a run has ended


def finish(run: Run, *, as_json: bool, figure: bool = True, found: Mapping[str, str] | None = None) -> None:
    """Shows the result, then raises if it is not complete. `found` is what a stopping rule found."""
    if as_json:
        from leadline.report.sections import run_values

        picture = _draw(run) if figure else None
        print_json(totals_values(run) | {"heatmap": picture, "report": run_values(run), "until": found})
    else:
        _show(run, figure=figure)
        if found is not None:
            echo(f"{found['outcome']}: {found['sentence']}", bold=True)
            echo(found["saving"])
        program = "leadline" if shutil.which("leadline") else sys.argv[0]  # `make demo` does not change the PATH
        echo(f"next      {shlex.join([program, 'report', str(run.folder)])}  # a page with every answer")
    raise_if_incomplete(run)


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
    echo(f"receipts  {receipts.equal:,} equal, {receipts.different:,} different, {receipts.not_given:,} not given")
    if used := format_cache_use(totals.cache):
        echo(f"tokens    {used}")
    show_money(run.paid, run.paid_to_judges)
    if saved := format_seconds_saved(totals.cache):
        echo(f"time      {saved}")
    echo(f"records   {run.folder}")


def _format_answers(totals: Totals) -> str:
    """`80 correct, 12 distractor, 8 refused`."""
    asked = {name: count for name, count in totals.classes.most_common() if name not in ("measured", "error")}
    first = {"correct": asked.get("correct", 0)} if asked else {}
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in (first | asked).items())
