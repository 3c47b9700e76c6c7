"""Requests to a server: their fields without those that the server refuses, and the thinking setting.

    setting      vLLM                      SGLang               llama.cpp                 hosted
    on, off      enable_thinking           enable_thinking      enable_thinking           reasoning_effort none (off)
    low ...      reasoning_effort          reasoning_effort     reasoning_effort          reasoning_effort
    4096         thinking_token_budget     -                    thinking_budget_tokens    by host

`enable_thinking` and, where the template may show it, the effort go to the chat template (chat_template_kwargs). What a
server has no field for is an error, or for on and off a note: a setting that is not sent must not be in a table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from leadline.core.answers import Failure, Sent
from leadline.core.errors import UsageError
from leadline.core.seeds import digest, digest_prompt
from leadline.core.turns import Turn
from leadline.core.types import Document, Frame, Probe
from leadline.models.openai.discovery import ServerInfo, ServerKind
from leadline.models.openai.replies import is_schema_refusal
from leadline.models.openai.template import conversation, prefill_fields

if TYPE_CHECKING:
    from leadline.core.types import Ids

CACHE_KEY_HOSTS = frozenset({"api.openai.com", "api.mistral.ai", "api.x.ai"})
"""Hosts that route requests with the same prompt_cache_key to the same prefix cache."""
CACHE_KEY_CHARACTERS = 4096
"""Of the document's beginning: enough to tell documents apart."""
SMALL_ANSWER = 16
"""Output tokens of requests whose answer is not scored."""
LEVELS = ("minimal", "low", "medium", "high", "xhigh")
MOST_BUDGET = 10_000_000
EFFORT_HOSTS = frozenset(
    {"api.openai.com", "openrouter.ai", "api.x.ai", "api.groq.com", "generativelanguage.googleapis.com"}
)
"""Hosted servers where reasoning_effort none switches thinking off."""
Decoding = dict[str, float | int | str | bool | None]


def checked_thinking(text: str) -> str:
    """`on`, `off`, a level or a number of tokens."""
    setting = text.strip().lower()
    if setting in ("on", "off", *LEVELS) or (setting.isdecimal() and 1 <= int(setting[:9]) <= MOST_BUDGET):
        return setting
    raise UsageError(
        f"{text[:60]!r} is not a thinking setting",
        where="thinking",
        fix=f"write on, off, {', '.join(LEVELS)}, or a budget of tokens such as 4096",
    )


