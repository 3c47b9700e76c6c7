"""A scorer is tried on a task with the option `scorers`, by name or from a file, without a subclass."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.cli.main import run_command as run_command
from leadline.core import registry
from leadline.core.contracts import options_of
from leadline.core.errors import LeadlineError, UnknownName, UsageError
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell
from leadline.run.measure import measure
from leadline.store.runs import read_records
from support.scorer_questions import make_question, said

MINE = """
from leadline.core.records import Score

class Mine:
    name = "mine"

    def score(self, question, completion):
        return Score(0.25, answer=completion.text)

READY = Mine()

def share_of_letters(question, completion):
    return 0.75

NOT_ONE = 7
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


@pytest.mark.parametrize(("name", "value"), [("Mine", 0.25), ("READY", 0.25), ("share_of_letters", 0.75)])
def test_a_scorer_from_a_file_is_a_class_an_object_or_a_function(mine: Path, name: str, value: float) -> None:
    assert registry.scorer(f"./mine.py:{name}").score(make_question("x"), said("y")).value == value


def test_the_option_replaces_the_scorers_of_every_question(mine: Path) -> None:
    task = registry.task(TaskSpec(name="niah", options={"scorers": ["./mine.py:Mine", "match.exact"]}))
    cells = [Cell("niah", 500, depth, 0) for depth in (0.1, 0.9)]
    assert {q.scorers for q in task.write(cells, seed=0).questions} == {("./mine.py:Mine", "match.exact")}


def test_the_first_scorer_from_the_command_line_is_the_headline(mine: Path) -> None:
    words = (
        "niah --model sim:perfect --set haystack=noise --lengths 512 --depths 2 --samples 1 --no-figure --json".split()
    )
    code = run_command(["run", *words, "--set", "scorers=./mine.py:Mine,ruler.v1", "--out", "run"])
    assert code == 0
    for record in read_records(mine / "run"):
        assert list(record.scores) == ["Mine", "ruler.v1"]
        assert (record.score, record.scores["ruler.v1"].value) == (0.25, 1.0)
        assert record.failure_class != "correct"


def test_a_changed_scorer_file_makes_another_run(mine: Path) -> None:
    spec = make_spec(
        {
            "model": "sim:perfect",
            "tasks": [{"name": "niah", "options": {"haystack": "noise", "scorers": ["./mine.py:Mine"]}}],
            "lengths": "512",
            "depths": "0.5",
            "samples": 1,
        }
    )
    measure(spec, mine / "run")
    (mine / "mine.py").write_text(MINE.replace("0.25", "0.5"))
    with pytest.raises(LeadlineError, match="scorer"):
        measure(spec, mine / "run")


def test_a_scorer_that_does_not_exist_is_an_error_before_anything_is_asked(mine: Path) -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'ruler.v1'"):
        registry.task(TaskSpec(name="vt", options={"scorers": ["ruler.v2"]}))
    with pytest.raises(UsageError, match="is not a scorer"):
        registry.task(TaskSpec(name="vt", options={"scorers": ["./mine.py:NOT_ONE"]}))
    with pytest.raises(UsageError, match="asks no questions"):
        registry.task(TaskSpec(name="longppl", options={"scorers": ["match.all"]}))


def test_the_scorers_of_a_task_are_among_its_options() -> None:
    assert options_of(registry.task(TaskSpec(name="niah")))["scorers"] == []
    assert options_of(registry.task(TaskSpec(name="niah", options={"scorers": ["match.any"]})))["scorers"] == [
        "match.any"
    ]
