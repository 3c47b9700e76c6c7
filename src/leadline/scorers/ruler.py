"""RULER's own metrics, exactly as published, and a stricter one.

ruler.v1      NVIDIA/RULER, scripts/eval/evaluate.py (post-processing) and scripts/eval/synthetic/constants.py
              (string_match_all; string_match_part for question answering). Case-insensitive substrings.
ruler.strict  whole words only, and every further candidate lowers the score: an F1 over the candidates of the answer.

Substring credit can be gamed: an answer that lists every number it saw contains the right one, and "no" is part of
"know". Both scores are on the record, so a gap between them is visible.

Any one target is enough where the probe has match="any", as RULER scores its QA tasks; otherwise all are needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from leadline.core.types import Completion, Probe, Score
from leadline.scorers.answer_forms import Words, candidates, form_of
from leadline.scorers.match import listed

_CONTROLS = re.compile("[\x00-\x1f]")


def post_process(prediction: str) -> str:
    """Strip, control characters to line breaks, strip again; nothing else."""
    return _CONTROLS.sub("\n", prediction.strip()).strip()


def string_match_all(prediction: str, references: Sequence[str]) -> float:
    """The share of references, duplicates included, that are substrings, ignoring letter case."""
    text = prediction.lower()
    return sum(r.lower() in text for r in references) / len(references) if references else 0.0


def string_match_part(prediction: str, references: Sequence[str]) -> float:
    """1 if any reference is a substring, ignoring letter case."""
    text = prediction.lower()
    return float(any(r.lower() in text for r in references))


@dataclass(frozen=True, slots=True)
class RulerV1:
    name: str = "ruler.v1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        metric = string_match_part if probe.match == "any" else string_match_all
        text = post_process(completion.text)
        found = [r for r in probe.targets if r.lower() in text.lower()]
        return Score(value=metric(text, probe.targets), answer=listed(found))


@dataclass(frozen=True, slots=True)
class RulerStrict:
    """F1 = 2PR / (P + R), P = found / (found + further candidates), R = found / needed.

    With match="any", `needed` is one and finding several counts as one.
    """

    name: str = "ruler.strict"

    def score(self, probe: Probe, completion: Completion) -> Score:
        found = Words(completion.text).found(probe.targets)
        if not found:
            return Score(value=0.0, explanation="no target as whole words")
        offered = candidates(form_of(probe), probe.targets, completion.text, question=probe.question)
        phrases = [_spaced(t) for t in found]
        further = [c for c in offered if not any(p in f" {c} " for p in phrases)]
        hits, needed = (1, 1) if probe.match == "any" else (len(found), len({*map(_spaced, probe.targets)}))
        precision, recall = hits / (hits + len(further)), hits / needed
        return Score(
            value=2 * precision * recall / (precision + recall),
            answer=listed(found),
            explanation=f"{hits} of {needed} found, {len(further)} further"
            + (f": {listed(further)}" if further else ""),
        )


def _spaced(target: str) -> str:
    return f" {' '.join(Words(target).list)} "


V1 = RulerV1()
STRICT = RulerStrict()
