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


FACTS = (
    (r"What is the ticket of project (\S+)\?", r"The ticket of project {} is (\S+)\."),
    (r"In which file does project (\S+) keep", r"Project {} keeps its settings in (\S+)\."),
    (r"What is the port of project (\S+)\?", r"The port of project {} is (\d+)\."),
    (r"Which driver does project (\S+) use", r"project {} uses the (\S+) driver"),
    (r"messages about project (\S+) signed", r"about project {} with the word (\S+)\."),
    (r"still to be renewed for project (\S+)\?", r"Still to do for project {}: renew the (\S+) certificate"),
)


def recall_fact(prompt: str) -> str:
    """The value that the text before the question has for what is asked; empty if it has none."""
    question = re.findall(r"Question:[^\n]*", prompt)[-1]  # it may stand before the text
    text = prompt.replace(question, "")
    for asked, said in FACTS:
        key = re.search(asked, question)
        if key:
            values = re.findall(said.format(re.escape(key[1])), text)
            return str(values[-1]) if values else ""
    raise AssertionError("no known question")
