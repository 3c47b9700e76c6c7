"""`leadline view`: the dashboard, on this machine and for reading only."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from leadline.cli.screen import warn

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
    from leadline.report.served.serve import Serving
    from leadline.text.cache import cache_folder

    if host not in HERE:
        warn(f"listening on {host}: whoever can reach this machine there can read these runs")
    headlines = cache_folder() / f"headlines-{__version__}.json"
    serving = Serving(folders or [Path("runs")], host, port, headlines)
    typer.echo(serving.address)
    typer.echo("Ctrl-C ends it.", err=True)
    if browser:
        import webbrowser

        webbrowser.open(serving.address)
    with suppress(KeyboardInterrupt):
        serving.run()
