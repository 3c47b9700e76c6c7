"""Failure classes: one for each sample, with a finer detail where the answer shows it.

The first rule that fits decides. Hard evidence (no answer, a short receipt, the score, a planted value) comes before
wording, and wording before form:

 1  error            no answer came back; the detail is the kind of failure
 1  input_truncated  the request was refused as too long, or the model read fewer tokens than were sent. This outranks
                     a right answer: the sample did not measure its nominal length
 2  correct          the first scorer gave 1; a detail where the answer says all the same that it is not there
 3  refused          the server's content filter stepped in
 4  empty            nothing visible; cut_off when hidden thinking used up the allowance
 5  cut_off          the allowance ran out inside a missing value, or while values were still being listed
    partial          some targets, not all; or, where the scorer takes no others, a target beside other values
 6  wrong_format     the right value is there, but not in the form the scorer takes
 7  distractor       no target, but another planted value, one of another line, or the demonstration's
 7  false_alarm      the document has no answer, and the model gives one all the same
 8  not_found        the model says it is not there, or that it does not know; false_abstention where questions without
                     an answer are asked too, so that the prompt says how to say so
 9  refused          the model declines
10  cut_off          the allowance ran out before any value, and the answer was neither a loop nor unrelated
11  wrong            anything else: a value made up, misread or remembered, a piece of one, or no value at all

Details follow the error analysis of the RULER paper (arXiv 2404.06654, section 5) where a single answer can show them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from leadline.core.answers import WINDOW_FULL, Completion, Failure
from leadline.core.records import FailureClass, Receipt, Score
from leadline.core.types import Question
from leadline.scorers.answer_forms import (
    Words,
    form_of,
    listed_items,
    other_values,
    repeats_itself,
    values_of_form,
    words,
    words_of,
)
from leadline.scorers.mrcr import WRONG_ORDINAL, copied
from leadline.scorers.normalise import bare, clean
from leadline.scorers.refusals import says_not_found, says_refusal

_LENGTH = frozenset(("length", "max_tokens", WINDOW_FULL))
_TAIL_CHARACTERS = 24
_ON_THE_WAY_WORDS = 32
"""After an answer prefix the value should follow at once: an answer with more words than this is off course."""

REFUSED_AS_TOO_LONG = "refused as too long"
FEWER_TOKENS_READ = "fewer tokens read than sent"
DENIED = "says that it is not there"
CONTENT_FILTER = "content filter"
PROVIDER_REFUSAL = "the provider's refusal"
WINDOW_WAS_FULL = "the window was full"
THINKING = "thinking used up the allowance"
ONLY_THINKING = "only thinking"
INSIDE_THE_VALUE = "inside the value"
WHILE_LISTING = "while listing"
BEFORE_ANY_VALUE = "before any value"
OTHER_FORM = "right value in another form"
DEMONSTRATION = "copied the demonstration"
ANOTHER_CHAIN = "another chain"
ANOTHER_VALUE = "another planted value"
BESIDE_OTHERS = "right value beside others"
HALF = "half of a split needle"
NOT_JOINED = "all pieces of a split needle, not joined"
NO_CODE_WORD = "right text without its code word"
DUPLICATES = "duplicates while missing others"
INCOMPLETE = {"uuids": "incomplete uuid", "numbers": "incomplete number"}
STOP_WORDS = "stop words"
REPEATS = "repeats itself"
ECHO = "only what the question said"
NO_VALUE = "no value of the form asked for"

_STOP_WORDS = frozenset(
    (
        "a about after all also am an and any are as at be been before both but by can could did do does each for from "
        "had has have he her here his how i if in into is it its just may me more most my no not of on once one only "
        "or our out over per she should so some than that the their them then there these they this those to up was "
        "we were what when where which while who will with would you your"
    ).split()
)

Classification = tuple[FailureClass, str]


def classify(
    question: Question,
    outcome: Completion | Failure,
    scores: Mapping[str, Score],
    receipt: Receipt,
    other_value: str = "",
) -> Classification:
    """The class of a sample and a detail, which may be empty. The first of `scores` decides right and wrong;
    `other_value` is what `value_of_another_line` found in the document that was read."""
    if isinstance(outcome, Failure):
        return ("input_truncated", REFUSED_AS_TOO_LONG) if outcome.why == "context_length" else ("error", outcome.why)
    if not scores:
        raise ValueError("a completion must be scored before it is classified")
    if receipt.short:
        return "input_truncated", FEWER_TOKENS_READ
    value = next(iter(scores.values())).value
    if value >= 1 - 1e-9:
        denied = not question.absent and bare(outcome.text) not in map(bare, question.targets)
        return "correct", DENIED if denied and says_not_found(outcome.text) else ""
    return _classify_wrong(question, outcome, value, other_value)


def value_of_another_line(question: Question, answer: str, document_text: str) -> str:
    """A value in the answer to a needle question that is none of the targets and is in the document; else nothing."""
    form = form_of(question)
    if question.family != "needle" or form == "words":
        return ""
    targets = {clean(target) for target in question.targets}
    offered = values_of_form(form, question.targets, answer)
    wrong = [value for value in dict.fromkeys(map(clean, offered)) if value not in targets]
    if not wrong:
        return ""
    wrong = _not_in_question(question, wrong)
    if all(map(str.isdecimal, wrong)):  # in most runs; a pattern for every answer would be most of the work of grading
        places = [(at, value) for value in wrong if (at := _place_of_whole(value, document_text)) >= 0]
        return min(places)[1] if places else ""
    pattern = "|".join(map(re.escape, wrong))
    whole = re.search(rf"(?<![\w-])(?:{pattern})(?![\w-])", document_text, re.IGNORECASE)
    return whole.group() if whole else ""


def _place_of_whole(value: str, text: str) -> int:
    """The position of the first occurrence of a value in a text without letters, digits or hyphens beside it; -1 if
    none."""
    at = text.find(value)
    while at >= 0:
        end = at + len(value)
        if not any(sign.isalnum() or sign in "_-" for sign in text[max(at - 1, 0) : at] + text[end : end + 1]):
            return at
        at = text.find(value, at + 1)
    return at


def _not_in_question(question: Question, values: Iterable[str]) -> list[str]:
    """The values without those that the question itself names."""
    named = set(words(clean(question.text))) - {clean(target) for target in question.targets}
    return [value for value in values if clean(value) not in named]


def _classify_wrong(question: Question, outcome: Completion, value: float, other_value: str) -> Classification:
    if outcome.finish == "content_filter":  # only in logs of other programs: a run has a failure in its place
        return "refused", CONTENT_FILTER
    if outcome.finish == "refusal":
        return "refused", PROVIDER_REFUSAL
    if outcome.finish == WINDOW_FULL and value == 0:
        return "cut_off", WINDOW_WAS_FULL
    if not words_of(outcome.text).list:
        return _classify_empty(outcome)
    answer = _WrongAnswer(question, outcome, other_value)
    if question.absent:
        return _classify_absent(answer)
    if question.family == "mrcr":
        return _classify_copy(answer, outcome)
    if value > 0:
        return ("cut_off", answer.unfinished) if answer.unfinished else ("partial", answer.slip)
    if answer.right and other_values(question, answer.text):
        return "partial", answer.slip or BESIDE_OTHERS
    if answer.right or answer.words.in_another_form(question.targets):
        return "wrong_format", OTHER_FORM
    if answer.foreign == HALF:
        every_piece = len(answer.words.occurring(question.mistakes[HALF])) == len(question.mistakes[HALF])
        return ("wrong_format", NOT_JOINED) if every_piece else ("wrong", HALF)
    if answer.foreign:
        return "distractor", answer.foreign
    return _classify_wording(answer) or _classify_form(answer)


def _classify_empty(outcome: Completion) -> Classification:
    if not outcome.thinking and not outcome.thinking_tokens:  # some providers count it and do not show it
        return "empty", ""
    return ("cut_off", THINKING) if outcome.finish in _LENGTH else ("empty", ONLY_THINKING)


def _classify_wording(answer: _WrongAnswer) -> Classification | None:
    if says_not_found(answer.text):
        return "not_found" if answer.question.absent is None else "false_abstention", ""
    if says_refusal(answer.text):
        return "refused", ""
    return None


def _classify_copy(answer: _WrongAnswer, outcome: Completion) -> Classification:
    """Which of several texts was copied, whatever share of it."""
    copy = copied(answer.question, answer.text)
    if copy.right:
        if outcome.finish in _LENGTH:
            return "cut_off", INSIDE_THE_VALUE
        begins = answer.text.strip().startswith(answer.question.code_word)
        return ("partial", "") if begins else ("wrong_format", NO_CODE_WORD)
    if not copy.none:
        return "distractor", WRONG_ORDINAL if copy.ordinal else ANOTHER_VALUE
    return _classify_wording(answer) or ("wrong", answer.slip)


def _classify_absent(answer: _WrongAnswer) -> Classification:
    """The document has no answer, and the model did not say so."""
    if says_refusal(answer.text) and not answer.foreign:
        return "refused", ""
    if answer.unfinished and not answer.foreign:
        return "cut_off", answer.unfinished
    return "false_alarm", answer.foreign


def _classify_form(answer: _WrongAnswer) -> Classification:
    if answer.unfinished:
        return "cut_off", answer.unfinished
    return "wrong", answer.slip or ("" if answer.values else NO_VALUE)


class _WrongAnswer:
    """A wrong answer and the features that decide its class."""

    def __init__(self, question: Question, outcome: Completion, other_value: str) -> None:
        self.question = question
        self.other_value = other_value
        self.text = outcome.text
        self.words = words_of(outcome.text)
        self.form = form_of(question)
        self.right = self.words.occurring(question.targets)
        right = set(self.right)  # of thousands, where every step of a sum is a target
        self.missing = [t for t in question.targets if t not in right]
        offered = values_of_form(self.form, question.targets, outcome.text)
        self.values = _not_in_question(question, offered)
        self.echoes = bool(offered) and not self.values
        if self.form == "words" and question.family == "questions":
            self.values = self.words.list  # a question may be answered in a sentence
        self.loops = repeats_itself(outcome.text)
        self.foreign = self._foreign()
        self.unfinished = self._unfinished() if outcome.finish in _LENGTH else ""
        self.slip = self._slip()

    def _foreign(self) -> str:
        """The origin of wrong values in the answer: the demonstration, a known mistake, or other planted facts."""
        targets = {clean(t) for t in self.question.targets}
        demonstration = [w for w in self.question.demonstration if clean(w) not in targets]
        if self.words.occurring(demonstration):
            return DEMONSTRATION
        said = Words(self.text.rstrip().rpartition("\n")[2]) if self.question.answer_form else self.words
        for mistake, values in self.question.mistakes.items():
            if said.occurring(v for v in values if clean(v) not in targets):
                return mistake
        if self.words.occurring(d for d in self.question.distractors if clean(d) not in targets):
            return ANOTHER_CHAIN if self.question.family == "tracing" else ANOTHER_VALUE
        return ANOTHER_VALUE if self.other_value else ""

    def _unfinished(self) -> str:
        end = clean(self.text)[-_TAIL_CHARACTERS * 4 :].rstrip("-")
        last = self.words.list[-1]
        if end.endswith(last) and any(_is_beginning(last, t) for t in self.missing):
            return INSIDE_THE_VALUE
        still_short = len(self.values) < len(self.right) + len(self.missing)
        if self.right and still_short and Words(end[-_TAIL_CHARACTERS:]).occurring(self.right):
            return WHILE_LISTING
        lost = self.right or self.foreign or self.loops or self.values
        if not lost and not (self.question.answer_prefix and len(self.words.list) > _ON_THE_WAY_WORDS):
            return BEFORE_ANY_VALUE
        return ""

    def _slip(self) -> str:
        if self._incomplete():
            return INCOMPLETE[self.form]
        if self.right and any(self.words.count(t) > 1 for t in self.right):
            return DUPLICATES
        if self.foreign:
            return self.foreign
        if self.question.family == "counting" and self._is_stop_words():
            return STOP_WORDS
        if self.loops:
            return REPEATS
        return ECHO if self.echoes else ""

    def _incomplete(self) -> bool:
        """Whether the answer has a piece of a missing value, long enough not to be a coincidence."""
        if self.form not in INCOMPLETE:
            return False
        least = 8 if self.form == "uuids" else 3
        pieces = {w for w in self.words.list if len(w) >= least}
        values = [clean(t) for t in self.missing]
        if self.form == "uuids":
            return any(p in v and p != v for p in pieces for v in values)
        return any(p != v and (v.startswith(p) or v.endswith(p)) for p in pieces for v in values)

    def _is_stop_words(self) -> bool:
        items = [item for item in listed_items(self.text) if len(item) <= 2]
        return bool(items) and 2 * sum(all(w in _STOP_WORDS for w in item) for item in items) >= len(items)


def _is_beginning(piece: str, target: str) -> bool:
    whole = clean(target)
    return len(piece) >= 3 and piece != whole and whole.startswith(piece)
