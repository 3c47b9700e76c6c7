"""The work queue: documents are built when a worker needs one, and dropped when their probes are answered.

One worker builds at a time, so there are never many more documents in memory than workers. Small documents are built
several at a time, which is quicker while the other workers wait for the lock than between their answers. Where building
means waiting for a server that counts tokens, the lock is released meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from leadline.core.types import Document, Probe
from leadline.run.documents import Job

BATCH_TOKENS = 65_536
"""Tokens of documents that are built together."""


@dataclass(frozen=True, slots=True)
class Work:
    """Probes to ask together, and the work that may start when they are answered."""

    document: Document
    probes: tuple[Probe, ...]
    then: tuple[Work, ...] = ()


class Queue:
    """Work for many workers. `take` and `finished` are called with `turn` held.

    With grain "document", and for log-probabilities, a document comes with all its probes. With grain "probe" they come
    one by one: the longest first and alone, so that the server has the document in its prefix cache before the others
    are asked.
    """

    def __init__(
        self,
        jobs: Iterator[Job],
        build: Callable[[Job], Document],
        grain: Literal["probe", "document"],
        *,
        waits: bool = False,
    ) -> None:
        """`waits` says that building waits for a server, so that other workers may go on meanwhile."""
        self.turn = threading.Condition(threading.Lock())
        """The lock of the queue, also held for recording."""
        self._jobs = jobs
        self._build = build
        self._grain = grain
        self._waits = waits
        self._ready: deque[Work] = deque()
        self._first_probes = 0
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
                return self._ready.popleft()
            if not self._all_built and not self._building:
                self._build_some()
            elif self._building or self._first_probes:
                self.turn.wait()
            elif self._error is not None:
                raise self._error
            else:
                return None
        return None

    def finished(self, work: Work) -> None:
        """The work was answered, or failed: the work that waited for it may start."""
        if work.then:
            self._first_probes -= 1
            self._ready.extendleft(reversed(work.then))  # first, while the server has this document in its cache
            self.turn.notify_all()

    def close(self) -> None:
        """Nothing more is handed out."""
        self._closed = True  # before taking the lock: a worker that builds stops after this document
        with self.turn:
            self._ready.clear()
            self.turn.notify_all()

    def _build_some(self) -> None:
        self._building, tokens = True, 0
        try:
            for job in self._jobs:
                self._ready.append(self._work_of(job))
                tokens += job.cells[-1].length
                single = self._waits or self._grain == "document"
                if single or tokens + job.cells[-1].length > BATCH_TOKENS or self._closed:
                    return
            self._all_built = True
        except BaseException as error:
            self._error, self._all_built = error, True
        finally:
            self._building = False
            self.turn.notify_all()

    def _work_of(self, job: Job) -> Work:
        document = self._document(job)
        wanted = {c.key for c in job.missing}
        probes = tuple(p for p in document.probes if p.cell.key in wanted)
        if self._grain == "document" or document.passages:  # passages are read once for all probes
            return Work(document, probes)
        first, *rest = sorted(probes, key=lambda p: -p.cut)
        self._first_probes += bool(rest)
        return Work(document, (first,), then=tuple(Work(document, (p,)) for p in rest))

    def _document(self, job: Job) -> Document:
        if not self._waits:
            return self._build(job)
        self.turn.release()
        try:
            return self._build(job)
        finally:
            self.turn.acquire()
