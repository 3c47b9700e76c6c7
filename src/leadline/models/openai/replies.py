"""Reading a server's reply: an answer, or a failure with its kind and whether asking again may help.

Pure functions. The rule throughout: what is not certainly the model's own output is never a Completion.
An empty string is an answer; null, a missing field, a web page or an error object is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from leadline.core.types import Completion, Failure
from leadline.models.openai.http import HttpReply, RequestFailed
from leadline.text.chat import split_thinking

Json = Mapping[str, Any]

_CONTEXT_CODES = frozenset(
    {
        "context_length_exceeded",
        "context_window_exceeded",
        "exceed_context_size_error",
        "model_context_window_exceeded",
        "string_above_max_length",
    }
)
# The wordings of vLLM, SGLang, llama.cpp, OpenAI, TGI, Together, Mistral, xAI and others that say the same.
_CONTEXT_WORDS = re.compile(
    r"(maximum|model'?s|available|exceed\w*( the)?( \w+)?) context (length|size|window)"
    r"|context (length|size|window)[^.]{0,40}exceed"
    r"|longer than the (maximum )?(model|context|allowed)"
    r"|maximum (allowed (input )?length|model length|prompt length|input length)"
    r"|(prompt|input|request) (is|was) too (long|large for (the|this) model)"
    r"|too large for model with .* context"
    r"|reduce the length of (the|your) (messages|prompt|input)"
    r"|inputs?\W+tokens?\W.*max_new_tokens.*must be",
    re.IGNORECASE,
)
_NEVER_COMES_BACK = ("insufficient_quota", "billing_hard_limit_reached")
_BROKEN_FINISHES = ("error", "abort")


def failure_of_trouble(trouble: RequestFailed) -> Failure:
    return Failure(trouble.reason, str(trouble), transient=True)


def outcome_of(
    reply: HttpReply, *, chat: bool, prefix: str = "", opened_thinking: bool | None = False, key_name: str = ""
) -> Completion | Failure:
    """What a reply to a completion request is. `prefix` is the prefilled answer prefix, which some servers echo."""
    if reply.status != 200:
        return _refusal(reply, key_name)
    body = decoded(reply)
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
        return Failure("empty_body", f"no answer in the reply: {_shown(reply.body)}", transient=True, status=200)
    if choice.get("error"):
        return _error_object(reply, choice["error"])
    if finish in _BROKEN_FINISHES:
        return Failure("server", f"the server broke off: finish_reason {finish!r}", transient=True, status=200)
    return _completion(message, finish, _counts(body.get("usage")), prefix, opened_thinking)


def decoded(reply: HttpReply) -> Json | None:
    """The JSON object of a reply, or None when it is not one."""
    try:
        body = msgspec.json.decode(reply.body)
    except msgspec.DecodeError:
        return None
    return body if isinstance(body, dict) else None


def error_in(body: Json) -> Any:
    """The error of a body in any of the shapes servers use, or None."""
    if body.get("error"):
        return body["error"]
    if body.get("object") == "error" or ("detail" in body and "choices" not in body):
        return body
    return None


def error_words(error: Any) -> str:
    """What an error says, in one line."""
    if isinstance(error, Mapping):
        said = error.get("message") or error.get("detail") or error.get("error") or dict(error)
        return said if isinstance(said, str) else msgspec.json.encode(said).decode()[:500]
    return str(error)[:500]


def is_context_refusal(error: Any) -> bool:
    """Whether an error says that the prompt does not fit into the window."""
    if isinstance(error, Mapping) and {str(error.get("code")), str(error.get("type"))} & _CONTEXT_CODES:
        return True
    return bool(_CONTEXT_WORDS.search(error_words(error)))


# --- answers ------------------------------------------------------------------------------------


def _completion(
    message: Json, finish: str, counts: dict[str, int], prefix: str, opened: bool | None
) -> Completion | Failure:
    content, thinking = _parts(message.get("content"))
    thinking = thinking or _text(message.get("reasoning_content")) or _text(message.get("reasoning"))
    if content is None and _text(message.get("refusal")):
        content = _text(message.get("refusal"))
    if content is None:
        return _no_content(finish, thinking, counts)
    if not thinking:
        thinking, content = split_thinking(content, opened=opened)
    return Completion(_without_echo(content, prefix), finish, thinking, **counts)


def _no_content(finish: str, thinking: str, counts: dict[str, int]) -> Completion | Failure:
    if thinking and finish == "length":
        return Completion("", finish, thinking, **counts)  # cut off before the answer began
    if finish == "content_filter":
        return Failure("refused_request", "the provider's content filter took the answer out", status=200)
    if thinking:
        # The same will come back: the model ended, and the server's parser gave all of it to the thinking.
        words = "the server returned thinking and no answer; its reasoning parser may not fit the model"
        return Failure("empty_body", words, status=200)
    return Failure("empty_body", f"the answer is null (finish_reason {finish!r})", transient=True, status=200)


def _parts(content: Any) -> tuple[str | None, str]:
    """(text, thinking) of a message's content, which is a string or a list of parts."""
    if isinstance(content, str):
        return content, ""
    if not isinstance(content, list):
        return None, ""
    parts = [p for p in content if isinstance(p, Mapping)]
    text = [_text(p.get("text")) for p in parts if p.get("type") == "text"]
    thought = [_parts(p.get("thinking"))[0] or "" for p in parts if p.get("type") == "thinking"]
    return ("".join(text) if text else None), "".join(thought)


