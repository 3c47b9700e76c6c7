"""The ways in which servers give log-probabilities, each as a `ScoringWay`: what is sent, and what is read back.

    server      way                                                              requests
    vLLM        a forced trace through /inference/v1/generate                    one for each continuation
                forced tokens: completions with one allowed token each           one for each scored token
    SGLang      /generate with logprob_start_len                                 one for each continuation
    llama.cpp   forced tokens: /completion with n_probs and a bias               one for each scored token
    any         log-probabilities of a whole prompt: vLLM's prompt_logprobs,     one for each continuation,
                SGLang's from 0, or completions with echo                        which is read again each time

All but the last read a document once and take it from the prefix cache for every continuation. Prompts are sent as
token ids, so that they are not tokenised again. A reply in which the tokens are not those that were asked for is a
Failure "unsupported": which way a server has is found by trying (`leadline.models.prefix_scoring`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from leadline.core.answers import Failure
from leadline.core.workers import call_at_once
from leadline.models.openai.discovery import ServerInfo
from leadline.models.openai.http import HttpClient, RequestFailed
from leadline.models.openai.replies import (
    decode_json,
    error_in,
    excerpt,
    format_error,
    parse_refusal,
    request_failure,
    token_counts,
)
from leadline.models.prefix_scoring import FoundWays, ScoredText, Scores, ScoringWay, tail_reads

if TYPE_CHECKING:
    from leadline.core.types import Ids, Nats

AT_ONCE = 8
"""Requests for tokens of the same document at the same time, beside those of other documents."""
BIAS = 1e4
"""Added to the logit of the token that llama.cpp is to write; its log-probabilities are those before any bias."""
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The endpoint of a server, and the fields of every request."""

    client: HttpClient
    model: str
    key_name: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """The user's own fields; those of a way replace them."""

    def completions(self, ids: Ids, fields: Json) -> Json | Failure:
        body = {**self.extra, "model": self.model, "prompt": ids.tolist(), "temperature": 0.0, "max_tokens": 1}
        return self._post(f"{self.client.base_url}/completions", {**body, **fields}, self.key_name)

    def native(self, path: str, body: Json) -> Json | Failure:
        """An endpoint of the server's own, outside of /v1."""
        return self._post(f"{self.client.root_url}{path}", body)

    def _post(self, url: str, body: Json, key_name: str = "") -> Json | Failure:
        try:
            reply = self.client.post(url, msgspec.json.encode(body))
        except RequestFailed as error:
            return request_failure(error)
        if reply.status != 200:
            return parse_refusal(reply, key_name)
        page = decode_json(reply)
        if page is None:
            return Failure("malformed", f"no JSON object: {excerpt(reply.body)}", transient=True, status=200)
        refusal = error_in(page)
        if refusal is not None:
            return Failure("server", format_error(refusal), transient=True, status=200)
        return page


# --- the ways -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _ByText:
    """A way with one request for each text."""

    endpoint: Endpoint
    at_once: int = AT_ONCE

    def score(self, texts: Sequence[ScoredText]) -> list[Scores] | Failure:
        return _all_of(call_at_once([partial(self.ask, text) for text in texts], self.at_once))

    def ask(self, text: ScoredText) -> Scores | Failure:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _ByToken:
    """A way with one request for each scored token. The first token of every text is asked before the others, so that
    those find all that is before them in the cache."""

    endpoint: Endpoint
    at_once: int = AT_ONCE

    def score(self, texts: Sequence[ScoredText]) -> list[Scores] | Failure:
        scores_at: dict[tuple[int, int], Scores] = {}
        positions = [(number, position) for number, text in enumerate(texts) for position in _scored(text)]
        first = [(number, text.start) for number, text in enumerate(texts)]
        for wave in (first, [position for position in positions if position not in first]):
            calls = [partial(self.ask, texts[n].ids[:position], int(texts[n].ids[position])) for n, position in wave]
            scores = _all_of(call_at_once(calls, self.at_once))
            if isinstance(scores, Failure):
                return scores
            scores_at |= dict(zip(wave, scores, strict=True))
        return [
            _joined([scores_at[number, position] for position in _scored(text)]) for number, text in enumerate(texts)
        ]

    def ask(self, before: Ids, token: int) -> Scores | Failure:
        raise NotImplementedError


class ForcedTokens(_ByToken):
    """vLLM: completions that may write one token only. Its log-probability is of the logits before that limit."""

    title = "forced tokens after a cached prefix, one request a token"

    def reads(self, text: ScoredText, block: int) -> int:
        return tail_reads(text, block, each_token=True)

    def ask(self, before: Ids, token: int) -> Scores | Failure:
        fields = {"logprobs": 1, "allowed_token_ids": [token], "return_tokens_as_token_ids": True, "ignore_eos": True}
        page = self.endpoint.completions(before, fields)
        if isinstance(page, Failure):
            return page
        logprobs = _object(_choice(page).get("logprobs"))
        written, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
        if not isinstance(written, list) or written[:1] != [f"token_id:{token}"]:
            return _another_token(token)
        return _scores_of(values[:1] if isinstance(values, list) else [], 1, page)


