"""What wrong answers had in common, by task and length: copied demonstrations, other chains, duplicates ..."""

from __future__ import annotations

from dataclasses import dataclass

from leadline.report.table import Table


@dataclass(frozen=True, slots=True)
class DetailRow:
    """How often one thing was seen in the answers of a task, at each length of the table."""

    task: str
    detail: str
    counts: tuple[int, ...]


def detail_rows(table: Table) -> list[DetailRow]:
    """Task by task, what was seen most often first."""
    rows = []
    for task in table.tasks:
        seen = {n: table.details.get((task, n), {}) for n in table.lengths}
        names = dict.fromkeys(name for counts in seen.values() for name in counts)
        made = [DetailRow(task, name, tuple(seen[n].get(name, 0) for n in table.lengths)) for name in names]
        rows += sorted(made, key=lambda row: (-sum(row.counts), row.detail))
    return rows
