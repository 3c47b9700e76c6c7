"""A model behind an API that takes messages: asks, counts prompts without reading them, and keeps the shared part of
questions in the provider's cache.

Lengths come from the API's own counts (`count_prompt`), which cost nothing; the local tokenizer only lays texts out.
The API's count of the prompt decides: it is the receipt of every record.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from leadline.core.answers import NO_CREDIT_FIX, Answer, Completion, Failure, Sent
from leadline.core.batches import Batches, BatchReply
from leadline.core.contracts import BatchUnit, ModelCard, PrefixCache, Tokenizer
from leadline.core.errors import ServerAway, ServerError
from leadline.core.seeds import digest, digest_prompt
from leadline.core.turns import PLAIN_TURNS, Turns
from leadline.core.types import Document, Frame, KeptSession, Probe, Question, Tool
from leadline.models.batch_http import BatchClient
from leadline.models.messages.adapter import (
    Adapter,
    Json,
    ModelFacts,
    ProvidesCompaction,
    read_http,
    refusal_in,
)
from leadline.models.messages.caches import DocumentCaches
from leadline.models.messages.prompt import Block, Message, Prompt, prompt_of
from leadline.models.openai.discovery import listed_models, named_models, send_with_retries
from leadline.models.openai.http import HttpClient, HttpReply, RequestFailed
from leadline.models.openai.replies import decode_json, error_in, excerpt, parse_refusal, request_failure
from leadline.text.tokenizers import ApproximateTokenizer, open_tokenizer

ADAPTATIONS = 4
"""The number of times that one request is written again after a refusal."""
UNLIMITED = 1 << 40
MESSAGE_TURNS = Turns(
    before="",
    after="",
    between=tuple((role, following, f"\n\n\u2063{following}\u2063\n\n") for role, following, _ in PLAIN_TURNS.between),
)
"""The separator of turns while a conversation is laid out. It is sent as messages."""


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The user's settings, beyond the requests themselves."""

    tokenizer: str = ""
    window: int | None = None
    max_tokens: int | None = None
    counts: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options, for the fingerprint."""


def open_model(client: HttpClient, adapter: Adapter, options: ModelOptions) -> MessagesModel:
    """Asks the API for the model and counts a short text: what is missing is known before the first question."""
    facts = _ask_model(client, adapter)
    model = MessagesModel(client, adapter, options, facts)
    model.check_counts()
    client.rate_limit_wait = 0.0  # from now on the run decides
    return model


class MessagesModel:
    """One hosted model. Thread-safe."""

    asked_per: BatchUnit = "probe"

    def __init__(self, client: HttpClient, adapter: Adapter, options: ModelOptions, facts: ModelFacts) -> None:
        self.adapter = adapter
        self._client = client
        self._caches = DocumentCaches(client, adapter)
        self._options = options
        self._facts = facts
        self._counts = options.counts
        self._notes = list(facts.notes)
        self._mended: set[str] = set()
        """Refusals of what is no longer sent."""
        self.tokenizer: Tokenizer = (
            open_tokenizer(options.tokenizer) if options.tokenizer else ApproximateTokenizer(client.base_url)
        )
        settings = adapter.settings
        self.frame = Frame(
            before="",
            after="",
            form="chat",
            prefill=settings.prefill,
            fingerprint=digest(
                [adapter.provider, settings.model, settings.system, settings.prefill, settings.thinking]
            ),
            system=settings.system,
            turns=MESSAGE_TURNS,
        )

    @property
    def card(self) -> ModelCard:
        options, settings, notes = self._options, self.adapter.settings, list(self._notes)
        notes += settings.notes
        if self._counts:
            notes.append("lengths are the provider's own counts of each prompt; receipts decide")
        else:
            notes.append("lengths are estimates, as prompts are not counted; receipts say how long they were")
        if not self.is_greedy:
            notes.append("no greedy decoding: answers to the same question differ from run to run")
        if options.max_tokens is not None:
            notes.append(f"up to {options.max_tokens} output tokens, beyond the length where tasks allow fewer")
        return ModelCard(
            name=settings.model,
            window=options.window or self._facts.window,
            window_origin="window= in the model's name" if options.window else "stated by the API",
            fingerprints={
                "tokenizer": f"{'counts of' if self._counts else 'estimate for'} {self.adapter.provider}, "
                f"laid out by {self.tokenizer.fingerprint}",
                "template": self.frame.fingerprint,
                "server": self.adapter.provider,
                "weights": digest([settings.model, self._facts.name]),
                "decoding": digest([dict(options.options)]),
            },
            notes=tuple(notes),
            estimates_lengths=not self._counts,
        )

    @property
    def address(self) -> str:
        return self._client.base_url

    @property
    def is_greedy(self) -> bool:
        return self.adapter.settings.temperature == 0

    @property
    def max_tokens(self) -> int | None:
        """Output tokens of every request, in place of the task's."""
        return self._options.max_tokens

    @property
    def prefix_cache(self) -> PrefixCache:
        """The provider's, which holds more than any run; beginnings below its least size are not kept."""
        caching = self.adapter.caching
        return PrefixCache(
            tokens=UNLIMITED,
            min_tokens=caching.min_tokens,
            off=not self.adapter.settings.caching,
            primes=caching.primes or caching.objects,
            hours=caching.hours,
        )

    def tool_frame(self, tools: Sequence[Tool]) -> Frame:
        """Tools are sent beside the messages, and counted with them."""
        return replace(self.frame, fingerprint=digest([self.frame.fingerprint, *map(dict, tools)]))

    def close(self) -> None:
        self._caches.close()
        self._client.close()

    # --- asking

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        """One request for each probe."""
        return [self._ask(document, probe) for probe in probes]

    def prompt(self, document: Document, probe: Probe) -> Prompt:
        """A question as it is sent and counted."""
        allowance = self._options.max_tokens or probe.question.allowance
        least = self.adapter.caching.min_tokens
        marked = self.adapter.settings.caching and probe.cut_tokens >= least
        return prompt_of(document, probe, allowance, marked=marked)

    def open_batches(self) -> Batches:
        adapter = self.adapter
        return adapter.batches(BatchClient(self._client, adapter.key_name), self, adapter.settings.model).checked()

    def batch_request(self, document: Document, probe: Probe) -> tuple[str, bytes, Sent]:
        prompt = self.prompt(document, probe)
        path, body = self.adapter.request_body(prompt)
        data = msgspec.json.encode(body)
        return path, data, self._sent(document, probe, prompt, body, data)

    def batch_outcome(self, reply: BatchReply, question: Question, sent: Sent) -> Completion | Failure:
        outcome = self.outcome_of(HttpReply(reply.status, reply.body))
        if isinstance(outcome, Failure) and outcome.why == "refused_request":
            if self.adapter.adapts_to(outcome):
                self._mended.add(outcome.message)
            return msgspec.structs.replace(outcome, transient=outcome.message in self._mended)
        return outcome

    def _ask(self, document: Document, probe: Probe) -> Answer:
        began = time.perf_counter()
        prompt, primed = self.prompt(document, probe), 0
        for _ in range(ADAPTATIONS):
            path, body, written = self._caches.request(document, probe, prompt)
            data = msgspec.json.encode(body)
            outcome = self._send(path, data)
            primed += written
            lost = self._caches.answered(document, probe, outcome)
            if not (isinstance(outcome, Failure) and (lost or self.adapter.adapts_to(outcome))):
                break
        if primed and isinstance(outcome, Completion):
            outcome = msgspec.structs.replace(outcome, primed_tokens=primed)
        return Answer(self._sent(document, probe, prompt, body, data), outcome, time.perf_counter() - began)

    def _send(self, path: str, data: bytes) -> Completion | Failure:
        try:
            reply = self._client.post(self._client.base_url + path, data)
        except RequestFailed as error:
            return request_failure(error)
        return self.outcome_of(reply)

    def outcome_of(self, reply: HttpReply) -> Completion | Failure:
        """The outcome in the reply to a question."""
        return read_http(reply, self.adapter.read_reply, self.adapter.key_name)

    def _sent(self, document: Document, probe: Probe, prompt: Prompt, body: Mapping[str, Any], data: bytes) -> Sent:
        prefix_place = document.prefix_place(probe)
        appended = prefix_place == "prefill" and not self.adapter.settings.prefill
        return Sent(
            form="chat",
            prefix="appended" if appended else prefix_place,
            characters=prompt.characters,
            digest=digest_prompt(data),
            decoding=_decoding(body),
            notes=tuple(self.adapter.settings.notes),
        )

    # --- compaction

    @property
    def kept_reader(self) -> str:
        return f"{self.adapter.settings.model} at {self._client.base_url}"

    def compact_session(self, messages: Sequence[Mapping[str, str]], keep: int) -> KeptSession | Failure:
        """The part of a session that the API retains, if it has a compaction."""
        adapter = self.adapter
        if not isinstance(adapter, ProvidesCompaction):
            return Failure("refused_request", f"the API of {adapter.provider} has no compaction of its own")
        path, body, headers = adapter.compaction_body(messages, keep)
        try:
            url, data = self._client.base_url + path, msgspec.json.encode(body)
            reply = self._client.send("POST", url, data, headers=headers)
        except RequestFailed as error:
            return request_failure(error)

        def read(status: int, page: Json, wait: float | None) -> KeptSession | Failure:
            refusal = refusal_in(status, page, key_name=adapter.key_name, retry_after=wait)
            return refusal or adapter.read_compaction(page)

        kept = read_http(reply, read, adapter.key_name)
        if isinstance(kept, Failure) or not kept.items:
            return kept
        return replace(kept, reader=self.kept_reader)

    # --- counting

    def count_prompt(self, document: Document, probe: Probe) -> int | None:
        """The tokens of a question by the API's own count; None where it has none. Raises ServerAway where it may be
        asked later."""
        return self._count(self.prompt(document, probe)) if self._counts else None

    def count_text(self, text: str) -> int | None:
        return self._count(Prompt((Message("user", (Block(text),)),), 16)) if self._counts else None

    def check_counts(self) -> None:
        """Counts a short text. An API without counts is noted, a refused key or model is an error."""
        if not self._counts:
            return
        if self.count_text("How many tokens is this?") is None:
            self._counts = False

    def _count(self, prompt: Prompt) -> int | None:
        for _ in range(ADAPTATIONS):
            path, body = self.adapter.count_body(prompt)
            url = self._client.base_url + path
            reply = send_with_retries(self._client, "POST", url, msgspec.json.encode(body))
            page = decode_json(reply) or {}
            if reply.status == 200 and not error_in(page):
                return self.adapter.read_count(page)
            refusal = parse_refusal(reply, self.adapter.key_name)
            if not self.adapter.adapts_to(refusal):
                break
        if reply.status in (404, 405, 501):
            return None
        why = "the account has no credit" if refusal.why == "no_credit" else "the API does not count a prompt"
        what, where = f"{why}: {refusal.message}", f"POST {url}"
        if refusal.transient:
            raise ServerAway(what, where=where, rate_limited=refusal.why == "rate_limited")
        fix = _advice(refusal, self.adapter.key_name) or "write count=no to go by estimates and receipts"
        raise ServerError(what, where=where, fix=fix)


