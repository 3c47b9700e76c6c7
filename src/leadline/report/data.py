"""The samples of a run as a table for other programs: CSV, JSONL or Parquet, by the name of the file."""

from __future__ import annotations

from pathlib import Path

from leadline.core.errors import MissingExtra, StoreError, UsageError
from leadline.report.load import Run
from leadline.store.export import columns_of, rows, write_csv, write_jsonl
from leadline.store.runs import read_records

KINDS = ("csv", "jsonl", "parquet")


def write_data(run: Run, path: Path) -> Path:
    kind = path.suffix.removeprefix(".")
    if kind not in KINDS:
        raise UsageError(f"{path.name!r} is not a kind of table", where="--data", fix=f"end it in .{', .'.join(KINDS)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "csv":
        write_csv(read_records(run.folder), path)
    elif kind == "jsonl":
        write_jsonl(read_records(run.folder), path)
    else:
        _write_parquet(run, path)
    return path


def _write_parquet(run: Run, path: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "frames", where="--data") from None
    found = list(rows(read_records(run.folder)))
    table = pyarrow.table({name: [row.get(name) for row in found] for name in columns_of(found)})
    try:
        pyarrow.parquet.write_table(table, path, compression="zstd")
    except OSError as error:
        raise StoreError(f"cannot write {path.name}: {error.strerror or error}", where=str(path)) from None
