"""What the dashboard shows, without HTTP: the list of runs, the report of a run, several runs side by side.

Pages are made on request, one at a time, and cached until their runs change. The report of a run in
progress takes a second or more to draw, so it is made again only after a multiple of that time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

from leadline.core.errors import LeadlineError, StoreError
from leadline.core.format import format_count, sanitise
from leadline.core.seeds import digest
from leadline.features.dashboard.live import Headline, Headlines, LiveRuns
from leadline.features.dashboard.run_folders import IndexEntry, RunIndex, problem_of, records_stamp
from leadline.report.page import (
    FIGURE_HINT,
    ServedPage,
    asset,
    join_scripts,
    pack_runs,
    page,
    page_script,
    page_style,
    template,
)
from leadline.report.serve import run_pages, served_policy
from leadline.results.progress import RunStatus
from leadline.results.run import Run, load_run

PACKAGE = "leadline.features.dashboard"
CACHED_PAGES = 12
CACHED_SAMPLES = 4
MIN_REFRESH_SECONDS = 4.0
REFRESH_FACTOR = 6
"""The page of a run in progress is made again after this multiple of the time that making it took."""
PAGE_SIZE = 50

SortColumn = Literal["date", "model", "asked", "progress", "effective", "average", "status"]
SORT_COLUMNS: tuple[SortColumn, ...] = get_args(SortColumn)
NEED_HEADLINE: frozenset[SortColumn] = frozenset({"progress", "effective", "average"})
COLUMNS: tuple[tuple[SortColumn, str], ...] = (
    ("model", "model"), ("asked", "tasks"), ("progress", "progress"), ("effective", "effective length"),
    ("average", "average"), ("status", "status"), ("date", "started, UTC"),
)  # fmt: skip
SORTS = (
    ("-date", "newest first"), ("date", "oldest first"), ("model", "model"), ("asked", "tasks"),
    ("-effective", "effective length"), ("-average", "average"), ("progress", "least progress first"),
    ("status", "status"),
)  # fmt: skip


# --- the list of runs ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs the list shows. Every word of `text` must occur in the run's model, label, tasks, folder or date."""

    text: str = ""
    status: str = ""
    order: SortColumn = "date"
    ascending: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> RunQuery:
        """From the query of an address. Invalid values are ignored."""
        sort = query.get("sort", "-date")
        page = query.get("page", "")
        return cls(
            text=query.get("q", "")[:200],
            status=query.get("status", ""),
            order=next((o for o in SORT_COLUMNS if o == sort.removeprefix("-")), "date"),
            ascending=not sort.startswith("-"),
            page=int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 7 and int(page) else 1,
        )

    def address(self, **changes: Any) -> str:
        new = replace(self, **changes)
        query = {"q": new.text, "status": new.status, "page": str(new.page) if new.page > 1 else ""}
        if (new.order, new.ascending) != ("date", False):
            query["sort"] = ("" if new.ascending else "-") + new.order
        return "/?" + urlencode({name: value for name, value in query.items() if value})

    def sorted_by(self, order: SortColumn) -> str:
        """The address with another order; the same column again reverses it. Text ascends, numbers descend."""
        ascending = not self.ascending if order == self.order else order in ("model", "asked", "status")
        return self.address(order=order, ascending=ascending, page=1)


@dataclass(frozen=True, slots=True)
class RunListing:
    """One page of the list."""

    shown: list[IndexEntry]
    matching: int
    first: int
    pages: int
    page: int


@dataclass(frozen=True, slots=True)
class ListedRun:
    entry: IndexEntry
    headline: Headline | None
    status: RunStatus


HeadlineOf = Callable[[IndexEntry], Headline | None]


