"""Rows of data files: JSON lines, a JSON list, or Parquet as published on a hub; one file or a folder of them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leadline.core.errors import MissingExtra, SourceError
from leadline.core.files import decoded, parse_json, read_bytes
from leadline.core.seeds import digest

ENDINGS = (".parquet", ".jsonl", ".json")


@dataclass(frozen=True, slots=True)
class RowKind:
    """For error messages: what the rows of a file should be, and the fix if one is not."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class DataRow:
    value: Mapping[str, Any]
    number: int
    """From 1."""
    where: str
    kind: RowKind

    @classmethod
    def of(cls, value: Any, number: int, where: str, kind: RowKind) -> DataRow:
        if not isinstance(value, dict):
            raise SourceError("not a JSON object", where=where, fix=kind.fix)
        return cls(value, number, where, kind)

    def error(self, problem: str) -> SourceError:
        return SourceError(f"not {self.kind.what}: {problem}", where=self.where, fix=self.kind.fix)

    def text(self, name: str) -> str:
        text = self.value.get(name)
        if not isinstance(text, str):
            problem = "no text" if text is not None else "null" if name in self.value else "missing"
            raise self.error(f"{name} is {problem}")
        return text

    def texts(self, name: str) -> list[str]:
        items = self.value.get(name)
        if not isinstance(items, list) or not items or None in items:
            raise self.error(f"{name} is not a list of texts")
        return [str(item) for item in items]


def data_files(path: Path) -> list[Path]:
    """The file itself, or all data files below a folder, by name."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in ENDINGS)
    if not files:
        raise SourceError(
            "there is no data file here", where=str(path), fix=f"give a file or folder of {', '.join(ENDINGS)} files"
        )
    return files


def digest_of(files: list[Path]) -> str:
    """Of names and contents."""
    digests = []
    for file in files:
        with file.open("rb") as opened:
            digests.append([file.name, hashlib.file_digest(opened, "sha256").hexdigest()])
    return digest(digests)


def read_rows(file: Path, kind: RowKind) -> Iterator[DataRow]:
    return _parquet_rows(file, kind) if file.suffix == ".parquet" else json_rows(read_bytes(file), str(file), kind)


def json_rows(data: bytes, where: str, kind: RowKind) -> Iterator[DataRow]:
    """Of JSON lines or of one JSON list."""
    text = decoded(data, where)
    if text.lstrip()[:1] == "[":
        for number, value in enumerate(parse_json(text, where), 1):
            yield DataRow.of(value, number, f"{where}, item {number}", kind)
        return
    for number, line in enumerate(io.StringIO(text, newline="\n"), 1):
        if line.strip():
            yield DataRow.of(parse_json(line, f"{where}:{number}"), number, f"{where}:{number}", kind)


def _parquet_rows(file: Path, kind: RowKind) -> Iterator[DataRow]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "frames", where=str(file)) from None
    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=64):
            for value in batch.to_pylist():
                number += 1
                yield DataRow(value, number, f"{file}, row {number}", kind)
    except (OSError, ValueError, pyarrow.ArrowException) as error:
        raise SourceError(f"not a Parquet file: {error}", where=str(file)) from None
