"""Faults of the fake server: which request gets which fault, and the response."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from email.utils import formatdate
from typing import Any

from support.fake_http import Response, json_response


@dataclass(frozen=True)
class Faults:
    """Shares of request bodies (0..1) that get each fault; the rest gets a good answer."""

    rate_429: float = 0.0
    rate_500: float = 0.0
    rate_503: float = 0.0
    drop: float = 0.0
    """The connection is closed without a response."""
    drop_midway: float = 0.0
    """The connection is closed half-way through the body that was announced."""
    truncated: float = 0.0
    """A complete response whose JSON stops half-way."""
    malformed: float = 0.0
    """200 and something that is not JSON."""
    html: float = 0.0
    """200 and a web page, as a gateway answers."""
    null_content: float = 0.0
    missing_content: float = 0.0
    """A message without the key `content`."""
    no_choices: float = 0.0
    error_200: float = 0.0
    """200 with an error object in place of choices."""
    bad_request: float = 0.0
    """400 on every attempt."""
    context_length: float = 0.0
    """The length is refused with this server's own message, on every attempt."""
    hang: float = 0.0
    """No answer at all until the client goes away."""
    attempts: int | None = 1
    """How many attempts of one body get the fault before it is answered; None means all."""
    retry_after: float | None = 0.05
    """Seconds in the Retry-After header of a 429 or 503; None leaves it out."""
    retry_after_as_date: bool = False
    delay_seconds: float = 0.0
    close_after_response: bool = False
    """Closes the kept-alive connection after each response without announcing it, as idle servers do."""
    truncate_to: int | None = None
    """Silently drops the middle of prompts with more tokens than this; answer and receipt show it."""
    refuse_schemas: bool = False
    """400 for a request with response_format."""
    without_usage: bool = False
    cached_left_out: int = 0
    """Reports this many tokens as cached, and prompt_tokens without them."""
    adds_tokens: int = 0
    """Reports this many tokens more than were sent, as for a longer template."""
    limited_first: int = 0
    """So many requests, of whatever kind, are answered with a 429 before any other."""
    tokenize_status: int = 200
    """Another status makes /tokenize fail."""
    tokenize_seconds: float = 0.0
    """How long /tokenize takes."""
    seed: int = 0


_RATES = (
    "rate_429", "rate_500", "rate_503", "drop", "drop_midway", "truncated", "malformed", "html", "null_content",
    "missing_content", "no_choices", "error_200", "bad_request", "context_length", "hang",
)  # fmt: skip
_PERMANENT = ("bad_request", "context_length")


def drawn(faults: Faults, path: str, body_digest: str, attempt: int) -> str:
    """The fault of a body at this attempt, or ''. Depends only on the body and the attempt."""
    seed = f"{faults.seed}:{path}:{body_digest}".encode()
    share = int.from_bytes(hashlib.blake2b(seed, digest_size=8).digest(), "big") / 2**64
    for name in _RATES:
        rate: float = getattr(faults, name)
        if share < rate:
            lasting = name in _PERMANENT or faults.attempts is None or attempt <= faults.attempts
            return name if lasting else ""
        share -= rate
    return ""


def faulty(fault: str, faults: Faults, good: dict[str, Any]) -> Response | None:
    """The response for `fault` instead of the `good` answer; None drops the connection."""
    if fault == "drop":
        return None
    if fault in ("rate_429", "rate_503"):
        return json_response(int(fault[-3:]), {"error": {"message": "slow down"}}, _retry_after(faults))
    text = json.dumps(good).encode()
    answers: dict[str, Response] = {
        "rate_500": json_response(500, {"error": {"message": "internal error", "type": "server_error"}}),
        "drop_midway": Response(200, text, announced=len(text) * 2),
        "truncated": Response(200, text[: len(text) // 2]),
        "malformed": Response(200, b"{'choices': [oops"),
        "html": Response(200, b"<!DOCTYPE html><html><body>Welcome to the gateway</body></html>", "text/html"),
        "null_content": json_response(200, _with_content(good, None)),
        "missing_content": json_response(200, _with_content(good)),
        "no_choices": json_response(200, {**good, "choices": []}),
        "error_200": json_response(200, {"error": {"message": "upstream is tired", "type": "upstream_error"}}),
        "bad_request": json_response(400, {"error": {"message": "unknown parameter", "type": "invalid_request_error"}}),
    }
    return answers[fault]


def _with_content(good: dict[str, Any], *content: None) -> dict[str, Any]:
    """The good answer with null content, or with no content at all."""
    (choice,) = good["choices"]
    kept = {k: v for k, v in choice.items() if k not in ("message", "text")}
    if "text" in choice:
        return {**good, "choices": [{**kept, **({"text": None} if content else {})}]}
    message = {"role": "assistant", **({"content": None} if content else {})}
    return {**good, "choices": [{**kept, "message": message}]}


def _retry_after(faults: Faults) -> dict[str, str]:
    if faults.retry_after is None:
        return {}
    date = formatdate(time.time() + faults.retry_after, usegmt=True)
    return {"Retry-After": date if faults.retry_after_as_date else f"{faults.retry_after:g}"}
