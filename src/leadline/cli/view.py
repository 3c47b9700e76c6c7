"""`leadline view`: the dashboard, on this machine and for reading only."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from leadline.cli.output import warn
from leadline.core.errors import MissingExtra

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from leadline.core.errors import LeadlineError
    from leadline.results.follow import Failed, RunMonitor


# --- `leadline view`: the dashboard, on this machine and for reading only.

HERE = ("127.0.0.1", "localhost", "::1")


def view(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(help="Runs, or folders that hold runs. [default: runs]", metavar="FOLDER", show_default=False),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 is any free port.")] = 8321,
    host: Annotated[str, typer.Option(help="Which address to listen on; others than this machine may then look.")] = (
        "127.0.0.1"
    ),
    browser: Annotated[bool, typer.Option("--open", help="Open it in the browser, too.")] = False,
) -> None:
    """Look at all runs in a browser: a list to filter and sort, reports that follow runs live, comparisons.

    Needs `pip install "leadline[view]"`. It reads and never writes; Ctrl-C ends it.
    """
    from leadline import __version__
    from leadline.core.cache import cache_folder

    try:
        from leadline.dashboard.app import DashboardServer
    except ModuleNotFoundError as error:
        raise MissingExtra(str(error.name).partition(".")[0], "view", where="leadline view") from None

    if host not in HERE:
        warn(f"listening on {host}: whoever can reach this machine there can read these runs")
    headlines = cache_folder() / f"headlines-{__version__}.json"
    serving = DashboardServer(folders or [Path("runs")], host, port, headlines)
    typer.echo(serving.address)
    typer.echo("Ctrl-C ends it.", err=True)
    if browser:
        import webbrowser

        webbrowser.open(serving.address)
    with suppress(KeyboardInterrupt):
        serving.run()


# --- `leadline watch`: a run that another process is making, live in the terminal.

LOOK_SECONDS = 0.5
HINT = "Ctrl-C leaves; the run goes on."


def watch(
    run: Annotated[Path, typer.Argument(help="The folder of a run, as `leadline run` named it.", metavar="RUN")],
) -> int:
    """Watch a run that goes on elsewhere: progress, time left, its map, failures. Ends when the run ends.

    Exit code 0 when everything was answered, 1 when samples failed, 75 when the run was stopped before its end, and 130
    when you leave before that.
    """
    from rich.console import Console

    from leadline.report.terminal import show_run
    from leadline.results.follow import RunMonitor

    console = Console()
    standing = RunMonitor(run)
    try:
        if console.is_terminal and not console.is_dumb_terminal:
            _on_screen(standing, console)
        else:
            _in_lines(standing)
    except KeyboardInterrupt:
        return 130
    show_run(standing.run(), console)
    typer.echo()
    typer.echo(standing.progress().words())
    if (short := _short_of_whole(standing)) is not None:
        raise short
    return 0


def _looks(standing: RunMonitor) -> Iterator[bool]:
    """Whether something has changed, look by look, until the run is over."""
    changed = True
    while standing.status == "running":
        yield changed
        sleep(LOOK_SECONDS)
        changed = standing.look()
    standing.look()  # what came between the last record and the end


def _on_screen(standing: RunMonitor, console: Console) -> None:
    from rich.live import Live

    from leadline.report.terminal import run_screen
    from leadline.results.follow import GrowingTable

    paced = GrowingTable(standing)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for _ in _looks(standing):  # drawn even when nothing has changed: time goes by
            live.update(run_screen(paced.now(), standing.progress(), standing.failures, console, HINT), refresh=True)


def _in_lines(standing: RunMonitor) -> None:
    from leadline.cli.progress import Lines
    from leadline.report.terminal import failure_line

    lines = Lines(typer.echo)
    told: Failed | None = standing.failures[-1] if standing.failures else None

    def tell(told: Failed | None) -> Failed | None:
        for failed in _after(standing, told):
            lines.say(f"failed: {failure_line(failed)}")
            told = failed
        return told

    lines.update(standing.progress(), force=True)
    for _ in _looks(standing):
        told = tell(told)
        lines.update(standing.progress())
    tell(told)


def _after(standing: RunMonitor, told: Failed | None) -> list[Failed]:
    """Failures that have not been told yet."""
    there = list(standing.failures)
    return there[there.index(told) + 1 :] if told in there else there


def _short_of_whole(standing: RunMonitor) -> LeadlineError | None:
    """What a program that waited for the run must know: the same as the run itself would have said."""
    from leadline.core.errors import FailedSamples, RunStopped

    progress, again = standing.progress(), "run the same command again: only what is missing is asked"
    if progress.status == "stopped":
        of = f" of {progress.planned:,}" if progress.planned is not None else ""
        what = f"the run was stopped after {progress.asked:,}{of} samples"
        return RunStopped(what, where=str(standing.folder), fix=again)
    if progress.failed:
        return FailedSamples(f"{progress.failed:,} samples have no answer", where=str(standing.folder), fix=again)
    return None
