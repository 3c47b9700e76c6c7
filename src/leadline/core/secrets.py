"""Secrets are replaced by *** wherever something is shown or written.

The values are those that this process uses (`remember`), those of environment variables with names such as
OPENAI_API_KEY, passwords in URLs, and texts written like `api_key=...` or `"api_key": "..."`.
"""

from __future__ import annotations

import json
import os
import re
from urllib.parse import quote, unquote

HIDDEN = "***"
_SHORTEST = 8
"""Shorter values of the environment are ordinary words ("none", "dummy") and are not redacted."""
_SHORTEST_USED = 6
_SHORTEST_HALF = 12
_SECRET_VARIABLE = re.compile(r"(key|token|secret|password|passwd|credential|auth)s?$", re.IGNORECASE)
_NAME = r"[\w.-]*(?:api[_-]?key|access[_-]?key|token|secret|password|passwd|authorization)"
_PAIR = re.compile(rf"(?i)\b({_NAME})=([^&\s]+)")
_JSON_PAIR = re.compile(rf'(?i)(\\?["\']{_NAME}\\?["\']\s*:\s*\\?["\'])([^"\'<>\\]{{{_SHORTEST_USED},}})')
_USER_INFO = re.compile(r"(?<=://)[^/\s]+@")
_used: set[str] = set()


def remember(value: str) -> None:
    """Redact this value from now on: a key that is sent, a password."""
    value = value.strip()
    if len(value) >= _SHORTEST_USED:
        _used.update({value, quote(value, safe=""), json.dumps(value)[1:-1], value.replace("/", "\\/")})


def redact(text: str) -> str:
    """The text without any secret."""
    found = {v.strip() for k, v in os.environ.items() if _SECRET_VARIABLE.search(k)}
    halves = {half for value in _used for half in (value[: len(value) // 2], value[len(value) // 2 :])}
    text = _without(text, {value for value in found if len(value) >= _SHORTEST} | _used)
    text = _without(text, {half for half in halves if len(half) >= _SHORTEST_HALF})  # servers break and shorten keys
    text = _USER_INFO.sub(f"{HIDDEN}@", text)
    return _JSON_PAIR.sub(rf"\1{HIDDEN}", _PAIR.sub(rf"\1={HIDDEN}", text))


def redact_used(text: str) -> str:
    """Only without the values that this process uses: for answers of models, where `token=x` may be part of a text."""
    return _without(text, _used)


def redact_bytes(data: bytes) -> bytes:
    """As `redact_used`, for a reply as it arrived: servers may quote a request, with its key."""
    for value in sorted(_used, key=len, reverse=True):
        data = data.replace(value.encode(), HIDDEN.encode())
    return data


def holds_secret(text: str) -> bool:
    return any(redact(form) != form for form in (text, unquote(text)))


def _without(text: str, values: set[str]) -> str:
    for value in sorted(values, key=len, reverse=True):  # longest first: a secret may begin with another
        text = text.replace(value, HIDDEN)
    return text
