"""Single samples, packed so that a hundred thousand of them travel inside one page and cost nothing until looked at.

Samples are cut into packs of some thousand. In a pack every column is a list, every text is a number that points into
the pack's own words, and the whole is JSON, gzipped, in base 64. The page unpacks one when somebody asks for a sample
in it. Where all of them would make the page too large, long answers are shortened, then right answers are thinned
out; `EmbeddedSamples.left_out` says so in words that stand on the page.
"""

from __future__ import annotations

import base64
import gzip
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from leadline.core.format import shorten
from leadline.core.types import Completion, Failure, Record
from leadline.results.table import FAILURE_CLASSES
from leadline.store.runs import PROMPTS, slug

# --- The words around a planted fact, for runs that kept their prompts.

AROUND = 160
"""Characters shown on either side."""


class Excerpts:
    """Reads prompts that were kept with `--keep-prompts`; gives nothing where they were not."""

    def __init__(self, folder: Path) -> None:
        prompts = folder / PROMPTS
        self._prompts = prompts if prompts.is_dir() else None

    def of(self, record: Record) -> str:
        """What stands around the first target in the document, the question after it left out."""
        if self._prompts is None or not record.targets:
            return ""
        try:
            prompt = (self._prompts / f"{slug(record.cell.key)}.txt").read_text("utf-8", "replace")
        except OSError:
            return ""
        at = prompt.find(record.targets[0])
        if at < 0:
            return ""
        start, end = max(0, at - AROUND), at + len(record.targets[0]) + AROUND
        return ("…" if start else "") + prompt[start:end] + ("…" if end < len(prompt) else "")


# --- Single samples, packed so that a hundred thousand of them travel inside one page and cost nothing un

BUDGET = 9_500_000
"""Characters of base 64 that all packs of a page may take."""
PACK = 2_000
"""Samples after which a pack is full."""

COLUMNS = (
    "depth", "sample", "class", "score", "question", "targets", "prefix", "answer", "graded", "thinking", "facts",
    "body", "ours", "theirs", "written", "seconds", "attempts", "finish", "detail", "failure", "document", "labels",
    "notes", "excerpt",
)  # fmt: skip
TEXTS = (
    "question", "targets", "prefix", "answer", "graded", "thinking", "finish", "detail", "failure", "document",
    "labels", "notes", "excerpt",
)  # fmt: skip
"""The columns whose numbers point into a pack's words."""
_CLASS = COLUMNS.index("class")
_DEPTH = COLUMNS.index("depth")
_NUMBERS = {name: number for number, name in enumerate(FAILURE_CLASSES)}
_RIGHT = _NUMBERS["correct"]
_LONG = tuple(COLUMNS.index(name) for name in ("question", "answer", "graded", "thinking", "excerpt"))

Row = tuple[Any, ...]


class Keep(NamedTuple):
    """How much of the samples is packed: characters of a text, and samples of a cell that are right or not."""

    characters: int
    right: int | None
    other: int | None


KEEPS = (
    Keep(4000, None, None),
    Keep(600, None, None),
    Keep(160, None, None),
    Keep(160, 5, None),
    Keep(160, 3, 40),
    Keep(80, 1, 5),
)


@dataclass(frozen=True, slots=True)
class EmbeddedSamples:
    packs: list[str]
    index: list[dict[str, Any]]
    """For every pack: its run, and its parts as [task, length, first row, rows]."""
    left_out: str


@dataclass(slots=True)
class Samples:
    """The samples of some runs by part: run, task and length."""

    parts: dict[tuple[int, int, int], list[Row]] = field(default_factory=dict)

    def add(self, run: int, tasks: Mapping[str, int], records: Iterable[Record], excerpts: Excerpts) -> None:
        for record in records:
            if record.wants_logprobs:
                continue
            key = (run, tasks[record.cell.task], record.cell.length)
            row = _cut(_row(record, excerpts.of(record)), KEEPS[0].characters)
            self.parts.setdefault(key, []).append(row)

    def packed(self, budget: int = BUDGET) -> EmbeddedSamples:
        """As much as the budget allows."""
        for keep in KEEPS:
            packs, index = _encode(self._kept(keep))
            if sum(map(len, packs)) <= budget or keep is KEEPS[-1]:
                return EmbeddedSamples(packs, index, _left_out(keep))
        raise AssertionError("the last of KEEPS always returns")

    def _kept(self, keep: Keep) -> Iterator[tuple[tuple[int, int, int], list[Row]]]:
        for key, rows in sorted(self.parts.items()):
            # What was added is already as short as the first of KEEPS wants it.
            yield key, rows if keep is KEEPS[0] else [_cut(row, keep.characters) for row in _thinned(rows, keep)]


