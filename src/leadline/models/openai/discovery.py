"""What a server says of itself before the first question: its kind, its model, its window.

Each kind is known by pages that only it has: vLLM by /version, llama.cpp by /props, SGLang by /get_server_info
(/server_info in newer ones). What is none of them is taken as plain: it gets nothing but what OpenAI's own API has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from leadline.core.errors import ServerAway, ServerError, UnknownName
from leadline.models.openai.http import HttpClient, HttpReply, RequestFailed
from leadline.models.openai.replies import decoded, error_in, error_words

Kind = Literal["plain", "vllm", "sglang", "llamacpp"]

ATTEMPTS = 5
FIRST_WAIT_SECONDS = 0.2
_NOBODY = re.compile("refused|name or service", re.IGNORECASE)
"""Trouble that a few moments do not mend."""
_WINDOW_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server in a few words."""

    kind: Kind
    model: str
    """The name to ask by."""
    window: int | None = None
    version: str = ""
    weights: str = ""
    """Where the server has its model from: a folder, a file or a hub name."""
    folder: Path | None = None
    """The model's folder, where it can be read from here as well."""
    vocabulary: int | None = None
    revision: Mapping[str, Any] = field(default_factory=dict)
    """Whatever tells one set of weights from another."""
    props: Mapping[str, Any] = field(default_factory=dict)
    """llama.cpp's own page."""
    elsewhere: str = ""
    """Where models are listed, when they are not at base_url: probably what was meant."""
    notes: tuple[str, ...] = ()


def learn_facts(client: HttpClient, name: str) -> ServerFacts:
    """Ask a server what it is. Raises ServerError when there is none, or none that serves `name`."""
    entries = _models(client)
    if entries is None:
        note = "the server lists no models: its name for this one could not be checked"
        return ServerFacts("plain", _needed(name, client), elsewhere=_elsewhere(client), notes=(note,))
    kind, page = _kind(client, entries)
    entry, notes = _entry(entries, name, kind, client)
    model = str(entry.get("id") or name)
    weights = str(page.get("model_path") or entry.get("root") or "")
    tokenizer = str(page.get("tokenizer_path") or weights)
    meta = entry.get("meta") if isinstance(entry.get("meta"), Mapping) else {}
    assert isinstance(meta, Mapping)
    return ServerFacts(
        kind=kind,
        model=model,
        window=_window(page.get("default_generation_settings"), entry, meta, page),
        version=str(page.get("version") or page.get("build_info") or ""),
        weights=weights,
        folder=_readable(tokenizer),
        vocabulary=meta.get("n_vocab") if isinstance(meta.get("n_vocab"), int) else None,
        revision={k: meta[k] for k in ("n_params", "size", "ftype") if k in meta},
        props=page if kind == "llamacpp" else {},
        notes=notes,
    )


def ask_json(client: HttpClient, method: str, url: str, body: bytes | None = None) -> dict[str, Any]:
    """A page as a JSON object, asked for a few times; ServerError when it cannot be had."""
    reply = patiently(client, method, url, body)
    page = decoded(reply)
    if reply.status == 200 and page is not None:
        return dict(page)
    words = error_words(error_in(page) or page) if page is not None else reply.body[:200].decode("utf-8", "replace")
    kind = ServerAway if _may_pass(reply) else ServerError
    raise kind(f"the server answers {reply.status}: {words}", where=f"{method} {url}")


def patiently(client: HttpClient, method: str, url: str, body: bytes | None = None) -> HttpReply:
    """One reply, with a few tries where the trouble may pass. These are questions about the server, not samples."""
    for attempt in range(ATTEMPTS):
        last = attempt == ATTEMPTS - 1
        wait = FIRST_WAIT_SECONDS * 2**attempt
        try:
            reply = client.send(method, url, body)
        except RequestFailed as trouble:
            if last or trouble.reason == "timeout" or _NOBODY.search(str(trouble)):
                raise _nobody(url, trouble) from None
        else:
            if last or not _may_pass(reply):
                return reply
            wait = max(wait, min(reply.retry_after or 0.0, 30.0))
        time.sleep(wait)
    raise AssertionError  # the last attempt returns or raises


def _may_pass(reply: HttpReply) -> bool:
    return reply.status == 429 or (reply.status >= 500 and reply.status not in (501, 505))


def _nobody(url: str, trouble: RequestFailed) -> ServerAway:
    return ServerAway(
        f"no server answers: {trouble}",
        where=url,
        fix="start the server, or correct base_url (it usually ends in /v1)",
    )


# --- the list of models -------------------------------------------------------------------------


