"""Grades a tool call exactly, in order: a call at all, valid JSON, the right tool, required arguments, their values.

The first step that fails is the explanation of the score, with what it shows where that is known: a stale tool, a near
miss of its name, a stale value, values of two arguments swapped. Calls are read in the forms that templates use:

    <tool_call>{"name": ..., "arguments": {...}}</tool_call>    Qwen, Hermes, and servers with tool calls of their own
    {"name": ..., "parameters": {...}}                          Llama 3
    [TOOL_CALLS][{"name": ..., "arguments": {...}}]             Mistral, Granite
    <function=name>{...}</function>                             Llama 3's own, Functionary

A missing call and one call too many are different: of several calls the first is graded.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from leadline.core.records import Score
from leadline.core.types import Question
from leadline.scorers.match import RuleScorer

CallStep = Literal["call", "json", "tool", "arguments", "values"]
STEPS: tuple[CallStep, ...] = ("call", "json", "tool", "arguments", "values")
STALE_TOOL, NEAR_MISS, STALE_VALUE = "stale tool", "near miss", "stale value"
_FUNCTION = re.compile(r"<function=([\w.-]+)>\s*")
_CALL_SIGNS = re.compile(r"<tool_call>|\[TOOL_CALLS\]|<\|tool_call\|>|<function=|<\|python_tag\|>|[\"']name[\"']\s*:")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class ReadCall:
    """A call as the answer has it; `broken` where it cannot be read."""

    name: str = ""
    arguments: dict[str, Any] | None = None
    broken: bool = False


def read_call(answer: str) -> ReadCall | None:
    """The first call of an answer; None if there is none."""
    if function := _FUNCTION.search(answer):
        arguments = _value_at(answer, function.end())
        return ReadCall(function[1], arguments, broken=not isinstance(arguments, dict))
    for start in (match.start() for match in re.finditer(r"\{", answer)):
        value = _value_at(answer, start)
        if isinstance(value, dict) and isinstance(value.get("name"), str):
            call_arguments = value.get("arguments", value.get("parameters"))
            if isinstance(call_arguments, str):
                call_arguments = _value_at(call_arguments, 0)
            return ReadCall(value["name"], call_arguments, broken=not isinstance(call_arguments, dict))
    return ReadCall(broken=True) if _CALL_SIGNS.search(answer) else None


def _value_at(text: str, start: int) -> Any:
    """The JSON value that begins there; None if none does."""
    try:
        return _DECODER.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None


def first_broken(question: Question, answer: str) -> tuple[CallStep | None, str]:
    """The first step that fails, None if none does, and what it shows."""
    call = read_call(answer)
    if call is None:
        return "call", "no call"
    if call.broken or call.arguments is None:
        return "json", "not valid JSON"
    wanted = json.loads(question.targets[0])
    if call.name != wanted["name"]:
        return "tool", _tool_mistake(question, call.name)
    expected: dict[str, Any] = wanted["arguments"]
    missing = [name for name in expected if name not in call.arguments]
    if missing:
        return "arguments", f"without {missing[0]}"
    wrong = [name for name, value in expected.items() if not _same(call.arguments[name], value)]
    if wrong:
        return "values", _value_mistake(question, expected, call.arguments, wrong[0])
    extra = [name for name in call.arguments if name not in expected]
    return ("values", f"also has {extra[0]}") if extra else (None, "")


def _same(value: Any, wanted: Any) -> bool:
    """Equal in value and type; a number may not be a text."""
    return type(value) is type(wanted) and value == wanted


def _tool_mistake(question: Question, name: str) -> str:
    for kind in (STALE_TOOL, NEAR_MISS):
        if name in question.mistakes.get(kind, ()):
            return kind
    return "another tool"


def _value_mistake(question: Question, expected: dict[str, Any], arguments: dict[str, Any], name: str) -> str:
    value = arguments[name]
    if str(value) in question.mistakes.get(STALE_VALUE, ()):
        return STALE_VALUE
    if any(_same(value, other) for key, other in expected.items() if key != name):
        return "swapped values"
    return "a text for a number" if str(value) == str(expected[name]) else "another value"


def _exact(question: Question, answer: str) -> Score:
    step, shown = first_broken(question, answer)
    call = read_call(answer)
    call_as_json = json.dumps({"name": call.name, "arguments": call.arguments}) if call and not call.broken else ""
    return Score(float(step is None), call_as_json, f"{step}: {shown}" if step else "")


def _right_tool(question: Question, answer: str) -> Score:
    step, _ = first_broken(question, answer)
    return Score(float(step is None or STEPS.index(step) > STEPS.index("tool")))


TOOL_CALLS = RuleScorer("tool_calls", _exact)
TOOL_CALLS_TOOL = RuleScorer("tool_calls.tool", _right_tool)
