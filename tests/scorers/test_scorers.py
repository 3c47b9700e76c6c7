"""Scorers by golden tables. Each RULER row was worked out by hand from the rule it names."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.core import registry
from leadline.core.contracts import Scorer
from leadline.core.records import Receipt
from leadline.core.types import Match
from leadline.features.frontier.scorers import partial_credit
from leadline.features.judges.rubric import AskedItem, load_rubric
from leadline.features.published.infinitebench_scorers import first_number, last_integer, leading_run
from leadline.scorers import normalise
from leadline.scorers.answer_forms import words_of
from leadline.scorers.answer_sets import GRAPHWALKS
from leadline.scorers.failure import classify
from leadline.scorers.match import ALL, ANY, EXACT, RULER_STRICT, RULER_V1, string_match_all, string_match_part
from leadline.scorers.normalise import bare, clean, post_process, visible
from support.scorer_questions import make_question, said

SCORERS = [registry.scorer(name) for name in registry.names("scorers") if name.split(".")[0] in ("match", "ruler")]
UUID = "3f2b8c1a-9d4e-4f6a-8b7c-1d2e3f4a5b6c"


# --- the normaliser -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_text", "cleaned"),
    [
        ("  The\tAnswer \n is  ", "the answer is"),
        ("\x1b[1;31m4821907\x1b[0m", "4821907"),
        ("\x1b]8;;http://example.org\x07link\x1b]8;;\x07", "link"),
        ("４８２１９０７", "4821907"),
        ("4,821,907", "4821907"),
        ("4,821,90", "4,821,90"),
        ("numbers: 123,456 and 78,90", "numbers: 123456 and 78,90"),
        ("4821907, 5512345", "4821907, 5512345"),
        ("3f2b\u20118c1a", "3f2b-8c1a"),
        ("the value\u20144821907", "the value - 4821907"),
        ("48\u200b21\u2060907\ufeff", "4821907"),
        ("co\u00adoperate", "cooperate"),
        ("it\u2019s", "it's"),
        ("STRASSE", clean("Straße")),
        ("cafe\u0301", "caf\u00e9"),
        ("a\u00a0b", "a b"),
        ("a\x00b", "a b"),
        ("\ud800x", "\ufffdx"),
        ("", ""),
    ],
)  # fmt: skip
def test_the_normaliser_forgives_dress(given_text: str, cleaned: str) -> None:
    assert clean(given_text) == cleaned


@pytest.mark.parametrize(
    ("one", "other"), [("paris", "pаris"), ("4821907", "482190"), ("1O", "10"), ("color", "colour")]
)
def test_the_normaliser_does_not_forgive_another_spelling(one: str, other: str) -> None:
    assert clean(one) != clean(other)


def test_an_answer_of_one_endless_number_is_wrong_and_no_error() -> None:
    endless = "7" * 5000  # Python converts at most 4,300 digits
    assert partial_credit(f"Answer: {endless}", "12") == 0.0
    assert leading_run(f"12 {endless}", [12, 19]) == 0.5
    assert last_integer(endless, 12) == first_number(endless, 12) == 0.0
    grade = AskedItem("grade", load_rubric("scale").items[0])
    assert grade.accepts("7") == 7
    assert grade.accepts(endless) is None


@pytest.mark.parametrize("loop", ["because ", "Final Answer: [ab, "])
def test_a_long_loop_is_graded_at_once(loop: str) -> None:
    question, answer = make_question("misty-harbor", "amber lamp"), said(loop * 15_000, finish="length")
    assert RULER_STRICT.score(question, answer).value == 0.0
    assert GRAPHWALKS.score(question, answer).value == 0.0
    assert classify(question, answer, {"match.all": ALL.score(question, answer)}, Receipt(1000, 1000))[0] == "wrong"


def test_plain_texts_are_passed_through_unless_a_step_would_change_them() -> None:
    draw = random.Random(0)
    signs = "abc019,,,  \n\r\t\x07\x0b\x1b[m]-.'s\x7f"
    changed = 0
    for _ in range(4000):
        text = "".join(draw.choices(signs, k=draw.randrange(14)))
        assert visible(text) == normalise._without_formatting(text)
        changed += visible(text) != text
    assert 500 < changed < 3900


def test_visible_text_keeps_lines_and_letter_case() -> None:
    assert visible("One\r\nTwo\u2028Three") == "One\nTwo\nThree"


def test_bare_text_has_no_punctuation_around_it() -> None:
    assert bare('"**St. Paul\'s.**"') == "st. paul's"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=60))
def test_cleaning_twice_changes_nothing(text: str) -> None:
    assert clean(clean(text)) == clean(text)


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=40))
def test_letter_case_never_matters(text: str) -> None:
    assert clean(text.upper()) == clean(text.lower())


@given(st.text(alphabet="0123,45 .\t\n\ra\x7f", max_size=20))
def test_a_plain_text_is_already_what_removing_its_formatting_leaves(text: str) -> None:
    assert visible(text) == normalise._without_formatting(text)


# --- match.* ------------------------------------------------------------------------------------

MATCHES = [
    # targets, answer, all, any, exact
    (("4821907",), " 4821907.", 1, 1, 1),
    (("4821907",), "The number is 4821907", 1, 1, 0),
    (("4821907",), "4,821,907", 0, 0, 1),  # not RULER's spelling, so no credit beyond ruler.v1
    (("4821907",), "4821908", 0, 0, 0),
    (("4821907",), "-4821907", 0, 0, 0),
    (("-12",), "It is -12.", 1, 1, 0),
    (("12",), "It is -12.", 0, 0, 0),
    (("4821907",), "", 0, 0, 0),
    (("red", "blue", "green", "grey"), "Red and GREEN", 0.5, 1, 0),
    (("red", "Red"), "red", 1, 1, 1),
    (("red", "red", "blue"), "red", 2 / 3, 1, 1),  # duplicates count each, as in RULER
    (("amber lantern",), "amber\nlantern", 0, 0, 1),
    ((UUID,), UUID.replace("-", "\u2011").upper(), 0, 0, 1),
    ((UUID,), UUID.upper(), 1, 1, 1),
    (("p\u0430ris",), "paris", 0, 0, 0),
    (("",), "anything", 0, 0, 0),
    ((), "anything", 0, 0, 0),
]  # fmt: skip


@pytest.mark.parametrize(("targets", "answer", "all_value", "any_value", "exact_value"), MATCHES)
def test_matches(targets: tuple[str, ...], answer: str, all_value: float, any_value: float, exact_value: float) -> None:
    question, completion = make_question(*targets), said(answer)
    assert ALL.score(question, completion).value == all_value
    assert ANY.score(question, completion).value == any_value
    assert EXACT.score(question, completion).value == exact_value


def test_a_score_says_what_was_found_and_what_is_missing() -> None:
    score = ALL.score(make_question("red", "blue", "green"), said("green, red"))
    assert (score.answer, score.explanation) == ("red, green", "missing: blue")


def test_answers_that_were_read_before_change_no_score() -> None:
    samples = [(make_question(*targets), said(answer)) for targets, answer, *_ in MATCHES if targets]
    alone = []
    for sample in samples:
        words_of.cache_clear()
        alone.append([scorer.score(*sample) for scorer in SCORERS])
    assert [[scorer.score(*sample) for scorer in SCORERS] for sample in samples] == alone


# --- ruler.v1 -----------------------------------------------------------------------------------
# The rules: NVIDIA/RULER, scripts/eval/evaluate.py (postprocess_pred) and scripts/eval/synthetic/constants.py
# (string_match_all for niah, vt, cwe and fwe; string_match_part for qa).

PUBLISHED_SCORES = [
    # prediction, references, all, part
    ("4821907", ["4821907"], 1.0, 1.0),
    ("1234567890", ["4567"], 1.0, 1.0),                      # inside another number: still a substring
    ("I know nothing", ["No"], 1.0, 1.0),                     # inside another word, whatever the case
    ("4,821,907", ["4821907"], 0.0, 0.0),                    # no normalisation of numbers
    ("ABC DEF", ["abc", "ghi", "def", "jkl"], 0.5, 1.0),
    ("Normandy", ["Normandy", "in Normandy", "the Normandy"], 1 / 3, 1.0),
    ("in Normandy", ["Normandy", "Normandy", "in Normandy"], 1.0, 1.0),  # duplicates count each
    ("a\x00b", ["a b"], 0.0, 0.0),                           # control characters become line breaks
    ("a\x0bb", ["a\nb"], 1.0, 1.0),
    ("\x1f 7 \x00", ["7"], 1.0, 1.0),
    ("co-op\u200b", ["co-op"], 1.0, 1.0),
    ("", ["x"], 0.0, 0.0),
    ("x y z w v and forty others", ["x", "y", "z", "w", "v"], 1.0, 1.0),  # further candidates cost nothing
]  # fmt: skip


@pytest.mark.parametrize(("prediction", "references", "all_value", "part_value"), PUBLISHED_SCORES)
def test_ruler_metrics_are_the_original_ones(
    prediction: str, references: list[str], all_value: float, part_value: float
) -> None:
    text = post_process(prediction)
    assert string_match_all(text, references) == pytest.approx(all_value)
    assert string_match_part(text, references) == part_value
    assert RULER_V1.score(make_question(*references), said(prediction)).value == pytest.approx(all_value)
    assert RULER_V1.score(make_question(*references, match="any"), said(prediction)).value == part_value


def test_ruler_post_processing_strips_before_and_after() -> None:
    assert post_process(" \x00 a\tb \x1f") == "a\nb"


# --- ruler.strict -------------------------------------------------------------------------------

WORDS_QUESTION = "Which 3 words are the most common in the list above?"
STRICT_CASES = [
    # targets, answer, question, match, score
    (("4821907",), "4821907", "Which number?", "all", 1.0),
    (("4821907",), "The special number is 4,821,907.", "Which number?", "all", 0.0),
    (("4821907",), "14821907", "Which number?", "all", 0.0),
    (("4821907",), "4821907.5", "Which number?", "all", 0.0),
    (("4821907",), "4821907 or 5512345", "Which number?", "all", 0.0),
    (("4821907",), "1. 4821907\n2. 5512345\n3. 6612345", "Which number?", "all", 0.0),
    (("4821907",), "5512345, not 4821907", "Which number?", "all", 0.0),
    (("4821907",), "4821907, not 5512345", "Which number?", "all", 0.0),
    (("4821907",), "There are 2: 4821907 and again 4821907", "Which number?", "all", 1.0),
    (("4821907",), "For 5512345 it is 4821907", "Which number belongs to 5512345?", "all", 1.0),
    (("4821907", "5512345"), "4821907", "Which numbers?", "all", 1 / 2),
    (("4821907", "5512345"), "4821907, 6612345", "Which numbers?", "all", 0.0),
    (("4821907", "5512345"), "4821907 and 5,512,345", "Which numbers?", "all", 1 / 2),
    ((UUID,), f"It is {UUID.upper()}.", "Which id?", "all", 1.0),
    ((UUID,), UUID[:-1], "Which id?", "all", 0.0),
    ((UUID,), f"{UUID} or {UUID[:-1]}", "Which id?", "all", 0.0),
    (("QXJTL", "MPWRA"), "MPWRA and QXJTL", "Which variables hold 12345?", "all", 1.0),
    (("QXJTL", "MPWRA"), "VAR MPWRA, QXJTL, ZZKOP", "Which variables hold 12345?", "all", 0.0),
    (("fire", "water", "stone"), "fire, water, stone", WORDS_QUESTION, "all", 1.0),
    (("fire", "water", "stone"), "fireman, water, stone", WORDS_QUESTION, "all", 0.0),
    (("fire", "water", "stone"), "fire, water y stone", WORDS_QUESTION, "all", 1.0),
    (("fire", "water", "stone"), "The 3 most common words are: 1. fire 2. water 3. stone", WORDS_QUESTION, "all", 1.0),
    (("fire", "water", "stone"), "fire water stone", WORDS_QUESTION, "all", 1.0),
    (("fire", "water", "stone"), "fire water stone cloud tree bird", WORDS_QUESTION, "all", 0.0),
    (("fire", "water", "stone"), "fire\nwater\nstone\ncloud", WORDS_QUESTION, "all", 0.0),
    (("calm-brook",), 'It is indeed "calm-brook"', "Which word?", "all", 1.0),
    (("calm-brook",), "calm-brook or bold-arrow", "Which word?", "all", 0.0),
    (("calm-brook",), "very-calm-brook", "Which word?", "all", 0.0),
    (("Normandy", "in Normandy"), "Normandy", "Where did they settle?", "any", 1.0),
    (("Normandy", "in Normandy"), "They settled in Normandy, a region in the north.", "Where?", "any", 1.0),
    (("Normandy",), "Normandy, Brittany, Anjou", "Where did they settle?", "any", 0.0),
    (("no",), "I do not know", "Were they?", "any", 0.0),
    (("no",), "No.", "Were they?", "any", 1.0),
    (("北京",), "答案是北京。", "在哪里?", "any", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("targets", "answer", "question", "match", "value"), STRICT_CASES)
def test_a_strict_score_is_0_where_another_value_of_the_same_kind_stands(
    targets: tuple[str, ...], answer: str, question: str, match: Match, value: float
) -> None:
    score = RULER_STRICT.score(make_question(*targets, question=question, match=match), said(answer))
    assert score.value == pytest.approx(value), score


def test_listing_everything_is_right_for_ruler_and_wrong_when_strict() -> None:
    answer = ", ".join(str(4821900 + i) for i in range(40))
    question = make_question("4821907")
    assert RULER_V1.score(question, said(answer)).value == 1.0
    assert RULER_STRICT.score(question, said(answer)).value == 0.0


def test_a_planted_value_in_prose_is_another_value() -> None:
    asked = make_question("Calder Innesson", distractors=("Dorrit Larkinson", "Innesson"), match="any")
    assert RULER_STRICT.score(asked, said("It was Dorrit Larkinson, not Calder Innesson.")).value == 0.0
    assert RULER_STRICT.score(asked, said("The bridge was built by Calder Innesson.")).value == 1.0


# --- the value as a whole token, and no other of its kind -----------------------------------------
# Sorted by hand by the two sentences of docs/scorers.md; no case needs to be understood.

ALONE = [
    "7654321", "7654321.0", "**7654321**", "It is 7654321.", "No, it is 7654321", "No. 7654321",
    "Without doubt 7654321",
    "There is no number other than 7654321", "I could not find the sentence, but the number is 7654321",
    "The answer is 7654321. I did not find any others.", "Why not? 7654321",
    "I do not know for sure, but I think 7654321",
    "7654321 (I am not certain)", "7654321\n\nNo other numbers were found", "Not only 7654321 but also 3",
    "Isn't it 7654321?", "'7654321'", "\u201c7654321\u201d", "`7654321`", "_7654321_", "__7654321__", "$7654321$",
    "\\boxed{7654321}", "# 7654321", "- 7654321", "* 7654321", "--7654321", "+7654321", "(7654321)", "[7654321]",
    "...7654321", "misty-harbor: 7654321", "the number\u20147654321", "7654321.00", "7654321!",
    '{"found": false, "number": "7654321"}', "7654321. This is not the number for calm-brook.", "7654321 = 7654321",
    # denied in words, in five languages: a reader sees it, the score does not
    "I cannot find 7654321 in the text", "7654321 is not mentioned in the text.", "not 7654321", "7654321 is incorrect",
    "I doubt it is 7654321", "It used to be 7654321", "~~7654321~~", "everything except 7654321", "Wrong: 7654321",
    "Die Zahl 7654321 steht nicht im Text.", "No encuentro el n\u00famero 7654321.", "Ce n'est pas 7654321.",
    "\u6587\u4e2d\u6ca1\u6709 7654321", "\u0447\u0438\u0441\u043b\u0430 7654321 \u043d\u0435\u0442",
]  # fmt: skip
BESIDE_ANOTHER = [
    "7654321, not 1234567", "1234567, not 7654321", "not 1234567 but 7654321", "It is not 1234567. It is 7654321.",
    "7654321,1234567", "You might think 1234567, but it is 7654321", "You might think 7654321, but it is 1234567",
    "1234567. Wait, no: 7654321", "7654321. Wait, no: 1234567", "~~1234567~~ 7654321", "~~7654321~~ 1234567",
    "-7654321\n-1234567", "neither 1234567 nor 7654321", "1234567 rather than 7654321", "7654321 or 123456",
    "7654321, nicht 1234567", "no es 7654321 sino 1234567", "\u662f 1234567\uff0c\u4e0d\u662f 7654321",
    "<think>1234567? no</think> 7654321", "7654321 was changed to 1234567", "7654321 and 7654321-22 and 76543219",
]  # fmt: skip
PART_OF_ANOTHER = [
    "17654321", "76543210", "x7654321", "7654321-22", "7654321.5", "0.7654321", "7654321km", "17654321.0", "7654321_2",
    "7654321,000", "-7654321", "It is -7654321.", "\u22127654321", "(-7654321)", "**-7654321**", '"-7654321"',
    ".7654321", "= -7654321.0", "1234567, not 17654321",
]  # fmt: skip
VALUES = {"alone": (ALONE, [1.0, 1.0, 1.0, 1.0]), "beside another": (BESIDE_ANOTHER, [1.0, 1.0, 0.0, 1.0]),
          "part of another": (PART_OF_ANOTHER, [0.0, 0.0, 0.0, 1.0])}  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "values"), [(answer, values) for answers, values in VALUES.values() for answer in answers]
)
def test_a_score_depends_on_the_values_in_the_answer_and_on_no_wording(answer: str, values: list[float]) -> None:
    question = make_question("7654321")
    assert [scorer.score(question, said(answer)).value for scorer in (ALL, ANY, RULER_STRICT, RULER_V1)] == values


@pytest.mark.parametrize(("target", "given_in", "inside"), [
    ("北京", "答案是北京。", ""), ("Łódź", "To ŁÓDŹ.", "Łódźki"), ("straße", "Die Straße!", "Hauptstraße"),
    ("нет", "Нет, спасибо", "интернет"), ("misty-harbor", "Es ist misty-harbor", "misty-harbor-2"),
    ("القاهرة", "الجواب: القاهرة.", "xالقاهرة"),
])  # fmt: skip
def test_a_whole_token_is_one_in_every_language(target: str, given_in: str, inside: str) -> None:
    question = make_question(target)
    assert ALL.score(question, said(given_in)).value == 1.0
    assert ALL.score(question, said(inside)).value == 0.0


@pytest.mark.parametrize(
    ("answer", "whole", "published", "strict"),
    [
        ("7654321, 1234567", 2 / 3, 2 / 3, 2 / 3), ("7654321 and 1234567, not 5555555", 1, 1, 1),
        ("17654321", 0, 1 / 3, 0), ("7654321 or 55555550", 1 / 3, 2 / 3, 0), ("5555555.0", 1 / 3, 1 / 3, 1 / 3),
        ("none of 7654321, 1234567 and 5555555", 1, 1, 1), ("7654321, 1234567, 9999999", 2 / 3, 2 / 3, 0),
    ],
)  # fmt: skip
def test_a_part_of_the_values_is_that_part_of_the_score(
    answer: str, whole: float, published: float, strict: float
) -> None:
    question = make_question("7654321", "1234567", "5555555")
    assert ALL.score(question, said(answer)).value == pytest.approx(whole)
    assert RULER_V1.score(question, said(answer)).value == pytest.approx(published)
    assert RULER_STRICT.score(question, said(answer)).value == pytest.approx(strict)


PIECES = ["7654321", "-7654321", "76543210", "7,654,321", "1234567", "red", "Red", "redder", "blue", "not",
          "no", "cannot find",
          ", ", ". ", " ", "\n", " or ", "\x00", "-", "7654321.0", "５５", "is", "?", ": ", " but it is ",
          "You might think ", "~~", " is wrong", "Wait, no", "Don't forget", "nothing but ", "<think>",
          "</think>"]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    answer=st.lists(st.sampled_from(PIECES), max_size=9).map("".join) | st.text(max_size=40),
    targets=st.lists(
        st.sampled_from(["7654321", "1234567", "red", "RED", "blue", "55", "-", ""]), min_size=1, max_size=4
    )
    | st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=3),
    match=st.sampled_from(["all", "any"]),
)
def test_strict_scores_never_exceed_rulers(answer: str, targets: list[str], match: Match) -> None:
    question, completion = make_question(*targets, match=match), said(answer)
    whole = (ANY if match == "any" else ALL).score(question, completion).value
    assert RULER_STRICT.score(question, completion).value <= whole <= RULER_V1.score(question, completion).value


# --- every scorer, every answer -----------------------------------------------------------------

HOSTILE = {
    "one megabyte of one letter": "a" * 1_000_000,
    "numbers": "4821906, " * 20_000,
    "distinct words": " ".join(f"w{i}" for i in range(20_000)),
    "half-open escapes": "\x1b[" * 100_000 + "\x1b]" * 100_000,
    "grouped digits without end": "123," * 50_000 + "1",
    "combining marks out of order": "a" + "\u0301\u0323" * 300_000,
    "lone surrogates": "\ud800\udfff" * 200_000,
    "right-to-left and zero-width": "\u202e\u200b\u2066" * 100_000,
    "ligatures that grow eighteenfold": "\ufdfa" * 5_000,
    "line breaks": "\n" * 1_000_000,
    "hyphens": "-a" * 100_000,
    "null characters": "\x00" * 200_000,
    "thinking without end": "<think>" * 50_000 + "</think>" * 50_000,
    "denials without end": "not but no, never except " * 20_000,
}


@pytest.mark.quick_cases(15)
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: s.name)
def test_a_hostile_answer_scores_nothing(scorer: Scorer, name: str) -> None:
    score = scorer.score(make_question("4821907", UUID), said(HOSTILE[name]))
    assert score.value == 0.0
    assert len(score.answer) <= 200
    assert len(score.explanation) <= 400


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: s.name)
@settings(max_examples=60, deadline=None)
@given(answer=st.text(max_size=80), targets=st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=4))
def test_any_score_lies_between_0_and_1_and_is_the_same_twice(scorer: Scorer, answer: str, targets: list[str]) -> None:
    question = make_question(*targets)
    score = scorer.score(question, said(answer))
    assert 0 <= score.value <= 1
    assert scorer.score(question, said(answer)) == score


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: s.name)
def test_the_right_answer_alone_scores_1_and_a_refusal_0(scorer: Scorer) -> None:
    for target in ("4821907", UUID, "QXJTL", "lantern"):
        assert scorer.score(make_question(target), said(target)).value == 1.0
        assert scorer.score(make_question(target), said("I'm sorry, but I can't help with that.")).value == 0.0


def test_every_scorer_is_registered_under_its_own_name() -> None:
    assert {"match.all", "match.any", "match.exact", "ruler.v1", "ruler.strict"} <= {s.name for s in SCORERS}
    for name in registry.names("scorers"):
        assert registry.scorer(name).name == name
