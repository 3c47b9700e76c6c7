"""A server's data about itself before the first question: its kind, its model, its window.

Each kind is recognised by an endpoint that only it has: vLLM by /version, llama.cpp by /props, SGLang by
/get_server_info (/server_info in newer versions). Any other server is "plain": only OpenAI's own API is used with it.

How much its prefix cache holds: vLLM states the blocks in /metrics, SGLang the tokens in /get_server_info, llama.cpp
its slots in /props. Each slot of llama.cpp keeps the last prompt it has read, and a request goes to the slot that has
most of its prompt. No other server says anything.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from leadline.core.activity import waiting_for
from leadline.core.answers import Failure
from leadline.core.backoff import Attempts, Backoff
from leadline.core.contracts import PrefixCache
from leadline.core.errors import ServerAway, ServerError, UnknownName
from leadline.models.architecture import read_constants
from leadline.models.openai.http import HttpClient, HttpReply, RequestFailed
from leadline.models.openai.replies import decode_json, error_in, excerpt, format_error, parse_refusal, request_failure

ServerKind = Literal["plain", "vllm", "sglang", "llamacpp"]

ATTEMPTS = 5
"""At a small question about the server; those at a sample are a limit of the run."""
OPENING_SECONDS = 30.0
"""The timeout of small questions about the server, where that of a sample may be ten minutes."""
SMALL_BYTES = 65_536
_NO_SERVER = re.compile("refused|name or service", re.IGNORECASE)
"""Connection errors that are not worth a retry."""
_ADVICE = {
    "connection": "start the server, or correct base_url (it usually ends in /v1)",
    "timeout": "the server does not answer: wait until it has loaded its model, or start it again",
}
HOSTED_LEAST_TOKENS = 1024
"""Hosted servers cache no shorter prompts (OpenAI, Gemini Flash, most of Anthropic)."""
_CONFIG = re.compile(r"^vllm:cache_config_info\{(.*)\} ", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_WINDOW_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The known facts about the server and the model it serves."""

    kind: ServerKind
    model: str
    """The model's name in requests."""
    window: int | None = None
    version: str = ""
    weights: str = ""
    """The server's source of the model: a folder, a file or a hub name."""
    folder: Path | None = None
    """The model's folder, where it is readable on this machine too."""
    vocabulary: int | None = None
    constants: Mapping[str, int] = field(default_factory=dict)
    """Sizes of the architecture, where the server or its folder tells them."""
    revision: Mapping[str, Any] = field(default_factory=dict)
    """Values that differ between sets of weights."""
    props: Mapping[str, Any] = field(default_factory=dict)
    """The reply of llama.cpp's /props."""
    offline_reason: str = ""
    """The reason why the server did not answer, so that nothing is known about it; empty if it did."""
    suggested_url: str = ""
    """The URL that does list models, when base_url does not: probably the intended one."""
    notes: tuple[str, ...] = ()

    @property
    def slots(self) -> int | None:
        """The number of requests that llama.cpp answers at once, each in a slot of its own. Others do not state it."""
        slots = self.props.get("total_slots")
        return slots if type(slots) is int and slots > 0 else None

    def schema_fields(self, schema: Mapping[str, Any], *, chat: bool) -> dict[str, Any]:
        """The fields that make this server follow a JSON schema; nothing where no way is known.

        Hosted servers may refuse a bound on the length of a string, so it is sent to the others only.
        """
        if self.kind == "plain":
            parts = {
                name: {k: v for k, v in part.items() if k != "maxLength"} for name, part in schema["properties"].items()
            }
            schema = {**schema, "properties": parts}
        if chat:
            form = {"name": "reply", "strict": True, "schema": schema}
            return {"response_format": {"type": "json_schema", "json_schema": form}}
        if self.kind == "vllm":
            return {"structured_outputs": {"json": schema}}
        return {} if self.kind == "plain" else {"json_schema": schema}