class ForcedTrace(_ByText):
    """vLLM with --enable-trace-replay: it writes exactly these tokens, with the log-probabilities of its own logits."""

    title = "forced trace after a cached prefix, one request a continuation"

    def reads(self, text: ScoredText, block: int) -> int:
        return tail_reads(text, block, each_token=False)

    def ask(self, text: ScoredText) -> Scores | Failure:
        trace = text.scored
        sampling = {
            "temperature": 0.0, "max_tokens": len(trace), "logprobs": 0, "ignore_eos": True,
            "trace_decode_token_ids": trace,
        }  # fmt: skip
        endpoint, ids = self.endpoint, text.ids[: text.start].tolist()
        body = {"model": endpoint.model, "token_ids": ids, "sampling_params": sampling, "stream": False}
        page = endpoint.native("/inference/v1/generate", body)
        if isinstance(page, Failure):
            return page
        choice = _choice(page)
        written = choice.get("token_ids")
        if isinstance(written, list) and len(written) < len(trace) and written == trace[: len(written)]:
            what = f"the server replayed {len(written)} of {len(trace)} tokens: the rest does not fit its window"
            return Failure("context_length", what)
        if written != trace:
            return Failure("unsupported", "the server wrote other tokens than the trace it was given")
        content = _object(choice.get("logprobs")).get("content")
        listed = [_object(token).get("logprob") for token in content] if isinstance(content, list) else []
        return _scores_of(listed, len(trace), page)


class TailOfPrompt(_ByText):
    """SGLang: log-probabilities of a prompt from a position on. The value at that position itself is missing, because
    the logits before it are not kept, so that it is asked for from one position earlier."""

    title = "end of the prompt after a cached prefix, one request a continuation"

    def reads(self, text: ScoredText, block: int) -> int:
        return tail_reads(text, block, each_token=False) + 1

    def ask(self, text: ScoredText) -> Scores | Failure:
        return _sglang(self.endpoint, text, text.start - 1)


class WrittenTokens(_ByToken):
    """llama.cpp: a bias makes it write the token, and n_probs gives the log-probability before any bias. One request
    after the other: a second one at the same time would be read in another slot, from the beginning."""

    title = "tokens written by a bias after a cached prefix, one request a token"

    def reads(self, text: ScoredText, block: int) -> int:
        return tail_reads(text, 1, each_token=True)

    def ask(self, before: Ids, token: int) -> Scores | Failure:
        body = {
            "prompt": before.tolist(), "n_predict": 1, "temperature": 0.0, "n_probs": 1, "logit_bias": [[token, BIAS]],
            "cache_prompt": True, "ignore_eos": False, "samplers": [], "return_tokens": True,
        }  # fmt: skip
        page = self.endpoint.native("/completion", body)
        if isinstance(page, Failure):
            return page
        listed = page.get("completion_probabilities")
        written = _object(listed[0]) if isinstance(listed, list) and listed else {}
        if written.get("id") != token:
            return _another_token(token)
        return _scores_of([written.get("logprob")], 1, page)


class WholePrompt(_ByText):
    """The log-probabilities of every token of a prompt: vLLM's `prompt_logprobs`, or OpenAI's `echo`."""

    title = "every token of the prompt, which is read whole for each continuation"

    def reads(self, text: ScoredText, block: int) -> int:
        return text.tokens

    def ask(self, text: ScoredText) -> Scores | Failure:
        fields = {"echo": True, "logprobs": 1, "prompt_logprobs": 0}
        page = self.endpoint.completions(text.ids, fields)
        if isinstance(page, Failure):
            return page
        choice = _choice(page)
        listed = _by_id(choice.get("prompt_logprobs"), text.ids) or _echoed(choice.get("logprobs"), text.tokens)
        if isinstance(listed, str):
            return Failure("unsupported", listed or "the server returns no log-probabilities of the prompt's tokens")
        return _scores_of(listed[text.start - 1 :], text.tokens - text.start, page)


class WholeSGLang(_ByText):
    """SGLang: a prompt's log-probabilities from its first token on; the server computes their logits in parts."""

    title = WholePrompt.title

    def reads(self, text: ScoredText, block: int) -> int:
        return text.tokens

    def ask(self, text: ScoredText) -> Scores | Failure:
        return _sglang(self.endpoint, text, 0)


