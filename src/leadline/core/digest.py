"""Digests: one canonical way to turn a value into a short, stable name."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical(value: Any) -> bytes:
    """The same bytes for equal values, whatever order their keys came in."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")


def digest(value: Any, characters: int = 16) -> str:
    """A hex digest of a JSON-like value."""
    return digest_bytes(canonical(value), characters)


def digest_text(text: str, characters: int = 16) -> str:
    return digest_bytes(text.encode("utf-8", "surrogatepass"), characters)


def digest_bytes(data: bytes, characters: int = 16) -> str:
    return hashlib.sha256(data).hexdigest()[:characters]