def _models(client: HttpClient) -> list[dict[str, Any]] | None:
    """The models a server lists, or None when it keeps no such list. A forgotten /v1 is put in."""
    reply = patiently(client, "GET", f"{client.base_url}/models")
    if _listing(reply) is None and not client.base_url.endswith("/v1"):
        second = patiently(client, "GET", f"{client.base_url}/v1/models")
        if _listing(second) is not None:
            client.base_url += "/v1"
            reply = second
    listing = _listing(reply)
    if listing is not None:
        return listing
    where = f"GET {client.base_url}/models"
    if reply.status in (401, 403):
        raise ServerError(
            f"the server refuses the key ({reply.status})",
            where=where,
            fix="set the environment variable that api_key_env names (OPENAI_API_KEY if not given)",
        )
    body = decoded(reply)
    if reply.status in (404, 405) and body is not None:
        return None
    if body is None:
        what = "a web page" if reply.looks_like_html else "something that is not JSON"
        raise ServerError(
            f"the server answers with {what}, not as an OpenAI-compatible API (status {reply.status})",
            where=where,
            fix="correct base_url: it usually ends in /v1",
        )
    raise ServerError(f"the server answers {reply.status}: {error_words(error_in(body) or body)}", where=where)


def _elsewhere(client: HttpClient) -> str:
    """Where this server's API is found instead, for a base_url of one of its other pages; "" when nowhere."""
    url = urlsplit(client.base_url)
    before, v1, _ = url.path.partition("/v1/")
    for path in dict.fromkeys((f"{before}/v1" if v1 else "/v1", "/v1")):
        place = f"{url.scheme}://{url.netloc}{path}"
        if place != client.base_url and _listing(patiently(client, "GET", f"{place}/models")) is not None:
            return place
    return ""


def _listing(reply: HttpReply) -> list[dict[str, Any]] | None:
    body = decoded(reply) if reply.status == 200 else None
    data = body.get("data") if body is not None else None
    return [e for e in data if isinstance(e, dict)] if isinstance(data, list) else None


def _entry(
    entries: list[dict[str, Any]], name: str, kind: Kind, client: HttpClient
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The entry of the model asked for. A server of one's own that does not list it does not have it."""
    if not name and len(entries) == 1:
        return entries[0], ()
    _needed(name, client, entries)
    for entry in entries:
        if name == entry.get("id") or name in (entry.get("aliases") or ()):
            return {**entry, "id": name}, ()
    if kind != "plain":
        raise UnknownName("model", name, [str(e.get("id")) for e in entries], where=f"{client.base_url}/models")
    return {"id": name}, (f"the server does not list a model {name!r}",)


def _needed(name: str, client: HttpClient, entries: list[dict[str, Any]] | None = None) -> str:
    if not name:
        known = ", ".join(str(e.get("id")) for e in (entries or [])[:10])
        raise ServerError(
            "which model?",
            where=client.base_url,
            fix=f"write openai:NAME?base_url=...{'; served: ' + known if known else ''}",
        )
    return name


# --- the kind -----------------------------------------------------------------------------------


def _kind(client: HttpClient, entries: list[dict[str, Any]]) -> tuple[Kind, dict[str, Any]]:
    """The kind of server, with the page that proves it."""
    owners = {str(e.get("owned_by", "")).lower() for e in entries}
    order: list[Kind] = ["llamacpp", "sglang", "vllm"]
    order.sort(key=lambda kind: kind not in owners)
    if not owners & set(order) and client.base_url.startswith("https://api."):
        return "plain", {}  # a hosted service: do not knock at doors it does not have
    if "vllm" not in owners and not any("max_model_len" in e for e in entries):
        order.remove("vllm")  # many servers have a /version
    for kind in order:
        page = _page_of(client, kind)
        if page is not None:
            return kind, page
    return "plain", {}


def _page_of(client: HttpClient, kind: Kind) -> dict[str, Any] | None:
    root = client.root_url
    if kind == "llamacpp":
        page = _page(client, f"{root}/props")
        return page if page is not None and "default_generation_settings" in page else None
    if kind == "sglang":
        info = _page(client, f"{root}/get_server_info") or _page(client, f"{root}/server_info")
        if info is None or not {"context_length", "max_total_num_tokens", "tp_size"} & set(info):
            return None
        model = _page(client, f"{root}/get_model_info") or _page(client, f"{root}/model_info") or {}
        return {**info, **model}
    page = _page(client, f"{root}/version")
    return page if page is not None and "version" in page else None


def _page(client: HttpClient, url: str) -> dict[str, Any] | None:
    reply = patiently(client, "GET", url)
    page = decoded(reply) if reply.status == 200 else None
    return dict(page) if page is not None else None


def _window(*places: Any) -> int | None:
    """The first window that any of these pages states."""
    for place in places:
        for name in _WINDOW_NAMES:
            value = place.get(name) if isinstance(place, Mapping) else None
            if isinstance(value, int) and value > 0:
                return value
    return None


def _readable(path: str) -> Path | None:
    folder = Path(path) if path else None
    return folder if folder is not None and folder.is_absolute() and (folder / "tokenizer.json").is_file() else None
