"""OpenAI's batches: a file of requests is uploaded, a batch of it is created, and files of replies are read.

    POST /files       purpose=batch, lines of {custom_id, method, url, body}
    POST /batches     input_file_id, endpoint, completion_window, metadata: the tag of the run
    GET  /batches     the newest first, to find a batch by its tag
    GET  /batches/ID  status, request_counts, output_file_id, error_file_id
    GET  /files/ID/content

Many compatible servers have the same. The line of a question has the body that a run would send; nothing is asked twice
here, and what a status means is in `replies.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from leadline.core.batches import BatchLimits, BatchReply, BatchState, BatchStatus, Undecided, no_batches
from leadline.core.records import Completion, Failure, Sent
from leadline.core.types import Document, Probe
from leadline.models.batch_limits import BATCH_LIMITS
from leadline.models.openai.http import HttpClient, HttpReply, RequestFailed
from leadline.models.openai.replies import decode_json, format_error, parse_refusal, request_failure

TAG = "leadline"
"""The name of the tag in a batch's metadata."""
PAGE = 100
"""Batches of one page of the list."""
SKEW_SECONDS = 86_400
"""Batches that are older by this than the time of submitting are not ours; clocks differ."""
MOST_RESULT_BYTES = 2 << 30
NO_ROOM = frozenset({"token_limit_exceeded", "request_limit_exceeded"})
"""Codes of a batch that failed because too much is in the provider's queue."""
EXPIRED = "batch_expired"
CANCELLED = "batch_cancelled"
_STATUS: Mapping[str, BatchStatus] = {
    "completed": "ended",
    "expired": "ended",
    "cancelled": "cancelled",
    "failed": "refused",
}


class QuestionWriter(Protocol):
    """What writes the request of a question and reads the reply to it: the model."""

    def batch_request(self, document: Document, probe: Probe) -> tuple[str, bytes, Sent]:
        """The path of the endpoint, the body, and what the record says about it."""
        ...

    def batch_outcome(self, reply: HttpReply, document: Document, probe: Probe, sent: Sent) -> Completion | Failure: ...


