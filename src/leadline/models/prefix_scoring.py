"""Log-probabilities from an engine that keeps prefixes: which texts to ask, in which order, and in which way.

A continuation of a document is a text of which only the end is scored. Engines give its log-probabilities in two ways:

    whole   the log-probabilities of every token of a prompt; engines read all of it again for that
    tail    those of the end alone, after a prefix that the engine has in its cache

The tail of the longest text is asked first and alone, so that the document is in the cache before the others are asked
at once. A text is asked whole where that reads fewer tokens: a tail may be asked token by token, and each of those
requests reads the part of a block that no cache keeps.

Which ways an engine has is found by asking it a few tokens (`FoundWays`), and each tail is compared with the
log-probabilities of a whole prompt: an engine may ignore a field, lack a flag, or return log-probabilities after
masking, which are 0 for a forced token.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from leadline.core.answers import Failure
from leadline.core.types import Continuation, TokenNLL

if TYPE_CHECKING:
    from leadline.core.types import Ids, Nats

TRIAL_CONTEXT, TRIAL_TOKENS = 8, 4
TRIAL_NATS = 0.25
"""Two ways that differ by more do not give the same thing; rounding in 16 bits stays far below it."""
CERTAIN = 1e-4
"""An absurd token has more nats than this, unless all others were masked."""


@dataclass(frozen=True, slots=True)
class ScoredText:
    """Token ids, of which those from `start` on are scored. `start` is at least 1."""

    ids: Ids
    start: int
    shared: int = 0
    """How many of the first tokens are those of the document, which other texts have too."""

    @property
    def tokens(self) -> int:
        return len(self.ids)

    @property
    def scored(self) -> list[int]:
        ids: list[int] = self.ids[self.start :].tolist()
        return ids


@dataclass(frozen=True, slots=True)
class Scores:
    """NLLs of the scored tokens of one text in nats, and what the engine says it took."""

    nats: Nats
    requests: int = 1
    prompt_tokens: int | None = None
    """Tokens of all prompts sent for it; None where the engine does not say."""
    cached_tokens: int | None = None
    """Of those, the ones that came from the engine's cache."""


class ScoringWay(Protocol):
    """One way in which an engine gives log-probabilities."""

    @property
    def title(self) -> str:
        """For records: what was asked of the engine."""
        ...

    def score(self, texts: Sequence[ScoredText]) -> list[Scores] | Failure:
        """One result for each text, in order. They may be asked at once."""
        ...

    def reads(self, text: ScoredText, block: int) -> int:
        """Tokens that are read for a text whose prefix is in the cache, which keeps blocks of this size."""
        ...


@dataclass(frozen=True, slots=True)
class ScoringWays:
    """What an engine can do. At least one of the two is there."""

    tail: ScoringWay | None
    whole: ScoringWay | None
    block: int = 1
    """Tokens that the engine's cache keeps or drops together."""
    notes: tuple[str, ...] = ()

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]
    ) -> TokenNLL | Failure:
        """As `LogprobModel.nll`."""
        texts = [ScoredText(np.concatenate([ids[: c.cut], c.ids]), c.cut + c.start, c.cut) for c in continuations]
        span = ScoredText(ids[: max(stop for _, stop in spans)], min(a for a, _ in spans)) if spans else None
        if span is not None and self.whole is None:
            return Failure("unsupported", NO_SPANS)
        scores: dict[int, Scores] = {}
        used: list[str] = []
        of_span = self._ask(self.whole, [span], used) if span is not None else []
        if isinstance(of_span, Failure):
            return of_span
        tails = self._tails(texts, read=len(ids[: span.tokens]) if span is not None else 0)
        for way, numbers in (
            (self.tail, tails[:1]),
            (self.tail, tails[1:]),
            (self.whole, [n for n in range(len(texts)) if n not in tails]),
        ):
            new_scores = self._ask(way, [texts[n] for n in numbers], used)
            if isinstance(new_scores, Failure):
                return new_scores
            scores |= dict(zip(numbers, new_scores, strict=True))
        rows = tuple(scores[n].nats for n in range(len(texts)))
        parts = tuple(of_span[0].nats[a - span.start : b - span.start] for a, b in spans) if span is not None else ()
        notes = (*(f"log-probabilities: {title}" for title in dict.fromkeys(used)), *self.notes)
        return TokenNLL(rows, parts, notes, _counts([*of_span, *scores.values()]))

    def _tails(self, texts: Sequence[ScoredText], read: int) -> list[int]:
        """The texts whose tails are asked, by number, the one with the longest prefix first. `read` are the tokens of
        the document that the engine has read already."""
        if self.tail is None:
            return []
        by_length = sorted(range(len(texts)), key=lambda n: (-texts[n].start, n))
        if self.whole is None:
            return by_length
        costs = {n: self.tail.reads(texts[n], self.block) for n in by_length}
        cheaper = [n for n in by_length if costs[n] < texts[n].tokens]
        first = max(0, texts[cheaper[0]].start - read) if cheaper else 0
        saved = sum(texts[n].tokens - costs[n] for n in cheaper)
        return cheaper if saved > first else []

    @staticmethod
    def _ask(way: ScoringWay | None, texts: Sequence[ScoredText], used: list[str]) -> list[Scores] | Failure:
        if not texts:
            return []
        assert way is not None  # at least one of the two is there, and texts are shared out between those that are
        used.append(way.title)
        return way.score(texts)


