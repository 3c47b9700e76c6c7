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

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from leadline.core.answers import Failure
from leadline.core.batches import BatchReply, BatchState, BatchStatus
from leadline.models.batch_http import EXPIRED, LINES, ListedBatches, Page, multipart, with_context
from leadline.models.openai.replies import format_error

TAG = "leadline"
"""The name of the tag in a batch's metadata."""
NO_ROOM = frozenset({"token_limit_exceeded", "request_limit_exceeded"})
"""Codes of a batch that failed because too much is in the provider's queue."""
_STATUS: Mapping[str, BatchStatus] = {
    "completed": "ended",
    "expired": "ended",
    "cancelled": "cancelled",
    "failed": "refused",
}


class OpenAIBatches(ListedBatches):
    """The batches of one model."""

    provider: ClassVar[str] = "openai"

    def format_line(self, name: str, path: str, body: msgspec.Raw) -> bytes:
        fields = {"custom_id": name, "method": "POST", "url": f"/v1{path}", "body": body}
        return msgspec.json.encode(fields) + b"\n"

    def submit(self, tag: str, lines: Sequence[bytes]) -> str | Failure:
        uploaded = self._upload(f"{tag}.jsonl", b"".join(lines))
        if isinstance(uploaded, Failure):
            return with_context(uploaded, "uploading the questions")
        batch = {
            "input_file_id": uploaded,
            "endpoint": msgspec.json.decode(lines[0])["url"],
            "completion_window": f"{self.limits.hours}h",
            "metadata": {TAG: tag},
        }
        return self.api.create("/batches", batch)

    def tag_of(self, batch: Page) -> Any:
        return (batch.get("metadata") or {}).get(TAG)

    def state_in(self, batch: Page) -> BatchState:
        counts = batch.get("request_counts") or {}
        done = sum(n for n in (counts.get("completed"), counts.get("failed")) if type(n) is int)
        status = _STATUS.get(str(batch.get("status")), "running")
        errors = [error for error in (batch.get("errors") or {}).get("data") or () if isinstance(error, Mapping)]
        if status == "refused" and any(error.get("code") in NO_ROOM for error in errors):
            status = "full"
        return BatchState(status, done, "; ".join(map(format_error, errors[:3])) or "it gives no reason")

    def replies(self, id: str) -> Mapping[str, BatchReply | Failure] | Failure:
        batch = self.look(id)
        if isinstance(batch, Failure):
            return batch
        replies: dict[str, BatchReply | Failure] = {}
        for name in ("output_file_id", "error_file_id"):
            if not (file := batch.get(name)):
                continue
            pages = self.api.results(f"/files/{quote(str(file))}/content")
            if isinstance(pages, Failure):
                return with_context(pages, f"file {file}")
            for page in pages:
                if (reply := _reply_in(page)) is not None:
                    replies[str(page.get("custom_id"))] = reply
        return replies

    def _upload(self, name: str, lines: bytes) -> str | Failure:
        """The id of the file."""
        about = f'Content-Disposition: form-data; name="file"; filename="{name}"\r\nContent-Type: {LINES}'
        purpose = ('Content-Disposition: form-data; name="purpose"', b"batch")
        body, kind = multipart("form-data", purpose, (about, lines))
        return self.api.create("/files", body, content_type=kind)


def _reply_in(page: Page) -> BatchReply | Failure | None:
    """The reply in a line of a file of results; None for a question that was not asked because its batch was
    cancelled."""
    response: Any = page.get("response")
    error = page.get("error")
    if isinstance(response, Mapping) and type(response.get("status_code")) is int and response.get("body"):
        return BatchReply(response["status_code"], msgspec.json.encode(response["body"]))
    code = error.get("code") if isinstance(error, Mapping) else None
    if code == "batch_expired":
        return EXPIRED
    if code == "batch_cancelled":
        return None
    return Failure("server", format_error(error) if error else "the reply is empty", transient=True)
