"""What was sent to a model and what comes back.

    Sent      what was really sent, measured at the place of sending
    Answer    what was sent and what came back: a Completion, a Measurement or a Failure

These are msgspec Structs, because a union of Completion, Measurement and Failure must be read back as what it was.
"""

from __future__ import annotations

from typing import Literal

import msgspec

WINDOW_FULL = "model_context_window_exceeded"
"""`finish` of an answer that ended because prompt and answer filled the window."""


class Completion(msgspec.Struct, frozen=True, tag="completion", tag_field="kind", omit_defaults=True, gc=False):
    """An answer. `text` excludes thinking and the answer prefix."""

    text: str
    finish: str = ""
    thinking: str = ""
    prompt_tokens: int | None = None
    """The model's own count, the receipt."""
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens that came from a cache, where the server says."""
    cache_write_tokens: int | None = None
    """Prompt tokens that were written to a cache, where the server says: some charge for it."""
    primed_tokens: int | None = None
    """Tokens that a request without an answer wrote to the cache just before, paid beside the prompt."""
    thinking_tokens: int | None = None
    """The thinking tokens among the completion tokens."""
    model: str = ""
    """The model's name in the server's reply, which may differ from the one asked for."""
    system_fingerprint: str = ""
    """The server's name for its configuration and weights."""
    margin: float | None = None
    """Nats between the first token of the answer and the second candidate, if that was requested."""


class Measurement(msgspec.Struct, frozen=True, tag="measured", tag_field="kind", omit_defaults=True, gc=False):
    """Log-probability numbers in place of an answer, each under the name of its metric."""

    numbers: dict[str, float]
    char_spans: tuple[tuple[int, int], ...] = ()
    """Character ranges of the document that the numbers are about; empty means all of it."""


FailureKind = Literal[
    "connection", "timeout", "rate_limited", "server", "malformed", "empty_body", "refused_request", "no_credit",
    "unexpected_status", "aborted", "filtered", "recitation", "tool_call", "compaction",
    "context_length", "out_of_memory", "not_a_number", "unsupported", "left_out",
]  # fmt: skip


NO_CREDIT_FIX = "add credit to the account of this key, or set the key of an account that has some"


class Failure(msgspec.Struct, frozen=True, tag="failure", tag_field="kind", omit_defaults=True, gc=False):
    """No answer, and why. Never scored. `transient` means that a retry may help."""

    why: FailureKind
    message: str
    transient: bool = False
    retry_after: float | None = None
    status: int | None = None


Outcome = Completion | Measurement | Failure


class Sent(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What was sent, measured at the place of sending."""

    form: Literal["chat", "completion", "ids"]
    prefix: Literal["prefill", "appended", "none"]
    characters: int = 0
    digest: str = ""
    """The digest of the bytes or token ids sent."""
    decoding: dict[str, float | int | str | bool | None] = {}
    notes: tuple[str, ...] = ()
    """Notes for the reader: 'beyond the window', 'plain path: sliding window', ..."""


class Answer(msgspec.Struct, frozen=True):
    sent: Sent
    outcome: Outcome
    seconds: float
