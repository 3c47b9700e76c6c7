"""Google's batches, with their requests inline: up to 20 MB each.

POST /models/NAME:batchGenerateContent  batch: {displayName, inputConfig}: the tag of the run is its display name
GET  /batches                           operations, the newest first
GET  /batches/ID                        an operation: metadata.state, and its responses when it is done
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from leadline.core.answers import Completion, Failure, Sent
from leadline.core.batches import (
    BatchLimits,
    BatchReply,
    BatchState,
    BatchStatus,
    QuestionWriter,
    Undecided,
)
from leadline.core.types import Document, Probe, Question
from leadline.models.batch_http import SKEW_SECONDS, BatchClient, Page, text_in, time_of
from leadline.models.batch_limits import BATCH_LIMITS
from leadline.models.openai.replies import format_error

LISTED = 100
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


@dataclass(frozen=True, slots=True)
class GeminiBatches:
    """The batches of one model."""

    api: BatchClient
    questions: QuestionWriter
    model: str
    limits: BatchLimits = field(default_factory=lambda: BATCH_LIMITS["gemini"])

    def checked(self) -> GeminiBatches:
        """Raises UsageError where the server has no batches."""
        self.api.check_listed("/batches?pageSize=1")
        return self

    @property
    def address(self) -> str:
        return self.api.url("/batches")

    def line(self, name: str, document: Document, probe: Probe) -> tuple[bytes, Sent]:
        _, body, sent = self.questions.batch_request(document, probe)
        return msgspec.json.encode({"request": msgspec.Raw(body), "metadata": {"key": name}}) + b",", sent

    def submit(self, tag: str, lines: Sequence[bytes]) -> str | Failure:
        requests = b"[" + b"".join(lines).removesuffix(b",") + b"]"
        batch = {"displayName": tag, "inputConfig": {"requests": {"requests": msgspec.Raw(requests)}}}
        created = self.api.page("POST", f"/models/{self.model}:batchGenerateContent", {"batch": batch})
        return created if isinstance(created, Failure) else text_in(created, "name")

    def find(self, tag: str, names: Collection[str], since: float, known: Collection[str]) -> str | Failure | Undecided:
        token = ""
        while True:
            page = self.api.page("GET", f"/batches?pageSize={LISTED}{f'&pageToken={quote(token)}' if token else ''}")
            if isinstance(page, Failure):
                return page
            listed = [batch for batch in page.get("operations") or () if isinstance(batch, Mapping)]
            for batch in listed:
                if _about(batch).get("displayName") == tag:
                    return text_in(batch, "name")
            token = str(page.get("nextPageToken") or "")
            if not token or not listed or time_of(_about(listed[-1]).get("createTime")) < since - SKEW_SECONDS:
                return ""

    def state(self, id: str) -> BatchState | Failure:
        batch = self.api.page("GET", f"/{quote(id)}")
        if isinstance(batch, Failure):
            return BatchState("gone", message=batch.message) if batch.status == 404 else batch
        about = _about(batch)
        status = _STATUS.get(str(about.get("state")).partition("_STATE_")[2], "running")
        counts = about.get("batchStats") or {}
        done = sum(_number(counts.get(name)) for name in ("successfulRequestCount", "failedRequestCount"))
        error = batch.get("error")
        if status == "refused" and isinstance(error, Mapping) and error.get("code") == 8:
            status = "full"
        return BatchState(status, done, format_error(error) if error else "it gives no reason")

    def replies(self, id: str) -> Mapping[str, BatchReply | Failure] | Failure:
        batch = self.api.page("GET", f"/{quote(id)}")
        if isinstance(batch, Failure):
            return batch
        found: dict[str, BatchReply | Failure] = {}
        for entry in _entries(batch):
            key = (entry.get("metadata") or {}).get("key")
            response, error = entry.get("response"), entry.get("error")
            if isinstance(response, Mapping):
                found[str(key)] = BatchReply(200, msgspec.json.encode(response))
            elif isinstance(error, Mapping):
                status = _STATUS_OF_CODE.get(_number(error.get("code")), 500)
                found[str(key)] = BatchReply(status, msgspec.json.encode({"error": error}))
        return found

    def read(self, reply: BatchReply, question: Question, sent: Sent) -> Completion | Failure:
        return self.questions.batch_outcome(reply, question, sent)


def _about(operation: Page) -> Page:
    """What the operation says of its batch."""
    about = operation.get("metadata")
    return about if isinstance(about, Mapping) else operation


def _entries(operation: Page) -> Iterator[Mapping[str, Any]]:
    """The responses, which are in the operation or in what it says of its batch."""
    for holder in (operation.get("response"), _about(operation).get("output")):
        inlined = holder.get("inlinedResponses") if isinstance(holder, Mapping) else None
        inlined = inlined.get("inlinedResponses") if isinstance(inlined, Mapping) else inlined
        if isinstance(inlined, list):
            yield from (entry for entry in inlined if isinstance(entry, Mapping))
            return


def _number(value: Any) -> int:
    """Numbers of 64 bits are texts in Google's JSON."""
    return int(value) if isinstance(value, int) or (isinstance(value, str) and value.isdecimal()) else 0
