"""`leadline view`: a read-only dashboard in the browser. `leadline watch`: one growing run in the terminal."""

from __future__ import annotations

import webbrowser
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

import leadline
from leadline.cli.output import echo, say, warn
from leadline.cli.progress import ProgressLines, SanitisingConsole
from leadline.cli.run import raise_if_incomplete
from leadline.core.errors import MissingExtra, RunStopped
from leadline.core.files import cache_folder
from leadline.report.terminal import failure_line, run_screen, show_run
from leadline.results.follow import FailedSample, RunMonitor

LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs, or folders with runs. [default: runs]", metavar="FOLDER", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any free port.")] = 8321,
    host: Annotated[
        str, typer.Option(help="Address to listen on; any other than this makes the runs visible to the network.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option("--open", help="Open the dashboard in the browser.")] = False,
) -> None:
    """Browse all runs: filter and sort them, follow live runs, open reports, compare.

    Needs `pip install "leadline[view]"`. The dashboard is read-only; Ctrl-C stops it.
    """
    try:
        from leadline.dashboard.app import DashboardServer  # needs starlette and uvicorn
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name).partition(".")[0], "view", where="leadline view") from None

    if host not in LOCAL_HOSTS:
        warn(f"listening on {host}: everyone who can reach this address can read these runs")
    headlines = cache_folder() / f"headlines-{leadline.__version__}.cache"
    server = DashboardServer(folders or [Path("runs")], host, port, headlines)
    echo(server.address)
    say("Press Ctrl-C to stop.")
    if browser:
        webbrowser.open(server.address)
    with suppress(KeyboardInterrupt):
        server.run()


# --- leadline watch

LOOK_SECONDS = 0.5
HINT = "Ctrl-C leaves; the run continues."


def watch(
    run: Annotated[Path, typer.Argument(help="Folder of the run, as printed by `leadline run`.", metavar="RUN")],
) -> int:
    """Follow a run of another process until it ends: progress, time left, heatmap, failures.

    Exit code 0: all samples answered; 1: samples failed; 75: the run stopped early; 130: you left before its end.
    """
    console = SanitisingConsole()
    monitor = RunMonitor(run)
    try:
        if console.is_terminal and not console.is_dumb_terminal:
            _follow_on_screen(monitor, console)
        else:
            _follow_in_lines(monitor)
    except KeyboardInterrupt:
        return 130
    show_run(monitor.run(), console)
    echo()
    echo(monitor.progress().describe())
    _raise_as_the_run_did(monitor)
    return 0


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
    """Ends with the exit code that the run itself had."""
    progress = monitor.progress()
    if progress.status == "stopped":
        of = f" of {progress.planned:,}" if progress.planned is not None else ""
        what = f"the run was stopped after {progress.asked:,}{of} samples"
        fix = "run the same command again: it measures only what is missing"
        raise RunStopped(what, where=str(monitor.folder), fix=fix)
    raise_if_incomplete(monitor.run())
