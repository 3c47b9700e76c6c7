"""Keys of APIs: from environment variables, never from options, which are written to disk."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from urllib.parse import unquote

from leadline.core.errors import UsageError
from leadline.core.secrets import remember

_KEY = re.compile(r"(sk|pk|gsk|hf|xai|r8|pplx|nvapi|glpat|ghp|AIza|key)[_-]?(?=.*[a-z0-9])\w{12,}", re.ASCII)
"""How the keys of known services begin, in a name that may be that of an environment variable."""


def checked_variable(name: str, option: str) -> str:
    """The name of a variable. Refuses a key given in its place, before that is written anywhere."""
    looks_like_key = _KEY.match(name) or (len(name) > 16 and re.search("[a-z]", name) and re.search("[0-9]", name))
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or (name not in os.environ and looks_like_key):
        remember(name)
        raise UsageError(
            f"{option} is not the name of an environment variable",
            where=option,
            fix="put the value into the environment and its name here, never the key itself",
        )
    return name


def read_key(variable: str, options: str) -> str:
    """The key, without the line break that files and shells leave at its end; empty where there is none. `options` is
    what will be written to disk."""
    key = os.environ.get(variable, "").strip()
    remember(key)
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise UsageError(
            f"the key in ${variable} has characters that no key has", where="api_key_env", fix="set it again"
        )
    if key and len(key) > 5 and key in unquote(options):
        raise UsageError(
            "the key is also in the model's options, which are written to disk",
            where="model",
            fix=f"leave it out: it is read from ${variable}",
        )
    return key


def first_set(variables: Sequence[str]) -> str:
    """The first of these variables that has a value, else the first."""
    return next((name for name in variables if os.environ.get(name, "").strip()), variables[0])
