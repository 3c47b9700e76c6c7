"""What needles and questions say, in each form, and how many words a needle and its question have in common.

NoLiMa (arXiv 2502.05167) shows that models which find every needle by its words lose most of them when question and
needle have none in common. The overlap is therefore on the record of every sample that asks for it.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

NeedleMatch = Literal["", "literal", "paraphrase", "association"]
Hard = Literal["", "qualifier", "near_miss", "contradiction"]

# --- a key that stands in both ---

INSTRUCTION = (
    "The text below mentions {kinds} that belong to certain names. Read it and remember the {kinds}; "
    "a question about them follows.\n\n"
)
OWN_INSTRUCTION = "Read the text below. A question about it follows.\n\n"
WORDINGS = (
    "The {kind} kept for {key} is {value}.",
    "In the register, {key} stands beside the {kind} {value}.",
    "Whoever asks about {key} is to be given the {kind} {value}.",
    "Note that {key} was assigned the {kind} {value}.",
    "The harbour office filed {key} under the {kind} {value}.",
)
QUESTIONS = (
    "\n\nQuestion: Which {kind} belongs to {key}?",
    "\n\nQuestion: What is the {kind} that goes with {key}?",
    "\n\nQuestion: According to the text, which {kind} is the one for {key}?",
)
QUESTIONS_FOR_SEVERAL = (
    "\n\nQuestion: Which {kinds} belong to {key}? Name all of them.",
    "\n\nQuestion: What are all the {kinds} that go with {key}?",
    "\n\nQuestion: According to the text, which {kinds} are the ones for {key}? Give every one.",
)
PREFIX = "The {kind} for {key} is"
PREFIX_FOR_SEVERAL = "The {kinds} for {key} are"

# --- other forms; needle_forms says what they are ---

PARAPHRASE_WORDINGS = (
    "The card of {key} reads {value}.",
    "Somebody pencilled {value} on the door of {key}.",
    "{value} is stamped inside the hat of {key}.",
    "On the mailbox of {key} somebody scratched {value}.",
    "The locker of {key} bears the label {value}.",
)
INSTRUCTION_ABOUT_PEOPLE = (
    "The text below mentions {kinds} that belong to certain people. Read it and remember the {kinds}; a question about "
    "them follows.\n\n"
)
ASSOCIATION_WORDINGS = (
    "{key}, and the badge on the coat said {value}.",
    "{key}; the ticket in the pocket was marked {value}.",
    "{key}, with {value} printed on the name tag.",
    "{key}, holding a card with {value} on it.",
    "{key}; {value} was sewn into the collar.",
)

INSTRUCTION_FOR_PIECES = (
    "The text below mentions {kinds} that belong to certain names. Each {kind} is told in {pieces} pieces at different "
    "places; {joined}. Read the text and remember the {kinds}; a question about them follows.\n\n"
)
JOINED = {"words": "a hyphen joins them", "numbers": "nothing stands between them", "uuids": "a hyphen joins them"}
BEGINNINGS = (
    "The {kind} kept for {key} begins with {value}.",
    "Note that the {kind} of {key} opens with {value}.",
    "In the register, the {kind} beside {key} starts with {value}.",
)
MIDDLES = (
    "After its beginning, the {kind} kept for {key} goes on with {value}.",
    "Note that {value} is the middle of the {kind} of {key}.",
    "In the register, {value} is what the {kind} beside {key} has in the middle.",
)
ENDS = (
    "The {kind} kept for {key} ends with {value}.",
    "Note that the {kind} of {key} closes with {value}.",
    "In the register, the {kind} beside {key} has {value} at its end.",
)
PIECE_PARTS = {2: ("beginning", "end"), 3: ("beginning", "middle", "end")}

INSTRUCTION_FOR_CORRECTIONS = (
    "The text below mentions {kinds} that belong to certain names. Where a name is mentioned twice with different "
    "{kinds}, the later mention counts. Read the text and remember the {kinds}; a question about them follows.\n\n"
)


def form_instruction(match: NeedleMatch, pieces: int, hard: Hard) -> str:
    """The instruction that a form needs; empty where the plain one will do."""
    if match in ("paraphrase", "association"):
        return INSTRUCTION_ABOUT_PEOPLE
    if pieces > 1:
        return INSTRUCTION_FOR_PIECES
    return INSTRUCTION_FOR_CORRECTIONS if hard == "contradiction" else ""


def form_wordings(match: NeedleMatch, pieces: int) -> dict[str, tuple[str, ...]]:
    """The texts of each planted part that a form has; none where the plain ones will do."""
    if pieces > 1:
        told = {"beginning": BEGINNINGS, "middle": MIDDLES, "end": ENDS}
        return {name: told[name] for name in PIECE_PARTS[pieces]}
    described = {"paraphrase": PARAPHRASE_WORDINGS, "association": ASSOCIATION_WORDINGS}
    return {"needle": described[match]} if match in described else {}


# --- literal overlap ---

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
