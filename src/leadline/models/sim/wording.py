"""What a simulated model says: a right answer, and the ways in which real models are wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

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
BEGINNINGS = (
    " Let me go through the text from its first sentence to its last before I say anything. It opens with",
    " To answer this properly I will first sum up every part of the text in turn, beginning with",
    " Okay, so the question asks for something from the text. Let me think about where it stood. I remember that",
)
_LAST_RESORT = " ..."


def right(values: Sequence[str]) -> str:
    return f" {joined(values)}."


def wrong(draw: random.Random, truth: Sequence[str], mistake: Callable[[random.Random], str]) -> str:
    """Another planted value, mostly; else that it is not there, or words without a value. Never any of the truth."""
    chance = draw.random()
    taken = mistake(draw) if chance < 0.6 else ""
    if taken and not holds_any(taken, truth):
        return right([taken])
    return without(truth, draw, NOT_FOUND if chance < 0.85 else RAMBLES)


def mixed(
    draw: random.Random, kept: Sequence[str], truth: Sequence[str], mistake: Callable[[random.Random], str]
) -> str:
    """Some of the values; for one that was lost another may stand in."""
    lost = [value for value in truth if value not in kept]
    stand_ins = [mistake(draw) for _ in lost if draw.random() < 0.5]
    return right([*kept, *dict.fromkeys(s for s in stand_ins if s and not holds_any(s, truth))])


def without(truth: Sequence[str], draw: random.Random, phrases: Sequence[str]) -> str:
    """One of the phrases that gives nothing of the truth away."""
    harmless = [p for p in phrases if not holds_any(p, truth)]
    return draw.choice(harmless) if harmless else _LAST_RESORT


def holds_any(text: str, truth: Sequence[str]) -> bool:
    """Whether a text gives any of the truth away. Of a whole sentence any longer word may be the answer."""
    folded = text.casefold()
    said = set(re.findall(r"\w{4,}", folded))
    for value in map(str.casefold, truth):
        if value in folded or (len(value.split()) > 2 and not said.isdisjoint(re.findall(r"\w{4,}", value))):
            return True
    return False


def joined(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{', '.join(values[:-1])} and {values[-1]}"
