"""Google's batches: small ones with their requests inline, others of a file of requests, whose replies are in a file.

POST /upload/v1beta/files?uploadType=multipart  lines of {key, request}, after a part that names the file
POST /models/NAME:batchGenerateContent          batch: {displayName, inputConfig}: the display name is the run's tag
GET  /batches                                   operations, the newest first
GET  /batches/ID                                an operation: its state, at its end the responses or their file
GET  /download/v1beta/files/ID:download         lines of {key, response} or {key, error}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from leadline.core.answers import Failure
from leadline.core.batches import BatchReply, BatchState, BatchStatus
from leadline.models.batch_http import LINES, ListedBatches, Page, multipart, text_in, with_context
from leadline.models.openai.replies import format_error

INLINE_BYTES = 19_000_000
"""A request of a batch may have 20 MB; questions beyond this are uploaded as a file."""
_STATUS: Mapping[str, BatchStatus] = {
    "SUCCEEDED": "ended",
    "PARTIALLY_SUCCEEDED": "ended",
    "EXPIRED": "ended",
    "CANCELLED": "cancelled",
    "FAILED": "refused",
}
"""By the end of a state's name: BATCH_STATE_SUCCEEDED, JOB_STATE_SUCCEEDED."""
_STATUS_OF_CODE: Mapping[int, int] = {
    3: 400, 4: 504, 5: 404, 7: 403, 8: 429, 9: 400, 11: 400, 12: 501, 13: 500, 14: 503, 16: 401,
}  # fmt: skip
"""The HTTP status of a code of google.rpc.Code; others are 500. 1 is a request that the service cancelled."""


class _Line(msgspec.Struct, frozen=True):
    """A question of a batch, as in a file of them."""

    key: str
    request: msgspec.Raw


class GeminiBatches(ListedBatches):
    """The batches of one model."""

    provider: ClassVar[str] = "gemini"
    page_size: ClassVar[str] = "pageSize"
    page_after: ClassVar[str] = "pageToken"
    entries: ClassVar[str] = "operations"
    id_name: ClassVar[str] = "name"
    created: ClassVar[str] = "createTime"

    def format_line(self, name: str, path: str, body: msgspec.Raw) -> bytes:
        return msgspec.json.encode(_Line(name, body)) + b"\n"

    def submit(self, tag: str, lines: Sequence[bytes]) -> str | Failure:
        if sum(map(len, lines)) <= INLINE_BYTES:
            inline = [msgspec.json.decode(line, type=_Line) for line in lines]
            requests = [{"request": line.request, "metadata": {"key": line.key}} for line in inline]
            questions: Page = {"requests": {"requests": requests}}
        else:
            uploaded = self._upload(tag, b"".join(lines))
            if isinstance(uploaded, Failure):
                return with_context(uploaded, "uploading the questions")
            questions = {"fileName": uploaded}
        batch = {"displayName": tag, "inputConfig": questions}
        return self.api.create(f"/models/{self.model}:batchGenerateContent", {"batch": batch}, name="name")

    def _upload(self, tag: str, lines: bytes) -> str | Failure:
        """The name of the file, which Google deletes after two days."""
        about = msgspec.json.encode({"file": {"displayName": tag, "mimeType": LINES}})
        body, kind = multipart("related", ("Content-Type: application/json", about), (f"Content-Type: {LINES}", lines))
        page = self.api.page("POST", self._media("upload", "files?uploadType=multipart"), body, content_type=kind)
        if isinstance(page, Failure):
            return page
        file = page.get("file")
        return text_in(file if isinstance(file, Mapping) else page, "name")

    def _media(self, kind: str, path: str) -> str:
        """The address of files: `/upload/v1beta/files` where the API itself is `/v1beta`."""
        root, _, version = self.api.client.base_url.rpartition("/")
        return f"{root}/{kind}/{version}/{path}"

    def look(self, id: str) -> Page | Failure:
        return self.api.page("GET", f"/{quote(id)}")

    def about(self, batch: Page) -> Page:
        return _about(batch)

    def tag_of(self, batch: Page) -> Any:
        return _about(batch).get("displayName")

    def next_page(self, page: Page, listed: Sequence[Page]) -> str:
        return str(page.get("nextPageToken") or "") if listed else ""

    def state_in(self, batch: Page) -> BatchState:
        about = _about(batch)
        status = _STATUS.get(str(about.get("state")).partition("_STATE_")[2], "running")
        counts = about.get("batchStats") or {}
        done = sum(_number(counts.get(name)) for name in ("successfulRequestCount", "failedRequestCount"))
        error = batch.get("error")
        if status == "refused" and isinstance(error, Mapping) and error.get("code") == 8:
            status = "full"
        return BatchState(status, done, format_error(error) if error else "it gives no reason")

    def replies(self, id: str) -> Mapping[str, BatchReply | Failure] | Failure:
        batch = self.look(id)
        if isinstance(batch, Failure):
            return batch
        replies: dict[str, BatchReply | Failure] = {}
        entries: Iterable[Page] = _entries(batch)
        if file := _results_file(batch):
            address = self._media("download", f"{quote(file)}:download?alt=media")
            pages = self.api.results(address)
            if isinstance(pages, Failure):
                return with_context(pages, f"the results {file}")
            entries = pages
        for entry in entries:
            key = entry.get("key") or (entry.get("metadata") or {}).get("key")
            response, error = entry.get("response"), entry.get("error")
            if isinstance(response, Mapping):
                replies[str(key)] = BatchReply(200, msgspec.json.encode(response))
            elif isinstance(error, Mapping):
                status = _STATUS_OF_CODE.get(_number(error.get("code")), 500)
                replies[str(key)] = BatchReply(status, msgspec.json.encode({"error": error}))
        return replies


def _about(operation: Page) -> Page:
    """The operation's data about its batch."""
    about = operation.get("metadata")
    return about if isinstance(about, Mapping) else operation


def _results_file(operation: Page) -> str:
    """The file of the responses, where they are not in the operation."""
    for holder in (operation.get("response"), _about(operation).get("output")):
        if isinstance(holder, Mapping) and isinstance(holder.get("responsesFile"), str):
            return str(holder["responsesFile"])
    return ""


def _entries(operation: Page) -> Iterator[Mapping[str, Any]]:
    """The responses, which are in the operation or in its data about the batch."""
    for holder in (operation.get("response"), _about(operation).get("output")):
        inlined = holder.get("inlinedResponses") if isinstance(holder, Mapping) else None
        inlined = inlined.get("inlinedResponses") if isinstance(inlined, Mapping) else inlined
        if isinstance(inlined, list):
            yield from (entry for entry in inlined if isinstance(entry, Mapping))
            return


def _number(value: Any) -> int:
    """Numbers of 64 bits are texts in Google's JSON."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else 0
