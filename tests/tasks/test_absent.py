"""Questions without an answer: asked in every retrieval task, not to be told by their form, and reported apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.cli.main import run_command as run_command
from leadline.core import registry
from leadline.core.contracts import Task
from leadline.core.errors import UsageError
from leadline.core.spec import TaskSpec
from leadline.core.types import Cell, Document
from leadline.results.run import load_run
from leadline.run.recording import rescore
from leadline.tasks.wording import RetrievalTask
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit
from support.question_data import squad

NAMES = sorted(
    name for name in registry.names("tasks") if isinstance(registry.task(TaskSpec(name=name)), RetrievalTask)
)
GENERATED = ("kv", "lines", "niah", "qa_fiction_1", "qa_fiction_2")
DEPTHS = (0.1, 0.5, 0.9)


def opened(name: str, **options: object) -> Task:
    return registry.task(TaskSpec(name=name, options=options))


def documents(task: Task, name: str, samples: int = 10, length: int = 1200) -> list[Document]:
    """One document of three depths for each sample."""
    made = []
    for sample in range(samples):
        cells = [Cell(name, length, depth, sample) for depth in DEPTHS]
        made.append(fit(task.write(cells, seed=3), WhitespaceTokenizer(), completion_frame()))
    return made


def test_every_retrieval_family_has_the_option() -> None:
    assert {*GENERATED, "qa_1", "qa_2"} <= set(NAMES)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("name", GENERATED)
def test_a_set_share_is_not_there_and_all_questions_are_put_alike(name: str) -> None:
    probes = [(d, p) for d in documents(opened(name, absent=0.3), name) for p in d.probes]
    absent = [p for _, p in probes if p.question.absent]
    assert all(2 <= sum(bool(p.question.absent) for _, p in probes if p.cell.depth == d) <= 4 for d in DEPTHS)
    assert {p.question.absent for _, p in probes} == {True, False}
    assert len({(p.question.answer_prefix, p.user_suffix.rpartition("?")[2]) for _, p in probes}) == 1
    assert {p.question.targets for p in absent} == {("not there",)}
    for document, probe in probes:
        assert bool(document.planted(probe)) is not probe.question.absent
        if probe.question.absent:
            assert len(probe.question.distractors) >= len(DEPTHS)
            assert all(value in document.text for value in probe.question.distractors if name[:2] != "qa")


@pytest.mark.parametrize("name", GENERATED[:3])
def test_the_key_that_is_asked_for_is_nowhere_in_the_document(name: str) -> None:
    for document in documents(opened(name, absent=1.0), name, samples=3):
        for probe in document.probes:
            key = (
                probe.question.text.split('"')[1] if name == "kv" else probe.question.text.partition("?")[0].split()[-1]
            )
            assert len(key) > 4
            assert key not in document.text


@pytest.mark.parametrize("name", GENERATED)
def test_a_document_is_the_same_whichever_of_its_questions_have_no_answer(name: str) -> None:
    some, most = (documents(opened(name, absent=share), name, samples=2) for share in (0.2, 0.7))
    assert [d.text[d.body_start_characters : d.body_start_characters + 500] for d in some] == [
        d.text[d.body_start_characters : d.body_start_characters + 500] for d in most
    ]
    few, many = ([p.cell for d in made for p in d.probes if p.question.absent] for made in (some, most))
    assert set(few) < set(many)


def test_documents_that_answer_are_left_out_of_a_question_file(tmp_path: Path) -> None:
    squad(tmp_path / "q.json")
    task = opened("qa_1", data=str(tmp_path / "q.json"), absent=0.5)
    probes = [(d, p) for d in documents(task, "qa_1", samples=6, length=700) for p in d.probes]
    assert {p.question.absent for _, p in probes} == {True, False}
    present = {p.cell: p for d in documents(opened("qa_1", data=str(tmp_path / "q.json")), "qa_1", 6, 700)
               for p in d.probes}  # fmt: skip
    for document, probe in probes:
        answers = present[probe.cell].question.targets
        assert any(answer in document.text for answer in answers) is not probe.question.absent


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [("niah", {"queries": 2, "keys": 4}, "absent is for one query"), ("niah_own", {}, "absent is an option of")],
)
def test_what_cannot_be_absent_is_refused(name: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        opened(name, absent=0.2, **options)


@pytest.mark.slow
def test_a_model_that_invents_answers_is_found_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "niah", "--model", "sim:perfect?invents=0.2&noise=0.1&seed=4", "--set", "absent=0.5",
                 "--set", "haystack=noise", "--lengths", "600,900", "--depths", "5", "--samples", "60",
                 "--out", str(tmp_path / "r"), "--no-figure"]  # fmt: skip
    assert run_command(arguments) == 0
    assert "false alarms" in capsys.readouterr().out
    run = load_run(tmp_path / "r")
    assert [one.length for one in run.absent] == [600, 900]
    for one in run.absent:
        assert one.false_alarms is not None
        assert one.accuracy is not None
        assert one.false_abstentions is not None
        assert one.false_alarms.interval.holds(0.2)
        assert one.accuracy.interval.holds(0.9)
        assert 0 < one.false_abstentions.mean < 0.1
        assert one.false_alarms.n + one.accuracy.n == 300
    assert run_command(["report", str(tmp_path / "r"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["absent"]
    assert [round(one["false_alarms"]["percent"], 6) for one in said] == [
        round(100 * one.false_alarms.mean, 6) for one in run.absent if one.false_alarms
    ]
    before = [r.scores for r in run.records]
    rescore(tmp_path / "r")
    assert [{n: s.value for n, s in r.scores.items()} for r in load_run(tmp_path / "r").records] == [
        {n: s.value for n, s in scores.items()} for scores in before
    ]
