"""Answers that are sets: nodes of a graph on the last line, labels named in a sentence.

graphwalks         F1 of the set of nodes on the last line, `Final Answer: [a, b, c]`. No such line: 0. Two empty
                   sets: 1. One empty set: 0
graphwalks.strict  1 if the set is the right one, else 0
babilong           in the first sentence, the labels that the question does not name are exactly the right ones
babilong.strict    the same in the whole answer, by whole words, and the answer does not say that it does not know
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from leadline.core.records import Score
from leadline.core.types import Question
from leadline.scorers.answer_forms import Words
from leadline.scorers.match import RuleScorer, format_values
from leadline.scorers.refusals import says_not_found

# --- graphwalks: sets of nodes ---------------------------------------------------------------------
#
# The rule on the card of openai/graphwalks, as NVIDIA-NeMo/Gym @ 07d6b0d applies it. Taken literally, the code on the
# card leaves "Final Answer: [" at the first node and gives 1 to an answer without a single right node.

GRAPHWALKS_SCORERS = ("graphwalks", "graphwalks.strict")
FINAL_ANSWER = "Final Answer: [{answer}]"
_FINAL = re.compile(r"Final Answer:\s*\[(.*)\]")


def final_nodes(answer: str) -> list[str] | None:
    """The nodes on the last line that is not empty; None if it does not have the form."""
    lines = [line for line in answer.split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    match = _FINAL.search(last, 0, last.rfind("]") + 1)  # a loop of openings without an end is not searched
    return None if match is None else [node.strip() for node in match[1].split(",") if node.strip()]


def set_f1(answered: Collection[str], right: Collection[str]) -> float:
    """Two empty sets are equal."""
    common = len(set(answered) & set(right))
    if not answered and not right:
        return 1.0
    return 2 * common / (len(set(answered)) + len(set(right)))


def _node_set(question: Question, answer: str) -> Score:
    nodes = final_nodes(answer)
    if nodes is None:
        return Score(0.0, explanation="no line `Final Answer: [...]` at the end")
    right = [node for node in question.targets if node in nodes]
    return Score(
        set_f1(nodes, question.targets),
        answer=format_values(nodes),
        explanation=f"{len(right)} of {len(question.targets)} found, {len(set(nodes) - set(right))} others",
    )


def _exact_node_set(question: Question, answer: str) -> Score:
    nodes = final_nodes(answer)
    return Score(float(nodes is not None and set(nodes) == set(question.targets)), answer=format_values(nodes or ()))


GRAPHWALKS = RuleScorer("graphwalks", _node_set)
GRAPHWALKS_STRICT = RuleScorer("graphwalks.strict", _exact_node_set)


# --- babilong: answers that name some of a few labels ----------------------------------------------
#
# `compare_answers` of booydar/babilong @ 7a6efee (arXiv 2406.10149), which looks for substrings. The labels of a sample
# are on its record (`choices`).

MARKS = (".", "<context>", "<example>")
SHORT_LABEL_CHARACTERS = 3
"""References of so few characters are one label; longer ones may be several, with commas."""


def named_labels(answer: str, question: str, labels: Collection[str]) -> set[str]:
    """The labels of the first sentence, without those that the question names."""
    sentence, question_text = answer.lower(), question.lower()
    for mark in MARKS:
        sentence = sentence.split(mark)[0]
    return {label for label in labels if label.lower() in sentence and label.lower() not in question_text}


def names_only(answer: str, question: str, reference: str, labels: Collection[str]) -> float:
    """1 when the first sentence names the right labels and no others."""
    reference = reference.lower()
    right = set(reference.split(",")) if len(reference) > SHORT_LABEL_CHARACTERS else {reference}
    return float({label.lower() for label in named_labels(answer, question, labels)} == right)


def _labels(question: Question) -> Sequence[str]:
    return [*dict.fromkeys((*question.choices, *question.targets))]


def _label_set(question: Question, answer: str) -> Score:
    question_text = question.text.partition("?")[0]  # how to answer names labels too
    named = named_labels(answer, question_text, _labels(question))
    value = names_only(answer, question_text, ",".join(question.targets), _labels(question))
    return Score(value, answer=format_values(sorted(named)))


def _exact_label_set(question: Question, answer: str) -> Score:
    question_words = Words(question.text.partition("?")[0])
    wanted = [label for label in _labels(question) if label and not question_words.count(label)]
    named = Words(answer).occurring(wanted)
    right = set(named) == set(question.targets) and not says_not_found(answer)
    return Score(float(right), answer=format_values(sorted(named)))


BABILONG = RuleScorer("babilong", _label_set)
BABILONG_STRICT = RuleScorer("babilong.strict", _exact_label_set, "2")
