"""A reader of the invented documents, independent of how they are written: it looks up one relation after another.

`the firm that NAME works for` is looked up first and replaced by its value, until one relation is left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = r"[A-Z][^\W\d_]+"
_TWO = rf"{_WORD} {_WORD}"
_NAME = rf"{_WORD}(?: {_WORD})?"
_START = "Document:"


@dataclass(frozen=True, slots=True)
class Wording:
    """How a relation is stated in a document, mentioned in a longer question, and asked for."""

    stated: re.Pattern[str]
    mentioned: re.Pattern[str]
    asked: re.Pattern[str]


def _wording(stated: str, mentioned: str, asked: str) -> Wording:
    return Wording(re.compile(stated), *(re.compile(text.replace("X", f"({_NAME})")) for text in (mentioned, asked)))


WORDINGS = (
    _wording(
        rf"(?:was born in|Born in|comes from) ({_WORD})", "the town where X was born", r"In which town was X born\?"
    ),
    _wording(rf"(?:lives in|made a home in) ({_WORD})", "the town where X lives", r"In which town does X live\?"),
    _wording(
        rf"(?:Colleagues at|joined|employed by) ({_TWO})", "the firm that X works for", r"Which firm does X work for\?"
    ),
    _wording(
        rf"(?:founded in \d+ by|The founder,) ({_TWO})|({_TWO}), who founded", "the founder of X", r"Who founded X\?"
    ),
    _wording(
        rf"head office (?:is )?in ({_WORD})",
        "the town where X has its head office",
        r"In which town does X have its head office\?",
    ),
    _wording(
        rf"(?:The mayor,|mayor is) ({_TWO})|({_TWO}) has been mayor", "the mayor of X", r"Who is the mayor of X\?"
    ),
    _wording(rf"the river ({_WORD})", "the river that flows through X", r"Which river flows through X\?"),
)


def read_answer(body: str, question: str) -> str | None:
    """The answer that the documents give to a question, or None."""
    question = question.rpartition("Question: ")[2]
    while True:
        found = next(((w, m, True) for w in WORDINGS if (m := w.asked.search(question))), None) or next(
            ((w, m, False) for w in WORDINGS if (m := w.mentioned.search(question))), None
        )
        if found is None:
            return None
        wording, match, last = found
        value = _look_up(body, match[1], wording.stated)
        if value is None or last:
            return value
        question = question[: match.start()] + value + question[match.end() :]


def _look_up(body: str, name: str, stated: re.Pattern[str]) -> str | None:
    for document in _documents_with(body, name):
        match = stated.search(document)
        value = next((group for group in match.groups() if group), None) if match else None
        if value is not None and value != name:
            return value
    return None


def _documents_with(body: str, name: str) -> Iterator[str]:
    return (document for document in body.split(_START) if name in document)
