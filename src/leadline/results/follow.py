"""A run's table while it grows, made anew only as often as the machine can spare."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from leadline.core.errors import StoreError
from leadline.core.format import format_count, format_duration, format_length, sanitise
from leadline.core.types import Completion, Failure, Record
from leadline.results.run import Run, run_of
from leadline.store import runs as codec
from leadline.store.lock import is_held, machine_of
from leadline.store.manifest import Manifest, read_manifest
from leadline.store.runs import RECORDS

# --- How long the rest of a run will take, from how long its answers took so far.


class Eta:
    """Fits the time of an answer as a fixed part and a part for every token, by least squares over all answers.

    Long prompts come first, so neither alone would do: by tokens, a run whose answers all take the same time seems to
    be nearly over when half of it is to come; by samples, one that reads for minutes seems to have days to go. What
    the answers took together over the time that went by is how many were asked at once.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._count = 0
        self._seconds = 0.0
        self._squares = 0.0
        self._products = 0.0

    def add(self, tokens: int, seconds: float) -> None:
        self._count += 1
        self.tokens += tokens
        self._seconds += seconds
        self._squares += float(tokens) ** 2
        self._products += tokens * seconds

    def left(self, samples: int, tokens: int, elapsed: float) -> float | None:
        """Seconds for so many samples of so many tokens together; None before the first answer."""
        if not self._count or elapsed <= 0:
            return None
        if self._seconds <= 0:  # answers that take no time say nothing: the clock must do
            return tokens * elapsed / self.tokens if self.tokens else samples * elapsed / self._count
        fixed, each = self._fit()
        return (fixed * samples + each * tokens) * elapsed / self._seconds

    def _fit(self) -> tuple[float, float]:
        """Seconds an answer, and seconds a token; neither is below nothing."""
        spread = self._count * self._squares - self.tokens**2
        by_tokens = self._seconds / self.tokens if self.tokens else 0.0
        if spread <= 1e-9 * self._count * self._squares:  # one length so far
            return 0.0, by_tokens
        each = (self._count * self._products - self.tokens * self._seconds) / spread
        fixed = (self._seconds - each * self.tokens) / self._count
        if each < 0:
            return self._seconds / self._count, 0.0
        return (fixed, each) if fixed >= 0 else (0.0, by_tokens)


# --- Reading a file of records while it grows: each byte once, whole lines only.

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


# --- Where a run stands: running, finished or stopped, how far, how fast, how long to go, and what failed last.
#
# Everything is known from the run's folder alone, so it can be watched from any process. Records are kept without their
# texts, the newest of every cell, and `run` makes of them what `load_run` makes of the whole file.

Status = Literal["running", "finished", "stopped"]
FRESH_SECONDS = 60.0
"""Where the lock cannot be seen (another machine, a system without locks), a file this young is being written."""
KEPT_FAILURES = 50


def status_of(folder: Path, manifest: Manifest, now: float | None = None) -> Status:
    """A run that ended by itself has signed off; one that is being written is locked; any other was stopped."""
    if manifest.sessions and manifest.sessions[-1].ended:
        return "finished"
    return "running" if is_written(folder, now) else "stopped"


def is_written(folder: Path, now: float | None = None) -> bool:
    """Whether some process, here or on another machine, writes the run."""
    held = is_held(folder)
    if held is False and machine_of(folder) not in ("", socket.gethostname()):
        held = None
    if held is None:
        held = _age(folder / RECORDS, time.time() if now is None else now) < FRESH_SECONDS
    return held


def _age(path: Path, now: float) -> float:
    try:
        return now - path.stat().st_mtime
    except OSError:
        return float("inf")


@dataclass(frozen=True, slots=True)
class Failed:
    """A sample that got no answer, as it is told."""

    at: float
    place: str
    why: str

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@dataclass(frozen=True, slots=True)
class Progress:
    """The counts of one moment. `planned` is None where a rule decides how many samples there will be."""

    status: Status
    done: int
    failed: int
    planned: int | None
    tokens_per_second: float | None
    seconds_left: float | None

    @property
    def asked(self) -> int:
        return self.done + self.failed

    @property
    def share(self) -> float | None:
        return self.asked / self.planned if self.planned else None

    def words(self) -> str:
        """`120 of 264 samples, 3,200 tokens/s, 3 min 20 s left, 2 failed`."""
        counted = (
            format_count(self.asked, "sample")
            if self.planned is None
            else f"{self.asked:,} of {self.planned:,} samples"
        )
        return ", ".join([counted, *self.details()])

    def details(self) -> list[str]:
        parts = []
        if self.tokens_per_second is not None:
            parts.append(f"{self.tokens_per_second:,.0f} tokens/s")
        if self.seconds_left is not None:
            parts.append(f"{format_duration(self.seconds_left)} left")
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        return parts


