"""The token counts of a reply, under every name that servers give them.

    what            names
    prompt          prompt_tokens (OpenAI, vLLM, SGLang, llama.cpp), input_tokens (Anthropic), promptTokenCount (Gemini)
    from a cache    prompt_tokens_details.cached_tokens (OpenAI, vLLM, SGLang, xAI, Mistral), cached_tokens (Moonshot),
                    prompt_cache_hit_tokens (DeepSeek), cache_read_input_tokens (Anthropic),
                    cachedContentTokenCount (Gemini), timings.cache_n and tokens_cached (llama.cpp)
    into a cache    cache_creation_input_tokens, cache_creation.* (Anthropic), cache_write_tokens (OpenRouter)
    thinking        completion_tokens_details.reasoning_tokens (OpenAI, vLLM), reasoning_tokens (SGLang),
                    thoughtsTokenCount (Gemini)

A count that is missing or is not a number is left out: None is never zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MOST_TOKENS = 1 << 53
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")


def token_counts(body: Mapping[str, Any]) -> dict[str, int]:
    """The counts of a reply that it states, by the name of their field in a Completion."""
    usage = _table(body, "usage", "usageMetadata", "usage_metadata")
    prompt = _first(usage, "prompt_tokens", "promptTokenCount", "prompt_token_count")
    cached, written = _cached(body, usage), _written(usage)
    if prompt is None and (fresh := _first(usage, "input_tokens")) is not None:
        # Anthropic's input tokens are those that neither came from the cache nor went into it.
        prompt = fresh + ((cached or 0) + (written or 0) if "cache_read_input_tokens" in usage else 0)
    if cached is None and prompt is not None:
        # llama.cpp's own API; some versions count the answer too, which is no receipt.
        kept = _first(body, "tokens_cached")
        cached = kept if kept is not None and kept <= prompt else None
    thinking = _thinking(usage)
    completion = _first(usage, "completion_tokens", "output_tokens")
    if completion is None and (said := _first(usage, "candidatesTokenCount", "candidates_token_count")) is not None:
        completion = said + (thinking or 0)  # Gemini counts them apart
    found = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "thinking_tokens": thinking,
    }
    return {name: value for name, value in found.items() if value is not None}


def _cached(body: Mapping[str, Any], usage: Mapping[str, Any]) -> int | None:
    for details in _tables(usage, _DETAILS):
        if (found := _first(details, "cached_tokens")) is not None:
            return found
    names = (
        "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens",
        "cachedContentTokenCount", "cached_content_token_count",
    )  # fmt: skip
    found = _first(usage, *names)
    return _first(_table(body, "timings"), "cache_n") if found is None else found


def _written(usage: Mapping[str, Any]) -> int | None:
    found = _first(usage, "cache_creation_input_tokens", "cache_write_tokens")
    for details in _tables(usage, _DETAILS):
        if found is None:
            found = _first(details, "cache_write_tokens", "cache_creation_tokens")
    if found is None:
        by_lifetime = [_first(_table(usage, "cache_creation"), f"ephemeral_{t}_input_tokens") for t in ("5m", "1h")]
        stated = [count for count in by_lifetime if count is not None]
        found = sum(stated) if stated else None
    return found


def _thinking(usage: Mapping[str, Any]) -> int | None:
    for details in _tables(usage, _OUTPUT_DETAILS):
        if (found := _first(details, "reasoning_tokens", "thinking_tokens")) is not None:
            return found
    return _first(usage, "reasoning_tokens", "thoughtsTokenCount", "thoughts_token_count")


def _table(parent: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next(_tables(parent, names), {})


def _tables(parent: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[Mapping[str, Any]]:
    return (inner for name in names if isinstance(inner := parent.get(name), Mapping))


def _first(table: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a count."""
    values = (table.get(name) for name in names)
    return next((v for v in values if type(v) is int and 0 <= v < MOST_TOKENS), None)  # no bool
