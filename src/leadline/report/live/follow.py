"""Reading a file of records while it grows: each byte once, whole lines only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from leadline.core.errors import StoreError
from leadline.core.types import Record
from leadline.store import codec
from leadline.store.runs import RECORDS

CHUNK = 4 << 20
"""Bytes read at once, so that a large run does not stand in memory twice."""


class Follower:
    """Hands out the records that have come since the last look.

    A line without its line break is not whole yet and waits for the next look. A file that has shrunk or was replaced
    is read again from the start: `starts` counts how often that was.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS
        self.offset = 0
        self.starts = 0
        self._file = (0, 0)

    def grown(self) -> bool:
        """Whether there is something to read, without reading it."""
        try:
            found = self.path.stat()
        except OSError:
            return False
        return found.st_size != self.offset or (found.st_dev, found.st_ino) != self._file

    def read(self) -> Iterator[Record]:
        try:
            with self.path.open("rb") as file:
                yield from self._records(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read the records: {error.strerror}", where=str(self.path)) from None

    def _records(self, fd: int) -> Iterator[Record]:
        found = os.fstat(fd)
        if (found.st_dev, found.st_ino) != self._file or found.st_size < self.offset:
            self._file, self.offset = (found.st_dev, found.st_ino), 0
            self.starts += 1
        size = CHUNK
        while data := os.pread(fd, size, self.offset):
            end = data.rfind(b"\n") + 1
            if not end and len(data) == size:  # a line longer than a chunk
                size *= 2
                continue
            for line in data[:end].splitlines(keepends=True):
                yield self._decoded(line)
                self.offset += len(line)
            if end < len(data) < size:
                return
            size = CHUNK

    def _decoded(self, line: bytes) -> Record:
        try:
            return codec.decode(line)
        except codec.DecodeError as error:
            raise StoreError(
                f"a line is not a record: {error}",
                where=f"{self.path}, byte {self.offset:,}",
                fix="remove that line; its cell is asked again on the next run",
            ) from None
