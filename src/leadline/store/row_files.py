"""Rows of a data set as it is published on a hub: Parquet or JSON lines, one file or a folder of them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.core.errors import SourceError
from leadline.core.files import decoded, parse_json, read_bytes
from leadline.core.seeds import digest

ENDINGS = (".parquet", ".jsonl", ".json")


@dataclass(frozen=True, slots=True)
class DataRow:
    """A row, and its place for error messages."""

    value: dict[str, Any]
    where: str

    def text(self, name: str) -> str:
        found = self.value.get(name)
        if not isinstance(found, str) or not found:
            raise self.error(f"{name} is not a text")
        return found

    def error(self, problem: str) -> SourceError:
        return SourceError(f"this is not a row of the data set: {problem}", where=self.where, fix="see docs/mrcr.md")


def data_files(place: Path) -> list[Path]:
    """The file itself, or all data files below a folder, by name."""
    found = [place] if place.is_file() else sorted(p for p in place.rglob("*") if p.suffix in ENDINGS)
    if not found:
        raise SourceError(
            "there is no data file here", where=str(place), fix=f"give a file or folder of {', '.join(ENDINGS)} files"
        )
    return found


def digest_of(files: list[Path]) -> str:
    """Of names and contents."""
    found = []
    for file in files:
        with file.open("rb") as opened:
            found.append([file.name, hashlib.file_digest(opened, "sha256").hexdigest()])
    return digest(found)


def read_rows(file: Path) -> Iterator[DataRow]:
    if file.suffix == ".parquet":
        yield from _parquet_rows(file)
        return
    text = decoded(read_bytes(file, error=SourceError), str(file))
    if text.lstrip()[:1] == "[":
        values: Any = parse_json(text, str(file))
        for number, value in enumerate(values, 1):
            yield _row(value, f"{file}, item {number}")
        return
    for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
        if line.strip():
            yield _row(parse_json(line, f"{file}:{number}"), f"{file}:{number}")


def _row(value: Any, where: str) -> DataRow:
    if not isinstance(value, dict):
        raise SourceError("not a JSON object", where=where)
    return DataRow(value, where)


def _parquet_rows(file: Path) -> Iterator[DataRow]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise SourceError(
            "reading Parquet files needs pyarrow", where=str(file), fix='pip install "leadline[frames]"'
        ) from None
    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=64):
            for value in batch.to_pylist():
                number += 1
                yield DataRow(value, f"{file}, row {number}")
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise SourceError(f"not a Parquet file: {error}", where=str(file)) from None
