"""`leadline report`: saved runs as a table in the terminal, a heatmap, and a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leadline.results.run import Run


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders that `leadline run` wrote.", metavar="RUN")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Where the page goes.")] = None,
    figures: Annotated[Path | None, typer.Option(help="A folder for every figure, sized for a paper.")] = None,
    data: Annotated[Path | None, typer.Option(help="A .csv, .jsonl or .parquet file for the samples of a run.")] = None,
    failures: Annotated[
        Literal["excluded", "zero"], typer.Option(help="How samples without an answer enter the means.")
    ] = "excluded",
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a table for a pull request instead.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON instead; draws nothing.")] = False,
) -> None:
    """Look at runs: a summary here, heatmap.png, .svg and .pdf and report.html beside the records."""
    if json:
        _print_json(runs, failures)
        return
    from leadline.results.run import load_run

    loaded = [load_run(folder, failures) for folder in runs]
    exported = _export(loaded, data) if data is not None else []
    if not markdown:
        _show(loaded)  # before anything is drawn, which can fail
    written = [*_draw(loaded, output, figures), *exported]
    if markdown:
        from leadline.report.export import markdown as in_markdown

        typer.echo(in_markdown(loaded, [path for path in written if path.name == "heatmap.png"]))
    else:
        for path in written:
            typer.echo(path)


def _print_json(folders: Sequence[Path], failures: Literal["excluded", "zero"]) -> None:
    from leadline.cli.output import print_json
    from leadline.results.run import load_run
    from leadline.results.summary import summary

    found = [summary(load_run(folder, failures)) for folder in folders]
    print_json(found[0] if len(found) == 1 else found)


def _show(runs: Sequence[Run]) -> None:
    from rich.console import Console

    from leadline.report.terminal import show_run

    console = Console()
    for run in runs:
        show_run(run, console)


def _export(runs: Sequence[Run], path: Path) -> list[Path]:
    from leadline.core.errors import UsageError
    from leadline.report.export import write_data

    if len(runs) > 1:
        raise UsageError("--data takes one run", where="report", fix="export the runs one by one")
    return [write_data(runs[0], path)]


def _draw(runs: Sequence[Run], output: Path | None, figures: Path | None) -> list[Path]:
    """The heatmap and the page always, every figure with --figures."""
    from leadline.report.page import write_page

    single = runs[0].folder / "report.html" if len(runs) == 1 else Path("report.html")
    written = []
    for run in runs:
        if run.table.tasks:
            written += _heatmap_files(run, needed=output is None)
    written.append(write_page(runs, output or single))
    if figures is not None:
        from leadline.report.export import export_figures

        written += export_figures(runs, figures)
    return written


def _heatmap_files(run: Run, *, needed: bool) -> list[Path]:
    """The heatmap beside the records; skipped for a read-only run if the page goes elsewhere."""
    from leadline.cli.output import warn
    from leadline.core.errors import StoreError
    from leadline.report.charts.heatmap import heatmap
    from leadline.report.charts.render import write_figure

    try:
        return write_figure(heatmap(run), run.folder / "heatmap")
    except StoreError as error:
        if needed:
            raise StoreError(error.what, where=error.where, fix="write the page elsewhere with -o FILE") from None
        warn(f"no heatmap beside the records: {error.what}")
        return []
