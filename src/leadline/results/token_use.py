"""Tokens beyond the answer: prompt tokens that came from a server's prefix cache, and tokens of thinking, by length.

The server's receipts say what came from a cache. What could have come from it is on the records: the beginning of every
prompt that had been asked before, for another probe of its document.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from leadline.core.drafts import EXTRA_ALLOWANCE
from leadline.core.format import format_count, format_duration
from leadline.core.records import Completion, Record

FEW_HITS = 0.1
"""Share of the tokens that could have come from a cache; with fewer, the cache was not in effect."""
LEAST_FOLLOWING = 4
"""Answers that must have had something to find in a cache, before its absence is warned of."""

_STATE_HITS = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
}
_GET_HITS = {
    "vllm": "start vLLM with --enable-prefix-caching and more memory for its cache (--gpu-memory-utilization, or "
    "VLLM_CPU_KVCACHE_SPACE)",
    "sglang": "start SGLang without --disable-radix-cache, or give its cache more memory (--mem-fraction-static)",
    "llamacpp": "start llama.cpp without --no-cache-prompt, and with --parallel 1 or a longer --ctx-size",
}
_HOSTED = "try cache_key=yes in the model's name; hosted servers cache no prompts below about 1,024 tokens"


@dataclass(slots=True)
class CacheUse:
    """Sums over the answers of a run."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    cacheable_tokens: int = 0
    cacheable_cached: int = 0
    """Of the cacheable tokens of answers whose receipt says so, those that came from a cache."""
    cacheable_stated: int = 0
    """Cacheable tokens of answers whose receipt says how many came from a cache."""
    following: int = 0
    """Answers to prompts whose beginning had been asked before."""
    stated: int = 0
    """Answers whose receipt says how many tokens came from a cache, if only that there were none."""
    answers: int = 0
    first_seconds: float = 0.0
    following_seconds: float = 0.0

    def add(self, record: Record, outcome: Completion) -> None:
        self.answers += 1
        self.prompt_tokens += record.prompt_tokens
        self.cached_tokens += outcome.cached_tokens or 0
        self.written_tokens += outcome.cache_write_tokens or 0
        self.stated += outcome.cached_tokens is not None
        cacheable = record.receipt.cacheable
        self.cacheable_tokens += cacheable
        if cacheable:
            self.following += 1
            self.following_seconds += record.seconds
            if outcome.cached_tokens is not None:
                self.cacheable_stated += cacheable
                self.cacheable_cached += min(outcome.cached_tokens, cacheable)
        else:
            self.first_seconds += record.seconds

    @property
    def hit_share(self) -> float | None:
        """Of the tokens that could have come from the cache; None where the server does not say."""
        return self.cacheable_cached / self.cacheable_stated if self.cacheable_stated else None

    def values(self) -> dict[str, float | int | None]:
        """For JSON."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens if self.stated else None,
            "written_tokens": self.written_tokens,
            "cacheable_tokens": self.cacheable_tokens,
            "hit_share": self.hit_share,
        }


def format_cache_use(use: CacheUse) -> str:
    """`31,020 of 120,400 prompt tokens were read, 89,380 (74 %) came from a cache: 92 % of those that could`."""
    if not use.stated:
        return ""
    read = use.prompt_tokens - use.cached_tokens
    share = 100 * use.cached_tokens / max(1, use.prompt_tokens)
    line = f"{read:,} of {use.prompt_tokens:,} prompt tokens were read, {use.cached_tokens:,} ({share:.0f}%) came from "
    line += "a cache"
    if use.hit_share is not None:
        line += f": {100 * use.hit_share:.0f}% of those that could"
    if use.stated < use.answers:
        line += f"; {format_count(use.answers - use.stated, 'answer')} did not say"
    return line


def format_seconds_saved(use: CacheUse) -> str:
    """Tokens from a cache are not yet time saved: what first and further questions of a document took."""
    first = use.answers - use.following
    if not use.following or not first:
        return ""
    one, other = use.first_seconds / first, use.following_seconds / use.following
    return f"the first question of a document took {format_duration(one)} on average, a further one " + (
        format_duration(other)
    )


def cache_warning(use: CacheUse, fingerprints: Mapping[str, str]) -> str:
    """That a cache was not in effect although documents were shared, with what would help; else empty."""
    if use.following < LEAST_FOLLOWING:
        return ""
    kind = fingerprints.get("model.server", "").partition(" ")[0]
    if use.hit_share is None:
        if kind not in _STATE_HITS:
            return ""
        return (
            "the server does not say how many tokens came from its prefix cache, so that it is not known whether "
            f"sharing documents saved anything: {_STATE_HITS[kind]}"
        )
    if use.hit_share >= FEW_HITS:
        return ""
    return (
        f"the documents were shared, but only {100 * use.hit_share:.0f}% of the tokens that could have come from the "
        f"server's prefix cache did: {_GET_HITS.get(kind, _HOSTED)}"
    )


@dataclass(slots=True)
class ThinkingUse:
    """Sums over the answers of a length, or of a run."""

    answers: int = 0
    thought: int = 0
    """Answers with thinking."""
    tokens: int = 0
    most: int = 0
    cut_off: int = 0
    """Answers that ended because the allowance did."""
    score: float = 0.0
    allowed: int = 0
    """The largest allowance beyond that of the answer."""

    def add(self, record: Record, outcome: Completion) -> None:
        if record.score is None:
            return
        tokens = outcome.thinking_tokens or 0
        allowed = record.labels.get(EXTRA_ALLOWANCE, "")
        self.answers += 1
        self.thought += bool(tokens or outcome.thinking)
        self.tokens += tokens
        self.most = max(self.most, tokens)
        self.cut_off += outcome.finish == "length"
        self.score += record.score
        self.allowed = max(self.allowed, int(allowed) if allowed.isdecimal() else 0)

    @property
    def mean_tokens(self) -> float:
        return self.tokens / self.answers if self.answers else 0.0

    @property
    def accuracy(self) -> float | None:
        return self.score / self.answers if self.answers else None

    @property
    def cut_share(self) -> float:
        return self.cut_off / self.answers if self.answers else 0.0


ThinkingByLength = dict[int, ThinkingUse]


def is_shown(found: ThinkingByLength) -> bool:
    """Whether the model thought at all, or had room to."""
    return any(use.thought or use.allowed for use in found.values())


def thinking_values(found: ThinkingByLength) -> list[dict[str, float | int | None]]:
    """For JSON."""
    return [
        {
            "length": length,
            "answers": use.answers,
            "mean_thinking_tokens": use.mean_tokens,
            "most_thinking_tokens": use.most,
            "cut_off": use.cut_share,
            "accuracy": use.accuracy,
            "allowance": use.allowed,
        }
        for length, use in sorted(found.items())
    ]
