"""`leadline report`: saved runs as terminal tables, heatmap files, and one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import typer

from leadline.console.output import (
    DEFAULT_THRESHOLD,
    FailedSamplesOption,
    PricesOption,
    ThresholdOption,
    TierOption,
    continue_if_unread,
    echo,
    price_file,
    print_json,
    show_money,
    threshold_share,
    warn,
)
from leadline.console.progress import SanitisingConsole
from leadline.core.errors import RenderError, StoreError, UsageError
from leadline.report.charts.heatmap import heatmap
from leadline.report.charts.render import write_figure
from leadline.report.colours import Palette, drawn_in
from leadline.report.comparison import titles
from leadline.report.embedded_samples import RunSamples
from leadline.report.export import export_figures
from leadline.report.export import markdown as in_markdown
from leadline.report.page import write_page
from leadline.report.score_tables import suite_latex
from leadline.report.sections import run_values
from leadline.report.terminal import show_run
from leadline.results.comparability import mixed_variants
from leadline.results.run import Run, load_run
from leadline.stats.effective import Threshold
from leadline.store.export import write_rows
from leadline.store.prices import RunPrices


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN")],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="FILE",
            help="File of the page. [default: RUN/report.html; ./report.html for several]",
        ),
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for all figures, sized for a paper.")] = None,
    data: Annotated[Path | None, typer.Option(help="A .csv, .jsonl or .parquet file for the samples of a run.")] = None,
    prices: PricesOption = None,
    tier: TierOption = None,
    failures: FailedSamplesOption = "excluded",
    threshold: ThresholdOption = DEFAULT_THRESHOLD,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table for a pull request.")] = False,
    latex: Annotated[
        bool, typer.Option("--latex", help="Print a LaTeX table: one run by task, or several runs. Draws nothing.")
    ] = False,
    palette: Annotated[Palette, typer.Option(help="Colours of accuracy in figures and page.")] = "plum-mint",
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON; draws nothing.")] = False,
) -> None:
    """Show runs: a summary in the terminal; heatmap.png, .svg, .pdf and report.html in the run's folder.

    Money is that of the prices a run was made with, or of --prices.
    """
    drawn = {"--out": out, "--figures": figures}
    if (json or latex) and (named := [option for option, path in drawn.items() if path is not None]):
        printing = "--json" if json else "--latex"
        raise UsageError(f"{printing} draws nothing", where=named[0], fix=f"leave out {printing}, or {named[0]}")
    wanted, file = Threshold(threshold_share(threshold)), price_file(prices, tier)
    samples = [] if json or latex else [RunSamples(folder) for folder in runs]
    loaded = [
        load_run(folder, failures, wanted, RunPrices(folder, file, tier or ""), kept.add if kept else None)
        for folder, kept in zip_longest(runs, samples)
    ]
    if data is not None and len(loaded) > 1:
        raise UsageError("--data takes one run", where="report", fix="export the runs one by one")
    exported = [write_rows(loaded[0].records, data)] if data is not None else []  # first: a wrong file name is an error
    if json:
        runs_values = [run_values(run) for run in loaded]
        print_json(runs_values[0] if len(runs_values) == 1 else runs_values)
        return
    if latex:
        echo(suite_latex(loaded, titles(loaded)))
        return
    with drawn_in(palette):
        _show_and_write(loaded, samples, out, figures, exported, markdown=markdown)


def _show_and_write(
    loaded: Sequence[Run],
    samples: Sequence[RunSamples],
    out: Path | None,
    figures: Path | None,
    exported: Sequence[Path],
    *,
    markdown: bool,
) -> None:
    if not markdown:  # tables first: drawing may fail
        with continue_if_unread():
            console = SanitisingConsole()
            for run in loaded:
                show_run(run, console)
                show_money(run.paid, run.paid_to_judges)
    if len(loaded) > 1:
        scored = [(f"{task} of {run.name}", metric) for run in loaded for task, metric in run.metrics.items()]
        for sentence in mixed_variants(scored):
            warn(sentence)
    written = [*_write(loaded, samples, out, figures), *exported]
    if markdown:
        echo(in_markdown(loaded, written))
    else:
        for path in written:
            echo(path)


def _write(runs: Sequence[Run], samples: Sequence[RunSamples], out: Path | None, figures: Path | None) -> list[Path]:
    """Writes the heatmaps and the page, and what else was asked for."""
    written = [path for run in runs if run.table.tasks for path in _write_heatmap(run, required=out is None)]
    default = runs[0].folder / "report.html" if len(runs) == 1 else Path("report.html")
    written.append(write_page(runs, out or default, samples))
    if figures is not None:
        written += export_figures(runs, figures)
    return written


def _write_heatmap(run: Run, *, required: bool) -> list[Path]:
    """Writes the heatmap into the run's folder. A read-only folder is an error unless -o names another file; a figure
    that cannot be drawn is a warning, here and on the page."""
    try:
        return write_figure(heatmap(run), run.folder / "heatmap")
    except StoreError as error:
        if required:
            raise StoreError(error.what, where=error.where, fix="write the page elsewhere with -o FILE") from None
        warn(f"no heatmap was written to the run's folder: {error.what}")
    except RenderError as error:
        warn(f"no heatmap: {error.what}")
    return []
