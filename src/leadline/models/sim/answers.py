"""What a simulated model answers: the right values, or one of the mistakes that real models make.

Each value that the answer needs is read or lost by itself, with the chance that the profile gives to the depth of its
own fact. A wrong answer never contains a right value by accident.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from leadline.core.types import Document, Probe

NOT_FOUND = (
    " I could not find that in the text.",
    " The text does not mention it.",
    " There is no information about this in the text.",
)
REFUSALS = (
    " I'm sorry, but I can't help with that request.",
    " I cannot assist with this question.",
    " I must decline to answer this.",
)
RAMBLES = (
    " It depends on how one looks at it, and many things could be said about a passage as long as this.",
    " The passage goes on for a while, and then it turns to other matters altogether.",
    " First come a few remarks, then some more of them, and near the end the tone changes.",
    " Let us think about what was read. There was a lot of it, and much of it was alike.",
    " As was said before, the beginning leads to the middle and the middle leads to the end.",
)
PREAMBLES = (
    " Let me go through the text from its first sentence to its last before I say anything. It opens with",
    " To answer this properly I will first sum up every part of the text in turn, beginning with",
    " Okay, so the question asks for something from the text. Let me think about where it stood. I remember that",
)
_FALLBACK = " ..."
_WRONG_VALUE, _NOT_FOUND, _RAMBLE = 0.6, 0.85, 0.95
"""Cumulative shares of the wrong answers: another value, "not there", words without a value, and else a refusal."""
_NEARBY_CHARACTERS = 400

Finish = Literal["stop", "length"]
Chance = Callable[[float | None], float]
"""From the depth of a fact (None: unknown) to the probability that it is read right."""


@dataclass(frozen=True, slots=True)
class NeededValue:
    """A value that the answer has to name, and the depths of the facts that give it."""

    text: str
    depths: tuple[float | None, ...]


def needed_values(document: Document, probe: Probe) -> tuple[NeededValue, ...]:
    """The targets with the depths of their facts; none where the document is empty.

    As many facts as targets belong to them one by one; otherwise every target needs all facts. A task that plants no
    facts has its evidence around the cell's depth, or all over the document.
    """
    if probe.cut_characters <= document.body_start_characters or not probe.targets:
        return ()
    planted = {fact.id: fact.depth for fact in document.facts}
    depths = tuple(planted[fact] for fact in probe.facts if fact in planted) or (probe.cell.depth,)
    if probe.match == "any":
        return (NeededValue(probe.targets[0], depths),)
    if len(depths) == len(probe.targets):
        return tuple(NeededValue(target, (depth,)) for target, depth in zip(probe.targets, depths, strict=True))
    return tuple(NeededValue(target, depths) for target in probe.targets)


def draw_answer(document: Document, probe: Probe, chance: Chance, draw: random.Random) -> str:
    """All needed values, some of them, or a wrong answer. Several facts of one value count by their mean chance."""
    needed = needed_values(document, probe)
    if not needed:
        return without(probe.targets, draw, NOT_FOUND)
    read = [v.text for v in needed if draw.random() < sum(map(chance, v.depths)) / len(v.depths)]
    if len(read) < len(needed):
        if not read:
            return _wrong(document, probe, draw)
        mistakes = [_mistaken_value(document, probe, draw) for _ in needed[len(read) :] if draw.random() < 0.5]
        read += [value for value in dict.fromkeys(mistakes) if value]
    return f" {listed(read)}."


def without(targets: Sequence[str], draw: random.Random, phrases: Sequence[str]) -> str:
    """One of the phrases that contains no target."""
    harmless = [phrase for phrase in phrases if not _contains_any(phrase, targets)]
    return draw.choice(harmless) if harmless else _FALLBACK


def listed(values: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"


def _wrong(document: Document, probe: Probe, draw: random.Random) -> str:
    how = draw.random()
    value = _mistaken_value(document, probe, draw) if how < _WRONG_VALUE else ""
    if value:
        return f" {value}."
    phrases = NOT_FOUND if how < _NOT_FOUND else RAMBLES if how < _RAMBLE else REFUSALS
    return without(probe.targets, draw, phrases)


def _mistaken_value(document: Document, probe: Probe, draw: random.Random) -> str:
    """A distractor; else a word of the text where words are counted; else a target with one digit misread."""
    others = [value for value in probe.distractors if not _contains_any(value, probe.targets)]
    if not others and probe.family == "counting":
        start = draw.randrange(document.body_start_characters, probe.cut_characters)
        nearby = re.findall(
            r"[^\W\d_]{4,}", document.text[start : min(start + _NEARBY_CHARACTERS, probe.cut_characters)]
        )
        others = [word for word in nearby[1:-1] if not _contains_any(word, probe.targets)]
    if others:
        return draw.choice(others)
    target = draw.choice(probe.targets)
    digits = [place for place, character in enumerate(target) if character.isdecimal()]
    if not digits:
        return ""
    place = draw.choice(digits)
    misread = f"{target[:place]}{(int(target[place]) + draw.randrange(1, 10)) % 10}{target[place + 1 :]}"
    return "" if _contains_any(misread, probe.targets) else misread


def _contains_any(text: str, targets: Sequence[str]) -> bool:
    folded = text.casefold()
    return any(target.casefold() in folded for target in targets)
