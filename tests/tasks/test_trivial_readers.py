"""Readers that do not look at the question: what every task gives them, so that no score means less than it seems."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scipy.stats import binom

from leadline.cli.main import run_command as run_command
from leadline.core import registry
from leadline.core.errors import SourceError, UsageError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.scorers.trivial_readers import (
    READERS,
    SAMPLES,
    planted_sentences,
    trivial_answers,
    trivial_scores,
)
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit
from support.scorer_questions import make_question
from support.trivial_sweep import ANSWERED_BY_COUNTING, ANSWERED_BY_FORM, LENGTHS, above_chance, read_rows

GUESSED = {"worlds": 0.5, "aggregate": 0.5, "niah": 0.25, "niah_forms": 0.25, "niah_multikey_1": 0.25}
"""How often a guess is right where there are few answers to choose from."""
TASKS = [n for n in registry.names("tasks") if registry.task(TaskSpec(name=n)).request == "answer"]


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("name", TASKS)
def test_no_task_is_answered_without_its_question_unless_it_says_so(name: str) -> None:
    try:
        found = trivial_scores(registry.task(TaskSpec(name=name)), name)
    except (SourceError, UsageError) as error:
        pytest.skip(f"needs data: {error.what}")
    for depth, row in found.items():
        assert set(row) == set(READERS)
        if name in ANSWERED_BY_FORM:
            assert max(row.values()) > 0.9, depth
            continue
        if name in ANSWERED_BY_COUNTING:
            assert row.pop("most frequent") > 0.9, depth
        for reader, score in row.items():
            assert binom.sf(round(score * SAMPLES) - 1, SAMPLES, GUESSED.get(name, 0.02)) > 1e-4, (depth, reader)


GRID = tuple(number / 10 for number in range(11))
FORMS: list[dict[str, Any]] = [
    {}, {"hard": "near_miss"}, {"hard": "qualifier"}, {"hard": "contradiction"}, {"match": "paraphrase"},
    {"match": "association"}, {"keys": 8}, {"values": 2}, {"language": "de"}, {"haystack": "needles"},
]  # fmt: skip


EDGES = (0.0, 0.1, 0.5, 0.9, 1.0)
"""Rows in which few needles stand on one side: what a reader by position would find."""


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("options", FORMS, ids=str)
def test_no_row_of_a_map_of_needles_can_be_read_by_position(options: dict[str, Any]) -> None:
    name = "niah_forms" if {"match", "hard"} & set(options) else "niah"
    task = registry.task(TaskSpec(name=name, options={"haystack": "noise", **options}))
    keys = options.get("keys", 4)
    depths = EDGES if options else GRID
    rows = trivial_scores(task, "niah", samples=2 * keys, depths=depths, length=3000)
    assert len(rows) == len(depths)
    for depth, row in rows.items():
        for reader in ("first", "last", "only", "most frequent"):
            assert row[reader] <= 1 / keys + 0.05, (depth, reader)
        # By chance, which of the five wordings is looked for first decides.
        assert binom.sf(round(row["needle form"] * 2 * keys) - 1, 2 * keys, 1 / keys) > 1e-4, depth


@pytest.mark.quick_cases(name=("niah", "lines"))
@pytest.mark.parametrize("name", ["niah", "niah_multikey_2", "kv", "lines"])
@pytest.mark.parametrize("lengths", [(3000,), (3000, 5000)], ids=["shared", "nested"])
def test_no_row_of_a_document_with_many_questions_can_be_read_by_position(name: str, lengths: tuple[int, ...]) -> None:
    task = registry.task(TaskSpec(name=name))
    sentences = planted_sentences(task)
    for sample in range(3):
        cells = [Cell(name, length, depth, sample) for length in lengths for depth in GRID]
        document = fit(task.write(cells, seed=0), WhitespaceTokenizer(), completion_frame())
        for probe in document.probes:
            text = document.text[document.body_start_characters : probe.cut_characters]
            answers = trivial_answers(text, probe.question, sentences)
            for reader in ("first", "last", "only"):
                assert probe.question.targets[0] not in answers[reader], (probe.cell.key, reader)


PARTS = [
    (name, variant, reading)
    for name, variant in (
        ("cwe", "plain"), ("kv", "plain"), ("lines", "plain"), ("math_find", "plain"),
        ("qa_fiction_1", "plain"), ("niah", "plain"), ("niah_multikey_2", "plain"), ("agent_log", "plain"),
        ("agent_log", "last failure"), ("niah_forms", "by association"),
    )
    for reading in LENGTHS
]  # fmt: skip
"""Task, variant and way of reading, of those that `tests/support/trivial_sweep.py` reads all of."""


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS, ids="-".join)
def test_nor_is_any_other_value_by_place_or_frequency_right_above_chance(part: tuple[str, str, str]) -> None:
    rows = read_rows(12, part)
    if not rows:
        pytest.skip("this task is not read so")
    assert all(row.asked == 12 and len(row.right) > len(READERS) for row in rows.values())
    above = above_chance(rows)
    if part[0] in ANSWERED_BY_COUNTING:
        above = [row for row in above if "'most frequent'" not in row]
    assert not above


def test_a_task_in_which_only_the_answer_has_its_form_is_above_chance() -> None:
    assert "'first' right in 12 of 12" in above_chance(read_rows(12, ("number_string", "plain", "fresh")))[0]


@pytest.mark.quick_cases(name=("lines", "math_find"))
@pytest.mark.parametrize("name", ["kv", "lines", "math_find", "agent_log", "niah_multikey_2", "niah_multikey_3"])
def test_no_row_of_a_map_of_a_list_can_be_read_by_position(name: str) -> None:
    for depth, row in trivial_scores(registry.task(TaskSpec(name=name)), name, samples=4).items():
        assert max(row.values()) <= 0.05, depth


@pytest.mark.parametrize("depth", GRID)
def test_the_needle_asked_for_stays_at_its_depth(depth: float) -> None:
    task = registry.task(TaskSpec(name="niah"))
    for sample in range(4):
        document = fit(
            task.write([Cell("niah", 4096, depth, sample)], seed=0), WhitespaceTokenizer(), completion_frame()
        )
        [needed] = [fact for fact in document.facts if fact.id in document.probes[0].question.facts]
        assert abs(needed.depth - depth) < 0.03


@pytest.mark.parametrize(("depths", "facts"), [((0.5,), 4), ((0.2, 0.8), 4), ((0.0, 0.25, 0.5, 0.75, 1.0), 5)])
def test_other_depths_of_a_shared_document_count_towards_the_four(depths: tuple[float, ...], facts: int) -> None:
    task = registry.task(TaskSpec(name="niah", options={"haystack": "noise"}))
    document = fit(
        task.write([Cell("niah", 2000, d, 0) for d in depths], seed=0), WhitespaceTokenizer(), completion_frame()
    )
    guards = [fact for fact in document.facts if "#before" in fact.id or "#after" in fact.id]
    assert bool(guards) == (len(depths) > 1)
    assert len(document.facts) - len(guards) == facts
    assert {len(p.question.distractors) for p in document.probes} == {len(document.facts) - 1}


def test_what_the_readers_say() -> None:
    probe = make_question("7654321")
    text = "A 1111111 and 12345678. The number kept for x is 2222222. Then 1111111 again, 3333333."
    assert trivial_answers(text, probe, [r"The number kept for \w+ is [^\n]{1,60}?\."]) == {
        "first": "1111111", "last": "3333333", "only": "", "most frequent": "1111111", "needle form": "2222222",
    }  # fmt: skip
    assert trivial_answers("only 7654321 here", probe)["only"] == "7654321"


def test_tasks_show_states_what_they_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["tasks", "show", "niah_single"]) == 0
    assert "first 100%, last 100%, only 100%" in capsys.readouterr().out
    assert run_command(["tasks", "show", "niah"]) == 0
    shown = capsys.readouterr().out
    assert all(f"at depth {depth}" in shown for depth in (0.0, 0.25, 0.5, 0.75, 1.0))
    assert run_command(["tasks", "show", "niah", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trivial_readers"]["only"] == 0.0
    assert told["trivial_readers_by_depth"]["0.0"]["first"] == told["trivial_readers_by_depth"]["1.0"]["last"] == 0.25
