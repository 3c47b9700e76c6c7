"""`gemini:` Google's models by generateContent.

    gemini:gemini-3-pro        gemini:NAME?thinking=low

A document that several questions share is kept as an object of the cache (cachedContents), which is deleted after the
last question, since its storage is paid by the hour. Documents below the least size of the cache are sent as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import msgspec
from pydantic import Field

from leadline.core.answers import Completion, Failure
from leadline.core.errors import UsageError
from leadline.features.hosted.gemini_batches import GeminiBatches
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
from leadline.models.messages.prompt import Message, Prompt
from leadline.models.openai.finish import ended_by_provider, finish_of, is_tool_finish

LEVELS = ("minimal", "low", "medium", "high")
LEAST_CACHED, LEAST_CACHED_BEFORE = 4096, 2048
"""From version 3 on, and before; implicit and explicit caching alike (documentation of 2026-10-13)."""


class GeminiAdapter(Adapter):
    """Requests and replies of models/NAME:generateContent."""

    provider = "gemini"
    batches = GeminiBatches
    count_name = "totalTokens"

    def __init__(self, settings: Settings, key_name: str = "GEMINI_API_KEY", *, ttl: int = 600) -> None:
        super().__init__(settings, key_name)
        self._ttl = ttl
        self._version = version_in(settings.model, r"gemini-(\d+)(?:\.(\d+))?") or (3, 0)
        self._thinking = self._thinking_config()
        self._counts_whole_requests = True

    def _thinking_config(self) -> Body:
        setting, leveled = self.settings.thinking, self._version >= (3, 0)
        if setting is None or (leveled and setting == "on"):
            return {}
        if leveled and setting in LEVELS:
            return {"thinkingLevel": setting}
        if not leveled and (setting in ("on", "off") or setting.isdecimal()):
            return {"thinkingBudget": {"on": -1, "off": 0}.get(setting) if not setting.isdecimal() else int(setting)}
        fix = f"give a level: {', '.join(LEVELS)}" if leveled else "give on, off or a budget of tokens such as 4096"
        what = f"thinking={setting} cannot be sent: {self.settings.model} has no field for it"
        raise UsageError(what, where="thinking", fix=fix)

    @property
    def caching(self) -> Caching:
        return Caching(
            LEAST_CACHED if self._version >= (3, 0) else LEAST_CACHED_BEFORE, objects=True, hours=self._ttl / 3600
        )

    # --- requests

    def request_body(self, prompt: Prompt) -> tuple[str, Body]:
        body = {**self._counted_fields(prompt), "generationConfig": self._config(prompt)}
        return f"{self.model_path()}:generateContent", {**body, **self.settings.extra}

    def count_body(self, prompt: Prompt) -> tuple[str, Body]:
        path, fields = f"{self.model_path()}:countTokens", self._counted_fields(prompt)
        if not self._counts_whole_requests:
            return path, {"contents": fields["contents"]}
        return path, {"generateContentRequest": {"model": f"models/{self.settings.model}", **fields}}

    def object_body(self, prompt: Prompt) -> tuple[str, Body]:
        body = {"model": f"models/{self.settings.model}", **self._counted_fields(prompt), "ttl": f"{self._ttl}s"}
        return "/cachedContents", body

    def read_object(self, page: Json) -> tuple[str, int]:
        return str(page["name"]), int(page.get("usageMetadata", {}).get("totalTokenCount", 0))

    def with_object(self, prompt: Prompt, name: str) -> tuple[str, Body]:
        path, body = self.request_body(prompt)
        for field in ("systemInstruction", "tools"):  # they are part of the object
            body.pop(field, None)
        return path, {**body, "cachedContent": name}

    def _counted_fields(self, prompt: Prompt) -> Body:
        body: Body = {"contents": _contents(prompt.messages)}
        if self.settings.system:
            body["systemInstruction"] = {"parts": [{"text": self.settings.system}]}
        if prompt.tools:
            declarations = [
                {name: value for name, value in dict(tool["function"]).items() if name in _DECLARED}  # type: ignore[call-overload]
                for tool in prompt.tools
            ]
            body["tools"] = [{"functionDeclarations": declarations}]
        return body

    def _config(self, prompt: Prompt) -> Body:
        config: Body = {"maxOutputTokens": prompt.allowance}
        if self.settings.temperature is not None:
            config["temperature"] = self.settings.temperature
        if self._thinking:
            config["thinkingConfig"] = self._thinking
        if prompt.schema is not None and self.settings.schemas:
            config |= {"responseMimeType": "application/json", "responseJsonSchema": dict(prompt.schema)}
        return config

    # --- replies

    def read_answer(self, page: Json) -> Completion | Failure:
        candidates = page.get("candidates") or []
        if not candidates:
            blocked = (page.get("promptFeedback") or {}).get("blockReason")
            if blocked:
                return Failure("filtered", f"the prompt was blocked: {blocked}", status=200)
            return no_answer(page)
        parts = (candidates[0].get("content") or {}).get("parts") or []
        reason = str(candidates[0].get("finishReason") or "")
        texts = [part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought")]
        texts += [
            call_text(p["functionCall"].get("name"), p["functionCall"].get("args") or {})
            for p in parts
            if "functionCall" in p
        ]
        if failure := _not_the_models(reason, texts):
            return failure
        if not texts and reason == "STOP":
            return no_answer(page)
        thinking = "".join(part["text"] for part in parts if part.get("thought") and isinstance(part.get("text"), str))
        return completion(page, texts, finish_of(reason).lower(), thinking)

    def read_refusal(self, failure: Failure, page: Json) -> Failure:
        """The details of Google's errors: the seconds to wait, and whether a quota is a daily one."""
        error = page.get("error")
        details = error.get("details") or [] if isinstance(error, dict) else []
        if any("API_KEY_INVALID" in str(detail.get("reason")) for detail in details):
            return msgspec.structs.replace(
                failure, message=f"{failure.message} (the key is read from ${self.key_name})"
            )
        if failure.why != "rate_limited":
            return failure
        quotas = [str(v.get("quotaId")) for detail in details for v in detail.get("violations") or []]
        delay = next((str(detail["retryDelay"]) for detail in details if "retryDelay" in detail), "")
        seconds = float(delay.rstrip("s")) if re.fullmatch(r"\d+(\.\d+)?s", delay) else failure.retry_after
        lasting = any("PerDay" in quota for quota in quotas)
        return msgspec.structs.replace(failure, retry_after=seconds, transient=not lasting)

    def adapts_own(self, message: str) -> bool:
        settings = self.settings
        if "generatecontentrequest" in message or "generate_content_request" in message:
            self._counts_whole_requests = False
            return settings.learn("the API counts contents alone: system text and tools are known by receipts only")
        if "thinking" in message and self._thinking.get("thinkingBudget") == 0:
            self._thinking = {}
            return settings.learn("the model cannot be asked not to think: thinking=off is not sent")
        if re.search("cached ?content", message) and settings.caching:
            settings.caching = False
            return settings.learn("the model keeps no objects in its cache: documents are sent whole")
        return False


