"""The headline of a run for the list: how far it is, its average, its effective length.

A glance needs the records, so it is taken only of runs that somebody looks at, in the background, and kept until the
run changes: in memory, and in a file for the next time, since reading thousands of runs takes minutes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec

from leadline.core.cache import write_cache
from leadline.core.errors import LeadlineError
from leadline.core.format import format_percent, format_percent_range, sanitise
from leadline.core.types import Record
from leadline.dashboard.index import IndexEntry, Stamp, records_stamp
from leadline.results.run import kind_of
from leadline.results.verdict import effective_of, length_range
from leadline.stats.marginals import marginals
from leadline.stats.observations import Observations, observations
from leadline.stats.sequential import anytime
from leadline.store.manifest import read_manifest
from leadline.store.runs import read_records

SAVE_AFTER = 200
"""Glances after which they are written down, so that not all is lost with the process."""
MOST_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Headline:
    """`average` and `effective` in words; `mean` and `length` are the numbers that lists are sorted by."""

    done: int = 0
    failed: int = 0
    mean: float | None = None
    average: str = ""
    spread: str = ""
    length: float | None = None
    effective: str = ""
    problem: str = ""

    @property
    def asked(self) -> int:
        return self.done + self.failed


def headline_at(folder: Path) -> Headline:
    """Reads the whole run once."""
    manifest = read_manifest(folder)
    aside = {title for title, task in manifest.tasks.items() if kind_of(task) != "answer"}
    counted = [0, 0]

    def answers() -> Iterator[Record]:
        for record in read_records(folder):
            counted[record.failed] += 1
            if record.cell.task not in aside:
                yield record

    samples = observations(answers())
    window = manifest.model.get("window")
    return headline_of(
        samples, window if isinstance(window, int) else None, *counted, stopped=bool(manifest.spec.get("until"))
    )


def headline_of(
    samples: Observations, window: int | None, done: int, failed: int, *, stopped: bool = False
) -> Headline:
    """`samples` are answers to questions about documents; `done` and `failed` count everything that was asked.
    `stopped` says that the answers themselves decided how many there are: intervals then hold at every look."""
    if not len(samples) or samples.failed.all():
        return Headline(done, failed)
    (whole,) = marginals(samples, ())
    estimate = anytime(samples, whole.estimate) if stopped else whole.estimate
    effective = effective_of(samples, window, stopped=stopped)
    return Headline(
        done=done,
        failed=failed,
        mean=estimate.mean,
        average=f"{format_percent(estimate.mean)}%",
        spread=f"{format_percent_range(estimate.interval)}%",
        length=effective.length if effective else None,
        effective=length_range(effective) if effective else "",
    )


class Kept(NamedTuple):
    """A glance, when its run was begun, and the stamps of the manifest and the records that it was taken of."""

    created: str
    manifest: Stamp
    records: Stamp
    glance: Headline


class Headlines:
    """Takes glances one after the other in a thread of its own, what was asked for last first.

    `version` goes up with each, so that a list knows it has become richer. `file` keeps them over restarts; it can
    always be made again, so nothing is said when it cannot be read or written.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.version = 0
        self._file = file
        self._known = _read_kept(file)
        self._unsaved = 0
        self._wanted: deque[IndexEntry] = deque()
        self._queued: set[str] = set()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def of(self, entry: IndexEntry) -> Headline | None:
        """What is known, be it a little old; None before the first glance."""
        found = self._known.get(entry.id)
        return found.glance if found and found.created == entry.created else None

    def want(self, entries: Iterable[IndexEntry], *, now: bool = True) -> int:
        """Has glances taken of those that are not known as they are; says how many that are. `now` puts them first."""
        missing = [e for e in entries if not e.problem and self._stale(e)]
        with self._change:
            new = [e for e in missing if now or e.id not in self._queued]
            self._queued.update(e.id for e in new)
            if now:
                self._wanted.extendleft(reversed(new))
            else:
                self._wanted.extend(new)
            if new and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="glances", daemon=True)
                self._thread.start()
            self._change.notify()
        return len(missing)

    def _stale(self, entry: IndexEntry) -> bool:
        found = self._known.get(entry.id)
        if found is None or found.manifest != entry.stamp:
            return True
        # Nobody writes to a run that has ended: not even a look at the file is needed.
        return not entry.ended and found.records != records_stamp(entry.folder)

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._wanted and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                entry = self._wanted.popleft()
                if entry.id not in self._queued:  # asked for twice, and taken already
                    continue
                self._queued.discard(entry.id)
            stamp = records_stamp(entry.folder)
            self._known[entry.id] = Kept(entry.created, entry.stamp, stamp, self._taken(entry.folder))
            self.version += 1
            self._unsaved += 1
            if self._unsaved >= SAVE_AFTER:
                self._save()

    @staticmethod
    def _taken(folder: Path) -> Headline:
        try:
            return headline_at(folder)
        except LeadlineError as error:
            return Headline(problem=sanitise(error.what, 200))
        except Exception as error:  # one damaged run must not end the glances at all others
            return Headline(problem=f"cannot be read: {sanitise(repr(error), 200)}")

    def _save(self) -> None:
        if self._file is not None and self._unsaved:
            self._unsaved = 0
            newest = list(self._known.items())[-MOST_KEPT:]
            write_cache(self._file, msgspec.json.encode(dict(newest)))

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify()
        if self._thread is not None:
            self._thread.join()
        self._save()


def _read_kept(file: Path | None) -> dict[str, Kept]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Kept]) if file is not None else {}
    except (OSError, msgspec.DecodeError):
        return {}
