"""Where a number came from: versions, machine and command line, without secrets."""

from __future__ import annotations

import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

import msgspec

PACKAGES = (
    "leadline", "numpy", "scipy", "pydantic", "msgspec", "urllib3", "tokenizers", "tiktoken",
    "transformers", "torch", "safetensors", "accelerate", "ray",
)  # fmt: skip

_SECRET_NAME = re.compile(r"(key|token|secret|password|passwd|credential|auth)s?$", re.IGNORECASE)
_SECRET_PAIR = re.compile(
    r"(?i)\b([\w.-]*(?:api[_-]?key|access[_-]?key|token|secret|password|passwd|authorization))=([^&\s]+)"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_SHORTEST_SECRET = 8
"""Shorter values of the environment are ordinary words ("none", "dummy") and would be blotted out everywhere."""
HIDDEN = "***"


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """One process that wrote to a run. A resumed run has several."""

    started: str
    command: str
    leadline: str
    python: str
    platform: str
    cores: int
    packages: dict[str, str]
    ended: str = ""
    """When it had nothing left to ask; empty while it goes on, and for good if it was stopped before."""


def session(argv: Sequence[str] | None = None) -> Session:
    """This process, now."""
    packages = installed(PACKAGES)
    return Session(
        started=now(),
        command=command_line(sys.argv if argv is None else argv),
        leadline=packages.pop("leadline", "?"),
        python=platform.python_version(),
        platform=platform.platform(),
        cores=os.cpu_count() or 1,
        packages=packages,
    )


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def installed(names: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def command_line(argv: Sequence[str]) -> str:
    """The command as it could be typed again; the program by its name, not by its place on this machine."""
    if not argv:
        return ""
    program, *words = argv
    return redact(shlex.join([os.path.basename(program), *words]))


def redact(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text without passwords in addresses, values named like secrets, or secrets of the environment."""
    for secret in _secrets(os.environ if environment is None else environment):
        text = text.replace(secret, HIDDEN)
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    return _SECRET_PAIR.sub(rf"\1={HIDDEN}", text)


def holds_secret(text: str) -> bool:
    return redact(text) != text


def _secrets(environment: Mapping[str, str]) -> list[str]:
    values = {v for k, v in environment.items() if _SECRET_NAME.search(k) and len(v) >= _SHORTEST_SECRET}
    return sorted(values, key=len, reverse=True)  # a secret may begin with another
