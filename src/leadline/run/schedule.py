"""How many documents are asked at once, so that a server's prefix cache keeps each of them until its last probe.

A cache drops what was used least recently. With more documents in flight than it holds, the beginning of each is
dropped before its next probe arrives, and every probe is read whole. The limit comes from what the server says about
its cache, else from its receipts: two documents are begun with, and twice as many while all that could come from the
cache does. A probe whose beginning had been read and did not come from the cache halves the number; from then on a time
without such probes, longer after every halving, raises it by one. There is nothing to wait for where a server keeps
nothing even of one document, or does not say what came from its cache.

Pure: no clock, no threads. The queue calls it with its lock held.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leadline.core.contracts import PrefixCache
from leadline.core.format import format_count

HIT_SHARE = 0.5
"""Of the tokens that a cache could have, which must come from it for a hit. Blocks and short cuts cost a little."""
FIRST_DOCUMENTS = 2
MISSES_OF_NO_CACHE = 8
"""Misses in a row, with one document in flight, after which the server counts as one without a cache."""

MOST_PATIENCE = 256


@dataclass
class DocumentLimit:
    """Decides whether another document may be started. `admits` is true whenever none is in flight."""

    cache: PrefixCache = field(default_factory=PrefixCache)
    most: int | None = None
    """Documents in flight at most; None if there is no limit but that of tokens."""
    _open: list[int] = field(default_factory=list)
    """The tokens of each document in flight."""
    _stale: int = 0
    """Documents that were opened before the last change of the limit: their misses say nothing about it."""
    _patience: int = 2
    """Hits for each document in flight, before one more is tried."""
    _hits: int = 0
    _misses: int = 0
    _missed: bool = False
    _is_free: bool = False
    """Whether any number of documents may be in flight, since no cache is in effect or nothing is known of it."""

    def __post_init__(self) -> None:
        if self.most is None:
            self.most = self.cache.slots or (FIRST_DOCUMENTS if self.cache.tokens is None else None)
        self._is_free = self.cache.off

    @classmethod
    def none(cls) -> DocumentLimit:
        """For models without a server's cache."""
        made = cls()
        made._is_free = True
        return made

    @property
    def in_turn(self) -> bool:
        """Whether the probes of a document must be asked one after another, as each slot keeps one prompt."""
        return self.cache.slots is not None

    def admits(self, tokens: int) -> bool:
        """Whether a document that takes so many tokens of the cache may be started now."""
        if not self._open or self._is_free:
            return True
        if self.most is not None and len(self._open) >= self.most:
            return False
        held = sum(map(self._blocks, self._open)) + self._blocks(tokens)
        return self.cache.tokens is None or held <= self.cache.tokens

    def opened(self, tokens: int) -> None:
        self._open.append(tokens)

    def closed(self, tokens: int) -> None:
        """All probes of a document are answered."""
        self._open.remove(tokens)
        self._stale = max(0, self._stale - 1)

    def learn(self, cacheable: int, cached: int | None) -> None:
        """The receipt of a probe: of the tokens that the cache could have, those that came from it."""
        if self._is_free:
            return
        if cached is None or cacheable < self.cache.least:  # the longest come first: those that follow are shorter yet
            self._is_free = self.cache.tokens is None and self.cache.slots is None
        elif cached >= HIT_SHARE * cacheable:
            self._hit()
        else:
            self._miss()

    def _hit(self) -> None:
        self._hits, self._misses = self._hits + 1, 0
        if self.most is not None and self.cache.slots is None and self._hits > self._patience * self.most:
            self.most, self._hits = self.most + (1 if self._missed else self.most), 0

    def _miss(self) -> None:
        self._hits, self._missed = 0, True
        if len(self._open) > 1 and not self._stale:
            self.most, self._stale = max(1, len(self._open) // 2), len(self._open)
            self._patience = min(2 * self._patience, MOST_PATIENCE)
        elif len(self._open) <= 1:
            self._misses += 1
            self._is_free = self._misses >= MISSES_OF_NO_CACHE

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.cache.block) * self.cache.block

    def describe(self, tokens: int, workers: int) -> str:
        """What follows for documents of so many tokens, where fewer are asked at once than there are workers."""
        if self.cache.off:
            return "the server says that its prefix cache is off: every question is read whole"
        if self._is_free:
            return ""
        held = None if self.cache.tokens is None else max(1, self.cache.tokens // max(1, self._blocks(tokens)))
        most = min((n for n in (held, self.most) if n is not None), default=workers)
        if most >= workers or (held is None and self.cache.slots is None):
            return ""
        at_once = f"{format_count(most, 'document')} of {tokens:,} tokens at once"
        if self.cache.slots is not None:
            return f"{at_once}, as the server has {format_count(self.cache.slots, 'slot')}; one question at a time each"
        return f"{at_once}, as the server's prefix cache holds {self.cache.tokens:,} tokens"
