"""A little deterministic "model" that reads its prompt: it finds facts, copies, counts, and continues its answer.

It is right about everything that stands in the prompt and knows nothing else, so whatever a server does to a prompt
shows in its answers. Its tokens are bytes, and its log-probabilities depend on every byte of the prompt.
"""

from __future__ import annotations

import hashlib
import random
import re

WORDS = "amber birch cedar delta ember fjord grove heron inlet jetty kelp larch maple nettle otter pine".split()
UNITS = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()
STORY = "The keeper climbed the stairs. The lamp was lit. The sea was loud.\n\n"


def digest(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def split_prompt(prompt: str) -> tuple[str, str, str]:
    """(what stands before the user's turn, the user's turn, the beginning of the answer)."""
    start = prompt.rfind("<|im_start|>user\n")
    if start < 0:
        return "", prompt, ""
    user, _, rest = prompt[start + len("<|im_start|>user\n") :].partition("<|im_end|>")
    return prompt[:start], user, rest.rpartition("<|im_start|>assistant\n")[2]


def answer(prompt: str, *, temperature: float = 0.0, seed: int | None = None) -> str:
    """The whole answer to a prompt, however long."""
    before, user, begun = split_prompt(prompt)
    for form in (_continued(begun), _fact(prompt, user, begun), _form(user), _quoted(before, user)):
        if form is not None:
            return form
    draw = random.Random(seed) if temperature > 0 else random.Random(digest(prompt))
    return f"{' '.join(draw.choice(WORDS) for _ in range(12))}.".capitalize()


def _continued(begun: str) -> str | None:
    if begun.endswith("4, 5, 6,"):
        return " 7, 8, 9, 10."
    return " Friday, Saturday, Sunday." if begun.endswith("Thursday,") else None


def _fact(prompt: str, user: str, begun: str) -> str | None:
    """A door code, if one is asked for."""
    asked = re.findall(r"door code of the (\w+)\? ", user) or re.findall(r"door code of the (\w+) is$", begun)
    if not asked:
        return None
    found = re.findall(rf"door code of the {asked[-1]} is (\d+)", prompt)
    return f" {found[-1]}." if found else " It is not in the text."


def _form(user: str) -> str | None:
    """Answers whose form is asked for."""
    question = user[-400:]
    if "one number on each line" in question:
        return "\n".join(map(str, range(1, 201)))
    if "in words, separated by commas" in question:
        tens = ("twenty", "thirty", "forty", "fifty")
        return ", ".join([*UNITS, *(f"{ten} {unit}" for ten in tens for unit in UNITS)])
    if "long story" in question:
        return STORY * 20
    if "Copy the following line" in question:
        return user.partition(":\n")[2]
    return "No, 91 is 7 times 13." if "91 a prime" in question else None


def _quoted(before: str, user: str) -> str | None:
    """Answers that are taken from the text."""
    if "stands before this sentence" in user or "told before this message" in user:
        return re.sub(r"<[^>]*>|system\n|\n", " ", before).strip() or "Nothing stands before it."
    if "door of the chapel" in user:
        return " ".join(re.findall(r"chapel with a (\w+) door", user)[-1:]) or "It does not say."
    private = re.search(r"(?:address|office) is (.+?)\.\n\n", user)
    return None if private is None else private[1]


def logprob(prompt: str, position: int) -> float:
    """Of the token at a position of the answer: any change of the prompt changes it."""
    return -0.05 - (digest(f"{position}:{digest(prompt)}") % 1000) / 500
