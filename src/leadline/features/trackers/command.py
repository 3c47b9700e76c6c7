"""`leadline log`: write saved runs to experiment trackers. `leadline run --log-to` uses the same functions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from leadline.console.options import NAME_HELP, STEP_HELP, TRACKER_HELP
from leadline.console.output import echo, print_json, say, warn
from leadline.core import registry
from leadline.core.contracts import TrackerEntry
from leadline.core.errors import LeadlineError, TrackerError, UsageError
from leadline.core.format import sanitise
from leadline.core.secrets import redact
from leadline.features.trackers.entry import step_of, tracker_entry, write_entry
from leadline.results.run import load_run


def log(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN")],
    to: Annotated[list[str], typer.Option(help=TRACKER_HELP, metavar="TRACKER:PLACE")],
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
            where = _write(tracker, entry)
            written.append(
                {"run": str(folder), "to": redact(tracker), "step": entry.step, "name": entry.name, "where": where}
            )
            if not json:
                echo(f"{folder}  step {entry.step} of {entry.name}  ->  {where}")
    if json:
        print_json(written)


def check_trackers(trackers: Sequence[str], step: str, models: Sequence[str]) -> None:
    """Before a run: raises for unknown trackers, options and steps; only warns of what the user may still fix."""
    for model in models:
        _parse_trackers(trackers, step, model)
    for tracker in trackers:
        try:
            found, place = registry.tracker(tracker)
            found.check(place)
        except LeadlineError as error:
            _warn(tracker, error)


def log_finished(folder: Path, *, trackers: Sequence[str], step: str, run_name: str) -> None:
    """Logs a finished run. Errors become warnings, because the run itself is complete."""
    entry: TrackerEntry | None = None
    for tracker in trackers:
        try:
            entry = entry or tracker_entry(load_run(folder), step, run_name)
            where = _write(tracker, entry)
        except Exception as error:
            _warn(tracker, error)
        else:
            say(f"logged    step {entry.step} of {entry.name} -> {where}")


def _parse_trackers(trackers: Sequence[str], step: str, model: str = "0") -> None:
    for tracker in trackers:
        registry.tracker(tracker)
    step_of(model, step)


def _write(tracker: str, entry: TrackerEntry) -> str:
    """Writes one entry. Any exception of the tracker's own package becomes a TrackerError."""
    try:
        return write_entry(tracker, entry)
    except LeadlineError:
        raise
    except Exception as error:
        raise TrackerError(
            f"{type(error).__name__}: {error}",
            where=tracker,
            fix="the run itself is complete; try `leadline log RUN --to ...` again",
        ) from error


def _warn(tracker: str, error: Exception) -> None:
    warn(f"not logged to {tracker}: {sanitise(getattr(error, 'what', f'{type(error).__name__}: {error}'))}")
    if fix := getattr(error, "fix", ""):
        say(f"       fix: {sanitise(fix)}")


def _refuse_equal_steps(runs: Sequence[Path], entries: Sequence[TrackerEntry], step: str) -> None:
    seen: dict[tuple[str, int], Path] = {}
    for folder, entry in zip(runs, entries, strict=True):
        other = seen.setdefault((entry.name, entry.step), folder)
        if other != folder:
            raise UsageError(
                f"{other} and {folder} would both be step {entry.step} of {entry.name!r}",
                where="--step",
                fix=("log them one by one with --step N" if step == "auto" else "use --step auto, log them one by one")
                + ", or give each a --run-name",
            )
