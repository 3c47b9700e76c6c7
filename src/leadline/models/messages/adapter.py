"""Adapters to providers' APIs: bodies of requests from prompts, outcomes from replies, and a model's refusals.

`request_body` and `read_reply` know nothing of connections, so that what sends many requests in one file writes the
same bodies and reads the same replies.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import msgspec

from leadline.core.answers import Completion, Failure
from leadline.core.types import KeptSession
from leadline.models.batch_http import ListedBatches
from leadline.models.messages.prompt import Prompt
from leadline.models.openai.http import HttpReply
from leadline.models.openai.replies import (
    decode_json,
    error_in,
    excerpt,
    format_error,
    is_context_refusal,
    parse_refusal,
    token_counts,
)

Body = dict[str, Any]
Json = Mapping[str, Any]
Result = TypeVar("Result")
WINDOW_NAMES = ("max_input_tokens", "max_model_len", "inputTokenLimit")
_SCHEMA_WORDS = re.compile(r"schema|output_config\.format|text\.format|response_?mime_?type")


@dataclass(slots=True)
class Settings:
    """The user's settings, in the form of all providers. Settings that a model refuses are switched off during the
    run."""

    model: str
    temperature: float | None = 0.0
    thinking: str | None = None
    """`on`, `off`, a level or a number of tokens; None leaves it to the model."""
    system: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    prefill: bool = False
    caching: bool = True
    schemas: bool = True
    notes: list[str] = field(default_factory=list)
    """The settings that the model does not allow, and the changes made instead."""

    def learn(self, note: str) -> bool:
        """Notes a refused setting once. True if the request should be sent again."""
        if note not in self.notes:
            self.notes.append(note)
        return True


@dataclass(frozen=True, slots=True)
class Caching:
    """An API's cache of beginnings of prompts."""

    min_tokens: int
    """Shorter beginnings are not kept."""
    marks: int = 0
    """The number of ends of beginnings that a request may mark; 0 where they are found without marks."""
    primes: bool = False
    """Whether a request can fill the cache without an answer."""
    objects: bool = False
    """Whether a beginning is kept as an object of its own, which requests name."""
    hours: float = 0.0
    """The longest time that an object is kept."""


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The API's data about a model."""

    window: int | None = None
    name: str = ""
    notes: tuple[str, ...] = ()


class Adapter:
    """One provider's API for one model. Paths are below the base URL. Providers differ in how requests and answers are
    written, and in what their models refuse."""

    provider: ClassVar[str]
    batches: ClassVar[type[ListedBatches]]
    count_name: ClassVar[str] = "input_tokens"
    """Where a reply to `count_body` has its count."""
    sampling_words: ClassVar[str] = "temperature"
    """The words of a refusal of the temperature."""

    def __init__(self, settings: Settings, key_name: str = "") -> None:
        self.settings = settings
        self.key_name = key_name
        """The variable that the key is read from."""

    @property
    def caching(self) -> Caching:
        raise NotImplementedError

    def model_path(self) -> str:
        """Where the API describes the model."""
        return f"/models/{self.settings.model}"

    def read_model(self, page: Json) -> ModelFacts:
        window = next((page[name] for name in WINDOW_NAMES if page.get(name)), None)
        name = str(page.get("id") or page.get("name") or "").removeprefix("models/")
        return ModelFacts(window if type(window) is int else None, name)

    def request_body(self, prompt: Prompt) -> tuple[str, Body]:
        """The path and the body of a question."""
        raise NotImplementedError

    def count_body(self, prompt: Prompt) -> tuple[str, Body]:
        """The path and the body of a request that counts the tokens of a question and costs nothing."""
        raise NotImplementedError

    def read_count(self, page: Json) -> int | None:
        count = page.get(self.count_name)
        return count if type(count) is int else None

    def read_reply(self, status: int, page: Json, retry_after: float | None = None) -> Completion | Failure:
        failure = refusal_in(status, page, key_name=self.key_name, retry_after=retry_after)
        return self.read_answer(page) if failure is None else self.read_refusal(failure, page)

    def read_answer(self, page: Json) -> Completion | Failure:
        """The outcome in a reply that is no refusal."""
        raise NotImplementedError

    def read_refusal(self, failure: Failure, page: Json) -> Failure:
        """A refusal with the details that only this API gives."""
        return failure

    def adapts_to(self, refusal: Failure) -> bool:
        """Whether the request can be written in another way, after this refusal. What changed is in the notes."""
        if refusal.why != "refused_request" or refusal.status not in (400, 422):
            return False
        message = refusal.message.lower()
        if self.adapts_own(message):
            return True
        if re.search(self.sampling_words, message) and self.settings.temperature is not None:
            return self.drop_temperature("the model takes no temperature")
        if _SCHEMA_WORDS.search(message) and self.settings.schemas:
            self.settings.schemas = False
            return self.settings.learn("the model takes no schema of its answer")
        return False

    def adapts_own(self, message: str) -> bool:
        """The same for refusals that only this API has. `message` is in lower case."""
        return False

    def drop_temperature(self, why: str) -> bool:
        self.settings.temperature = None
        return self.settings.learn(f"{why}: there is no greedy decoding, so answers differ from run to run")


