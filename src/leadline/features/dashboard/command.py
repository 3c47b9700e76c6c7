"""`leadline view`: a dashboard in the browser."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

import leadline
from leadline.console.output import echo, say, warn
from leadline.core.errors import MissingExtra
from leadline.core.files import cache_folder

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

    Needs `pip install "leadline[view]"`. The dashboard changes no run; answers drawn for labels by
    people can be labelled in it. Ctrl-C stops it.
    """
    try:
        from leadline.features.dashboard.app import DashboardServer  # needs starlette and uvicorn
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
