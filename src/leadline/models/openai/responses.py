"""OpenAI's Responses API: `openai:NAME?api=responses`, of OpenAI or of a server that speaks it.

Nothing may rewrite the context: `truncation` is disabled, so that a prompt too long is refused, and nothing is stored.
Models from GPT-5.6 on keep what is marked, others what they like; a server that refuses the marks is sent none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from leadline.core.answers import WINDOW_FULL, Completion, Failure
from leadline.core.errors import UsageError
from leadline.core.types import KeptSession
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
from leadline.models.messages.prompt import Message, Prompt, session_messages
from leadline.models.openai.batches import OpenAIBatches
from leadline.models.openai.finish import ended_by_provider, finish_of
from leadline.models.openai.replies import excerpt, token_counts

MOST_MARKS = 4
LEAST_CACHED = 1024
LEAST_OUTPUT = 16
"""OpenAI refuses fewer output tokens."""
COUNTED_FIELDS = frozenset(("instructions", "tools", "reasoning", "text"))
"""Fields of the user's own that are part of a prompt."""
MARKED_FROM = (5, 6)
KEPT_ITEMS = ("compaction", "compaction_summary")
EFFORTS = ("minimal", "low", "medium", "high", "xhigh")


class ResponsesAdapter(Adapter):
    """Requests and replies of /v1/responses."""

    provider = "openai"
    batches = OpenAIBatches

    def __init__(self, settings: Settings, key_name: str, *, official: bool, cache_key: bool) -> None:
        super().__init__(settings, key_name)
        self._official = official
        self._cache_key = cache_key
        version = version_in(settings.model, r"gpt-(\d+)(?:\.(\d+))?") or (0, 0)
        self._marks = settings.caching and cache_key and version >= MARKED_FROM
        if settings.thinking is not None and settings.thinking not in ("on", "off", *EFFORTS):
            fix = f"give an effort: {', '.join(EFFORTS)}, or thinking=off"
            raise UsageError(f"thinking={settings.thinking}: this API takes no budget", where="thinking", fix=fix)

    @property
    def caching(self) -> Caching:
        return Caching(LEAST_CACHED, marks=MOST_MARKS if self._marks else 0)

    # --- requests

    def request_body(self, prompt: Prompt) -> tuple[str, Body]:
        settings = self.settings
        body = self._counted_fields(prompt)
        body["max_output_tokens"] = max(prompt.allowance, LEAST_OUTPUT) if self._official else prompt.allowance
        body["store"] = False
        if settings.temperature is not None:
            body["temperature"] = settings.temperature
        if self._cache_key and settings.caching and prompt.key:
            body["prompt_cache_key"] = prompt.key
        if self._marks:
            body["prompt_cache_options"] = {"mode": "explicit", "ttl": "30m"}
        return "/responses", {**body, **settings.extra}

    def count_body(self, prompt: Prompt) -> tuple[str, Body]:
        own = {name: value for name, value in self.settings.extra.items() if name in COUNTED_FIELDS}
        return "/responses/input_tokens", {**self._counted_fields(prompt), **own}

    def _counted_fields(self, prompt: Prompt) -> Body:
        settings = self.settings
        body: Body = {"model": settings.model, "truncation": "disabled"}
        if settings.system:
            body["instructions"] = settings.system
        body["input"] = [*prompt.kept, *map(_turn, prompt.with_marks(MOST_MARKS if self._marks else 0).messages)]
        if prompt.tools:
            body["tools"] = [{"type": "function", **dict(tool["function"])} for tool in prompt.tools]  # type: ignore[call-overload]
        if settings.thinking not in (None, "on"):
            body["reasoning"] = {"effort": "none" if settings.thinking == "off" else settings.thinking}
        if prompt.schema is not None and settings.schemas:
            form = {"type": "json_schema", "name": "answer", "schema": dict(prompt.schema), "strict": True}
            body["text"] = {"format": form}
        return body

    # --- compaction

    def compaction_body(self, messages: Sequence[Mapping[str, str]], keep: int) -> tuple[str, Body, dict[str, str]]:
        """The number of retained tokens cannot be set."""
        turns = [*map(_turn, session_messages(messages))]
        return "/responses/compact", {"model": self.settings.model, "input": turns}, {}

    def read_compaction(self, page: Json) -> KeptSession | Failure:
        """A list of items, of which the one that holds the session is encrypted."""
        items = page.get("output")
        if not isinstance(items, list) or not any(item.get("type") in KEPT_ITEMS for item in items):
            return Failure("empty_body", f"no compacted session in the reply: {excerpt(json.dumps(page).encode())}")
        counts = token_counts(page)
        return KeptSession("", tuple(items), "", counts["prompt_tokens"] or 0, counts["completion_tokens"] or 0)

    # --- replies

    def read_answer(self, page: Json) -> Completion | Failure:
        state, items = str(page.get("status") or ""), page.get("output")
        reason = str((page.get("incomplete_details") or {}).get("reason") or "")
        if failure := ended_by_provider(reason) or ended_by_provider(state):
            return failure
        if not isinstance(items, list):
            return no_answer(page)
        parts = [part for item in items if item.get("type") == "message" for part in item.get("content") or []]
        texts = [part["text"] for part in parts if part.get("type") == "output_text"]
        refusals = [part["refusal"] for part in parts if part.get("type") == "refusal"]
        calls = [
            call_text(i.get("name"), i.get("arguments") or "{}") for i in items if i.get("type") == "function_call"
        ]
        if not texts and not refusals and not calls and state != "incomplete":
            return no_answer(page)
        finish = WINDOW_FULL if "context" in reason else finish_of(reason) or ("refusal" if refusals else "stop")
        answer = [*(texts or refusals), *calls]
        return completion(page, answer, finish, _thinking(items))

    def adapts_own(self, message: str) -> bool:
        if "prompt_cache_key" in message and self._cache_key:
            self._cache_key = False
            return True
        if re.search("prompt_cache_(breakpoint|options)", message) and self._marks:
            self._marks = False
            return self.settings.learn("the model takes no marks of its cache: it keeps what it likes")
        return False


def _turn(message: Message) -> Body:
    """A turn with a mark on each shared block of the user's."""
    kind = "output_text" if message.role == "assistant" else "input_text"
    content: list[Body] = []
    for block in message.blocks:
        content.append({"type": kind, "text": block.text})
        if block.shared and kind == "input_text":
            content[-1]["prompt_cache_breakpoint"] = {"mode": "explicit"}
    return {"role": "assistant" if kind == "output_text" else "user", "content": content}


def _thinking(items: list[Json]) -> str:
    """Reasoning, as far as the reply shows it."""
    parts = [
        part
        for item in items
        if item.get("type") == "reasoning"
        for part in item.get("content") or item.get("summary") or []
    ]
    return "".join(part["text"] for part in parts if isinstance(part.get("text"), str))
