"""Runs in progress as their open pages see them: all pages of a run share one reader and receive changed cells only."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

from leadline.core.format import format_duration
from leadline.dashboard.headlines import Headline, headline_of
from leadline.dashboard.index import IndexEntry
from leadline.report.heatmap_data import HeatmapCell, HeatmapData, heatmaps_of
from leadline.results.follow import RunMonitor
from leadline.results.run import Run

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
        """By selection: the version in which the cell changed last, and the cell."""
        self.headline = Headline()
        self.version = 0
        """Increases with every change."""
        self._update(now=True)

    def read(self) -> None:
        """Reads new records, at most twice a second however many pages ask."""
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
