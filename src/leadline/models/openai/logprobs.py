"""NLL from a server that returns log-probabilities of the prompt: vLLM's `prompt_logprobs`, or `echo`.

Prompts are sent as token ids, so that they are not tokenised again. Each continuation is a request with its whole text:
servers cannot score several continuations of one document. A server whose reply lacks the prompt's tokens (llama.cpp)
gives a Failure "unsupported".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np

from leadline.core.contracts import Continuation, TokenNLL
from leadline.core.records import Failure
from leadline.models.openai.http import HttpReply, RequestFailed
from leadline.models.openai.replies import decode_json, parse_reply, request_failure

if TYPE_CHECKING:
    from leadline.core.contracts import Nats
    from leadline.core.types import Ids


class PostsJson(Protocol):
    """The part of HttpClient that is used here."""

    @property
    def base_url(self) -> str: ...

    def post(self, url: str, body: bytes) -> HttpReply: ...


def server_nll(
    client: PostsJson,
    model: str,
    ids: Ids,
    continuations: Sequence[Continuation],
    spans: Sequence[tuple[int, int]],
    *,
    key_name: str = "",
    extra: Mapping[str, Any] | None = None,
) -> TokenNLL | Failure:
    """As `LogprobModel.nll`: one request for each continuation, and one for all spans."""
    rows: list[Nats] = []
    for c in continuations:
        text = np.concatenate([ids[: c.cut], c.ids])
        nats = prompt_nll(client, model, text, key_name=key_name, extra=extra)
        if isinstance(nats, Failure):
            return nats
        rows.append(nats[c.cut + c.start :])
    found: list[Nats] = []
    if spans:
        nats = prompt_nll(client, model, ids[: max(stop for _, stop in spans)], key_name=key_name, extra=extra)
        if isinstance(nats, Failure):
            return nats
        found = [nats[start:stop] for start, stop in spans]
    return TokenNLL(tuple(rows), tuple(found), notes=("log-probabilities of the prompt, from the server",))


def prompt_nll(
    client: PostsJson, model: str, ids: Ids, *, key_name: str = "", extra: Mapping[str, Any] | None = None
) -> Nats | Failure:
    """NLL of every token of a prompt in nats; NaN for the first, which has no context."""
    body = {
        "model": model, "prompt": ids.tolist(), "max_tokens": 1, "temperature": 0.0,
        "echo": True, "logprobs": 1, "prompt_logprobs": 0, **(extra or {}),
    }  # fmt: skip
    try:
        reply = client.post(f"{client.base_url}/completions", msgspec.json.encode(body))
    except RequestFailed as error:
        return request_failure(error)
    outcome = parse_reply(reply, chat=False, key_name=key_name)
    if isinstance(outcome, Failure):
        return outcome
    choice = (decode_json(reply) or {}).get("choices", [{}])[0]
    listed = _by_id(choice.get("prompt_logprobs"), ids) or _echoed(choice.get("logprobs"), len(ids))
    if isinstance(listed, str):
        return Failure("unsupported", listed or "the server returns no log-probabilities of the prompt's tokens")
    return np.array([np.nan, *(-p for p in listed)], np.float64)


def _by_id(given: Any, ids: Ids) -> list[float] | str:
    """vLLM's format: for each token but the first, an object by token id. Empty where the reply has no such list."""
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != len(ids):
        return ""
    found = []
    for token, chances in zip(ids[1:].tolist(), given[1:], strict=True):
        one = chances.get(str(token)) if isinstance(chances, Mapping) else None
        if not isinstance(one, Mapping) or not isinstance(one.get("logprob"), (int, float)):
            return f"the server's log-probabilities lack token {token}, which was sent: it read another text"
        found.append(float(one["logprob"]))
    return found


def _echoed(given: Any, tokens: int) -> list[float] | str:
    """OpenAI's format: the prompt's tokens come first, then the generated ones."""
    listed = given.get("token_logprobs") if isinstance(given, Mapping) else None
    if not isinstance(listed, Sequence):
        return ""
    if not tokens <= len(listed) <= tokens + 1:
        return (
            f"the server returns {len(listed)} log-probabilities for a prompt of {tokens} tokens: not those of a prompt"
        )
    if not all(isinstance(p, (int, float)) for p in listed[1:tokens]):
        return "the server's reply lacks log-probabilities of some of the prompt's tokens"
    return [float(p) for p in listed[1:tokens]]
