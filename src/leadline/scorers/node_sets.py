"""Sets of nodes on the last line of an answer, `Final Answer: [a, b, c]`, as GraphWalks grades them.

graphwalks         F1 of the set. No such line: 0. Two empty sets: 1. One empty set: 0.
graphwalks.strict  1 if the set is the right one, else 0.

The rule is the published one (the card of openai/graphwalks) as NVIDIA-NeMo/Gym @ 07d6b0d applies it. Taken literally,
the code on the card leaves "Final Answer: [" at the first node and gives 1 to an answer without a single right node.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.match import listed

_FINAL = re.compile(r"Final Answer:\s*\[(.*)\]")


def final_nodes(answer: str) -> list[str] | None:
    """The nodes on the last line that is not empty; None if it does not have the form."""
    lines = [line for line in answer.split("\n") if line.strip()]
    found = _FINAL.search(lines[-1]) if lines else None
    return None if found is None else [node.strip() for node in found[1].split(",") if node.strip()]


def set_f1(given: Collection[str], right: Collection[str]) -> float:
    """Two empty sets are equal."""
    common = len(set(given) & set(right))
    if not given and not right:
        return 1.0
    return 2 * common / (len(set(given)) + len(set(right)))


@dataclass(frozen=True, slots=True)
class NodeSetF1:
    name: str = "graphwalks"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        given = final_nodes(completion.text)
        if given is None:
            return Score(0.0, explanation="no line `Final Answer: [...]` at the end")
        right = [node for node in probe.targets if node in given]
        return Score(
            set_f1(given, probe.targets),
            answer=listed(given),
            explanation=f"{len(right)} of {len(probe.targets)} found, {len(set(given) - set(right))} others",
        )


@dataclass(frozen=True, slots=True)
class ExactNodeSet:
    name: str = "graphwalks.strict"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        given = final_nodes(completion.text)
        return Score(float(given is not None and set(given) == set(probe.targets)), answer=listed(given or ()))


F1 = NodeSetF1()
EXACT = ExactNodeSet()
