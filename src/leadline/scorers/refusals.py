"""Whether an answer says that the text does not have it, or declines: details of failure classes, in English wording.

No scorer of a question that has an answer reads this.
"""

from __future__ import annotations

from leadline.scorers.normalise import bare, clean, compiled

# Searched only at the beginning of an answer: that is where models say such things, and text echoed from the document
# further on must not be mistaken for them.

_BEGINNING_CHARACTERS = 600

_NOT = r"(?:\w+n't|cannot|(?:can|could|do|does|did|was|were|am|is|are|has|have) not|unable to|not able to|failed to)"
_FEW = r"(?:[\w'-]+ ){0,3}?"
_NOT_FOUND = "|".join(
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
_NOT_FOUND_ALONE = frozenset(
    ("none", "n/a", "na", "unknown", "nothing", "null", "not found", "no answer", "unanswerable", "not mentioned",
     "not available", "not given", "not in the text", "not there")
)  # fmt: skip
_REFUSED = "|".join(
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


def says_not_found(answer: str) -> bool:
    """Whether the model says that the text does not have it, or that it does not know."""
    start = _beginning(answer)
    return bare(start) in _NOT_FOUND_ALONE or compiled(_NOT_FOUND).search(start) is not None


def says_refusal(answer: str) -> bool:
    """Whether the model declines to answer."""
    return compiled(_REFUSED).search(_beginning(answer)) is not None


def _beginning(answer: str) -> str:
    return clean(answer[: _BEGINNING_CHARACTERS * 2])[:_BEGINNING_CHARACTERS]
