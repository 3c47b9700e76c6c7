"""RULER's own metrics, exactly as published, and a stricter one.

ruler.v1      NVIDIA/RULER, scripts/eval/evaluate.py (post-processing) and scripts/eval/synthetic/constants.py
              (string_match_all; string_match_part for question answering). Case-insensitive substrings.
ruler.strict  whole words that are not denied, and every further candidate lowers the score.

Substring credit can be gamed: an answer that lists every number it saw contains the right one, and "no" is part of
"know". ruler.strict <= match.all <= ruler.v1 for every answer, so a gap between them says what substrings gave away.

Any one target is enough where the probe has match="any", as RULER scores its QA tasks; otherwise all are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.answer_forms import Words, candidates, form_of, words
from leadline.scorers.match import given_targets, listed
from leadline.scorers.normalise import VERSION, clean, post_process


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
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        metric = string_match_part if probe.match == "any" else string_match_all
        text = post_process(completion.text)
        found = [r for r in probe.targets if r.lower() in text.lower()]
        return Score(value=metric(text, probe.targets), answer=listed(found))


@dataclass(frozen=True, slots=True)
class RulerStrict:
    """`match.all` (or `match.any`) times precision = given / (given + further candidates)."""

    name: str = "ruler.strict"
    version: ClassVar[str] = VERSION

    def score(self, probe: Probe, completion: Completion) -> Score:
        given = given_targets(probe, completion.text)
        if not given:
            return Score(value=0.0, explanation="no target as whole words")
        offered = candidates(form_of(probe), probe.targets, completion.text, question=probe.question)
        phrases = [_spaced(t) for t in given]
        others = (c for c in offered if not any(p in f" {c} " for p in phrases))
        further = Words(completion.text).affirmed(others)
        any_one = probe.match == "any"
        hits = 1 if any_one else len(set(phrases))
        share = 1.0 if any_one else len(given) / len(probe.targets)
        needed = 1 if any_one else len({*map(_spaced, probe.targets)})
        return Score(
            value=share * hits / (hits + len(further)),
            answer=listed(given),
            explanation=f"{hits} of {needed} found, {len(further)} further"
            + (f": {listed(further)}" if further else ""),
        )


def _spaced(target: str) -> str:
    return f" {' '.join(words(clean(target)))} "


V1 = RulerV1()
STRICT = RulerStrict()