def inspect_server(client: HttpClient, name: str) -> ServerInfo:
    """Ask a server what it is. Raises ServerError when it does not answer or does not serve `name`."""
    entries = _models(client)
    if entries is None:
        note = "the server lists no models: its name for this one could not be checked"
        return ServerInfo("plain", _require_name(name, client), suggested_url=_find_api(client), notes=(note,))
    kind, page = _kind(client, entries)
    entry, notes = _entry(entries, name, kind, client)
    model = str(entry.get("id") or name)
    weights = str(page.get("model_path") or entry.get("root") or "")
    tokenizer = str(page.get("tokenizer_path") or weights)
    raw_meta = entry.get("meta")
    meta: Mapping[str, Any] = raw_meta if isinstance(raw_meta, Mapping) else {}
    return ServerInfo(
        kind=kind,
        model=model,
        window=_window(page.get("default_generation_settings"), entry, meta, page),
        version=str(page.get("version") or page.get("build_info") or ""),
        weights=weights,
        folder=_readable(tokenizer),
        constants=_constants(meta, _readable(tokenizer)),
        vocabulary=meta.get("n_vocab") if isinstance(meta.get("n_vocab"), int) else None,
        revision={k: meta[k] for k in ("n_params", "size", "ftype") if k in meta},
        props=page if kind == "llamacpp" else {},
        notes=notes,
    )


def ask_json(client: HttpClient, method: str, url: str, body: bytes | None = None) -> dict[str, Any]:
    """The reply as a JSON object, with retries; raises ServerError when there is none."""
    reply = send_with_retries(client, method, url, body)
    page = decode_json(reply)
    if reply.status == 200 and page is not None:
        return dict(page)
    message = format_error(error_in(page) or page) if page is not None else excerpt(reply.body)
    what, where = f"the server answers {reply.status}: {message}", f"{method} {url}"
    failure = _failure_in(reply)
    if failure is not None and failure.transient:
        raise ServerAway(what, where=where, rate_limited=failure.why == "rate_limited")
    raise ServerError(what, where=where)


def _failure_in(reply: HttpReply) -> Failure | None:
    return None if reply.status == 200 else parse_refusal(reply)


def send_with_retries(
    client: HttpClient,
    method: str,
    url: str,
    body: bytes | None = None,
    *,
    seconds: float | None = None,
    failure_in: Callable[[HttpReply], Failure | None] = _failure_in,
) -> HttpReply:
    """One reply, asked for again while `failure_in` it may pass. For questions about the server, not samples; they have
    the waits of samples, and fewer attempts. Raises ServerAway where there is none; a server that is not there, and one
    that hangs, are not asked again."""
    timeout = min(seconds or OPENING_SECONDS, client.timeout) if len(body or b"") <= SMALL_BYTES else client.timeout
    backoff = Backoff(ATTEMPTS, timeout=client.timeout, rate_limit_wait=client.rate_limit_wait)
    attempts = Attempts(backoff)
    while True:
        try:
            reply = client.send(method, url, body, timeout=timeout)
        except RequestFailed as error:
            failure = request_failure(error)
            is_final = bool(error.fix) or error.reason == "timeout" or _NO_SERVER.search(str(error)) is not None
            wait = None if is_final else attempts.wait_after([failure])
            if wait is None:
                raise ServerAway(
                    str(error) if error.fix else f"no server answers: {error}",
                    where=url,
                    fix=error.fix or _ADVICE.get(error.reason, "correct base_url (it usually ends in /v1)"),
                ) from None
            why = str(error.reason)
        else:
            refusal = failure_in(reply)
            if refusal is None or not backoff.may_pass(refusal):
                return reply
            backoff.note([refusal])
            wait = attempts.wait_after([refusal])
            if wait is None:
                return reply
            why = f"a reply of status {reply.status}"
        with waiting_for(partial("another attempt after {}: {} {}".format, why, method, url)):
            time.sleep(wait.drawn_out())


# --- list of models -----------------------------------------------------------------------------


def _models(client: HttpClient) -> list[dict[str, Any]] | None:
    """The models a server lists, or None where it has no such list. A missing /v1 is added to base_url."""
    reply = send_with_retries(client, "GET", f"{client.base_url}/models")
    if _listing(reply) is None and not client.base_url.endswith("/v1"):
        second = send_with_retries(client, "GET", f"{client.base_url}/v1/models")
        if _listing(second) is not None:
            client.base_url += "/v1"
            reply = second
    listing = _listing(reply)
    if listing is not None:
        return listing
    where = f"GET {client.base_url}/models"
    if reply.status in (401, 403):
        raise ServerError(
            f"the server refuses the key ({reply.status})" if client.sends_key else f"no key was sent ({reply.status})",
            where=where,
            fix="put the right key into the environment variable that api_key_env names (OPENAI_API_KEY if not given)"
            if client.sends_key
            else "set the environment variable that api_key_env names (OPENAI_API_KEY if not given): it is not set",
        )
    body = decode_json(reply)
    if reply.status in (404, 405) and body is not None:
        return None
    if body is None:
        what = "a web page" if reply.looks_like_html else "something that is not JSON"
        raise ServerError(
            f"the server answers with {what}, not as an OpenAI-compatible API (status {reply.status})",
            where=where,
            fix="correct base_url: it usually ends in /v1",
        )
    raise ServerError(f"the server answers {reply.status}: {format_error(error_in(body) or body)}", where=where)


