"""Answers from memory: what a model says with the document, beside what it says to the same question without it.

A right answer that is also given without the document shows nothing about reading. A wrong one that is given in the
same words without it was not read either: the model answered from memory (RULER's error analysis, arXiv 2404.06654).
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from dataclasses import dataclass

from leadline.core.records import Completion, Record

NO_CONTEXT = "no_context"
_PUNCTUATION = string.punctuation + string.whitespace


@dataclass(frozen=True, slots=True)
class FromMemory:
    """Of the questions of a task at a length that were answered both ways."""

    task: str
    length: int
    both: int
    right_without: int
    """Right without the document."""
    wrong: int
    """Wrong with the document ..."""
    wrong_from_memory: int
    """... and in the same words without it."""


def from_memory(records: Iterable[Record]) -> list[FromMemory]:
    """By task and length. Pairs are found by question and place in the grid, whatever the tasks are called."""
    read: list[Record] = []
    without: dict[tuple[object, ...], Record] = {}
    for record in records:
        if isinstance(record.outcome, Completion) and record.score is not None:
            if NO_CONTEXT in record.labels:
                without[_place(record)] = record
            else:
                read.append(record)
    groups: dict[tuple[str, int], list[tuple[Record, Record]]] = {}
    for record in read if without else ():
        other = without.get(_place(record))
        if other is not None:
            groups.setdefault((record.cell.task, record.cell.length), []).append((record, other))
    return [_count(task, length, pairs) for (task, length), pairs in sorted(groups.items())]


def _count(task: str, length: int, pairs: list[tuple[Record, Record]]) -> FromMemory:
    wrong = [(record, other) for record, other in pairs if record.score == 0]
    return FromMemory(
        task=task,
        length=length,
        both=len(pairs),
        right_without=sum(other.score == 1 for _, other in pairs),
        wrong=len(wrong),
        wrong_from_memory=sum(_said(record) == _said(other) != "" for record, other in wrong),
    )


def _place(record: Record) -> tuple[object, ...]:
    cell = record.cell
    return (record.question, record.targets, cell.length, cell.depth, cell.sample)


def _said(record: Record) -> str:
    """The answer's first line, without letter case and the punctuation around it."""
    assert isinstance(record.outcome, Completion)  # only answers are paired
    first = record.outcome.text.strip().partition("\n")[0]
    return " ".join(first.casefold().strip(_PUNCTUATION).split())
