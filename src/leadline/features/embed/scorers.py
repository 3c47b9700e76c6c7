"""`embed`: the final answer to a short question. The text after the last "Answer:" is judged, or the whole answer
without such a mark.

    number   the first number after the mark, or the last one of the answer, equals the target in value
    choice   the letter of the right choice, or its text and that of no other choice
    text     an accepted answer is given, and no other of the values of its item

`embed.strict` requires the mark, and after it the answer and nothing else.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from leadline.core.records import Score
from leadline.core.types import Question
from leadline.scorers.match import RuleScorer, given_targets
from leadline.scorers.normalise import visible

_MARK = re.compile(r"(?:final\s+)?answer(?:\s+is)?\s*:?\s*(?:\*\*|\\boxed)?\s*[:\s{]", re.IGNORECASE)
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_LETTER = re.compile(r"(?<![\w'])\(?([A-T])(?:\)|\.|:|(?![\w']))")
_CHOICE = re.compile(r"\(([A-T])\)|(?<!\w)([A-T])\)")
_AROUND = " \t*_`$.{}()[]\"'"


def final_answer(answer: str) -> tuple[str, bool]:
    """The text that is judged, and whether it follows a mark: then it is the first line that is not empty."""
    text = visible(answer)
    marks = list(_MARK.finditer(text))
    if not marks:
        return text, False
    lines = [line for line in text[marks[-1].end() :].split("\n") if line.strip(_AROUND)]
    return (lines[0], True) if lines else ("", True)


def number_of(text: str, *, first: bool) -> Decimal | None:
    """A number in plain digits, with commas for thousands or without."""
    numbers = [match[0] for match in _NUMBER.finditer(text)]
    if not numbers:
        return None
    try:
        return Decimal(numbers[0 if first else -1].replace(",", ""))
    except InvalidOperation:
        return None


def letter_of(question: Question, text: str, *, marked: bool) -> str:
    """The letter of the choice that a text names; empty if it names none, or several by their texts."""
    known = {chr(ord("A") + n) for n in range(len(question.choices))}  # the I of "I think B" is no choice of four
    letters = [match[1] for match in _LETTER.finditer(text)] if marked or len(text.strip(_AROUND)) == 1 else []
    letters = [letter for letter in letters if letter in known]
    if not letters:
        letters = [letter for match in _CHOICE.finditer(text) if (letter := match[1] or match[2]) in known][-1:]
    if letters:
        return letters[0]
    lowered = text.casefold()
    named = [n for n, choice in enumerate(question.choices) if choice.strip().casefold() in lowered]
    return chr(ord("A") + named[0]) if len(named) == 1 else ""


def _final(question: Question, answer: str) -> Score:
    text, marked = final_answer(answer)
    if question.choices:
        letter = letter_of(question, text, marked=marked)
        return Score(float(letter in question.targets), letter)
    if question.value_kind == "numbers":
        number = number_of(text, first=marked)
        right = number is not None and any(number == Decimal(target) for target in question.targets)
        return Score(float(right), "" if number is None else str(number))
    stated = given_targets(question, text)
    others = [value for value in question.distractors if re.search(rf"(?<!\w){re.escape(value)}(?!\w)", text)]
    explanation = f"also names {others[0]}" if stated and others else ""
    return Score(float(bool(stated) and not others), stated[0] if stated else "", explanation)


def _strict(question: Question, answer: str) -> Score:
    text, marked = final_answer(answer)
    alone = text.strip(_AROUND)
    if question.value_kind == "numbers" and not question.choices:
        number = number_of(alone, first=True) if _NUMBER.fullmatch(alone) else None
        right = number is not None and any(number == Decimal(target) for target in question.targets)
    else:
        right = alone.casefold() in {target.casefold() for target in question.targets}
    return Score(float(marked and right), alone)


EMBED = RuleScorer("embed", _final)
EMBED_STRICT = RuleScorer("embed.strict", _strict)
