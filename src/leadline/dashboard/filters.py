"""Which runs a list shows, and in what order: filters, sorting and pages, from the words of an address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args
from urllib.parse import urlencode

from leadline.dashboard.headlines import Headline
from leadline.dashboard.index import IndexEntry
from leadline.results.progress import Status

Order = Literal["date", "model", "asked", "progress", "effective", "average", "status"]
ORDERS: tuple[Order, ...] = get_args(Order)
READ: frozenset[Order] = frozenset({"progress", "effective", "average"})
"""Orders for which runs must have been read."""
PAGE = 50
Known = Callable[[IndexEntry], Headline | None]


def status_of(entry: IndexEntry, glance: Headline | None) -> Status:
    """A run that was stopped with nothing left to ask is finished all the same."""
    whole = glance is not None and not entry.rule and glance.asked >= entry.planned > 0
    return "finished" if entry.status == "stopped" and whole else entry.status


@dataclass(frozen=True, slots=True)
class Choice:
    """`words` must all stand in the run's model or its name, tasks, folder or reading; `up` is the order from small to
    large."""

    words: str = ""
    status: str = ""
    order: Order = "date"
    up: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Choice:
        """From an address. What makes no sense there is left out."""
        sort = query.get("sort", "-date")
        order: Order = next((o for o in ORDERS if o == sort.removeprefix("-")), "date")
        page = query.get("page", "")
        return cls(
            words=query.get("q", "")[:200],
            status=query.get("status", ""),
            order=order,
            up=not sort.startswith("-"),
            page=int(page) if page.isascii() and page.isdigit() and 0 < len(page) < 7 and int(page) else 1,
        )

    def address(self, **changes: Any) -> str:
        new = replace(self, **changes)
        query = {"q": new.words, "status": new.status, "page": str(new.page) if new.page > 1 else ""}
        if (new.order, new.up) != ("date", False):
            query["sort"] = ("" if new.up else "-") + new.order
        return "/?" + urlencode({name: value for name, value in query.items() if value})

    def sorted_by(self, order: Order) -> str:
        """The address with another order; the same again turns it round. Names start from a, numbers from the top."""
        up = not self.up if order == self.order else order in ("model", "asked", "status")
        return self.address(order=order, up=up, page=1)


@dataclass(frozen=True, slots=True)
class Chosen:
    shown: list[IndexEntry]
    found: int
    first: int
    pages: int
    page: int


def chosen(entries: Sequence[IndexEntry], choice: Choice, known: Known) -> Chosen:
    """The page of runs that a choice comes to. Runs without what they are sorted by stand last, either way."""
    words = choice.words.lower().split()
    found = [e for e in entries if choice.status in ("", status_of(e, known(e))) and _fits(e, words)]
    found.sort(key=lambda e: (e.date, e.name), reverse=True)
    keyed = [(_key(e, choice.order, known), e) for e in found]
    there = sorted((pair for pair in keyed if pair[0] is not None), key=lambda p: p[0], reverse=not choice.up)
    ordered = [e for _, e in there] + [e for key, e in keyed if key is None]
    pages = max(1, -(-len(ordered) // PAGE))
    page = min(choice.page, pages)
    first = (page - 1) * PAGE
    return Chosen(ordered[first : first + PAGE], len(ordered), first, pages, page)


def _fits(entry: IndexEntry, words: Sequence[str]) -> bool:
    if not words:
        return True
    hay = " ".join((entry.label, entry.model, entry.asked, *entry.tasks, entry.name, entry.reading, entry.date)).lower()
    return all(word in hay for word in words)


def _key(entry: IndexEntry, order: Order, known: Known) -> Any:
    if order == "date":
        return entry.created or None
    if order in ("model", "asked"):
        return (entry.title if order == "model" else entry.asked).lower() or None
    glance = known(entry)
    if order == "status":
        return status_of(entry, glance)
    if glance is None or glance.problem:
        return None
    if order == "progress":
        return glance.asked / entry.planned if entry.planned else None
    return glance.length if order == "effective" else glance.mean
