"""Anthropic's, Google's and OpenAI's APIs as functions in the place of servers, with the documented shapes, errors and
limits: unknown fields and missing keys are refused, tokens are counted, and what is marked is cached.

    fake = AnthropicFake()
    with fake.served() as url: ...
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from leadline.models.openai.http import HttpReply, HttpRequest, served_by
from support.prompt_reader import CannotRead, answer_from_text

KEY = "test-key-of-a-fake-42"
TURN_TOKENS = 4
TOOL_TOKENS = 30
SMALL = 1500
"""Characters of a request that is no question of a run."""

Page = dict[str, Any]


class Refused(Exception):
    def __init__(self, status: int, kind: str, message: str, **further: Any) -> None:
        super().__init__(message)
        self.status, self.kind, self.message, self.further = status, kind, message, further


def words(text: str) -> int:
    """Tokens of a text: parts of words, as a tokenizer of bytes would make too many of long documents."""
    return sum(1 + len(word) // 7 for word in re.findall(r"\w+|[^\w\s]", text))


def facts_of(session: str) -> str:
    """A summary that keeps every sentence about a project."""
    return "\n".join(re.findall(r"[^.\n]*[Pp]roject[^\n]*?\.(?=\s|$)", session))


def read_or_guess(prompt: str) -> str:
    try:
        return answer_from_text(prompt)
    except CannotRead:
        return "seven"


class HostedFake:
    """What the three have in common. `plant` replaces the next replies to questions."""

    model = "some-model"
    least = 1024

    def __init__(
        self,
        *,
        model: str = "",
        count: Callable[[str], int] = words,
        window: int = 1_000_000,
        answer: Callable[[str], str] = read_or_guess,
        least: int | None = None,
        counts: bool = True,
        count_error: int = 0,
    ) -> None:
        self.model = model or self.model
        self.count, self.window, self.answer = count, window, answer
        self.least = self.least if least is None else least
        self.counts = counts
        self.count_error = count_error
        """Tokens by which the free count differs from what is read."""
        self.asked: list[Page] = []
        """Bodies of questions, in order."""
        self.counted: list[Page] = []
        self.planted: list[Callable[[], HttpReply]] = []
        self.held: dict[str, int] = {}
        """Beginnings in the cache, with their tokens."""
        self.compacted: list[Page] = []
        """Bodies of sessions that were to be compacted."""
        self.summary: Callable[[str], str] = facts_of
        self.beta = ""
        self.lock = threading.Lock()

    def plant(self, status: int, page: Page, headers: dict[str, str] | None = None) -> None:
        wait = float((headers or {}).get("retry-after", -1))
        reply = HttpReply(status, json.dumps(page).encode(), "application/json", wait if wait >= 0 else None)
        self.planted.append(lambda: reply)

    @contextmanager
    def served(self) -> Iterator[str]:
        with served_by(self.reply) as url:
            yield url

    def reply(self, request: HttpRequest) -> HttpReply:
        with self.lock:
            try:
                headers = {name.lower(): value for name, value in request.headers.items()}
                self.check_key(headers)
                self.beta = headers.get("anthropic-beta", "")
                body = json.loads(request.body) if request.body else {}
                page = self.page(request.method, request.path, body)
            except Refused as refused:
                return HttpReply(refused.status, json.dumps(self.error(refused)).encode(), "application/json")
            return (
                page if isinstance(page, HttpReply) else HttpReply(200, json.dumps(page).encode(), "application/json")
            )

    def question(self, body: Page) -> HttpReply | None:
        if len(json.dumps(body)) < SMALL:
            return None  # a question about the server
        self.asked.append(body)
        return self.planted.pop(0)() if self.planted else None

    def refused(self, message: str) -> Refused:
        return Refused(400, "invalid_request_error", message)

    def check_key(self, headers: dict[str, str]) -> None:
        raise NotImplementedError

    def page(self, method: str, path: str, body: Page) -> Page | HttpReply:
        raise NotImplementedError

    def error(self, refused: Refused) -> Page:
        raise NotImplementedError


def allow_only(body: Page, names: str) -> None:
    unknown = [name for name in body if name not in names.split()]
    if unknown:
        raise Refused(400, "invalid_request_error", f"{unknown[0]}: Extra inputs are not permitted")


class AnthropicFake(HostedFake):
    model = "claude-opus-4-5"

    def check_key(self, headers: dict[str, str]) -> None:
        if headers.get("anthropic-version") != "2023-06-01":
            raise Refused(400, "invalid_request_error", "anthropic-version: header is required")
        if headers.get("x-api-key") != KEY:
            raise Refused(401, "authentication_error", "invalid x-api-key")

    def error(self, refused: Refused) -> Page:
        return {"type": "error", "error": {"type": refused.kind, "message": refused.message}, "request_id": "req_1"}

    def page(self, method: str, path: str, body: Page) -> Page | HttpReply:
        if method == "GET":
            return self._models(path)
        if body.get("model") != self.model:
            raise Refused(404, "not_found_error", f"model: {body.get('model')}")
        self._check_messages(body)
        if path.endswith("/messages/count_tokens"):
            if not self.counts:
                return HttpReply(404, b'{"detail":"Not Found"}', "application/json")
            allow_only(body, "model messages system tools thinking output_config")
            self.counted.append(body)
            return {"input_tokens": self._tokens(body) + self.count_error}
        edits = " context_management" if self.beta == "compact-2026-01-12" else ""
        allow_only(body, "model messages system tools thinking output_config max_tokens temperature" + edits)
        if "context_management" in body:
            return self._edited(body)
        planted = self.question(body)
        if planted is not None:
            return planted
        return self._answered(body)

    def _edited(self, body: Page) -> Page | HttpReply:
        """The edit that summarises: above its trigger, with the pause after it that was asked for."""
        [edit] = body["context_management"]["edits"]
        if edit["type"] != "compact_20260112" or edit["trigger"]["value"] < 50_000:
            raise Refused(400, "invalid_request_error", "context_management.edits.0.trigger.value: at least 50000")
        self.compacted.append(body)
        if self.planted:
            return self.planted.pop(0)()
        total, short = self._tokens(body), {"id": "msg_1", "type": "message", "role": "assistant", "model": self.model}
        usage = {"input_tokens": total, "output_tokens": 3, "cache_creation_input_tokens": 0}
        if total < edit["trigger"]["value"]:
            content = [{"type": "text", "text": "Yes."}]
            return {**short, "content": content, "stop_reason": "end_turn", "usage": {**usage, "iterations": []}}
        text = self.summary(_text(body))
        spent = {"type": "compaction", "input_tokens": total, "output_tokens": self.count(text)}
        assert edit["pause_after_compaction"] is True
        return {
            **short, "content": [{"type": "compaction", "content": text}], "stop_reason": "compaction",
            "usage": {**usage, "input_tokens": 0, "output_tokens": 0, "iterations": [spent]},
        }  # fmt: skip

    def _models(self, path: str) -> Page:
        name = path.rpartition("/")[2]
        entry = {"type": "model", "id": self.model, "display_name": "A model", "max_input_tokens": self.window}
        if name == "models":
            return {"data": [entry], "has_more": False}
        if name != self.model:
            raise Refused(404, "not_found_error", f"model: {name}")
        return entry

    def _version(self) -> tuple[int, int]:
        found = re.search(r"-(\d)-(\d)$", self.model)
        return (int(found[1]), int(found[2])) if found else (4, 5)

    def _check_messages(self, body: Page) -> None:
        if "temperature" in body and self._version() >= (4, 7):
            raise Refused(400, "invalid_request_error", "`temperature` is deprecated for this model.")
        thinking = body.get("thinking") or {}
        if thinking.get("type") == "enabled" and self._version() >= (4, 7):
            what = '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive"'
            raise Refused(400, "invalid_request_error", what)
        if thinking.get("type") == "enabled" and body.get("max_tokens", 1 << 30) <= thinking["budget_tokens"]:
            raise Refused(400, "invalid_request_error", "`max_tokens` must be greater than `thinking.budget_tokens`")
        if body["messages"][-1]["role"] == "assistant" and self._version() >= (4, 6):
            what = (
                "This model does not support assistant message prefill. The conversation must end with a user message."
            )
            raise Refused(400, "invalid_request_error", what)
        marks = sum("cache_control" in block for block in _blocks(body))
        if marks > 4:
            what = f"A maximum of 4 blocks with cache_control may be provided. Found {marks}."
            raise Refused(400, "invalid_request_error", what)
        if any(not block["text"].strip() for block in _blocks(body)):
            raise Refused(
                400, "invalid_request_error", "messages: text content blocks must contain non-whitespace text"
            )

    def _tokens(self, body: Page, blocks: int | None = None) -> int:
        """Of the whole prompt, or of its first blocks."""
        tokens = self.count(body.get("system", "")) + TOOL_TOKENS * len(body.get("tools", []))
        left = blocks if blocks is not None else 1 << 30
        for message in body["messages"]:
            content = _content(message)[:left]
            if content:
                tokens += TURN_TOKENS + self.count("".join(block["text"] for block in content))
            left -= len(content)
        return tokens

    def _answered(self, body: Page) -> Page:
        total = self._tokens(body)
        if total > self.window:
            raise Refused(400, "invalid_request_error", f"prompt is too long: {total} tokens > {self.window} maximum")
        read, written = self._cache(body, total)
        thinks = (body.get("thinking") or {}).get("type") in ("enabled", "adaptive")
        content: list[Page] = [{"type": "thinking", "thinking": "Let me look.", "signature": "s"}] if thinks else []
        stop = "end_turn"
        if body["max_tokens"]:
            content.append({"type": "text", "text": self.answer(_text(body))})
        else:
            content, stop = [], "max_tokens"
        return {
            "id": "msg_1", "type": "message", "role": "assistant", "model": self.model, "content": content,
            "stop_reason": stop, "stop_sequence": None,
            "usage": {
                "input_tokens": total - read - written, "cache_creation_input_tokens": written,
                "cache_read_input_tokens": read, "output_tokens": 5 if content else 0, "service_tier": "standard",
                "cache_creation": {"ephemeral_5m_input_tokens": written, "ephemeral_1h_input_tokens": 0},
            },
        }  # fmt: skip

    def _cache(self, body: Page, total: int) -> tuple[int, int]:
        blocks = _blocks(body)
        marks = [i for i, block in enumerate(blocks, 1) if "cache_control" in block]
        prefixes = {
            i: json.dumps([body.get("thinking"), [b["text"] for b in blocks[:i]]]) for i in range(1, len(blocks) + 1)
        }
        read = 0
        for mark in marks:  # a mark looks back at 20 blocks
            for i in range(mark, max(0, mark - 20), -1):
                if prefixes[i] in self.held:
                    read = max(read, self.held[prefixes[i]])
                    break
        written = 0
        for mark in marks:
            tokens = min(self._tokens(body, mark), total)
            if tokens >= self.least and prefixes[mark] not in self.held:
                self.held[prefixes[mark]] = tokens
                written = max(written, tokens - read)
        return read, written


def _content(message: Page) -> list[Page]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)


def _blocks(body: Page) -> list[Page]:
    return [block for message in body["messages"] for block in _content(message)]


def _text(body: Page) -> str:
    return "\n".join("".join(block["text"] for block in _content(message)) for message in body["messages"])


class GeminiFake(HostedFake):
    model = "gemini-3-pro"
    least = 4096

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.objects: dict[str, Page] = {}
        self.deleted: list[str] = []

    @contextmanager
    def served(self) -> Iterator[str]:
        with served_by(self.reply) as url:
            yield url.removesuffix("/v1") + "/v1beta"

    def check_key(self, headers: dict[str, str]) -> None:
        if headers.get("x-goog-api-key") != KEY:
            details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]
            raise Refused(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", details=details)

    def error(self, refused: Refused) -> Page:
        error = {"code": refused.status, "message": refused.message, "status": refused.kind}
        return {"error": {**error, **refused.further}}

    def page(self, method: str, path: str, body: Page) -> Page | HttpReply:
        if method == "DELETE":
            name = path.partition("/v1beta/")[2]
            if self.objects.pop(name, None) is None:
                raise Refused(404, "NOT_FOUND", "CachedContent not found (or permission denied)")
            self.deleted.append(name)
            return {}
        if method == "GET":
            return self._models(path)
        if path.endswith("/cachedContents"):
            return self._keep(body)
        if f"/models/{self.model}:" not in path:
            raise Refused(404, "NOT_FOUND", "models are not found for API version v1beta, or not supported")
        if path.endswith(":countTokens"):
            if not self.counts:
                raise Refused(404, "NOT_FOUND", "Method not found.")
            self.counted.append(body)
            return {"totalTokens": self._tokens(body.get("generateContentRequest", body)) + self.count_error}
        _allow_gemini(body, "contents systemInstruction tools generationConfig cachedContent safetySettings")
        planted = self.question(body)
        return planted if planted is not None else self._answered(body)

    def _models(self, path: str) -> Page:
        name = path.rpartition("/")[2]
        entry = {"name": f"models/{self.model}", "inputTokenLimit": self.window, "outputTokenLimit": 65_536}
        if name == "models":
            return {"models": [entry]}
        if name != self.model:
            raise Refused(404, "NOT_FOUND", f"models/{name} is not found for API version v1beta")
        return entry

    def _keep(self, body: Page) -> Page:
        _allow_gemini(body, "model contents systemInstruction tools ttl")
        tokens = self._tokens(body)
        if tokens < self.least:
            what = f"Cached content is too small. total_token_count={tokens}, min_total_token_count={self.least}"
            raise Refused(400, "INVALID_ARGUMENT", what)
        name = f"cachedContents/c{len(self.objects) + len(self.deleted) + 1}"
        self.objects[name] = {**body, "tokens": tokens}
        return {"name": name, "model": body["model"], "usageMetadata": {"totalTokenCount": tokens}}

    def _tokens(self, body: Page) -> int:
        system = "".join(part["text"] for part in (body.get("systemInstruction") or {}).get("parts", []))
        tokens = self.count(system) + TOOL_TOKENS * len(body.get("tools", []))
        for content in body["contents"]:
            tokens += TURN_TOKENS + self.count("".join(part["text"] for part in content["parts"]))
        return tokens

    def _answered(self, body: Page) -> Page:
        kept: Page = {}
        if "cachedContent" in body:
            if body["cachedContent"] not in self.objects:
                raise Refused(403, "PERMISSION_DENIED", "CachedContent not found (or permission denied)")
            if "systemInstruction" in body or "tools" in body:
                what = "CachedContent can not be used with GenerateContent request setting system_instruction or tools."
                raise Refused(400, "INVALID_ARGUMENT", what)
            kept = self.objects[body["cachedContent"]]
        cached = kept.get("tokens", 0)
        total = cached + self._tokens(body)
        if total > self.window:
            what = f"The input token count ({total}) exceeds the maximum number of tokens allowed ({self.window})."
            raise Refused(400, "INVALID_ARGUMENT", what)
        contents = [*kept.get("contents", []), *body["contents"]]
        text = "".join(part["text"] for content in contents for part in content["parts"])
        usage = {
            "promptTokenCount": total,
            "candidatesTokenCount": 5,
            "thoughtsTokenCount": 7,
            "totalTokenCount": total + 12,
        }
        if cached:
            usage["cachedContentTokenCount"] = cached
        content = {"role": "model", "parts": [{"text": "Looking.", "thought": True}, {"text": self.answer(text)}]}
        candidate = {"content": content, "finishReason": "STOP", "index": 0}
        return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": f"{self.model}-001"}


def _allow_gemini(body: Page, names: str) -> None:
    unknown = [name for name in body if name not in names.split()]
    if unknown:
        what = f'Invalid JSON payload received. Unknown name "{unknown[0]}": Cannot find field.'
        raise Refused(400, "INVALID_ARGUMENT", what)


class ResponsesFake(HostedFake):
    model = "gpt-5.6"

    def __init__(self, *, takes_marks: bool = True, takes_temperature: bool = True, **options: Any) -> None:
        super().__init__(**options)
        self.takes_marks, self.takes_temperature = takes_marks, takes_temperature

    def check_key(self, headers: dict[str, str]) -> None:
        if headers.get("authorization") != f"Bearer {KEY}":
            raise Refused(401, "invalid_request_error", "Incorrect API key provided", code="invalid_api_key")

    def error(self, refused: Refused) -> Page:
        return {
            "error": {"message": refused.message, "type": refused.kind, "param": None, "code": None, **refused.further}
        }

    def page(self, method: str, path: str, body: Page) -> Page | HttpReply:
        if method == "GET":
            name = path.rpartition("/")[2]
            if name not in ("models", self.model):
                raise Refused(
                    404, "invalid_request_error", f"The model '{name}' does not exist", code="model_not_found"
                )
            entry = {"id": self.model, "object": "model", "owned_by": "somebody"}
            return {"object": "list", "data": [entry]} if name == "models" else entry
        if body.get("model") != self.model:
            what = f"The model '{body.get('model')}' does not exist or you do not have access to it."
            raise Refused(404, "invalid_request_error", what, code="model_not_found")
        common = "model input instructions tools reasoning text truncation"
        if path.endswith("/responses/input_tokens"):
            if not self.counts:
                raise Refused(404, "invalid_request_error", "Invalid URL (POST /v1/responses/input_tokens)")
            self._allow(body, common)
            self.counted.append(body)
            return {"object": "response.input_tokens", "input_tokens": self._tokens(body) + self.count_error}
        if path.endswith("/responses/compact"):
            self._allow(body, "model input instructions previous_response_id")
            return self._compacted(body)
        self._allow(body, f"{common} max_output_tokens temperature store prompt_cache_key prompt_cache_options")
        planted = self.question(body)
        return planted if planted is not None else self._answered(body)

    def _compacted(self, body: Page) -> Page | HttpReply:
        """A list of items in which the session is encrypted, for requests of this API alone."""
        self.compacted.append(body)
        if self.planted:
            return self.planted.pop(0)()
        text = self.summary("\n".join("".join(part["text"] for part in _parts(item)) for item in body["input"]))
        sealed = base64.b64encode(text.encode()).decode()
        total, written = self._tokens(body), self.count(text)
        return {
            "id": "resp_2", "object": "response.compaction", "created_at": 1_790_000_000,
            "output": [{"type": "compaction", "id": "cmp_1", "encrypted_content": sealed}],
            "usage": {"input_tokens": total, "output_tokens": written, "total_tokens": total + written},
        }  # fmt: skip

    def _allow(self, body: Page, names: str) -> None:
        for name in body:
            if name not in names.split() or (name == "prompt_cache_options" and not self.takes_marks):
                raise Refused(400, "invalid_request_error", f"Unknown parameter: '{name}'.", code="unknown_parameter")
        if "temperature" in body and not self.takes_temperature:
            what = "Unsupported parameter: 'temperature' is not supported with this model."
            raise Refused(400, "invalid_request_error", what, code="unsupported_parameter")

    def _tokens(self, body: Page, blocks: int | None = None) -> int:
        tokens = self.count(body.get("instructions") or "") + TOOL_TOKENS * len(body.get("tools", []))
        left = blocks if blocks is not None else 1 << 30
        for item in body["input"]:
            content = _parts(item)[:left]
            if content:
                tokens += TURN_TOKENS + self.count("".join(part["text"] for part in content))
            left -= len(content)
        return tokens

    def _answered(self, body: Page) -> Page:
        total = self._tokens(body)
        if total + body["max_output_tokens"] > self.window:
            what = "Your input exceeds the context window of this model. Please adjust your input and try again."
            raise Refused(400, "invalid_request_error", what, code="context_length_exceeded")
        read, written = self._cache(body, total)
        text = "\n".join("".join(part["text"] for part in _parts(item)) for item in body["input"])
        message = {"type": "message", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": self.answer(text), "annotations": []}
        ]}  # fmt: skip
        reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
        return {
            "id": "resp_1", "object": "response", "status": "completed", "error": None, "incomplete_details": None,
            "model": f"{self.model}-2026-08-01", "output": [reasoning, message],
            "usage": {
                "input_tokens": total, "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
                "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 4}, "total_tokens": total + 9,
            },
        }  # fmt: skip

    def _cache(self, body: Page, total: int) -> tuple[int, int]:
        """Kept and matched at marks alone."""
        parts = [part for item in body["input"] for part in _parts(item)]
        marks = [i for i, part in enumerate(parts, 1) if "prompt_cache_breakpoint" in part]
        read = written = 0
        for mark in marks:
            key = json.dumps([body.get("prompt_cache_key"), [part["text"] for part in parts[:mark]]])
            if key in self.held:
                read = self.held[key]
        for mark in marks[-4:]:
            key = json.dumps([body.get("prompt_cache_key"), [part["text"] for part in parts[:mark]]])
            tokens = min(self._tokens(body, mark), total)
            if tokens >= self.least and key not in self.held:
                self.held[key] = tokens
                written = max(written, tokens - read)
        return read, written


def _parts(item: Page) -> list[Page]:
    """The content of a turn; that of a compacted session is known to the server alone."""
    if item.get("type") != "compaction":
        return list(item["content"])
    try:
        return [{"type": "input_text", "text": base64.b64decode(item["encrypted_content"], validate=True).decode()}]
    except ValueError:
        what = "The encrypted content could not be verified."
        raise Refused(400, "invalid_request_error", what, code="invalid_encrypted_content") from None


class ChatFake(ResponsesFake):
    """OpenAI's chat completions, as other hosts have them. Tokens are bytes, so that a local tokenizer knows them."""

    model = "some-chat-model"

    def __init__(self, **options: Any) -> None:
        super().__init__(count=lambda text: len(text.encode()), **options)

    def page(self, method: str, path: str, body: Page) -> Page | HttpReply:
        if method == "GET":
            return super().page(method, path, body)
        if not path.endswith("/chat/completions"):
            raise Refused(404, "invalid_request_error", f"Invalid URL (POST {path})")
        if body.get("model") != self.model:
            what = f"The model '{body.get('model')}' does not exist or you do not have access to it."
            raise Refused(404, "invalid_request_error", what, code="model_not_found")
        self._allow(body, "model messages max_tokens temperature tools response_format")
        planted = self.question(body)
        return planted if planted is not None else self._chatted(body)

    def _chatted(self, body: Page) -> Page:
        texts = [message["content"] for message in body["messages"]]
        total = sum(TURN_TOKENS + self.count(text) for text in texts) + TOOL_TOKENS * len(body.get("tools", []))
        if total + body["max_tokens"] > self.window:
            what = f"This model's maximum context length is {self.window} tokens. Reduce the length of the messages."
            raise Refused(400, "invalid_request_error", what, code="context_length_exceeded")
        message = {"role": "assistant", "content": self.answer("\n".join(texts))}
        return {
            "id": "c", "object": "chat.completion", "model": f"{self.model}-1",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": total, "completion_tokens": 9, "total_tokens": total + 9},
        }  # fmt: skip
