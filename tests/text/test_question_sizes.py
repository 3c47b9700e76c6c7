"""Sizes of several questions from one count, each as a digit of how far it is off from what was expected."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from leadline.text.fitting.question_sizes import ENOUGH, JOINT, QuestionSizes, different_parts

BESIDE = 11
WORDS = re.compile(r" ?\S+")


def tokens_of_words(seed: int, spread: int) -> Callable[[str], int]:
    """A tokenizer that adds up: every word has a size of its own, which its characters tell only about."""
    drawn: dict[str, int] = {JOINT: 1}
    random_sizes = random.Random(seed)

    def size(word: str) -> int:
        if word not in drawn:
            drawn[word] = max(1, round(0.4 * len(word)) + random_sizes.randint(-spread, spread))
        return drawn[word]

    return lambda text: BESIDE + sum(size(word) for word in WORDS.findall(text))


def keys(count: int, seed: int = 0) -> list[str]:
    letters = random.Random(seed)
    return [" " + "".join(letters.choices("abcdefgh", k=letters.randint(6, 16))) + "?" for _ in range(count)]


def test_sizes_are_those_of_the_tokenizer_with_fewer_counts_than_questions() -> None:
    count = tokens_of_words(seed=1, spread=2)
    sizes = QuestionSizes(count)
    first = sizes.learn(keys(ENOUGH + 3))
    later = sizes.learn(keys(11, seed=1))
    for text in keys(ENOUGH + 3) + keys(11, seed=1):
        assert sizes.known[text] == count(JOINT + text) - BESIDE
    assert first <= 7
    assert later <= 4


def test_known_questions_are_not_counted_again() -> None:
    sizes = QuestionSizes(tokens_of_words(seed=2, spread=3))
    sizes.learn(keys(6))
    assert sizes.learn(keys(6)[::-1]) == 0


def test_what_lies_beyond_the_range_is_seldom_taken_for_known() -> None:
    count = tokens_of_words(seed=3, spread=9)  # two questions differ by up to twice as much as is expected at first
    wrong = 0
    for seed in range(20):
        sizes = QuestionSizes(count)
        sizes.learn(keys(5, seed))
        wrong += sum(sizes.known[text] != count(JOINT + text) - BESIDE for text in keys(5, seed) if text in sizes.known)
    assert wrong <= 10  # of 100; a document's own check and its receipts find them


def test_a_counter_that_does_not_add_up_gives_no_sizes() -> None:
    sizes = QuestionSizes(lambda text: 7 + len(text) ** 2 // 50)
    sizes.learn(keys(5))
    assert not sizes.adds_up
    assert not sizes.known


def test_a_counter_that_stops_counting_leaves_questions_open() -> None:
    sizes = QuestionSizes(lambda text: None)
    assert sizes.learn(keys(3)) == 2
    assert not sizes.known


def test_only_the_words_that_differ_are_counted() -> None:
    asked = ["\n\nWhat is the number of red apples? It is", "\n\nWhat is the number of blue pears? It is"]
    assert different_parts(asked) == [" red apples?", " blue pears?"]
    assert different_parts(["the same", "the same"]) == ["", ""]
    assert different_parts([" a b", " a b c"]) == ["", " c"]
