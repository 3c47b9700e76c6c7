"""Records as flat rows, for spreadsheets, notebooks and other programs: CSV, JSONL and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from leadline.core.answers import Completion, Failure
from leadline.core.errors import MissingExtra, StoreError, UsageError
from leadline.core.records import Record

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
        "targets": json.dumps(record.question.targets, ensure_ascii=False), "question": record.question.text,
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
    values |= {f"label.{name}": text for name, text in record.question.tags.items()}
    return dict.fromkeys(COLUMNS) | values


def rows(records: Iterable[Record]) -> Iterator[ExportRow]:
    return map(row, records)


def write_rows(records: Iterable[Record], path: Path) -> Path:
    """A CSV, JSONL or Parquet file, by its ending, with one row per record."""
    write = _WRITERS.get(path.suffix)
    if write is None:
        fix = f"choose a name that ends in {', '.join(_WRITERS)}"
        raise UsageError(f"unknown table format {path.name!r}", where="--data", fix=fix)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(rows(records), path)
    except OSError as error:
        raise StoreError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from None
    return path


def _write_csv(export_rows: Iterable[ExportRow], path: Path) -> None:
    """Answers are untrusted text, and a spreadsheet runs what looks like a formula: such a text gets a quote in front.
    JSONL and Parquet keep texts exactly."""
    export_rows = list(export_rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, _columns(export_rows), restval="")
        writer.writeheader()
        writer.writerows({name: _escaped_formula(value) for name, value in values.items()} for values in export_rows)


def _escaped_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _write_jsonl(export_rows: Iterable[ExportRow], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(values, ensure_ascii=False) + "\n" for values in export_rows)


def _write_parquet(export_rows: Iterable[ExportRow], path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "frames", where="--data") from None
    export_rows = list(export_rows)
    table = pyarrow.table({name: [values.get(name) for values in export_rows] for name in _columns(export_rows)})
    pyarrow.parquet.write_table(table, path, compression="zstd")


def _columns(export_rows: Sequence[ExportRow]) -> list[str]:
    """The common columns first, then those that only some rows have, by name."""
    extra = {name for values in export_rows for name in values} - set(COLUMNS)
    return [*COLUMNS, *sorted(extra)]


_WRITERS: dict[str, Callable[[Iterable[ExportRow], Path], None]] = {
    ".csv": _write_csv,
    ".jsonl": _write_jsonl,
    ".parquet": _write_parquet,
}
