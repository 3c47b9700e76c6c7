"""False memories: answers that state a value which is not the one asked for."""

from __future__ import annotations

import re

from leadline.core.types import Question
from leadline.scorers.match import given_targets

_FORMS = (
    (re.compile(r"[A-Z]{2}-\d{5}"), re.compile(r"[A-Z]{2}-\d{3,7}")),
    (re.compile(r"/\S+\.toml"), re.compile(r"/[\w./-]+\.\w+")),
    (re.compile(r"\d{5}"), re.compile(r"(?<![\w-])\d{3,6}(?![\w-])")),
)
"""The form of a kind's targets, and that of a made-up value of the kind."""


def false_memory(question: Question, answer: str) -> str:
    """A value in an answer that is none of the targets: another planted one, or one of the same form; empty if none.
    An answer that has the target is no false memory."""
    if given_targets(question, answer):
        return ""
    for value in question.distractors:
        if re.search(rf"(?<![\w/-]){re.escape(value)}(?![\w-])", answer, re.IGNORECASE):
            return value
    for target_form, form in _FORMS:
        if target_form.fullmatch(question.targets[0]) and (match := form.search(answer)):
            return match[0]
    return ""
