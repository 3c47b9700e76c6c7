"""`leadline card`, `leadline badge` and `leadline board`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from leadline.console.output import echo
from leadline.core.errors import SourceError, UsageError
from leadline.features.cards.board import write_board
from leadline.features.cards.draw import badge_svg, card_svg
from leadline.features.cards.verdict import window_use
from leadline.report.charts.render import renderer
from leadline.report.colours import Palette, drawn_in
from leadline.report.comparison import titles
from leadline.results.run import load_run
from leadline.results.score_files import read_table
from leadline.store.manifest import MANIFEST

RUN_HELP = "A run folder, as printed by `leadline run`."


def card(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN_HELP)],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Ends in .svg or .png.")] = Path("card.svg"),
    palette: Annotated[Palette, typer.Option(help="Colours of accuracy in the map.")] = "plum-mint",
) -> None:
    """Draw one picture of a run: claimed window, effective length with its interval or "not decided", a small map.

    \b
      leadline card runs/standard-model-1a2b3c4d -o card.png
    """
    with drawn_in(palette):
        picture = card_svg(load_run(run))
    _write(picture, out, scale=2.0)


def badge(
    run: Annotated[Path, typer.Argument(metavar="RUN", help=RUN_HELP)],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Ends in .svg or .png.")] = Path("badge.svg"),
) -> None:
    """Draw a badge of a run for a README, in the colour of its verdict: uses all it claims, uses part, not decided,
    not measured."""
    opened = load_run(run)
    _write(badge_svg(opened), out, scale=3.0)
    use = window_use(opened)
    echo(f"{use.use}: {use.value}" + (f" ({use.interval})" if use.interval else ""))


def board(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS", help="Run folders, or folders with runs.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Folder of the site.")] = Path("site"),
    published: Annotated[
        Path | None,
        typer.Option(metavar="TABLE.csv", help="Published scores by length (RULER's table), as rows marked published."),
    ] = None,
) -> None:
    """Write a static page that ranks many models: effective length with intervals, accuracy by length, cost.

    No server is needed: put the folder on any web host.

    \b
      leadline board runs/ -o site/
    """
    folders = [folder for path in runs for folder in _run_folders(path)]
    if not folders:
        raise SourceError(
            "no run is there", where=", ".join(map(str, runs)), fix="name run folders, or folders with runs"
        )
    opened = [load_run(folder) for folder in folders]
    rows = [] if published is None else [(row.name, dict(row.scores)) for row in read_table(published).rows]
    page = write_board(opened, titles(opened), out, rows)
    echo(f"{len(opened)} models  {page}")


def _run_folders(folder: Path) -> list[Path]:
    if (folder / MANIFEST).is_file():
        return [folder]
    return sorted(path.parent for path in folder.glob(f"*/{MANIFEST}"))


def _write(svg: str, out: Path, *, scale: float) -> None:
    if out.suffix not in (".svg", ".png"):
        raise UsageError(f"cannot write {out.name}", where="--out", fix="end the name with .svg or .png")
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".svg":
        out.write_text(svg, encoding="utf-8")
    else:
        out.write_bytes(bytes(renderer().submit("svg_to_png", svg=svg, scale=scale).result()))
    echo(out)
