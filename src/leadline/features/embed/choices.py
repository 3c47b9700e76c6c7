"""Which choice of a row is right: given by its number from 0, its letter, its label, or its text.

A number or letter may also be the text of another choice: "2" of the choices 2, 3, 1, 0. The other rows of the file
decide how its answers are given; a row that they do not decide is refused, and nothing is guessed.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from leadline.core.errors import SourceError

AnsweredBy = Literal["key", "text"]
LETTERS = string.ascii_uppercase
MOST_CHOICES = 20
FORMS_FIX = "give the letter of the right choice, its number from 0, or its text"
UNLIKELY = 0.001
"""A file in which no answer is choice 0 is counted from 1 if chance alone makes it so less often than this."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The choices of a row. Without labels their letters and their numbers from 0 name them."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceRow:
    """A row with choices, and its accepted answers as they are in the file."""

    choices: Choices
    answers: tuple[str, ...]
    where: str
    """File, line and field of the answers."""


def choices_of(row: Mapping[str, Any], where: str, fix: str) -> Choices | None:
    """A list of texts, or their texts and labels as ARC has them. None for a row without choices."""
    value: Any = row.get("choices")
    if value is None:
        return None
    where = f"{where}, choices"
    with_labels: Mapping[str, Any] = value if isinstance(value, Mapping) else {"text": value}
    texts, labels = tuple(_trimmed(with_labels.get("text"))), tuple(_trimmed(with_labels.get("label")))
    if not 2 <= len(texts) <= MOST_CHOICES:
        raise SourceError(f"choices is not a list of 2 to {MOST_CHOICES} texts", where=where, fix=fix)
    if "" in texts:
        raise SourceError(
            f"choice {LETTERS[texts.index('')]} is empty", where=where, fix="give every choice a text, or leave it out"
        )
    if labels and (len(set(labels)) != len(texts) or len(labels) != len(texts) or "" in labels):
        raise SourceError(
            f"{len(set(labels) - {''})} different labels for {len(texts)} choices",
            where=where,
            fix="give each choice a label of its own, or none at all",
        )
    return Choices(texts, labels)


def _trimmed(value: Any) -> list[str]:
    """The texts of a list; none if it is no list of texts."""
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        return []
    return [text.strip() for text in value]


def right_letters(rows: Sequence[ChoiceRow]) -> list[tuple[str, ...]]:
    """For each row the letters of the right choices. Raises for the first row that has no single reading."""
    only = {_only_reading(answer, row.choices) for row in rows for answer in row.answers}
    answered_by: AnsweredBy | None = None
    if len(only - {None}) == 1:
        answered_by = "key" if "key" in only else "text"
    letters = [
        tuple(dict.fromkeys(LETTERS[_right(answer, row, answered_by)] for answer in row.answers)) for row in rows
    ]
    _refuse_counting_from_1(rows)
    return letters


def _by_key(answer: str, choices: Choices) -> int | None:
    if choices.labels:
        return choices.labels.index(answer) if answer in choices.labels else None
    count = len(choices.texts)
    if len(answer) == 1 and answer.upper() in LETTERS[:count]:
        return LETTERS.index(answer.upper())
    return int(answer) if _is_number(answer) and int(answer) < count else None


def _by_text(answer: str, choices: Choices) -> int | None:
    return choices.texts.index(answer) if answer in choices.texts else None


def _is_number(answer: str) -> bool:
    return answer.isdecimal() and len(answer) <= 2


def _only_reading(answer: str, choices: Choices) -> AnsweredBy | None:
    key, text = _by_key(answer, choices), _by_text(answer, choices)
    if choices.labels or (key is None) == (text is None):
        return None
    return "text" if key is None else "key"


def _right(answer: str, row: ChoiceRow, answered_by: AnsweredBy | None) -> int:
    texts, labels = row.choices.texts, row.choices.labels
    key, text = _by_key(answer, row.choices), _by_text(answer, row.choices)
    if key is None and text is None:
        raise _no_choice(answer, row)
    if key is not None and text is not None and texts[key] != texts[text] and not labels and answered_by is None:
        raise SourceError(
            f"the answer {answer!r} is choice {LETTERS[key]} by its {'number' if _is_number(answer) else 'letter'}, "
            f"and choice {LETTERS[text]} by its text",
            where=row.where,
            fix=f"give the letter {LETTERS[key]} or {LETTERS[text]}"
            if _is_number(answer)
            else f"give the number from 0, {key} or {text}",
        )
    preferred = (text, key) if answered_by == "text" and not labels else (key, text)
    right = next(number for number in preferred if number is not None)
    if texts.count(texts[right]) > 1:
        alike = " and ".join(LETTERS[n] for n, other in enumerate(texts) if other == texts[right])
        raise SourceError(
            f"choices {alike} are both {texts[right]!r}, the right one",
            where=row.where,
            fix="change or remove one of the two, so that one choice is right",
        )
    return right


def _no_choice(answer: str, row: ChoiceRow) -> SourceError:
    labels, count = row.choices.labels, len(row.choices.texts)
    what = f"the answer {answer!r} is none of the {count} choices"
    if labels:
        return SourceError(what, where=row.where, fix=f"give a label ({', '.join(labels)}) or the text of a choice")
    if _is_number(answer) and int(answer) == count:
        what += ", which have the numbers 0 to " + str(count - 1)
        return SourceError(
            what, where=row.where, fix="where answers are counted from 1, take 1 off each; or give letters"
        )
    return SourceError(what, where=row.where, fix=FORMS_FIX)


def _refuse_counting_from_1(rows: Sequence[ChoiceRow]) -> None:
    """Raises for many answers by number, none of which is 0."""
    numbered = [
        row for row in rows if not row.choices.labels
        and all(_is_number(answer) and answer not in row.choices.texts for answer in row.answers)
    ]  # fmt: skip
    if any(int(answer) == 0 for row in numbered for answer in row.answers):
        return
    if numbered and math.prod(1 - 1 / len(row.choices.texts) for row in numbered) < UNLIKELY:
        raise SourceError(
            f"{len(numbered)} answers are numbers of choices, and none is 0: they are probably counted from 1",
            where=numbered[0].where,
            fix="take 1 off each, since choices are counted from 0; or give letters",
        )
