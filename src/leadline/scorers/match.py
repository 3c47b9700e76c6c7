"""Substring and exact match over the one normaliser.

match.all    the share of targets that occur in the answer
match.any    1 when any target occurs in the answer
match.exact  1 when the answer is one of the targets and nothing else (punctuation around it aside)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leadline.core.types import Completion, Probe, Score
from leadline.scorers.normalise import bare, clean

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class MatchScorer:
    name: str
    rule: Callable[[Sequence[str], str], Score]

    def score(self, probe: Probe, completion: Completion) -> Score:
        return self.rule(probe.targets, completion.text)


def share_found(targets: Sequence[str], answer: str) -> Score:
    """The share of targets that occur. Targets that are equal when cleaned count once."""
    haystack = clean(answer)
    wanted = distinct(targets)
    found = [t for cleaned, t in wanted.items() if cleaned and cleaned in haystack]
    missing = [t for t in wanted.values() if t not in found]
    return Score(
        value=len(found) / len(wanted) if wanted else 0.0,
        answer=listed(found),
        explanation=f"missing: {listed(missing)}" if missing else "",
    )


def distinct(targets: Sequence[str]) -> dict[str, str]:
    """From the cleaned target to its first spelling."""
    wanted: dict[str, str] = {}
    for target in targets:
        wanted.setdefault(clean(target), target)
    return wanted


def any_found(targets: Sequence[str], answer: str) -> Score:
    haystack = clean(answer)
    found = next((t for t in targets if clean(t) and clean(t) in haystack), None)
    return Score(value=0.0 if found is None else 1.0, answer=found or "")


def exactly(targets: Sequence[str], answer: str) -> Score:
    given = bare(answer)
    return Score(value=1.0 if given and given in {bare(t) for t in targets} else 0.0, answer=given[:_SHOWN_CHARACTERS])


def listed(values: Sequence[str]) -> str:
    """Values on one line, shortened for the record."""
    text = ", ".join(values)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


ALL = MatchScorer("match.all", share_found)
ANY = MatchScorer("match.any", any_found)
EXACT = MatchScorer("match.exact", exactly)
