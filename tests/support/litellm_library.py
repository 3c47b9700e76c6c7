"""A stand-in for the litellm library: the calls that `litellm:` makes, with its shapes of replies and errors."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from support.fake_server import numbers_in

MISSING = {"mistral": ["MISTRAL_API_KEY"], "bedrock": ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]}
WINDOWS = {"mistral/large": 131_072}


class APIError(Exception):
    def __init__(self, message: str, status_code: int | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"litellm.{type(self).__name__}: {message}")
        if status_code is not None:
            self.status_code = status_code
        self.litellm_response_headers = headers


class BadRequestError(APIError): ...


class ContextWindowExceededError(BadRequestError): ...


class ContentPolicyViolationError(BadRequestError): ...


class UnsupportedParamsError(BadRequestError): ...


class AuthenticationError(APIError): ...


class RateLimitError(APIError): ...


class InternalServerError(APIError): ...


class Timeout(APIError): ...


class APIConnectionError(APIError): ...


class _Reply:
    def __init__(self, page: dict[str, Any]) -> None:
        self._page = page

    def model_dump(self) -> dict[str, Any]:
        return self._page


class FakeLiteLLM(ModuleType):
    """`before` may raise for a call, which it gets as keywords."""

    def __init__(self, before: Callable[[dict[str, Any]], None] = lambda call: None) -> None:
        super().__init__("litellm")
        self.before = before
        self.calls: list[dict[str, Any]] = []
        self.suppress_debug_info = False

    def get_llm_provider(self, model: str) -> tuple[str, str, None, None]:
        provider, slash, name = model.partition("/")
        if not slash:
            raise BadRequestError("LLM Provider NOT provided", 400)
        return name, provider, None, None

    def validate_environment(self, model: str) -> dict[str, Any]:
        missing = MISSING.get(model.partition("/")[0], [])
        return {"keys_in_environment": not missing, "missing_keys": missing}

    def get_model_info(self, model: str) -> dict[str, Any]:
        if model not in WINDOWS:
            raise APIError("This model isn't mapped yet")
        return {"max_input_tokens": WINDOWS[model], "max_output_tokens": 8192}

    def completion(self, **call: Any) -> _Reply:
        self.calls.append(call)
        self.before(call)
        prompt = call["messages"][-1]["content"]
        message = {"role": "assistant", "content": numbers_in(prompt), "tool_calls": None, "function_call": None}
        return _Reply(
            {
                "id": "x", "created": 1, "model": "large-2026", "object": "chat.completion", "system_fingerprint": None,
                "choices": [{"finish_reason": "stop", "index": 0, "message": message}],
                "usage": {
                    "prompt_tokens": round(len(prompt) / 4), "completion_tokens": 3, "total_tokens": 0,
                    "completion_tokens_details": None, "prompt_tokens_details": {"cached_tokens": 4},
                },
            }
        )  # fmt: skip
