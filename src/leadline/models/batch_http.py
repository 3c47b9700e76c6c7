"""Requests about batches to a provider's API: each is sent once, and what is no page of JSON is a failure. What the
batches of all providers have in common: they are listed, the newest first, looked at and read."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Self
from urllib.parse import quote

import msgspec

from leadline.core.answers import Completion, Failure, Sent
from leadline.core.batches import BatchLimits, BatchReply, BatchState, QuestionWriter, Undecided, no_batches
from leadline.core.types import Document, Probe, Question
from leadline.models.batch_limits import BATCH_LIMITS
from leadline.models.openai.http import HttpClient, HttpReply, RequestFailed
from leadline.models.openai.replies import decode_json, parse_refusal, request_failure

SKEW_SECONDS = 86_400
"""Batches that are older by this than the time of submitting are not ours; clocks differ."""
LISTED = 100
"""Batches of one page of the list."""
MOST_RESULT_BYTES = 2 << 30
LINES = "application/jsonl"
EXPIRED = Failure("timeout", "the batch expired before this question was asked", transient=True)
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

    def create(self, path: str, body: bytes | Page, *, name: str = "id", content_type: str = "") -> str | Failure:
        """The id of what the request has made."""
        page = self.page("POST", path, body, content_type=content_type)
        return page if isinstance(page, Failure) else text_in(page, name)

    def results(self, path: str) -> list[Page] | Failure:
        """The objects of a file of lines. A line that cannot be read is left out, so that its question is asked
        again."""
        reply = self.send("GET", path, max_bytes=MOST_RESULT_BYTES)
        return reply if isinstance(reply, Failure) else _objects(reply.body)

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


@dataclass(frozen=True, slots=True)
class ListedBatches:
    """Batches of one model. Providers differ in names, in how batches are submitted, and in what replies look like."""

    api: BatchClient
    questions: QuestionWriter
    model: str = ""

    provider: ClassVar[str]
    path: ClassVar[str] = "/batches"
    page_size: ClassVar[str] = "limit"
    page_after: ClassVar[str] = "after"
    entries: ClassVar[str] = "data"
    id_name: ClassVar[str] = "id"
    created: ClassVar[str] = "created_at"

    def checked(self) -> Self:
        """Raises UsageError where the server has no batches."""
        self.api.check_listed(f"{self.path}?{self.page_size}=1")
        return self

    @property
    def limits(self) -> BatchLimits:
        return BATCH_LIMITS[self.provider]

    def line(self, name: str, document: Document, probe: Probe) -> tuple[bytes, Sent]:
        path, body, sent = self.questions.batch_request(document, probe)
        return self.format_line(name, path, msgspec.Raw(body)), sent

    def format_line(self, name: str, path: str, body: msgspec.Raw) -> bytes:
        """A question for the API's `path`, under its name in the batch."""
        raise NotImplementedError

    def submit(self, tag: str, lines: Sequence[bytes]) -> str | Failure:
        raise NotImplementedError

    def replies(self, id: str) -> Mapping[str, BatchReply | Failure] | Failure:
        raise NotImplementedError

    @property
    def address(self) -> str:
        return self.api.url(self.path)

    def look(self, id: str) -> Page | Failure:
        return self.api.page("GET", f"{self.path}/{quote(id)}")

    def state(self, id: str) -> BatchState | Failure:
        batch = self.look(id)
        if isinstance(batch, Failure):
            return BatchState("gone", message=batch.message) if batch.status == 404 else batch
        return self.state_in(batch)

    def read(self, reply: BatchReply, question: Question, sent: Sent) -> Completion | Failure:
        return self.questions.batch_outcome(reply, question, sent)

    def find(self, tag: str, names: Collection[str], since: float, known: Collection[str]) -> str | Failure | Undecided:
        for batch in self.listed(since):
            if isinstance(batch, Failure):
                return batch
            if self.tag_of(batch) == tag:
                return text_in(batch, self.id_name)
        return ""

    def listed(self, since: float) -> Iterator[Page | Failure]:
        """The newest first, back to that time; after a failure nothing more."""
        after = ""
        while True:
            more = f"&{self.page_after}={quote(after)}" if after else ""
            page = self.api.page("GET", f"{self.path}?{self.page_size}={LISTED}{more}")
            if isinstance(page, Failure):
                yield page
                return
            listed = [batch for batch in page.get(self.entries) or () if isinstance(batch, Mapping)]
            yield from listed
            after = self.next_page(page, listed)
            if not after or time_of(self.about(listed[-1]).get(self.created)) < since - SKEW_SECONDS:
                return

    def about(self, batch: Page) -> Page:
        """The fields of a batch with its tag and its time of creation."""
        return batch

    def tag_of(self, batch: Page) -> Any:
        raise NotImplementedError

    def state_in(self, batch: Page) -> BatchState:
        raise NotImplementedError

    def next_page(self, page: Page, listed: Sequence[Page]) -> str:
        """The query for the next page; empty where there is none."""
        return str(listed[-1].get("id", "")) if page.get("has_more") and listed else ""


def text_in(page: Page, name: str) -> str | Failure:
    """A text that the page must have."""
    text = page.get(name)
    if isinstance(text, str) and text:
        return text
    return Failure("malformed", f"the reply has no {name}", transient=True, status=200)


def multipart(kind: str, *parts: tuple[str, bytes]) -> tuple[bytes, str]:
    """A body of parts, each with its headers, and its content type."""
    boundary = uuid.uuid4().hex
    opened = [piece for head, part in parts for piece in (f"--{boundary}\r\n{head}\r\n\r\n".encode(), part, b"\r\n")]
    return b"".join([*opened, f"--{boundary}--\r\n".encode()]), f"multipart/{kind}; boundary={boundary}"


def _objects(content: bytes) -> list[Page]:
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
