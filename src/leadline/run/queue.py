"""The work queue: documents are built when a worker needs one, and dropped when their probes are answered.

One worker builds at a time, so there are never many more documents in memory than workers. Small documents are built
several at a time, which is quicker while the other workers wait for the lock than between their answers. Where building
means waiting for a server that counts tokens, the lock is released meanwhile. `DocumentLimit` decides how many
documents may be in flight.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from leadline.core.contracts import BatchUnit, PrefixCache
from leadline.core.format import format_count
from leadline.core.types import Document, Probe
from leadline.run.documents import PlannedDocument

BATCH_TOKENS = 65_536
"""Tokens of documents that are built together."""
HIT_SHARE = 0.5
"""A hit takes this share of the tokens that a cache could have from it. Blocks and short cuts cost a little."""
HITS_PER_MISS = 6
"""Hits that make up for a miss: six of seven probes find their beginning in the cache."""
RISK = 0.75
"""The share of probes in flight that are read whole if one document too many is tried."""
MISSES_OF_NO_CACHE = 8
"""Misses in a row, with one document in flight, after which the server counts as one without a cache."""


@dataclass(slots=True)
class OpenDocument:
    """A document whose probes are being asked: the number left, and its tokens in a server's cache."""

    left: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Work:
    """Probes to ask together, and the work that may start when they are answered."""

    document: Document
    probes: tuple[Probe, ...]
    successors: tuple[Work, ...] = ()
    of: OpenDocument | None = None
    """The progress of a document that is asked one probe at a time."""
    reuses_prefix: bool = False
    """Whether a longer or equal beginning of the document was asked before, so that a server may have it in a cache."""
    resumed: bool = False
    """The same, but it was asked by an earlier start of the run."""


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
        asked_per: BatchUnit,
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
            if (work := self._startable()) is not None:
                return work
            if not self._documents and not self._all_built and not self._building:
                self._build_some()
            elif self._documents or self._building or self._awaited:
                self.turn.wait()
            elif self._error is not None:
                raise self._error
            else:
                return None
        return None

    def take_now(self) -> Work | None:
        """The next piece of work that may start now, built if need be; None if there is none, or work in flight has to
        be answered first. For one thread that must not wait."""
        work = self._startable()
        while work is None and not (self._documents or self._all_built or self._closed):
            self._build_some()
            work = self._startable()
        if work is None and self._error is not None:
            raise self._error
        return work

    def _startable(self) -> Work | None:
        if self._ready:
            return self._started(self._ready.popleft())
        if self._documents and self._limit.admits(*_cache_use(self._documents[0])):
            self._limit.opened(*_cache_use(self._documents[0]))
            return self._started(self._documents.popleft())
        return None

    def _started(self, work: Work) -> Work:
        self._awaited += bool(work.successors)
        return work

    def finished(self, work: Work) -> None:
        """The work was answered, or failed: the work that waited for it may start."""
        if work.of is not None:
            work.of.left -= 1
            if not work.of.left:
                self._limit.closed(work.of.tokens)
                self.turn.notify_all()
        if work.successors:
            self._awaited -= 1
            self._ready.extendleft(reversed(work.successors))  # first, while the server has this document in its cache
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
            held = sum(passage.tokens for passage in document.passages)
            counted = self._limit.is_known and self._asked_per == "probe"
            return Work(document, probes, of=OpenDocument(1, held) if counted else None)
        first, *rest = sorted(probes, key=lambda p: -p.cut)
        resumed = any(p.cut >= first.cut for p in document.probes if p.cell.key not in wanted)
        if not rest:
            return Work(document, (first,), resumed=resumed)
        whole = OpenDocument(
            len(probes), first.cut + sum(p.prompt_tokens - p.cut + p.question.allowance for p in probes)
        )
        if self._limit.in_turn:
            return replace(_in_turn(document, probes=(first, *rest), of=whole), resumed=resumed)
        after = tuple(Work(document, (p,), of=whole, reuses_prefix=True) for p in rest)
        return Work(document, (first,), successors=after, of=whole, resumed=resumed)

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
        after = (Work(document, (probe,), successors=after, of=of, reuses_prefix=True),)
    return Work(document, (probes[0],), successors=after, of=of)


def _cache_use(work: Work) -> tuple[int, int]:
    """The tokens that a document takes of the server's cache, and how many probes may find it there."""
    return (work.of.tokens, work.of.left) if work.of is not None else (0, 0)


# --- how many documents at once


