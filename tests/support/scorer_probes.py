"""Probes and completions for scorer tests, with only what a scorer looks at filled in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from leadline.core.records import Completion
from leadline.core.types import Cell, Match, Probe, QuestionFamily


def make_probe(
    *targets: str,
    question: str = "Which number was given?",
    distractors: Sequence[str] = (),
    match: Match = "all",
    family: QuestionFamily = "",
    demonstration: Sequence[str] = (),
) -> Probe:
    return Probe(
        cell=Cell("test", 1024, 0.5, 0),
        cut=0,
        cut_characters=0,
        tail=question,
        closing_ids=np.array([], dtype=np.int32),
        prompt_tokens=1000,
        question=question,
        answer_prefix="",
        targets=targets,
        distractors=tuple(distractors),
        facts=(),
        allowance=24,
        scorers=("match.all",),
        match=match,
        family=family,
        demonstration=tuple(demonstration),
    )


def said(text: str, finish: str = "stop", thinking: str = "") -> Completion:
    return Completion(text=text, finish=finish, thinking=thinking)
