"""The work queue: documents are built when a worker needs one, and dropped when their probes are answered.

One worker builds at a time, so there are never many more documents in memory than workers. Small documents are built
several at a time, which is quicker while the other workers wait for the lock than between their answers. Where building
means waiting for a server that counts tokens, the lock is released meanwhile. How many documents may be in flight is
decided in `leadline.run.schedule`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from leadline.core.contracts import AskedPer
from leadline.core.types import Document, Probe
from leadline.run.documents import PlannedDocument
from leadline.run.schedule import DocumentLimit

BATCH_TOKENS = 65_536
"""Tokens of documents that are built together."""


@dataclass(slots=True)
class OpenDocument:
    """A document whose probes are being asked: how many are left, and what it takes of a server's cache."""

    left: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Work:
    """Probes to ask together, and the work that may start when they are answered."""

    document: Document
    probes: tuple[Probe, ...]
    then: tuple[Work, ...] = ()
    of: OpenDocument | None = None
    """Of a document that is asked one probe at a time: how far it is."""
    follows: bool = False
    """Whether a longer or equal beginning of the document was asked before, so that a server may have it in a cache."""


class Queue:
    """Work for many workers. `take` and `finished` are called with `turn` held.

    For a model that is asked per document, and for log-probabilities, a document comes with all its probes. Otherwise
    they come one by one: the longest first and alone, so that the server has the document in its prefix cache before
    the others are asked, then the next longest. `limit` says how many documents may be in flight.
    """

    def __init__(
        self,
        planned: Iterator[PlannedDocument],
        build: Callable[[PlannedDocument], Document],
        asked_per: AskedPer,
        *,
        waits: bool = False,
        limit: DocumentLimit | None = None,
    ) -> None:
        """`waits` says that building waits for a server, so that other workers may go on meanwhile."""
        self.turn = threading.Condition(threading.Lock())
        """The lock of the queue, also held for recording."""
        self._planned = planned
        self._build = build
        self._asked_per = asked_per
        self._waits = waits
        self._limit = limit or DocumentLimit.none()
        self._ready: deque[Work] = deque()
        """May be asked now."""
        self._documents: deque[Work] = deque()
        """First probes of documents with several, which start when the limit admits them."""
        self._awaited = 0
        """Works in flight that others wait for."""
        self._building = False
        self._all_built = False
        self._error: BaseException | None = None
        """Raised by the build that failed; no document is built after it."""
        self._closed = False

    def take(self) -> Work | None:
        """The next piece of work, None when there is no more. Waits while all that is left depends on work in flight.

        After a failed build, documents built before it are handed out first, then its error is raised.
        """
        while not self._closed:
            if self._ready:
                return self._started(self._ready.popleft())
            if self._documents and self._limit.admits(*_cache_use(self._documents[0])):
                self._limit.opened(*_cache_use(self._documents[0]))
                return self._started(self._documents.popleft())
            if not self._documents and not self._all_built and not self._building:
                self._build_some()
            elif self._documents or self._building or self._awaited:
                self.turn.wait()
            elif self._error is not None:
                raise self._error
            else:
                return None
        return None

    def _started(self, work: Work) -> Work:
        self._awaited += bool(work.then)
        return work

    def finished(self, work: Work) -> None:
        """The work was answered, or failed: the work that waited for it may start."""
        if work.of is not None:
            work.of.left -= 1
            if not work.of.left:
                self._limit.closed(work.of.tokens)
                self.turn.notify_all()
        if work.then:
            self._awaited -= 1
            self._ready.extendleft(reversed(work.then))  # first, while the server has this document in its cache
            self.turn.notify_all()

    def close(self) -> None:
        """Nothing more is handed out."""
        self._closed = True  # before taking the lock: a worker that builds stops after this document
        with self.turn:
            self._ready.clear()
            self._documents.clear()
            self.turn.notify_all()

    def _build_some(self) -> None:
        self._building, tokens = True, 0
        try:
            for planned in self._planned:
                work = self._work_of(planned)
                (self._ready if work.of is None else self._documents).append(work)
                tokens += planned.cells[-1].length
                single = self._waits or self._asked_per == "document"
                if single or tokens + planned.cells[-1].length > BATCH_TOKENS or self._closed:
                    return
            self._all_built = True
        except BaseException as error:
            self._error, self._all_built = error, True
        finally:
            self._building = False
            self.turn.notify_all()

    def _work_of(self, planned: PlannedDocument) -> Work:
        document = self._document(planned)
        wanted = {c.key for c in planned.missing}
        probes = tuple(p for p in document.probes if p.cell.key in wanted)
        if self._asked_per == "document" or document.passages:  # passages are read once for all probes
            return Work(document, probes)
        first, *rest = sorted(probes, key=lambda p: -p.cut)
        if not rest:
            return Work(document, (first,))
        whole = OpenDocument(len(probes), first.cut + sum(p.prompt_tokens - p.cut + p.allowance for p in probes))
        if self._limit.in_turn:
            return _in_turn(document, probes=(first, *rest), of=whole)
        after = tuple(Work(document, (p,), of=whole, follows=True) for p in rest)
        return Work(document, (first,), then=after, of=whole)

    def _document(self, planned: PlannedDocument) -> Document:
        if not self._waits:
            return self._build(planned)
        self.turn.release()
        try:
            return self._build(planned)
        finally:
            self.turn.acquire()


def _in_turn(document: Document, probes: Sequence[Probe], of: OpenDocument) -> Work:
    """The first probe, and each of the others when that before it is answered."""
    after: tuple[Work, ...] = ()
    for probe in reversed(probes[1:]):
        after = (Work(document, (probe,), then=after, of=of, follows=True),)
    return Work(document, (probes[0],), then=after, of=of)


def _cache_use(work: Work) -> tuple[int, int]:
    """The tokens that a document takes of the server's cache, and how many probes may find it there."""
    return (work.of.tokens, work.of.left) if work.of is not None else (0, 0)
