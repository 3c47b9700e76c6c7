"""Parsing a server's reply: a Completion, or a Failure with its class and whether a retry may help.

Pure functions. Only what is certainly the model's own output becomes a Completion: an empty string is an answer; null,
a missing field, a web page, an error object, a tool call without a text, and what a filter or the server cut off is
not.

Token counts are read under every name that servers give them. One that is missing or is not a number is left out:
None is never zero.

    what            names
    prompt          prompt_tokens (OpenAI, vLLM, SGLang, llama.cpp), input_tokens (Anthropic), promptTokenCount (Gemini)
    from a cache    prompt_tokens_details.cached_tokens (OpenAI, vLLM, SGLang, xAI, Mistral), cached_tokens (Moonshot),
                    prompt_cache_hit_tokens (DeepSeek), cache_read_input_tokens (Anthropic),
                    cachedContentTokenCount (Gemini), timings.cache_n and tokens_cached (llama.cpp)
    into a cache    cache_creation_input_tokens, cache_creation.* (Anthropic), cache_write_tokens (OpenRouter)
    thinking        completion_tokens_details.reasoning_tokens (OpenAI, vLLM), reasoning_tokens (SGLang),
                    thoughtsTokenCount (Gemini)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from leadline.core.answers import Completion, Failure
from leadline.models.openai.candidates import margin_of
from leadline.models.openai.finish import LENGTH, ended_by_provider, finish_of, is_tool_finish
from leadline.models.openai.http import MESSAGE_CHARACTERS, HttpReply, RequestFailed
from leadline.text.chat import split_thinking

Json = Mapping[str, Any]
NAME_CHARACTERS = 200

_CONTEXT_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "string_above_max_length",
    }
)
# Messages of vLLM, SGLang, llama.cpp, OpenAI, TGI, Together, Mistral, xAI, Anthropic, Gemini, Moonshot, DashScope, LM
# Studio and others.
_CONTEXT_MESSAGE = re.compile(
    r"(maximum|model'?s|available|exceed\w*( the)?( \w+)?) context (length|size|window|limit)"
    r"|context (length|size|window)[^.]{0,40}exceed"
    r"|longer than the (maximum )?(model|context|allowed)"
    r"|maximum (allowed (input )?length|model length|prompt length|input length)"
    r"|(prompt|input|request) (is|was) too (long|large for (the|this) model)"
    r"|too large for model with .* context"
    r"|reduce the length of (the|your) (messages|prompt|input)"
    r"|token count\b.{0,40} exceeds the maximum number of tokens"
    r"|exceeded model token limit"
    r"|range of input length should be"
    r"|(greater than the context length|context length of only|n_keep\W+\d+\W+n_ctx)"
    r"|inputs?\W+tokens?\W.*max_new_tokens.*must be",
    re.IGNORECASE,
)
_NO_CREDIT_CODES = frozenset(
    {
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "billing_error",
        "insufficient_balance",
        "exceeded_current_quota_error",
    }
)
# Messages of Anthropic, OpenRouter, DeepSeek, xAI, and of OpenAI by way of LiteLLM, which leaves its codes out.
_NO_CREDIT_MESSAGE = re.compile(
    r"credit balance is too low|insufficient (credits?|balance|funds)\b|doesn't have any credits"
    r"|credits? (are|is|have been|has been) (depleted|exhausted|used up)"
    r"|OpenAIException - You exceeded your current quota",
    re.IGNORECASE,
)
# Gemini's free tiers have a limit of 0 for some models.
_NO_QUOTA_MESSAGE = re.compile(r"\blimit: ?0(?!\.?\d)")
MOST_TOKENS = 1 << 53
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
_OUTPUT_DETAILS = ("completion_tokens_details", "output_tokens_details")


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request outside of a run, and its reply as it came."""

    outcome: Completion | Failure
    page: Mapping[str, Any]
    """The reply as JSON; empty where there is none."""
    headers: Mapping[str, str]
    seconds: float


def request_failure(error: RequestFailed) -> Failure:
    return Failure(error.reason, str(error), transient=True)


def parse_reply(
    reply: HttpReply,
    *,
    chat: bool,
    prefix: str = "",
    opened_thinking: bool | None = False,
    key_name: str = "",
    tools: bool = False,
) -> Completion | Failure:
    """The outcome of a completion request. `prefix` is the prefilled start of the answer, which some servers echo.
    Where tools were declared, calls of them are the answer, written as text.

    A reply that this reader cannot handle is malformed: it must fail one sample and never the run.
    """
    try:
        return _parsed(reply, chat, prefix, opened_thinking, key_name, tools)
    except Exception as error:
        message = f"the reply cannot be read ({type(error).__name__}): {excerpt(reply.body)}"
        return Failure("malformed", message, transient=True, status=reply.status)


