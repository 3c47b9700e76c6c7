"""Secrets are replaced by *** wherever something is shown or written.

The values are those that this process uses (`remember`), plain, quoted and in base 64; those of environment variables
with names such as OPENAI_API_KEY; passwords in URLs; and texts written like `api_key=...` or `"api_key": "..."`.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

HIDDEN = "***"
_SHORTEST = 8
"""Shorter values of the environment are ordinary words ("none", "dummy") and are not redacted."""
_SHORTEST_USED = 6
_SHORTEST_HALF = 12
_SHORTEST_WORD = 4
"""Values in use of 4 and 5 characters are redacted where they stand alone, in texts only: never inside a number."""
_WORD = re.compile(r"[A-Za-z]+(?:[-_ ][A-Za-z]+)*|[0-9]{1,11}")
_LONGEST_WORD = 19
"""Values like words and plain numbers may be what a text is about: in answers and prompts they stay. Such a value is
hidden in messages and wherever settings are written."""
_PLACEHOLDERS = frozenset("none null empty dummy test token fake local key ollama true false".split())
"""Keys that users give to servers without one; they are words of ordinary texts."""
_SECRET_VARIABLE = re.compile(r"(key|token|secret|password|passwd|credential|auth)s?$", re.IGNORECASE)
_NAME = r"[\w.-]*(?:api[_-]?key|access[_-]?key|token|secret|password|passwd|authorization)"
_PAIR = re.compile(rf"(?i)\b({_NAME})=([^&\s]+)")
_JSON_PAIR = re.compile(rf'(?i)(\\?["\']{_NAME}\\?["\']\s*:\s*\\?["\'])([^"\'<>\\]{{{_SHORTEST_USED},}})')
_USER_INFO = re.compile(r"(?<=://)[^/\s]+@")
_used: set[str] = set()
_short: set[str] = set()

# --- what looks like a secret ---

_KNOWN_KEY = re.compile(
    r"(?<![A-Za-z0-9])(sk-|pk-|gsk_|hf_|xai-|r8_|pplx-|nvapi-|glpat-|gh[pousr]_|github_pat_|AIza|AKIA|ASIA|eyJ|xox[bap]-)"
    r"[A-Za-z0-9_./+=-]{8,}"
)
"""How the keys of known services begin, and JSON web tokens."""
_SECRET_TEXT = re.compile(r"(?i)^\s*(bearer|basic|token|apikey)\s+\S{6,}|-----BEGIN [A-Z ]*PRIVATE KEY")
_SECRET_FIELD = re.compile(
    r"(?i)(^|[_.-])(api_?key|access_?key|private_?key|secret_?key|subscription_?key|key|secret|password|passwd|passphrase"
    r"|pwd|pw|credentials?|auth|authorization|bearer|cookie|signature|sig|code|jwt|token|access_?token|session)$"
)
_HARMLESS_FIELD = re.compile(
    r"(?i)(max|min|eos|bos|pad|stop|sep|unk|mask|cls|num|n)_.*token|prompt_cache_key|session_id"
)


def is_key(text: str) -> bool:
    """Whether a text holds a key of a known service, by how it begins."""
    return any(re.search("[0-9]", match[0]) is not None for match in _KNOWN_KEY.finditer(text))


def is_random(text: str) -> bool:
    """Whether a text looks drawn at random: long, without separators, of letters and digits in turn."""
    changes = len(re.findall(r"(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])", text))
    return len(text) >= 20 and re.fullmatch(r"[A-Za-z0-9_+=%~-]+", text) is not None and changes >= 4


def secret_in(value: Any, name: str = "") -> str:
    """The first text in a value of JSON that looks like a secret, by itself or by the name of its field; else empty."""
    if isinstance(value, dict):
        return next(filter(None, (secret_in(inner, str(key)) for key, inner in value.items())), "")
    if isinstance(value, (list, tuple)):
        return next(filter(None, (secret_in(inner, name) for inner in value)), "")
    if not isinstance(value, str) or not value.strip():
        return ""
    named = _SECRET_FIELD.search(name) is not None and _HARMLESS_FIELD.search(name) is None
    looks = is_key(value) or _SECRET_TEXT.search(value) is not None or is_random(value)
    return value if looks or (named and len(value.strip()) >= _SHORTEST_WORD) else ""


# --- redacting ---


def remember(value: str) -> None:
    """Redact this value from now on: a key that is sent, a password."""
    value = value.strip()
    if len(value) >= _SHORTEST_USED:
        _used.update({value, quote(value, safe=""), json.dumps(value)[1:-1], value.replace("/", "\\/")})
        _used.update(form for form in _base64_forms(value) if len(form) >= _SHORTEST)
    elif len(value) >= _SHORTEST_WORD and value.casefold() not in _PLACEHOLDERS:
        _short.add(value)


def _base64_forms(value: str) -> Iterator[str]:
    """The characters that stand for the value in base 64, wherever it begins in what was encoded."""
    data = value.encode()
    for shift in range(3):
        coded = base64.b64encode(b"\0" * shift + data).rstrip(b"=").decode()
        first = -(-shift * 8 // 6)
        whole = (shift + len(data)) * 8 // 6
        core = coded[first:whole]
        yield core
        yield core.translate(str.maketrans("+/", "-_"))


def redact(text: str) -> str:
    """The text without any secret."""
    values = {v.strip() for k, v in os.environ.items() if _SECRET_VARIABLE.search(k)}
    halves = {half for value in _used for half in (value[: len(value) // 2], value[len(value) // 2 :])}
    text = _without(text, {value for value in values if len(value) >= _SHORTEST} | _used)
    text = _without(text, {half for half in halves if len(half) >= _SHORTEST_HALF})  # servers break and shorten keys
    text = _USER_INFO.sub(f"{HIDDEN}@", _without_short(text))
    return _JSON_PAIR.sub(rf"\1{HIDDEN}", _PAIR.sub(rf"\1={HIDDEN}", text))


def is_ordinary(value: str) -> bool:
    """Whether a value in use could be a word or number of any text: `kitchen`, `brave-lantern`, `7654321`."""
    return len(value) <= _LONGEST_WORD and _WORD.fullmatch(value) is not None


def redact_used(text: str) -> str:
    """Only without the values that this process uses: for answers of models, where `token=x` may be part of a text.
    Ordinary words stay, since an answer without them would be graded as another."""
    if not (_used or _short):
        return text
    return _without_short(_without(text, _telling(_used)), ordinary=False)


def redact_bytes(data: bytes) -> bytes:
    """As `redact_used`, for a reply as it arrived: servers may quote a request, with its key."""
    for value in sorted(_telling(_used), key=len, reverse=True):
        data = data.replace(value.encode(), HIDDEN.encode())
    return data


def holds_used(data: bytes) -> bool:
    """Whether a value in use is in the bytes, perhaps as a part of another word or number."""
    if not (_used or _short):
        return False
    return any(value.encode() in data for value in _telling(_used | _short))


def _telling(values: set[str]) -> set[str]:
    return {value for value in values if not is_ordinary(value)}


def redact_values(value: Any) -> Any:
    """A value of JSON with `redact_used` on every text in it; numbers stay."""
    if isinstance(value, str):
        return redact_used(value)
    if isinstance(value, dict):
        return {redact_values(key): redact_values(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact_values(inner) for inner in value]
    return value


def holds_secret(text: str) -> bool:
    """Whether a name that is written to disk holds a secret."""
    forms = (text, unquote(text))
    return any(redact(form) != form or is_key(form) for form in forms)


def _without(text: str, values: set[str]) -> str:
    for value in sorted(values, key=len, reverse=True):  # longest first: a secret may begin with another
        text = text.replace(value, HIDDEN)
    return text


def _without_short(text: str, *, ordinary: bool = True) -> str:
    for value in _short if ordinary else _telling(_short):
        if value in text:
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])", HIDDEN, text)
    return text
