"""The candidates for a generated token in a server's reply, in the formats of chat and completions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from leadline.core.types import NextToken


def first_token(choice: Mapping[str, Any]) -> dict[str, float]:
    """The candidates for the first generated token of a reply's choice; empty where it has none."""
    logprobs = choice.get("logprobs")
    if not isinstance(logprobs, Mapping):
        return {}
    try:
        if isinstance(logprobs.get("content"), Sequence) and logprobs["content"]:
            entry = logprobs["content"][0]
            listed = [entry, *(entry.get("top_logprobs") or ())]
            pairs = {
                (candidate.get("id"), str(candidate["token"])): float(candidate["logprob"]) for candidate in listed
            }
            return _finite(NextToken.of((text, logprob) for (_, text), logprob in _once(pairs)).top)
        if isinstance(logprobs.get("top_logprobs"), Sequence) and logprobs["top_logprobs"]:
            return _finite({str(text): float(logprob) for text, logprob in logprobs["top_logprobs"][0].items()})
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return {}
    return {}


def _once(pairs: Mapping[tuple[Any, str], float]) -> Iterable[tuple[tuple[Any, str], float]]:
    """Without the chosen token a second time: it is listed among the candidates again, by some servers without its
    id."""
    with_id = {text for number, text in pairs if number is not None}
    return (((number, text), p) for (number, text), p in pairs.items() if number is not None or text not in with_id)


def _finite(top: Mapping[str, float]) -> dict[str, float]:
    """-inf and -9999 stand for tokens that cannot come."""
    return {text: logprob for text, logprob in top.items() if math.isfinite(logprob) and logprob > -1000}


def margin_of(choice: Mapping[str, Any]) -> float | None:
    """Nats between the first generated token and the next candidate."""
    logprobs = sorted(first_token(choice).values(), reverse=True)
    return logprobs[0] - logprobs[1] if len(logprobs) > 1 else None
