"""Answers that were counted: OOLONG's rule with its partial credit, and a strict one.

aggregate         what follows the last colon, exactly; a number that is off by n gets 0.75 to the power of n; "more
                  common", "less common" and "same frequency" may stand in a longer phrase
aggregate.strict  1 if the answer after the last colon is the right one, in any letter case and with a full stop or not

The first is `synth_process_response` of abertsch72/oolong (arXiv 2511.02817), which reads an answer of fewer than 20
characters as it is where it has no colon, and the last word of a longer one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.normalise import bare

SHORT_CHARACTERS = 20
BASE = 0.75
PHRASES = ("more common", "less common", "same frequency")
_WHOLE = re.compile(r"\s*[-+]?\d+(?:_\d+)*\s*")


def parsed(answer: str) -> str:
    """The part of an answer that is graded."""
    if ":" not in answer:
        words = answer.split()
        return answer if len(answer) < SHORT_CHARACTERS or not words else words[-1]
    said = answer.rpartition(":")[2].strip()
    for mark in "*[]":
        said = said.replace(mark, "")
    if len(said) < SHORT_CHARACTERS:
        return said
    return next((phrase for phrase in PHRASES if phrase in said), said)


def partial_credit(answer: str, gold: str) -> float:
    """OOLONG's score of one answer."""
    said = parsed(answer)
    if said == gold:
        return 1.0
    if said in PHRASES:
        return float(said in gold)
    if _WHOLE.fullmatch(gold) and _WHOLE.fullmatch(said):
        return float(BASE ** min(abs(int(gold) - int(said)), 1000))
    return 0.0


@dataclass(frozen=True, slots=True)
class PartialCredit:
    name: str = "aggregate"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        best = max((partial_credit(completion.text, target) for target in probe.targets), default=0.0)
        return Score(best, answer=parsed(completion.text)[:200])


@dataclass(frozen=True, slots=True)
class StrictCount:
    name: str = "aggregate.strict"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        said = bare(completion.text.rstrip().rpartition("\n")[2].rpartition(":")[2])
        return Score(float(bool(said) and any(said == bare(target) for target in probe.targets)), answer=said[:200])


OFFICIAL = PartialCredit()
STRICT = StrictCount()
