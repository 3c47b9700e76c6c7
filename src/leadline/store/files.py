"""Files that are replaced atomically, and files that grow by whole lines."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path

from leadline.core.errors import StoreError
from leadline.core.secrets import redact_bytes

SYNC_SECONDS = 0.1
"""The longest time before a line is synced to disk. Only a power failure can lose it, not a killed process."""


def replace_file(path: Path, data: bytes) -> None:
    """Writes the file atomically: readers see the old or the new content, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(redact_bytes(data))
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StoreError(f"cannot write {path.name}: {error.strerror}", where=str(path)) from None
    except BaseException:  # Ctrl-C
        draft.unlink(missing_ok=True)
        raise


def remove_drafts(folder: Path) -> None:
    """Removes what `replace_file` left in a folder when its process was killed. Call it with the lock held."""
    for path in folder.glob(".*.[0-9]*"):
        if _DRAFT.fullmatch(path.name) and not path.is_dir():
            with suppress(OSError):
                path.unlink()


_DRAFT = re.compile(r"\.[\w.-]+\.(json|jsonl|csv|html|txt|toml)\.[0-9]+|\.rescoring\.[0-9]+")


def open_regular(path: Path, flags: int) -> int:
    """A descriptor of a regular file. A pipe or device under its name is an OSError, and is not waited for."""
    fd = os.open(path, flags | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0), 0o644)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return fd


class AppendFile:
    """A file that grows by whole lines, from many threads.

    A write that fails half-way is cut off, and nothing is written after it. A file that was deleted, replaced, made
    shorter or written to by someone else (who removed the lock) is an error at the next write or sync.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._fd = open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        except OSError as error:
            raise StoreError(f"cannot write {path.name}: {error.strerror}", where=str(path)) from None
        self._size = os.fstat(self._fd).st_size
        self._guard = threading.Lock()
        self._full: StoreError | None = None
        self._dirty = False
        self._synced = time.monotonic()

    def cut(self, end: int) -> int:
        """Cuts the file after byte `end`, the end of its last whole line; returns the number of bytes removed."""
        with self._guard:
            torn = self._size - end
            if torn:
                self._shrink(end)
                self._size = end
            if end and self._last_byte() != b"\n":  # a whole record without its line break
                self._write(b"\n")
        return torn

    def append(self, line: bytes) -> None:
        with self._guard:
            self._check()
            self._write(line)

    def check(self) -> None:
        """Raises if the file under its name is not what was written."""
        with self._guard:
            self._check()

    def _check(self) -> None:
        try:
            named, own = os.stat(self.path), os.fstat(self._fd)
        except OSError as error:
            lost = f"{self.path.name} is gone: {error.strerror}"
        else:
            if (named.st_dev, named.st_ino) != (own.st_dev, own.st_ino):
                lost = f"{self.path.name} was replaced by another file"
            elif own.st_size < self._size:
                lost = f"{self.path.name} has lost {self._size - own.st_size:,} bytes"
            elif own.st_size > self._size:
                lost = f"another process has written {own.st_size - self._size:,} bytes to {self.path.name}"
            else:
                return
        raise StoreError(
            f"{lost} while the run was writing it",
            where=str(self.path),
            fix="restore it if you can, then run the same command again: what has no record is asked again",
        )

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
                fix="free some disk space, then run the same command again: everything recorded so far is kept",
            )
            self._shrink(self._size)
            raise self._full from None
        self._size += written
        self._dirty = True

    def _shrink(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise StoreError(f"cannot cut off an incomplete line: {error.strerror}", where=str(self.path)) from None

    def _last_byte(self) -> bytes:
        with self.path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1)

    def sync(self) -> None:
        """Syncs to disk, at most once in SYNC_SECONDS and only if something was written. Also checks the file."""
        self.check()
        now = time.monotonic()
        if self._dirty and now - self._synced >= SYNC_SECONDS:
            self._synced = now
            self._force()

    def _force(self) -> None:
        self._dirty = False  # before the call: a record written meanwhile is synced by the next one
        try:
            os.fsync(self._fd)
        except OSError as error:
            raise StoreError(f"cannot sync records to disk: {error.strerror}", where=str(self.path)) from None

    def close(self) -> None:
        with self._guard:  # a late thread must not write to a descriptor that was reused
            self._full = StoreError("the file is closed", where=str(self.path))
            try:
                if self._dirty:
                    self._force()
            finally:
                os.close(self._fd)
