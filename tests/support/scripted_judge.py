"""A judge that reads its prompt as text, knowing nothing of the program that wrote it: it says yes where the target's
words are in the answer."""

from __future__ import annotations

import json
import re


def verdict_in(prompt: str) -> str:
    """The reply to a judge's prompt; a plain sentence to any other prompt."""
    code = re.search(r"The code of this sample is ([0-9a-f]{8})\.", prompt)
    keys = re.findall(r'with the keys ((?:"\w+"(?:, )?)+)\.', prompt)
    if code is None or not keys:
        return "there is nothing to judge"
    answer = part(prompt, code[1], "answer").casefold()
    verdict = {"id": code[1], "reason": "by its words"}
    for key in re.findall(r'"(\w+)"', keys[-1])[2:]:
        targets = part(prompt, code[1], key).casefold().split("\n")
        verdict[key] = "yes" if any(target and target in answer for target in targets) else "no"
    return json.dumps(verdict)


def part(prompt: str, code: str, title: str) -> str:
    found = re.search(rf"\[{code} {title}\]\n(.*?)\n\[{code} end\]", prompt, re.DOTALL)
    return found[1] if found else ""
