"""The run folder: records appended as they arrive, one writer, resumable.

    manifest.json     what the run is; replaced whole, never edited in place
    records.jsonl     one record per line, appended with one system call each; the source of truth
    records-1.jsonl   the records before `leadline rescore`
    counts.jsonl      what a provider's counts of prompts led to, where its tokenizer is not known
    again/            the questions that were asked a second time, as a run folder of their own
    prompts/          one text file per prompt, only with --keep-prompts
    lock              held while a process writes

Only the last line can be incomplete (kill -9, full disk), since every write starts at the end of a whole line. It is
cut off when the run is opened again, and its cell is asked again. A record is decoded before it is written. A line that
cannot be read (damaged by something else) stays where it is: readers name, count and skip it, and its cell is asked
again.
"""

from __future__ import annotations

import errno
import io
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from leadline.core.errors import OtherRunError, StoreError, UnreadableRecord
from leadline.core.files import open_inside
from leadline.core.records import Record
from leadline.core.secrets import holds_used, redact_used, redact_values
from leadline.core.types import Cell
from leadline.store.files import AppendFile, remove_drafts, replace_file
from leadline.store.lock import LOCK, Lock
from leadline.store.manifest import MANIFEST, Manifest, now, read_manifest, refuse_other_run

_encoder = msgspec.json.Encoder()
_record_decoder = msgspec.json.Decoder(Record)


class _OnlyCell(msgspec.Struct, gc=False):
    """A record of which only the cell is read."""

    cell: Cell


_cell_decoder = msgspec.json.Decoder(_OnlyCell)
_AFTER_CELL = b'},"reading":'
"""What follows the cell on a line that `encode` wrote. Quotes in texts are escaped, so none of them holds this."""

DecodeError = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `decode` raises for a line that is not a record."""


def encode(record: msgspec.Struct) -> bytes:
    """The line of a record or verdict, newline included. JSON escapes line breaks, so a line is always one record."""
    return _encode(record) + b"\n"


def decode(line: bytes) -> Record:
    return _record_decoder.decode(line)


def encode_pretty(value: Any) -> bytes:
    """For files that people open, such as the manifest."""
    return msgspec.json.format(_encode(value), indent=2) + b"\n"


def _encode(value: Any) -> bytes:
    """Everything that is written to a run folder as JSON is encoded here, without any secret that is in use."""
    try:
        data = _encoder.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, which a server may well send
        data = _encoder.encode(_well_formed(msgspec.to_builtins(value)))
    return _encoder.encode(redact_values(msgspec.json.decode(data))) if holds_used(data) else data


def _well_formed(value: Any) -> Any:
    """The same value with every lone surrogate shown as U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_well_formed(k): _well_formed(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_well_formed(v) for v in value]
    return value


RECORDS = "records.jsonl"
AGAIN = "again"
"""In a run folder: the questions that were asked a second time, as a run of its own."""
MAX_LINE_BYTES = 256 << 20
"""A longer line is no record: such a file is refused before it fills the memory."""
PROMPTS = "prompts"
RESCORING = "rescoring"


# --- reading


_OLD_RECORD = b'{"version":1,'
OLD_FORMAT = "format 1, of a Leadline before 0.1.0, without the question: measure again"


class UnreadableLine(NamedTuple):
    """A line of the records that is not a record."""

    number: int
    why: str

    def __str__(self) -> str:
        return f"line {self.number} of {RECORDS} cannot be read ({self.why})"


def read_records(folder: Path | str, unreadable: list[UnreadableLine] | None = None) -> Iterator[Record]:
    """The newest record of every cell, in the order they were written. Works on a run that is being written.

    Lines that cannot be read are left out and added to `unreadable`, as they are come upon. The file is read twice, so
    that a large one is not held in memory, and opened once: `leadline rescore` may replace it meanwhile.
    """
    with _opened(folder) as file:
        newest = _newest(file)
        end = file.tell()
        file.seek(0)
        for start, _, record in _lines(file, unreadable):
            if start >= end:
                return
            if record is not None and start in newest:
                yield record


