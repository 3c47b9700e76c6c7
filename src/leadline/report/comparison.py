"""Several runs side by side: who reads furthest, and what changed against the first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from leadline.core.errors import UsageError
from leadline.core.format import (
    NO_NUMBER,
    distinct_names,
    escape_markdown,
    format_percent,
    format_percent_range,
    sanitise,
)
from leadline.report.charts.grid import difference_map, sentence
from leadline.report.charts.theme import Figure
from leadline.results.run import Run, label_of, model_of
from leadline.results.table import Tally
from leadline.results.verdict import Verdict, effective_interval, effective_point, length_range
from leadline.stats.comparability import Obstacle, comparability
from leadline.stats.compare import Comparison, compare, pair
from leadline.store.manifest import Manifest

# --- The two sides of a comparison as people know them: what each is called, which model it is and where its run lies.

ROLES = ("base", "candidate")


@dataclass(frozen=True, slots=True)
class Side:
    name: str
    """Never that of the other side."""
    model: str
    run: str

    def __str__(self) -> str:
        """`stretched, hf:checkpoints/4000?rope=yarn:4, runs/zoo/stretched`."""
        parts = (self.name, self.model if self.model not in self.name else "", self.run)
        return ", ".join(part for part in parts if part)


def sides_of(folders: tuple[Path, Path], manifests: tuple[Manifest, Manifest]) -> list[Side]:
    """Base and candidate."""
    names = distinct_names([label_of(m) for m in manifests], [folder.resolve().name for folder in folders])
    return [
        Side(name, sanitise(model_of(manifest), 200), sanitise(str(folder), 200))
        for name, manifest, folder in zip(names, manifests, folders, strict=True)
    ]


def lines_in_markdown(sides: Sequence[Side], obstacles: Sequence[Obstacle]) -> list[str]:
    """Who was compared, and everything that differs besides the model."""
    named = [f"- {role}: {escape_markdown(str(side))}" for role, side in zip(ROLES, sides, strict=True)]
    return [*named, *(f"- {escape_markdown(sanitise(str(obstacle), 300))}" for obstacle in obstacles)]


# --- Several runs side by side: who reads furthest, and what changed against the first.

STOPPED = (
    "A run that stopped by itself is compared as if its number of samples had been fixed: the intervals of differences "
    "are somewhat too narrow. `leadline run --until verdict` decides about a candidate and pays for its looks."
)


@dataclass(frozen=True, slots=True)
class BoardCell:
    mean: str
    spread: str


@dataclass(frozen=True, slots=True)
class BoardRow:
    name: str
    effective: str
    """With its interval, on one line; `effective_cell` has them apart."""
    effective_cell: BoardCell
    cells: tuple[BoardCell, ...]
    average: BoardCell


@dataclass(frozen=True, slots=True)
class Board:
    """One reading mode: modes are never mixed in one table."""

    reading: str
    lengths: tuple[int, ...]
    rows: tuple[BoardRow, ...]


@dataclass(frozen=True, slots=True)
class AgainstFirst:
    """A run against the first one; without a map where the two must not be compared."""

    name: str
    sentence: str
    comparison: Comparison | None
    figure: Figure | None
    warnings: tuple[str, ...]


def titles(runs: Sequence[Run]) -> list[str]:
    """A name for every run: what its model is called, and its folder too where several are called the same."""
    return distinct_names([run.label for run in runs], [run.name for run in runs])


def boards(runs: Sequence[Run], verdicts: Sequence[Verdict], names: Sequence[str]) -> list[Board]:
    """A table of runs for each reading mode, the furthest reader first."""
    order = sorted(range(len(runs)), key=lambda i: (runs[i].reading, *_rank(runs[i], verdicts[i])))
    made = []
    for reading, group in groupby(order, key=lambda i: runs[i].reading):
        members = list(group)
        lengths = sorted({n for i in members for n in runs[i].table.lengths})
        rows = tuple(_row(runs[i], verdicts[i], names[i], lengths) for i in members)
        made.append(Board(reading, tuple(lengths), rows))
    return made


def _rank(run: Run, found: Verdict) -> tuple[float, float]:
    return -(found.effective.length if found.effective else 0.0), -(run.table.whole.mean or 0.0)


def _row(run: Run, found: Verdict, name: str, lengths: Sequence[int]) -> BoardRow:
    by_length: Mapping[int, Tally] = run.table.by_length
    reach = found.effective
    return BoardRow(
        name=name,
        effective=length_range(reach) if reach else NO_NUMBER,
        effective_cell=BoardCell(effective_point(reach), effective_interval(reach, with_confidence=False))
        if reach
        else BoardCell(NO_NUMBER, ""),
        cells=tuple(_cell(by_length.get(n)) for n in lengths),
        average=_cell(run.table.whole),
    )


def _cell(tally: Tally | None) -> BoardCell:
    if tally is None or tally.mean is None:
        return BoardCell(NO_NUMBER, "")
    return BoardCell(format_percent(tally.mean), format_percent_range(tally.interval))


def against_first(
    runs: Sequence[Run], names: Sequence[str], *, narrow: bool = False, titled: bool = False
) -> list[AgainstFirst]:
    """`titled` puts both names on the map, for where nothing else says them."""
    return [
        _against((runs[0], run), (names[0], name), narrow=narrow, titled=titled)
        for run, name in zip(runs[1:], names[1:], strict=True)
    ]


def _against(runs: tuple[Run, Run], names: tuple[str, str], *, narrow: bool, titled: bool) -> AgainstFirst:
    (base, candidate), name = runs, f"{names[1]} less {names[0]}"
    obstacles = comparability(base.manifest.compared(), candidate.manifest.compared())
    refusals = [sanitise(str(o), 300) for o in obstacles if o.severity == "refuse"]
    warnings = tuple(sanitise(str(o), 300) for o in obstacles if o.severity == "warn")
    if base.rule or candidate.rule:
        warnings += (STOPPED,)
    if refusals:
        return AgainstFirst(name, f"Not compared: {'; '.join(refusals)}.", None, None, warnings)
    try:
        found = compare(pair(base.table.samples, candidate.table.samples))
    except UsageError as error:
        return AgainstFirst(name, f"Not compared: {error.what}.", None, None, warnings)
    figure = difference_map(found, names, narrow=narrow, titled=titled)
    return AgainstFirst(name, sentence(found), found, figure, warnings)
