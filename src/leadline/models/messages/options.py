"""Options that models of hosted APIs have in common, and how such a model is opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from leadline.core.contracts import ModelProvider
from leadline.core.errors import UsageError
from leadline.core.lengths import parse_length
from leadline.core.secrets import remember, secret_in
from leadline.models.messages.adapter import Adapter, Settings
from leadline.models.messages.keys import checked_variable, first_set, read_key
from leadline.models.messages.model import MessagesModel, ModelOptions, open_model
from leadline.models.openai.http import HttpClient
from leadline.models.openai.requests import checked_thinking

LEVELS_BEYOND = ("max",)
"""Levels of thinking that only some providers have."""


def _thinking(text: str) -> str:
    setting = text.strip().lower()
    return setting if setting in LEVELS_BEYOND else checked_thinking(text)


def _json_object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


class HostedProvider(ModelProvider):
    """A provider of hosted models with an API of its own. A subclass says where it is and what speaks it."""

    official: ClassVar[str] = ""
    """The provider's own URL, which needs a key."""
    key_names: ClassVar[tuple[str, ...]] = ()
    key_header: ClassVar[str] = ""
    headers: ClassVar[Mapping[str, str]] = {}

    base_url: str = Field("", description="URL of the API")
    tokenizer: str = Field(
        "", description="PATH or tiktoken:NAME of a similar tokenizer, to need fewer counts; counts decide all the same"
    )
    thinking: Annotated[str, AfterValidator(_thinking)] | None = Field(
        None, description="how the model is to think: on, off, low, medium, high, or a budget of tokens"
    )
    system: str = Field("", description="system text of every request; its tokens are part of the length")
    window: Annotated[int, BeforeValidator(parse_length)] | None = Field(
        None, description="context window, where the API does not state it"
    )
    max_tokens: int | None = Field(None, ge=1, description="output tokens instead of the task's (thinking needs more)")
    temperature: float | None = Field(0.0, description="0 is greedy, where the model allows it")
    cache: bool = Field(True, description="mark what questions share, so that the provider keeps it")
    count: bool = Field(
        True, description="count prompts with the provider's free counts; without, lengths are estimates"
    )
    timeout: float = Field(600.0, gt=0, le=1e6, description="seconds for a whole request")
    rate_limit_wait: float = Field(
        3600.0, ge=0, le=1e6, description="seconds to wait for a rate limit (429) at the start"
    )
    api_key_env: str = Field("", description="environment variable that holds the key, in place of the provider's own")
    extra: Annotated[dict[str, Any], BeforeValidator(_json_object)] = Field(
        {}, description='further fields of every request, as JSON: {"top_k": 1}'
    )

    @field_validator("api_key_env")
    @classmethod
    def _is_variable(cls, name: str) -> str:
        return checked_variable(name, "api_key_env") if name else name

    @model_validator(mode="after")
    def _has_no_secret(self) -> HostedProvider:
        """Options are part of the model's name, which is written to every record."""
        if secret := secret_in({"base_url": self.base_url, "extra": self.extra}):
            remember(secret)
            raise UsageError(
                "an option looks like a secret, and options are written to disk",
                where="model",
                fix=f"put the key into ${self.key_names[0]}, or into the variable that api_key_env names",
            )
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.username:
            raise UsageError(
                f"{self.base_url[:200]!r} is not the URL of an API", where="base_url", fix=f"write {self.official}"
            )
        return self

    def adapter(self, settings: Settings, key_name: str) -> Adapter:
        raise NotImplementedError

    def open(self, name: str) -> MessagesModel:
        if not name:
            raise UsageError("no model is named", where="model", fix="write PROVIDER:NAME")
        variable = self.api_key_env or first_set(self.key_names)
        key = read_key(variable, f"{self.base_url} {json.dumps(self.extra)} {self.system}")
        if not key and self.base_url.rstrip("/") == self.official:
            names = " or ".join(map("${}".format, [self.api_key_env] if self.api_key_env else self.key_names))
            raise UsageError(f"there is no key: {names} is not set", where="model", fix=f"put the key into ${variable}")
        headers = {**self.headers, **({self.key_header: key} if key else {})}
        client = HttpClient(self.base_url, headers=headers, timeout=self.timeout)
        client.rate_limit_wait = self.rate_limit_wait
        settings = Settings(name, self.temperature, self.thinking, self.system, self.extra, caching=self.cache)
        options = ModelOptions(
            self.tokenizer,
            self.window,
            self.max_tokens,
            counts=self.count,
            options=self.model_dump(),
        )
        try:
            return open_model(client, self.adapter(settings, variable), options)
        except BaseException:
            client.close()
            raise
