"""How many words a question and a needle have in common: the literal match that makes a needle easy to find.

NoLiMa (arXiv 2502.05167) shows that models which find every needle by its words lose most of them when question and
needle have none in common. The overlap is therefore on the record of every sample that asks for it.
"""

from __future__ import annotations

import re
from functools import cache

_WORD = re.compile(r"[^\W_]+")
_FUNCTION_WORDS = frozenset(
    """
    a about after again all also an and another any anything are as at away be because been before behind being beside
    but by can cannot could did do does down each every everybody everything except for from had has have he her here
    his how i if in inside instead into is it its just least less like lot many may more most much must never no nobody
    not nothing of off on once one ones only onto or other others our out over own per question same she should since
    so some somebody something still than that the their them then there these they this those through to too two
    under until up very was were what when where whether which while who whoever whole whom whose will with without
    would you your 's s
    """.split()
)
_ENDINGS = ("ings", "edly", "ies", "ers", "ing", "ed", "es", "er", "ly", "s")
_LEAST_STEM = 3


@cache
def _stem(word: str) -> str:
    """A word without its ending: `belongs` and `belong`, `keys` and `key` are the same."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            word = word[: -len(ending)]
            break
    if len(word) > _LEAST_STEM and word[-1] == word[-2]:
        word = word[:-1]  # stopped, running
    return word[:-1] if word.endswith(("e", "y", "i")) and len(word) > _LEAST_STEM else word


def content_words(text: str) -> frozenset[str]:
    """The stems of a text's words that have a meaning of their own."""
    found = _WORD.findall(text.casefold())
    return frozenset(_stem(word) for word in found if word not in _FUNCTION_WORDS)


def lexical_overlap(question: str, needle: str) -> float:
    """The share of the question's content words that the needle has too."""
    asked = content_words(question)
    return len(asked & content_words(needle)) / len(asked) if asked else 0.0