def _row(record: Record, excerpt: str) -> Row:
    """The values of COLUMNS, in their order."""
    cell, outcome = record.cell, record.outcome
    answer: str | None = None
    graded: str | None = None
    thinking = finish = failure = written = None
    if isinstance(outcome, Failure):
        failure = f"{outcome.why}: {outcome.message}"
    else:
        assert isinstance(outcome, Completion)
        answer, thinking, finish = outcome.text, outcome.thinking or None, outcome.finish or None
        written = outcome.completion_tokens
        graded = next((s.answer for s in record.scores.values()), "")
        graded = graded if graded not in ("", answer, answer.strip()) else None
    facts = [[f.start, round(f.depth, 4), round(f.depth_asked, 4)] for f in record.facts[:8]] or None
    labels = ", ".join(f"{k} {v}" for k, v in record.labels.items()) or None
    return (
        cell.depth, cell.sample, _NUMBERS[record.failure_class], record.score, record.question,
        "\n".join(record.targets), record.answer_prefix, answer, graded, thinking, facts,
        record.body_tokens, record.receipt.ours, record.receipt.theirs, written, round(record.seconds, 3),
        record.attempts, finish, record.detail or None, failure, record.document, labels,
        "; ".join(record.sent.notes) or None, excerpt or None,
    )  # fmt: skip


def _thinned(rows: Sequence[Row], keep: Keep) -> Iterator[Row]:
    """The first few of each cell and kind, where there must be fewer."""
    if keep.right is None and keep.other is None:
        yield from rows
        return
    seen: Counter[tuple[Any, bool]] = Counter()
    for row in rows:
        right = row[_CLASS] == _RIGHT
        seen[row[_DEPTH], right] += 1
        limit = keep.right if right else keep.other
        if limit is None or seen[row[_DEPTH], right] <= limit:
            yield row


def _cut(row: Row, characters: int) -> Row:
    for at in _LONG:
        if row[at] is not None and len(row[at]) > characters:
            break
    else:
        return row
    values = list(row)
    for at in _LONG:
        if values[at] is not None:
            values[at] = shorten(values[at], characters)
    return tuple(values)


def _encode(
    parts: Iterable[tuple[tuple[int, int, int], list[Row]]],
) -> tuple[list[str], list[dict[str, Any]]]:
    packs: list[str] = []
    index: list[dict[str, Any]] = []
    waiting: list[Row] = []
    entry: dict[str, Any] = {}

    def close() -> None:
        if waiting:
            packs.append(_compressed(waiting))
            index.append(dict(entry))
            waiting.clear()

    for (run, task, length), rows in parts:
        if waiting and (entry["run"] != run or len(waiting) + len(rows) > PACK):
            close()
        if not waiting:
            entry = {"run": run, "parts": []}
        entry["parts"].append([task, length, len(waiting), len(rows)])
        waiting.extend(rows)
    close()
    return packs, index


def _compressed(rows: Sequence[Row]) -> str:
    words: dict[str, int] = {}
    columns = {}
    for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        if all(v is None for v in values):
            continue
        columns[name] = _pointed(values, words) if name in TEXTS else values
    plain = msgspec.json.encode({"words": list(words), "columns": columns})
    return base64.b64encode(gzip.compress(plain, 7, mtime=0)).decode()


def _pointed(texts: Sequence[str | None], words: dict[str, int]) -> list[int | None]:
    """Each text as its number among the words, which grow by those that are new."""
    return [None if text is None else words.setdefault(text, len(words)) for text in texts]


def _left_out(keep: Keep) -> str:
    if keep is KEEPS[0]:
        return ""
    words = f"To keep this page small, texts are shortened to {keep.characters} characters"
    if keep.right is not None:
        words += f", and of each cell at most {keep.right} right answers"
        words += f" and {keep.other} others are in it" if keep.other is not None else " are in it"
    return f"{words}. The run's records.jsonl holds everything."
