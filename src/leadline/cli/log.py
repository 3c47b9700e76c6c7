"""`leadline log`: put saved runs where the team already looks, and the end of `leadline run` that does the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.core.trackers import TrackerEntry

TO_HELP = (
    "mlflow:URI?experiment=NAME, wandb:ENTITY/PROJECT?mode=offline or tensorboard:FOLDER; "
    "run_id=ID logs into the training's own run. May be repeated."
)
STEP_HELP = "The checkpoint's step; auto takes the last whole number in the model (hf:out/checkpoint-12000)."
NAME_HELP = "What the steps belong to. [default: what the model is called, without its step]"


def log(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `leadline run` wrote.", metavar="RUN")],
    to: Annotated[list[str], typer.Option(help=TO_HELP, metavar="TRACKER:PLACE")],
    step: Annotated[str, typer.Option(help=STEP_HELP)] = "0",
    run_name: Annotated[str, typer.Option(help=NAME_HELP, show_default=False)] = "",
    page: Annotated[bool, typer.Option("--page", help="Keep report.html beside the numbers.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print where each went as JSON.")] = False,
) -> None:
    """Log runs to MLflow, Weights & Biases or TensorBoard: effective length, averages, failures, heatmap, by step.

    The same step again replaces what is there where the tracker can; what says the same is left alone.
    """
    from leadline.cli.output import print_json
    from leadline.report.tracker_entry import tracker_entry
    from leadline.results.run import load_run

    check_trackers(to, step)
    loaded = [load_run(folder) for folder in runs]
    entries = [tracker_entry(run, step, run_name, page=page) for run in loaded]
    _refuse_equal_steps(runs, entries)
    written = []
    for folder, entry in zip(runs, entries, strict=True):
        for book in to:
            where = _written(book, entry)
            written.append({"run": str(folder), "to": book, "step": entry.step, "name": entry.name, "where": where})
            if not json:
                typer.echo(f"{folder}  step {entry.step} of {entry.name}  ->  {where}")
    if json:
        print_json(written)


def check_trackers(to: Sequence[str], step: str, model: str = "0") -> None:
    """Gate 1 for trackers: unknown names, options and steps are errors before anything is asked of anybody."""
    from leadline.core import registry

    if not to:
        return
    from leadline.report.tracker_entry import step_of

    for book in to:
        registry.tracker(book)
    step_of(model, step)


def warn_of_trackers(to: Sequence[str]) -> None:
    """What would keep a tracker from being written, told while there is time to mend it. The run goes on."""
    from leadline.core import registry
    from leadline.core.errors import LeadlineError

    for text in to:
        try:
            book, place = registry.tracker(text)
            book.check(place)
        except LeadlineError as error:
            _warn(text, error)


def log_finished(folder: Path, to: Sequence[str], step: str, run_name: str) -> None:
    """A finished run into trackers. Whatever goes wrong is a warning: the run is whole and stays so."""
    if not to:
        return
    from leadline.cli.output import say
    from leadline.report.tracker_entry import tracker_entry
    from leadline.results.run import load_run

    entry: TrackerEntry | None = None
    for book in to:
        try:
            entry = entry or tracker_entry(load_run(folder), step, run_name)
            where = _written(book, entry)
        except Exception as error:
            _warn(book, error)
        else:
            say(f"logged    step {entry.step} of {entry.name} -> {where}")


def _written(book: str, entry: TrackerEntry) -> str:
    """Trackers are other people's programs: whatever they raise is told as what / where / fix."""
    from leadline.core.errors import LeadlineError, TrackerError
    from leadline.report.tracker_entry import write_entry

    try:
        return write_entry(book, entry)
    except LeadlineError:
        raise
    except Exception as error:
        raise TrackerError(
            f"{type(error).__name__}: {error}", where=book, fix="`leadline log RUN --to ...` again: the run is whole"
        ) from error


def _warn(book: str, error: Exception) -> None:
    from leadline.cli.output import say, warn
    from leadline.core.format import sanitise

    warn(f"not logged to {book}: {sanitise(getattr(error, 'what', f'{type(error).__name__}: {error}'))}")
    if fix := getattr(error, "fix", ""):
        say(f"       fix: {sanitise(fix)}")


def _refuse_equal_steps(runs: Sequence[Path], entries: Sequence[TrackerEntry]) -> None:
    from leadline.core.errors import UsageError

    seen: dict[tuple[str, int], Path] = {}
    for folder, entry in zip(runs, entries, strict=True):
        other = seen.setdefault((entry.name, entry.step), folder)
        if other != folder:
            raise UsageError(
                f"{other} and {folder} would both be step {entry.step} of {entry.name!r}",
                where="--step",
                fix="use --step auto, log them one by one, or give each a --run-name",
            )
