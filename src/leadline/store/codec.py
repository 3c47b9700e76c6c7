"""Records and manifests as bytes: one JSON line a record, readable by anything."""

from __future__ import annotations

from typing import Any

import msgspec

from leadline.core.types import Cell, Failure, Outcome, Record


class Seen(msgspec.Struct, frozen=True):
    """The part of a line that says whether its cell is done. Skips the rest, so that resuming is quick."""

    cell: Cell
    outcome: Outcome

    @property
    def done(self) -> bool:
        return not isinstance(self.outcome, Failure)


_encoder = msgspec.json.Encoder()
_record = msgspec.json.Decoder(Record)
_seen = msgspec.json.Decoder(Seen)

DecodeError = msgspec.DecodeError
"""What `decode` and `decode_seen` raise for a line that is not a record."""


def encode(record: Record) -> bytes:
    """The record's line, newline included. JSON escapes line breaks, so a line is always one record."""
    return _encode(record) + b"\n"


def decode(line: bytes) -> Record:
    return _record.decode(line)


def decode_seen(line: bytes) -> Seen:
    return _seen.decode(line)


def encode_pretty(value: Any) -> bytes:
    """For files that people open, such as the manifest."""
    return msgspec.json.format(_encode(value), indent=2) + b"\n"


def _encode(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:  # half of a surrogate pair, which a server may well send
        return _encoder.encode(_well_formed(msgspec.to_builtins(value)))


def _well_formed(value: Any) -> Any:
    """The same value with every lone surrogate shown as U+FFFD."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_well_formed(k): _well_formed(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_well_formed(v) for v in value]
    return value
