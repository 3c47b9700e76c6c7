"""The reasons for the end of an answer, in the words of servers and providers: by the model, at its allowance, or from
outside.

There is no list of all words: each server has its own, such as `guardrail_intervened`, `ERROR_TOXIC` or `user_cancel`.
So a reason is read by the words in it, and one without any of these is taken as the model's own end. A server says the
same few in all its replies: each is read once.
"""

from __future__ import annotations

import re
from functools import lru_cache

from leadline.core.answers import Failure

LENGTH = "length"
REASONS_KEPT = 64
_AT_THE_ALLOWANCE = frozenset("max_tokens max_output_tokens max_new_tokens max_length model_length token_limit".split())
_FILTERED = re.compile(
    r"filter|safety|recitation|block|prohibit|spii|sensitive|guardrail|moderat|toxic|polic(y|ies)|violat|model_armor"
    r"|censor|withheld"
)
_TOOL = re.compile(r"tool|function")
_ABORTED = re.compile(
    r"error|abort|cancel|fail|time_?d?_?out|expired|interrupt|queued|pending|processing|progress|running|paused?(_|$)"
    r"|overload|insufficient|unavailable|disconnect|preempt|evict|kill|shut_?down|oom|out_of_memory|malformed|invalid"
    r"|exception|crash|^other$|^language$"
)


@lru_cache(REASONS_KEPT)
def finish_of(reason: str) -> str:
    """The reason as records hold it: `length` under whatever name the allowance was used up, others as they came."""
    return LENGTH if _snake_case(reason) in _AT_THE_ALLOWANCE else reason


@lru_cache(REASONS_KEPT)
def is_tool_finish(reason: str) -> bool:
    return _TOOL.search(_snake_case(reason)) is not None


@lru_cache(REASONS_KEPT)
def ended_by_provider(reason: str) -> Failure | None:
    """The failure where a filter or the server ended the answer and not the model; None where the model may have."""
    words = _snake_case(reason)
    if _FILTERED.search(words):
        what = f"a filter of the provider removed the answer, or a part of it: finish_reason {reason!r}"
        return Failure("filtered", what, transient=True, status=200)
    if _ABORTED.search(words) and not is_tool_finish(reason):
        return Failure("aborted", f"the server ended the answer: {reason!r}", transient=True, status=200)
    return None


def _snake_case(reason: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])|[^A-Za-z0-9]+", "_", reason).lower()
