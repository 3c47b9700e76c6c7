"""How the families of the suite `frontier` are graded: the published rule of each, and a strict one.

graphwalks         F1 of the set of nodes on the last line, `Final Answer: [a, b, c]`. No such line: 0. Two empty
                   sets: 1. One empty set: 0
graphwalks.strict  1 if the set is the right one, else 0
aggregate          what follows the last colon, exactly; a number that is off by n gets 0.75 to the power of n; "more
                   common", "less common" and "same frequency" may stand in a longer phrase
aggregate.strict   1 if the answer after the last colon is the right one, in any letter case and with a full stop or not
babilong           in the first sentence, the labels that the question does not name are exactly the right ones
babilong.strict    the same in the whole answer, by whole words, and the answer does not say that it does not know
ladder             copied: 1 if the text is in the answer, else 1 less the share of wrong words; solved: the answer
ladder.strict      copied: the text and nothing else of note; solved: the answer and nothing after it
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from leadline.core.records import Score
from leadline.core.types import Probe
from leadline.scorers.answer_forms import Words
from leadline.scorers.denials import says_not_found
from leadline.scorers.match import RuleScorer, format_values
from leadline.scorers.normalise import bare, whole_number

# --- graphwalks: sets of nodes ---------------------------------------------------------------------
#
# The rule on the card of openai/graphwalks, as NVIDIA-NeMo/Gym @ 07d6b0d applies it. Taken literally, the code on the
# card leaves "Final Answer: [" at the first node and gives 1 to an answer without a single right node.

_FINAL = re.compile(r"Final Answer:\s*\[(.*)\]")


def final_nodes(answer: str) -> list[str] | None:
    """The nodes on the last line that is not empty; None if it does not have the form."""
    lines = [line for line in answer.split("\n") if line.strip()]
    last = lines[-1] if lines else ""
    found = _FINAL.search(last, 0, last.rfind("]") + 1)  # a loop of openings without an end is not searched
    return None if found is None else [node.strip() for node in found[1].split(",") if node.strip()]


def set_f1(given: Collection[str], right: Collection[str]) -> float:
    """Two empty sets are equal."""
    common = len(set(given) & set(right))
    if not given and not right:
        return 1.0
    return 2 * common / (len(set(given)) + len(set(right)))


def _node_set(probe: Probe, answer: str) -> Score:
    given = final_nodes(answer)
    if given is None:
        return Score(0.0, explanation="no line `Final Answer: [...]` at the end")
    right = [node for node in probe.targets if node in given]
    return Score(
        set_f1(given, probe.targets),
        answer=format_values(given),
        explanation=f"{len(right)} of {len(probe.targets)} found, {len(set(given) - set(right))} others",
    )


def _exact_node_set(probe: Probe, answer: str) -> Score:
    given = final_nodes(answer)
    return Score(float(given is not None and set(given) == set(probe.targets)), answer=format_values(given or ()))


GRAPHWALKS = RuleScorer("graphwalks", _node_set)
GRAPHWALKS_STRICT = RuleScorer("graphwalks.strict", _exact_node_set)


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
    right, given = whole_number(gold), whole_number(said)
    if right is None or given is None:
        return 0.0
    return float(CREDIT ** min(abs(right - given), 1000))


def _count(probe: Probe, answer: str) -> Score:
    best = max((partial_credit(answer, target) for target in probe.targets), default=0.0)
    return Score(best, answer=counted_answer(answer)[:200])


def _exact_count(probe: Probe, answer: str) -> Score:
    said = bare(answer.rstrip().rpartition("\n")[2].rpartition(":")[2])
    return Score(float(bool(said) and any(said == bare(target) for target in probe.targets)), answer=said[:200])


AGGREGATE = RuleScorer("aggregate", _count)
AGGREGATE_STRICT = RuleScorer("aggregate.strict", _exact_count)


# --- babilong: answers that name some of a few labels ----------------------------------------------
#
# `compare_answers` of booydar/babilong @ 7a6efee (arXiv 2406.10149), which looks for substrings. The labels of a sample
# are on its record (`choices`).

MARKS = (".", "<context>", "<example>")
SHORT_LABEL_CHARACTERS = 3
"""References of so few characters are one label; longer ones may be several, with commas."""


def named_labels(answer: str, question: str, labels: Collection[str]) -> set[str]:
    """The labels of the first sentence, without those that the question names."""
    sentence, asked = answer.lower(), question.lower()
    for mark in MARKS:
        sentence = sentence.split(mark)[0]
    return {label for label in labels if label.lower() in sentence and label.lower() not in asked}


def names_only(answer: str, question: str, reference: str, labels: Collection[str]) -> float:
    """1 when the first sentence names the right labels and no others."""
    reference = reference.lower()
    right = set(reference.split(",")) if len(reference) > SHORT_LABEL_CHARACTERS else {reference}
    return float({label.lower() for label in named_labels(answer, question, labels)} == right)


def _labels(probe: Probe) -> Sequence[str]:
    return [*dict.fromkeys((*probe.labels.get("choices", "").split(","), *probe.targets))]


def _label_set(probe: Probe, answer: str) -> Score:
    question = probe.question.partition("?")[0]  # how to answer names labels too
    found = named_labels(answer, question, _labels(probe))
    value = names_only(answer, question, ",".join(probe.targets), _labels(probe))
    return Score(value, answer=format_values(sorted(found)))


def _exact_label_set(probe: Probe, answer: str) -> Score:
    asked = Words(probe.question.partition("?")[0])
    wanted = [label for label in _labels(probe) if label and not asked.count(label)]
    found = Words(answer).affirmed(wanted)
    right = set(found) == set(probe.targets) and not says_not_found(answer)
    return Score(float(right), answer=format_values(sorted(found)))


BABILONG = RuleScorer("babilong", _label_set)
BABILONG_STRICT = RuleScorer("babilong.strict", _exact_label_set)


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
    found = [
        1.0 if right.strip().lower() in said else max(1.0 - word_error_rate(said, right.strip().lower()), 0.0)
        for right in references
    ]
    return sum(found) / len(found) if found else 0.0


def final_answer(answer: str) -> str:
    """The text after the last `Answer:`, or the last line."""
    found = _ANSWER.findall(answer)
    return bare(found[-1] if found else answer.rstrip().rpartition("\n")[2])


def _is_copy(probe: Probe) -> bool:
    return probe.labels.get("operation") == "retrieve"


def _ladder_step(probe: Probe, answer: str) -> Score:
    if _is_copy(probe):
        return Score(copy_score(answer, probe.targets), answer=answer.strip()[:200])
    said = final_answer(answer)
    return Score(float(said == bare(probe.targets[0])), answer=said[:200])


def _exact_ladder_step(probe: Probe, answer: str) -> Score:
    text = answer.rstrip()
    said = bare(text) if _is_copy(probe) else bare(text.rpartition("\n")[2].rpartition(":")[2])
    return Score(float(said == bare(probe.targets[0])), answer=said[:200])


LADDER = RuleScorer("ladder", _ladder_step)
LADDER_STRICT = RuleScorer("ladder.strict", _exact_ladder_step)