NO_SPANS = (
    "the server gives no log-probabilities of a prompt's own tokens, which perplexity and LongPPL need; "
    "those of continuations (retrieval_gain, needle_gain) it has"
)


def _counts(scores: Sequence[Scores]) -> dict[str, int]:
    """Requests and tokens of a document, for its records; tokens only where the engine states them every time."""
    counts = {"requests": sum(s.requests for s in scores)}
    for name in ("prompt_tokens", "cached_tokens"):
        stated = [getattr(s, name) for s in scores]
        if stated and all(count is not None for count in stated):
            counts[name] = sum(stated)
    return counts


def tail_reads(text: ScoredText, block: int, *, each_token: bool) -> int:
    """Tokens that are read of a text up to its last scored token, when the whole blocks of its document are cached:
    once, or for every scored token again from the last whole block before it."""
    first = text.start - min(text.shared, text.start - 1) // block * block
    rest = range(text.start + 1, text.tokens)
    return first + (sum((position - 1) % block + 1 for position in rest) if each_token else len(rest))


# --- which ways an engine has


class FoundWays:
    """The log-probabilities of one engine. Its ways are found at the first question, by one thread."""

    def __init__(
        self, tails: Sequence[ScoringWay], wholes: Sequence[ScoringWay], block: Callable[[], int] = lambda: 1
    ) -> None:
        """The ways to try, the best first. `block` asks how many tokens the engine's prefix cache keeps together."""
        self._tails, self._wholes, self._block = tuple(tails), tuple(wholes), block
        self._guard = threading.Lock()
        self._ways: ScoringWays | None = None

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation], spans: Sequence[tuple[int, int]]
    ) -> TokenNLL | Failure:
        sample = np.concatenate([ids[: TRIAL_CONTEXT + TRIAL_TOKENS], *(c.ids for c in continuations[:1])])
        ways = self.ways(sample)
        return ways if isinstance(ways, Failure) else ways.nll(ids, continuations, spans)

    def ways(self, sample: Ids) -> ScoringWays | Failure:
        """What the engine has, tried with some tokens; a failure that may pass is not the last word."""
        with self._guard:
            if self._ways is None:
                tried = self._try_ways(sample)
                if isinstance(tried, Failure):
                    return tried
                self._ways = tried
            return self._ways

    def _try_ways(self, sample: Ids) -> ScoringWays | Failure:
        trial, reasons = _trial(sample), list[str]()
        whole, reference = self._try_wholes(trial)
        if isinstance(reference, Failure) and (not _is_final(reference) or reference.why == "not_a_number"):
            return reference  # it says nothing about what the engine can do
        for way in self._tails:
            scores = way.score([trial])
            if isinstance(scores, Failure) and not _is_final(scores):
                return scores
            reason = _difference(scores, reference)
            if not reason:
                return ScoringWays(way, whole, max(1, self._block()), tuple(reasons))
            reasons.append(f"not {way.title}: {reason}")
        if isinstance(reference, Failure):
            return Failure("unsupported", "; ".join([reference.message, *reasons]), status=reference.status)
        return ScoringWays(None, whole, notes=tuple(reasons))

    def _try_wholes(self, trial: ScoredText) -> tuple[ScoringWay | None, list[Scores] | Failure]:
        """The first way that gives a whole prompt's log-probabilities, with those of the trial; else the failure."""
        scores: list[Scores] | Failure = []
        for way in self._wholes:
            scores = way.score([trial])
            if not isinstance(scores, Failure):
                return way, scores
            if not _is_final(scores):
                break
        return None, scores


def _trial(sample: Ids) -> ScoredText:
    """A few tokens, and absurd tokens after them."""
    context = np.resize(sample, TRIAL_CONTEXT)
    return ScoredText(np.concatenate([context, context[:TRIAL_TOKENS][::-1]]), TRIAL_CONTEXT)


def _is_final(failure: Failure) -> bool:
    """Whether the engine has this way not at all; it may be busy or away otherwise."""
    return not failure.transient or failure.status in (500, 501)


def _difference(scores: list[Scores] | Failure, reference: list[Scores] | Failure) -> str:
    """Why these are not the log-probabilities that were asked for; empty if they are."""
    if isinstance(scores, Failure):
        return f"{scores.message} (status {scores.status})" if scores.status else scores.message
    nats = scores[0].nats
    if not isinstance(reference, Failure):
        apart = float(np.max(np.abs(nats - reference[0].nats)))
        return f"its numbers are {apart:.2g} nats from those of a whole prompt" if apart > TRIAL_NATS else ""
    return "" if np.all(nats > CERTAIN) else "its log-probabilities are those after masking: 0 for a forced token"