def _parsed(
    reply: HttpReply, chat: bool, prefix: str, opened_thinking: bool | None, key_name: str, tools: bool
) -> Completion | Failure:
    if reply.status != 200:
        return parse_refusal(reply, key_name)
    body = decode_json(reply)
    if body is None:
        return _malformed(reply)
    error = error_in(body)
    if error is not None:
        return _error_object(reply, error)
    try:
        choice = body["choices"][0]
        message = choice["message"] if chat else {"content": choice["text"]}
        finish = _finish(choice)
        if not isinstance(message, Mapping):
            raise TypeError
    except (KeyError, IndexError, TypeError):
        return Failure("empty_body", f"no answer in the reply: {excerpt(reply.body)}", transient=True, status=200)
    if choice.get("error"):
        return _error_object(reply, choice["error"])
    if tools:
        message = _with_calls_as_text(message)
    if failure := _not_the_models(body, choice, message, finish):
        return failure
    facts = token_counts(body) | _served_by(body)
    completion = _completion(message, finish, facts, prefix, opened_thinking)
    if isinstance(completion, Completion) and not completion.thinking and choice.get("logprobs"):
        return msgspec.structs.replace(completion, margin=margin_of(choice))
    return completion


def _with_calls_as_text(message: Json) -> Json:
    """The message with its tool calls after its text. Arguments are written as they came, valid JSON or not."""
    calls = message.get("tool_calls") or []
    if not calls and message.get("function_call"):
        calls = [{"function": message["function_call"]}]
    texts = []
    for call in calls:
        function = call.get("function") or {}
        raw_arguments = function.get("arguments", {})
        arguments = raw_arguments if isinstance(raw_arguments, str) else json.dumps(raw_arguments)
        texts.append(f'<tool_call>{{"name": {json.dumps(function.get("name"))}, "arguments": {arguments}}}</tool_call>')
    if not texts:
        return message
    content, _ = _parts(message.get("content"))
    rest = {name: value for name, value in message.items() if name not in ("tool_calls", "function_call")}
    return {**rest, "content": "\n".join([*([content] if content else []), *texts])}


def _not_the_models(body: Json, choice: Json, message: Json, finish: str) -> Failure | None:
    """The reason why this text in place of an answer is not the model's; None if it may be one."""
    for state in (finish, *(_text(part.get("status")) for part in (choice, message, body))):
        if failure := ended_by_provider(state):
            return failure
    content, _ = _parts(message.get("content"))
    calls = message.get("tool_calls") or message.get("function_call")
    if (calls or is_tool_finish(finish)) and not (content or "").strip():
        what = f"the model called a tool instead of giving an answer: {json.dumps(calls)[:MESSAGE_CHARACTERS]}"
        return Failure("tool_call", what, transient=True, status=200)
    return None


def decode_json(reply: HttpReply) -> Json | None:
    """The JSON object of a reply, or None where it is not one."""
    try:
        body = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        body = _decode_leniently(reply.body)
    if isinstance(body, list) and len(body) == 1 and isinstance(body[0], dict) and "error" in body[0]:
        body = body[0]  # Gemini's errors
    return body if isinstance(body, dict) else None