def _newest(file: IO[bytes]) -> set[int]:
    """The offsets of the newest readable line of every cell. Only cells are decoded, and what replaces an earlier line:
    a line that cannot be read replaces none."""
    newest: dict[str, int] = {}
    start = 0
    for line in _split(file):
        try:
            key = _cell_of(line).key
            if key in newest:
                decode(line)
            newest[key] = start
        except DecodeError:
            pass
        start += len(line)
    return set(newest.values())


def _cell_of(line: bytes) -> Cell:
    """The cell of a line, the rest of which may be damaged. Most lines are read no further than it."""
    end = line.find(_AFTER_CELL)
    if end >= 0:
        try:
            return _cell_decoder.decode(line[: end + 1] + b"}").cell
        except DecodeError:
            pass
    return _cell_decoder.decode(line).cell


def every_record(folder: Path | str) -> Iterator[Record]:
    """All readable records, those that newer ones replaced too: each of them was asked and paid for."""
    with _opened(folder) as file:
        yield from (record for _, _, record in _lines(file) if record is not None)


def count_done(folder: Path | str) -> tuple[int, int]:
    """How many cells have an answer, and how many have only a failure."""
    settled = {record.cell.key: record.is_final for record in every_record(folder)}
    answered = sum(settled.values())
    return answered, len(settled) - answered


@contextmanager
def _opened(folder: Path | str) -> Iterator[IO[bytes]]:
    """The file of records; an empty one where there is none yet."""
    path = Path(folder) / RECORDS
    try:
        with open_inside(path) if os.path.lexists(path) else io.BytesIO() as file:
            yield file
    except OSError as error:
        raise StoreError(f"cannot read the records: {error.strerror}", where=str(path)) from None


def _lines(
    file: IO[bytes], unreadable: list[UnreadableLine] | None = None
) -> Iterator[tuple[int, bytes, Record | None]]:
    """Every line with its offset and its record; None if it has none. A last line without its line break is
    incomplete, others are added to `unreadable`."""
    start = 0
    for number, line in enumerate(_split(file), 1):
        record = None
        try:
            record = decode(line)
        except DecodeError as error:
            if unreadable is not None and line.endswith(b"\n"):
                why = OLD_FORMAT if line.startswith(_OLD_RECORD) else str(error)
                unreadable.append(UnreadableLine(number, why))
        yield start, line, record
        start += len(line)


def _split(file: IO[bytes]) -> Iterator[bytes]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    if size < MAX_LINE_BYTES:  # no line can be too long
        yield from file
        return
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
        if len(line) == MAX_LINE_BYTES:
            raise OSError(errno.EFBIG, f"line {number} is longer than {MAX_LINE_BYTES >> 20} MB")
        yield line


# --- writing


