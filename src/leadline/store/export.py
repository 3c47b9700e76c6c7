"""Records as flat rows, for spreadsheets, notebooks and other programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from leadline.core.errors import StoreError
from leadline.core.records import Completion, Failure, Record

ExportRow = dict[str, Any]

COLUMNS = (
    "task", "length", "depth", "depth_real", "sample", "reading", "document", "cluster", "model",
    "score", "failure_class", "detail", "answer", "targets", "question",
    "failure", "failure_message", "finish", "prompt_tokens", "prompt_tokens_reported", "body_tokens",
    "completion_tokens", "cached_tokens", "attempts", "started", "seconds",
)  # fmt: skip
"""The columns every row has; `score.NAME`, `number.NAME` and `label.NAME` follow where records have them."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""First characters of texts that a spreadsheet may run as a formula; the last four are = + - @ in full width."""


def row(record: Record) -> ExportRow:
    """One record, flat. A failure has no score and no answer: the fields are empty, not zero."""
    cell, outcome = record.cell, record.outcome
    values: ExportRow = {
        "task": cell.task, "length": cell.length, "depth": cell.depth, "sample": cell.sample,
        "depth_real": record.facts[0].depth if len(record.facts) == 1 else None,
        "reading": record.reading, "document": record.document, "cluster": record.cluster, "model": record.model,
        "score": record.score, "failure_class": record.failure_class, "detail": record.detail,
        "targets": json.dumps(record.targets, ensure_ascii=False), "question": record.question,
        "prompt_tokens": record.prompt_tokens, "prompt_tokens_reported": record.receipt.theirs,
        "body_tokens": record.body_tokens,
        "attempts": record.attempts, "started": record.started, "seconds": record.seconds,
    }  # fmt: skip
    if isinstance(outcome, Completion):
        values |= {
            "answer": outcome.text, "finish": outcome.finish,
            "completion_tokens": outcome.completion_tokens, "cached_tokens": outcome.cached_tokens,
        }  # fmt: skip
    elif isinstance(outcome, Failure):
        values |= {"failure": outcome.why, "failure_message": outcome.message}
    else:
        values |= {f"number.{name}": number for name, number in outcome.numbers.items()}
    values |= {f"score.{name}": score.value for name, score in record.scores.items()}
    values |= {f"label.{name}": text for name, text in record.labels.items()}
    return dict.fromkeys(COLUMNS) | values


def rows(records: Iterable[Record]) -> Iterator[ExportRow]:
    return map(row, records)


def write_csv(records: Iterable[Record], path: Path) -> int:
    """Writes one line per record and returns their number.

    Answers are untrusted text, and a spreadsheet runs what looks like a formula: such a text gets a quote in front.
    JSONL and Parquet keep texts exactly.
    """
    found = list(rows(records))
    with _open_for_writing(path, newline="") as file:
        writer = csv.DictWriter(file, columns_of(found), restval="")
        writer.writeheader()
        writer.writerows({name: _escaped_formula(value) for name, value in values.items()} for values in found)
    return len(found)


def write_jsonl(records: Iterable[Record], path: Path) -> int:
    count = 0
    with _open_for_writing(path) as file:
        for values in rows(records):
            file.write(json.dumps(values, ensure_ascii=False) + "\n")
            count += 1
    return count


def columns_of(found: Sequence[ExportRow]) -> list[str]:
    """The common columns first, then those that only some rows have, by name."""
    extra = {name for values in found for name in values} - set(COLUMNS)
    return [*COLUMNS, *sorted(extra)]


def _escaped_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _open_for_writing(path: Path, newline: str | None = None) -> TextIO:
    try:
        return path.open("w", encoding="utf-8", newline=newline)
    except OSError as error:
        raise StoreError(f"cannot write {path.name}: {error.strerror}", where=str(path)) from None