def _decode_leniently(body: bytes) -> Any:
    """With a byte order mark, or with halves of surrogate pairs, which become U+FFFD. None where it is not JSON."""
    try:
        text = json.dumps(json.loads(body.decode("utf-8-sig")), ensure_ascii=False)
        return json.loads(text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"))
    except (ValueError, RecursionError):
        return None


def error_in(body: Json) -> Any:
    """The error in a reply, in any of the shapes servers use, or None."""
    if body.get("error"):
        return body["error"]
    if body.get("object") == "error" or ("detail" in body and "choices" not in body):
        return body
    return None


def format_error(error: Any) -> str:
    """The message of an error, in one line."""
    message = error
    if isinstance(error, Mapping):
        message = error.get("message") or error.get("detail") or error.get("error") or dict(error)
    text = message if isinstance(message, str) else json.dumps(message)
    return text if len(text) <= MESSAGE_CHARACTERS else f"{text[: MESSAGE_CHARACTERS - 4]} ..."


def is_context_refusal(error: Any) -> bool:
    """Whether the prompt was refused for its length."""
    if isinstance(error, Mapping) and {str(error.get("code")), str(error.get("type"))} & _CONTEXT_CODES:
        return True
    return bool(_CONTEXT_MESSAGE.search(format_error(error)))


# --- answers ------------------------------------------------------------------------------------


def is_schema_refusal(failure: Failure) -> bool:
    """Whether a request was refused for the schema of its answer, which some servers do not know."""
    named = re.search(r"response_format|structured|guided|grammar|schema", failure.message, re.IGNORECASE)
    return failure.why == "refused_request" and failure.status in (400, 422, 501) and named is not None


def _completion(
    message: Json, finish: str, facts: dict[str, Any], prefix: str, opened: bool | None
) -> Completion | Failure:
    content, thinking = _parts(message.get("content"))
    thinking = thinking or _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    if content is None and _text(message.get("refusal")):
        content = _text(message.get("refusal"))
    if content is None:
        return _no_content(finish, thinking, _with_thinking(facts, thinking, ""))
    if not thinking:
        thinking, content = split_thinking(content, opened=opened)
    facts = _with_thinking(facts, thinking, content)
    return Completion(without_echo(content, prefix), finish, thinking, **facts)


def _with_thinking(facts: dict[str, Any], thinking: str, content: str) -> dict[str, Any]:
    """The facts with the tokens of thinking: where the server does not count them, by their share of the characters."""
    written = facts.get("completion_tokens")
    if not thinking or written is None or facts.get("thinking_tokens"):
        return facts
    return {**facts, "thinking_tokens": round(written * len(thinking) / (len(thinking) + len(content)))}


def _no_content(finish: str, thinking: str, facts: dict[str, Any]) -> Completion | Failure:
    if thinking and finish == LENGTH:
        return Completion("", finish, thinking, **facts)  # cut off before the answer began
    if thinking:
        # Not transient: the model finished, and the server's parser took all of its output for thinking.
        message = "the server returned thinking and no answer; its reasoning parser may not fit the model"
        return Failure("empty_body", message, status=200)
    return Failure("empty_body", f"the answer is null (finish_reason {finish!r})", transient=True, status=200)


def _parts(content: Any) -> tuple[str | None, str]:
    """(text, thinking) of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content, ""
    if not isinstance(content, list):
        return None, ""
    parts = [p for p in content if isinstance(p, Mapping)]
    text = [p["text"] for p in parts if p.get("type") == "text" and isinstance(p.get("text"), str)]
    thought = [_parts(p.get("thinking"))[0] or "" for p in parts if p.get("type") == "thinking"]
    return ("".join(text) if text else None), "".join(thought)


def without_echo(text: str, prefix: str) -> str:
    """Some servers (llama.cpp of 2026) repeat the given prefix at the start of a continued message."""
    for echoed in (prefix, prefix.rstrip()):
        if echoed and text.startswith(echoed):
            return text[len(echoed) :]
    return text


def _finish(choice: Json) -> str:
    reason = choice.get("finish_reason")
    if isinstance(reason, Mapping):
        reason = reason.get("type")
    return finish_of(_text(reason)[:NAME_CHARACTERS])


def _served_by(body: Json) -> dict[str, str]:
    """The model and its configuration, as the server names them."""
    named = {name: _text(body.get(name))[:NAME_CHARACTERS] for name in ("model", "system_fingerprint")}
    return {name: text for name, text in named.items() if text}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- failures -----------------------------------------------------------------------------------

_NEVER_SERVED = (501, 505)
"""Not implemented, HTTP version not supported: no such request is ever answered."""


def parse_refusal(reply: HttpReply, key_name: str = "") -> Failure:
    """The failure that any status but 200 is."""
    status = reply.status
    body = decode_json(reply)
    error = (error_in(body) or body) if body is not None else excerpt(reply.body)
    message = format_error(error)
    codes = {str(error.get("code")), str(error.get("type"))} if isinstance(error, Mapping) else set()
    if _is_without_credit(status, codes, error):
        return Failure("no_credit", _with_key_name(message, key_name), status=status)
    if codes & _CONTEXT_CODES or (status in (400, 413, 422) and is_context_refusal(error)):
        return Failure("context_length", message, status=status)
    if 200 < status < 300:
        message = f"status {status} instead of 200: {message}"
        return Failure("unexpected_status", message, transient=True, retry_after=reply.retry_after, status=status)
    if status == 429:
        return Failure("rate_limited", message, transient=True, retry_after=reply.retry_after, status=status)
    if status == 408:
        return Failure("timeout", message, transient=True, retry_after=reply.retry_after, status=status)
    if status >= 500 or status in (409, 425):
        passes = status not in _NEVER_SERVED
        return Failure("server", message, transient=passes, retry_after=reply.retry_after, status=status)
    if status in (401, 403):
        message = _with_key_name(message, key_name)
    if reply.location:
        message += f" (redirects to {reply.location}: give that as base_url)"
    return Failure("refused_request", message, status=status)


def _with_key_name(message: str, key_name: str) -> str:
    return f"{message} (the key is read from ${key_name})" if key_name else message


def _is_without_credit(status: int, codes: set[str], error: Any) -> bool:
    """Whether the account of the key pays for no request: asking again does not help before it does."""
    if status not in (400, 402, 403, 429):
        return False
    text = str(error.get("message") if isinstance(error, Mapping) else error)
    no_quota = status == 429 and _NO_QUOTA_MESSAGE.search(text) is not None
    is_named = status == 402 and isinstance(error, Mapping) and bool(error.get("message"))
    return is_named or bool(codes & _NO_CREDIT_CODES) or no_quota or bool(_NO_CREDIT_MESSAGE.search(text))


def _error_object(reply: HttpReply, error: Any) -> Failure:
    """An error object with status 200: gateways send this when the server behind them failed."""
    if is_context_refusal(error):
        return Failure("context_length", format_error(error), status=reply.status)
    code = error.get("code") if isinstance(error, Mapping) else None
    if code in (402, "402"):
        return Failure("no_credit", format_error(error), status=402)
    return Failure(
        "rate_limited" if code in (429, "429", "rate_limit_exceeded") else "server",
        format_error(error),
        transient=True,
        retry_after=reply.retry_after,
        status=reply.status,
    )


def _malformed(reply: HttpReply) -> Failure:
    what = "a web page" if reply.looks_like_html else "something that is not a JSON object"
    message = f"{what} instead of an answer: {excerpt(reply.body)}"
    return Failure("malformed", message, transient=True, status=reply.status)


def excerpt(body: bytes) -> str:
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return text[:200] + (" ..." if len(text) > 200 or len(body) > 400 else "")


# --- token counts -------------------------------------------------------------------------------


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
        reused = _first(body, "tokens_cached")
        cached = reused if reused is not None and reused <= prompt else None
    thinking = _thinking(usage)
    completion = _first(usage, "completion_tokens", "output_tokens")
    if completion is None and (text := _first(usage, "candidatesTokenCount", "candidates_token_count")) is not None:
        completion = text + (thinking or 0)  # Gemini counts them apart
    counts = {
        "prompt_tokens": prompt if prompt or cached or written else None,  # no prompt has 0 tokens: it was not counted
        "completion_tokens": completion,
        "cached_tokens": cached,
        "cache_write_tokens": written,
        "thinking_tokens": thinking,
    }
    return {name: value for name, value in counts.items() if value is not None}


def _cached(body: Mapping[str, Any], usage: Mapping[str, Any]) -> int | None:
    for details in _tables(usage, _DETAILS):
        if (count := _first(details, "cached_tokens")) is not None:
            return count
    names = (
        "cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens",
        "cachedContentTokenCount", "cached_content_token_count",
    )  # fmt: skip
    count = _first(usage, *names)
    return _first(_table(body, "timings"), "cache_n") if count is None else count


def _written(usage: Mapping[str, Any]) -> int | None:
    written = _first(usage, "cache_creation_input_tokens", "cache_write_tokens")
    for details in _tables(usage, _DETAILS):
        if written is None:
            written = _first(details, "cache_write_tokens", "cache_creation_tokens")
    if written is None:
        by_lifetime = [_first(_table(usage, "cache_creation"), f"ephemeral_{t}_input_tokens") for t in ("5m", "1h")]
        stated = [count for count in by_lifetime if count is not None]
        written = sum(stated) if stated else None
    return written


def _thinking(usage: Mapping[str, Any]) -> int | None:
    for details in _tables(usage, _OUTPUT_DETAILS):
        if (count := _first(details, "reasoning_tokens", "thinking_tokens")) is not None:
            return count
    return _first(usage, "reasoning_tokens", "thoughtsTokenCount", "thoughts_token_count")


def _table(parent: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for inner in _tables(parent, names):
        return inner
    return {}


def _tables(parent: Mapping[str, Any], names: tuple[str, ...]) -> list[Mapping[str, Any]]:
    return [inner for name in names if isinstance(inner := parent.get(name), Mapping)]


def _first(table: Mapping[str, Any], *names: str) -> int | None:
    """The first of these that is a count."""
    for name in names:
        value = table.get(name)
        if type(value) is int and 0 <= value < MOST_TOKENS:  # no bool
            return value
    return None
