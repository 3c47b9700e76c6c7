"""InfiniteBench's twelve rules (arXiv 2402.13718, OpenBMB/InfiniteBench @ 88b3daa), as its published table was made.

A label is a string, a number or a list, by task and by the file it was read from. Every rule takes the prediction and
that label and gives 0 to 1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from leadline.core.records import Score
from leadline.core.types import Question
from leadline.features.published.benchmark_files import INFINITEBENCH
from leadline.features.published.longbench_scorers import dataset_of, normalise_chinese, normalise_english
from leadline.scorers.match import RuleScorer
from leadline.scorers.normalise import whole_number
from leadline.scorers.overlap import rouge_lsum_google, token_f1

GoldLabel = Any  # str, number, or a list of them, as the files have it
_NUMBER = re.compile(r"\d+\.\d+|\d+")
_KV_BREAKS = str.maketrans(dict.fromkeys("\n:\"'.,?!{}", " "))
_RUN_BREAKS = str.maketrans(dict.fromkeys("\n.`'\":", " "))
_CHOICE_BREAKS = str.maketrans(dict.fromkeys("\n\"'.,?!{}", " "))


def _first(label: GoldLabel) -> GoldLabel:
    return label[0] if isinstance(label, list) else label


def _flat(label: GoldLabel) -> list[str]:
    """References as texts, from a value, a list, or a list in a list."""
    if not isinstance(label, list):
        return [str(label)]
    return [text for item in label for text in _flat(item)]


def first_integer(prediction: str, label: GoldLabel) -> float:
    """passkey, number_string: the first run of digits is the label."""
    number = re.search(r"[0-9]+", prediction)
    return float(number is not None and number.group() == str(_first(label)))


def word_among(prediction: str, label: GoldLabel) -> float:
    """kv_retrieval: the label is a word of the answer, punctuation aside."""
    return float(str(_first(label)) in prediction.translate(_KV_BREAKS).split())


def character_named(prediction: str, label: GoldLabel) -> float:
    """longdialogue_qa_eng: the first label is a word of the upper-cased answer."""
    return float(str(_first(label)) in prediction.upper().translate(_KV_BREAKS).split())


def last_integer(prediction: str, label: GoldLabel) -> float:
    """code_run: the last word is the label as a whole number."""
    words = prediction.strip().translate(_RUN_BREAKS).split()
    return float(bool(words) and whole_number(words[-1]) == _first(label))


def first_number(prediction: str, label: GoldLabel) -> float:
    """math_find: the first number is the label; a minus sign is not read."""
    number = _NUMBER.search(prediction)
    label_value = _first(label)
    if number is None:
        return 0.0
    value = whole_number(number.group()) if isinstance(label_value, int) else float(number.group())
    return float(value == label_value)


def leading_run(prediction: str, label: GoldLabel) -> float:
    """math_calc: the share of the label that the answer's numbers begin with."""
    right = 0
    for digits, wanted in zip(re.findall(r"[0-9]+", prediction), label, strict=False):
        if whole_number(digits) != wanted:
            break
        right += 1
    return right / len(label)


def chosen_option(prediction: str, label: GoldLabel) -> float:
    """longbook_choice_eng: a leading letter, the option's text, what follows an answer prefix, the first letter."""
    text = prediction.strip()
    if not text:
        return 0.0
    if text[0] in "ABCD":
        return float(text[0] in label)
    if text in label:
        return 1.0
    text = " ".join(text.translate(_CHOICE_BREAKS).split(" "))
    text = re.sub(" {2,}", " ", text)
    after = _after_prefix(text, ("answer is:", "answer:", "answer is", "option is"))
    if after is not None:
        return float(any(after.startswith(option) for option in label))
    letter = next((word for word in text.split() if word in "ABCD"), "")
    return float(bool(letter) and letter in label)


def debugged_function(prediction: str, label: GoldLabel) -> float:
    """code_debug: "X." or "X:" at the start, or the letter or function name right after an answer prefix."""
    function, letter = label[0], label[1]
    text = prediction.strip()
    if text[:2] in (f"{letter}.", f"{letter}:"):
        return 1.0
    for mark in ("\n", "`", "'", '"', "-", "*", "Option", "option"):
        text = text.replace(mark, " ")
    text = re.sub(" {2,}", " ", text)
    after = _after_prefix(text, ("answer is:", "is:", "answer:"))
    return float(after is not None and after.startswith((letter, function)))


def _after_prefix(text: str, prefixes: Sequence[str]) -> str | None:
    """The text from one character after the first of the prefixes that occurs, in their order; None without one."""
    for prefix in prefixes:
        at = text.find(prefix)
        if at >= 0:
            return text[at + len(prefix) + 1 :]
    return None


def english_f1(prediction: str, label: GoldLabel) -> float:
    tokens = normalise_english(prediction).split()
    return max((token_f1(tokens, normalise_english(r).split()) for r in _flat(label)), default=0.0)


def chinese_f1(prediction: str, label: GoldLabel) -> float:
    """longbook_qa_chn: F1 over single characters."""
    characters = list(normalise_chinese(prediction))
    return max((token_f1(characters, list(normalise_chinese(r))) for r in _flat(label)), default=0.0)


def summary(prediction: str, label: GoldLabel) -> float:
    return rouge_lsum_google(prediction, str(_first(label)))


RULES: dict[str, Callable[[str, GoldLabel], float]] = {
    rule.__name__: rule
    for rule in (
        first_integer, word_among, character_named, last_integer, first_number, leading_run, chosen_option,
        debugged_function, english_f1, chinese_f1, summary,
    )
}  # fmt: skip


def _official(question: Question, answer: str) -> Score:
    """The rule of the question's data set. The reference of a generated sample is its targets."""
    metric = dataset_of(question, INFINITEBENCH).metric
    reference: GoldLabel
    if question.reference is not None:
        reference = question.reference
    elif metric == "leading_run":
        reference = [abs(int(target)) for target in question.targets]  # the rule reads no minus signs
    else:
        reference = int(question.targets[0])
    return Score(RULES[metric](answer, reference), explanation=metric, metric=metric)


OFFICIAL = RuleScorer("infinitebench", _official)
