"""How a simulated model answers questions about people, firms and towns: from document to document, hop by hop.

It knows the few ways in which the invented documents put things, as any reader of English does, and nothing of what
they say. `the firm that NAME works for` is looked up first and put in its place, until one relation is left.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

_WORD = r"[A-Z][^\W\d_]+"
_TWO = rf"{_WORD} {_WORD}"
_NAME = rf"{_WORD}(?: {_WORD})?"
_START = "Document:"
_ASKED = re.compile(r"Question: ([^\n]+)")


@dataclass(frozen=True, slots=True)
class _Relation:
    """How it is told, how it is spoken of, and how it is asked for."""

    told: re.Pattern[str]
    spoken: re.Pattern[str]
    asked: re.Pattern[str]


def _relation(told: str, spoken: str, asked: str) -> _Relation:
    def of(text: str) -> re.Pattern[str]:
        return re.compile(text.replace("X", f"({_NAME})"))

    return _Relation(re.compile(told), of(spoken), of(asked))


_RELATIONS = (
    _relation(
        rf"(?:was born in|Born in|comes from) ({_WORD})", "the town where X was born", r"In which town was X born\?"
    ),
    _relation(rf"(?:lives in|made a home in) ({_WORD})", "the town where X lives", r"In which town does X live\?"),
    _relation(
        rf"(?:Colleagues at|joined|employed by) ({_TWO})", "the firm that X works for", r"Which firm does X work for\?"
    ),
    _relation(
        rf"(?:founded in \d+ by|The founder,) ({_TWO})|({_TWO}), who founded", "the founder of X", r"Who founded X\?"
    ),
    _relation(
        rf"head office (?:is )?in ({_WORD})",
        "the town where X has its head office",
        r"In which town does X have its head office\?",
    ),
    _relation(
        rf"(?:The mayor,|mayor is) ({_TWO})|({_TWO}) has been mayor", "the mayor of X", r"Who is the mayor of X\?"
    ),
    _relation(rf"the river ({_WORD})", "the river that flows through X", r"Which river flows through X\?"),
)


@dataclass(frozen=True, slots=True)
class Told:
    """An answer, the stretches of text that it was put together from, and what else is told in that way."""

    value: str
    spans: tuple[tuple[int, int], ...]
    pattern: re.Pattern[str]


def question_in(closing: str) -> str:
    """The question alone, where it is marked as one."""
    found = _ASKED.findall(closing)
    return found[-1] if found else ""


def follow(text: str, question: str) -> Told | None:
    """The answer to a question about an entity, or None when it is not such a question or nothing is told."""
    spans: list[tuple[int, int]] = []
    while True:
        step = _next_step(question)
        if step is None:
            return None
        relation, match, last = step
        found = _look_up(text, match[1], relation.told)
        if found is None:
            return None
        value, span = found
        spans.append(span)
        if last:
            return Told(value, tuple(spans), relation.told)
        question = question[: match.start()] + value + question[match.end() :]


def another(text: str, told: Told, draw: random.Random) -> str:
    """What is told of somebody else in the same way: the next from a drawn place on, going round."""
    start = draw.randrange(len(text))
    for low, high in ((start, len(text)), (0, start)):
        for match in told.pattern.finditer(text, low, high):
            if _value(match) != told.value:
                return _value(match)
    return ""


def _next_step(question: str) -> tuple[_Relation, re.Match[str], bool] | None:
    """The relation whose subject is a name: the question itself, or one inside it."""
    for relation in _RELATIONS:
        if match := relation.asked.search(question):
            return relation, match, True
    for relation in _RELATIONS:
        if match := relation.spoken.search(question):
            return relation, match, False
    return None


def _look_up(text: str, name: str, told: re.Pattern[str]) -> tuple[str, tuple[int, int]] | None:
    """What the first document that names somebody and tells it of them says."""
    for low, high in _documents_with(text, name):
        match = told.search(text, low, high)
        if match and _value(match) != name:
            return _value(match), (low, high)
    return None


def _documents_with(text: str, name: str) -> Iterator[tuple[int, int]]:
    place = text.find(name)
    while place >= 0:
        low = max(text.rfind(_START, 0, place), 0)
        end = text.find(_START, place)
        high = end if end >= 0 else len(text)
        yield low, high
        place = text.find(name, high)


def _value(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group)
