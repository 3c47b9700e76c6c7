"""Following a run that another process writes, from its folder alone."""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from leadline.core.answers import Completion
from leadline.core.errors import StoreError
from leadline.core.files import open_inside
from leadline.core.format import sanitise
from leadline.core.records import Record
from leadline.results.progress import RunProgress, RunStatus, SampleCounter, finished_if_whole, status_of
from leadline.results.run import Run
from leadline.results.table import format_grid_point
from leadline.store.manifest import read_manifest
from leadline.store.runs import MAX_LINE_BYTES, RECORDS, DecodeError, UnreadableLine, decode

CHUNK = 4 << 20
"""Bytes read at once, so that a large file is not held in memory twice."""
KEPT_FAILURES = 50
TABLE_SHARE = 0.2
"""The largest share of the time that is spent on computing tables."""


class RecordFollower:
    """Yields the records appended since the last call of `read`.

    A line without its line break is not complete and waits for the next call. A file that has shrunk or was replaced
    is read again from the start, which `starts` counts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / RECORDS
        self.offset = 0
        self.starts = 0
        self.unreadable: list[UnreadableLine] = []
        self._lines = 0
        self._file = (0, 0)

    def grown(self) -> bool:
        """Whether there is something to read."""
        try:
            status = self.path.stat()
        except OSError:
            return False
        return status.st_size != self.offset or (status.st_dev, status.st_ino) != self._file

    def read(self) -> Iterator[Record]:
        try:
            with open_inside(self.path) as file:
                yield from self._records(file.fileno())
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"cannot read the records: {error.strerror}", where=str(self.path)) from None

    def _records(self, fd: int) -> Iterator[Record]:
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != self._file or status.st_size < self.offset:
            self._file, self.offset = (status.st_dev, status.st_ino), 0
            self.starts += 1
            self._lines, self.unreadable = 0, []
        size = CHUNK
        while data := os.pread(fd, size, self.offset):
            end = data.rfind(b"\n") + 1
            if not end and len(data) == size:  # a line longer than a chunk
                if size >= MAX_LINE_BYTES:
                    raise OSError(errno.EFBIG, f"line {self._lines + 1} is longer than {MAX_LINE_BYTES >> 20} MB")
                size *= 2
                continue
            for line in data[:end].splitlines(keepends=True):
                self._lines += 1
                try:
                    yield decode(line)
                except DecodeError as error:
                    self.unreadable.append(UnreadableLine(self._lines, str(error)))
                self.offset += len(line)
            if end < len(data) < size:
                return
            size = CHUNK


@dataclass(frozen=True, slots=True)
class FailedSample:
    """A failed sample, as shown to people."""

    at: float
    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"

    @classmethod
    def of(cls, record: Record) -> FailedSample:
        cell, (kind, message) = record.cell, record.why_failed
        where = f"{format_grid_point(cell.task, cell.length, cell.depth)}, sample {cell.sample}"
        return cls(record.started + record.seconds, where, f"{kind}: {sanitise(message, 300)}")


class RunMonitor:
    """A run that is being written. `refresh` reads what is new and nothing else; `run` gives the results so far.

    Keeps the newest record of every cell, without texts.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.failures: deque[FailedSample] = deque(maxlen=KEPT_FAILURES)
        self.version = 0
        """Increases with every change."""
        self._clock = clock
        self._run: Run | None = None
        self._run_version = -1
        self._next_run = 0.0
        self._follower = RecordFollower(folder)
        self._reset()
        self._read()
        self.status = self._current_status(None)

    def _reset(self) -> None:
        """Forgets all records, because the file was replaced."""
        self._starts = self._follower.starts
        self._newest: dict[str, Record] = {}
        self._counter = SampleCounter.of(self.manifest)
        self.failures.clear()

    def refresh(self, now: float | None = None) -> bool:
        """Reads what is new; says whether anything has changed."""
        before = self.version
        status = self._current_status(now)  # first, so that all records of a run that ends meanwhile are read
        manifest = read_manifest(self.folder)  # a resumed run has a new session
        if manifest != self.manifest:
            self.manifest, self.version = manifest, self.version + 1
            self._counter = SampleCounter.of(manifest)
            for record in self._newest.values():
                self._counter.add(record)
            status = self._current_status(now)
        if self._follower.grown():
            self._read()
            status = self._current_status(now) if status == "stopped" else status
        if status != self.status:
            self.status, self.version = status, self.version + 1
        return self.version != before

    def _current_status(self, now: float | None) -> RunStatus:
        return finished_if_whole(status_of(self.folder, self.manifest, now), self.manifest, self.asked)

    def _read(self) -> None:
        for record in self._follower.read():
            if self._follower.starts != self._starts:
                self._reset()
            self._add(record)
            self.version += 1
        if self._follower.starts != self._starts:
            self._reset()
            self.version += 1

    def _add(self, record: Record) -> None:
        key = record.cell.key
        before = self._newest.pop(key, None)  # inserted again at the end: in the order of the newest records
        self._counter.add(record, before)
        self._newest[key] = without_texts(record)
        if record.failed:
            self.failures.append(FailedSample.of(record))

    @property
    def asked(self) -> int:
        return len(self._newest)

    def progress(self, now: float | None = None) -> RunProgress:
        return self._counter.progress(self.status, now)

    def run(self, *, fresh: bool = True) -> Run:
        """The results so far. A table of thousands of cells takes a second: without `fresh` the run may be an older
        one, so that computing tables takes at most TABLE_SHARE of the time."""
        due = self._run_version != self.version and (fresh or self._clock() >= self._next_run)
        if self._run is None or due:
            began, version = self._clock(), self.version
            unreadable = self._follower.unreadable
            self._run = Run(self.folder, self.manifest, self._newest.values(), unreadable=unreadable)
            len(self._run.table.cells)  # computed here, where the time is taken
            ended = self._clock()
            self._run_version, self._next_run = version, ended + (ended - began) * (1 / TABLE_SHARE - 1)
        return self._run


def without_texts(record: Record) -> Record:
    """What tables and figures need of a record. The numbers of a log-probability metric are kept."""
    outcome = record.outcome
    if isinstance(outcome, Completion):
        # One character says that there was a text.
        outcome = msgspec.structs.replace(outcome, text=outcome.text.strip()[:1], thinking=outcome.thinking[:1])
    scores = {name: msgspec.structs.replace(s, answer="", explanation="") for name, s in record.scores.items()}
    question = msgspec.structs.replace(
        record.question, text="", answer_prefix="", targets=(), distractors=(), mistakes={}, choices=(), reference=None
    )
    return msgspec.structs.replace(record, question=question, facts=(), evidence=(), scores=scores, outcome=outcome)