def _sglang(endpoint: Endpoint, text: ScoredText, start: int) -> Scores | Failure:
    body = {
        "input_ids": text.ids.tolist(), "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True, "logprob_start_len": start, "stream": False,
    }  # fmt: skip
    page = endpoint.native("/generate", body)
    if isinstance(page, Failure):
        return page
    meta = _object(page.get("meta_info"))
    listed, wanted = meta.get("input_token_logprobs"), text.scored
    rows = listed[-len(wanted) :] if isinstance(listed, list) else []
    ids = [row[1] if isinstance(row, list) and len(row) > 1 else None for row in rows]
    # It reports the last token of the vocabulary as 0, which it uses for positions of images too.
    if len(ids) != len(wanted) or any(theirs not in (token, 0) for theirs, token in zip(ids, wanted, strict=True)):
        return Failure("unsupported", "the server's log-probabilities are not those of the tokens that were sent")
    return _scores_of([row[0] for row in rows], len(wanted), {"usage": meta})


def server_ways(endpoint: Endpoint, server: ServerInfo, block: Callable[[], int]) -> FoundWays:
    """The ways that this kind of server may have. `block` asks how many tokens its prefix cache keeps together."""
    tails: dict[str, tuple[ScoringWay, ...]] = {
        "vllm": (ForcedTrace(endpoint), ForcedTokens(endpoint)),
        "sglang": (TailOfPrompt(endpoint),),
        "llamacpp": (WrittenTokens(endpoint, at_once=1),),
    }
    own = (WholeSGLang(endpoint, at_once=1),) if server.kind == "sglang" else ()
    return FoundWays(tails.get(server.kind, ()), (*own, WholePrompt(endpoint, at_once=1)), block)


# --- replies ------------------------------------------------------------------------------------


def _scores_of(listed: Sequence[Any], wanted: int, page: Json) -> Scores | Failure:
    numbers = [float(value) for value in listed if isinstance(value, (int, float)) and not isinstance(value, bool)]
    if len(numbers) != wanted or len(listed) != wanted:
        return Failure("unsupported", f"the server gives {len(numbers)} log-probabilities for {wanted} tokens")
    counts = token_counts(page)
    if "prompt_tokens" not in counts and isinstance(page.get("tokens_evaluated"), int):  # llama.cpp
        counts["prompt_tokens"] = page["tokens_evaluated"]
        cached = _object(page.get("timings")).get("cache_n")
        counts |= {"cached_tokens": cached} if isinstance(cached, int) else {}
    nats = -np.array(numbers, np.float64)
    return Scores(nats, prompt_tokens=counts.get("prompt_tokens"), cached_tokens=counts.get("cached_tokens"))


def _joined(tokens: Sequence[Scores]) -> Scores:
    """The scores of a text, from those of its tokens."""
    counts: dict[str, int | None] = {}
    for name in ("prompt_tokens", "cached_tokens"):
        stated = [getattr(token, name) for token in tokens]
        counts[name] = sum(stated) if all(count is not None for count in stated) else None
    nats: Nats = np.concatenate([token.nats for token in tokens])
    return Scores(nats, sum(token.requests for token in tokens), **counts)


def _all_of(results: Sequence[Scores | Failure]) -> list[Scores] | Failure:
    """All scores, or the failure that is least likely to pass."""
    failures = sorted((r for r in results if isinstance(r, Failure)), key=lambda failure: failure.transient)
    return failures[0] if failures else [r for r in results if isinstance(r, Scores)]


def _scored(text: ScoredText) -> range:
    return range(text.start, text.tokens)


def _another_token(token: int) -> Failure:
    return Failure("unsupported", f"the server does not write token {token} where no other is allowed")


def _choice(page: Json) -> Json:
    choices = page.get("choices")
    return _object(choices[0]) if isinstance(choices, list) and choices else {}


def _object(value: Any) -> Json:
    return value if isinstance(value, Mapping) else {}


def _by_id(listed: Any, ids: Ids) -> list[float] | str:
    """vLLM's format: for each token but the first, an object by token id. Empty where the reply has no such list."""
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) != len(ids):
        return ""
    logprobs = []
    for token, chances in zip(ids[1:].tolist(), listed[1:], strict=True):
        own = chances.get(str(token)) if isinstance(chances, Mapping) else None
        if not isinstance(own, Mapping) or not isinstance(own.get("logprob"), (int, float)):
            return f"the server's log-probabilities lack token {token}, which was sent: it read another text"
        logprobs.append(float(own["logprob"]))
    return logprobs


def _echoed(logprobs: Any, tokens: int) -> list[float] | str:
    """OpenAI's format: the prompt's tokens come first, then the generated ones."""
    listed = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    if not isinstance(listed, Sequence):
        return ""
    if not tokens <= len(listed) <= tokens + 1:
        return (
            f"the server returns {len(listed)} log-probabilities for a prompt of {tokens} tokens: not those of a prompt"
        )
    if not all(isinstance(p, (int, float)) for p in listed[1:tokens]):
        return "the server's reply lacks log-probabilities of some of the prompt's tokens"
    return [float(p) for p in listed[1:tokens]]
