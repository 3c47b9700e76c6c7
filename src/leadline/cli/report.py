"""`leadline report`: a saved run as a table in the terminal, a heatmap, and a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `leadline run` wrote.", metavar="RUN...")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where the page goes.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON, draw nothing.")] = False,
) -> None:
    """Look at runs: a summary here, heatmap.png, .svg and .pdf and report.html beside the records."""
    from leadline.cli.screen import print_json
    from leadline.report.charts import heatmap
    from leadline.report.figures import write_figure
    from leadline.report.load import load_run
    from leadline.report.page import write_page
    from leadline.report.summary import summary
    from leadline.report.terminal import show_run

    loaded = [load_run(folder) for folder in runs]
    if json:
        found = [summary(run) for run in loaded]
        print_json(found[0] if len(found) == 1 else found)
        return

    from rich.console import Console

    console = Console()
    for run in loaded:
        show_run(run, console)
        for path in write_figure(heatmap(run), run.folder / "heatmap"):
            typer.echo(path)
    single = loaded[0].folder / "report.html" if len(loaded) == 1 else Path("report.html")
    typer.echo(write_page(loaded, output or single))
