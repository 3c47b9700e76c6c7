"""Questions and completions for scorer tests, with only what a scorer looks at filled in."""

from __future__ import annotations

from collections.abc import Sequence

from leadline.core.answers import Completion
from leadline.core.types import Match, Question, QuestionFamily


def make_question(
    *targets: str,
    question: str = "Which number was given?",
    distractors: Sequence[str] = (),
    match: Match = "all",
    family: QuestionFamily = "",
    demonstration: Sequence[str] = (),
) -> Question:
    return Question(
        question,
        targets=targets,
        distractors=tuple(distractors),
        allowance=24,
        scorers=("match.all",),
        match=match,
        family=family,
        demonstration=tuple(demonstration),
    )


def said(text: str, finish: str = "stop", thinking: str = "") -> Completion:
    return Completion(text=text, finish=finish, thinking=thinking)