MOST_NAMED = 12


def listed_models(client: HttpClient) -> dict[str, Mapping[str, Any]]:
    """The server's data about each model in its list; empty where it has no list."""
    page = decode_json(send_with_retries(client, "GET", f"{client.base_url}/models")) or {}
    entries = [entry for entry in page.get("data") or page.get("models") or () if isinstance(entry, dict)]
    named = [(entry.get("id") or entry.get("name"), entry) for entry in entries]
    return {str(name).removeprefix("models/"): entry for name, entry in named if name}


def named_models(client: HttpClient) -> str:
    """The models that the key can use, for the fix of an error."""
    names = [*listed_models(client)]
    return f"it has {', '.join(names[:MOST_NAMED])}" if names else "correct the name of the model"


def _find_api(client: HttpClient) -> str:
    """The URL of this server's API, where base_url is another page of the same server; empty if not found."""
    url = urlsplit(client.base_url)
    before, v1, _ = url.path.partition("/v1/")
    for path in dict.fromkeys((f"{before}/v1" if v1 else "/v1", "/v1")):
        candidate = f"{url.scheme}://{url.netloc}{path}"
        if candidate == client.base_url:
            continue
        if _listing(send_with_retries(client, "GET", f"{candidate}/models")) is not None:
            return candidate
    return ""


def _listing(reply: HttpReply) -> list[dict[str, Any]] | None:
    body = decode_json(reply) if reply.status == 200 else None
    data = body.get("data") if body is not None else None
    return [e for e in data if isinstance(e, dict)] if isinstance(data, list) else None