def _decoding(body: Mapping[str, Any]) -> dict[str, float | int | str | bool | None]:
    """The fields of a request that are no text."""
    texts = ("messages", "contents", "input", "system", "instructions", "systemInstruction", "model")
    kept: dict[str, float | int | str | bool | None] = {}
    for name, value in body.items():
        if name in texts:
            continue
        plain = isinstance(value, (int, float, str, bool)) or value is None
        kept[name] = len(value) if name == "tools" else value if plain else msgspec.json.encode(value).decode()
    return kept


def _ask_model(client: HttpClient, adapter: Adapter) -> ModelFacts:
    """The API's data about the model; nothing where it has no such page. Raises where key or model are refused."""
    url = client.base_url + adapter.model_path()
    reply = send_with_retries(client, "GET", url)
    page = decode_json(reply)
    if reply.status == 200:
        return adapter.read_model(page or {})
    refusal = adapter.read_reply(reply.status, page or {"error": {"message": excerpt(reply.body)}})
    assert isinstance(refusal, Failure)
    named = error_in(page or {}) is not None
    if (reply.status == 404 and not named) or reply.status in (405, 501):
        return ModelFacts(notes=("the API says nothing about this model: give its window as window=",))
    model = adapter.settings.model
    if reply.status == 404 and model in (listed := listed_models(client)):
        return adapter.read_model(listed[model])  # vLLM lists its models and has no page for each
    if reply.status == 404:
        what = f"the API has no model {model!r} for this key: {refusal.message}"
        raise ServerError(what, where=f"GET {url}", fix=named_models(client))
    what = f"the API refuses the model {model!r}: {refusal.message}"
    if refusal.transient:
        raise ServerAway(what, where=f"GET {url}", rate_limited=refusal.why == "rate_limited")
    raise ServerError(what, where=f"GET {url}", fix=_advice(refusal, adapter.key_name))


def _advice(refusal: Failure, key_name: str) -> str:
    if refusal.why == "no_credit":
        return NO_CREDIT_FIX
    if refusal.status == 401 or ("(the key is read from" in refusal.message and refusal.status == 400):
        return f"put a valid key into ${key_name}"
    if refusal.status == 403:
        return f"ask for access to the model, or use a key that has it in ${key_name}"
    return ""
