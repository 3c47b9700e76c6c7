"""`anthropic:` Claude models by Anthropic's Messages API, and servers that speak it.

    anthropic:claude-opus-4-8        anthropic:NAME?thinking=high&base_url=http://127.0.0.1:8000/v1

Newer models do not allow a prefilled answer, a temperature or a budget of thinking. Their version shows that, or else a
refusal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from leadline.core.answers import Completion, Failure
from leadline.core.errors import UsageError
from leadline.core.types import KeptSession
from leadline.features.hosted.anthropic_batches import AnthropicBatches
from leadline.models.messages.adapter import (
    Adapter,
    Body,
    Caching,
    Json,
    Settings,
    call_text,
    completion,
    no_answer,
    version_in,
)
from leadline.models.messages.options import HostedProvider
from leadline.models.messages.prompt import Block, Message, Prompt, session_messages
from leadline.models.openai.finish import ended_by_provider, finish_of

VERSION = "2023-06-01"
MOST_MARKS = 4
LEAST_BUDGET = 1024
LEVELS = ("low", "medium", "high", "xhigh", "max")
NO_PREFILL = (4, 6)
NO_SAMPLING = (4, 7)
ADAPTIVE = (4, 6)
"""From these versions: no prefilled answer, no temperature and no budget, adaptive thinking."""
LEAST_CACHED = {(4, 8): 1024, (5, 0): 512}
"""The shortest beginning that the cache keeps, for versions that differ from the usual one; from a survey of 2026."""
LEAST_USUAL = 4096
LEAST_OF_SONNET = 1024
COMPACTION, COMPACTION_BETA = "compact_20260112", "compact-2026-01-12"
LEAST_COMPACTED = 50_000
GO_ON = "Go on."
LEAST_SUMMARY = 4096
"""Output tokens of a summary: enough that it is not cut off, which would lose facts."""
_FINISH = {"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls"}


def version_of(model: str) -> tuple[int, int] | None:
    """The version in a model's name: `claude-opus-4-7` is (4, 7); None where there is none."""
    return version_in(model, r"claude-(?:[a-z]+-)(\d{1,2})(?:[-.](\d{1,2})(?!\d))?")