def list_runs(entries: Sequence[IndexEntry], query: RunQuery, headline_of: HeadlineOf) -> RunListing:
    """Filters, sorts and cuts to one page. Runs without a value in the sorted column come last in either order."""
    words = query.text.lower().split()
    matching = [e for e in entries if query.status in ("", status_of(e, headline_of(e))) and _matches(e, words)]
    matching.sort(key=lambda e: (e.date, e.name), reverse=True)
    keyed = [(_sort_key(e, query.order, headline_of), e) for e in matching]
    known = sorted((pair for pair in keyed if pair[0] is not None), key=lambda p: p[0], reverse=not query.ascending)
    ordered = [e for _, e in known] + [e for key, e in keyed if key is None]
    pages = max(1, -(-len(ordered) // PAGE_SIZE))
    page = min(query.page, pages)
    first = (page - 1) * PAGE_SIZE
    return RunListing(ordered[first : first + PAGE_SIZE], len(ordered), first, pages, page)


def status_of(entry: IndexEntry, headline: Headline | None) -> RunStatus:
    """A stopped run with all its samples asked is finished."""
    complete = headline is not None and not entry.rule and headline.asked >= entry.planned > 0
    return "finished" if entry.status == "stopped" and complete else entry.status


def _matches(entry: IndexEntry, words: Sequence[str]) -> bool:
    searched = (entry.label, entry.model, entry.asked, *entry.tasks, entry.name, entry.reading, entry.date)
    text = " ".join(searched).lower() if words else ""
    return all(word in text for word in words)


def _sort_key(entry: IndexEntry, order: SortColumn, headline_of: HeadlineOf) -> Any:
    if order == "date":
        return entry.created or None
    if order in ("model", "asked"):
        return (entry.title if order == "model" else entry.asked).lower() or None
    headline = headline_of(entry)
    if order == "status":
        return status_of(entry, headline)
    if headline is None or headline.problem:
        return None
    if order == "progress":
        return headline.asked / entry.planned if entry.planned else None
    return headline.length if order == "effective" else headline.mean


# --- pages --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CachedPage:
    """`tag` changes with the content."""

    text: bytes
    tag: str
    policy: str = ""
    live: bool = False
    made_at: float = 0.0
    took: float = 0.0

    @property
    def may_refresh(self) -> bool:
        return time.monotonic() - self.made_at >= max(MIN_REFRESH_SECONDS, REFRESH_FACTOR * self.took)


class Dashboard:
    """The pages for all runs in some folders. `headlines` is a file that keeps the headlines of runs."""

    def __init__(self, folders: Sequence[Path], headlines: Path | None = None) -> None:
        self.index = RunIndex(folders)
        self.headlines = Headlines(headlines)
        self.live_runs = LiveRuns()
        self.pages = run_pages()
        """Those that features add to a run."""
        self._lock = threading.Lock()
        self._reports: OrderedDict[tuple[str, ...], CachedPage] = OrderedDict()
        self._samples: OrderedDict[tuple[str, ...], CachedPage] = OrderedDict()

    def find(self, ids: Sequence[str]) -> list[IndexEntry] | None:
        """The runs with these ids, each once; None when one is missing. Raises when one cannot be opened."""
        by_id = [self.index.find(run_id) for run_id in dict.fromkeys(ids)]
        entries = [entry for entry in by_id if entry is not None]
        if not entries or len(entries) < len(by_id):
            return None
        for entry in entries:
            if entry.problem:
                raise StoreError(entry.problem, where=str(entry.folder))
        return entries

    def list_page(self, query: RunQuery) -> CachedPage:
        """One page of the list. Unknown headlines are read in the background."""
        entries = self.index.entries()
        listing = list_runs(entries, query, self.headlines.of)
        rows = [self._listed(entry) for entry in listing.shown]
        self.headlines.want(e for e in listing.shown if e.status != "running")
        unread = 0
        if query.order in NEED_HEADLINE or query.status in ("finished", "stopped"):  # needs the headlines of all runs
            unread = self.headlines.want(entries, now=False)
        style, script = dashboard_style(), join_scripts(asset("theme.js"), asset("runs.js", PACKAGE))
        version = self.version()
        text = template("runs.html", PACKAGE).render(
            style=Markup(style),
            script=Markup(script),
            folders=", ".join(sanitise(folder, 200) for folder in self.index.given),
            query=query,
            listing=listing,
            rows=rows,
            total=len(entries),
            count=_format_count(listing, len(entries), unread),
            version=version,
            columns=COLUMNS,
            sorts=SORTS,
        )
        return CachedPage(text.encode("utf-8", "replace"), version, served_policy(style, script))

    def _listed(self, entry: IndexEntry) -> ListedRun:
        headline = self.headlines.of(entry)
        if entry.status == "running":
            try:
                headline = self.live_runs.of(entry).headline
            except Exception as error:  # one damaged run must not hide the others
                headline = Headline(problem=problem_of(error))
        return ListedRun(entry, headline, status_of(entry, headline))

    def version(self) -> str:
        """Changes with the list: when a run is new, gone, started, ended or has grown."""
        entries = self.index.entries()
        grown = [(e.id, records_stamp(e.folder)) for e in entries if e.status == "running"]
        return digest([[(e.id, e.stamp, e.status) for e in entries], grown, self.headlines.version])

    def report(self, entries: Sequence[IndexEntry]) -> CachedPage:
        """The report of one run, or of several side by side; live for one run in progress."""
        live = len(entries) == 1 and entries[0].status == "running"
        key = tuple(e.id for e in entries)
        with self._lock:
            known, tag = self._reports.get(key), self._report_tag(entries, live=live)
            if known is not None and (known.tag == tag or (live and known.live and not known.may_refresh)):
                self._reports.move_to_end(key)
                return known
            with _problems_named(entries):
                return _store(self._reports, key, self._make_report(entries, tag, live=live), CACHED_PAGES)

    def _make_report(self, entries: Sequence[IndexEntry], tag: str, *, live: bool) -> CachedPage:
        began = time.monotonic()
        runs = [self._run(entry) for entry in entries]
        notes = [note_on(e, run, alone=len(runs) == 1) for e, run in zip(entries, runs, strict=True) if not live]
        totals, address = runs[0].totals, f"/run/{entries[0].id}"
        answered = totals.asked - sum(totals.failures.values())
        may_resume = len(runs) == 1 and not live and answered < entries[0].planned
        panel = template("live.html", PACKAGE).render(events=f"{address}/events", tag=tag, hint=FIGURE_HINT)
        scripts = ["resume_check.js", *(["live.js"] if live else [])]
        served = ServedPage(
            samples=f"/samples?{urlencode([('run', e.id) for e in entries])}",
            live_panel=panel if live else "",
            notes=tuple(filter(None, notes)),
            links=self._page_links(entries[0]) if len(entries) == 1 else (),
            status=f"{address}/status" if may_resume else "",
            style=asset("dashboard.css", PACKAGE),
            script="\n".join(asset(name, PACKAGE) for name in scripts),
        )
        text = page(runs, served).encode("utf-8", "replace")
        policy = served_policy(page_style(served), page_script(served))
        return CachedPage(text, tag, policy, live, time.monotonic(), time.monotonic() - began)

    def _page_links(self, entry: IndexEntry) -> tuple[tuple[str, str], ...]:
        """Address and title of the pages that features add to a run."""
        offered = ((name, page) for name, page in self.pages.items() if page.is_offered(entry.folder))
        return tuple((f"/run/{entry.id}/{name}/", page.title) for name, page in offered)

    def _report_tag(self, entries: Sequence[IndexEntry], *, live: bool) -> str:
        return digest([_tag(entries, live=live), [self._page_links(entry) for entry in entries]])

    def _run(self, entry: IndexEntry) -> Run:
        return self.live_runs.of(entry).run() if entry.status == "running" else load_run(entry.folder)

    def live_state(self, entry: IndexEntry, seen: int) -> dict[str, Any]:
        """What is new in a run in progress, the tag of its cached report, and whether to fetch a newer one."""
        with _problems_named([entry]):
            state, known = self.live_runs.of(entry).state(seen), self._reports.get((entry.id,))
        if known is None:
            return state | {"tag": "", "due": True}
        changed = known.tag != self._report_tag([entry], live=known.live)
        return state | {"tag": known.tag, "due": changed and known.may_refresh}

    def samples(self, entries: Sequence[IndexEntry]) -> CachedPage:
        """All samples of some runs as JSON, read when one is opened."""
        key, tag = tuple(e.id for e in entries), _tag(entries, live=False)
        with self._lock:
            known = self._samples.get(key)
            if known is not None and known.tag == tag:
                return known
            with _problems_named(entries):
                packed = pack_runs([self._run(entry) for entry in entries])
                values = {"packs": packed.packs, "index": packed.index, "left_out": packed.left_out}
                return _store(self._samples, key, CachedPage(msgspec.json.encode(values), tag), CACHED_SAMPLES)

    def close(self) -> None:
        self.headlines.close()


@contextmanager
def _problems_named(entries: Sequence[IndexEntry]) -> Iterator[None]:
    """Turns any exception of a damaged run into an error that names its folder."""
    try:
        yield
    except LeadlineError:
        raise
    except Exception as error:
        where = ", ".join(str(entry.folder) for entry in entries)
        raise StoreError(problem_of(error), where=where, fix="look at its manifest.json and records.jsonl") from error


def _store(
    pages: OrderedDict[tuple[str, ...], CachedPage], key: tuple[str, ...], page: CachedPage, limit: int
) -> CachedPage:
    pages[key] = page
    pages.move_to_end(key)
    while len(pages) > limit:
        pages.popitem(last=False)
    return page


def _tag(entries: Sequence[IndexEntry], *, live: bool) -> str:
    return digest([live, [(e.status, e.stamp, records_stamp(e.folder)) for e in entries]])


def note_on(entry: IndexEntry, run: Run, *, alone: bool) -> str:
    """A warning above the report of a run that is not complete."""
    which = "This run" if alone else f"{entry.title} ({entry.name})"
    if entry.status == "running":
        return f"{which} is still running: the numbers are from when this page was made."
    if entry.status == "finished" or (missing := entry.planned - run.totals.asked) <= 0:
        return ""
    if entry.rule:
        return f"{which} stopped before its rule was met. Run the same command again to continue."
    missed = f"{missing:,} of {format_count(entry.planned, 'sample')}"
    return f"{which} stopped with {missed} not asked. Run the same command again to continue."


def _format_count(listing: RunListing, total: int, unread: int) -> str:
    text = format_count(listing.matching, "run")
    if listing.matching != total:
        text += f" of {total:,}"
    if listing.pages > 1:
        text += f", {listing.first + 1:,} to {listing.first + len(listing.shown):,} shown"
    if unread:
        text += f"; reading {format_count(unread, 'run')} to sort them"
    return text


def error_page(what: str, more: str) -> CachedPage:
    style = dashboard_style()
    text = template("error.html", PACKAGE).render(style=Markup(style), what=what, more=more)
    return CachedPage(text.encode("utf-8", "replace"), "", served_policy(style, ""))


def dashboard_style() -> str:
    return asset("page.css") + asset("dashboard.css", PACKAGE)
