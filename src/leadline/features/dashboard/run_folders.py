"""The runs in some folders, known by their manifests alone: thousands are listed without reading a record.

A manifest is read again only when it has changed. The id of a run in an address is a digest of its folder's path; no
path is ever made from what a browser sends.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from leadline.core.errors import LeadlineError, UsageError
from leadline.core.format import format_length, sanitise
from leadline.core.seeds import digest_text
from leadline.results.progress import RunStatus, is_written
from leadline.results.run import model_of
from leadline.store.manifest import MANIFEST, Manifest, read_manifest
from leadline.store.runs import RECORDS

MAX_LEVELS = 4
"""Levels of folders searched below a given one."""
SCAN_SECONDS = 1.0
"""Folders are scanned at most once in this time."""
Stamp = tuple[int, int]
"""(mtime_ns, size) of a file: unchanged means that what was read before is still valid."""


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One run. `problem` says why it cannot be opened, else it is empty."""

    id: str
    folder: Path
    stamp: Stamp
    model: str = ""
    asked: str = ""
    """The suite or file that was run, and its tasks."""
    tasks: tuple[str, ...] = ()
    reading: str = ""
    lengths: str = ""
    planned: int = 0
    rule: str = ""
    created: str = ""
    ended: bool = False
    status: RunStatus = "stopped"
    problem: str = ""
    label: str = ""
    """The name given by a list of models, else empty."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def title(self) -> str:
        return self.label or self.model

    @property
    def date(self) -> str:
        """`2025-11-15 12:00`."""
        return self.created[:16].replace("T", " ")


class RunIndex:
    """All runs in some folders. Thread-safe."""

    def __init__(self, folders: Sequence[Path]) -> None:
        for folder in folders:
            if not folder.is_dir():
                raise UsageError(
                    f"no such folder: {str(folder)!r}",
                    where="view",
                    fix="give a folder of runs; `leadline run` and `leadline demo` write to ./runs",
                )
        self.given = [str(folder) for folder in folders]
        self._folders = [folder.resolve() for folder in folders]
        self._entries: dict[str, IndexEntry] = {}
        self._lock = threading.Lock()
        self._scanned = float("-inf")

    def entries(self) -> list[IndexEntry]:
        """All runs, in no order."""
        with self._lock:
            if time.monotonic() - self._scanned >= SCAN_SECONDS:
                self._entries = {entry.id: entry for entry in self._scan()}
                self._scanned = time.monotonic()
            return list(self._entries.values())

    def find(self, wanted: str) -> IndexEntry | None:
        self.entries()
        return self._entries.get(wanted)

    def _scan(self) -> Iterator[IndexEntry]:
        seen: set[str] = set()
        for top in self._folders:
            for folder, stamp in _runs_in(str(top), MAX_LEVELS, seen):
                yield self._entry(folder, stamp)

    def _entry(self, folder: str, stamp: Stamp) -> IndexEntry:
        """The known entry unless the manifest has changed. Whether the run is in progress is checked each time."""
        key = digest_text(folder, 12)
        entry = self._entries.get(key)
        if entry is None or entry.stamp != stamp:
            entry = entry_of(Path(folder), key, stamp)
        if entry.ended or entry.problem:
            return entry
        status: RunStatus = "running" if is_written(entry.folder) else "stopped"
        return entry if status == entry.status else replace(entry, status=status)


def _runs_in(folder: str, levels: int, seen: set[str]) -> Iterator[tuple[str, Stamp]]:
    """Folders with a manifest, each once, whatever links lead to it. Folders inside a run are not searched."""
    if folder in seen:
        return
    seen.add(folder)
    try:
        status = os.stat(os.path.join(folder, MANIFEST))
        yield folder, (status.st_mtime_ns, status.st_size)
        return
    except OSError:
        pass
    if not levels:
        return
    try:
        with os.scandir(folder) as inside:
            below = sorted(
                os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                for entry in inside
                if not entry.name.startswith(".") and entry.is_dir()
            )
    except OSError:
        return
    for path in below:
        yield from _runs_in(path, levels - 1, seen)


def entry_of(folder: Path, key: str, stamp: Stamp) -> IndexEntry:
    """The run, or why it cannot be opened: one damaged folder must not hide the others."""
    try:
        return _entry_of(read_manifest(folder), IndexEntry(key, folder, stamp))
    except Exception as error:
        return IndexEntry(key, folder, stamp, problem=problem_of(error, "the manifest is damaged"))


def problem_of(error: Exception, otherwise: str = "the run is damaged") -> str:
    """Why a run cannot be shown, in one line. `otherwise` introduces an error that says nothing by itself."""
    if isinstance(error, LeadlineError):
        return sanitise(error.what, 200)
    return f"{otherwise}: {sanitise(f'{type(error).__name__}: {error}', 200)}"


def _entry_of(manifest: Manifest, entry: IndexEntry) -> IndexEntry:
    spec = manifest.spec
    if not spec["lengths"]:
        raise ValueError("it has no lengths")
    datetime.fromisoformat(manifest.created)
    lengths = [format_length(n) for n in sorted(spec["lengths"])]
    ended = bool(manifest.sessions and manifest.sessions[-1].ended)
    return replace(
        entry,
        model=sanitise(model_of(manifest), 120),
        label=sanitise(manifest.name, 120),
        asked=sanitise(_asked(manifest), 120),
        tasks=tuple(sanitise(task, 60) for task in manifest.tasks),
        reading=sanitise(str(spec.get("reading", "fresh")), 20),
        lengths=lengths[0] if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}",
        planned=manifest.planned,
        rule=sanitise(str(spec.get("until") or ""), 60),
        created=sanitise(manifest.created, 40),
        ended=ended,
        status="finished" if ended else "stopped",
    )


def _asked(manifest: Manifest) -> str:
    """The tasks, after the suite or file named on the command line where there was one."""
    tasks = list(manifest.tasks)
    words = manifest.sessions[0].command.split(maxsplit=3) if manifest.sessions else []
    typed = words[2].strip("'") if len(words) > 2 and words[1] == "run" and not words[2].startswith("-") else ""
    listed = ", ".join(tasks) if len(tasks) <= 3 else f"{len(tasks)} tasks"
    return listed if not typed or typed in tasks else f"{os.path.basename(typed)}: {listed}"


def records_stamp(folder: Path) -> Stamp:
    try:
        status = (folder / RECORDS).stat()
    except OSError:
        return (0, 0)
    return status.st_mtime_ns, status.st_size