@dataclass
class DocumentLimit:
    """The number of documents that are asked at once, so that a server's prefix cache keeps each of them until its last
    probe.

    A cache drops what was used least recently. With more documents in flight than it holds, the beginning of each is
    dropped before its next probe arrives, and every probe is read whole. The limit comes from what the server says
    about its cache, else from its receipts: one document is begun with, and one more is tried when the hits so far are
    worth the risk: even if most of the probes in flight were then read whole, six of seven would still have hit. What
    was tried and missed is not tried again before the risk is made up for twice over, then four times. There is nothing
    to wait for where a server keeps nothing even of one document, or does not say what came from its cache.

    Pure: no clock, no threads. The queue calls it with its lock held. `admits` is true whenever none is in flight.
    """

    cache: PrefixCache = field(default_factory=PrefixCache)
    _open: list[tuple[int, int]] = field(default_factory=list)
    """(tokens, probes) of each document in flight."""
    _credit: int = 0
    """Hits so far, beyond those that make up for the misses."""
    _proven: int = 0
    """The most tokens in flight with which the cache kept everything."""
    _missed: int | None = None
    """The tokens in flight when it did not."""
    _caution: int = 1
    """The number of times that the risk of a trial must be made up for, doubled by every failed trial."""
    _hits: int = 0
    """Since the number of documents in flight was last raised."""
    _misses: int = 0
    """In a row, with one document in flight."""
    _stale: int = 0
    """Documents that were in flight at the last miss: their misses say nothing new."""
    _is_free: bool = False
    """Whether any number of documents may be in flight, since no cache is in effect or nothing is known of it."""

    def __post_init__(self) -> None:
        self._is_free = self.cache.off

    @classmethod
    def none(cls) -> DocumentLimit:
        """For models without a server's cache."""
        limit = cls()
        limit._is_free = True
        return limit

    @property
    def in_turn(self) -> bool:
        """Whether the probes of a document must be asked one after another, as each slot keeps one prompt."""
        return self.cache.slots is not None

    @property
    def is_known(self) -> bool:
        """Whether the server says what its cache holds, so that documents without receipts can be limited too."""
        return not self._is_free and not self._learns

    @property
    def _learns(self) -> bool:
        """Whether the size of the cache is found from receipts."""
        return self.cache.tokens is None and self.cache.slots is None

    def admits(self, tokens: int, probes: int = 1) -> bool:
        """Whether a document that takes `tokens` tokens of the cache and has `probes` probes may be started now."""
        if not self._open or self._is_free:
            return True
        if self.cache.slots is not None and len(self._open) >= self.cache.slots:
            return False
        held = self._in_flight + self._blocks(tokens)
        if not self._learns:
            return self.cache.tokens is None or held <= self.cache.tokens
        return held <= self._proven or self._may_try(held, probes)

    def _may_try(self, held: int, probes: int) -> bool:
        """Whether more may be in flight than ever before: what is in flight hits, and the risk is made up for."""
        if self._in_flight > self._proven or self._stale:
            return False
        risk = RISK * (sum(count for _, count in self._open) + probes)
        known = self._missed is not None and held >= self._missed
        return self._credit >= (self._caution if known else 1) * HITS_PER_MISS * risk

    @property
    def _in_flight(self) -> int:
        return sum(self._blocks(tokens) for tokens, _ in self._open)

    def opened(self, tokens: int, probes: int = 1) -> None:
        self._open.append((tokens, probes))
        if self._in_flight > self._proven:
            self._hits = 0

    def closed(self, tokens: int) -> None:
        """All probes of a document are answered."""
        self._open.remove(next(document for document in self._open if document[0] == tokens))
        self._stale = max(0, self._stale - 1)

    def learn(self, cacheable: int, cached: int | None) -> None:
        """The receipt of a probe: of the tokens that the cache could have, those that came from it."""
        if self._is_free:
            return
        if (
            cached is None or cacheable < self.cache.min_tokens
        ):  # the longest come first: those that follow are shorter yet
            self._is_free = self._learns
        elif cached >= HIT_SHARE * cacheable:
            self._hit()
        else:
            self._miss()

    def _hit(self) -> None:
        self._credit += 1
        self._hits, self._misses = self._hits + 1, 0
        if self._hits >= 2 * len(self._open) and not self._stale:
            self._proven = max(self._proven, self._in_flight)

    def _miss(self) -> None:
        self._credit -= HITS_PER_MISS
        self._hits = 0
        if len(self._open) <= 1:
            self._misses += 1
            self._is_free = self._misses >= MISSES_OF_NO_CACHE
        elif not self._stale:
            self._missed, self._stale = self._in_flight, len(self._open)
            self._proven = min(self._proven, self._in_flight - 1)
            self._caution *= 2

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.cache.block) * self.cache.block

    def describe(self, tokens: int, workers: int) -> str:
        """A note for documents of `tokens` tokens, if fewer are asked at once than there are workers."""
        if self.cache.off:
            return "the server says that its prefix cache is off: every question is read whole"
        if self._is_free:
            return ""
        held = None if self.cache.tokens is None else max(1, self.cache.tokens // max(1, self._blocks(tokens)))
        most = min((n for n in (held, self.cache.slots) if n is not None), default=workers)
        if most >= workers:
            return ""
        at_once = f"{format_count(most, 'document')} of {tokens:,} tokens at once"
        if self.cache.slots is not None:
            return f"{at_once}, as the server has {format_count(self.cache.slots, 'slot')}; one question at a time each"
        return f"{at_once}, as the server's prefix cache holds {self.cache.tokens:,} tokens"