@dataclass(frozen=True, slots=True)
class OpenAIBatches:
    """The batches of one model."""

    client: HttpClient
    questions: QuestionWriter
    key_name: str = ""
    limits: BatchLimits = field(default_factory=lambda: BATCH_LIMITS["openai"])

    @classmethod
    def open(cls, client: HttpClient, questions: QuestionWriter, key_name: str) -> OpenAIBatches:
        """Raises UsageError where the server has no batches."""
        made = cls(client, questions, key_name)
        listed = made._json("GET", "/batches?limit=1")
        if isinstance(listed, Failure) and not listed.transient:
            status = f" (status {listed.status}: {listed.message})" if listed.status else ""
            raise no_batches(f"this server has no batches{status}", where=made.address)
        return made

    @property
    def address(self) -> str:
        return f"{self.client.base_url}/batches"

    def line(self, name: str, document: Document, probe: Probe) -> tuple[bytes, Sent]:
        path, body, sent = self.questions.batch_request(document, probe)
        fields = {"custom_id": name, "method": "POST", "url": f"/v1{path}", "body": msgspec.Raw(body)}
        return msgspec.json.encode(fields) + b"\n", sent

    def submit(self, tag: str, lines: Sequence[bytes]) -> str | Failure:
        uploaded = self._upload(f"{tag}.jsonl", b"".join(lines))
        if isinstance(uploaded, Failure):
            return _with_context(uploaded, "uploading the questions")
        created = self._json(
            "POST",
            "/batches",
            {
                "input_file_id": uploaded,
                "endpoint": msgspec.json.decode(lines[0])["url"],
                "completion_window": f"{self.limits.hours}h",
                "metadata": {TAG: tag},
            },
        )
        return created if isinstance(created, Failure) else _id_of(created)

    def find(self, tag: str, names: Collection[str], since: float, known: Collection[str]) -> str | Failure | Undecided:
        after = ""
        while True:
            page = self._json("GET", f"/batches?limit={PAGE}{f'&after={quote(after)}' if after else ''}")
            if isinstance(page, Failure):
                return page
            listed = [batch for batch in page.get("data") or () if isinstance(batch, Mapping)]
            for batch in listed:
                if (batch.get("metadata") or {}).get(TAG) == tag:
                    return _id_of(batch)
            if not page.get("has_more") or not listed or _created(listed[-1]) < since - SKEW_SECONDS:
                return ""
            after = str(listed[-1].get("id", ""))

    def state(self, id: str) -> BatchState | Failure:
        batch = self._json("GET", f"/batches/{quote(id)}")
        if isinstance(batch, Failure):
            return BatchState("gone", message=batch.message) if batch.status == 404 else batch
        counts = batch.get("request_counts") or {}
        done = sum(n for n in (counts.get("completed"), counts.get("failed")) if type(n) is int)
        status = _STATUS.get(str(batch.get("status")), "running")
        errors = [error for error in (batch.get("errors") or {}).get("data") or () if isinstance(error, Mapping)]
        if status == "refused" and any(error.get("code") in NO_ROOM for error in errors):
            status = "full"
        return BatchState(status, done, "; ".join(map(format_error, errors[:3])) or "it gives no reason")

    def replies(self, id: str) -> Mapping[str, BatchReply | Failure] | Failure:
        batch = self._json("GET", f"/batches/{quote(id)}")
        if isinstance(batch, Failure):
            return batch
        found: dict[str, BatchReply | Failure] = {}
        for name in ("output_file_id", "error_file_id"):
            if not (file := batch.get(name)):
                continue
            content = self._send("GET", f"/files/{quote(str(file))}/content", max_bytes=MOST_RESULT_BYTES)
            if isinstance(content, Failure):
                return _with_context(content, f"file {file}")
            found |= _replies_in(content.body)
        return found

    def read(self, reply: BatchReply, document: Document, probe: Probe, sent: Sent) -> Completion | Failure:
        return self.questions.batch_outcome(HttpReply(reply.status, reply.body), document, probe, sent)

    # --- requests

    def _upload(self, name: str, lines: bytes) -> str | Failure:
        """The id of the file."""
        boundary = uuid.uuid4().hex
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        )
        body = head.encode() + lines + f"\r\n--{boundary}--\r\n".encode()
        reply = self._send("POST", "/files", body, content_type=f"multipart/form-data; boundary={boundary}")
        page = reply if isinstance(reply, Failure) else _page(reply)
        return page if isinstance(page, Failure) else _id_of(page)

    def _json(self, method: str, path: str, fields: Mapping[str, Any] | None = None) -> Mapping[str, Any] | Failure:
        reply = self._send(method, path, None if fields is None else msgspec.json.encode(fields))
        return reply if isinstance(reply, Failure) else _page(reply)

    def _send(
        self, method: str, path: str, body: bytes | None = None, *, content_type: str = "", max_bytes: int = 0
    ) -> HttpReply | Failure:
        """A reply with status 200."""
        options: dict[str, Any] = {"content_type": content_type} if content_type else {}
        options |= {"max_bytes": max_bytes} if max_bytes else {}
        try:
            reply = self.client.send(method, f"{self.client.base_url}{path}", body, **options)
        except RequestFailed as error:
            return request_failure(error)
        return reply if reply.status == 200 else parse_refusal(reply, self.key_name)


def _page(reply: HttpReply) -> Mapping[str, Any] | Failure:
    page = decode_json(reply)
    if page is None:
        return Failure("malformed", "the reply is not a JSON object", transient=True, status=reply.status)
    return page


def _id_of(page: Mapping[str, Any]) -> str | Failure:
    id = page.get("id")
    return id if isinstance(id, str) and id else Failure("malformed", "the reply has no id", transient=True, status=200)


def _created(batch: Mapping[str, Any]) -> float:
    at = batch.get("created_at")
    return float(at) if isinstance(at, (int, float)) else float("inf")


def _with_context(failure: Failure, what: str) -> Failure:
    return msgspec.structs.replace(failure, message=f"{what}: {failure.message}")


def _replies_in(content: bytes) -> dict[str, BatchReply | Failure]:
    """By custom_id. A line that cannot be read is left out, so that its question is asked again."""
    found: dict[str, BatchReply | Failure] = {}
    for line in content.splitlines():
        try:
            page = msgspec.json.decode(line)
            name, response, error = str(page["custom_id"]), page.get("response"), page.get("error")
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError, ValueError):
            continue
        if isinstance(response, Mapping) and type(response.get("status_code")) is int and response.get("body"):
            found[name] = BatchReply(response["status_code"], msgspec.json.encode(response["body"]))
            continue
        code = error.get("code") if isinstance(error, Mapping) else None
        if code == EXPIRED:
            found[name] = Failure("timeout", "the batch expired before this question was asked", transient=True)
        elif code != CANCELLED:
            found[name] = Failure("server", format_error(error) if error else "the reply is empty", transient=True)
    return found
