"""Requests about batches to a provider's API: each is sent once, and what is no page of JSON is a failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from leadline.core.answers import Failure
from leadline.core.batches import no_batches
from leadline.models.openai.http import HttpClient, HttpReply, RequestFailed
from leadline.models.openai.replies import decode_json, parse_refusal, request_failure

SKEW_SECONDS = 86_400
"""Batches that are older by this than the time of submitting are not ours; clocks differ."""
MOST_RESULT_BYTES = 2 << 30
Page = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BatchClient:
    """A provider's API, below its base URL."""

    client: HttpClient
    key_name: str = ""

    def url(self, path: str) -> str:
        """`path` may be a whole address."""
        return f"{self.client.base_url}{path}" if path.startswith("/") else path

    def check_listed(self, path: str) -> None:
        """Raises UsageError where the server cannot list batches."""
        listed = self.page("GET", path)
        if isinstance(listed, Failure) and not listed.transient:
            status = f" (status {listed.status}: {listed.message})" if listed.status else ""
            raise no_batches(f"this server has no batches{status}", where=self.url(path.partition("?")[0]))

    def page(
        self, method: str, path: str, body: bytes | Page | None = None, *, content_type: str = ""
    ) -> Page | Failure:
        """A reply with status 200, as JSON."""
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        reply = self.send(method, path, data, content_type=content_type)
        if isinstance(reply, Failure):
            return reply
        page = decode_json(reply)
        if page is None:
            return Failure("malformed", "the reply is not a JSON object", transient=True, status=reply.status)
        return page

    def send(
        self, method: str, path: str, body: bytes | None = None, *, content_type: str = "", max_bytes: int = 0
    ) -> HttpReply | Failure:
        """A reply with status 200."""
        options: dict[str, Any] = {"content_type": content_type} if content_type else {}
        options |= {"max_bytes": max_bytes} if max_bytes else {}
        try:
            reply = self.client.send(method, self.url(path), body, **options)
        except RequestFailed as error:
            return request_failure(error)
        return reply if reply.status == 200 else parse_refusal(reply, self.key_name)


def text_in(page: Page, name: str) -> str | Failure:
    """A text that the page must have."""
    text = page.get(name)
    if isinstance(text, str) and text:
        return text
    return Failure("malformed", f"the reply has no {name}", transient=True, status=200)


def pages_of_lines(content: bytes) -> list[Page]:
    """The objects of a file of lines. A line that cannot be read is left out, so that its question is asked again."""
    pages: list[Page] = []
    for line in content.splitlines():
        try:
            page = msgspec.json.decode(line)
        except (msgspec.DecodeError, ValueError):
            continue
        if isinstance(page, dict):
            pages.append(page)
    return pages


def time_of(value: Any) -> float:
    """Seconds since 1970 of a number or an ISO date; infinity where it is neither, so that nothing is ruled out."""
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        return float("inf")


def with_context(failure: Failure, what: str) -> Failure:
    return msgspec.structs.replace(failure, message=f"{what}: {failure.message}")
