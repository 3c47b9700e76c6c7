"""Handing out work: documents are built when a worker wants one, and dropped when their probes are answered.

One worker builds at a time. It is work of the interpreter, which runs one thread at a time anyway, and so there are
never many more documents in memory than workers. Small ones are built several at a time: while most workers wait for
them, few others ask for the interpreter, and a document takes two thirds of what it takes between answers. Where
building means to wait for a server that counts tokens, the others have their turns meanwhile.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from leadline.core.types import Document, Probe
from leadline.run.documents import Job

AT_A_TIME = 65_536
"""Tokens of documents that are built in one go."""


@dataclass(frozen=True, slots=True)
class Work:
    """Probes to put to a document in one go, and the work that waits for their answer."""

    document: Document
    probes: tuple[Probe, ...]
    then: tuple[Work, ...] = ()


class Queue:
    """Work for many workers.

    By grain "document", and where nothing is asked, a document comes with all its probes. By grain "probe" they come
    one by one; the longest first and alone, so that a server has read the document before the others, which begin
    alike, are asked of it.
    """

    def __init__(
        self,
        jobs: Iterator[Job],
        build: Callable[[Job], Document],
        grain: Literal["probe", "document"],
        *,
        waits: bool = False,
    ) -> None:
        self._jobs = jobs
        self._build = build
        self._grain = grain
        self._waits = waits
        """Whether building is waiting for somebody, so that others may have the turn."""
        self.turn = threading.Condition(threading.Lock())
        """Held by whoever takes work or has finished it, and for whatever else one worker does at a time."""
        self._ready: deque[Work] = deque()
        self._opening = 0
        """How many pieces of work are out that others wait for."""
        self._building = False
        self._all_built = False
        self._trouble: BaseException | None = None
        """Why a document could not be built, and no other is."""
        self._closed = False

    def take(self) -> Work | None:
        """The next piece of work, for a worker whose turn it is; waits while all that is left depends on another; None
        when there is no more. What was built before one that could not be is handed out, and only then is that raised:
        a run that goes on from where it stopped would not come past it either."""
        while not self._closed:
            if self._ready:
                return self._ready.popleft()
            if not self._all_built and not self._building:
                self._build_some()
            elif self._building or self._opening:
                self.turn.wait()
            elif self._trouble is not None:
                raise self._trouble
            else:
                return None
        return None

    def finished(self, work: Work) -> None:
        """The work of a worker whose turn it is has been answered, or failed: what waited for it may go."""
        if work.then:
            self._opening -= 1
            self._ready.extendleft(reversed(work.then))  # before other documents, while the server has this one at hand
            self.turn.notify_all()

    def close(self) -> None:
        """Nothing more is handed out."""
        self._closed = True  # before the turn: whoever builds sees it after this document
        with self.turn:
            self._ready.clear()
            self.turn.notify_all()

    def _build_some(self) -> None:
        """The next document; as many as make up AT_A_TIME where they are small and asked about one by one."""
        self._building, tokens = True, 0
        try:
            for job in self._jobs:
                self._ready.append(self._begin(job))
                tokens += job.cells[-1].length
                alone = self._waits or self._grain == "document"
                if alone or tokens + job.cells[-1].length > AT_A_TIME or self._closed:
                    return
            self._all_built = True
        except BaseException as trouble:
            self._trouble, self._all_built = trouble, True
        finally:
            self._building = False
            self.turn.notify_all()

    def _begin(self, job: Job) -> Work:
        document = self._built(job)
        wanted = {c.key for c in job.missing}
        probes = tuple(p for p in document.probes if p.cell.key in wanted)
        if self._grain == "document" or document.passages:  # passages are read once for all probes
            return Work(document, probes)
        first, *rest = sorted(probes, key=lambda p: -p.cut)
        self._opening += bool(rest)
        return Work(document, (first,), then=tuple(Work(document, (p,)) for p in rest))

    def _built(self, job: Job) -> Document:
        if not self._waits:
            return self._build(job)
        self.turn.release()
        try:
            return self._build(job)
        finally:
            self.turn.acquire()
