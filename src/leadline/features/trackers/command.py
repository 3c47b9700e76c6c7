"""`leadline log`: write saved runs to experiment trackers. `leadline run --log-to` does so at the end of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from leadline.console.options import NAME_HELP, STEP_HELP, TRACKER_HELP
from leadline.console.output import echo, print_json
from leadline.core import registry
from leadline.core.contracts import TrackerEntry
from leadline.core.errors import UsageError
from leadline.core.secrets import redact
from leadline.features.trackers.entry import step_of, tracker_entry, write_entry
from leadline.results.run import load_run


def log(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN")],
    to: Annotated[list[str], typer.Option(help=TRACKER_HELP, metavar="TRACKER:DESTINATION")],
    step: Annotated[str, typer.Option(metavar="N|auto", help=STEP_HELP)] = "0",
    run_name: Annotated[str, typer.Option(metavar="NAME", help=NAME_HELP, show_default=False)] = "",
    page: Annotated[bool, typer.Option("--page", help="Also upload report.html.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the destinations as JSON.")] = False,
) -> None:
    """Log runs to MLflow, Weights & Biases or TensorBoard: effective length, averages, failures and heatmap by step.

    Logging a step again replaces it where the tracker supports that; identical entries are not written twice.
    """
    _parse_trackers(to, step)
    entries = [tracker_entry(load_run(folder), step, run_name, page=page) for folder in runs]
    _refuse_equal_steps(runs, entries, step)
    written = []
    for folder, entry in zip(runs, entries, strict=True):
        for tracker in to:
            where = write_entry(tracker, entry)
            written.append(
                {"run": str(folder), "to": redact(tracker), "step": entry.step, "name": entry.name, "where": where}
            )
            if not json:
                echo(f"{folder}  step {entry.step} of {entry.name}  ->  {where}")
    if json:
        print_json(written)


def _parse_trackers(trackers: Sequence[str], step: str) -> None:
    for tracker in trackers:
        registry.tracker(tracker)
    if step != "auto":  # a step in the names of models is read when their runs are loaded
        step_of("", step)


def _refuse_equal_steps(runs: Sequence[Path], entries: Sequence[TrackerEntry], step: str) -> None:
    folders: dict[tuple[str, int], Path] = {}
    for folder, entry in zip(runs, entries, strict=True):
        first = folders.setdefault((entry.name, entry.step), folder)
        if first != folder:
            raise UsageError(
                f"{first} and {folder} would both be step {entry.step} of {entry.name!r}",
                where="--step",
                fix=("log them one by one with --step N" if step == "auto" else "use --step auto, log them one by one")
                + ", or give each a --run-name",
            )
