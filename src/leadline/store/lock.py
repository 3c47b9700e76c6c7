"""The lock of a run folder: one writer at a time. The system releases it when its holder dies, even by kill -9."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

from leadline.core.errors import LockedError, StoreError
from leadline.core.files import read_inside
from leadline.store.files import open_regular

LOCK = "lock"
PATIENCE_SECONDS = 0.2
"""How long a writer tries, since `is_held` takes the lock for an instant."""


def is_held(folder: Path) -> bool | None:
    """Whether a process is writing the run; None where the system cannot tell."""
    try:
        import fcntl

        fd = open_regular(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except (ImportError, OSError):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def machine_of(folder: Path) -> str:
    """The machine whose process wrote the run last, from the text of the lock file."""
    try:
        return read_inside(folder / LOCK, 1000).decode("utf-8", "replace").rpartition(" on ")[2].strip()
    except OSError:
        return ""


class Lock:
    """Held from construction to `release`. The text of the file names the holder, for messages; the lock is flock's."""

    def __init__(self, folder: Path, name: str = LOCK) -> None:
        self._path = folder / name
        try:
            self._fd = open_regular(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise StoreError(f"cannot write to the run: {error.strerror}", where=str(folder)) from None
        try:
            self._take()
        except BlockingIOError:
            holder = os.read(self._fd, 200).decode("utf-8", "replace").strip() or "another process"
            os.close(self._fd)
            raise LockedError(
                f"{holder} is writing this run",
                where=str(folder),
                fix="wait for it, stop it, or choose another folder with --out",
            ) from None
        except OSError as error:
            os.close(self._fd)
            raise StoreError(f"this file system cannot lock: {error.strerror}", where=str(self._path)) from None
        self._sign()

    def _take(self) -> None:
        import fcntl  # not on Windows, where runs can be read only

        last = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > last:
                    raise
                time.sleep(0.01)

    def _sign(self) -> None:
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except OSError:
            pass  # a full disk: the lock works without its text

    def release(self) -> None:
        os.close(self._fd)
