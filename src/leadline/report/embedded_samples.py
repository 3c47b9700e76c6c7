"""The samples of a run inside its page: a hundred thousand of them, unpacked only when one is opened.

Samples are split into packs. In a pack every column is a list, every text is an index into the pack's strings, and
the whole is gzipped JSON in base 64. Where all samples would make the page too large, long texts are shortened, then
correct answers are thinned out; `EmbeddedSamples.left_out` says so on the page.
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

from leadline.core.answers import Completion, Failure
from leadline.core.files import read_inside
from leadline.core.format import shorten
from leadline.core.records import Record
from leadline.results.table import FAILURE_CLASSES
from leadline.store.runs import PROMPTS, slug

EXCERPT_MARGIN = 160
"""Characters of the prompt shown on either side of the fact."""


class PromptExcerpts:
    """The text around the planted fact, for runs that kept their prompts (`--keep-prompts`)."""

    def __init__(self, folder: Path) -> None:
        prompts = folder / PROMPTS
        self._prompts = prompts if prompts.is_dir() else None

    def of(self, record: Record) -> str:
        """The text around the first target; empty where prompts were not kept."""
        if self._prompts is None or not record.question.targets:
            return ""
        try:
            prompt = read_inside(self._prompts / f"{slug(record.cell.key)}.txt").decode("utf-8", "replace")
        except OSError:
            return ""
        at = prompt.find(record.question.targets[0])
        if at < 0:
            return ""
        start, end = max(0, at - EXCERPT_MARGIN), at + len(record.question.targets[0]) + EXCERPT_MARGIN
        return ("…" if start else "") + prompt[start:end] + ("…" if end < len(prompt) else "")


BUDGET = 9_500_000
"""Characters of base 64 for all packs of a page."""
PACK_SIZE = 2_000
"""Samples in a pack."""

COLUMNS = (
    "depth", "sample", "class", "score", "question", "targets", "prefix", "answer", "graded", "thinking", "facts",
    "body", "ours", "theirs", "written", "seconds", "attempts", "finish", "detail", "failure", "document", "labels",
    "notes", "excerpt",
)  # fmt: skip
TEXT_COLUMNS = (
    "question", "targets", "prefix", "answer", "graded", "thinking", "finish", "detail", "failure", "document",
    "labels", "notes", "excerpt",
)  # fmt: skip
"""The columns that hold indexes into a pack's strings."""
_CLASS = COLUMNS.index("class")
_DEPTH = COLUMNS.index("depth")
_NUMBERS = {name: number for number, name in enumerate(FAILURE_CLASSES)}
_CORRECT = _NUMBERS["correct"]
_LONG = tuple(COLUMNS.index(name) for name in ("question", "answer", "graded", "thinking", "excerpt"))

SampleRow = tuple[Any, ...]


class PackLimits(NamedTuple):
    """The most characters of a text, and the most samples of a cell that are correct or not (None for all)."""

    characters: int
    correct: int | None
    other: int | None


LIMITS = (
    PackLimits(4000, None, None),
    PackLimits(600, None, None),
    PackLimits(160, None, None),
    PackLimits(160, 5, None),
    PackLimits(160, 3, 40),
    PackLimits(80, 1, 5),
)


@dataclass(frozen=True, slots=True)
class EmbeddedSamples:
    packs: list[str]
    index: list[dict[str, Any]]
    """For every pack its run, and its parts as [task, length, first row, number of rows]."""
    left_out: str


class RunSamples:
    """The samples of a run by task and length."""

    def __init__(self, folder: Path) -> None:
        self.parts: dict[tuple[str, int], list[SampleRow]] = {}
        self._excerpts = PromptExcerpts(folder)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            if record.wants_logprobs:
                continue
            key = record.cell.task, record.cell.length
            if key not in self.parts:
                self.parts[key] = []
            self.parts[key].append(_cut(_row(record, self._excerpts.of(record)), LIMITS[0].characters))