class RunMonitor:
    """A run as it is being written. Call `look` now and then; it reads what is new and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder)
        self.failures: deque[Failed] = deque(maxlen=KEPT_FAILURES)
        self.version = 0
        """Goes up with every change."""
        self._follower = Follower(folder)
        self._anew()
        self._read()
        self.status = self._judged(None)

    def _anew(self) -> None:
        """Forgets all that was read: the file is another one."""
        self._starts = self._follower.starts
        self._newest: dict[str, Record] = {}
        self._failed = 0
        self._session = Session(_started(self.manifest))
        self.failures.clear()

    def look(self, now: float | None = None) -> bool:
        """Whether anything has changed since the last look."""
        before = self.version
        status = self._judged(now)  # first, so that what was written before the end is read after it
        manifest = read_manifest(self.folder)  # a run that is taken up again has a new session
        if manifest != self.manifest:
            self.manifest, self.version = manifest, self.version + 1
            self._session = Session(_started(manifest))
            for record in self._newest.values():
                self._session.add(record)
            status = self._judged(now)
        if self._follower.grown():
            self._read()
            status = self._judged(now) if status == "stopped" else status
        if status != self.status:
            self.status, self.version = status, self.version + 1
        return self.version != before

    def _judged(self, now: float | None) -> Status:
        """A run that was stopped with nothing left to ask is finished all the same."""
        status = status_of(self.folder, self.manifest, now)
        whole = not self.manifest.spec.get("until") and len(self._newest) >= self.manifest.planned
        return "finished" if status == "stopped" and whole else status

    def _read(self) -> None:
        for record in self._follower.read():
            if self._follower.starts != self._starts:
                self._anew()
            self._add(record)
            self.version += 1
        if self._follower.starts != self._starts:
            self._anew()
            self.version += 1

    def _add(self, record: Record) -> None:
        key = record.cell.key
        before = self._newest.pop(key, None)  # put back at the end: the order is that of the newest
        self._failed += record.failed - (before is not None and before.failed)
        self._session.add(record, before)
        self._newest[key] = without_texts(record)
        if isinstance(record.outcome, Failure):
            self.failures.append(_told(record, record.outcome))

    @property
    def asked(self) -> int:
        return len(self._newest)

    def run(self) -> Run:
        """Everything a report says about the run so far."""
        return run_of(self.folder, self.manifest, self._newest.values())

    def progress(self, now: float | None = None) -> Progress:
        now = time.time() if now is None else now
        rule = bool(self.manifest.spec.get("until"))
        rate = left = None
        if self.status == "running":
            rate = self._session.rate(now)
            left = None if rule else self._session.left(now, self.manifest.planned, _planned_length(self.manifest))
        return Progress(
            status=self.status,
            done=len(self._newest) - self._failed,
            failed=self._failed,
            planned=None if rule else self.manifest.planned,
            tokens_per_second=rate,
            seconds_left=left,
        )


class Session:
    """How fast the present session reads, and what it has still to ask."""

    def __init__(self, since: float) -> None:
        self._since = since
        self._first = float("inf")
        self._pace = Eta()
        self._samples = 0
        self._lengths = 0
        """Of all cells that this session need not ask any more."""
        self._tokens = 0

    def add(self, record: Record, before: Record | None = None) -> None:
        """`before` is the record of the same cell that this one takes the place of."""
        for one, sign in ((before, -1), (record, 1)):
            if one is not None and (one.started >= self._since or not one.failed):
                self._samples += sign
                self._lengths += sign * one.cell.length
        if record.started >= self._since:
            self._pace.add(record.cell.length, record.seconds)
            self._tokens += record.prompt_tokens
            self._first = min(self._first, record.started)

    def rate(self, now: float) -> float | None:
        """Tokens a second; None before the first answer."""
        seconds = now - self._first
        return self._tokens / seconds if seconds > 0 else None

    def left(self, now: float, samples: int, lengths: int) -> float | None:
        """Seconds that the rest of so many samples of so many tokens together will take."""
        missing = max(0, samples - self._samples), max(0, lengths - self._lengths)
        return self._pace.left(*missing, now - self._first)


def without_texts(record: Record) -> Record:
    """What tables and figures need of a record. Numbers of a measure stay whole."""
    outcome = record.outcome
    if isinstance(outcome, Completion):
        outcome = msgspec.structs.replace(outcome, text="", thinking="")
    elif isinstance(outcome, Failure):
        outcome = msgspec.structs.replace(outcome, message="")
    scores = {name: msgspec.structs.replace(s, answer="", explanation="") for name, s in record.scores.items()}
    return msgspec.structs.replace(
        record, question="", answer_prefix="", targets=(), facts=(), scores=scores, outcome=outcome, detail=""
    )


def _told(record: Record, failure: Failure) -> Failed:
    cell = record.cell
    place = f"{sanitise(cell.task, 60)}, length {format_length(cell.length)}"
    if cell.depth is not None:
        place += f", depth {100 * cell.depth:.3g}%"
    return Failed(
        at=record.started + record.seconds,
        place=f"{place}, sample {cell.sample}",
        why=f"{failure.why}: {sanitise(failure.message, 300)}",
    )


def _started(manifest: Manifest) -> float:
    return datetime.fromisoformat(manifest.sessions[-1].started).timestamp() if manifest.sessions else 0.0


def _planned_length(manifest: Manifest) -> int:
    spec = manifest.spec
    return sum(
        length * (len(spec["depths"]) if task.get("has_depth", True) else 1) * int(spec["samples"])
        for task in manifest.tasks.values()
        for length in spec["lengths"]
    )


# --- A run's table while it grows, made anew only as often as the machine can spare.

SHARE = 0.2
"""Of the time, what making tables may take."""


class GrowingTable:
    """The run so far. A table of thousands of cells takes a second, so it is not made for every record."""

    def __init__(self, standing: RunMonitor, clock: Callable[[], float] = time.monotonic) -> None:
        self._standing = standing
        self._clock = clock
        self._made = -1
        self._next = 0.0
        self._run: Run | None = None

    def now(self, *, fresh: bool = False) -> Run:
        """`fresh` wants the very newest, whatever it takes."""
        due = self._made != self._standing.version and (fresh or self._clock() >= self._next)
        if self._run is None or due:
            began, version = self._clock(), self._standing.version
            self._run = self._standing.run()
            ended = self._clock()
            self._made, self._next = version, ended + (ended - began) * (1 / SHARE - 1)
        return self._run
