"""Writing so that nothing whole is ever lost: files replaced at once, and files that grow by whole lines."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from leadline.core.errors import StoreError

SYNC_SECONDS = 0.1
"""How long a line may wait to be forced to disk. A killed process loses nothing; only a power cut could."""


def replace_file(path: Path, data: bytes) -> None:
    """The whole new file or the whole old one, whatever happens in between."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path.name}: {error.strerror}", where=str(path)) from None


class AppendFile:
    """A file that only grows, by whole lines, from many threads.

    A write that fails half-way is taken back, and nothing is written after it: what follows a torn line would be
    torn too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"cannot write {path.name}: {error.strerror}", where=str(path)) from None
        self._size = os.fstat(self._fd).st_size
        self._guard = threading.Lock()
        self._full: StoreError | None = None
        self._dirty = False
        self._synced = time.monotonic()

    def cut(self, end: int) -> int:
        """Ends the file after the whole line that ends at byte `end`; says how many bytes went."""
        with self._guard:
            torn = self._size - end
            if torn:
                self._shrink(end)
                self._size = end
            if end and self._last_byte() != b"\n":  # a whole record that lost only its line break
                self._write(b"\n")
        return torn

    def append(self, line: bytes) -> None:
        with self._guard:
            self._write(line)

    def _write(self, line: bytes) -> None:
        if self._full is not None:
            raise self._full
        written = 0
        try:
            while written < len(line):
                written += os.write(self._fd, line[written:] if written else line)
        except OSError as error:
            self._full = StoreError(
                f"cannot write the record: {error.strerror}",
                where=str(self.path),
                fix="make room, then run the same command again: everything recorded so far is kept",
            )
            self._shrink(self._size)
            raise self._full from None
        self._size += written
        self._dirty = True

    def _shrink(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise StoreError(f"cannot cut off a torn line: {error.strerror}", where=str(self.path)) from None

    def _last_byte(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1)

    def sync(self) -> None:
        """At most once in SYNC_SECONDS, and only if there is something to force to disk."""
        now = time.monotonic()
        if self._dirty and now - self._synced >= SYNC_SECONDS:
            self._synced = now
            self._force()

    def _force(self) -> None:
        self._dirty = False  # before the call: a record that comes meanwhile is for the next one
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise StoreError(f"cannot force records to disk: {error.strerror}", where=str(self.path)) from None

    def close(self) -> None:
        with self._guard:  # a thread that is late must not write to a descriptor that is someone else's by now
            self._full = StoreError("the file is closed", where=str(self.path))
            try:
                if self._dirty:
                    self._force()
            finally:
                os.close(self._fd)
