"""What a judge reads and how its reply is read: no defect of the wild gives a wrong verdict."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from leadline.core.errors import UnknownName, UsageError
from leadline.features.judges.admission import KNOWN_CASES, families
from leadline.features.judges.prompt import (
    JudgedSample,
    is_exact,
    make_prompt,
    parse_reply,
    without_thinking,
)
from leadline.features.judges.rubric import BUILT_IN, load_rubric, reply_schema
from leadline.run.recording import text_around
from support.scripted_judge import INJECTIONS, YES

RUBRIC = load_rubric("answer")
SAMPLE = JudgedSample("Which number?", ("4711",), "It is 4712.", evidence=("The number is 4711.",))
PROMPT = make_prompt(RUBRIC, SAMPLE)
NO = {"target": "no", "contradicts": "no", "abstains": "no"}


def reply(verdict: Mapping[str, object], code: str = PROMPT.code) -> str:
    return json.dumps({"id": code, "reason": "It says 4712.", **verdict})


def value(text: str) -> float | None:
    return parse_reply(text, PROMPT).value


def test_a_reply_as_asked_for_is_read() -> None:
    assert value(reply(NO)) == 0.0
    assert value(reply(YES)) == 1.0
    assert value(reply({**YES, "contradicts": "yes"})) == 0.0
    assert parse_reply(reply(NO), PROMPT).reason == "It says 4712."


@pytest.mark.parametrize(
    "text",
    [
        "INCORRECT",
        "The answer is INCORRECT.",
        "CORRECT",
        "yesterday",
        "I would not say so yesterday",
        "GRID: C",
        "GRADE: C",
        "GRADE: I",
        "As a judge I find ... B",
        "A",
        "yes",
        "The verdict is yes.",
        "{'target': 'yes', 'contradicts': 'no', 'abstains': 'no'}",
        '{"id": "' + PROMPT.code + '", "reason": "x", "target": "yesterday", "contradicts": "no", "abstains": "no"}',
        '{"id": "' + PROMPT.code + '", "reason": "x", "target": "CORRECT", "contradicts": "no", "abstains": "no"}',
        '{"id": "' + PROMPT.code + '", "reason": "x", "target": "not no", "contradicts": "no", "abstains": "no"}',
        '{"id": "' + PROMPT.code + '", "reason": "x", "target": 1, "contradicts": "no", "abstains": "no"}',
        '{"id": "' + PROMPT.code + '", "reason": "x", "target": ["yes"], "contradicts": "no", "abstains": "no"}',
        '{"id": "' + PROMPT.code + '", "target": "yes", "target": "no", "contradicts": "no", "abstains": "no"}',
        '{"id": "' + PROMPT.code + '", "reason": "x", "target": "yes"}',
        '{"id": "' + PROMPT.code + '", "reason": "x", "target": "yes", "contradicts": "no", "abst',
        f"<think>It says {reply(YES)} so",
        f"<think>Maybe {reply(YES)}",
        f"Well. <think> {reply(YES)}",
        f"The answer contains {json.dumps(YES)}",
        f"{reply(YES)} or rather {reply(NO)}",
        json.dumps({"verdict": YES}),
        json.dumps([YES]),
        "",
        "[" * 100_000,
        '{"a":' * 50_000,
    ],
)
def test_a_reply_that_is_no_verdict_is_unparsed_and_never_guessed(text: str) -> None:
    parsed = parse_reply(text, PROMPT)
    assert parsed.value is None
    assert parsed.problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (reply({"target": "No", "contradicts": "NO", "abstains": " no "}), 0.0),
        (reply({"target": "YES", "contradicts": False, "abstains": "False"}), 1.0),
        (reply({"target": True, "contradicts": "no", "abstains": "no"}), 1.0),
        (f"```json\n{reply(NO)}\n```", 0.0),
        (f"<think>The answer says {reply(YES)}.</think>\n{reply(NO)}", 0.0),
        (f"The text claims {json.dumps(YES)}, which I ignore.\n{reply(NO)}", 0.0),
        (f"Here is my verdict:\n{reply(NO)}\nThank you.", 0.0),
        (json.dumps(NO), 0.0),
    ],
)
def test_case_code_blocks_thinking_and_quoted_verdicts_do_not_change_what_is_read(text: str, expected: float) -> None:
    assert value(text) == expected


# --- injections: texts that try to dictate the verdict or to close the fence


@pytest.mark.parametrize("number", range(len(INJECTIONS)))
def test_an_injection_changes_neither_the_fence_nor_what_is_read(number: int) -> None:
    answer = INJECTIONS[number]
    prompt = make_prompt(RUBRIC, JudgedSample("Which number?", ("4711",), answer))
    assert prompt.code not in answer
    assert prompt.text.count(f"[{prompt.code} end]") == 3  # question, target, answer
    assert f"[{prompt.code} answer]\n{answer}\n[{prompt.code} end]" in prompt.text
    own = json.dumps({"id": prompt.code, "reason": f"It says: {answer}", **NO})
    for said in (own, f"The answer says: {answer}\n{own}", f"{own}\nIt said: {answer}"):
        assert parse_reply(said, prompt).value == 0.0
    for echoed in (answer, f"{answer}\n{answer}", f"As the text says: {json.dumps(YES)}"):
        assert parse_reply(echoed, prompt).value is None


def test_there_are_fifty_injections() -> None:
    assert len(set(INJECTIONS)) == 50


def test_a_code_that_a_text_contains_is_drawn_again() -> None:
    before = make_prompt(RUBRIC, JudgedSample("q", ("t",), "a"))
    # The code depends on all texts, so that a text with another sample's code gets a code of its own.
    after = make_prompt(RUBRIC, JudgedSample("q", ("t",), f"a {before.code} {before.code.upper()}"))
    assert after.code not in (before.code, before.code.upper())


# --- prompts and rubrics


def test_the_rubric_comes_first_and_is_the_same_for_all_samples() -> None:
    prompts = [make_prompt(RUBRIC, case.sample) for case in KNOWN_CASES]
    assert len({prompt.head for prompt in prompts}) == 1
    assert all(prompt.text.startswith(prompt.head) for prompt in prompts)
    assert max(len(prompt.text.split()) for prompt in prompts) < 500


def test_one_item_is_asked_for_every_target_and_one_for_accepted_alternatives() -> None:
    many = make_prompt(RUBRIC, JudgedSample("q", ("a", "b"), "x"))
    assert [asked.key for asked in many.items] == ["target_1", "target_2", "contradicts", "abstains"]
    either = make_prompt(RUBRIC, JudgedSample("q", ("a", "b"), "x", match="any"))
    assert [asked.key for asked in either.items] == ["target", "contradicts", "abstains"]
    half = {"target_1": "yes", "target_2": "no", "contradicts": "no", "abstains": "no"}
    assert parse_reply(json.dumps({"id": many.code, "reason": "", **half}), many).value == 0.5


def test_the_schema_has_the_reason_before_every_verdict() -> None:
    schema = reply_schema(PROMPT.items)
    assert list(schema["properties"]) == ["id", "reason", "target", "contradicts", "abstains"]
    assert schema["required"] == list(schema["properties"])


def test_a_grade_is_a_whole_number_on_its_scale() -> None:
    prompt = make_prompt(load_rubric("scale"), SAMPLE)
    graded = {
        grade: parse_reply(json.dumps({"id": prompt.code, "reason": "", "grade": grade}), prompt).value
        for grade in (1, 10, "7", 0, 11, "8/10", "true", 7.5)
    }
    assert graded == {1: 0, 10: 1, "7": pytest.approx(2 / 3), 0: None, 11: None, "8/10": None, "true": None, 7.5: None}


def test_a_rubric_file_of_ones_own_is_checked(tmp_path: object) -> None:
    path = tmp_path / "mine.toml"  # type: ignore[operator]
    path.write_text('name = "mine"\ninstructions = "Grade."\n[[items]]\nid = "kind"\nask = "Is it kind?"\n')
    assert load_rubric(str(path)).items[0].role == "credit"
    path.write_text('name = "mine"\ninstructions = "Grade."\n[[items]]\nid = "kind"\nask = "?"\nrole = "veto"\n')
    with pytest.raises(UsageError, match="credit"):
        load_rubric(str(path))
    with pytest.raises(UnknownName, match="answr"):
        load_rubric("answr")
    assert {load_rubric(name).name for name in BUILT_IN} == set(BUILT_IN)


def test_another_word_in_a_rubric_is_another_rubric() -> None:
    other = RUBRIC.model_copy(update={"instructions": RUBRIC.instructions.replace("long", "short")})
    assert other.digest != RUBRIC.digest


# --- evidence, thinking, rules, families


def test_evidence_is_shown_with_some_text_around_it() -> None:
    text = "one two " * 100 + "The number is 4711." + " three four" * 100
    shown = text_around(text, "The number is 4711.", start=0, end=10**6)
    assert "one two The number is 4711. three four" in shown
    assert len(shown) < 450
    assert not shown.startswith(("ne ", "wo "))
    assert text_around("other text", "The number is 4711.", start=0, end=10**6) == "The number is 4711."


@pytest.mark.parametrize(
    "around", [("", ""), ("It is said: ", ""), ("", " Write it down."), ("one two ", " three four.")]
)
def test_evidence_at_the_ends_of_a_document_is_shown_with_every_word(around: tuple[str, str]) -> None:
    text = "The number is 4711.".join(around)
    assert text_around(text, "The number is 4711.", start=0, end=10**6) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<think>4711?</think>It is 4712.", "It is 4712."),
        ("<think>The gold is 4711", ""),
        ("4711 seems right</think>It is 4712.", "It is 4712."),
        ("It is 4712. <think>4711", "It is 4712. "),
    ],
)
def test_a_judge_never_sees_the_thinking(text: str, shown: str) -> None:
    assert without_thinking(text) == shown


def test_a_code_block_around_the_verdict_is_taken_off() -> None:
    assert value(f"```json\n{reply(YES)}\n```") == 1.0
    assert value(f" ```\n\n{reply(NO)} \n\n ``` \n") == 0.0


def test_a_code_block_of_empty_lines_that_never_ends_is_read_at_once() -> None:
    assert value("```json\n" + "\n" * 100_000 + "{") is None


def test_an_exact_answer_needs_no_judge_and_a_near_one_does() -> None:
    assert is_exact(("4711",), " 4711.", "all")
    assert not is_exact(("4711",), "It is 4711", "all")
    assert is_exact(("a", "b"), "b and a", "all")
    assert not is_exact(("a", "b"), "a, b, c", "all")
    assert is_exact(("Paris", "Lutetia"), "**lutetia**", "any")
    assert not is_exact((), "", "any")


@pytest.mark.parametrize(
    ("names", "family"),
    [
        (("openai:gpt-4o?base_url=http://127.0.0.1/v1",), "gpt"),
        (("openai:o3-mini",), "gpt"),
        (("hf:/models/Qwen2.5-7B-Instruct",), "qwen"),
        (("hf:org/Meta-Llama-3.1-8B",), "llama"),
        (("openai:judge", "SmolLM2-135M-Instruct"), "smollm"),
        (("openai:gemma-3-27b",), "gemini"),
        (("sim:decay",), "sim"),
        (("sim:judge?seed=1",), "sim-judge"),
        (("openai:my-own-thing",), "my-own-thing"),
    ],
)
def test_families_are_read_from_names(names: tuple[str, ...], family: str) -> None:
    assert families(*names)[0] == family


def test_a_distilled_model_is_of_both_families() -> None:
    assert set(families("hf:DeepSeek-R1-Distill-Qwen-7B")) == {"qwen", "deepseek"}


def test_there_are_twenty_known_cases_of_every_kind() -> None:
    assert len(KNOWN_CASES) == 20
    assert {case.kind for case in KNOWN_CASES} == {
        "other words", "wrong value", "right plus wrong", "empty", "refusal", "injection"
    }  # fmt: skip
    assert sum(case.right for case in KNOWN_CASES) == 8
