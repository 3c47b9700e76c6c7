"""`openai:` any OpenAI-compatible server, chat or completions.

    openai:NAME?base_url=http://127.0.0.1:8000/v1&api=chat&tokenizer=server

Opening asks the server what it is and finds the tokenizer, the chat template and the window; an error says what to do
when one is missing. Each probe is then sent once. Failures are classified here and retried by the run, and the server's
own count of the prompt is recorded (the receipt).
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from leadline.core.answers import NO_CREDIT_FIX, Answer, Completion, Failure, Sent
from leadline.core.batches import BatchReply
from leadline.core.contracts import BatchUnit, Model, ModelCard, ModelProvider, PrefixCache, Tokenizer
from leadline.core.errors import ServerError, TokenizerError, UsageError
from leadline.core.files import expand_path
from leadline.core.lengths import parse_length
from leadline.core.secrets import is_key, is_random, remember, secret_in
from leadline.core.seeds import digest
from leadline.core.types import AnswerTime, Continuation, Document, Frame, NextToken, Probe, Question, TokenNLL, Tool
from leadline.models.batch_http import BatchClient
from leadline.models.messages.adapter import Settings
from leadline.models.messages.keys import checked_variable, read_key
from leadline.models.messages.model import MessagesModel, ModelOptions, open_model
from leadline.models.openai.batches import OpenAIBatches
from leadline.models.openai.discovery import (
    ServerInfo,
    ask_preemptions,
    ask_prefix_cache,
    inspect_server,
    named_models,
    send_with_retries,
)
from leadline.models.openai.http import HttpClient, HttpReply, RequestFailed
from leadline.models.openai.next_tokens import NO_FRESH, next_tokens, time_answer, without_cache
from leadline.models.openai.replies import Exchange, decode_json, parse_reply, request_failure
from leadline.models.openai.requests import (
    CACHE_KEY_HOSTS,
    RequestWriter,
    checked_thinking,
    thinking_fields,
)
from leadline.models.openai.responses import ResponsesAdapter
from leadline.models.openai.scoring import Endpoint, server_ways
from leadline.models.openai.template import FrameFinder
from leadline.models.openai.tokenizer import ServerTokenizer, find_tokenizer
from leadline.models.prefix_scoring import FoundWays, ScoringWays
from leadline.text.chat import NOT_PREFILLED, adds_bos, can_prefill, completion_frame, opens_thinking, special_token

if TYPE_CHECKING:
    from leadline.core.types import Ids


OFFICIAL_HOST = "api.openai.com"
IN_ENVIRONMENT = "put the whole URL into an environment variable and give its name: base_url_env=NAME"


def _json_object(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


FIRST_ANSWER_SECONDS = 120.0
"""The timeout of the first small requests: some servers load the model only then."""
Tokens = Annotated[int, BeforeValidator(parse_length)]


class OpenAI(ModelProvider):
    """Any OpenAI-compatible server: vLLM, SGLang, llama.cpp, or a hosted one."""

    summary: ClassVar[str] = "any OpenAI-compatible server: vLLM, SGLang, llama.cpp, hosted"

    base_url: str = Field("https://api.openai.com/v1", description="URL of the server's API; usually ends in /v1")
    api: Literal["chat", "completions", "responses"] = Field(
        "chat", description="messages with the server's template, plain text, or OpenAI's Responses API"
    )
    tokenizer: str = Field("", description="PATH, server, bytes, whitespace or tiktoken:NAME; found if not given")
    template: str = Field("", description="a file or folder with the chat template, where the server cannot render it")
    thinking: Annotated[str, AfterValidator(checked_thinking)] | None = Field(
        None, description="how a thinking model is to think: on, off, low, medium, high, or a budget of tokens"
    )
    send: Literal["text", "ids"] = Field(
        "text", description="ids sends prompts as token ids, template included: nothing is rendered or tokenised again"
    )
    prefill: Literal["auto", "yes", "no"] = Field(
        "auto", description="prefill the start of the answer, or put it into the question"
    )
    window: Tokens | None = Field(None, description="context window, where the server does not state it")
    max_tokens: int | None = Field(None, ge=1, description="output tokens instead of the task's (thinking needs more)")
    temperature: float | None = Field(0.0, description="0 is greedy")
    timeout: float = Field(600.0, gt=0, le=1e6, description="seconds for a whole request")
    rate_limit_wait: float = Field(
        3600.0, ge=0, le=1e6, description="seconds to wait for a rate limit (429) at the start"
    )
    allow_tokenizer_mismatch: bool = Field(False, description="use a tokenizer that is not the server's")
    cache_key: Literal["auto", "yes", "no"] = Field(
        "auto", description="send prompt_cache_key, one for each document; auto sends it to hosts known to use it"
    )
    base_url_env: str = Field("", description="environment variable that holds base_url, where it has a key in it")
    headers_env: str = Field(
        "", description='environment variable with further headers, as JSON: {"Ocp-Apim-Subscription-Key": "..."}'
    )
    api_key_env: str = Field("OPENAI_API_KEY", description="environment variable that holds the key")
    extra: Annotated[dict[str, Any], BeforeValidator(_json_object)] = Field(
        {}, description='further fields of every request, as JSON: {"top_k": 1}'
    )

    def open_for_plan(self, name: str) -> Model:
        """Without an answer of the server too, if the tokenizer is given: lengths and costs need no more."""
        if self.api == "responses":
            return self.open(name)
        try:
            return self.open(name)
        except ServerError as error:
            if not name:
                raise
            if self.tokenizer in ("", "server"):
                fix = "to plan without the server, give tokenizer=FOLDER or tokenizer=tiktoken:NAME"
                raise ServerError(error.what, where=error.where, fix=f"{error.fix}; {fix}") from None
            note = f"{error.what}; planned without the server: its window and what it adds to prompts are not known"
            return OpenAIModel(
                self, self._client(), ServerInfo("plain", name, offline_reason=error.what, notes=(note,))
            )

    def _client(self) -> HttpClient:
        key = self._key()
        headers = ({"Authorization": f"Bearer {key}"} if key else {}) | self._headers()
        url, query = self._checked_url(), ""
        if self.base_url_env:
            url, _, query = url.partition("?")
        return HttpClient(url, headers=headers, timeout=self.timeout, query=query)

    def _headers(self) -> dict[str, str]:
        """Those of the environment variable `headers_env`. Their values are secrets."""
        if not self.headers_env:
            return {}
        text, where = os.environ.get(self.headers_env, ""), f"${self.headers_env}"
        try:
            table = json.loads(text)
            headers = {str(name): value.strip() for name, value in table.items()}
        except (ValueError, AttributeError):
            fix = f'set {where} to a JSON object of headers: {{"X-Api-Key": "..."}}'
            raise UsageError("headers_env does not name a JSON object of texts", where=where, fix=fix) from None
        for name, value in headers.items():
            remember(value)
            remember(value.rpartition(" ")[2])
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or not (value.isascii() and value.isprintable()):
                raise UsageError("a header has characters that no header has", where=where, fix="set it again")
        return headers

    @model_validator(mode="after")
    def _has_no_secret(self) -> OpenAI:
        """Options are part of the model's name, which is written to every record: secrets are refused before that."""
        if self.base_url_env and "base_url" in self.model_fields_set:
            raise UsageError("base_url and base_url_env exclude each other", where="base_url_env", fix="leave out one")
        url = self.base_url
        path, *after = re.split(r"[?#]", url, maxsplit=1)
        parts = [part for part in unquote(path).partition("://")[2].split("/")[1:] if is_key(part) or is_random(part)]
        if after:
            for pair in re.split("[&#]", after[0]):
                remember(pair.partition("=")[2] or pair)  # names such as `code` are words of ordinary texts
            what = "base_url has a query or fragment, which may hold a key"
            raise UsageError(what, where="base_url", fix=IN_ENVIRONMENT)
        if parts:
            remember(parts[0])
            raise UsageError("a part of base_url looks like a key", where="base_url", fix=IN_ENVIRONMENT)
        if secret := secret_in(self.extra):
            remember(secret)
            raise UsageError(
                "a value in extra looks like a secret, and options are written to disk",
                where="extra",
                fix="send it as a header: put the headers into an environment variable as JSON and give its name, "
                "headers_env=NAME; a key of the API goes into the variable that api_key_env names",
            )
        return self

    def open(self, name: str) -> Model:
        return self._open_responses(name) if self.api == "responses" else self.open_server(name)

    def _open_responses(self, name: str) -> MessagesModel:
        beside = [option for option in ("send", "template", "prefill") if option in self.model_fields_set]
        if beside or not name:
            what = f"api=responses has no {beside[0]}" if beside else "api=responses needs the name of the model"
            raise UsageError(
                what, where=beside[0] if beside else "model", fix="leave it out" if beside else "write openai:NAME"
            )
        client = self._client()
        host = urlsplit(client.base_url).hostname or ""
        official = host == OFFICIAL_HOST
        try:
            if official and not client.sends_key:
                what = f"there is no key: ${self.api_key_env} is not set"
                raise UsageError(what, where="model", fix=f"put the key into ${self.api_key_env}")
            client.rate_limit_wait = self.rate_limit_wait
            keys = self.cache_key == "yes" or (self.cache_key == "auto" and host in CACHE_KEY_HOSTS)
            settings = Settings(name, self.temperature, self.thinking, extra=self.extra, caching=self.cache_key != "no")
            adapter = ResponsesAdapter(settings, self.api_key_env, official=official, cache_key=keys)
            options = ModelOptions(self.tokenizer, self.window, self.max_tokens, options=self.model_dump())
            return open_model(client, adapter, options)
        except BaseException:
            client.close()
            raise

    def open_server(self, name: str) -> OpenAIModel:
        """A model that is asked by chat or completions."""
        client = self._client()
        client.rate_limit_wait = self.rate_limit_wait
        try:
            model = OpenAIModel(self, client, inspect_server(client, name))
            client.rate_limit_wait = 0.0  # from now on the run decides
            return model
        except (TypeError, ValueError, KeyError, IndexError, AttributeError, OverflowError) as error:
            client.close()
            raise ServerError(
                f"the server's replies cannot be read ({type(error).__name__}: {str(error)[:200]})",
                where=client.base_url,
            ) from error
        except BaseException:
            client.close()
            raise

    def _checked_url(self) -> str:
        base_url = self._given_url()
        try:
            url = urlsplit(base_url)
            is_address = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
            (url.hostname or "").encode("idna")
        except ValueError:  # http://[::1, a port of letters, a name that is none
            raise _not_a_url(base_url) from None
        if url.username or url.password:
            # The URL is part of the model's name, and that is written into every record.
            raise UsageError("base_url holds a name or password", where="base_url", fix="keep keys in the environment")
        if not is_address:
            raise _not_a_url(base_url)
        return base_url

    def _given_url(self) -> str:
        if not self.base_url_env:
            return self.base_url
        base_url = os.environ.get(self.base_url_env, "").strip()
        if not base_url:
            fix = "set it to the URL of the server's API, or give base_url"
            raise UsageError(f"the environment variable {self.base_url_env} is not set", where="base_url_env", fix=fix)
        remember(base_url)
        path, _, query = base_url.partition("?")
        for _, value in parse_qsl(query):
            remember(value)
        for part in path.split("/")[3:]:
            if is_key(part) or is_random(part):
                remember(part)
        return base_url

    @field_validator("api_key_env", "base_url_env", "headers_env")
    @classmethod
    def _is_variable(cls, name: str, info: ValidationInfo) -> str:
        if not name and info.field_name != "api_key_env":
            return name
        return checked_variable(name, str(info.field_name))

    def _key(self) -> str:
        return read_key(self.api_key_env, f"{self.base_url} {json.dumps(self.extra)}")