@dataclass(slots=True)
class SamplePacker:
    """Collects the samples of some runs by run, task and length."""

    parts: dict[tuple[int, int, int], list[SampleRow]] = field(default_factory=dict)

    def add(self, run: int, tasks: Mapping[str, int], samples: RunSamples) -> None:
        for (task, length), rows in samples.parts.items():
            self.parts[run, tasks[task], length] = rows

    def packed(self, budget: int = BUDGET) -> EmbeddedSamples:
        """As much as fits the budget."""
        for limits in LIMITS:
            packs, index = _encode(self._kept(limits), None if limits is LIMITS[-1] else budget)
            if packs or not self.parts:
                return EmbeddedSamples(packs, index, _left_out(limits))
        raise AssertionError("the last of LIMITS always returns")

    def _kept(self, limits: PackLimits) -> Iterator[tuple[tuple[int, int, int], list[SampleRow]]]:
        for key, rows in sorted(self.parts.items()):
            # Texts were cut to the first of LIMITS when they were added.
            yield key, rows if limits is LIMITS[0] else [_cut(row, limits.characters) for row in _thinned(rows, limits)]


def _row(record: Record, excerpt: str) -> SampleRow:
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
        for score in record.scores.values():  # the first
            graded = score.answer if score.answer not in ("", answer, answer.strip()) else None
            break
    facts = [(f.start, round(f.depth, 4), round(f.depth_asked, 4)) for f in record.facts[:8]] or None
    tags = record.question.tags
    labels = ", ".join([f"{name} {text}" for name, text in tags.items()]) if tags else None
    return (
        cell.depth, cell.sample, _NUMBERS[record.failure_class], record.score, record.question.text,
        "\n".join(record.question.targets), record.question.answer_prefix, answer, graded, thinking, facts,
        record.body_tokens, record.receipt.ours, record.receipt.theirs, written, round(record.seconds, 3),
        record.attempts, finish, record.detail or None, failure, record.document, labels,
        "; ".join(record.sent.notes) or None, excerpt or None,
    )  # fmt: skip


def _thinned(rows: Sequence[SampleRow], limits: PackLimits) -> Iterator[SampleRow]:
    """The first samples of each cell, correct or not, up to the limits."""
    if limits.correct is None and limits.other is None:
        yield from rows
        return
    seen: Counter[tuple[Any, bool]] = Counter()
    for row in rows:
        correct = row[_CLASS] == _CORRECT
        seen[row[_DEPTH], correct] += 1
        limit = limits.correct if correct else limits.other
        if limit is None or seen[row[_DEPTH], correct] <= limit:
            yield row


def _cut(row: SampleRow, characters: int) -> SampleRow:
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
    parts: Iterable[tuple[tuple[int, int, int], list[SampleRow]]], budget: int | None
) -> tuple[list[str], list[dict[str, Any]]]:
    """The packs and their index; nothing where they are larger than the budget."""
    packs: list[str] = []
    index: list[dict[str, Any]] = []
    pending: list[SampleRow] = []
    entry: dict[str, Any] = {}

    def close() -> None:
        if pending:
            packs.append(_compressed(pending))
            index.append(dict(entry))
            pending.clear()

    for (run, task, length), rows in parts:
        if budget is not None and sum(map(len, packs)) > budget:
            return [], []
        if pending and (entry["run"] != run or len(pending) + len(rows) > PACK_SIZE):
            close()
        if not pending:
            entry = {"run": run, "parts": []}
        entry["parts"].append([task, length, len(pending), len(rows)])
        pending.extend(rows)
    close()
    return (packs, index) if budget is None or sum(map(len, packs)) <= budget else ([], [])


def _compressed(rows: Sequence[SampleRow]) -> str:
    strings: dict[str, int] = {}
    columns = {}
    for name, values in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        if values.count(None) == len(values):
            continue
        columns[name] = _indexes(values, strings) if name in TEXT_COLUMNS else values
    plain = msgspec.json.encode({"strings": list(strings), "columns": columns})
    return base64.b64encode(gzip.compress(plain, 7, mtime=0)).decode()


def _indexes(texts: Sequence[str | None], strings: dict[str, int]) -> list[int | None]:
    """Each text as its index in `strings`; new texts are added."""
    indexes = {text: strings.setdefault(text, len(strings)) for text in dict.fromkeys(texts) if text is not None}
    return [None if text is None else indexes[text] for text in texts]


def _left_out(limits: PackLimits) -> str:
    if limits is LIMITS[0]:
        return ""
    text = f"To keep this page small, texts are cut to {limits.characters} characters"
    if limits.correct is not None:
        text += f" and each cell has at most {limits.correct} correct"
        text += f" and {limits.other} other samples" if limits.other is not None else " samples"
    return f"{text}. The run's records.jsonl holds everything."
