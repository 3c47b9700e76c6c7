"""Answers of the ladder: a text that was copied, or what stands after the last `Answer:`.

ladder         copied: 1 if the text is in the answer, else 1 less the share of wrong words; solved: the answer
ladder.strict  copied: the text and nothing else of note; solved: the answer and nothing after it

The first rule for copies is that of RULER v2 (NVIDIA-NeMo/Gym @ 07d6b0d): for each reference the larger of substring
and 1 - word error rate, and the mean, or the best, over references.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.normalise import bare

_ANSWER = re.compile(r"answer:\s*(\S.*)", re.IGNORECASE)


def word_error_rate(said: str, right: str) -> float:
    """Words to change, add or remove, for each word of the right text."""
    left, wanted = said.split(), right.split()
    if not wanted:
        return float(bool(left))
    row = np.arange(len(wanted) + 1)
    for word in left:
        change = row[:-1] + np.array([word != other for other in wanted])
        best = np.minimum(row[1:] + 1, change)
        row = np.minimum.accumulate(np.concatenate(([row[0] + 1], best)) - np.arange(len(row))) + np.arange(len(row))
    return float(row[-1]) / len(wanted)


def copied(answer: str, references: Sequence[str], match: Literal["all", "part"] = "all") -> float:
    """RULER v2's score of a copy."""
    said = answer.strip().lower()
    found = [
        1.0 if right.strip().lower() in said else max(1.0 - word_error_rate(said, right.strip().lower()), 0.0)
        for right in references
    ]
    return max(found, default=0.0) if match == "part" else sum(found) / len(found) if found else 0.0


def final_answer(answer: str) -> str:
    """What stands after the last `Answer:`, or the last line."""
    found = _ANSWER.findall(answer)
    return bare(found[-1] if found else answer.rstrip().rpartition("\n")[2])


def _is_copy(probe: Probe) -> bool:
    return probe.labels.get("operation") == "retrieve"


@dataclass(frozen=True, slots=True)
class LadderStep:
    name: str = "ladder"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        if _is_copy(probe):
            return Score(copied(completion.text, probe.targets), answer=completion.text.strip()[:200])
        said = final_answer(completion.text)
        return Score(float(said == bare(probe.targets[0])), answer=said[:200])


@dataclass(frozen=True, slots=True)
class StrictLadderStep:
    name: str = "ladder.strict"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        text = completion.text.rstrip()
        said = bare(text) if _is_copy(probe) else bare(text.rpartition("\n")[2].rpartition(":")[2])
        return Score(float(said == bare(probe.targets[0])), answer=said[:200])


STEP = LadderStep()
STRICT = StrictLadderStep()