class AnthropicAdapter(Adapter):
    """Requests and replies of /v1/messages."""

    provider = "anthropic"
    batches = AnthropicBatches
    sampling_words = "temperature|top_p|top_k|sampling"

    def __init__(self, settings: Settings, key_name: str = "ANTHROPIC_API_KEY", *, ttl: str = "5m") -> None:
        super().__init__(settings, key_name)
        self._ttl = ttl
        version = self._version = version_of(settings.model)
        if settings.prefill and version is not None and version >= NO_PREFILL:
            settings.prefill = False
            settings.learn(f"{settings.model} takes no prefilled answer: its prefix ends the question")
        if settings.temperature is not None and version is not None and version >= NO_SAMPLING:
            self.drop_temperature(f"{settings.model} takes no temperature")
        self._thinking = self._thinking_fields()
        if settings.temperature not in (None, 1.0) and "thinking" in self._thinking and settings.thinking != "off":
            self.drop_temperature("a thinking model takes no temperature")

    def _thinking_fields(self) -> Body:
        setting, adaptive = self.settings.thinking, self._version is None or self._version >= ADAPTIVE
        if setting is None:
            return {}
        if setting == "off":
            return {"thinking": {"type": "disabled"}}
        if setting == "on":
            return {"thinking": {"type": "adaptive"} if adaptive else _budget(LEAST_BUDGET)}
        if setting in LEVELS:
            thinking = {"thinking": {"type": "adaptive"}} if adaptive else {}
            return {**thinking, "output_config": {"effort": setting}}
        if not setting.isdecimal():
            fix = f"write {', '.join(LEVELS)}, on or off"
            raise UsageError(f"thinking={setting} is no effort of this API", where="thinking", fix=fix)
        if self._version is not None and self._version >= NO_SAMPLING:
            what = f"{self.settings.model} takes no budget of thinking"
            raise UsageError(what, where="thinking", fix=f"give its effort: {', '.join(LEVELS)}")
        if int(setting) < LEAST_BUDGET:
            fix = f"give {LEAST_BUDGET} or more, or thinking=off"
            raise UsageError(f"a budget of {setting} tokens is below the least", where="thinking", fix=fix)
        return {"thinking": _budget(int(setting))}

    @property
    def caching(self) -> Caching:
        least = LEAST_OF_SONNET if "sonnet" in self.settings.model else LEAST_USUAL
        if self._version is not None:
            least = next((n for v, n in sorted(LEAST_CACHED.items(), reverse=True) if self._version >= v), least)
        return Caching(least, marks=MOST_MARKS, primes=True)

    # --- requests

    def request_body(self, prompt: Prompt) -> tuple[str, Body]:
        settings = self.settings
        body = {"max_tokens": prompt.allowance, **self._counted_fields(prompt)}
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        return "/messages", {**body, **settings.extra}

    def count_body(self, prompt: Prompt) -> tuple[str, Body]:
        return "/messages/count_tokens", self._counted_fields(prompt)

    def priming_bodies(self, prompt: Prompt) -> list[tuple[str, Body]]:
        """Growing beginnings, each with the most marks that are allowed. Each reads the cache that the one before it
        has written."""
        beginning = prompt.beginning
        if beginning is None or self._thinking.get("thinking", {}).get("type") == "enabled":
            return []  # a budget needs room for an answer, and another way of thinking has another cache
        last, bodies = beginning.messages[-1], []
        count = sum(block.shared for block in last.blocks)
        for end in range(count - (count - 1) // MOST_MARKS * MOST_MARKS, count + 1, MOST_MARKS):
            blocks = last.blocks[: _place_of(last.blocks, end) + 1]
            part = replace(beginning, messages=(*beginning.messages[:-1], replace(last, blocks=blocks)), allowance=0)
            path, body = self.request_body(part)
            body["messages"] = [*map(self._message, part.with_marks(MOST_MARKS).messages)]
            bodies.append((path, body))
        return bodies

    def _counted_fields(self, prompt: Prompt) -> Body:
        """Everything but the limits of the answer."""
        settings = self.settings
        body: Body = {"model": settings.model}
        if settings.system:
            body["system"] = settings.system
        if prompt.tools:
            body["tools"] = [_tool(tool) for tool in prompt.tools]
        prompt = prompt if settings.prefill or not prompt.prefix else _with_prefix_in_question(prompt)
        body["messages"] = [*map(self._message, prompt.with_marks(1 if settings.caching else 0).messages)]
        if prompt.prefix and settings.prefill:
            body["messages"].append({"role": "assistant", "content": prompt.prefix.rstrip()})
        body |= self._thinking
        if prompt.schema is not None and settings.schemas:
            output = {"type": "json_schema", "schema": dict(prompt.schema)}
            body["output_config"] = {**body.get("output_config", {}), "format": output}
        return body

    def _message(self, message: Message) -> Body:
        content: list[Body] = []
        for block in message.blocks:
            content.append({"type": "text", "text": block.text})
            if block.shared:
                content[-1]["cache_control"] = {"type": "ephemeral", **({"ttl": "1h"} if self._ttl == "1h" else {})}
        return {"role": "assistant" if message.role == "assistant" else "user", "content": content}

    # --- compaction

    def compaction_body(self, messages: Sequence[Mapping[str, str]], keep: int) -> tuple[str, Body, dict[str, str]]:
        """Edits the context by a summary and stops after it. The session must have at least LEAST_COMPACTED tokens."""
        session = session_messages(messages)
        if session and session[-1].role == "assistant":  # newer models take no beginning of an answer
            session.append(Message("user", (Block(GO_ON),)))
        turns = [*map(self._message, session)]
        edit = {"type": COMPACTION, "trigger": {"type": "input_tokens", "value": LEAST_COMPACTED}}
        body = {
            "model": self.settings.model,
            "max_tokens": max(keep, LEAST_SUMMARY),
            "messages": turns,
            "context_management": {"edits": [{**edit, "pause_after_compaction": True}]},
        }
        return "/messages", body, {"anthropic-beta": COMPACTION_BETA}

    def read_compaction(self, page: Json) -> KeptSession | Failure:
        """A block of text. The usage has its tokens as an iteration of its own."""
        blocks = page.get("content") or []
        texts = [block.get("content") or "" for block in blocks if block.get("type") == "compaction"]
        if not "".join(texts).strip():
            least = f"sessions below {LEAST_COMPACTED:,} tokens are left alone"
            reason = f"the reply ended with {page.get('stop_reason')}; {least}"
            return Failure("empty_body", f"the provider compacted nothing: {reason}")
        usage = page.get("usage") or {}
        spent = [part for part in usage.get("iterations") or [] if part.get("type") == "compaction"] or [usage]
        read_tokens, written_tokens = (
            sum(part.get(name) or 0 for part in spent) for name in ("input_tokens", "output_tokens")
        )
        return KeptSession("".join(texts), read=read_tokens, written=written_tokens)

    # --- replies

    def read_refusal(self, failure: Failure, page: Json) -> Failure:
        too_large = failure.status == 413 or "request_too_large" in str(page.get("error"))
        return Failure("context_length", failure.message, status=failure.status) if too_large else failure

    def read_answer(self, page: Json) -> Completion | Failure:
        blocks, reason = page.get("content"), str(page.get("stop_reason") or "")
        if not isinstance(blocks, list):
            return no_answer(page)
        texts = [block["text"] for block in blocks if block.get("type") == "text"]
        texts += [call_text(b.get("name"), b.get("input")) for b in blocks if b.get("type") == "tool_use"]
        thinking = "".join(block.get("thinking") or "" for block in blocks if block.get("type") == "thinking")
        if failure := ended_by_provider(reason):
            return failure
        return completion(page, texts, _FINISH.get(reason, finish_of(reason)), thinking)

    def adapts_own(self, message: str) -> bool:
        settings = self.settings
        if "prefill" in message and settings.prefill:
            settings.prefill = False
            return settings.learn("the model takes no prefilled answer: its prefix ends the question")
        names_budget = "budget_tokens" in message or ("thinking" in message and "enabled" in message)
        if names_budget and self._thinking.get("thinking", {}).get("type") == "enabled":
            self._thinking = {**self._thinking, "thinking": {"type": "adaptive"}}
            return settings.learn(f"the model takes no budget: thinking={settings.thinking} is sent as adaptive")
        if "cache_control" in message and settings.caching:
            settings.caching = False
            return settings.learn("the server takes no marks of its cache")
        return False


def _budget(tokens: int) -> Body:
    return {"type": "enabled", "budget_tokens": tokens}


def _place_of(blocks: tuple[Block, ...], number: int) -> int:
    """The index of the shared block with this number, counted from 1."""
    return [i for i, block in enumerate(blocks) if block.shared][number - 1]


def _with_prefix_in_question(prompt: Prompt) -> Prompt:
    last = prompt.messages[-1]
    blocks = (*last.blocks[:-1], replace(last.blocks[-1], text=last.blocks[-1].text + prompt.prefix))
    return replace(prompt, messages=(*prompt.messages[:-1], replace(last, blocks=blocks)), prefix="")


def _tool(tool: Any) -> Body:
    function = tool["function"]
    return {
        "name": function["name"],
        "description": function.get("description", ""),
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }


class Anthropic(HostedProvider):
    """Claude models, and servers that speak Anthropic's API."""

    summary: ClassVar[str] = "Claude models by Anthropic's own API; the key is read from $ANTHROPIC_API_KEY"
    official: ClassVar[str] = "https://api.anthropic.com/v1"
    key_names: ClassVar[tuple[str, ...]] = ("ANTHROPIC_API_KEY",)
    key_header: ClassVar[str] = "x-api-key"
    headers: ClassVar[dict[str, str]] = {"anthropic-version": VERSION}

    base_url: str = Field("https://api.anthropic.com/v1", description="URL of the API; ends in /v1")
    prefill: bool = Field(False, description="prefill the start of the answer, which older models allow")
    ttl: str = Field(
        "5m", pattern="^(5m|1h)$", description="how long the cache keeps a document after its last use: 5m or 1h"
    )

    def adapter(self, settings: Settings, key_name: str) -> AnthropicAdapter:
        return AnthropicAdapter(replace(settings, prefill=self.prefill), key_name, ttl=self.ttl)
