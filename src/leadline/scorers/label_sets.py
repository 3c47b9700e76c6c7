"""Answers that name one of a few labels: BABILong's rule, and a strict one.

babilong         in the first sentence, the labels that the question does not name are exactly the right ones
babilong.strict  the same in the whole answer, by whole words, and the answer does not say that it does not know

The first is `compare_answers` of booydar/babilong @ 7a6efee (arXiv 2406.10149), which looks for substrings. The labels
of a sample are on its record (`choices`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

from leadline.core.records import Completion, Score
from leadline.core.types import Probe
from leadline.scorers.answer_forms import Words
from leadline.scorers.denials import says_not_found
from leadline.scorers.match import listed

MARKS = (".", "<context>", "<example>")
SHORT_CHARACTERS = 3
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
    right = set(reference.split(",")) if len(reference) > SHORT_CHARACTERS else {reference}
    return float({label.lower() for label in named_labels(answer, question, labels)} == right)


def _labels(probe: Probe) -> Sequence[str]:
    return [*dict.fromkeys((*probe.labels.get("choices", "").split(","), *probe.targets))]


def _abstains(probe: Probe, answer: str) -> bool:
    """Whether the answer is the one for a question without an answer, and names no label."""
    reply = probe.targets[0].lower()
    return reply in answer.lower() and not named_labels(answer, probe.question, probe.distractors)


@dataclass(frozen=True, slots=True)
class LabelSet:
    name: str = "babilong"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        if probe.labels.get("absent") == "true":
            return Score(float(_abstains(probe, completion.text)))
        question = probe.question.partition("?")[0]  # how to answer names labels too
        found = named_labels(completion.text, question, _labels(probe))
        value = names_only(completion.text, question, ",".join(probe.targets), _labels(probe))
        return Score(value, answer=listed(sorted(found)))


@dataclass(frozen=True, slots=True)
class StrictLabelSet:
    name: str = "babilong.strict"
    version: ClassVar[str] = "1"

    def score(self, probe: Probe, completion: Completion) -> Score:
        if probe.labels.get("absent") == "true":
            return Score(float(_abstains(probe, completion.text)))
        asked = Words(probe.question.partition("?")[0])
        wanted = [label for label in _labels(probe) if label and not asked.count(label)]
        found = Words(completion.text).affirmed(wanted)
        right = set(found) == set(probe.targets) and not says_not_found(completion.text)
        return Score(float(right), answer=listed(sorted(found)))


OFFICIAL = LabelSet()
STRICT = StrictLabelSet()
