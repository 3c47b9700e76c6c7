"""How counted answers and the steps of the ladder are graded: the published rule of each, and a strict one.

aggregate          what follows the last colon, exactly; a number that is off by n gets 0.75 to the power of n; "more
                   common", "less common" and "same frequency" may stand in a longer phrase
aggregate.strict   1 if the answer after the last colon is the right one, in any letter case and with a full stop or not
ladder             copied: 1 if the text is in the answer, else 1 less the share of wrong words; solved: the answer
ladder.strict      copied: the text and nothing else of note; solved: the answer and nothing after it
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from leadline.core.records import Score
from leadline.core.types import Question
from leadline.scorers.match import RuleScorer
from leadline.scorers.normalise import bare, whole_number

# --- aggregate: answers that were counted ----------------------------------------------------------
#
# `synth_process_response` of abertsch72/oolong (arXiv 2511.02817), which reads an answer of fewer than 20 characters as
# it is where it has no colon, and the last word of a longer one.

SHORT_ANSWER_CHARACTERS = 20
CREDIT = 0.75
PHRASES = ("more common", "less common", "same frequency")


def counted_answer(answer: str) -> str:
    """The part of an answer that is graded."""
    if ":" not in answer:
        words = answer.split()
        return answer if len(answer) < SHORT_ANSWER_CHARACTERS or not words else words[-1]
    said = answer.rpartition(":")[2].strip()
    for mark in "*[]":
        said = said.replace(mark, "")
    if len(said) < SHORT_ANSWER_CHARACTERS:
        return said
    return next((phrase for phrase in PHRASES if phrase in said), said)


def partial_credit(answer: str, gold: str) -> float:
    """OOLONG's score of one answer."""
    said = counted_answer(answer)
    if said == gold:
        return 1.0
    if said in PHRASES:
        return float(said in gold)
    right, number = whole_number(gold), whole_number(said)
    if right is None or number is None:
        return 0.0
    return float(CREDIT ** min(abs(right - number), 1000))


def _count(question: Question, answer: str) -> Score:
    best = max((partial_credit(answer, target) for target in question.targets), default=0.0)
    return Score(best, answer=counted_answer(answer)[:200])


def _exact_count(question: Question, answer: str) -> Score:
    said = bare(answer.rstrip().rpartition("\n")[2].rpartition(":")[2])
    return Score(float(bool(said) and any(said == bare(target) for target in question.targets)), answer=said[:200])


AGGREGATE = RuleScorer("aggregate", _count)
AGGREGATE_STRICT = RuleScorer("aggregate.strict", _exact_count)


# --- ladder: texts that were copied, questions that were solved ------------------------------------
#
# Copies as in RULER v2 (NVIDIA-NeMo/Gym @ 07d6b0d): for each reference the larger of substring and 1 - word error rate,
# and the mean over references. A solved question is the text after the last `Answer:`.

_ANSWER = re.compile(r"answer:\s*(\S.*)", re.IGNORECASE)


def word_error_rate(said: str, right: str) -> float:
    """Words to change, add or remove, for each word of the right text."""
    left, wanted = said.split(), right.split()
    if not wanted:
        return float(bool(left))
    row = np.arange(len(wanted) + 1)
    for word in left:
        change = row[:-1] + np.array([word != other for other in wanted])
        best = np.minimum(row[1:] + 1, change)
        row = np.minimum.accumulate(np.concatenate(([row[0] + 1], best)) - np.arange(len(row))) + np.arange(len(row))
    return float(row[-1]) / len(wanted)


def copy_score(answer: str, references: Sequence[str]) -> float:
    """RULER v2's score of a copy: the mean over its references."""
    said = answer.strip().lower()
    scores = [
        1.0 if right.strip().lower() in said else max(1.0 - word_error_rate(said, right.strip().lower()), 0.0)
        for right in references
    ]
    return sum(scores) / len(scores) if scores else 0.0


def final_answer(answer: str) -> str:
    """The text after the last `Answer:`, or the last line."""
    answers = _ANSWER.findall(answer)
    return bare(answers[-1] if answers else answer.rstrip().rpartition("\n")[2])


def _is_copy(question: Question) -> bool:
    return not question.answer_form  # the steps that are solved ask for a form


def _ladder_step(question: Question, answer: str) -> Score:
    if _is_copy(question):
        return Score(copy_score(answer, question.targets), answer=answer.strip()[:200])
    said = final_answer(answer)
    return Score(float(said == bare(question.targets[0])), answer=said[:200])


def _exact_ladder_step(question: Question, answer: str) -> Score:
    text = answer.rstrip()
    said = bare(text) if _is_copy(question) else bare(text.rpartition("\n")[2].rpartition(":")[2])
    return Score(float(said == bare(question.targets[0])), answer=said[:200])


LADDER = RuleScorer("ladder", _ladder_step)
LADDER_STRICT = RuleScorer("ladder.strict", _exact_ladder_step)
