"""The likeliest next tokens after cuts of a prompt, and the times of answers, of a server.

A prompt goes to the completions endpoint as token ids with `max_tokens=1` and `logprobs`: one request for each cut, of
which a server with a prefix cache reads the new tokens only.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from leadline.core.answers import Completion, Failure
from leadline.core.backoff import Attempts, Backoff
from leadline.core.contracts import Tokenizer
from leadline.core.types import AnswerTime, NextToken
from leadline.models.openai.candidates import first_token
from leadline.models.openai.discovery import ATTEMPTS, ServerKind
from leadline.models.openai.replies import Exchange

if TYPE_CHECKING:
    from leadline.core.types import Ids

Ask = Callable[[Sequence[int], Mapping[str, Any]], Exchange]
"""One request with a prompt of token ids and further fields."""

MOST_LOGPROBS = 20
"""Servers list no more alternatives than this, by default."""
NO_FRESH = "this kind of server has no field that reads a prompt anew"


@runtime_checkable
class Decoder(Protocol):
    """A tokenizer that can also give the text of tokens."""

    def decode(self, ids: Sequence[int]) -> str: ...


def without_cache(kind: ServerKind) -> dict[str, Any] | None:
    """The fields that make a server read the whole prompt; None where no way is known."""
    if kind == "llamacpp":
        return {"cache_prompt": False}
    if kind in ("vllm", "sglang"):
        return {"cache_salt": secrets.token_hex(8)}
    return None


def next_tokens(
    ask: Ask, tokenizer: Tokenizer, ids: Ids, cuts: Sequence[int], count: int, fields: Mapping[str, Any]
) -> list[NextToken] | Failure:
    """As `NextTokenModel.next_tokens`: one request for each cut, the shortest first."""
    next_at_cuts = []
    for cut in cuts:
        body = {"max_tokens": 1, "temperature": 0.0, "logprobs": min(count, MOST_LOGPROBS), **fields}
        reply = _answered(partial(ask, ids[:cut].tolist(), body))
        if isinstance(reply.outcome, Failure):
            return reply.outcome
        top = first_token(reply.page.get("choices", [{}])[0])
        if not top:
            return Failure("unsupported", "the server lists no candidates for the tokens that it generates")
        follows = tokenizer.decode([int(ids[cut])]) if cut < len(ids) and isinstance(tokenizer, Decoder) else None
        next_at_cuts.append(NextToken(top, None if follows is None else top.get(follows), reply.outcome.cached_tokens))
    return next_at_cuts


def time_answer(ask: Ask, ids: Ids, tokens: int, fresh: Mapping[str, Any]) -> AnswerTime | Failure:
    """Three requests: the first token of a prompt that was not read before; the same again, from a prefix cache where
    there is one; more tokens. The rate comes from the difference of the last two."""
    replies: list[tuple[float, int]] = []
    for limit, fields in ((1, fresh), (1, {}), (tokens, {})):
        body = {"max_tokens": limit, "temperature": 0.0, "ignore_eos": True, **fields}
        reply = _answered(partial(ask, ids.tolist(), body))
        if isinstance(reply.outcome, Failure):
            return reply.outcome
        replies.append((reply.seconds, reply.outcome.completion_tokens or 0))
    (first, _), (again, few), (longer, many) = replies
    rate = (many - few) / (longer - again) if many > few and longer > again else None
    return AnswerTime(first, rate)


def _answered(ask: Callable[[], Exchange]) -> Exchange:
    """The reply, asked for again while a failure may pass."""
    attempts = Attempts(Backoff(ATTEMPTS, timeout=60.0, rate_limit_wait=60.0))
    while True:
        reply = ask()
        if isinstance(reply.outcome, Completion):
            return reply
        wait = attempts.wait_after([reply.outcome])
        if wait is None:
            return reply
        time.sleep(wait.drawn_out())
