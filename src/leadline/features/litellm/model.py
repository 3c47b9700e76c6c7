"""A model that is asked by the litellm library: one call for each probe, its errors as failures of ours.

The library's replies have OpenAI's shape and its errors OpenAI's status, so both are read as those of a server
(`models/openai/replies.py`). Only the error classes of the library are read here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from leadline.core.answers import Answer, Completion, Failure, FailureKind, Sent
from leadline.core.contracts import BatchUnit, ModelCard, Tokenizer
from leadline.core.seeds import digest, digest_prompt
from leadline.core.types import Document, Frame, Probe, Tool
from leadline.models.messages.model import MESSAGE_TURNS
from leadline.models.openai.http import HttpReply, parse_retry_after
from leadline.models.openai.replies import parse_refusal, parse_reply
from leadline.models.openai.template import conversation

BY_RECEIPTS = "counted by receipts"
NO_KEY = ("missing credentials", "no api key", "api_key client option must be set")
"""The message of a provider without a key. The library gives it the status of a server's error."""
_KINDS: Mapping[str, tuple[FailureKind, bool]] = {
    "ContextWindowExceededError": ("context_length", False),
    "ContentPolicyViolationError": ("filtered", True),
    "Timeout": ("timeout", True),
    "APIConnectionError": ("connection", True),
    "UnsupportedParamsError": ("refused_request", False),
    "BudgetExceededError": ("refused_request", False),
    "GuardrailRaisedException": ("filtered", False),
    "BlockedPiiEntityError": ("filtered", False),
    "APIResponseValidationError": ("malformed", True),
}
"""By the name of the library's class: the kind of failure, and whether asking again may help."""


class LiteLLMModel:
    """One model of the library. Thread-safe."""

    asked_per: BatchUnit = "probe"

    def __init__(
        self,
        library: Any,
        name: str,
        provider: str,
        options: Mapping[str, Any],
        tokenizer: Tokenizer,
        window: int | None,
    ) -> None:
        self._library = library
        self._name = name
        self._provider = provider
        self._options = options
        self._window = window
        self._temperature: float | None = options["temperature"]
        self.tokenizer = tokenizer
        self.frame = Frame(
            before="",
            after="",
            form="chat",
            prefill=False,
            fingerprint=digest(["litellm", name, options["thinking"]]),
            turns=MESSAGE_TURNS,
        )

    @property
    def card(self) -> ModelCard:
        options = self._options
        counted = "estimates" if not options["tokenizer"] else f"those of tokenizer={options['tokenizer']}"
        notes = [f"{BY_RECEIPTS}: lengths are {counted}, without what the provider adds; receipts say what was read"]
        if options["temperature"] is not None and self._temperature is None:
            notes.append("the model accepts no temperature: answers may differ from run to run")
        if options["max_tokens"] is not None:
            notes.append(f"up to {options['max_tokens']} output tokens, beyond the length where tasks allow fewer")
        return ModelCard(
            name=self._name,
            window=self._window,
            window_origin="window= in the model's name" if options["window"] else "litellm's table",
            fingerprints={
                "tokenizer": self.tokenizer.fingerprint,
                "template": self.frame.fingerprint,
                "server": f"litellm: {self._provider}",
                "weights": digest([self._name, options["base_url"]]),
                "decoding": digest([dict(options)]),
            },
            notes=tuple(notes),
            estimates_lengths=True,
        )

    @property
    def is_greedy(self) -> bool:
        return self._temperature == 0

    @property
    def address(self) -> str:
        """A thread that asks waits for a server."""
        return self._options["base_url"] or f"litellm: {self._provider}"

    @property
    def max_tokens(self) -> int | None:
        """Output tokens of every request, in place of the task's."""
        most: int | None = self._options["max_tokens"]
        return most

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        """One call for each probe."""
        return [self._ask(document, probe) for probe in probes]

    def tool_frame(self, tools: Sequence[Tool]) -> Frame:
        """Tools are sent beside the messages."""
        return replace(self.frame, fingerprint=digest([self.frame.fingerprint, *map(dict, tools)]))

    def close(self) -> None:
        pass

    def _ask(self, document: Document, probe: Probe) -> Answer:
        began = time.perf_counter()
        sampled = self._temperature
        request = self._request(document, probe)
        outcome = self._call(request, tools=bool(document.tools))
        if isinstance(outcome, Failure) and sampled is not None and _refuses_temperature(outcome):
            self._temperature = None
            request = self._request(document, probe)
            outcome = self._call(request, tools=bool(document.tools))
        return Answer(_sent(document, probe, request), outcome, time.perf_counter() - began)

    def _request(self, document: Document, probe: Probe) -> dict[str, Any]:
        options = self._options
        request: dict[str, Any] = {
            "model": self._name,
            "messages": conversation(document.turns(probe)),
            "max_tokens": options["max_tokens"] or probe.question.allowance,
        }
        if self._temperature is not None:
            request["temperature"] = self._temperature
        if options["thinking"] is not None:
            request["reasoning_effort"] = "none" if options["thinking"] == "off" else options["thinking"]
        if document.tools:
            request["tools"] = [dict(tool) for tool in document.tools]
        return {**request, **options["extra"]}

    def _call(self, request: Mapping[str, Any], *, tools: bool) -> Completion | Failure:
        base_url = {"api_base": self._options["base_url"]} if self._options["base_url"] else {}
        quiet = {"drop_params": False, "num_retries": 0, "max_retries": 0, "timeout": self._options["timeout"]}
        try:
            reply = self._library.completion(**request, **base_url, **quiet)
            page = msgspec.json.encode(reply.model_dump())
        except Exception as error:  # each provider may raise what it likes; none may end the run
            return failure_of(error)
        return parse_reply(HttpReply(200, page), chat=True, tools=tools)


def failure_of(error: Exception) -> Failure:
    """The failure that an error of the library is."""
    status = getattr(error, "status_code", None)
    message = str(error)
    for kind in (cls.__name__ for cls in type(error).__mro__):
        if kind in _KINDS:
            why, transient = _KINDS[kind]
            return Failure(why, message[:500], transient=transient, status=status if type(status) is int else None)
    if any(phrase in message.lower() for phrase in NO_KEY):
        return Failure("refused_request", message[:500], status=401)
    if type(status) is not int:
        return Failure("refused_request", f"{type(error).__name__}: {message}"[:500])
    headers = getattr(error, "litellm_response_headers", None) or {}
    retry_after = parse_retry_after(headers.get("retry-after"))
    page = msgspec.json.encode({"error": {"message": message, "type": type(error).__name__}})
    return parse_refusal(HttpReply(status, page, retry_after=retry_after))


def _refuses_temperature(failure: Failure) -> bool:
    return failure.why == "refused_request" and "temperature" in failure.message


def _sent(document: Document, probe: Probe, request: Mapping[str, Any]) -> Sent:
    fields = {name: value for name, value in request.items() if name not in ("model", "messages")}
    plain = {
        n: v if isinstance(v, (int, float, str, bool)) else msgspec.json.encode(v).decode() for n, v in fields.items()
    }
    return Sent(
        form="chat",
        prefix=document.prefix_place(probe),
        characters=sum(len(message["content"]) for message in request["messages"]),
        digest=digest_prompt(msgspec.json.encode(dict(request))),
        decoding={**plain, **({"tools": len(document.tools)} if document.tools else {})},
        notes=(BY_RECEIPTS,),
    )
