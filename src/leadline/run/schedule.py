"""How many documents are asked at once, so that a server's prefix cache keeps each of them until its last probe.

A cache drops what was used least recently. With more documents in flight than it holds, the beginning of each is
dropped before its next probe arrives, and every probe is read whole. The limit comes from what the server says about
its cache, else from its receipts: one document is begun with, and one more is tried when the hits so far are worth the
risk: even if most of the probes in flight were then read whole, six of seven would still have hit. What was tried and
missed is not tried again before the risk is made up for twice over, then four times. There is nothing to wait for where
a server keeps nothing even of one document, or does not say what came from its cache.

Pure: no clock, no threads. The queue calls it with its lock held.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leadline.core.contracts import PrefixCache
from leadline.core.format import format_count

HIT_SHARE = 0.5
"""Of the tokens that a cache could have, which must come from it for a hit. Blocks and short cuts cost a little."""
HITS_PER_MISS = 6
"""Hits that make up for a miss: six of seven probes find their beginning in the cache."""
RISK = 0.75
"""Of the probes in flight, that are read whole if one document too many is tried."""
MISSES_OF_NO_CACHE = 8
"""Misses in a row, with one document in flight, after which the server counts as one without a cache."""


@dataclass
class DocumentLimit:
    """Decides whether another document may be started. `admits` is true whenever none is in flight."""

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
    """How many times the risk of a trial must be made up for: doubled by every trial that failed."""
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
        made = cls()
        made._is_free = True
        return made

    @property
    def in_turn(self) -> bool:
        """Whether the probes of a document must be asked one after another, as each slot keeps one prompt."""
        return self.cache.slots is not None

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
        self._open.remove(next(one for one in self._open if one[0] == tokens))
        self._stale = max(0, self._stale - 1)

    def learn(self, cacheable: int, cached: int | None) -> None:
        """The receipt of a probe: of the tokens that the cache could have, those that came from it."""
        if self._is_free:
            return
        if cached is None or cacheable < self.cache.least:  # the longest come first: those that follow are shorter yet
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
        """What follows for documents of `tokens` tokens, where fewer are asked at once than there are workers."""
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
