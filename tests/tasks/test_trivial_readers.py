"""Readers that do not look at the question: what every task gives them, so that no score means less than it seems."""

from __future__ import annotations

import json

import pytest

from leadline.cli.main import run_command as run_command
from leadline.core import registry
from leadline.core.errors import SourceError, UsageError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell
from leadline.scorers.trivial_readers import READERS, trivial_answers, trivial_scores
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit
from support.scorer_probes import make_probe

ANSWERED_BY_FORM = {
    "niah_single", "niah_single_1", "niah_single_2", "niah_single_3", "niah_multivalue", "niah_multiquery", "passkey",
    "vt", "number_string",
}  # fmt: skip
"""Published tasks in which nothing but the answer has its form."""
ANSWERED_BY_COUNTING = {"cwe", "fwe"}
"""The most frequent words are what is asked for."""
TASKS = [n for n in registry.names("tasks") if registry.task(TaskSpec(name=n)).request == "answer"]


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize("name", TASKS)
def test_no_task_is_answered_without_its_question_unless_it_says_so(name: str) -> None:
    try:
        found = trivial_scores(registry.task(TaskSpec(name=name)), name)
    except (SourceError, UsageError) as error:
        pytest.skip(f"needs data: {error.what}")
    assert set(found) == set(READERS)
    best = max(
        value for reader, value in found.items() if (name, reader) not in {("cwe", READERS[3]), ("fwe", READERS[3])}
    )
    if name in ANSWERED_BY_FORM:
        assert best > 0.9
    else:
        assert best <= 0.5
    if name in ANSWERED_BY_COUNTING:
        assert found["most frequent"] > 0.9


def test_needles_are_one_of_four_by_default() -> None:
    found = trivial_scores(registry.task(TaskSpec(name="niah")), "niah", samples=8)
    assert all(value <= 0.4 for value in found.values())
    assert found["only"] == 0.0


@pytest.mark.parametrize(("depths", "facts"), [((0.5,), 4), ((0.2, 0.8), 4), ((0.0, 0.25, 0.5, 0.75, 1.0), 5)])
def test_other_depths_of_a_shared_document_count_towards_the_four(depths: tuple[float, ...], facts: int) -> None:
    task = registry.task(TaskSpec(name="niah", options={"haystack": "noise"}))
    document = fit(
        task.write([Cell("niah", 2000, d, 0) for d in depths], seed=0), WhitespaceTokenizer(), completion_frame()
    )
    assert len(document.facts) == facts
    assert {len(p.distractors) for p in document.probes} == {facts - 1}


def test_what_the_readers_say() -> None:
    probe = make_probe("7654321")
    text = "A 1111111 and 12345678. The number kept for x is 2222222. Then 1111111 again, 3333333."
    assert trivial_answers(text, probe, [r"The number kept for \w+ is [^\n]{1,60}?\."]) == {
        "first": "1111111", "last": "3333333", "only": "", "most frequent": "1111111", "needle form": "2222222",
    }  # fmt: skip
    assert trivial_answers("only 7654321 here", probe)["only"] == "7654321"


def test_tasks_show_states_what_they_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["tasks", "show", "niah_single"]) == 0
    assert "first 100%, last 100%, only 100%" in capsys.readouterr().out
    assert run_command(["tasks", "show", "niah", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trivial_readers"]["only"] == 0.0
