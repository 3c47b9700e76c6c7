"""Failure classes: every class and detail is reached, and what merely resembles one is not taken for it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from leadline.core.answers import Failure, FailureKind
from leadline.core.records import FailureClass, Receipt, Score
from leadline.core.types import Question
from leadline.scorers import failure
from leadline.scorers.failure import classify
from leadline.scorers.match import ALL, EXACT, RULER_STRICT, abstention
from leadline.scorers.refusals import says_not_found, says_refusal
from support.scorer_questions import make_question, said

UUID = "3f2b8c1a-9d4e-4f6a-8b7c-1d2e3f4a5b6c"
OTHER_UUID = "77aa8c1a-0b1c-4f6a-8b7c-aa2e3f4a5b6c"
HONEST = Receipt(ours=1000, theirs=1000)
SILENT = Receipt(ours=1000, theirs=None)

NUMBER = make_question("4821907", distractors=["5512345", "6612345"])
NUMBERS = make_question("4821907", "5512345", "6612345", "7712345")
PAIR = make_question("misty-harbor", distractors=["bold-arrow"], question="Which word belongs to calm-brook?")
ID = make_question(UUID, distractors=[OTHER_UUID])
PAIR_OF_SIGNS = make_question("calm-brook", "wild-fern", question="Which ones?")
CHAIN = make_question(
    "QXJTL", "MPWRA", "KKLMN",
    distractors=["ZZKOP", "WWERT"], family="tracing", demonstration=("HUY", "PLM"),
)  # fmt: skip
COUNT = make_question("fire", "water", "stone", family="counting", question="Which words are most common?")
QUESTION = make_question("Normandy", "in Normandy", match="any", family="questions", question="Where did they settle?")

ANSWERS = [
    # question, answer, finish, class, detail
    (NUMBER, "4821907", "stop", "correct", ""),
    (NUMBER, "4821907", "length", "correct", ""),
    (NUMBER, "It could be 4821907 or 5512345", "stop", "correct", ""),  # match.all gives it 1; strict scoring does not
    (NUMBERS, "4821907 and 5512345", "stop", "partial", ""),
    (NUMBERS, "4821907, 4821907, 4821907, 5512345", "stop", "partial", failure.DUPLICATES),
    (NUMBERS, "4821907, 5512345, 6612345, 7712", "stop", "partial", "incomplete number"),
    (NUMBERS, "4821907, 5512345, 6612345, 7712", "length", "cut_off", failure.INSIDE_THE_VALUE),
    (NUMBERS, "1. 4821907\n2. 5512345\n3.", "length", "cut_off", failure.WHILE_LISTING),
    (NUMBERS, "4821907, 5512345, 4821907, 5512345, 48", "length", "partial", failure.DUPLICATES),
    (NUMBERS, "4821907 and 5512345. That is all there is, and now for something else", "length", "partial", ""),
    (NUMBER, "5512345", "stop", "distractor", failure.ANOTHER_VALUE),
    (NUMBER, "5512345 is what it says, and more text follows", "length", "distractor", failure.ANOTHER_VALUE),
    (NUMBER, "55123456", "stop", "wrong", failure.NO_VALUE),  # not the planted 5512345: whole words only
    (NUMBER, "9999999", "stop", "wrong", ""),
    (NUMBER, "9999999 and so on with other things", "length", "wrong", ""),
    (NUMBER, "48219", "stop", "wrong", "incomplete number"),
    (NUMBER, "The special magic number is 1000.", "stop", "wrong", failure.NO_VALUE),
    (NUMBER, "4 821 907", "stop", "wrong_format", failure.OTHER_FORM),
    (NUMBER, "It is 4.821.907, I think", "stop", "wrong_format", failure.OTHER_FORM),
    (NUMBER, "It is not 4 821 907", "stop", "wrong_format", failure.OTHER_FORM),
    (NUMBER, "-4821907", "stop", "wrong", failure.NO_VALUE),
    (NUMBER, "You might think 4821907, but it is 1234567", "stop", "correct", ""),
    (NUMBER, "I cannot find 4821907 in the text.", "stop", "correct", failure.DENIED),
    (NUMBER, "48219", "length", "cut_off", failure.INSIDE_THE_VALUE),
    (NUMBER, "Rivers and mountains were described.", "stop", "wrong", failure.NO_VALUE),
    (NUMBER, "Let me go through the text from its beginning. It first speaks of", "length", "cut_off",
     failure.BEFORE_ANY_VALUE),
    (NUMBER, "The sky is blue. " * 30, "length", "wrong", failure.REPEATS),
    (NUMBER, "", "stop", "empty", ""),
    (NUMBER, " \n\u200b\x1b[0m ... ", "stop", "empty", ""),
    (NUMBER, "", "content_filter", "refused", failure.CONTENT_FILTER),
    (NUMBER, "The text does not mention that number.", "stop", "not_found", ""),
    (NUMBER, "I'm sorry, but I can't help with that.", "stop", "refused", ""),
    (PAIR, "Sure, misty-harbor", "stop", "correct", ""),
    (PAIR, "Okay, let me see where it stood", "length", "cut_off", failure.BEFORE_ANY_VALUE),
    (PAIR, "Okay, that would be the harbor.", "stop", "wrong", failure.NO_VALUE),
    (PAIR, "It is Misty Harbor.", "stop", "wrong_format", failure.OTHER_FORM),
    (PAIR, "It is calm-meadow.", "stop", "wrong", ""),
    (PAIR, "For calm-brook it is indeed calm-brook.", "stop", "wrong", failure.ECHO),
    (PAIR, "It is bold-arrow.", "stop", "distractor", failure.ANOTHER_VALUE),
    (ID, UUID, "stop", "correct", ""),
    (ID, UUID.replace("-", ""), "stop", "wrong_format", failure.OTHER_FORM),
    (ID, UUID[:18], "stop", "wrong", "incomplete uuid"),
    (ID, UUID[9:], "stop", "wrong", "incomplete uuid"),
    (ID, UUID[:24], "length", "cut_off", failure.INSIDE_THE_VALUE),
    (ID, OTHER_UUID, "stop", "distractor", failure.ANOTHER_VALUE),
    (ID, UUID[:-1] + "0", "stop", "wrong", ""),
    (CHAIN, "QXJTL MPWRA KKLMN", "stop", "correct", ""),
    (CHAIN, "HUY PLM", "stop", "distractor", failure.DEMONSTRATION),
    (CHAIN, "ZZKOP WWERT", "stop", "distractor", failure.ANOTHER_CHAIN),
    (CHAIN, "QXJTL and WWERT", "stop", "partial", failure.ANOTHER_CHAIN),
    (CHAIN, "QXJTL HUY PLM", "stop", "partial", failure.DEMONSTRATION),
    (CHAIN, "AAAAA, BBBBB", "stop", "wrong", ""),
    (CHAIN, "variables are assigned in many places", "stop", "wrong", failure.NO_VALUE),
    (COUNT, "the, of, to", "stop", "wrong", failure.STOP_WORDS),
    (COUNT, "cloud, tree, bird", "stop", "wrong", ""),
    (COUNT, "fire, the, of", "stop", "partial", failure.STOP_WORDS),
    (QUESTION, "They settled in the valley of the Loire.", "stop", "wrong", ""),
    (QUESTION, "They settled in the valley of the Loire", "length", "wrong", ""),
    (QUESTION, "12 !", "stop", "wrong", ""),
]  # fmt: skip


@pytest.mark.parametrize(("question", "answer", "finish", "expected", "detail"), ANSWERS)
def test_an_answer_gets_its_class_and_detail(
    question: Question, answer: str, finish: str, expected: str, detail: str
) -> None:
    completion = said(answer, finish)
    scores = {"match.all": ALL.score(question, completion)}
    for receipt in (HONEST, SILENT):
        assert classify(question, completion, scores, receipt) == (expected, detail)


NOT_THERE = make_question("not there", distractors=("4821907", "5550123"), match="any", family="needle")
NOT_THERE = replace(NOT_THERE, absent=True, value_kind="numbers")
PRESENT = replace(NUMBER, absent=False)
ABSENT: list[tuple[Question, str, str, str, str]] = [
    (NOT_THERE, "Not there.", "stop", "correct", ""),
    (NOT_THERE, "The text does not say.", "stop", "correct", ""),
    (NOT_THERE, "It is 4821907.", "stop", "false_alarm", failure.ANOTHER_VALUE),
    (NOT_THERE, "It is 1112223.", "stop", "false_alarm", ""),
    (NOT_THERE, "The text does not mention it, so it must be 1112223.", "stop", "false_alarm", ""),
    (NOT_THERE, "I can't help with that.", "stop", "refused", ""),
    (NOT_THERE, "Let me think about the", "length", "cut_off", failure.BEFORE_ANY_VALUE),
    (NOT_THERE, "", "stop", "empty", ""),
    (PRESENT, "Not there.", "stop", "false_abstention", ""),
    (PRESENT, "The text does not mention that number.", "stop", "false_abstention", ""),
]


@pytest.mark.parametrize(("question", "answer", "finish", "expected", "detail"), ABSENT)
def test_a_question_without_an_answer_has_classes_of_its_own(
    question: Question, answer: str, finish: str, expected: str, detail: str
) -> None:
    completion = said(answer, finish)
    score = abstention(question, completion) if question.absent else ALL.score(question, completion)
    assert score.value == float(expected == "correct")
    assert classify(question, completion, {"match.all": score}, HONEST) == (expected, detail)


def test_every_class_is_reached() -> None:
    # These have tests of their own: the first two below, the last where log-probabilities are measured.
    reached = {row[3] for row in [*ANSWERS, *ABSENT]} | {"error", "input_truncated", "measured"}
    assert reached == set(get_args(FailureClass))


@pytest.mark.parametrize("why", get_args(FailureKind))
def test_no_answer_is_an_error_except_one_refused_as_too_long(why: FailureKind) -> None:
    expected = ("input_truncated", failure.REFUSED_AS_TOO_LONG) if why == "context_length" else ("error", why)
    assert classify(NUMBER, Failure(why, "4821907"), {}, HONEST) == expected


def test_a_completion_without_a_score_cannot_be_classed() -> None:
    with pytest.raises(ValueError, match="scored before"):
        classify(NUMBER, said("4821907"), {}, HONEST)


@pytest.mark.parametrize(
    ("ours", "theirs", "short"),
    [
        (1000, None, False), (1000, 1000, False), (1000, 937, False), (1000, 936, False), (1000, 935, True),
        (1000, 1200, False), (100_000, 98_000, False), (100_000, 97_999, True), (127_000, 2015, True),
    ],
)  # fmt: skip
def test_a_receipt_is_short_beyond_what_a_template_explains(ours: int, theirs: int | None, short: bool) -> None:
    assert Receipt(ours, theirs).short is short


@pytest.mark.parametrize("answer", ["4821907", "5512345", "", "not found"])
def test_a_cut_input_outranks_whatever_was_answered(answer: str) -> None:
    scores = {"match.all": ALL.score(NUMBER, said(answer))}
    assert classify(NUMBER, said(answer), scores, Receipt(8000, 2015)) == ("input_truncated", failure.FEWER_TOKENS_READ)


def test_the_first_scorer_decides() -> None:
    completion = said("The number is 4821907")
    all_score, exact_score = ALL.score(NUMBER, completion), EXACT.score(NUMBER, completion)
    assert classify(NUMBER, completion, {"a": all_score, "e": exact_score}, HONEST)[0] == "correct"
    assert classify(NUMBER, completion, {"e": exact_score, "a": all_score}, HONEST) == (
        "wrong_format",
        failure.OTHER_FORM,
    )


@pytest.mark.parametrize(
    ("answer", "classed"),
    [
        ("14821907", ("wrong", failure.NO_VALUE)),
        ("48219070", ("wrong", failure.NO_VALUE)),
        ("I cannot find 14821907 in the text.", ("not_found", "")),
        ("4,821,907", ("wrong_format", failure.OTHER_FORM)),
    ],
)
def test_a_part_of_another_value_is_not_correct(answer: str, classed: tuple[str, str]) -> None:
    completion = said(answer)
    assert classify(NUMBER, completion, {"match.all": ALL.score(NUMBER, completion)}, HONEST) == classed


@pytest.mark.parametrize(
    ("answer", "detail"),
    [("4821907, not 5512345", failure.ANOTHER_VALUE), ("1234567, not 4821907", failure.BESIDE_OTHERS)],
)
def test_a_value_beside_others_is_partial_where_the_scorer_takes_no_others(answer: str, detail: str) -> None:
    completion = said(answer)
    scores = {"ruler.strict": RULER_STRICT.score(NUMBER, completion)}
    assert classify(NUMBER, completion, scores, HONEST) == ("partial", detail)


OTHER_LINES = {
    "numbers": (NUMBER, "The number kept for calm-brook is {}.", "9090909", "909090"),
    "uuids": (ID, '"{}": "x",', "11aa8c1a-0b1c-4f6a-8b7c-aa2e3f4a5b6c", "22aa8c1a-0b1c-4f6a-8b7c-aa2e3f4a5b6c"),
    "words": (PAIR, "line calm-brook: its content is {}.", "gentle-river", "gentle-stone"),
}


@pytest.mark.parametrize("kind", OTHER_LINES)
def test_the_value_of_another_line_of_the_document_is_a_distractor(kind: str) -> None:
    """In a haystack of lines nothing but the line asked for is planted one by one."""
    question, line, there, elsewhere = OTHER_LINES[kind]
    question = replace(question, family="needle", distractors=())
    document = "A line before.\n" + line.format(there) + "\nA line after with 190909099.\n"
    for value, expected in ((there, ("distractor", failure.ANOTHER_VALUE)), (elsewhere, None)):
        completion = said(f" {value.upper()}.")
        other = failure.value_of_another_line(question, completion.text, document)
        found = classify(question, completion, {"m": ALL.score(question, completion)}, HONEST, other)
        assert (found == expected) if expected else (found[0] != "distractor")


@pytest.mark.parametrize(
    ("question", "value", "document", "expected"),
    [
        (NUMBER, "9090909", "9090909 here", "9090909"),
        (NUMBER, "9090909 or 8080808", "19090909, _8080808, \u00e99090909, 8080808 and 9090909", "8080808"),
        (NUMBER, "9090909 or 8080808", "an end with 9090909", "9090909"),
        (NUMBER, "9090909", "a 19090909, a 9090909-1 and a 90909090", ""),
        (NUMBER, "9090909", "\u0130\u212a 19090909 \u2014 9090909.", "9090909"),
        (ID, OTHER_UUID, f"id {OTHER_UUID.upper()}\u2014", OTHER_UUID.upper()),
        (PAIR_OF_SIGNS, "kind-oak", "a \u212aind-oak", "\u212aind-oak"),
        (PAIR_OF_SIGNS, "bold-arch", "a BOLD-ARCH", "BOLD-ARCH"),
    ],
)
def test_a_value_of_another_line_is_found_as_a_whole_in_any_case(
    question: Question, value: str, document: str, expected: str
) -> None:
    asked = replace(question, family="needle", distractors=())
    assert failure.value_of_another_line(asked, f"It is {value}.", document) == expected


def test_after_an_answer_prefix_many_words_without_a_value_are_off_the_way() -> None:
    rambling = said("this text is " + " ".join(f"about matter{chr(97 + i)}" for i in range(20)), "length")
    begun = replace(PAIR, answer_prefix="The word for calm-brook is")
    nothing = {"match.all": Score(0.0)}
    assert classify(PAIR, rambling, nothing, HONEST) == ("cut_off", failure.BEFORE_ANY_VALUE)
    assert classify(begun, rambling, nothing, HONEST) == ("wrong", failure.NO_VALUE)


def test_hidden_thinking_alone_is_told_apart_from_nothing() -> None:
    nothing = {"match.all": Score(0.0)}
    assert classify(NUMBER, said("", "length", "It says 48"), nothing, HONEST) == ("cut_off", failure.THINKING)
    assert classify(NUMBER, said("", "stop", "It says 48"), nothing, HONEST) == ("empty", failure.ONLY_THINKING)
    assert classify(NUMBER, said("", "length"), nothing, HONEST) == ("empty", "")


NOT_FOUND = [
    "I could not find any such number in the text.",
    "I couldn\u2019t locate the code you ask about.",
    "The text does not mention a number for that key.",
    "The provided document doesn't contain this information.",
    "That is not mentioned in the passage.",
    "There is no information about this in the document.",
    "I'm sorry, but I cannot find it.",
    "I am unable to find the number.",
    "There isn't any mention of it in the text.",
    "I don't know.",
    "I do not have enough information to answer.",
    "No such key is given.",
    "Not found",
    "N/A",
    "Unknown.",
    "The number was never given: it is not in the text.",
]
REFUSED = [
    "I'm sorry, but I can't help with that request.",
    "I cannot assist with this.",
    "I won't be able to provide that.",
    "As an AI language model, I must be careful here.",
    "I must decline to answer this.",
    "I\u2019m unable to share secret codes.",
    "I am not able to disclose private numbers.",
    "Sharing this would be against my guidelines.",
    "I'm not allowed to give out passwords.",
]
NEITHER = [
    "9999999",
    "The number is 9999999.",
    "There is no doubt: 9999999",
    "Do not worry, the code is 9999999.",
    "9999999, which cannot be right but stands there.",
    "The unknown soldier",
    "Can I help? 9999999",
    "",
]


@pytest.mark.parametrize("answer", NOT_FOUND)
def test_saying_that_it_is_not_there_is_not_found(answer: str) -> None:
    assert classify(NUMBER, said(answer), {"s": Score(0.0)}, HONEST) == ("not_found", "")


@pytest.mark.parametrize("answer", REFUSED)
def test_declining_is_refused_and_not_a_failed_search(answer: str) -> None:
    assert not says_not_found(answer)
    assert classify(NUMBER, said(answer), {"s": Score(0.0)}, HONEST) == ("refused", "")


@pytest.mark.parametrize("answer", NEITHER)
def test_other_answers_are_neither(answer: str) -> None:
    assert not says_not_found(answer)
    assert not says_refusal(answer)


def test_wording_far_into_an_answer_is_not_the_models_own() -> None:
    assert not says_not_found("Chapter one begins. " * 60 + "The text does not mention it.")


@pytest.mark.parametrize("scored", [0.0, 0.4, 1.0])
@settings(max_examples=80, deadline=None)
@given(answer=st.text(max_size=60), finish=st.sampled_from(["stop", "length", "", "content_filter"]))
def test_every_completion_gets_a_class_that_agrees_with_its_score(scored: float, answer: str, finish: str) -> None:
    given_class, detail = classify(CHAIN, said(answer, finish), {"s": Score(scored)}, HONEST)
    assert given_class in get_args(FailureClass)
    assert (given_class == "correct") is (scored == 1.0)
    assert len(detail) < 60


def test_a_very_long_answer_against_thousands_of_planted_values_is_classed() -> None:
    many = make_question("4821907", distractors=[str(5_000_000 + i) for i in range(6000)])
    text = " ".join(f"w{i}" for i in range(40_000))
    assert classify(many, said(text, "length"), {"s": Score(0.0)}, HONEST)[0] == "cut_off"
    assert classify(many, said(f"{text} 5005000"), {"s": Score(0.0)}, HONEST)[0] == "distractor"


def test_the_documentation_names_every_class_and_detail() -> None:
    page = (Path(__file__).parents[2] / "docs" / "scorers.md").read_text()
    details = [value for name, value in vars(failure).items() if name.isupper() and isinstance(value, str)]
    assert len(details) > 10
    for name in [*get_args(FailureClass), *details, *failure.INCOMPLETE.values()]:
        assert f"`{name}`" in page
