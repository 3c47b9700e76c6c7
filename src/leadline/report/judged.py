"""Judged answers in the terminal and on the page: means naive and corrected, agreement, known cases, disagreement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup
from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from leadline.core.format import format_depth, format_length, format_percent, format_tokens, sanitise
from leadline.results.judged import Judged, read_judged
from leadline.results.judged_means import JudgeScore
from leadline.results.judged_summary import format_mean, judged_notes
from leadline.stats.agreement import Agreement, Coefficient

AGREEMENT_COLUMNS = ("n", "same verdict", "Krippendorff's α", "Gwet's AC1")


class TextTable(NamedTuple):
    """A table as texts: the terminal and the page draw the same one."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def judged_tables(judged: Judged) -> Iterator[TextTable]:
    scores = [*zip(_letters(judged), judged.judges, strict=True)]
    shown = [*scores, *([("median", judged.panel)] if judged.panel else [])]
    columns = ("judge", "graded", "unparsed", "failed", "says yes", "naive mean", "corrected mean")
    yield TextTable("judged means, with 95% intervals", columns, tuple(_mean_row(*named) for named in shown))
    parts = ("part", "judge", "n", "says yes", "naive", "corrected", "tokens")
    yield TextTable("judged means by length and depth", parts, tuple(_part_rows(shown)))
    if judged.is_corrected:
        columns = ("judge", "corrected", "Rogan-Gladen", "accepts right", "rejects wrong", "labels", "worth")
        yield TextTable("beside labels by people", columns, tuple(_correction_row(*named) for named in shown))
    columns = ("judge", "accepts right", "rejects wrong", "unparsed", "worst kind", "requests", "tokens")
    yield TextTable("known cases, and what the judge cost", columns, tuple(_known_row(*named) for named in scores))
    if judged.agreement is not None:
        rows = [("all", *_agreement_cells(judged.agreement))]
        rows += [(format_length(at), *_agreement_cells(found)) for at, found in judged.by_length.items()]
        rows += [(_depth(at), *_agreement_cells(found)) for at, found in judged.by_depth.items()]
        yield TextTable("agreement of judges, with 95% intervals", ("part", *AGREEMENT_COLUMNS), tuple(rows))
        yield _map(judged)


def judged_legend(judged: Judged) -> list[str]:
    """Which judge each letter is, with its family."""
    return [
        f"{letter}: {sanitise(score.name, 120)} (family {', '.join(score.families) or 'unknown'}"
        f"{', the own family of the tested model' if score.own_family else ''})"
        for letter, score in zip(_letters(judged), judged.judges, strict=True)
    ]


def _letters(judged: Judged) -> list[str]:
    return [chr(ord("A") + n) if n < 26 else str(n + 1) for n in range(len(judged.judges))]


def _mean_row(name: str, score: JudgeScore) -> tuple[str, ...]:
    found = score.corrected
    return (
        name,
        f"{score.graded:,}",
        f"{score.unparsed:,}",
        f"{score.failed:,}",
        _percent(score.yes_rate),
        format_mean(score.naive.mean, score.naive.interval) if score.naive else "-",
        format_mean(found.mean, found.interval) if found else "uncorrected",
    )


def _part_rows(shown: Sequence[tuple[str, JudgeScore]]) -> Iterator[tuple[str, ...]]:
    for named, parts in ((format_length, "by_length"), (_depth, "by_depth")):
        for at in getattr(shown[0][1], parts) if shown else ():
            for name, score in shown:
                if (part := getattr(score, parts).get(at)) is not None:
                    _, graded, _, _, yes, naive, corrected = _mean_row(name, part)
                    yes += f", {part.unparsed:,} unparsed" if part.unparsed else ""
                    corrected = corrected if part.corrected else "-"
                    tokens = part.prompt_tokens + part.completion_tokens
                    yield named(at), name, graded, yes, naive, corrected, format_tokens(tokens) if tokens else ""


def _depth(depth: float) -> str:
    return f"depth {format_depth(depth)}"


def _correction_row(name: str, score: JudgeScore) -> tuple[str, ...]:
    found, rogan = score.corrected, score.rogan_gladen
    return (
        name,
        format_mean(found.mean, found.interval) if found else "uncorrected",
        format_mean(rogan.mean, rogan.interval) if rogan else "-",
        _percent(rogan.sensitivity) if rogan else "-",
        _percent(rogan.specificity) if rogan else "-",
        f"{found.labels}" if found else "-",
        f"x {found.worth:.1f}" if found and math.isfinite(found.worth) else "-",
    )