class RunWriter:
    """The one writer of a run. Made by `open_run`; safe to call from many threads."""

    def __init__(self, folder: Path, manifest: Manifest, lock: Lock) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lock = lock
        self._records = AppendFile(folder / RECORDS)
        try:
            self.done, self.failed = self._read_done()
        except BaseException:
            self._records.close()
            raise

    def _read_done(self) -> tuple[frozenset[str], frozenset[str]]:
        """The keys that have an answer and those that have only a failure; an incomplete last line is cut off."""
        is_answered: dict[str, bool] = {}
        end = 0
        self.unreadable: list[UnreadableLine] = []
        """Lines that are not records; their cells are asked again."""
        with _opened(self.folder) as file:
            for start, line, record in _lines(file, self.unreadable):
                if record is not None:
                    is_answered[record.cell.key] = record.is_final
                if record is not None or line.endswith(b"\n"):
                    end = start + len(line)
        self.recorded = set(is_answered)
        """The keys that have a record, updated by `append`."""
        self.torn_bytes = self._records.cut(end)
        """Bytes of an incomplete last line that were cut off."""
        done = frozenset(k for k, answered in is_answered.items() if answered)
        return done, frozenset(is_answered) - done

    def append(self, record: Record) -> None:
        """When this returns, the record survives the death of this process. Raises UnreadableRecord, and writes
        nothing, if it could not be read back."""
        try:
            line = encode(record)
            decode(line)
        except (*DecodeError, TypeError, OverflowError) as error:
            raise UnreadableRecord(f"this record could not be read back: {error}", where=record.cell.key) from None
        self._records.append(line)
        self.recorded.add(record.cell.key)

    def keep_prompt(self, cell: Cell, prompt: str) -> None:
        """Writes the prompt to a file named by the cell, without keys in use that its haystack may hold."""
        path = self.folder / PROMPTS / f"{slug(cell.key)}.txt"
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(redact_used(prompt).encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise StoreError(f"cannot keep the prompt: {error.strerror}", where=str(path)) from None

    def sync(self) -> None:
        """Syncs records to disk if it is time."""
        self._records.sync()

    def close(self, *, ended: bool = False) -> None:
        """Syncs everything and releases the lock. `ended` says that nothing is left to ask."""
        try:
            try:
                if ended:
                    self._records.check()
            finally:
                self._records.close()
            if ended:
                self._mark_ended()
        finally:
            self._lock.release()

    def _mark_ended(self) -> None:
        *before, last = self.manifest.sessions
        last = msgspec.structs.replace(last, ended=now())
        self.manifest = msgspec.structs.replace(self.manifest, sessions=(*before, last))
        replace_file(self.folder / MANIFEST, encode_pretty(self.manifest))

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(ended=kind is None and bool(self.manifest.sessions))


def slug(text: str) -> str:
    """A name that is safe as part of a path, and still readable. Without brackets, which a shell would expand: sweeps
    put options into them."""
    safe = re.sub(r"[^\w.=\[\]-]+", "-", text)
    return re.sub(r"-*\[", "-", safe).replace("]", "").strip("-.") or "x"


def open_run(folder: Path, manifest: Manifest) -> RunWriter:
    """Starts the run, or resumes it when the folder has a run with the same identity, or one that asked for less."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the run's folder: {error.strerror}", where=str(folder), fix="choose another with --out"
        ) from None
    lock = Lock(folder)
    try:
        remove_drafts(folder)
        if (folder / MANIFEST).exists():
            _refuse_half_rescored(folder)
            there = read_manifest(folder)
            refuse_other_run(there, manifest, folder)
            manifest = manifest.extended_from(there)
        else:
            _refuse_other_files(folder)
        replace_file(folder / MANIFEST, encode_pretty(manifest))
        return RunWriter(folder, manifest, lock)
    except BaseException:
        lock.release()
        raise


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the lock of a run that exists, so that no other process writes to it."""
    read_manifest(folder)
    lock = Lock(folder)
    try:
        yield
    finally:
        lock.release()


def replace_records(folder: Path, manifest: Manifest, records: Iterable[Record]) -> Path:
    """Puts other records and another manifest into a locked run; returns the file that has the records as they were.

    A marker is there while the two may not belong together: after a crash the run is refused until this is done again.
    """
    path, number = folder / RECORDS, 1
    while (saved := folder / f"records-{number}.jsonl").exists():
        number += 1
    lines = b"".join(map(encode, records))
    try:
        shutil.copyfile(path, saved)
        replace_file(folder / RESCORING, b"leadline rescore was interrupted here\n")
        replace_file(path, lines)
        replace_file(folder / MANIFEST, encode_pretty(manifest))
        (folder / RESCORING).unlink()
    except OSError as error:
        raise StoreError(f"cannot write the records: {error.strerror}", where=str(folder)) from None
    return saved


def _refuse_half_rescored(folder: Path) -> None:
    if (folder / RESCORING).exists():
        raise StoreError(
            "rescoring this run was interrupted, so its scores and its manifest may not belong together",
            where=str(folder),
            fix=f"run leadline rescore {folder} again with the same scorers",
        )


def _refuse_other_files(folder: Path) -> None:
    others = sorted(p.name for p in folder.iterdir() if p.name != LOCK and not p.name.startswith("."))
    if others:
        raise OtherRunError(
            f"the folder is not empty and holds no run: {', '.join(others[:3])}{' ...' if len(others) > 3 else ''}",
            where=str(folder),
            fix="choose a new folder with --out",
        )