def _entry(
    entries: list[dict[str, Any]], name: str, kind: ServerKind, client: HttpClient
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The listed model with this name. vLLM, SGLang and llama.cpp list every model they serve; others may not."""
    if not name and len(entries) == 1:
        return entries[0], ()
    _require_name(name, client, entries)
    for entry in entries:
        aliases = entry.get("aliases")
        if name == entry.get("id") or (isinstance(aliases, list) and name in aliases):
            return {**entry, "id": name}, ()
    if kind != "plain":
        raise UnknownName("model", name, [str(e.get("id")) for e in entries], where=f"{client.base_url}/models")
    return {"id": name}, (f"the server does not list a model {name!r}",)


def _require_name(name: str, client: HttpClient, entries: list[dict[str, Any]] | None = None) -> str:
    if not name:
        served = ", ".join(str(e.get("id")) for e in (entries or [])[:10])
        raise ServerError(
            "no model is named",
            where=client.base_url,
            fix=f"write openai:NAME?base_url=...{'; served: ' + served if served else ''}",
        )
    return name


# --- kind of server -----------------------------------------------------------------------------


def _kind(client: HttpClient, entries: list[dict[str, Any]]) -> tuple[ServerKind, dict[str, Any]]:
    """The kind of server, with the reply of the endpoint that identified it."""
    owners = {str(e.get("owned_by", "")).lower() for e in entries}
    order: list[ServerKind] = ["llamacpp", "sglang", "vllm"]
    order.sort(key=lambda kind: kind not in owners)
    if not owners & set(order) and client.base_url.startswith("https://api."):
        return "plain", {}  # a hosted service
    if "vllm" not in owners and not any("max_model_len" in e for e in entries):
        order.remove("vllm")  # many servers have a /version
    for kind in order:
        page = _page_of(client, kind)
        if page is not None:
            return kind, page
    return "plain", {}


def _page_of(client: HttpClient, kind: ServerKind) -> dict[str, Any] | None:
    root = client.root_url
    if kind == "llamacpp":
        page = _page(client, f"{root}/props")
        return page if page is not None and "default_generation_settings" in page else None
    if kind == "sglang":
        info = _sglang_info(client)
        if info is None or not {"context_length", "max_total_num_tokens", "tp_size"} & set(info):
            return None
        model = _page(client, f"{root}/get_model_info") or _page(client, f"{root}/model_info") or {}
        return {**info, **model}
    page = _page(client, f"{root}/version")
    return page if page is not None and "version" in page else None


def _sglang_info(client: HttpClient) -> dict[str, Any] | None:
    return _page(client, f"{client.root_url}/get_server_info") or _page(client, f"{client.root_url}/server_info")


def _page(client: HttpClient, url: str) -> dict[str, Any] | None:
    reply = send_with_retries(client, "GET", url)
    page = decode_json(reply) if reply.status == 200 else None
    return dict(page) if page is not None else None


def _window(*replies: Any) -> int | None:
    """The first context window stated in these replies."""
    for reply in replies:
        for name in _WINDOW_NAMES:
            value = reply.get(name) if isinstance(reply, Mapping) else None
            if type(value) is int and 0 < value < 2**63:
                return value
    return None


def _constants(meta: Mapping[str, Any], folder: Path | None) -> dict[str, int]:
    """From the model's config.json where it is on this machine; llama.cpp states the length of the training."""
    trained = meta.get("n_ctx_train")
    stated = {"training length": trained} if type(trained) is int and trained > 0 else {}
    return stated | (read_constants(folder) if folder is not None else {})


def _readable(path: str) -> Path | None:
    folder = Path(path) if path and "\0" not in path else None
    return folder if folder is not None and folder.is_absolute() and (folder / "tokenizer.json").is_file() else None


# --- prefix cache -------------------------------------------------------------------------------


def ask_prefix_cache(client: HttpClient, server: ServerInfo) -> PrefixCache:
    """A server that does not answer this question has a cache of unknown size."""
    if server.kind == "llamacpp":
        return PrefixCache(slots=server.slots or 1)
    try:
        if server.kind == "vllm":
            reply = send_with_retries(client, "GET", f"{client.root_url}/metrics")
            return parse_vllm_metrics(reply.body.decode("utf-8", "replace")) if reply.status == 200 else PrefixCache()
        if server.kind == "sglang":
            page = _sglang_info(client) or {}
            tokens, off = page.get("max_total_num_tokens"), page.get("disable_radix_cache") is True
            return PrefixCache(tokens=tokens if type(tokens) is int and tokens > 0 else None, off=off)
    except ServerError:
        return PrefixCache()
    return PrefixCache(min_tokens=HOSTED_LEAST_TOKENS)


def parse_vllm_metrics(text: str) -> PrefixCache:
    """Several engines (data parallel) have a cache each, and any of them may get a document: the smallest counts."""
    caches = []
    for config in _CONFIG.findall(text):
        labels = dict(_LABEL.findall(config))
        block = _count(labels.get("block_size", ""))
        stated = _count(labels.get("kv_cache_size_tokens", ""))
        tokens = stated or _count(labels.get("num_gpu_blocks", "")) * block
        off = labels.get("enable_prefix_caching", "").lower() == "false"
        caches.append(PrefixCache(tokens=tokens or None, block=max(1, block), off=off))
    return min(caches, key=lambda cache: cache.tokens or 0, default=PrefixCache())


_PREEMPTED = re.compile(
    r"^(?:vllm:num_preemptions(?:_total)?|sglang:num_retracted_re(?:qs|quests)(?:_total)?)(?:\{[^}\n]*\})? "
    r"([0-9][0-9.eE+]*)$",
    re.MULTILINE,
)


def ask_preemptions(client: HttpClient, server: ServerInfo) -> int | None:
    """The number of requests that the server has interrupted since its start because its KV cache was full; None if it
    does not state it."""
    if server.kind not in ("vllm", "sglang"):
        return None
    try:
        reply = send_with_retries(client, "GET", f"{client.root_url}/metrics")
    except ServerError:
        return None
    return parse_preemptions(reply.body.decode("utf-8", "replace")) if reply.status == 200 else None


def parse_preemptions(text: str) -> int | None:
    """The sum over all engines of `/metrics`."""
    counts = _PREEMPTED.findall(text)
    try:
        return sum(int(float(count)) for count in counts) if counts else None
    except (ValueError, OverflowError):
        return None


def _count(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 16 else 0
