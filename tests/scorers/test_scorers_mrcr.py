"""Scores of copies: the published rule on real answers, and which of several texts was copied."""

from __future__ import annotations

import json
from difflib import SequenceMatcher

import pytest
from msgspec.structs import replace

from leadline.core.records import Receipt, Score
from leadline.core.types import Question
from leadline.scorers import failure
from leadline.scorers.failure import classify
from leadline.scorers.mrcr import MRCR, MRCR_ALL_CHARACTERS, MRCR_STRICT, WRONG_ORDINAL, copied, ratio
from support.golden_answers import golden_folder
from support.scorer_questions import make_question, said

HONEST = Receipt(1000, 1000)
ITEMS = [
    "Of tapirs I sing.\nThe old bell ringer polished a copper kettle before the rain.\nA careful forger sold a cup.",
    "Softly now, the tapirs come.\nTwo quiet sisters lost the wrong suitcase on the way.\nThe mayor found a blue door.",
    "O tapirs, so late.\nThe night porter hid an empty birdcage for a wager.\nMy uncle counted nine pairs of gloves.",
]
ELSEWHERE = "Of herons I sing.\nA tired surveyor borrowed a torn sail.\nThe glass blower wrapped up a sack of walnuts."


def asked_for(number: int) -> Question:
    others = tuple(f"kelora {text}" for n, text in enumerate(ITEMS) if n != number)
    question = make_question(f"kelora {ITEMS[number]}", distractors=(f"kelora {ELSEWHERE}",), family="mrcr")
    return replace(
        question,
        code_word="kelora",
        mistakes={"wrong ordinal": others},
        ordinal=number + 1,
        labels={"needles": "3"},
    )


def test_the_published_rule_gives_real_answers_their_published_scores() -> None:
    file = golden_folder("nemo_gym") / "mrcr" / "example_rollouts.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 5
    for row in rows:
        [message] = [part for part in row["response"]["output"] if part["type"] == "message"]
        text = "".join(part["text"] for part in message["content"])
        question = replace(make_question(row["expected_answer"]), code_word=row["random_string_to_prepend"])
        assert MRCR.score(question, said(text)).value == pytest.approx(row["reward"], abs=1e-12)


def test_the_rule_is_zero_without_the_code_word_and_the_ratio_of_difflib_with_it() -> None:
    target = f"kelora {ITEMS[0]}"
    assert ratio(target, target, "kelora") == 1
    assert ratio(f"\n{target} ", target, "kelora") == 1
    assert ratio(ITEMS[0], target, "kelora") == 0
    assert ratio(f"Sure: {target}", target, "kelora") == 0
    half = target[: len(target) // 2]
    expected = SequenceMatcher(None, half.removeprefix("kelora"), target.removeprefix("kelora")).ratio()
    assert ratio(half, target, "kelora") == expected


def test_the_junk_heuristic_can_cost_much_for_little() -> None:
    text = " ".join(ITEMS * 3)
    question = replace(make_question(f"kelora {text}"), code_word="kelora")
    changed = said(f"kelora {text.replace('copper', 'silver', 1)}")
    with_junk, without = (scorer.score(question, changed).value for scorer in (MRCR, MRCR_ALL_CHARACTERS))
    assert without > 0.98
    assert with_junk < without


@pytest.mark.parametrize(
    ("answer", "strict", "expected"),
    [
        (f"kelora {ITEMS[1]}", 1.0, ("correct", "")),
        (f"kelora {ITEMS[0]}", 0.0, ("distractor", WRONG_ORDINAL)),
        (f"kelora {ITEMS[2]}", 0.0, ("distractor", WRONG_ORDINAL)),
        (f"kelora {ELSEWHERE}", 0.0, ("distractor", failure.ANOTHER_VALUE)),
        (ITEMS[1], 0.0, ("wrong_format", failure.NO_CODE_WORD)),
        (f"kelora {ITEMS[1][: len(ITEMS[1]) * 7 // 10]}", 0.0, ("partial", "")),
        ("kelora I could not find that poem in the text.", 0.0, ("not_found", "")),
        ("kelora something else altogether, about nothing", 0.0, ("wrong", "")),
    ],
)
def test_an_answer_says_which_item_was_copied(answer: str, strict: float, expected: tuple[str, str]) -> None:
    question, completion = asked_for(1), said(answer)
    assert MRCR_STRICT.score(question, completion).value == strict
    scores: dict[str, Score] = {"mrcr": MRCR.score(question, completion)}
    assert classify(question, completion, scores, HONEST) == expected


@pytest.mark.parametrize("asked", range(3))
def test_the_number_of_the_copied_item_is_named(asked: int) -> None:
    for number in range(3):
        found = copied(asked_for(asked), f"kelora {ITEMS[number]}")
        assert (found.right, found.ordinal) == ((True, 0) if number == asked else (False, number + 1))
        explanation = MRCR_STRICT.score(asked_for(asked), said(f"kelora {ITEMS[number]}")).explanation
        assert explanation == ("" if number == asked else f"copies number {number + 1} in place of number {asked + 1}")


def test_a_copy_that_was_cut_off_is_that() -> None:
    completion = said(f"kelora {ITEMS[1][:-20]}", "length")
    scores = {"mrcr": MRCR.score(asked_for(1), completion)}
    assert classify(asked_for(1), completion, scores, HONEST) == ("cut_off", failure.INSIDE_THE_VALUE)
