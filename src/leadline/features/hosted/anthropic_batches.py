"""Anthropic's message batches.

    POST /messages/batches             requests: {custom_id, params}, up to 256 MB
    GET  /messages/batches             the newest first
    GET  /messages/batches/ID          processing_status, request_counts
    GET  /messages/batches/ID/results  lines of {custom_id, result}, in any order

A batch has no name of its own, so one whose id was lost is found by its time and size, and recognised by the names of
its questions, which are seen when it has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from leadline.core.answers import Failure
from leadline.core.batches import UNDECIDED, BatchReply, BatchState, Undecided
from leadline.models.batch_http import EXPIRED, SKEW_SECONDS, ListedBatches, Page, time_of

_STATUS_OF: Mapping[str, int] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP status of an error by its type. A result has no more than that type; others are 500."""


class AnthropicBatches(ListedBatches):
    """The batches of one model."""

    provider: ClassVar[str] = "anthropic"
    path: ClassVar[str] = "/messages/batches"
    page_after: ClassVar[str] = "after_id"

    def format_line(self, name: str, path: str, body: msgspec.Raw) -> bytes:
        return msgspec.json.encode({"custom_id": name, "params": body}) + b","

    def submit(self, tag: str, lines: Sequence[bytes]) -> str | Failure:
        return self.api.create(self.path, b'{"requests":[' + b"".join(lines).removesuffix(b",") + b"]}")

    def find(self, tag: str, names: Collection[str], since: float, known: Collection[str]) -> str | Failure | Undecided:
        undecided = False
        for batch in self.listed(since):
            if isinstance(batch, Failure):
                return batch
            if not _may_be(batch, len(names), since, known):
                continue
            if batch.get("processing_status") != "ended":
                undecided = True
                continue
            replies = self.replies(str(batch.get("id")))
            if isinstance(replies, Failure) and replies.transient:
                return replies
            if not isinstance(replies, Failure) and replies.keys() & set(names):
                return str(batch["id"])
        return UNDECIDED if undecided else ""

    def state_in(self, batch: Page) -> BatchState:
        counts = _counts(batch)
        done = sum(counts.values()) - counts.get("processing", 0)
        if batch.get("processing_status") != "ended":
            return BatchState("running", done)
        if batch.get("archived_at"):
            return BatchState("gone", message="its results are kept for 29 days, and it is older")
        return BatchState("cancelled" if counts.get("canceled") else "ended", done)

    def replies(self, id: str) -> Mapping[str, BatchReply | Failure] | Failure:
        pages = self.api.results(f"{self.path}/{quote(id)}/results")
        if isinstance(pages, Failure):
            return pages
        replies: dict[str, BatchReply | Failure] = {}
        for page in pages:
            result = page.get("result")
            if isinstance(result, Mapping) and (reply := _reply_in(result)) is not None:
                replies[str(page.get("custom_id"))] = reply
        return replies


def _may_be(batch: Page, questions: int, since: float, known: Collection[str]) -> bool:
    """Whether this can be the submitted batch: with as many questions, from about that time, and not a known one."""
    return (
        batch.get("id") not in known
        and sum(_counts(batch).values()) == questions
        and time_of(batch.get("created_at")) >= since - SKEW_SECONDS
    )


def _counts(batch: Page) -> dict[str, int]:
    counts = batch.get("request_counts")
    return {name: n for name, n in counts.items() if type(n) is int} if isinstance(counts, Mapping) else {}


def _reply_in(result: Mapping[str, Any]) -> BatchReply | Failure | None:
    """The reply in a result; None for a question that was not asked because its batch was cancelled."""
    kind = result.get("type")
    if kind == "succeeded":
        return BatchReply(200, msgspec.json.encode(result.get("message")))
    if kind == "expired":
        return EXPIRED
    if kind == "canceled":
        return None
    error = result.get("error")
    inner = error.get("error") if isinstance(error, Mapping) and isinstance(error.get("error"), Mapping) else error
    status = _STATUS_OF.get(str(inner.get("type")) if isinstance(inner, Mapping) else "", 500)
    return BatchReply(status, msgspec.json.encode({"type": "error", "error": inner}))
