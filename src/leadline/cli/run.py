"""`leadline run`: ask a model, keep every record, show what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.log import NAME_HELP, STEP_HELP, TO_HELP, check_trackers, log_finished, warn_of_trackers
from leadline.cli.many_models import Models, Shard, carry_out_all, entrants_of, finish_all, listed_models
from leadline.cli.options import UNTIL_HELP, Flags, spec_of, with_flags, with_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.core.spec import Spec
    from leadline.run.summary import Summary


@with_flags
def run(
    flags: Flags,
    keep_prompts: Annotated[
        bool, typer.Option("--keep-prompts", help="Write every prompt to the run's folder.")
    ] = False,
    figure: Annotated[bool, typer.Option(help="Draw heatmap.png at the end.")] = True,
    until: Annotated[str, typer.Option(help=UNTIL_HELP)] = "",
    base: Annotated[Path | None, typer.Option(help="For --until verdict: the run to compare with.")] = None,
    gate: Annotated[str, typer.Option(help='For --until verdict: "overall >= -1; task:* >= -3".')] = "",
    log_to: Annotated[
        list[str] | None,
        typer.Option(help=f"Log the result at the end, as `leadline log` does: {TO_HELP}", metavar="TRACKER:PLACE"),
    ] = None,
    step: Annotated[str | None, typer.Option(help=f"For --log-to: {STEP_HELP} [default: 0]")] = None,
    run_name: Annotated[str, typer.Option(help=f"For --log-to: {NAME_HELP}", show_default=False)] = "",
    models: Models = None,
    shard: Shard = "",
) -> None:
    """Measure a model, or a list of models. The same command again goes on where it stopped.

    A list (--models, or `models` in the spec) gets a run for each model in one folder, and a page of all of them.
    With --ray a model has replicas on many GPUs, and many models are measured side by side.
    """
    from leadline.cli.run_summary import finish

    books = log_to or []
    _refuse_idle_step(books, step, run_name)
    step = step or "0"
    listed = listed_models(flags, models, shard)
    if listed or models or shard:
        folder, entrants = entrants_of(flags, listed, "models")
        for entrant in entrants:
            refuse_rule(until or entrant.spec.until)
            _refuse_idle_gate("", base, gate)
            check_trackers(books, step, entrant.spec.model)
        warn_of_trackers(books)
        outcomes = carry_out_all(entrants, keep_prompts=keep_prompts)
        try:
            finish_all(outcomes, folder, as_json=flags.json_, page=figure)
        finally:
            for outcome in outcomes:
                if outcome.summary is not None:
                    log_finished(outcome.summary.folder, books, step, run_name)
        return
    spec = spec_of(flags)
    _refuse_idle_gate(until or spec.until, base, gate)
    check_trackers(books, step, spec.model)
    warn_of_trackers(books)
    spec = with_rule(spec, until)
    if spec.until:
        summary, found = carry_out_until(spec, flags, base, gate, keep_prompts=keep_prompts)
    else:
        summary, found = carry_out(spec, flags.out, keep_prompts=keep_prompts), None
    try:
        finish(summary, as_json=flags.json_, figure=figure, found=found)
    finally:  # samples that failed are part of what a team wants to see
        log_finished(summary.folder, books, step, run_name)


def refuse_rule(until: str) -> None:
    from leadline.core.errors import UsageError

    if until:
        raise UsageError(
            "a rule stops one run, and would ask other samples of every model",
            where="--until",
            fix="leave it out for a list of models, or give --model",
        )


def _refuse_idle_gate(until: str, base: Path | None, gate: str) -> None:
    """A gate that nothing judges would look like one that was passed."""
    from leadline.core.errors import UsageError

    if (base or gate) and not until.strip().startswith("verdict"):
        raise UsageError(
            "nothing judges a gate at the end of this run",
            where="--gate" if gate else "--base",
            fix='add --until "verdict 0.95", or run first, and then leadline compare BASE RUN --gate ...',
        )


def _refuse_idle_step(books: Sequence[str], step: str | None, run_name: str) -> None:
    """A step that is written nowhere would be looked for in the tracker in vain."""
    from leadline.core.errors import UsageError

    if not books and (step is not None or run_name):
        raise UsageError(
            "the result of this run is logged nowhere, so nothing has a step or a name there",
            where="--step" if step is not None else "--run-name",
            fix="add --log-to, as in --log-to tensorboard:logs, or leave it out and use `leadline log` later",
        )


def carry_out_until(
    spec: Spec, flags: Flags, base: Path | None, gate: str, *, keep_prompts: bool
) -> tuple[Summary, dict[str, str]]:
    """A run that stops by itself, and what it found."""
    from leadline.cli.progress import Watcher
    from leadline.run.until import measure_until

    with Watcher(rule=True) as watcher:
        stopped = measure_until(
            spec, flags.out, base=base, gate=gate, fixed=spec.samples, listen=watcher, keep_prompts=keep_prompts
        )
    found = {"outcome": stopped.step.outcome, "sentence": stopped.step.sentence, "saving": stopped.saving}
    return stopped.summary, found


def carry_out(spec: Spec, out: Path | None, *, keep_prompts: bool = False) -> Summary:
    """One run with its progress on the screen."""
    from leadline.cli.progress import Watcher
    from leadline.run.measure import measure

    with Watcher() as watcher:
        return measure(spec, out, listen=watcher, keep_prompts=keep_prompts)