@dataclass(frozen=True, slots=True)
class ThinkingFields:
    """The fields for a setting: for the template, and beside the messages."""

    template: dict[str, Any] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def thinking_fields(setting: str | None, kind: ServerKind, host: str, *, chat: bool) -> ThinkingFields:
    if setting is None:
        return ThinkingFields()
    if not chat:
        if setting in ("on", "off"):
            return ThinkingFields()  # as before: a plain text has no template
        raise _no_field(setting, "api=completions sends a plain text")
    if setting in ("on", "off"):
        return _switched(setting, kind, host)
    local = kind != "plain"
    if setting in LEVELS:
        template = {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": setting}} if local else {}
        return ThinkingFields(template, {"reasoning_effort": setting})
    template = {"chat_template_kwargs": {"enable_thinking": True}} if local else {}
    return ThinkingFields(template, _budget_field(int(setting), kind, host))


def _switched(setting: str, kind: ServerKind, host: str) -> ThinkingFields:
    if kind != "plain":
        return ThinkingFields({"chat_template_kwargs": {"enable_thinking": setting == "on"}})
    if setting == "off" and host in EFFORT_HOSTS:
        return ThinkingFields(request={"reasoning_effort": "none"})
    note = f"thinking={setting} is not sent: this kind of server has no switch for it"
    return ThinkingFields(note=note)


def _budget_field(tokens: int, kind: ServerKind, host: str) -> dict[str, Any]:
    if kind == "vllm":
        return {"thinking_token_budget": tokens}
    if kind == "llamacpp":
        return {"thinking_budget_tokens": tokens}
    if kind == "plain" and host == "openrouter.ai":
        return {"reasoning": {"max_tokens": tokens}}
    if kind == "plain" and host == "api.anthropic.com":
        return {"thinking": {"type": "enabled", "budget_tokens": tokens}}
    if kind == "plain" and host == "generativelanguage.googleapis.com":
        return {"extra_body": {"google": {"thinking_config": {"thinking_budget": tokens}}}}
    raise _no_field(str(tokens), f"{'this' if kind == 'plain' else kind} server has no known field for a budget")


def _no_field(setting: str, why: str) -> UsageError:
    return UsageError(
        f"thinking={setting} cannot be sent: {why}",
        where="thinking",
        fix=f"use a level ({', '.join(LEVELS)}), or name the server's own field in extra={{...}}",
    )


@dataclass(slots=True)
class RequestWriter:
    """Writes the requests to one server. Used by many threads: a field that is refused is never sent again."""

    server: ServerInfo
    chat: bool
    thinking: ThinkingFields
    temperature: float | None
    cache_keys: bool
    """Whether each document's prompt_cache_key is sent."""
    extra: Mapping[str, Any]
    """The user's own fields of every request."""
    limit_field: str = "max_tokens"
    ids: bool = False
    """Whether prompts are sent as token ids, to the completions endpoint."""
    schemas: bool = True
    """Whether the server is asked to enforce the schema of a probe."""
    margins: bool = False
    """Whether the two likeliest first tokens of every answer are asked for."""

    def decoding(self, allowance: int) -> Decoding:
        """The decoding fields of a request, exactly as sent."""
        fields: Decoding = {self.limit_field: allowance}
        if self.temperature is not None:
            fields["temperature"] = self.temperature
        if self.server.kind in ("vllm", "sglang"):
            fields["min_tokens"] = 1
        return fields

    def for_probe(self, document: Document, probe: Probe, prefix: str, allowance: int) -> tuple[bytes, Sent]:
        """One question of a run, and the data about it for its record."""
        text = document.user_text(probe)
        turns = document.turns(probe) if self.chat and not self.ids else []
        if not self.chat:
            text += document.frame.after + prefix
        decoding = self.decoding(allowance)
        if self.cache_keys:
            decoding["prompt_cache_key"] = digest([document.cluster, document.text[:CACHE_KEY_CHARACTERS]])
        chat = self.chat and not self.ids
        if self.margins:
            decoding |= {"logprobs": True, "top_logprobs": 2} if chat else {"logprobs": 2}
        schema = self.server.schema_fields(probe.schema, chat=chat) if probe.schema and self.schemas else {}
        tools = {"tools": list(document.tools)} if document.tools and chat else {}
        if self.ids:
            body = self._ids_body(document.prompt_ids(probe), {**decoding, **schema})
        else:
            body = self._body(turns or text, prefix, {**decoding, **schema, **tools})
        fields = self.thinking.template | self.thinking.request if self.chat and not self.ids else {}
        also = {**fields, **self.extra}
        further = {k: v if isinstance(v, (int, float, str, bool)) else json.dumps(v) for k, v in also.items()}
        sent = Sent(
            form="ids" if self.ids else "chat" if self.chat else "completion",
            prefix=document.prefix_place(probe),
            characters=len(text) + (len(prefix) if self.chat else 0),
            digest=digest_prompt(body),
            decoding={
                **decoding,
                **further,
                **({"schema": True} if schema else {}),
                **({"tools": len(document.tools)} if tools else {}),
            },
        )
        return body, sent

    def of_ids(self, ids: Ids) -> bytes:
        """A few token ids whose answer does not matter, as in a run."""
        return self._ids_body(ids, self.decoding(SMALL_ANSWER))

    def _ids_body(self, ids: Ids, decoding: Mapping[str, Any]) -> bytes:
        return msgspec.json.encode({"model": self.server.model, "prompt": ids.tolist(), **decoding, **self.extra})

    def small(self, text: str, prefix: str) -> bytes:
        """A short text whose answer does not matter, as in a run."""
        return self._body(text, prefix, self.decoding(SMALL_ANSWER))

    def with_fields(
        self, text: str | Sequence[int], prefix: str, frame: Frame, *, chat: bool, fields: Mapping[str, Any]
    ) -> bytes:
        """A text as a run would send it, or token ids, with `fields` in place of its own and the user's."""
        sent: dict[str, Any] = {**self.decoding(SMALL_ANSWER), **fields}
        if "max_tokens" in sent and self.limit_field != "max_tokens":
            sent[self.limit_field] = sent.pop("max_tokens")
        if self.temperature is None:
            sent.pop("temperature", None)
        if chat and isinstance(text, str):
            shape = self._messages(text, prefix)
        else:
            shape = {"prompt": text + frame.after + prefix if isinstance(text, str) else list(text)}
        return msgspec.json.encode({"model": self.server.model, **shape, **self.extra, **sent})

    def leaves_out(self, sent: Sent, refusal: Failure) -> bool:
        """Whether the request was refused for a field that it does not need, which is then no longer sent."""
        if "schema" in sent.decoding and is_schema_refusal(refusal):
            self.schemas = False
            return True
        if "logprobs" in sent.decoding and "logprobs" in refusal.message and refusal.why == "refused_request":
            self.margins = False
            return True
        if "prompt_cache_key" in sent.decoding and "prompt_cache_key" in refusal.message:
            self.cache_keys = False
            return True
        return False

    def adapts_to(self, refusal: Failure) -> bool:
        """Whether the request can be written in another way: hosted models may name the limit of output tokens
        differently, or accept no temperature."""
        if "max_completion_tokens" in refusal.message and self.limit_field == "max_tokens":
            self.limit_field = "max_completion_tokens"
            return True
        if "temperature" in refusal.message and self.temperature is not None:
            self.temperature = None
            return True
        return False

    def _body(self, content: str | Sequence[Turn], prefix: str, decoding: Mapping[str, Any]) -> bytes:
        shape = self._messages(content, prefix) if self.chat else {"prompt": content}
        return msgspec.json.encode({"model": self.server.model, **shape, **decoding, **self.extra})

    def _messages(self, content: str | Sequence[Turn], prefix: str) -> dict[str, Any]:
        fields = {"messages": conversation(content, prefix), **self.thinking.template, **self.thinking.request}
        return {**fields, **(prefill_fields(self.server.kind) if prefix else {})}
