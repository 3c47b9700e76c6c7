"""`leadline watch`: a run that another process is making, live in the terminal."""

from __future__ import annotations

from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from leadline.core.errors import LeadlineError
    from leadline.report.live.standing import Failed, Standing

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

    from leadline.report.live.standing import Standing
    from leadline.report.terminal import show_run

    console = Console()
    standing = Standing(run)
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


def _looks(standing: Standing) -> Iterator[bool]:
    """Whether something has changed, look by look, until the run is over."""
    changed = True
    while standing.status == "running":
        yield changed
        sleep(LOOK_SECONDS)
        changed = standing.look()
    standing.look()  # what came between the last record and the end


def _on_screen(standing: Standing, console: Console) -> None:
    from rich.live import Live

    from leadline.report.live.paced import PacedRun
    from leadline.report.live.screen import screen

    paced = PacedRun(standing)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for _ in _looks(standing):  # drawn even when nothing has changed: time goes by
            live.update(screen(paced.now(), standing.progress(), standing.failures, console, HINT), refresh=True)


def _in_lines(standing: Standing) -> None:
    from leadline.cli.faces import Lines
    from leadline.report.live.screen import failure_line

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


def _after(standing: Standing, told: Failed | None) -> list[Failed]:
    """Failures that have not been told yet."""
    there = list(standing.failures)
    return there[there.index(told) + 1 :] if told in there else there


def _short_of_whole(standing: Standing) -> LeadlineError | None:
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