_DECLARED = ("name", "description", "parameters")


def _not_the_models(reason: str, texts: Sequence[str]) -> Failure | None:
    """The reason why this is not an answer of the model."""
    if reason == "RECITATION":
        return Failure("recitation", "the provider withheld an answer that recites its text: RECITATION", status=200)
    if is_tool_finish(reason) and not texts:
        return Failure("tool_call", f"the model called a tool in a broken way: {reason}", True, status=200)
    if reason == "FINISH_REASON_UNSPECIFIED":
        return Failure("aborted", f"the provider ended the answer: {reason}", True, status=200)
    return ended_by_provider(reason)


def _contents(messages: Sequence[Message]) -> list[Body]:
    """A content for each turn, and for each part of a turn that others share: an object of the cache holds contents."""
    contents: list[Body] = []
    for message in messages:
        role, parts = "model" if message.role == "assistant" else "user", []
        for block in message.blocks:
            parts.append({"text": block.text})
            if block.shared:
                contents.append({"role": role, "parts": parts})
                parts = []
        if parts:
            contents.append({"role": role, "parts": parts})
    return contents


class Gemini(HostedProvider):
    """Google's models."""

    summary: ClassVar[str] = (
        "Gemini models by Google's own API; the key is read from $GEMINI_API_KEY or $GOOGLE_API_KEY"
    )
    official: ClassVar[str] = "https://generativelanguage.googleapis.com/v1beta"
    key_names: ClassVar[tuple[str, ...]] = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
    key_header: ClassVar[str] = "x-goog-api-key"

    base_url: str = Field(
        "https://generativelanguage.googleapis.com/v1beta", description="URL of the API; ends in /v1beta"
    )
    ttl: int = Field(600, ge=60, le=86_400, description="seconds for which a document is kept in the cache")

    def adapter(self, settings: Settings, key_name: str) -> GeminiAdapter:
        return GeminiAdapter(replace(settings), key_name, ttl=self.ttl)
