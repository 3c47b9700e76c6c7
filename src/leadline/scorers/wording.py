"""How models say that they did not find it, that they will not answer, or nothing at all: phrases of English.

Only the beginning of an answer is read: that is where models say such things, and text echoed from the document
further on must not be mistaken for them. Other languages are not recognised and fall to the next class.
"""

from __future__ import annotations

import re

from leadline.scorers.clean import bare, clean
from leadline.scorers.forms import words

_BEGINNING_CHARACTERS = 600
_LOOP_WORDS = 2000

_NOT = r"(?:\w+n't|cannot|(?:can|could|do|does|did|was|were|am|is|are|has|have) not|unable to|not able to|failed to)"
_FEW = r"(?:[\w'-]+ ){0,3}?"
_NOT_FOUND = re.compile(
    "|".join(
        (
            rf"\b{_NOT} {_FEW}(?:find|found|locate|see|seen|spot|identify|determine|recall|remember|know|be found)\b",
            r"\b(?<!i )(?:does not|doesn't|do not|don't|did not|didn't) (?:[\w'-]+ ){0,2}?"
            r"(?:mention|contain|include|specify|state|provide|say|give|appear|list|reveal|tell|exist|have)\b",
            rf"\b(?:is|are|was|were)(?: not|n't) {_FEW}"
            r"(?:mentioned|given|provided|found|specified|stated|present|included|listed|available|known|in the)\b",
            r"\bthere (?:is|are|was|were|isn't|aren't) (?:no|not|any|nothing)\b[^.]{0,60}"
            r"\b(?:mention|mentioned|information|such|record|reference|given|provided|text|document|passage|context)\b",
            r"\bno (?:mention|information|record|reference|such|matching|relevant|indication)\b",
            r"\b(?:not enough|insufficient|lack of) (?:information|context|detail)",
            r"\bhave (?:no|any|enough|sufficient) (?:[\w'-]+ )?(?:information|context|knowledge|idea)\b",
        )
    )
)
_NOT_FOUND_ALONE = frozenset(
    ("none", "n/a", "na", "unknown", "nothing", "null", "not found", "no answer", "unanswerable", "not mentioned",
     "not available", "not given", "not in the text")
)  # fmt: skip
_REFUSED = re.compile(
    "|".join(
        (
            r"\b(?:i|we)(?: am| are|'m|'re)?(?: \w+){0,2}? "
            r"(?:cannot|can't|can not|won't|will not|unable to|not able to|must decline|decline|refuse)\b"
            r"[^.\n]{0,80}?\b(?:help|assist|comply|provide|share|answer|fulfil|fulfill|do|disclose|reveal|continue|"
            r"engage|support|discuss|complete|respond|to)\b",
            r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
            r"\bagainst (?:my|our|the) (?:\w+ )?(?:policy|policies|guidelines|rules|principles)\b",
            r"\b(?:not (?:allowed|permitted|comfortable)|isn't appropriate|not appropriate)\b",
        )
    )
)


def says_not_found(answer: str) -> bool:
    """The model says that what was asked for is not there, or that it does not know."""
    start = _beginning(answer)
    return bare(start) in _NOT_FOUND_ALONE or _NOT_FOUND.search(start) is not None


def says_no(answer: str) -> bool:
    """The model declines to answer."""
    return _REFUSED.search(_beginning(answer)) is not None


def repeats_itself(answer: str) -> bool:
    """Fewer than three in ten of the three-word phrases are new: a loop, not an answer on its way."""
    given = words(clean(answer[: _LOOP_WORDS * 12]))[:_LOOP_WORDS]
    phrases = list(zip(given, given[1:], given[2:], strict=False))
    return len(phrases) >= 20 and len(set(phrases)) < 0.3 * len(phrases)


def _beginning(answer: str) -> str:
    return clean(answer[: _BEGINNING_CHARACTERS * 2])[:_BEGINNING_CHARACTERS]