def _not_a_url(text: str) -> UsageError:
    return UsageError(f"{text[:200]!r} is not a URL", where="base_url", fix="write http://127.0.0.1:8000/v1")


class OpenAIModel:
    """One model on one server. Thread-safe."""

    asked_per: BatchUnit = "probe"

    def __init__(self, options: OpenAI, client: HttpClient, server: ServerInfo) -> None:
        self.server = server
        self._options = options
        self._client = client
        self._chat = options.api == "chat"
        host = urlsplit(client.base_url).hostname or ""
        thinking = thinking_fields(options.thinking, server.kind, host, chat=self._chat)
        cache_keys = options.cache_key == "yes" or (options.cache_key == "auto" and host in CACHE_KEY_HOSTS)
        self._sends_ids = options.send == "ids"
        self._mended: set[str] = set()
        """Refusals of fields that are no longer sent."""
        self._requests = RequestWriter(
            server, self._chat, thinking, options.temperature, cache_keys, options.extra, ids=self._sends_ids
        )
        self._notes: list[str] = [*server.notes, *([thinking.note] if thinking.note else [])]
        if "api_key_env" in options.model_fields_set and not os.environ.get(options.api_key_env, "").strip():
            self._notes.append(f"the environment variable {options.api_key_env} is not set: no key is sent")
        self.tokenizer: Tokenizer
        self.tokenizer, note = find_tokenizer(
            client, server, options.tokenizer, allow_mismatch=options.allow_tokenizer_mismatch
        )
        self._notes += [note] if note else []
        self.frame: Frame = self._find_frame()
        unknown = self._chat and not self.frame.after
        self._opened_thinking = None if unknown else opens_thinking(self.frame.after)
        if self._sends_ids and thinking.request:
            what = f"thinking={options.thinking} is a field of the chat endpoint, which send=ids does not use"
            raise UsageError(what, where="send", fix="leave out one of them, or use thinking=on or off")
        if self._sends_ids and not server.offline_reason:
            self._check_ids(unknown=unknown)

    @cached_property
    def _logprobs(self) -> FoundWays:
        endpoint = Endpoint(self._client, self.server.model, self._options.api_key_env, self._options.extra)
        return server_ways(endpoint, self.server, lambda: self.prefix_cache.block)

    @property
    def is_greedy(self) -> bool:
        return self._requests.temperature == 0

    @cached_property
    def card(self) -> ModelCard:
        server, options, notes = self.server, self._options, list(self._notes)
        if options.max_tokens is not None:
            notes.append(f"up to {options.max_tokens} output tokens, beyond the length where tasks allow fewer")
        if options.temperature is not None and self._requests.temperature is None:
            notes.append("the server accepts no temperature: answers may differ from run to run")
        if options.window and server.window and options.window > server.window:
            notes.append(f"the server states a window of {server.window:,} tokens")
        fingerprints = {
            "tokenizer": self.tokenizer.fingerprint,
            "template": self.frame.fingerprint,
            "server": f"{server.kind} {server.version}".strip(),
            "weights": digest([server.model, Path(server.weights).name, dict(server.revision)]),
            "decoding": digest([self._requests.decoding(options.max_tokens or 0), options.thinking, options.extra]),
        }
        window = options.window or server.window
        return ModelCard(
            name=server.model,
            window=window,
            window_origin="window= in the model's name" if options.window else "stated by the server",
            constants=dict(server.constants),
            fingerprints=fingerprints,
            notes=tuple(notes),
            slots=server.slots,
            plan_only=server.offline_reason,
        )

    def answer(self, document: Document, probes: Sequence[Probe]) -> list[Answer]:
        """One request for each probe."""
        return [self._ask(document, probe) for probe in probes]

    def nll(
        self, ids: Ids, continuations: Sequence[Continuation] = (), spans: Sequence[tuple[int, int]] = ()
    ) -> TokenNLL | Failure:
        return self._logprobs.nll(ids, continuations, spans)

    def logprob_ways(self, sample: Ids) -> ScoringWays | Failure:
        """How the server gives log-probabilities, found by asking about a few tokens."""
        return self._logprobs.ways(sample)

    def next_tokens(
        self, ids: Ids, cuts: Sequence[int], count: int, *, fresh: bool = False
    ) -> list[NextToken] | Failure:
        fields = without_cache(self.server.kind) if fresh else {}
        if fields is None:
            return Failure("unsupported", NO_FRESH)
        return next_tokens(self._ask_ids, self.tokenizer, ids, cuts, count, fields)

    def time_answer(self, ids: Ids, tokens: int) -> AnswerTime | Failure:
        return time_answer(self._ask_ids, ids, tokens, without_cache(self.server.kind) or {})

    def keep_margins(self) -> None:
        self._requests.margins = True

    def _ask_ids(self, ids: Sequence[int], fields: Mapping[str, Any]) -> Exchange:
        return self.exchange(ids, fields=fields)

    def exchange(
        self,
        text: str | Sequence[int],
        prefix: str = "",
        *,
        seconds: float | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> Exchange:
        """Send one text as a run would, with `fields` in place of its own, and return everything that comes back.

        Token ids go to the completions endpoint as they are, without template or special tokens.
        """
        began = time.perf_counter()
        chat = self._chat and isinstance(text, str)
        body = self._requests.with_fields(text, prefix, self.frame, chat=chat, fields=fields or {})
        outcome, reply = self._send(body, prefix, chat=chat, seconds=seconds)
        took = time.perf_counter() - began
        if reply is None:
            return Exchange(outcome, {}, {}, took)
        return Exchange(outcome, decode_json(reply) or {}, reply.headers, took)

    def server_tokenizer(self) -> ServerTokenizer:
        """The server's own tokenizer, whichever one is used here."""
        return ServerTokenizer(self._client, self.server)

    @cached_property
    def plain(self) -> Frame:
        """The tokenizer's beginning-of-text token, if any; the server adds nothing to a prompt of token ids."""
        named = expand_path(self._options.tokenizer) if self._options.tokenizer else self.server.folder
        folder = named if named is not None and named.is_dir() else None
        return completion_frame(special_token(folder, "bos_token") if folder and adds_bos(folder) else "")

    @cached_property
    def prefix_cache(self) -> PrefixCache:
        """The server's data about its prefix cache, requested when it is first needed."""
        return ask_prefix_cache(self._client, self.server)

    def preemptions(self) -> int | None:
        """The number of requests that the server has interrupted because its KV cache was full, if it states it."""
        return ask_preemptions(self._client, self.server)

    @property
    def address(self) -> str:
        return self._client.base_url

    @property
    def max_tokens(self) -> int | None:
        """Output tokens of every request, in place of the task's."""
        return self._options.max_tokens

    def close(self) -> None:
        self._client.close()

    def _ask(self, document: Document, probe: Probe) -> Answer:
        began = time.perf_counter()
        prefix, body, sent = self._written(document, probe)
        tools = bool(document.tools)
        outcome, _ = self._send(body, prefix, chat=self._asks_chat, tools=tools)
        if isinstance(outcome, Failure) and self._requests.leaves_out(sent, outcome):
            prefix, body, sent = self._written(document, probe)
            outcome, _ = self._send(body, prefix, chat=self._asks_chat, tools=tools)
        return Answer(sent, outcome, time.perf_counter() - began)

    @property
    def _asks_chat(self) -> bool:
        """Whether questions go to the chat endpoint."""
        return self._chat and not self._sends_ids

    def _written(self, document: Document, probe: Probe) -> tuple[str, bytes, Sent]:
        """The prefilled start of the answer, the request for a question, and the data about it for its record."""
        prefix = probe.question.answer_prefix if document.frame.prefill else ""
        allowance = self._options.max_tokens or probe.question.allowance
        return prefix, *self._requests.for_probe(document, probe, prefix, allowance)

    def open_batches(self) -> OpenAIBatches:
        batches = OpenAIBatches(BatchClient(self._client, self._options.api_key_env), self)
        return batches if self.server.offline_reason else batches.checked()  # offline: for a plan

    def batch_request(self, document: Document, probe: Probe) -> tuple[str, bytes, Sent]:
        _, body, sent = self._written(document, probe)
        return self._url(self._asks_chat).removeprefix(self._client.base_url), body, sent

    def batch_outcome(self, reply: BatchReply, question: Question, sent: Sent) -> Completion | Failure:
        prefix = question.answer_prefix if sent.prefix == "prefill" else ""
        http, tools = HttpReply(reply.status, reply.body), "tools" in sent.decoding
        outcome = self._parsed(http, prefix, chat=self._asks_chat, tools=tools)
        if isinstance(outcome, Failure) and outcome.why == "refused_request":
            if self._requests.leaves_out(sent, outcome) or self._requests.adapts_to(outcome):
                self._mended.add(outcome.message)
            return msgspec.structs.replace(outcome, transient=outcome.message in self._mended)
        return outcome

    def _send(
        self, body: bytes, prefix: str, *, chat: bool, seconds: float | None = None, tools: bool = False
    ) -> tuple[Completion | Failure, HttpReply | None]:
        """The outcome of one request, and the reply where there is one."""
        try:
            reply = self._client.send("POST", self._url(chat), body, timeout=seconds)
        except RequestFailed as error:
            return request_failure(error), None
        return self._parsed(reply, prefix, chat=chat, tools=tools), reply

    def _parsed(self, reply: HttpReply, prefix: str, *, chat: bool, tools: bool) -> Completion | Failure:
        opened = self._opened_thinking if chat or self._sends_ids else False
        key_name = self._options.api_key_env
        return parse_reply(reply, chat=chat, prefix=prefix, opened_thinking=opened, key_name=key_name, tools=tools)

    def _url(self, chat: bool) -> str:
        return f"{self._client.base_url}/{'chat/completions' if chat else 'completions'}"

    def _find_frame(self) -> Frame:
        options = self._options
        named = expand_path(options.template or options.tokenizer)
        is_local = bool(options.template or options.tokenizer) and named.exists()
        if options.template and not is_local:
            raise TokenizerError(f"there is no chat template at {options.template}", where="template")
        folder = named if is_local else self.server.folder
        thinking = None if options.thinking is None else options.thinking != "off"
        finder = FrameFinder(
            self._client,
            self.server,
            self.tokenizer,
            self._requests.thinking.template,
            thinking,
            folder,
            self._prompt_tokens,
            options.allow_tokenizer_mismatch,
        )
        self._finder = finder
        if not self._chat:
            frame, notes = finder.completion()
        else:
            prefill = options.prefill == "yes" or (options.prefill == "auto" and self.server.kind != "plain")
            frame, notes = finder.chat(prefill=prefill and (options.prefill == "yes" or not thinking))
            if frame.prefill and options.prefill == "auto" and not can_prefill(frame, thinking):
                frame, notes = finder.chat(prefill=False)
            if not frame.prefill:
                self._notes.append(NOT_PREFILLED)
        self._notes.extend(notes)
        return frame

    def tool_frame(self, tools: Sequence[Tool]) -> Frame:
        return self._finder.with_tools(tools)

    def _prompt_tokens(self, text: str, prefix: str) -> int | None:
        """The server's own count of a short prompt; None where it has none, or did not answer before."""
        if self.server.offline_reason:
            return None
        url = self._url(self._chat)
        parse = partial(parse_reply, chat=self._chat, key_name=self._options.api_key_env)

        def failure_in(reply: HttpReply) -> Failure | None:
            outcome = parse(reply)
            return outcome if isinstance(outcome, Failure) else None

        while True:
            body = self._requests.small(text, prefix)
            seconds = FIRST_ANSWER_SECONDS
            reply = send_with_retries(self._client, "POST", url, body, seconds=seconds, failure_in=failure_in)
            outcome = parse(reply)
            if isinstance(outcome, Completion):
                return outcome.prompt_tokens
            if not self._requests.adapts_to(outcome):
                break
        raise ServerError(
            f"the server does not answer a small request: {outcome.message}", where=url, fix=self._advice(outcome)
        )

    def _check_ids(self, *, unknown: bool) -> None:
        """Refuses send=ids where the server does not read the ids that it is given, or where the ids of a chat prompt
        are not known here."""
        url, fix = self._url(chat=False), "leave out send=ids"
        if unknown or self.frame.extra_tokens:
            what = "send=ids needs the chat template, and it is not known here"
            raise UsageError(what, where="send", fix=f"give template=FOLDER or template=FILE, or {fix}")
        ids = self.tokenizer.encode(self.frame.before + "Say yes." + self.frame.after)
        parse = partial(parse_reply, chat=False, key_name=self._options.api_key_env)
        body = self._requests.of_ids(ids)
        outcome = parse(send_with_retries(self._client, "POST", url, body, seconds=FIRST_ANSWER_SECONDS))
        if isinstance(outcome, Failure):
            raise ServerError(f"the server takes no token ids: {outcome.message}", where=url, fix=fix)
        if outcome.prompt_tokens is not None and outcome.prompt_tokens != len(ids):
            what = f"the server read {outcome.prompt_tokens} tokens where {len(ids)} token ids were sent"
            raise ServerError(what, where=url, fix=fix)

    def _advice(self, failure: Failure) -> str:
        if failure.why == "no_credit":
            return NO_CREDIT_FIX
        if failure.status in (401, 403):
            name = self._options.api_key_env
            return f"${name} is set, and its key is refused" if os.environ.get(name, "").strip() else f"set ${name}"
        if failure.status == 404 and self.server.suggested_url:
            return f"write base_url={self.server.suggested_url}"
        if failure.status == 404 and self.server.model in failure.message:
            return named_models(self._client)
        if failure.status == 404:
            return f"api={'completions' if self._chat else 'chat'} may be what this server has; or correct base_url"
        return ""
