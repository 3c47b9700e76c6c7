"""`leadline watch`: one growing run in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from leadline.cli.run import raise_if_incomplete
from leadline.console.output import echo, say
from leadline.console.progress import ProgressLines, SanitisingConsole
from leadline.core.errors import Interrupted, RunStopped
from leadline.report.terminal import failure_line, run_screen, show_run
from leadline.results.growing_run import FailedSample, RunMonitor

LOOK_SECONDS = 0.5
OPENING_SECONDS = 20.0
"""The longest wait for a folder that does not exist yet."""
HINT = "Ctrl-C leaves; the run continues."


def watch(
    run: Annotated[Path, typer.Argument(help="Folder of the run, as printed by `leadline run`.", metavar="RUN")],
) -> int:
    """Follow a run of another process until it ends: progress, time left, heatmap, failures.

    Exit code 0: all samples answered; 1: samples failed; 75: the run stopped early; 130: you left before its end.
    """
    console = SanitisingConsole()
    try:
        _wait_for_folder(run)
        monitor = RunMonitor(run)
        if console.is_terminal and not console.is_dumb_terminal:
            _follow_on_screen(monitor, console)
        else:
            _follow_in_lines(monitor)
    except KeyboardInterrupt:
        return Interrupted.exit_code
    show_run(monitor.run(), console)
    echo()
    echo(monitor.progress().describe())
    _raise_as_the_run_did(monitor)
    return 0


def _wait_for_folder(run: Path) -> None:
    """Waits a little for the folder: a run has it when its model is open, which may take a while."""
    for look in range(round(OPENING_SECONDS / LOOK_SECONDS)):
        if run.exists():
            return
        if not look:
            say(f"waiting for {run}: a run has its folder when its model is open")
        sleep(LOOK_SECONDS)


def _updates(monitor: RunMonitor) -> Iterator[None]:
    """Reads new records and yields, until the run has ended."""
    while monitor.status == "running":
        yield
        sleep(LOOK_SECONDS)
        monitor.refresh()
    monitor.refresh()  # records written between the last look and the end


def _follow_on_screen(monitor: RunMonitor, console: Console) -> None:
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for _ in _updates(monitor):
            run = monitor.run(fresh=False)
            live.update(run_screen(run, monitor.progress(), monitor.failures, console, HINT), refresh=True)


def _follow_in_lines(monitor: RunMonitor) -> None:
    lines = ProgressLines(echo)
    last: FailedSample | None = monitor.failures[-1] if monitor.failures else None

    def show_failures() -> None:
        nonlocal last
        failures = list(monitor.failures)
        for failed in failures[failures.index(last) + 1 :] if last in failures else failures:
            lines.say(f"failed: {failure_line(failed)}")
            last = failed

    lines.update(monitor.progress(), force=monitor.status == "running")  # of an ended run this is the last line
    for _ in _updates(monitor):
        show_failures()
        lines.update(monitor.progress())
    show_failures()


def _raise_as_the_run_did(monitor: RunMonitor) -> None:
    """Raises with the exit code that the run itself had."""
    progress = monitor.progress()
    if progress.status == "stopped":
        of = f" of {progress.planned:,}" if progress.planned is not None else ""
        what = f"the run was stopped after {progress.asked:,}{of} samples"
        fix = "run the same command again: it measures only what is missing"
        raise RunStopped(what, where=str(monitor.folder), fix=fix)
    raise_if_incomplete(monitor.run())
