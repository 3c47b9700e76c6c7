"""A running run as its open pages see it: every page shares one reader, and hears of a cell when it has changed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from leadline.core.format import format_depth, format_duration, format_length, format_percent, sanitise
from leadline.dashboard.headlines import Headline, headline_of
from leadline.dashboard.index import IndexEntry
from leadline.report.charts.theme import selection
from leadline.report.colours import ACCURACY, colour_at, ink_on
from leadline.results.follow import FailedSample, RunMonitor
from leadline.results.run import Run
from leadline.results.table import Place, Tally, format_cell

LOOK_SECONDS = 0.5
TOLD_FAILURES = 20
KEPT = 32
"""Runs that are followed at once; the one looked at longest ago makes room."""
Values = dict[str, Any]


class LiveRun:
    """Follows one run. `state` says what has changed since a page last heard."""

    def __init__(self, folder: Path) -> None:
        self._guard = threading.Lock()
        self._monitor = RunMonitor(folder)
        self._looked = time.monotonic()
        self._cells: dict[str, tuple[int, Values]] = {}
        self._drawn: Run | None = None
        self._glance = Headline()
        self.version = 0
        """Goes up whenever there is something to tell."""
        self._draw(fresh=True)

    def look(self) -> None:
        """Reads what is new. Many pages may ask; the file is looked at twice a second at most."""
        with self._guard:
            if time.monotonic() - self._looked >= LOOK_SECONDS:
                changed = self._monitor.refresh()
                self._looked = time.monotonic()
                self._draw(fresh=self._monitor.status != "running")
                self.version += changed

    @property
    def running(self) -> bool:
        return self._monitor.status == "running"

    def run(self) -> Run:
        """The very newest, for a report."""
        with self._guard:
            return self._monitor.run(fresh=True)

    def glance(self) -> Headline:
        """The headline so far, for the list."""
        return self._glance

    def _draw(self, *, fresh: bool = False) -> None:
        run = self._monitor.run(fresh=fresh)
        if run is self._drawn:
            return
        self._drawn = run
        self.version += 1
        for select, values in cells_of(run):
            known = self._cells.get(select)
            if known is None or known[1] != values:
                self._cells[select] = self.version, values
        self._glance = headline_of(run)

    def state(self, seen: int) -> Values:
        """Everything for a page that has seen nothing (-1), else what is new since that version."""
        with self._guard:
            assert self._drawn is not None
            progress = self._monitor.progress()
            rate, left = progress.tokens_per_second, progress.seconds_left
            told = {
                "version": self.version,
                "status": progress.status,
                "asked": progress.asked,
                "planned": progress.planned,
                "failed": progress.failed,
                "rate": "" if rate is None else f"{rate:,.0f} tokens/s",
                "left": "" if left is None else f"{format_duration(left)} left",
                "failures": [_told(one) for one in list(self._monitor.failures)[-TOLD_FAILURES:]],
                "cells": {select: values for select, (at, values) in self._cells.items() if at > seen},
            }
            return told | {"maps": maps_of(self._drawn)} if seen < 0 else told


def _told(failed: FailedSample) -> Values:
    return {"at": failed.at, "place": failed.place, "why": failed.why}


def maps_of(run: Run) -> list[Values]:
    """Tables of cells, by what each selects: a task with depths is one, tasks without are rows of the last."""
    table = run.table
    number = {task: at for at, task in enumerate(table.tasks)}
    made = []
    for task in table.tasks:
        if table.has_depths(task):
            lengths = table.lengths_of(task)
            rows = [
                (format_depth(d), [selection(0, number[task], n, d) for n in lengths]) for d in table.depths_of(task)
            ]
            made.append(_map(sanitise(task, 60), "depth", lengths, rows))
    flat = [task for task in table.tasks if not table.has_depths(task)]
    if flat:
        rows = [(sanitise(t, 40), [selection(0, number[t], n, None) for n in table.lengths]) for t in flat]
        made.append(_map("", "task", table.lengths, rows))
    return made


def _map(title: str, down: str, lengths: list[int], rows: list[tuple[str, list[str]]]) -> Values:
    columns = [format_length(n) for n in lengths]
    return {"title": title, "down": down, "columns": columns, "rows": [{"name": n, "cells": c} for n, c in rows]}


def cells_of(run: Run) -> list[tuple[str, Values]]:
    number = {task: at for at, task in enumerate(run.table.tasks)}
    return [
        (selection(0, number[place.task], place.length, place.depth), _cell(place, tally))
        for place, tally in run.table.cells.items()
    ]


def _cell(place: Place, tally: Tally) -> Values:
    values: Values = {"label": format_cell(place, tally), "value": format_percent(tally.mean)}
    if tally.done < tally.planned:
        values["short"] = f"{tally.done} of {tally.planned}"
    if tally.mean is not None:
        colour = colour_at(ACCURACY, tally.mean)
        values |= {"colour": colour, "ink": ink_on(colour)}
    return values


class LiveRuns:
    """One for every run that somebody follows."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: OrderedDict[str, LiveRun] = OrderedDict()

    def of(self, entry: IndexEntry) -> LiveRun:
        """As it is now: opened if need be, and looked at."""
        with self._guard:
            channel = self._open.get(entry.id)
            if channel is None:
                channel = self._open[entry.id] = LiveRun(entry.folder)
                while len(self._open) > KEPT:
                    self._open.popitem(last=False)
            self._open.move_to_end(entry.id)
        channel.look()
        return channel
