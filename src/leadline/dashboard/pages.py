"""What the dashboard shows, without a word of HTTP: the list of runs, a run's report, several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from leadline.core.digest import digest
from leadline.core.errors import LeadlineError
from leadline.core.format import format_count, sanitise
from leadline.dashboard.filters import READ, Choice, Chosen, chosen, status_of
from leadline.dashboard.headlines import Headline, Headlines
from leadline.dashboard.index import IndexEntry, RunIndex, records_stamp
from leadline.dashboard.live import LiveRuns
from leadline.dashboard.page_cache import PageCache
from leadline.report.page import asset, fingerprint, joined, template
from leadline.results.progress import Status

COLUMNS = (
    ("model", "model"), ("asked", "asked"), ("progress", "progress"), ("effective", "effective length"),
    ("average", "average"), ("status", "status"), ("date", "begun, UTC"),
)  # fmt: skip
SORTS = (
    ("-date", "newest first"), ("date", "oldest first"), ("model", "model"), ("asked", "asked"),
    ("-effective", "effective length"), ("-average", "average"), ("progress", "least done first"), ("status", "status"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    entry: IndexEntry
    glance: Headline | None
    status: Status


class Dashboard:
    def __init__(self, folders: Sequence[Path], headlines: Path | None = None) -> None:
        """`headlines` is a file to keep them in."""
        self.shelf = RunIndex(folders)
        self.glances = Headlines(headlines)
        self.channels = LiveRuns()
        self.press = PageCache(self.channels)

    def find(self, ids: Sequence[str]) -> list[IndexEntry] | None:
        """The runs of these ids, each once; None when one of them is not there or cannot be opened."""
        found = [self.shelf.find(one) for one in dict.fromkeys(ids)]
        entries = [entry for entry in found if entry is not None and not entry.problem]
        return entries if entries and len(entries) == len(found) else None

    def list_page(self, choice: Choice) -> str:
        """One page of the list. Headlines that are not known yet are read in the background."""
        entries = self.shelf.entries()
        page = chosen(entries, choice, self.glances.of)
        rows = [self._row(entry) for entry in page.shown]
        self.glances.want(e for e in page.shown if e.status != "running")
        unread = 0
        if choice.order in READ or choice.status in ("finished", "stopped"):  # wrong until all have been read
            unread = self.glances.want(entries, now=False)
        style, script = list_assets()
        return template("list.html").render(
            style=Markup(style),
            script=Markup(script),
            folders=", ".join(sanitise(folder, 200) for folder in self.shelf.given),
            choice=choice,
            chosen=page,
            rows=rows,
            total=len(entries),
            count=_count_words(page, len(entries), unread),
            version=self.version(),
            columns=COLUMNS,
            sorts=SORTS,
        )

    def _row(self, entry: IndexEntry) -> Row:
        glance = self.glances.of(entry)
        if entry.status == "running":
            try:
                glance = self.channels.of(entry).glance()
            except LeadlineError as error:
                glance = Headline(problem=sanitise(error.what, 200))
        return Row(entry, glance, status_of(entry, glance))

    def version(self) -> str:
        """Changes when the list would say something else: a run is new, gone, begun, ended, or has grown."""
        entries = self.shelf.entries()
        grown = [(e.id, records_stamp(e.folder)) for e in entries if e.status == "running"]
        return digest([[(e.id, e.stamp, e.status) for e in entries], grown, self.glances.version])

    def close(self) -> None:
        self.glances.close()


def _count_words(page: Chosen, total: int, unread: int) -> str:
    words = format_count(page.found, "run")
    if page.found != total:
        words += f" of {total:,}"
    if page.pages > 1:
        words += f", {page.first + 1:,} to {page.first + len(page.shown):,} shown"
    if unread:
        words += f"; reading {format_count(unread, 'run')} to sort them"
    return words


def list_assets() -> tuple[str, str]:
    """Style and script of the list."""
    return asset("page.css") + asset("served.css"), joined(("theme.js", "list.js"))


def served_policy(style: str, script: str) -> str:
    """Nothing may load or run but the style and script of the page itself, and it may speak to this server alone."""
    return (
        f"default-src 'none'; img-src data:; style-src '{fingerprint(style)}'; script-src '{fingerprint(script)}'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