@runtime_checkable
class ProvidesCompaction(Protocol):
    """An adapter whose API compacts sessions."""

    def compaction_body(self, messages: Sequence[Mapping[str, str]], keep: int) -> tuple[str, Body, dict[str, str]]:
        """The path, the body and further headers of a request that compacts a session."""
        ...

    def read_compaction(self, page: Json) -> KeptSession | Failure: ...


class ProvidesPriming(Protocol):
    """An adapter whose API fills its cache without an answer."""

    def priming_bodies(self, prompt: Prompt) -> list[tuple[str, Body]]:
        """Requests that write every shared end of the prompt, in order."""
        ...


class ProvidesCacheObjects(Protocol):
    """An adapter whose API keeps beginnings as objects."""

    def object_body(self, prompt: Prompt) -> tuple[str, Body]: ...

    def read_object(self, page: Json) -> tuple[str, int]:
        """Its name, and its tokens."""
        ...

    def with_object(self, prompt: Prompt, name: str) -> tuple[str, Body]:
        """A question that begins with the object."""
        ...


# --- replies


def refusal_in(status: int, page: Json, *, key_name: str = "", retry_after: float | None = None) -> Failure | None:
    """The failure that a reply is by its status or its error object; None where it may hold an answer."""
    if status != 200:
        reply = HttpReply(status, msgspec.json.encode(page), "application/json", retry_after)
        return parse_refusal(reply, key_name)
    error = error_in(page)
    if error is None:
        return None
    if is_context_refusal(error):
        return Failure("context_length", format_error(error), status=status)
    return Failure("server", format_error(error), transient=True, retry_after=retry_after, status=status)


def read_http(
    reply: HttpReply, read: Callable[[int, Json, float | None], Result | Failure], key_name: str = ""
) -> Result | Failure:
    """The outcome of a reply that may not be JSON at all, or of another shape than documented: one sample fails."""
    page = decode_json(reply)
    if page is None:
        if reply.status != 200:
            return parse_refusal(reply, key_name)
        return Failure("malformed", f"the reply is not JSON: {excerpt(reply.body)}", transient=True, status=200)
    try:
        return read(reply.status, page, reply.retry_after)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        message = f"the reply cannot be read ({type(error).__name__}): {excerpt(reply.body)}"
        return Failure("malformed", message, transient=True, status=reply.status)


def no_answer(page: Json) -> Failure:
    return Failure("empty_body", f"no answer in the reply: {excerpt(json.dumps(page).encode())}", True, status=200)


def version_in(model: str, pattern: str) -> tuple[int, int] | None:
    """The version in a model's name; None where there is none. The pattern has a group for each of its two numbers."""
    numbers = re.search(pattern, model)
    return (int(numbers[1]), int(numbers[2] or 0)) if numbers else None


def call_text(name: Any, arguments: Any) -> str:
    """A call of a tool as text, as it is graded."""
    arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f'<tool_call>{{"name": {json.dumps(name)}, "arguments": {arguments_text}}}</tool_call>'


def completion(page: Json, texts: list[str], finish: str, thinking: str = "") -> Completion:
    """An answer with the counts of its reply."""
    model, fingerprint = page.get("model") or page.get("modelVersion") or "", page.get("system_fingerprint") or ""
    return Completion(
        "".join(texts), finish, thinking, **token_counts(page), model=str(model), system_fingerprint=str(fingerprint)
    )
