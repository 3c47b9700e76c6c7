"""Readers that answer questions of `embed`, `tool_calls` and `compaction` from the text of the prompt alone, written
without the code of the tasks."""

from __future__ import annotations

import re


def solve_item(prompt: str) -> str:
    """The generated item between its marks, solved by other means than it was made."""
    [text] = [t for t in re.findall(r"\[task\] (.+?) \[end of task\]", prompt, re.DOTALL) if t != "and"]
    if "boxes with" in text:
        boxes, each, more, fewer = map(int, re.findall(r"\d+", text))
        return str(sum([each] * boxes) + more - fewer)
    if "taller than" in text:
        taller = re.findall(r"(\w+) is taller than (\w+)\.", text)
        people: list[str] = sorted(
            {name for pair in taller for name in pair}, key=lambda name: _below(name, taller), reverse=True
        )
        asked: str = re.findall(r"who is the (?:(\w+) )?tallest", text)[0]
        return people[["", "second", "third", "fourth", "fifth"].index(asked)]
    switches: dict[str, str] = dict(re.findall(r"The (\w+) lamp switches on the (\w+) lamp\.", text))
    lamp: str = re.findall(r"Only the (\w+) lamp is switched on by hand", text)[0]
    while lamp in switches:
        lamp = switches[lamp]
    return lamp


def _below(name: str, taller: list[tuple[str, str]]) -> int:
    """How many people are shorter, by whatever chain."""
    return sum(1 + _below(other, taller) for first, other in taller if first == name)


def solve_call(prompt: str) -> dict[str, object]:
    """The call of the step that is asked for: what the session says about it last."""
    step = re.findall(r"Now do step (\S+)\. Make", prompt)[0]
    tools = re.findall(rf"[Ss]tep {re.escape(step)} (?:now )?needs the tool (\w+)\.", prompt)
    arguments: dict[str, object] = {}
    said = re.findall(rf"[Ff]or step {re.escape(step)} the (\w+) is (now )?(\S+)\.(?=\s|$)", prompt)
    for name, _, value in said:
        arguments[name] = int(value) if value.isdigit() else value
    return {"name": tools[-1], "arguments": arguments}
