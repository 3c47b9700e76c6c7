"""Which of several texts alike an answer copies, and how well: the rules of MRCR.

mrcr                 the published rule of openai/mrcr: 0 unless the answer begins with the code word; else the ratio of
                     Python's difflib between answer and target, both without the code word. White space around them is
                     not counted, as in NeMo Gym
mrcr.all_characters  the same without difflib's junk heuristic, which leaves out of the comparison every character that
                     makes up more than 1 % of a target of 200 characters or more: with it one wrong word can cost half
mrcr.strict          1 if the answer begins with the code word and is a copy of the right text, at most one word in
                     twenty changed; else 0, with the text that was copied instead
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial

from leadline.core.records import Score
from leadline.core.types import Question
from leadline.scorers.answer_forms import words
from leadline.scorers.match import RuleScorer
from leadline.scorers.normalise import clean

MRCR_SCORERS = ("mrcr", "mrcr.all_characters", "mrcr.strict")
WRONG_ORDINAL = "wrong ordinal"
"""The mistake of a copy of another text of the same kind and topic."""

COPIED = 0.5
"""Share of the phrases of a text that an answer must have to be a copy of it."""
EXACT = 0.95
"""Share of equal words in a copy that counts as right."""
_PHRASE_WORDS = 4


def ratio(answer: str, target: str, code_word: str, *, autojunk: bool = True) -> float:
    """The published score of an answer; `code_word` is the code word."""
    answer = answer.strip()
    if not answer.startswith(code_word):
        return 0.0
    said, right = answer.removeprefix(code_word), target.strip().removeprefix(code_word)
    return SequenceMatcher(None, said, right, autojunk=autojunk).ratio()


@dataclass(frozen=True, slots=True)
class Copied:
    """Which of the texts an answer is a copy of."""

    right: bool
    """The one that was asked for."""
    ordinal: int = 0
    """The number of another text of its kind and topic, counted from 1; 0 for any other text."""
    none: bool = False
    """No known text at all."""


def copied(question: Question, answer: str) -> Copied:
    """The text whose phrases the answer has most of, if it has half of them."""
    said = _phrases(answer)
    alike = [text for texts in question.mistakes.values() for text in texts]
    shares = [_share(text, question.code_word, said) for text in (*question.targets[:1], *alike, *question.distractors)]
    best = max(range(len(shares)), key=shares.__getitem__, default=-1)
    if best < 0 or shares[best] < COPIED:
        return Copied(False, none=True)
    if best == 0:
        return Copied(True)
    if best > len(alike):
        return Copied(False)
    return Copied(False, ordinal=best if best < question.ordinal else best + 1)


def _phrases(text: str) -> set[tuple[str, ...]]:
    said = words(clean(text))
    return set(zip(*(said[n:] for n in range(_PHRASE_WORDS)), strict=False)) or {tuple(said)}


def _share(text: str, code_word: str, said: set[tuple[str, ...]]) -> float:
    known = _phrases(text.removeprefix(code_word))
    return len(known & said) / len(known)


def _best_ratio(question: Question, answer: str, *, autojunk: bool) -> Score:
    value = max(ratio(answer, t, question.code_word, autojunk=autojunk) for t in question.targets)
    begins = answer.strip().startswith(question.code_word)
    return Score(value, explanation="" if begins else "does not begin with the code word")


def _right_copy(question: Question, answer: str) -> Score:
    text = answer.strip()
    copy = copied(question, text)
    if not copy.right:
        what = f"number {copy.ordinal} in place of number {question.ordinal}" if copy.ordinal else "another text"
        return Score(0.0, explanation="copies none of the texts" if copy.none else f"copies {what}")
    if not text.startswith(question.code_word):
        return Score(0.0, explanation="the right text, not after the code word")
    same = SequenceMatcher(None, words(clean(text)), words(clean(question.targets[0])), autojunk=False).ratio()
    return Score(float(same >= EXACT), explanation="" if same == 1 else f"{100 * same:.0f}% of its words")


MRCR = RuleScorer("mrcr", partial(_best_ratio, autojunk=True))
MRCR_ALL_CHARACTERS = RuleScorer("mrcr.all_characters", partial(_best_ratio, autojunk=False))
MRCR_STRICT = RuleScorer("mrcr.strict", _right_copy)
