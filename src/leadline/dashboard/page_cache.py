"""Pages of the server: printed when somebody wants one, and kept until what they say has changed.

A report takes a second or more to draw. One page is printed at a time, and that of a growing run anew only when as much
time has gone by as keeps printing to a small share of it.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec

from leadline.core.digest import digest
from leadline.core.format import format_count
from leadline.dashboard.index import IndexEntry, Stamp, records_stamp
from leadline.dashboard.live import LiveRuns
from leadline.report.page import Assets
from leadline.results.run import Run, load_run

KEPT_PAGES = 12
KEPT_SAMPLES = 4
LEAST_SECONDS = 4.0
PACE = 6
"""A page of a growing run is printed again after so many times what printing it took."""
Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CachedPage:
    """`tag` changes with what the page says."""

    text: bytes
    tag: str
    live: bool = False
    at: float = 0.0
    took: float = 0.0


class PageCache:
    def __init__(self, channels: LiveRuns) -> None:
        self._channels = channels
        self._guard = threading.Lock()
        self._pages: OrderedDict[Key, CachedPage] = OrderedDict()
        self._samples: OrderedDict[Key, CachedPage] = OrderedDict()

    def report(self, entries: Sequence[IndexEntry]) -> CachedPage:
        """The report of a run, or of several side by side; live where it is one that is being written."""
        live = len(entries) == 1 and entries[0].status == "running"
        key = tuple(e.id for e in entries)
        with self._guard:
            known, tag = self._pages.get(key), tag_of(entries, live=live)
            if known is not None and (known.tag == tag or (live and known.live and not _is_due(known))):
                self._pages.move_to_end(key)
                return known
            return _kept(self._pages, key, self._print(entries, tag, live=live), KEPT_PAGES)

    def _print(self, entries: Sequence[IndexEntry], tag: str, *, live: bool) -> CachedPage:
        from leadline.report.page import page  # seconds of loading, which the list can do without

        began = time.monotonic()
        query = urlencode([("run", e.id) for e in entries])
        events = f"/run/{entries[0].id}/events" if live else ""
        runs = [self._run(entry) for entry in entries]
        notes = [notes_on(e, run, alone=len(runs) == 1) for e, run in zip(entries, runs, strict=True) if not live]
        totals = runs[0].totals
        answered = totals.asked - sum(totals.failures.values())
        may_go_on = len(runs) == 1 and not live and answered < entries[0].planned
        status = f"/run/{entries[0].id}/status" if may_go_on else ""
        text = page(runs, Assets(f"/samples?{query}", events, tuple(filter(None, notes)), tag, status))
        took = time.monotonic() - began
        return CachedPage(text.encode("utf-8", "replace"), tag, live, time.monotonic(), took)

    def _run(self, entry: IndexEntry) -> Run:
        return self._channels.of(entry).run() if entry.status == "running" else load_run(entry.folder)

    def standing(self, entry: IndexEntry) -> tuple[str, bool]:
        """The tag of the page as it was last printed, and whether it is time to print it again."""
        known = self._pages.get((entry.id,))
        if known is None:
            return "", True
        return known.tag, known.tag != tag_of([entry], live=known.live) and _is_due(known)

    def samples(self, entries: Sequence[IndexEntry]) -> CachedPage:
        """All samples of some runs, packed: read when somebody wants to see one."""
        from leadline.report.page import pack_runs

        key, tag = tuple(e.id for e in entries), tag_of(entries, live=False)
        with self._guard:
            known = self._samples.get(key)
            if known is not None and known.tag == tag:
                return known
            packed = pack_runs([self._run(entry) for entry in entries])
            values: dict[str, Any] = {"packs": packed.packs, "index": packed.index, "left_out": packed.left_out}
            return _kept(self._samples, key, CachedPage(msgspec.json.encode(values), tag), KEPT_SAMPLES)


def _kept(shelf: OrderedDict[Key, CachedPage], key: Key, made: CachedPage, most: int) -> CachedPage:
    shelf[key] = made
    shelf.move_to_end(key)
    while len(shelf) > most:
        shelf.popitem(last=False)
    return made


def _is_due(known: CachedPage) -> bool:
    return time.monotonic() - known.at >= max(LEAST_SECONDS, PACE * known.took)


def tag_of(entries: Sequence[IndexEntry], *, live: bool) -> str:
    stamps: list[tuple[str, Stamp, Stamp]] = [(e.status, e.stamp, _stamp(e.folder)) for e in entries]
    return digest([live, stamps])


def _stamp(folder: Path) -> Stamp:
    return records_stamp(folder)


def notes_on(entry: IndexEntry, run: Run, *, alone: bool) -> str:
    """What a reader must know before the numbers of a run that is not whole."""
    which = "This run" if alone else f"{entry.title} ({entry.name})"
    if entry.status == "running":
        return f"{which} is still going on: the numbers are those of the moment this page was made."
    if entry.status == "finished" or (missing := entry.planned - run.totals.asked) <= 0:
        return ""
    if entry.rule:
        return f"{which} was stopped before its rule was content. The same command again goes on with it."
    of = f"{missing:,} of {format_count(entry.planned, 'sample')}"
    return f"{which} was stopped with {of} not asked yet. The same command again asks for them."
