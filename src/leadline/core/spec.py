"""The spec: everything the user asked for. A TOML file and flags give the same one.

`limits` cannot change a number and stay out of the identity; all else is in it.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from leadline.core.digest import digest
from leadline.core.errors import UnknownName, UsageError
from leadline.core.types import Reading

# --- The spec: everything the user asked for. A TOML file and flags give the same one.

ModelT = TypeVar("ModelT", bound=BaseModel)
Option = Any  # what TOML can hold: str, int, float, bool, list, table


class Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TaskSpec(Part):
    """A task by name, with the options that differ from its defaults. `label` names it in tables."""

    name: str
    options: dict[str, Option] = {}
    label: str = ""

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"name": value}
        if isinstance(value, Mapping):
            # [[tasks]] tables may give options beside the name.
            known = {"name", "options", "label"}
            extra = {k: v for k, v in value.items() if k not in known}
            options = {**dict(value.get("options") or {}), **extra}
            return {**{k: v for k, v in value.items() if k in known}, "options": options}
        return value

    @property
    def title(self) -> str:
        """What tables and records call it: the label, else the name, else the last part of `file.py:Name`."""
        return self.label or self.name.rpartition(":")[2]


class Limits(Part):
    """How hard to try. Nothing here can change a number."""

    workers: int = Field(16, ge=1, le=1024, description="requests in flight for a server model")
    timeout: float = Field(600.0, gt=0, description="seconds a request may take")
    attempts: int = Field(6, ge=1, description="times a sample is asked before it counts as failed")
    breaker: int = Field(20, ge=1, description="failed samples in a row after which the run stops")
    ray: int | None = Field(None, ge=0, description="replicas of an in-process model as Ray actors; 0: one per GPU")


class Spec(Part):
    """One run. See the fields of `Limits` and `TaskSpec` for the rest."""

    model: str
    tasks: tuple[TaskSpec, ...] = Field(min_length=1)
    lengths: tuple[int, ...] = Field(min_length=1)
    depths: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)
    samples: int = Field(3, ge=1)
    reading: Reading = "fresh"
    seed: int = 0
    until: str = ""
    """A stopping rule: `samples` is then the most that a cell may have, not what every cell gets."""
    limits: Limits = Limits()

    @field_validator("lengths", mode="before")
    @classmethod
    def _lengths(cls, value: Any) -> Any:
        return parse_lengths(value)

    @field_validator("depths", mode="before")
    @classmethod
    def _depths(cls, value: Any) -> Any:
        return parse_depths(value)

    @field_validator("tasks", mode="before")
    @classmethod
    def _tasks(cls, value: Any) -> Any:
        return [value] if isinstance(value, (str, Mapping)) else value

    @model_validator(mode="after")
    def _distinct_labels(self) -> Spec:
        titles = [t.title for t in self.tasks]
        twice = sorted({t for t in titles if titles.count(t) > 1})
        if twice:
            raise ValueError(f"two tasks are both called {twice[0]!r}: give one of them a label")
        return self

    def identity(self) -> dict[str, Any]:
        """The spec without limits, as plain values. A rule that is not given is left out, as it was before there were
        any."""
        return self.model_dump(mode="json", exclude={"limits"} if self.until else {"limits", "until"})

    @property
    def digest(self) -> str:
        return digest(self.identity())


class Suite(Part):
    """A named set of spec values that flags may override: the object an entry point of leadline.suites gives."""

    name: str
    summary: str
    values: dict[str, Any]


_LENGTH = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*([kKmM]?)\s*$")


def parse_length(value: str | int | float) -> int:
    """`4k` = 4096, `128k` = 131072, `1m` = 1048576, plain numbers as they are."""
    match = _LENGTH.match(str(value))
    if isinstance(value, bool) or not match:
        raise UsageError(f"{value!r} is not a length", where="lengths", fix="write 4096, 4k, 128k or 1m")
    number, unit = match.groups()
    tokens = float(number) * {"": 1, "k": 1024, "m": 1024 * 1024}[unit.lower()]
    if tokens != int(tokens) or tokens < 1:
        raise UsageError(f"{value!r} is not a whole number of tokens", where="lengths", fix="write 4096 or 4k")
    return int(tokens)


def parse_lengths(value: Any) -> tuple[int, ...]:
    """`"1k,2k"`, `["1k", 2048]` or one number; sorted, each once."""
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, (int, float)):
        parts = [parts]
    if not isinstance(parts, Sequence):
        raise UsageError(f"{value!r} is not a list of lengths", where="lengths", fix='write "1k,2k,4k"')
    return tuple(sorted({parse_length(p) for p in parts}))


def parse_depths(value: Any) -> tuple[float, ...]:
    """`5` = five evenly spaced, `sigmoid:11` = denser at both ends, `0.1..0.6:32` = from to, `0,0.5,1` = a list."""
    if isinstance(value, int) and not isinstance(value, bool):
        return even_depths(value)
    if isinstance(value, str):
        text = value.strip()
        if re.fullmatch(r"\d+", text):
            return even_depths(int(text))
        kind, _, count = text.partition(":")
        if kind in ("linear", "sigmoid") and count.isdigit():
            return even_depths(int(count)) if kind == "linear" else sigmoid_depths(int(count))
        between = re.fullmatch(r"([\d.]+)\.\.([\d.]+):(\d+)", text)
        value = _between(*between.groups()) if between else text.split(",")
    if isinstance(value, float):
        value = [value]
    try:
        depths = tuple(sorted({round(float(d), 6) for d in value}))
    except (TypeError, ValueError):
        raise UsageError(
            f"{value!r} is not a depth grid", where="depths", fix="write 11, sigmoid:11 or 0,0.5,1"
        ) from None
    for depth in depths:
        if not 0 <= depth <= 1:
            raise UsageError(
                f"depth {depth:g} lies outside the document",
                where="depths",
                fix="depths run from 0 (first token) to 1 (last); write 0.5 for the middle, 11 for a grid",
            )
    return depths


def even_depths(count: int) -> tuple[float, ...]:
    if count < 1:
        raise UsageError("a depth grid needs at least one depth", where="depths", fix="write 11")
    return (0.5,) if count == 1 else tuple(round(i / (count - 1), 6) for i in range(count))


def _between(low: str, high: str, count: str) -> list[float]:
    try:
        return [float(low) + (float(high) - float(low)) * d for d in even_depths(int(count))]
    except ValueError:
        raise UsageError(f"{low}..{high} is no range of depths", where="depths", fix="write 0.1..0.6:32") from None


def sigmoid_depths(count: int) -> tuple[float, ...]:
    """A logistic with slope 0.1 per percent through the even grid, end points kept: dense at both ends."""
    even = even_depths(count)
    inner = [1 / (1 + math.exp(-10 * (d - 0.5))) for d in even[1:-1]]
    return tuple(round(d, 6) for d in (even[0], *inner, even[-1])) if count > 2 else even


def load_spec(path: Path) -> dict[str, Any]:
    """The plain values of a TOML file; validated later, together with flags."""
    try:
        return tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not a TOML file: {error}", where=str(path), fix="see docs/specs.md") from None
    except FileNotFoundError:
        fix = "give the path of a spec file, or the name of a suite or task; see docs/specs.md"
        raise UsageError("there is no such spec file", where=str(path), fix=fix) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the spec: {error}", where=str(path)) from None


def make_spec(values: Mapping[str, Any], *, where: str = "spec") -> Spec:
    """Gate 1: shape. Unknown keys and wrong types become one clear error."""
    return validated(Spec, values, where=where)


def validated(cls: type[ModelT], values: Mapping[str, Any], *, where: str) -> ModelT:
    """Pydantic's first complaint, in our words."""
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(p) for p in first["loc"])
        if first["type"] == "extra_forbidden":
            *path, name = (str(p) for p in first["loc"])
            raise UnknownName("key", name, _keys_at(cls, path), where=".".join([where, *path])) from None
        if first["type"] == "missing":
            raise UsageError(f"{place!r} is missing", where=where, fix=f"add {place} = ...") from None
        message = _WANTED.get(first["type"]) or first["msg"].removeprefix("Value error, ")
        given = first.get("input")
        shown = f" (given: {given!r})" if isinstance(given, (str, int, float, bool)) else ""
        field = cls.model_fields.get(place)
        fix = f"{place} is for: {field.description}" if field and field.description else ""
        raise UsageError(f"{place}: {message}{shown}" if place else message, where=where, fix=fix) from None


_WANTED = {
    **dict.fromkeys(("tuple_type", "list_type"), "a list is wanted"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "a table of keys and values is wanted"),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number is wanted"),
    **dict.fromkeys(("float_type", "float_parsing"), "a number is wanted"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "true or false is wanted"),
    "string_type": "text is wanted",
}
"""Pydantic's names of errors that are about the kind of a value, in words for people who have not read it."""


def _keys_at(cls: type[BaseModel], path: Sequence[str]) -> list[str]:
    for name in path:
        field = cls.model_fields.get(name)
        inner = field.annotation if field else None
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            cls = inner
    return list(cls.model_fields)


# --- Lists of models, in a spec or in a file of their own, each under the name that tables call it.
#
# models = ["hf:org/model", {name = "yarn 4", model = "hf:org/model?rope=yarn:4"}]

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
