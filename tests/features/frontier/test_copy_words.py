"""Copying a text of repeated words, and how a copy is scored."""

from __future__ import annotations

import pytest

from leadline.core.answers import Completion
from leadline.core.types import Cell, Document
from leadline.features.frontier.copy_words import COPY_EDIT, COPY_EXACT, COPY_PLACE, WORDS, CopyWords
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit


def document(length: int, depth: float, sample: int = 0, **options: str) -> Document:
    task = CopyWords.model_validate(options)
    return fit(
        task.write([Cell("copy_words", length, depth, sample)], seed=1), WhitespaceTokenizer(), completion_frame()
    )


def scores(document: Document, copy: str) -> tuple[float, ...]:
    [probe] = document.probes
    return tuple(
        round(scorer.score(probe.question, Completion(copy)).value, 9) for scorer in (COPY_EXACT, COPY_EDIT, COPY_PLACE)
    )


@pytest.mark.parametrize("depth", [0.0, 0.25, 1.0])
def test_the_other_word_stands_at_its_depth_and_the_answer_fits(depth: float) -> None:
    made = document(800, depth)
    [probe] = made.probes
    words = probe.question.targets[0].split()
    [place] = [n for n, word in enumerate(words) if word == probe.question.labels["other"]]
    assert place / (len(words) - 1) == pytest.approx(depth, abs=0.01)
    assert set(words) == {probe.question.labels["word"], probe.question.labels["other"]}
    assert len(words) < probe.question.allowance == 400


def test_the_rule_on_copies_with_one_mistake_each() -> None:
    made = document(240, 0.5, word="apple", other="apples")
    [probe] = made.probes
    words = probe.question.targets[0].split()
    n, place = len(words), words.index("apples")
    assert scores(made, f"  {' '.join(words).upper()}.\n") == (1.0, 1.0, 1.0)
    assert scores(made, " ".join(words[:-1])) == (0.0, round((2 * n - 2) / (2 * n - 1), 9), 1.0)
    assert scores(made, " ".join(words[1:])) == (0.0, round((2 * n - 2) / (2 * n - 1), 9), 0.0)
    lost = [*words[:place], "apple", *words[place + 1 :]]
    assert scores(made, " ".join(lost)) == (0.0, round((n - 1) / n, 9), 0.0)
    moved = [*words[:place], "apple", "apples", *words[place + 2 :]]
    assert scores(made, " ".join(moved)) == (0.0, round((n - 1) / n, 9), 0.0)
    assert scores(made, "") == (0.0, 0.0, 0.0)
    said = COPY_EXACT.score(probe.question, Completion(" ".join(lost))).explanation
    assert said == f"{n:,} of {n:,} words; the other word nowhere, not at {place + 1}"


def test_words_differ_between_samples() -> None:
    assert len({document(300, 0.5, sample).probes[0].question.labels["word"] for sample in range(12)}) == 12
    assert len(WORDS) > 1000
