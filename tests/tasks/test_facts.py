"""`FactTask`: an own task from a sentence, a question and an answer, and its page in the docs."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path

import pytest

from leadline.core.errors import UsageError
from leadline.core.seeds import split_of
from leadline.core.types import Cell
from leadline.tasks.facts import FactTask
from support.commands import Say

PAGE = (Path(__file__).parents[2] / "docs" / "first-plugin.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
COMMANDS = re.findall(r"^leadline run \./rooms.*$", PAGE, re.MULTILINE)


class Rooms(FactTask):
    def fact(self, draw: random.Random) -> tuple[str, str, object]:
        meeting, room = draw.randint(10, 40), draw.randint(10_000, 99_999)
        return f"Meeting {meeting} is in room {room}.", f"Which room is meeting {meeting} in?", room


def cells(count: int, task: str = "rooms") -> list[Cell]:
    return [Cell(task, 1024, index / count, 0) for index in range(count)]


def test_the_task_of_the_page_has_eight_lines() -> None:
    lines = [line for line in CODE.splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 8
    assert len(COMMANDS) == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_its_commands_run_and_a_perfect_reader_answers_everything(
    command: str, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rooms.py").write_text(CODE)
    done = say(*shlex.split(command)[1:], "--depths", "3", "--samples", "2", "--no-figure", "--json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["done"] == 12
    assert "100%" in say("report", json.loads(done.out)["folder"]).out


def test_no_two_facts_of_a_document_have_one_question() -> None:
    draft = Rooms().draft(cells(12), seed=1)
    assert len({question.text for question in draft.questions}) == 12
    assert all(question.targets[0] in fact.text for question, fact in zip(draft.questions, draft.facts, strict=True))


@pytest.mark.parametrize("split", ["train", "test"])
def test_answers_are_of_the_split(split: str) -> None:
    draft = Rooms.model_validate({"split": split}).draft(cells(5), seed=1)
    assert {split_of(question.targets[0]) for question in draft.questions} == {split}


def test_a_fact_without_its_answer_and_one_with_too_few_questions_are_refused() -> None:
    class Silent(FactTask):
        def fact(self, draw: random.Random) -> tuple[str, str, object]:
            return "The door is open.", "Which room?", 7

    class Single(FactTask):
        def fact(self, draw: random.Random) -> tuple[str, str, object]:
            return f"The room is {draw.randint(1, 9999)}.", "Which room?", "room"

    with pytest.raises(UsageError, match="the answer '7' is not in its sentence"):
        Silent().draft(cells(1), seed=1)
    with pytest.raises(UsageError, match="no new question"):
        Single().draft(cells(2), seed=1)
