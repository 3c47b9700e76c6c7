"""The full model string for the short forms that people type: an address, a folder, or a name on the hub.

http://127.0.0.1:8000     openai:NAME?base_url=http://127.0.0.1:8000/v1, with the name that the server lists
path/to/checkpoint        hf:path/to/checkpoint
org/name                  hf:org/name
"""

from __future__ import annotations

import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, urlsplit, urlunsplit

from leadline.core.errors import ServerError, UsageError
from leadline.core.format import sanitise
from leadline.core.secrets import remember

LIST_SECONDS = 10.0
_ADDRESS = re.compile(r"[\w.-]+:\d{2,5}(/[\w./-]*)?")
_ENDPOINT = re.compile(r"/(chat/completions|completions|models)$")
"""Endings of addresses in a server's log or manual."""
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def resolve_model(text: str, say: Callable[[str], None] = lambda line: None) -> str:
    """The model string. `say` gets a line about it if the text was a short form."""
    if text.startswith(("http://", "https://")):
        resolved = _at_address(text)
    elif _ADDRESS.fullmatch(text):
        raise UsageError(f"{text!r} lacks its protocol", where="--model", fix=f"write --model http://{text}")
    elif ":" in text.partition("?")[0]:
        return text
    else:
        resolved = _local_or_hub(text)
    say(f"model: {resolved}")
    return resolved


def _at_address(text: str) -> str:
    parts = address_parts(text)
    path = _ENDPOINT.sub("", parts.path.rstrip("/"))
    address = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    bases = [address] if address.endswith("/v1") else [f"{address}/v1", address]
    key_name = dict(parse_qsl(parts.query)).get("api_key_env", "OPENAI_API_KEY")
    names: list[str] = []
    for base in bases:
        names = _listed(base, key_name)
        if names:
            break
    options = f"&{parts.query}" if parts.query else ""
    if not names:
        raise ServerError(
            "no OpenAI-compatible server lists its models there",
            where=f"GET {bases[0]}/models",
            fix="start the server, check the port, or write openai:NAME?base_url=URL",
        )
    if len(names) > 1:
        choices = "; ".join(f"openai:{name}?base_url={base}" for name in names[:6])
        raise UsageError(f"the server has {len(names)} models", where=base, fix=f"name one of them: {choices}")
    return f"openai:{names[0]}?base_url={base}{options}"


def address_parts(text: str) -> SplitResult:
    """The parts of a server's address, or an error that shows it."""
    try:
        parts = urlsplit(text)
        if parts.hostname and parts.port != 0:
            return parts
    except ValueError:  # http://[, a port that is no number
        pass
    raise UsageError(
        f"{sanitise(text, 100)!r} is not an address", where="--model", fix="write --model http://HOST:PORT"
    )


def _listed(base: str, key_name: str) -> list[str]:
    """The names of GET base/models; none where it does not answer in that form."""
    key = os.environ.get(key_name, "").strip()
    remember(key)
    headers = {"Authorization": f"Bearer {key}"} if key and key.isascii() and key.isprintable() else {}
    try:
        request = urllib.request.Request(f"{base}/models", headers=headers)
        with urllib.request.urlopen(request, timeout=LIST_SECONDS) as reply:
            entries = json.loads(reply.read(1 << 20))["data"]
        return [sanitise(str(entry["id"]), 200) for entry in entries if entry.get("id")]
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (401, 403):
            refuses = f"the server refuses the key in ${key_name}"
            what = refuses if key else f"the server wants a key and ${key_name} is not set"
            other = "or name another variable: ?api_key_env=NAME after the address"
            fix = f"put the right key into {key_name}, {other}" if key else f"export {key_name}=..., {other}"
            raise UsageError(f"{what} ({error.code})", where=f"GET {base}/models", fix=fix) from None
        return []
    except (OSError, OverflowError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return []


def _local_or_hub(text: str) -> str:
    name, mark, options = text.partition("?")
    folder, tail = Path(name).expanduser(), f"{mark}{options}"
    is_model = (folder / "config.json").is_file()
    written_as_path = name.startswith((".", "/", "~"))
    if folder.suffix == ".gguf" and folder.is_file():
        raise UsageError(
            "a GGUF file is read by a server",
            where=text,
            fix=f"start `llama-server -m {name}` and give its address: --model http://127.0.0.1:8080",
        )
    if is_model and _HUB_NAME.fullmatch(name) and not written_as_path:
        raise UsageError(
            "this is a folder here and may be a name on the hub",
            where=text,
            fix=f"write hf:./{name}{tail} for the folder, or remove it and write hf:{name}{tail} for the hub",
        )
    if is_model:
        return f"hf:{name}{tail}"
    if folder.exists():
        raise UsageError(
            "this folder has no config.json", where=text, fix="name the folder of a transformers checkpoint"
        )
    if _HUB_NAME.fullmatch(name) and not written_as_path:
        return f"hf:{name}{tail}"
    raise UsageError(
        f"{text!r} is not a model",
        where="--model",
        fix="give a server's address (http://127.0.0.1:8000), a checkpoint's folder, a name on the hub (org/name), or "
        "PROVIDER:NAME?key=value such as sim:perfect",
    )
