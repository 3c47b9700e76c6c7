"""Rubrics: TOML files of items that a judge answers one by one.

An item is a yes/no question, or a grade on a scale. With `each = "target"` it is asked once for every target of a
sample. Its role says what the answer does to the score:

credit   the score is the mean over these items (yes 1, no 0; a grade as its place on the scale)
veto     a yes makes the score 0
note     counted and shown, without effect
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from leadline.core.errors import UnknownName, UsageError
from leadline.core.seeds import digest
from leadline.core.spec import FrozenModel, validated
from leadline.core.types import Match
from leadline.scorers.normalise import whole_number

ItemRole = Literal["credit", "veto", "note"]
ItemAnswer = str | int
"""`yes` or `no`, or a grade."""
BUILT_IN = ("answer", "key_points", "scale")
SCHEMA_REASON = 300
"""The longest reason that a server with a grammar lets a judge give: what follows it is the verdict."""


class Item(FrozenModel):
    """One question of a rubric."""

    id: str = Field(pattern=r"^[a-z][a-z0-9_]{0,30}$")
    ask: str = Field(min_length=1)
    ask_any: str = ""
    """In place of `ask` where any one of the targets is enough."""
    each: Literal["", "target"] = ""
    role: ItemRole = "credit"
    scale: tuple[int, int] | None = None
    anchors: tuple[tuple[int, str], ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Item:
        if self.scale is not None and not 0 <= self.scale[0] < self.scale[1] <= 100:
            raise ValueError(f"item {self.id}: a scale is two whole numbers from 0 to 100, the lower one first")
        if self.scale is not None and self.role == "veto":
            raise ValueError(f"item {self.id}: only a yes/no item can be a veto")
        return self


class Rubric(FrozenModel):
    """A rubric as its file has it. Its digest covers every word: a reworded rubric never reuses verdicts."""

    model_config = ConfigDict(defer_build=True)  # compiling the pattern of a name takes 35 ms
    name: str = Field(pattern=r"^[A-Za-z][\w.-]{0,60}$")
    version: str = "1"
    summary: str = ""
    instructions: str = Field(min_length=1)
    items: tuple[Item, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_credit(self) -> Rubric:
        ids = [item.id for item in self.items]
        if len(set(ids)) < len(ids) or {"id", "reason"} & set(ids):
            raise ValueError("items need different ids, and not `id` or `reason`")
        if not any(item.role == "credit" for item in self.items):
            raise ValueError("no item gives credit: a rubric needs one with role = 'credit'")
        return self

    @cached_property
    def digest(self) -> str:
        return digest(self.model_dump(mode="json"))

    @property
    def title(self) -> str:
        return f"{self.name} v{self.version}"

    def questions(self, targets: Sequence[str], match: Match) -> tuple[AskedItem, ...]:
        """The items of one sample, in order; `target_1`, `target_2` ... where there are several targets."""
        questions: list[AskedItem] = []
        for item in self.items:
            if item.each != "target":
                questions.append(AskedItem(item.id, item))
            elif match == "any" or len(targets) == 1:
                questions.append(AskedItem(item.id, item, tuple(targets)))
            else:
                questions += [AskedItem(f"{item.id}_{n}", item, (target,)) for n, target in enumerate(targets, 1)]
        return tuple(questions)


@dataclass(frozen=True, slots=True)
class AskedItem:
    """An item as asked of one sample, under the key of its answer."""

    key: str
    item: Item
    targets: tuple[str, ...] = ()

    def accepts(self, value: Any) -> ItemAnswer | None:
        """The answer that a value of the reply is, or None. Never a part of a longer word."""
        if self.item.scale is not None:
            low, high = self.item.scale
            number: Any = whole_number(value) if isinstance(value, str) and value.strip().isdecimal() else value
            whole = type(number) is int or (type(number) is float and number.is_integer())
            return int(number) if whole and low <= number <= high else None
        if isinstance(value, bool):
            return "yes" if value else "no"
        word = value.strip().casefold() if isinstance(value, str) else ""
        return {"yes": "yes", "true": "yes", "no": "no", "false": "no"}.get(word)


def score(items: Sequence[AskedItem], answers: Mapping[str, ItemAnswer]) -> float:
    """From 0 to 1."""
    if any(question.item.role == "veto" and answers[question.key] == "yes" for question in items):
        return 0.0
    credit = [_credit(question.item, answers[question.key]) for question in items if question.item.role == "credit"]
    return sum(credit) / len(credit)


def _credit(item: Item, answer: ItemAnswer) -> float:
    if item.scale is None:
        return float(answer == "yes")
    low, high = item.scale
    return (int(answer) - low) / (high - low)


def reply_schema(items: Sequence[AskedItem]) -> dict[str, Any]:
    """The JSON schema of a reply: the reason comes before every verdict. The same for all samples with equal keys."""
    answers = {question.key: _answer_schema(question.item) for question in items}
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "maxLength": 8},
            "reason": {"type": "string", "maxLength": SCHEMA_REASON},
            **answers,
        },
        "required": ["id", "reason", *answers],
        "additionalProperties": False,
    }


def _answer_schema(item: Item) -> dict[str, Any]:
    if item.scale is None:
        return {"type": "string", "enum": ["yes", "no"]}
    return {"type": "integer", "enum": list(range(item.scale[0], item.scale[1] + 1))}


def load_rubric(name: str) -> Rubric:
    """A built-in rubric by name, or a TOML file."""
    if name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise UsageError(f"cannot read the rubric: {why}", where=name, fix="see docs/rubrics.md") from None
    elif name in BUILT_IN:
        text = files("leadline.features.judges").joinpath("rubrics", f"{name}.toml").read_text(encoding="utf-8")
    else:
        raise UnknownName("rubric", name, BUILT_IN, where="--rubric")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"not a TOML file: {error}", where=name, fix="see docs/rubrics.md") from None
    return validated(Rubric, values, where=name)
