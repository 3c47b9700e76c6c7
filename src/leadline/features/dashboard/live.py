"""Runs beyond their manifests: the headlines of the list, and runs in progress.

A headline (how far a run is, its average, its effective length) needs the records, so it is made only for runs that a
page shows, in a background thread, and kept until the run changes: in memory, and in a file for the next start, since
reading thousands of runs takes minutes. All pages of a run in progress share one reader and receive changed cells only.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from leadline.core.files import read_cache, write_cache
from leadline.core.format import format_duration, format_percent, format_percent_range, sanitise
from leadline.features.dashboard.run_folders import IndexEntry, Stamp, problem_of, records_stamp
from leadline.report.heatmap_data import HeatmapCell, HeatmapData, heatmaps_of
from leadline.results.growing_run import RunMonitor
from leadline.results.run import Run, load_run
from leadline.results.verdict import effective_in

SAVE_AFTER = 200
"""Headlines after which they are saved, so that not all are lost with the process."""
MOST_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class Headline:
    """`average` with its `spread` and `effective` with its `ends` as text; lists are sorted by `mean` and `length`."""

    done: int = 0
    failed: int = 0
    truncated: int = 0
    """Failed samples whose prompts were not read as sent."""
    mean: float | None = None
    average: str = ""
    spread: str = ""
    length: float | None = None
    effective: str = ""
    ends: str = ""
    problem: str = ""

    @property
    def asked(self) -> int:
        return self.done + self.failed


def headline_of(run: Run) -> Headline:
    whole = run.table.whole
    if whole.mean is None:
        problem = sanitise(str(run.unreadable[0]), 200) if run.unreadable else ""
        return Headline(run.totals.done, run.totals.failed, run.totals.truncated, problem=problem)
    effective = effective_in(run, run.table.counted)
    return Headline(
        done=run.totals.done,
        failed=run.totals.failed,
        truncated=run.totals.truncated,
        mean=whole.mean,
        average=f"{format_percent(whole.mean)}%",
        spread=f"{format_percent_range(whole.interval)}%",
        length=effective.length if effective else None,
        effective=effective.point if effective else "",
        ends=effective.ends if effective else "",
    )


class CachedHeadline(NamedTuple):
    """A headline, when its run was created, and the stamps of the manifest and the records that it was made from.

    A cache file of another version cannot be decoded, so that its headlines are made anew.
    """

    version: Literal[4]

    created: str
    manifest: Stamp
    records: Stamp
    headline: Headline


class Headlines:
    """Makes headlines in one background thread, the latest request first. `version` increases with each, so that a list
    knows of new ones. `file` keeps them over restarts; it is a cache, so errors of reading or writing it are ignored.
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
        kept = self._known.get(entry.id)
        return kept.headline if kept and kept.created == entry.created else None

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
        kept = self._known.get(entry.id)
        if kept is None or kept.manifest != entry.stamp:
            return True
        # A run that has ended is not written to any more, so its records need no check.
        return not entry.ended and kept.records != records_stamp(entry.folder)

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
            self._known[entry.id] = CachedHeadline(4, entry.created, entry.stamp, stamp, _made(entry.folder))
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
    except Exception as error:  # one damaged run must not end the thread
        return Headline(problem=problem_of(error))


def _read_cache(file: Path | None) -> dict[str, CachedHeadline]:
    decode = partial(msgspec.json.decode, type=dict[str, CachedHeadline])
    return (read_cache(file, decode) if file is not None else None) or {}


# --- runs in progress ---------------------------------------------------------------------------

READ_SECONDS = 0.5
SENT_FAILURES = 20
MAX_RUNS = 32
"""Runs followed at the same time; the least recently used is dropped."""


class LiveRun:
    """Follows one run. `state` returns what has changed since a page last asked."""

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        self._monitor = RunMonitor(folder)
        self._read_at = time.monotonic()
        self._run: Run | None = None
        self._heatmaps: list[HeatmapData] = []
        self._cells: dict[str, tuple[int, HeatmapCell]] = {}
        """By selection, the cell and the version in which it last changed."""
        self.headline = Headline()
        self.version = 0
        """Increases with every change."""
        self._update(now=True)

    def read(self) -> None:
        """Reads new records, at most twice a second for any number of pages."""
        with self._lock:
            if time.monotonic() - self._read_at >= READ_SECONDS:
                changed = self._monitor.refresh()
                self._read_at = time.monotonic()
                self._update(now=self._monitor.status != "running")
                self.version += changed

    def run(self) -> Run:
        """With every record read so far, for a report."""
        with self._lock:
            return self._monitor.run(fresh=True)

    def _update(self, *, now: bool) -> None:
        run = self._monitor.run(fresh=now)
        if run is self._run:
            return
        self._run = run
        self.version += 1
        self._heatmaps = [replace(data, means=()) for data in heatmaps_of(run.table)]
        for cell in (cell for data in self._heatmaps for cell in data.cells):
            known = self._cells.get(cell.select)
            if known is None or known[1] != cell:
                self._cells[cell.select] = self.version, cell
        self.headline = headline_of(run)

    def state(self, seen: int) -> dict[str, Any]:
        """Everything for a page that has seen nothing (-1), else what is new since version `seen`."""
        with self._lock:
            progress = self._monitor.progress()
            rate, left = progress.tokens_per_second, progress.seconds_left
            state = {
                "version": self.version,
                "status": progress.status,
                "asked": progress.asked,
                "planned": progress.planned,
                "failed": progress.failed,
                "rate": "" if rate is None else f"{rate:,.0f} tokens/s",
                "left": "" if left is None else f"{format_duration(left)} left",
                "failures": [
                    {"at": failed.at, "place": failed.place, "why": failed.why}
                    for failed in list(self._monitor.failures)[-SENT_FAILURES:]
                ],
                "cells": [] if seen < 0 else [cell for changed, cell in self._cells.values() if changed > seen],
            }
            return state | {"heatmaps": self._heatmaps} if seen < 0 else state


class LiveRuns:
    """The runs in progress that have an open page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[str, LiveRun] = OrderedDict()

    def of(self, entry: IndexEntry) -> LiveRun:
        """Opened if needed, with its new records read."""
        with self._lock:
            live = self._open.get(entry.id)
            if live is None:
                live = self._open[entry.id] = LiveRun(entry.folder)
                while len(self._open) > MAX_RUNS:
                    self._open.popitem(last=False)
            self._open.move_to_end(entry.id)
        live.read()
        return live