def _without_echo(text: str, prefix: str) -> str:
    """Some servers (llama.cpp of 2026) begin a continued message with the part they were given."""
    for echoed in (prefix, prefix.rstrip()):
        if echoed and text.startswith(echoed):
            return text[len(echoed) :]
    return text


def _finish(choice: Json) -> str:
    reason = choice.get("finish_reason")
    if isinstance(reason, Mapping):
        reason = reason.get("type")
    return reason if isinstance(reason, str) else ""


def _counts(usage: Any) -> dict[str, int]:
    """The receipt: tokens as the server counted them, under our names."""
    if not isinstance(usage, Mapping):
        return {}
    details = usage.get("prompt_tokens_details")
    found = {
        "prompt_tokens": usage.get("prompt_tokens"),
        "completion_tokens": usage.get("completion_tokens"),
        "cached_tokens": details.get("cached_tokens") if isinstance(details, Mapping) else None,
    }
    return {name: value for name, value in found.items() if isinstance(value, int)}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


# --- failures -----------------------------------------------------------------------------------


def _refusal(reply: HttpReply, key_name: str) -> Failure:
    """Any status but 200."""
    status = reply.status
    body = decoded(reply)
    error = (error_in(body) or body) if body is not None else _shown(reply.body)
    words = error_words(error)
    codes = {str(error.get("code")), str(error.get("type"))} if isinstance(error, Mapping) else set()
    if codes & _CONTEXT_CODES or (status in (400, 413, 422) and is_context_refusal(error)):
        return Failure("context_length", words, status=status)
    if status == 429:
        lasting = bool(codes & set(_NEVER_COMES_BACK))
        return Failure("rate_limited", words, transient=not lasting, retry_after=reply.retry_after, status=status)
    if status == 408:
        return Failure("timeout", words, transient=True, retry_after=reply.retry_after, status=status)
    if status >= 500 or status in (409, 425):
        return Failure("server", words, transient=True, retry_after=reply.retry_after, status=status)
    if status in (401, 403) and key_name:
        words += f" (the key is read from ${key_name})"
    if reply.location:
        words += f" (redirects to {reply.location}: give that as base_url)"
    return Failure("refused_request", words, status=status)


def _error_object(reply: HttpReply, error: Any) -> Failure:
    """200, and an error in place of an answer: gateways do this when what stands behind them failed."""
    if is_context_refusal(error):
        return Failure("context_length", error_words(error), status=reply.status)
    code = error.get("code") if isinstance(error, Mapping) else None
    why = "rate_limited" if code in (429, "429", "rate_limit_exceeded") else "server"
    return Failure(
        "rate_limited" if why == "rate_limited" else "server",
        error_words(error),
        transient=True,
        retry_after=reply.retry_after,
        status=reply.status,
    )


def _malformed(reply: HttpReply) -> Failure:
    what = "a web page" if reply.looks_like_html else "something that is not a JSON object"
    words = f"{what} in place of an answer: {_shown(reply.body)}"
    return Failure("malformed", words, transient=True, status=reply.status)


def _shown(body: bytes) -> str:
    text = " ".join(body[:400].decode("utf-8", "replace").split())
    return text[:200] + (" ..." if len(text) > 200 or len(body) > 400 else "")
