"""Files that users give (text, JSON, TOML, tables; errors name the file and the line), locks, and the cache folder."""

from __future__ import annotations

import csv
import errno
import io
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from leadline.core.errors import LeadlineError, SourceError, UsageError

T = TypeVar("T")
ErrorType = type[LeadlineError]
MAX_FIELD = 1 << 24
"""Characters of one field of a table."""


def expand_path(name: str | Path) -> Path:
    """The path with `~` and `~user` as home folders. A file of this folder may have a name that begins with `~`."""
    written = os.fspath(name)
    try:
        path = os.path.expanduser(written)
    except ValueError:  # a name that no user and no file can have
        path = written
    if path.startswith("~") and not os.path.exists(path):
        user = path[1:].partition(os.sep)[0]
        raise UsageError(
            f"this system has no user {user!r}" if user else "the home folder is not known",
            where=written,
            fix="write the path in full; for a file of this folder, ./~NAME",
        )
    return Path(path)


def read_bytes(path: Path, *, error: ErrorType = SourceError, fix: str = "") -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as problem:  # ValueError: a name that no file can have
        raise error(f"cannot read the file: {_reason(problem)}", where=str(path), fix=fix) from None


MAX_FILE_BYTES = 64 << 20
"""The largest file of a run folder that is read whole. Records are read line by line and have no bound."""


def open_inside(path: Path) -> IO[bytes]:
    """Opens a file of a run folder, which may come from a stranger, without ever waiting: only a regular file, and no
    link that leads out of the folder. Raises OSError otherwise; FileNotFoundError where nothing has this name."""
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
    real = Path(os.path.realpath(path))
    if path.is_symlink() and not real.is_relative_to(os.path.realpath(path.parent)):
        raise OSError(errno.EPERM, "it is a link out of its folder", str(path))
    fd = os.open(real, flags)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return open(fd, "rb")
    except BaseException:
        os.close(fd)
        raise


def read_inside(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """A whole file of a run folder, as `open_inside` opens it. Raises OSError also for one that is too large."""
    with open_inside(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes >> 20} MB", str(path))
    return data


def read_text(path: Path, *, error: ErrorType = SourceError, fix: str = "") -> str:
    """The text of a UTF-8 file, without a byte order mark, with \\n for every line break."""
    text = decoded(read_bytes(path, error=error, fix=fix), str(path), error=error)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def decoded(data: bytes, where: str, *, error: ErrorType = SourceError) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line_number = data.count(b"\n", 0, problem.start) + 1
        raise error(
            f"not a UTF-8 text (byte 0x{data[problem.start]:02x})",
            where=f"{where}:{line_number}",
            fix="save the file as UTF-8, or leave it out",
        ) from None


def parse_json(text: str, where: str, *, error: ErrorType = SourceError, fix: str = "") -> Any:
    """`where` is the file, or the file and line where the text is one line of it."""
    return _parsed(json.loads, "JSON", text, where, error, fix)


def parse_toml(text: str, where: str, *, error: ErrorType = SourceError, fix: str = "") -> dict[str, Any]:
    table: dict[str, Any] = _parsed(tomllib.loads, "TOML", text, where, error, fix)
    return table


def _parsed(read: Callable[[str], Any], kind: str, text: str, where: str, error: ErrorType, fix: str) -> Any:
    try:
        return read(text)
    except RecursionError:
        raise error(f"not {kind} of this kind: nested too deeply", where=where, fix=fix) from None
    except ValueError as problem:
        named = re.search(r"\(at line (\d+)", str(problem))  # by tomllib
        line_number = getattr(problem, "lineno", None) or (named and named[1])
        if line_number and not re.search(r":\d+$", where):
            where = f"{where}:{line_number}"
        raise error(f"not {kind}: {problem}", where=where, fix=fix) from None


def decode_json(
    data: bytes, kind: type[T], where: str, *, what: str, error: ErrorType = SourceError, fix: str = ""
) -> T:
    """JSON of a known type. `what` says what it is not, if it is not."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError:
        raise error(f"{what}: nested too deeply", where=where, fix=fix) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        byte = re.search(r"\(byte (\d+)\)", str(problem))
        at = int(byte[1]) if byte else len(data) if "truncated" in str(problem) else None
        if at is not None and not re.search(r":\d+$", where):
            line_number = data.count(b"\n", 0, at) + 1
            where = f"{where}:{line_number}"
        raise error(f"{what}: {problem}", where=where, fix=fix) from None


def delimiter_of(text: str) -> str:
    """What separates the cells of a table: the most frequent of comma, semicolon and tab in its header."""
    header = next((line for line in text.splitlines() if line.strip()), "")
    return max(",;\t", key=header.count)


def table_rows(text: str, where: str, *, delimiter: str = ",") -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV text that have a cell, each with the number of its last line."""
    csv.field_size_limit(MAX_FIELD)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as problem:
            fix = "quote cells that contain line breaks, and remove NUL characters"
            raise SourceError(f"not a table: {problem}", where=f"{where}:{reader.line_num}", fix=fix) from None
        if any(cell.strip() for cell in row):
            yield reader.line_num, row


def _reason(problem: Exception) -> str:
    return str(getattr(problem, "strerror", None) or problem)


@contextmanager
def exclusive(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Holds the system's lock of a file or folder that exists; it is released when its holder dies. Another process
    waits for it, or without `wait` goes on at once with False. True where the system cannot lock."""
    try:
        import fcntl  # not on Windows

        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (ImportError, OSError):
        yield True
        return
    try:
        held = True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            held = False
        except OSError:
            pass
        yield held
    finally:
        os.close(fd)


# --- the cache folder, for data that can be computed again


def cache_folder() -> Path:
    """$LEADLINE_CACHE, else the user's cache folder."""
    if chosen := os.environ.get("LEADLINE_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leadline"


def read_cache(file: Path, decode: Callable[[bytes], T]) -> T | None:
    """The content of a file that `write_cache` wrote; None if it is absent. A damaged one is named and counts as
    absent, so that the caller makes it anew."""
    try:
        data = file.read_bytes()
        head, content = data[: len(_CACHE_HEAD) + 4], data[len(_CACHE_HEAD) + 4 :]
        if head != _cache_head(content):
            raise ValueError("it is not as it was written")
        return decode(content)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, EOFError, RecursionError, zipfile.BadZipFile) as problem:
        warn_damaged(file, _reason(problem))
        return None


def warn_damaged(path: Path, why: str) -> None:
    """Names a damaged part of the cache. A log message: programs that use this as a library can turn it off."""
    logging.getLogger("leadline").warning("note:  the cache %s cannot be used (%s): it is made anew", path, why)


def write_cache(file: Path, data: bytes) -> None:
    """Writes a file atomically, with a checksum; does nothing if the folder cannot be written."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir():
            shutil.rmtree(file)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as part:
            try:
                part.write(_cache_head(data) + data)
                part.flush()
                Path(part.name).replace(file)
            except BaseException:
                Path(part.name).unlink(missing_ok=True)
                raise
    except OSError:
        return


_CACHE_HEAD = b"leadline cache 1\n"


def _cache_head(data: bytes) -> bytes:
    return _CACHE_HEAD + zlib.crc32(data).to_bytes(4, "little")
