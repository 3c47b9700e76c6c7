"""Lists of models, in a spec or in a file of their own, each under the name that tables call it.

models = ["hf:org/model", {name = "yarn 4", model = "hf:org/model?rope=yarn:4"}]
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from leadline.core.errors import UsageError

_FIX = 'give a .toml or .json file with models = ["hf:FOLDER", "sim:cliff"]; see docs/specs.md'


class Listed(msgspec.Struct, frozen=True):
    """A model of a list."""

    name: str
    model: str


def read_models(path: Path) -> list[Listed]:
    """A TOML or JSON file with a list `models`; of JSON also a plain list."""
    try:
        text = path.read_text(encoding="utf-8")
        loaded = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except OSError as error:
        raise UsageError(f"cannot read the list of models: {error.strerror}", where=str(path), fix=_FIX) from None
    except ValueError as error:
        raise UsageError(f"the list of models cannot be read: {error}", where=str(path), fix=_FIX) from None
    if isinstance(loaded, dict) and "models" in loaded and len(loaded) > 1:
        others = ", ".join(sorted(loaded.keys() - {"models"}))
        raise UsageError(
            f"a list of models holds nothing else, and this file has {others} too",
            where=str(path),
            fix="leave them out, or give the file in the place of the task: it is a spec",
        )
    return parse_models(loaded.get("models") if isinstance(loaded, dict) else loaded, where=str(path))


def parse_models(items: Any, *, where: str) -> list[Listed]:
    """The plain values of a list."""
    if not isinstance(items, list) or not items:
        raise UsageError("there are no models in it", where=where, fix='write models = ["hf:FOLDER", "sim:cliff"]')
    found = [_listed(item, where) for item in items]
    twice = [one.name for i, one in enumerate(found) if one.name in {other.name for other in found[:i]}]
    if twice:
        raise UsageError(f"two models are both called {twice[0]!r}", where=where, fix="give one another name")
    return found


def _listed(item: Any, where: str) -> Listed:
    if isinstance(item, str):
        return Listed(item, item)
    if isinstance(item, Mapping) and isinstance(item.get("model"), str) and set(item) <= {"name", "model"}:
        return Listed(str(item.get("name", item["model"])), item["model"])
    raise UsageError(f"{item!r} is no model", where=where, fix='write "hf:FOLDER" or {name = "...", model = "..."}')
