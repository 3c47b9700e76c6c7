"""The tools that are declared: invented ones, some of them with names that differ by little."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.core.seeds import Split, rng
from leadline.core.types import Tool
from leadline.tasks.words import draw_new_pair, draw_new_value

VERBS = ("archive", "audit", "bind", "clone", "export", "index", "mount", "patch", "queue", "rotate", "seal", "tag")
NOUNS = (
    "backup",
    "branch",
    "bucket",
    "cache",
    "cluster",
    "ledger",
    "mirror",
    "panel",
    "report",
    "route",
    "shard",
    "vault",
)
ARGUMENTS = {"target": "string", "owner": "string", "count": "integer", "code": "integer", "label": "string"}
"""Names of arguments and their types. Two of each type are in every tool, so that values can be swapped."""
REQUIRED = ("target", "owner", "count", "code")


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The tools of a run, each with the near miss of its name, if it has one."""

    names: tuple[str, ...]
    near: dict[str, str]

    def declarations(self) -> tuple[Tool, ...]:
        every = [name for tool in self.names for name in (tool, *([self.near[tool]] if tool in self.near else []))]
        return tuple(_declare(name) for name in every)


def tool_set(count: int, near_misses: bool, seed: int, split: Split) -> ToolSet:
    """`count` tools, drawn from the seed alone: all samples of a run have the same, as an agent has."""
    draw = rng(seed, "tools")
    taken: set[str] = set()
    names = tuple(draw_new_pair(VERBS, NOUNS, draw, taken, split).replace("-", "_") for _ in range(count))
    return ToolSet(names, {name: f"{name}s" for name in names} if near_misses else {})


def _declare(name: str) -> Tool:
    verb, _, noun = name.partition("_")
    properties = {key: {"type": kind, "description": f"the {key}"} for key, kind in ARGUMENTS.items()}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{verb.capitalize()} the {noun}",
            "parameters": {"type": "object", "properties": properties, "required": list(REQUIRED)},
        },
    }


def draw_arguments(draw: random.Random, taken: set[str], split: Split) -> dict[str, str | int]:
    """Values of the required arguments, none of which was drawn before."""
    words = [draw_new_value("words", draw, taken, split) for _ in range(2)]
    numbers = [int(draw_new_value("numbers", draw, taken, split)) for _ in range(2)]
    return {"target": words[0], "owner": words[1], "count": numbers[0], "code": numbers[1]}


def other_tool(tools: Sequence[str], name: str, draw: random.Random) -> str:
    return draw.choice([tool for tool in tools if tool != name])
