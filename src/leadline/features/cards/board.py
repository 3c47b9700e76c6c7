"""A static, sortable page over many runs: effective length, accuracy by length, cost. No server is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from leadline import __version__
from leadline.core.format import format_length, format_number, format_percent, format_percent_range, sanitise
from leadline.features.cards.draw import PACKAGE, card_svg
from leadline.features.cards.verdict import COLOURS, window_use
from leadline.report.page import asset, join_scripts, page_style, policy, template
from leadline.results.run import Run
from leadline.results.verdict import verdict


@dataclass(frozen=True, slots=True)
class BoardCell:
    """The text of a table cell, the text below it, and the number to sort by."""

    text: str
    below: str = ""
    key: float = -1.0
    colour: str = ""


@dataclass(frozen=True, slots=True)
class BoardRow:
    name: str
    link: str
    """A page or card of the model; empty for published rows."""
    cells: tuple[BoardCell, ...]
    published: bool = False

    @property
    def model(self) -> str:
        return self.name.partition("?")[0]

    @property
    def options(self) -> str:
        return self.name.partition("?")[2].replace("&", " ")


def write_board(
    runs: Sequence[Run], names: Sequence[str], out: Path, published: Sequence[tuple[str, dict[int, float]]] = ()
) -> Path:
    """Writes index.html and a card for every run; `published` rows have scores in points by length."""
    out.mkdir(parents=True, exist_ok=True)
    lengths = sorted({n for run in runs for n in run.table.lengths} | {n for _, scores in published for n in scores})
    rows = []
    for number, (run, name) in enumerate(zip(runs, names, strict=True)):
        card = out / f"card-{number}.svg"
        card.write_text(card_svg(run), encoding="utf-8")
        rows.append(_row(run, name, card.name, lengths))
    rows.sort(key=lambda row: -row.cells[1].key)
    rows += [_published_row(name, scores, lengths) for name, scores in published]
    style, script = page_style() + asset("board.css", PACKAGE), join_scripts(asset("board.js", PACKAGE))
    text = template("board.html", PACKAGE).render(
        policy=policy(style, script), style=Markup(style), script=Markup(script), rows=rows, version=__version__,
        header=("model", "claims", "can use", "all lengths", *map(format_length, lengths), "tokens read", "reading"),
    )  # fmt: skip
    page = out / "index.html"
    page.write_text(text, encoding="utf-8", errors="replace")
    return page


def _row(run: Run, name: str, card: str, lengths: Sequence[int]) -> BoardRow:
    use, effective, overall = window_use(run), verdict(run).effective, run.table.whole
    reach = effective.length if effective is not None and use.use != "not measured" else -1.0
    by_length = []
    for length in lengths:
        tally = run.table.by_length.get(length)
        by_length.append(_accuracy(tally.mean, format_percent_range(tally.interval) if tally.interval else "")
                         if tally is not None and tally.mean is not None else BoardCell("–"))  # fmt: skip
    return BoardRow(sanitise(name, 60), card, (
        BoardCell(format_length(run.window) if run.window else "–", key=float(run.window or -1)),
        BoardCell(use.value, use.interval or use.use, reach, COLOURS[use.use]),
        _accuracy(overall.mean, format_percent_range(overall.interval) if overall.interval else "")
        if overall.mean is not None else BoardCell("–"),
        *by_length,
        BoardCell(format_number(run.totals.prompt_tokens), key=float(run.totals.prompt_tokens)),
        BoardCell(run.reading),
    ))  # fmt: skip


def _accuracy(mean: float | None, interval: str) -> BoardCell:
    assert mean is not None
    return BoardCell(f"{format_percent(mean)}%", interval, mean)


def _published_row(name: str, scores: dict[int, float], lengths: Sequence[int]) -> BoardRow:
    known = [scores[n] for n in lengths if n in scores]
    mean = sum(known) / len(known) if known else None
    cells = [BoardCell(f"{scores[n]:.1f}%", key=scores[n] / 100) if n in scores else BoardCell("–") for n in lengths]
    whole = BoardCell("–") if mean is None else BoardCell(f"{mean:.1f}%", key=mean / 100)
    return BoardRow(
        sanitise(name, 60), "", (BoardCell("–"), BoardCell("–"), whole, *cells, BoardCell("–"), BoardCell("–")), True
    )