def _known_row(name: str, score: JudgeScore) -> tuple[str, ...]:
    known, tokens = score.known, format_tokens(score.prompt_tokens + score.completion_tokens)
    cached = f", {format_tokens(score.cached_tokens)} cached" if score.cached_tokens else ""
    cost = (f"{score.requests:,}", tokens + cached)
    if known is None:
        return name, "-", "-", "-", "-", *cost
    kind, (good, cases) = min(known.by_kind.items(), key=lambda item: item[1][0] / item[1][1])
    return (
        name,
        f"{known.accepted} of {known.right}",
        f"{known.rejected} of {known.wrong}",
        f"{known.unparsed}",
        "-" if good == cases else f"{kind}: {good} of {cases}",
        *cost,
    )


def _agreement_cells(found: Agreement) -> tuple[str, ...]:
    return (
        f"{found.items:,}",
        format_mean(found.raw.value, found.raw.interval),
        _coefficient(found.krippendorff),
        _coefficient(found.gwet),
    )


def _coefficient(found: Coefficient) -> str:
    if not math.isfinite(found.value):
        return "not defined"
    return f"{found.value:.2f} [{found.interval.low:.2f}, {found.interval.high:.2f}]"


def _percent(value: float) -> str:
    return f"{format_percent(value)}%" if math.isfinite(value) else "-"


def _map(judged: Judged) -> TextTable:
    """Samples with different verdicts, by depth and length."""
    lengths = sorted({length for length, _ in judged.disagreement})
    depths = sorted({depth for _, depth in judged.disagreement}, key=lambda d: -1.0 if d is None else d)
    rows = []
    for depth in depths:
        found = [judged.disagreement.get((length, depth)) for length in lengths]
        rows.append((format_depth(depth), *(f"{f.differ} of {f.samples}" if f else "" for f in found)))
    title = "samples with different verdicts, depth down, length across"
    return TextTable(title, ("depth", *map(format_length, lengths)), tuple(rows))


def show_judged(folder: Path, console: Console, labels: Path | None = None) -> bool:
    """Prints what judges said; False where nothing was judged."""
    plain = not console.is_terminal or console.no_color
    found = read_judged(folder, labels)
    for judged in found:
        state = f"corrected with {judged.labels} labels" if judged.is_corrected else "uncorrected"
        console.print(Text(f"\njudged, rubric {judged.rubric}: {state}", style="bold"))
        for line in (*judged_notes(judged), *judged_legend(judged)):
            console.print(Text(line))
        for table in judged_tables(judged):
            console.print(_grid(table, plain=plain))
    return bool(found)


def _grid(table: TextTable, *, plain: bool) -> Grid:
    grid = Grid(box=box.ASCII2 if plain else box.ROUNDED, header_style="bold", title=table.title, title_justify="left")
    for number, column in enumerate(table.columns):
        grid.add_column(column, justify="right" if number else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(Text, row))
    return grid


def judged_html(folder: Path, at: int) -> Markup:
    """The section of the page; empty where nothing was judged."""
    parts: list[Markup] = []
    for judged in read_judged(folder):
        state = f"corrected with {judged.labels} labels by people" if judged.is_corrected else "uncorrected"
        parts.append(Markup("<h3>Rubric {}: {}</h3>\n").format(judged.rubric, state))
        parts += [
            Markup('<p class="{}">{}</p>\n').format("warning" if note.startswith("Uncorrected") else "small", note)
            for note in (*judged_notes(judged), *judged_legend(judged))
        ]
        parts += [_html_table(table) for table in judged_tables(judged)]
    if not parts:
        return Markup("")
    return Markup('<section id="judged-{}">\n<h2>Judged answers</h2>\n{}</section>\n').format(
        at, Markup("").join(parts)
    )


def _html_table(table: TextTable) -> Markup:
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(column) for column in table.columns)
    rows = Markup("").join(
        Markup('<tr><th scope="row">{}</th>{}</tr>\n').format(row[0], _cells(row[1:])) for row in table.rows
    )
    return Markup(
        '<h4>{}</h4>\n<div class="wide"><table>\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody></table></div>\n'
    ).format(table.title, head, rows)


def _cells(texts: Sequence[str]) -> Markup:
    return Markup("").join(Markup("<td>{}</td>").format(text) for text in texts)


def judged_link(folders: Sequence[Path]) -> list[tuple[str, str]]:
    """The link to the section in the page's navigation, if it is there."""
    return [("judged-0", "Judges")] if len(folders) == 1 and read_judged(folders[0]) else []
