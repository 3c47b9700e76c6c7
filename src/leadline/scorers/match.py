"""Scorers for values in an answer: Leadline's own, RULER's as published, and abstention.

match.all     the share of targets that are in the answer as whole tokens
match.any     1 when any target is in the answer as a whole token
match.exact   1 when the answer is one of the targets and nothing else (punctuation around it aside)
ruler.v1      NVIDIA/RULER, scripts/eval/evaluate.py (post-processing) and scripts/eval/synthetic/constants.py
              (string_match_all; string_match_part where the question has match="any"). Case-insensitive substrings
ruler.strict  match.all (match.any) where no other value of the targets' kind is in the answer, else 0

The rules read no wording and are the same in every language. Substring credit can be gamed: an answer that lists every
number it saw contains the right one, and "no" is part of "know". ruler.strict <= match.all <= ruler.v1 for every
answer, so a gap shows what substrings and further values gave away.

`abstention` replaces a task's own scorers for questions that the document does not answer, so that every scorer of a
task has a value for every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leadline.core.answers import Completion
from leadline.core.records import Score
from leadline.core.types import Question
from leadline.scorers.answer_forms import Words, form_of, other_values, values_of_form, words, words_of
from leadline.scorers.normalise import VERSION, bare, clean, post_process
from leadline.scorers.refusals import says_not_found

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class RuleScorer:
    """A rule under its name: from a question and the text of an answer to a score."""

    name: str
    rule: Callable[[Question, str], Score]
    version: str = "1"

    def score(self, question: Question, completion: Completion) -> Score:
        return self.rule(question, completion.text)


def given_targets(question: Question, answer: str) -> list[str]:
    """The targets, duplicates included, that are in an answer as whole tokens: letter for letter, in any case."""
    said = words_of(answer)
    plain = post_process(answer).lower()
    return [t for t in question.targets if t.lower() in plain and (said.count(t) or _is_only_signs(t))]


def _is_only_signs(target: str) -> bool:
    return bool(clean(target)) and not Words(target).list


def format_values(values: Sequence[str]) -> str:
    """Values on one line, shortened for the record."""
    text = ", ".join(values)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"


def _match_all(question: Question, answer: str) -> Score:
    named = given_targets(question, answer)
    missing = [t for t in question.targets if t not in named]
    return Score(
        value=len(named) / len(question.targets) if named else 0.0,
        answer=format_values(named),
        explanation=f"missing: {format_values(missing)}" if missing else "",
    )


def _match_any(question: Question, answer: str) -> Score:
    named = given_targets(question, answer)
    return Score(value=1.0 if named else 0.0, answer=format_values(named[:1]))


def _match_exact(question: Question, answer: str) -> Score:
    said = bare(answer)
    answer_words = words(clean(answer))  # with the sign of a number, which is no punctuation
    right = bool(said) and any(said == bare(t) and answer_words == words(clean(t)) for t in question.targets)
    return Score(value=1.0 if right else 0.0, answer=said[:_SHOWN_CHARACTERS])


ALL = RuleScorer("match.all", _match_all, VERSION)
ANY = RuleScorer("match.any", _match_any, VERSION)
EXACT = RuleScorer("match.exact", _match_exact, VERSION)


# --- RULER ---


def string_match_all(prediction: str, references: Sequence[str]) -> float:
    """The share of references, duplicates included, that are substrings, ignoring letter case."""
    text = prediction.lower()
    return sum(r.lower() in text for r in references) / len(references) if references else 0.0


def string_match_part(prediction: str, references: Sequence[str]) -> float:
    """1 if any reference is a substring, ignoring letter case."""
    text = prediction.lower()
    return float(any(r.lower() in text for r in references))


def _published(question: Question, answer: str) -> Score:
    metric = string_match_part if question.match == "any" else string_match_all
    text = post_process(answer)
    named = [r for r in question.targets if r.lower() in text.lower()]
    return Score(value=metric(text, question.targets), answer=format_values(named))


def _strict(question: Question, answer: str) -> Score:
    named = given_targets(question, answer)
    if not named:
        return Score(value=0.0, explanation="no target as a whole token")
    others = other_values(question, answer)
    share = 1.0 if question.match == "any" else len(named) / len(question.targets)
    return Score(
        value=0.0 if others else share,
        answer=format_values(named),
        explanation=f"{len(others)} other: {format_values(others)}" if others else "",
    )


RULER_V1 = RuleScorer("ruler.v1", _published)
RULER_STRICT = RuleScorer("ruler.strict", _strict, VERSION)


# --- questions without an answer ---


def abstention(question: Question, completion: Completion) -> Score:
    """1 for saying that the document has no answer and naming none, else 0. Saying so is the reply that the question
    asked for, or any wording of "it is not there" that `refusals` knows."""
    named = _named_values(question, completion.text)
    if named:
        return Score(0.0, answer=named[0], explanation="the document has no answer, and the model names one")
    said = words_of(completion.text)
    reply = next((t for t in question.targets if said.count(t)), "")
    if reply or says_not_found(completion.text):
        return Score(1.0, answer=reply)
    return Score(0.0, explanation="the document has no answer, and the model does not say so")


def _named_values(question: Question, text: str) -> list[str]:
    """Values in the answer: planted ones, and where values have a form of their own any of that form."""
    said = words_of(text)
    question_words = set(words(clean(question.text)))
    offered = list(question.distractors)
    if question.value_kind in ("numbers", "uuids"):
        offered += values_of_form(form_of(question), question.distractors, text)
    return [v for v in said.occurring(offered) if clean(v) not in question_words]
