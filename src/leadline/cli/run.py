"""`leadline run`: measure a model, or a list of models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.many_models import Models, Shard, finish_models, listed_models, measure_models, model_runs
from leadline.cli.options import UNTIL_HELP, Flags, spec_of, with_flags, with_rule
from leadline.cli.output import warn
from leadline.cli.progress import Watcher
from leadline.cli.run_summary import finish
from leadline.core.errors import JudgeRefused, LeadlineError, ServerError, UsageError
from leadline.core.spec import Judging, Spec
from leadline.results.run import Run
from leadline.run.measure import measure

TRACKER_HELP = (
    "mlflow:URI?experiment=NAME, wandb:ENTITY/PROJECT?mode=offline or tensorboard:FOLDER. "
    "run_id=ID logs into an existing run of the tracker. Repeatable."
)
STEP_HELP = "Training step of the checkpoint; auto takes the last whole number in the model (hf:out/checkpoint-12000)."
NAME_HELP = "Name of the tracker's run. [default: the model's name without its step]"


@with_flags
def run(
    flags: Flags,
    keep_prompts: Annotated[
        bool, typer.Option("--keep-prompts", help="Save every prompt in the run's folder.")
    ] = False,
    figure: Annotated[bool, typer.Option(help="Draw heatmap.png at the end.")] = True,
    until: Annotated[str, typer.Option(metavar="RULE", help=UNTIL_HELP)] = "",
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
    models: Models = None,
    shard: Shard = "",
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
    listed = listed_models(flags, models, shard)
    if submission is not None and not listed:
        raise UsageError("--submission needs a list of models", where="--submission", fix="add --models FILE")
    if listed:
        folder, runs = model_runs(flags, listed, until)
        _refuse_unused_gate("", base, gate)
        log = _prepare_logging(log_to or [], step, run_name, [run.spec.model for run in runs])
        results = measure_models(runs, keep_prompts=keep_prompts)
        for result in results:
            if result.run is not None:
                _judge(result.run.folder, result.entrant.spec)
        try:
            finish_models(results, folder, as_json=flags.json_, page=figure, submission=submission, shard=shard)
        finally:
            for result in results:
                if result.run is not None:
                    log(result.run.folder)
        return
    spec = spec_of(flags)
    _refuse_unused_gate(until or spec.until, base, gate)
    log = _prepare_logging(log_to or [], step, run_name, [spec.model])
    spec = with_rule(spec, until)
    found = None
    if spec.until:
        from leadline.run.until import measure_until  # imports scipy

        with Watcher(rule=True) as watcher:
            stopped = measure_until(
                spec, flags.out, base=base, gate=gate, fixed=spec.samples, listen=watcher, keep_prompts=keep_prompts
            )
        measured = stopped.run
        found = {"outcome": stopped.step.outcome, "sentence": stopped.sentence, "saving": stopped.saving}
    else:
        measured = measure_one(spec, flags.out, keep_prompts=keep_prompts)
    refused = _judge(measured.folder, spec)
    try:
        finish(measured, as_json=flags.json_, figure=figure, found=found)
    finally:  # runs with failed samples are logged too
        log(measured.folder)
    if refused is not None:
        raise refused


def _judge(folder: Path, spec: Spec) -> LeadlineError | None:
    """Grades the answers if the spec has judges. A judge that may not grade does not hide the run: it is returned."""
    if not spec.judges.models:
        return None
    from leadline.cli.judge import failed_verdicts, grade  # imports scipy

    asked = spec.judges
    try:
        result = grade(
            folder, asked.models, rubric=asked.rubric, own_family=asked.own_family, floor=asked.floor,
            limits=spec.limits,
        )  # fmt: skip
    except (JudgeRefused, ServerError) as error:
        warn(f"a judge did not grade: {error.what}")
        return error
    return failed_verdicts(result.failed, folder)


def measure_one(spec: Spec, out: Path | None, *, keep_prompts: bool = False) -> Run:
    """Measures one model, with its progress in the terminal."""
    with Watcher() as watcher:
        without = spec.model_copy(update={"judges": Judging()})  # they follow with a progress bar of their own
        return measure(without, out, listen=watcher, keep_prompts=keep_prompts)


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
        from leadline.cli.log import check_trackers, log_finished  # imports altair

        check_trackers(trackers, step or "0", models)
        return partial(log_finished, trackers=trackers, step=step or "0", run_name=run_name)
    if step is not None or run_name:
        raise UsageError(
            "this option has no effect without --log-to",
            where="--step" if step is not None else "--run-name",
            fix="add --log-to, for example --log-to tensorboard:logs, or use `leadline log` later",
        )
    return lambda folder: None
