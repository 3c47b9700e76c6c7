"""The needle family: what is planted, where, and how it is asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from leadline.core.errors import UsageError
from leadline.core.registry import task as find_task
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document
from leadline.tasks.niah import QUESTIONS, QUESTIONS_FOR_SEVERAL, WORDINGS, Needle, NeedleTask
from leadline.tasks.niah_forms import NeedleForms
from leadline.tasks.niah_own import OwnNeedle
from leadline.text.chat import completion_frame
from support.commands import Say
from support.fitting import fit
from support.toy_tokenizers import SMALL_PROSE, toy_tokenizer


def needle(**options: object) -> Needle:
    return Needle.model_validate({"haystack": SMALL_PROSE, **options})


def document(task: NeedleTask, *cells: Cell, seed: int = 1) -> Document:
    return fit(task.write(cells, seed=seed), toy_tokenizer("gpt2"), completion_frame())


@pytest.mark.parametrize("kind", ["words", "numbers", "uuids"])
def test_the_value_stands_in_the_text_once_and_is_not_in_the_question(kind: str) -> None:
    made = document(needle(value_kind=kind, keys=4), Cell("niah", 2048, 0.4, 0))
    [probe] = made.probes
    [target] = probe.question.targets
    body = made.text[: probe.cut_characters]
    assert body.count(target) == 1
    assert target not in probe.user_suffix + probe.question.answer_prefix
    assert len(probe.question.distractors) == 3
    assert all(d in body for d in probe.question.distractors)
    shapes = {"words": r"[a-z]+-[a-z]+", "numbers": r"[1-9]\d{6}", "uuids": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-.*"}
    assert re.fullmatch(shapes[kind], target)


def test_samples_of_a_cell_differ_in_needle_haystack_and_wording() -> None:
    made = [document(needle(), Cell("niah", 2048, 0.5, sample)) for sample in range(12)]
    assert len({m.probes[0].question.targets for m in made}) == 12
    assert len({m.text[300:600] for m in made}) == 12
    assert len({m.probes[0].question.labels["wording"] for m in made}) > 2
    assert len({m.probes[0].question.text.split(" belongs")[0][:22] for m in made}) > 1


@pytest.mark.parametrize(
    ("sentences", "label"),
    [
        ([WORDINGS[0]], "0"),
        ([WORDINGS[3]], "3"),
        (["Under {key} the ledger has the {kind} {value}."], "own"),
        ([WORDINGS[0], WORDINGS[1]], "own"),
    ],
)
def test_a_record_names_the_wording_by_its_number_or_as_the_users_own(sentences: list[str], label: str) -> None:
    [probe] = document(needle(wording={"needle": sentences}), Cell("niah", 1024, 0.5, 0)).probes
    assert probe.question.labels["wording"] == label


def test_a_needle_of_the_users_is_labelled_as_such_and_any_of_its_answers_counts() -> None:
    own = OwnNeedle(haystack=SMALL_PROSE, needle="The gate is blue.", question="Which gate?", answers=("blue", "azure"))
    [probe] = document(own, Cell("niah_own", 1024, 0.5, 0)).probes
    assert probe.question.labels["form"] == "own"
    assert (probe.question.match, probe.question.targets) == ("any", ("blue", "azure"))


def test_every_fresh_document_has_a_haystack_of_its_own() -> None:
    cells = [Cell("niah", 1024, depth, sample) for depth in (0.0, 0.5, 1.0) for sample in range(3)]
    made = [document(needle(), cell) for cell in cells]
    assert len({m.cluster for m in made}) == len(cells)
    assert [m.cluster for m in made] == [m.id for m in made]
    texts = [set(m.text[m.body_start_characters :].split(". ")) for m in made]
    assert not any(len(a & b) > 2 for n, a in enumerate(texts) for b in texts[n + 1 :])


def test_with_a_common_haystack_the_depths_of_a_sample_share_it() -> None:
    early, late = (document(needle(common_haystack=True), Cell("niah", 4096, d, 0)) for d in (0.5, 1.0))
    assert early.cluster == late.cluster == "niah/4096/0"
    assert early.id != late.id
    half = early.facts[0].start
    assert (early.ids[: half // 2] == late.ids[: half // 2]).all()


def test_questions_do_not_copy_the_needle() -> None:
    def words(text: str) -> list[str]:
        return re.sub(r"\{\w+\}", "", text.lower()).split()

    for wording in WORDINGS:
        for question in (*QUESTIONS, *QUESTIONS_FOR_SEVERAL):
            said, asked = words(wording), words(question)
            runs = {tuple(said[i : i + 3]) for i in range(len(said) - 2)}
            assert not runs & {tuple(asked[i : i + 3]) for i in range(len(asked) - 2)}


def test_several_values_stand_in_a_band_around_the_depth() -> None:
    made = document(needle(values=4, spread=0.4), Cell("niah", 4096, 0.5, 0))
    depths = [f.depth for f in made.planted(made.probes[0])]
    assert depths == sorted(depths)
    assert depths[0] == pytest.approx(0.3, abs=0.03)
    assert depths[-1] == pytest.approx(0.7, abs=0.03)
    assert len(made.probes[0].question.targets) == 4


def test_asking_for_four_keys_plants_four() -> None:
    made = document(needle(queries=4), Cell("niah", 2048, 0.5, 0))
    [probe] = made.probes
    assert len(made.facts) == len(probe.question.targets) == 4
    assert probe.question.text.count("-") >= 4


def test_a_haystack_of_needles_never_answers_the_question() -> None:
    for sample in range(5):
        made = document(needle(haystack="needles"), Cell("niah", 4096, 0.5, sample))
        [probe] = made.probes
        [key] = re.findall(r"[a-z]+-[a-z]+", probe.question.answer_prefix)
        body = made.text[: probe.cut_characters]
        assert body.count(probe.question.targets[0]) == 1
        assert len(re.findall(rf"\b{key}\b", body)) == 1
        keys = re.findall(r"kept for ([a-z]+-[a-z]+) is", body)
        assert len(keys) == len(set(keys)) > 100
        lines = body.split("\n\n", 1)[1].splitlines()
        assert all(re.fullmatch(r"The number kept for [a-z]+-[a-z]+ is \d{7}\.", line) for line in lines[:-1])


def test_a_sentence_of_the_user_s_own_is_planted_as_it_is() -> None:
    own = OwnNeedle(
        haystack=SMALL_PROSE,
        needle="The best thing to do in Port Ember is to watch the tide from the old crane.",
        question="What is the best thing to do in Port Ember?",
        answers=("watch the tide", "the old crane"),
    )
    made = document(own, Cell("niah", 1024, 0.5, 0))
    assert made.text.count("Port Ember") == 1
    assert made.probes[0].question.targets == ("watch the tide", "the old crane")
    assert made.probes[0].question.scorers == ("match.any", "ruler.v1", "ruler.strict")
    for part in ({"needle": "A fact."}, {"question": "Which?"}, {"needle": "A.", "question": "B?", "answers": []}):
        with pytest.raises(UsageError, match="belong together"):
            find_task(TaskSpec(name="niah_own", options=part))


def test_one_sentence_cannot_be_read_at_several_depths_at_once(say: Say, tmp_path: Path) -> None:
    said = say(
        "run", "niah_own", "--model", "sim:perfect", "--lengths", "1k", "--reading", "shared", "--out",
        str(tmp_path / "run"),
    )  # fmt: skip
    assert said.code == 64
    assert "niah_own does not support --reading shared" in said.err
    assert "it supports: fresh" in said.err


def test_sweeps_over_an_option_draw_the_same_samples() -> None:
    one, two = (
        document(needle(keys=keys), Cell(f"niah[keys={keys}]", 2048, 0.5, 0)).probes[0].question.targets
        for keys in (1, 2)
    )
    assert one == two


def test_essays_serve_as_a_haystack_where_they_are_at_hand() -> None:
    essays = Path(__file__).parents[3] / "shared" / "data" / "paul_graham.txt"
    if not essays.is_file():
        pytest.skip("the essays are not on this machine")
    made = document(needle(haystack=str(essays)), Cell("niah", 8192, 0.5, 0))
    assert len(made.prompt_ids(made.probes[0])) == 8192 - 64


@pytest.mark.parametrize("options", [{}, {"pieces": 2}, {"hard": "near_miss"}], ids=str)
def test_among_lines_of_code_a_needle_is_a_comment(options: dict[str, Any]) -> None:
    made = document((NeedleForms if options else Needle)(haystack="code", **options), Cell("niah", 3000, 0.5, 0))
    lines = made.text.splitlines()
    for fact in made.facts:
        assert fact.text.startswith("# ")
        assert any(line.strip() == fact.text for line in lines)


@pytest.mark.parametrize(
    ("needle", "answers"),
    [("The tram is number 42.", ["41"]), ("The tram is number 142.", ["42"]), ("Ana knows it.", ["no", "now"])],
)
def test_an_answer_that_the_needle_does_not_give_is_an_error(
    say: Say, needle: str, answers: list[str], tmp_path: Path
) -> None:
    said = say(
        "run", "niah_own", "--model", "sim:perfect", "--lengths", "1k", "--set", f"needle={needle}", "--set",
        "question=Which number?", "--set", f"answers={json.dumps(answers)}", "--out", str(tmp_path / "run"),
    )  # fmt: skip
    assert said.code not in (0, 1)
    assert "is in the needle" in said.err
    assert "fix:" in said.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("needle", "answer"), [("Tram 42 is best.", "tram 42"), ("\u7535\u8f66\u662f42\u53f7\u3002", "42\u53f7")]
)
def test_an_answer_may_have_another_letter_case_and_script(needle: str, answer: str) -> None:
    assert (
        OwnNeedle(needle=needle, question="Which tram?", answers=(answer, "another word for it")).answers[0] == answer
    )
