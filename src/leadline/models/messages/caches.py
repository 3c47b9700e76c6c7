"""Fills the provider's cache with the shared beginning of a document's questions before they are asked, once for each
document.

An API that fills its cache without an answer is asked to (Anthropic, `max_tokens` 0); one that keeps beginnings as
objects gets one for each cut with several questions, which is deleted after the last of them (Gemini). Other APIs cache
the beginning that the first question marks. A cache that cannot be filled costs a note, never a question.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from leadline.core.answers import Completion, Failure
from leadline.core.types import Document, Probe
from leadline.models.messages.adapter import Adapter, Body, ProvidesCacheObjects, ProvidesPriming
from leadline.models.messages.prompt import Prompt
from leadline.models.openai.http import HttpClient, RequestFailed
from leadline.models.openai.replies import decode_json, parse_refusal, request_failure

MOST_DOCUMENTS = 256
"""Documents whose state is kept: more than are in flight."""
DELETE_SECONDS = 10.0


@dataclass(slots=True)
class _Kept:
    """The cache entries of one document."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    primed: bool = False
    objects: dict[int, str] = field(default_factory=dict)
    """By length, the name of its object; empty where it was refused."""
    answered_cells: set[str] = field(default_factory=set)


class DocumentCaches:
    """The caches of one model's documents. Used by many threads."""

    def __init__(self, client: HttpClient, adapter: Adapter) -> None:
        self._client = client
        self._adapter = adapter
        self._documents: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def request(self, document: Document, probe: Probe, prompt: Prompt) -> tuple[str, Body, int]:
        """Path and body of a question, and the tokens that were written to the cache for it, beside its own."""
        adapter = self._adapter
        if not adapter.settings.caching or prompt.beginning is None or prompt.questions < 2:
            return *adapter.request_body(prompt), 0
        kept = self._kept(document)
        with kept.lock:
            written = 0
            if adapter.caching.primes and not kept.primed:
                kept.primed = True
                written = self._prime(prompt)
            if adapter.caching.objects:
                name, written = self._object(kept, document, probe, prompt)
                if name:
                    return *cast(ProvidesCacheObjects, adapter).with_object(prompt.rest, name), written
        return *adapter.request_body(prompt), written

    def answered(self, document: Document, probe: Probe, outcome: Completion | Failure) -> bool:
        """After the last question of a length its object is deleted. True if the provider lost it, so that the question
        should be asked again."""
        kept = self._kept(document)
        length = probe.cell.length
        if not kept.objects.get(length):
            return False
        if isinstance(outcome, Failure) and outcome.status in (403, 404):
            kept.objects.pop(length, None)
            return True
        if isinstance(outcome, Failure) and outcome.transient:
            return False
        kept.answered_cells.add(probe.cell.key)
        same = {other.cell.key for other in document.probes if other.cell.length == length}
        if same <= kept.answered_cells and (name := kept.objects.pop(length, "")):
            self._delete(name)
        return False

    def close(self) -> None:
        """Deletes the remaining objects: storage is paid by the hour."""
        with self._lock:
            names = [name for kept in self._documents.values() for name in kept.objects.values() if name]
            self._documents.clear()
        for name in names:
            self._delete(name)

    def _kept(self, document: Document) -> _Kept:
        with self._lock:
            kept = self._documents.setdefault(document.id, _Kept())
            self._documents.move_to_end(document.id)
            lost = self._documents.popitem(last=False)[1] if len(self._documents) > MOST_DOCUMENTS else _Kept()
        for name in filter(None, lost.objects.values()):
            self._delete(name)
        return kept

    def _prime(self, prompt: Prompt) -> int:
        """Fills the cache without an answer; returns the tokens that were written."""
        written = 0
        for path, body in cast(ProvidesPriming, self._adapter).priming_bodies(prompt):
            page = self._post(path, body)
            if isinstance(page, Failure):
                if not page.transient:
                    self._adapter.settings.learn(f"the cache is filled by first questions: {page.message[:120]}")
                break
            outcome = self._adapter.read_reply(200, page)
            written += (outcome.cache_write_tokens or 0) if isinstance(outcome, Completion) else 0
        return written

    def _object(self, kept: _Kept, document: Document, probe: Probe, prompt: Prompt) -> tuple[str, int]:
        """The object of this question's beginning, made where there is none yet, and the tokens of a new one."""
        length = probe.cell.length
        if sum(other.cell.length == length for other in document.probes) < 2:
            return "", 0
        if length in kept.objects:
            return kept.objects[length], 0
        adapter, beginning = cast(ProvidesCacheObjects, self._adapter), prompt.beginning
        assert beginning is not None
        page = self._post(*adapter.object_body(beginning))
        if isinstance(page, Failure):
            if not page.transient:
                kept.objects[length] = ""
                self._adapter.settings.learn(f"a document was sent whole, not from a cache: {page.message[:120]}")
            return "", 0
        name, tokens = adapter.read_object(page)
        kept.objects[length] = name
        return name, tokens

    def _post(self, path: str, body: Body) -> dict[str, Any] | Failure:
        try:
            reply = self._client.post(self._client.base_url + path, msgspec.json.encode(body))
        except RequestFailed as error:
            return request_failure(error)
        page = decode_json(reply)
        return parse_refusal(reply) if reply.status != 200 or page is None else dict(page)

    def _delete(self, name: str) -> None:
        """Not asked again: an object that stays is deleted by the provider when its time is over."""
        with suppress(RequestFailed):
            self._client.send("DELETE", f"{self._client.base_url}/{name}", None, timeout=DELETE_SECONDS)
