"""The headline of a run for the list: how far it is, its average, its effective length.

A headline needs the records, so it is made only for runs that a page shows, in a background thread, and kept until the
run changes: in memory, and in a file for the next start, since reading thousands of runs takes minutes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from leadline.core.cache import write_cache
from leadline.core.errors import LeadlineError
from leadline.core.format import format_percent, format_percent_range, sanitise
from leadline.dashboard.index import IndexEntry, Stamp, records_stamp
from leadline.results.run import Run, load_run
from leadline.results.verdict import effective_in, length_range

SAVE_AFTER = 200
"""Headlines after which they are saved, so that not all are lost with the process."""
MOST_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Headline:
    """`average` and `effective` as text; `mean` and `length` are the numbers that lists are sorted by."""

    done: int = 0
    failed: int = 0
    truncated: int = 0
    """Of the failed: prompts that were not read as sent."""
    mean: float | None = None
    average: str = ""
    spread: str = ""
    length: float | None = None
    effective: str = ""
    problem: str = ""

    @property
    def asked(self) -> int:
        return self.done + self.failed


def headline_of(run: Run) -> Headline:
    whole = run.table.whole
    if whole.mean is None:
        problem = sanitise(str(run.unreadable[0]), 200) if run.unreadable else ""
        return Headline(run.totals.done, run.totals.failed, run.totals.truncated, problem=problem)
    effective = effective_in(run, run.table.samples)
    return Headline(
        done=run.totals.done,
        failed=run.totals.failed,
        truncated=run.totals.truncated,
        mean=whole.mean,
        average=f"{format_percent(whole.mean)}%",
        spread=f"{format_percent_range(whole.interval)}%",
        length=effective.length if effective else None,
        effective=length_range(effective) if effective else "",
    )


class CachedHeadline(NamedTuple):
    """A headline, when its run was created, and the stamps of the manifest and the records that it was made from.

    A cache file of another version cannot be decoded, so that its headlines are made anew.
    """

    version: Literal[2]
    created: str
    manifest: Stamp
    records: Stamp
    headline: Headline


class Headlines:
    """Makes headlines in one background thread, the latest request first.

    `version` increases with each, so that a list knows that it has become richer. `file` keeps them over restarts; it
    is a cache, so errors of reading or writing it are ignored.
    """

    def __init__(self, file: Path | None = None) -> None:
        self.version = 0
        self._file = file
        self._known = _read_cache(file)
        self._unsaved = 0
        self._wanted: deque[IndexEntry] = deque()
        self._queued: set[str] = set()
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def of(self, entry: IndexEntry) -> Headline | None:
        """The known headline, possibly a little old; None before the first."""
        found = self._known.get(entry.id)
        return found.headline if found and found.created == entry.created else None

    def want(self, entries: Iterable[IndexEntry], *, now: bool = True) -> int:
        """Requests the headlines that are missing or out of date and returns their number. `now` puts them first."""
        missing = [e for e in entries if not e.problem and self._stale(e)]
        with self._change:
            new = [e for e in missing if now or e.id not in self._queued]
            self._queued.update(e.id for e in new)
            if now:
                self._wanted.extendleft(reversed(new))
            else:
                self._wanted.extend(new)
            if new and self._thread is None:
                self._thread = threading.Thread(target=self._work, name="headlines", daemon=True)
                self._thread.start()
            self._change.notify()
        return len(missing)

    def _stale(self, entry: IndexEntry) -> bool:
        found = self._known.get(entry.id)
        if found is None or found.manifest != entry.stamp:
            return True
        # A run that has ended is not written to any more, so its records need no check.
        return not entry.ended and found.records != records_stamp(entry.folder)

    def _work(self) -> None:
        while True:
            with self._change:
                while not self._wanted and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                entry = self._wanted.popleft()
                if entry.id not in self._queued:  # requested twice, and made already
                    continue
                self._queued.discard(entry.id)
            stamp = records_stamp(entry.folder)
            self._known[entry.id] = CachedHeadline(2, entry.created, entry.stamp, stamp, _made(entry.folder))
            self.version += 1
            self._unsaved += 1
            if self._unsaved >= SAVE_AFTER:
                self._save()

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


def _made(folder: Path) -> Headline:
    try:
        return headline_of(load_run(folder))
    except LeadlineError as error:
        return Headline(problem=sanitise(error.what, 200))
    except Exception as error:  # one damaged run must not end the thread
        return Headline(problem=f"cannot be read: {sanitise(repr(error), 200)}")


def _read_cache(file: Path | None) -> dict[str, CachedHeadline]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, CachedHeadline]) if file is not None else {}
    except (OSError, msgspec.DecodeError):
        return {}
