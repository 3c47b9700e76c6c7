"""Questions that were asked a second time: how often the same prompt was scored otherwise.

Where a model has no greedy decoding, this flip rate is noise: a smaller difference between two runs says nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leadline.core.answers import Completion
from leadline.core.format import format_count
from leadline.core.records import Record
from leadline.core.seeds import digest
from leadline.stats.intervals import Estimate, mean_interval
from leadline.store.manifest import MANIFEST
from leadline.store.runs import AGAIN, read_records

SHARE = 0.1
"""Of the questions, those that are asked again."""
FEWEST, MOST = 20, 200
"""Of these, where no share is given."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Questions with two answers. Those whose prompt was another one the second time are left out."""

    questions: int
    flipped: int
    """Scored otherwise."""
    other_text: int
    rate: Estimate
    """The share that flipped; its interval is over documents."""
    other_prompt: int = 0
    """Left out."""

    def describe(self) -> str:
        interval = self.rate.interval
        return (
            f"{self.flipped} of {format_count(self.questions, 'question')} scored otherwise "
            f"({100 * self.rate.mean:.1f}%, 95%: {100 * interval.low:.1f} to {100 * interval.high:.1f}%), "
            f"{format_count(self.other_text, 'answer')} with another text"
        )


def wanted_repeats(questions: int, share: float | None = None) -> int:
    """How many of so many questions are asked again."""
    if share is None:
        return min(questions, MOST, max(FEWEST, round(SHARE * questions)))
    return min(questions, max(1, round(share * questions))) if share and questions else 0


def choose_repeats(records: Iterable[Record], share: float | None = None) -> list[str]:
    """The keys of the cells to ask again: whole documents, so that what their questions share is read once, taken in
    turn from every task and length. More records add keys and seldom change the first ones."""
    documents: dict[str, list[Record]] = {}
    for record in records:
        if not (record.failed or record.wants_logprobs):
            documents.setdefault(record.document, []).append(record)
    strata: dict[tuple[str, int], list[list[Record]]] = {}
    for members in sorted(documents.values(), key=lambda together: digest(together[0].document)):
        strata.setdefault((members[0].cell.task, members[0].cell.length), []).append(members)
    turns = sorted(
        (turn, stratum, number)
        for number, (stratum, members) in enumerate(sorted(strata.items()))
        for turn in range(len(members))
    )
    keys = [record.cell.key for turn, stratum, _ in turns for record in strata[stratum][turn]]
    return keys[: wanted_repeats(len(keys), share)]


def compare_repeats(first: Mapping[str, Record], second: Sequence[Record]) -> Repeats | None:
    """What differs between two answers to the same prompts; None where no question has two."""
    pairs = [(first[r.cell.key], r) for r in second if r.cell.key in first]
    answered = [pair for pair in pairs if not any(record.failed for record in pair)]
    same = [(a, b) for a, b in answered if a.prompt_digest == b.prompt_digest]
    if not same:
        return None
    flips = [float(a.score != b.score) for a, b in same]
    return Repeats(
        len(same),
        int(sum(flips)),
        sum(_text(a) != _text(b) for a, b in same),
        mean_interval(flips, [a.document for a, _ in same]),
        len(answered) - len(same),
    )


def repeats_of(folder: Path, cells: Collection[str] | None = None) -> Repeats | None:
    """Those of a run folder, or of these cells of it."""
    again = folder / AGAIN
    if not (again / MANIFEST).exists():
        return None
    second = [record for record in read_records(again) if cells is None or record.cell.key in cells]
    wanted = {record.cell.key for record in second}
    return compare_repeats({r.cell.key: r for r in read_records(folder) if r.cell.key in wanted}, second)


def _text(record: Record) -> str:
    return record.outcome.text if isinstance(record.outcome, Completion) else ""
