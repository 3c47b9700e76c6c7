"""More samples, lengths or depths of a finished run continue it, and only what is missing is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leadline.core.spec import Spec
from leadline.results.run import Run, load_run
from leadline.run.events import Answered, Event, Note
from leadline.run.measure import measure


class Heard:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    @property
    def answers(self) -> int:
        return sum(isinstance(event, Answered) for event in self.events)

    @property
    def notes(self) -> str:
        return "\n".join(event.text for event in self.events if isinstance(event, Note))


def ask(**changed: Any) -> tuple[Run, Heard]:
    values = {"model": "sim:cliff?window=2k", "tasks": ["niah"], "lengths": "1k,2k", "depths": 2, "samples": 2}
    heard = Heard()
    return measure(Spec(**{**values, **changed}), listen=heard), heard


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("more", "missing"),
    [({"samples": 4}, 8), ({"lengths": "1k,2k,4k"}, 4), ({"depths": "0,0.5,1"}, 4), ({"samples": 3, "depths": 3}, 10)],
)
def test_more_of_a_run_asks_only_what_is_missing(more: dict[str, Any], missing: int) -> None:
    first, _ = ask()
    second, heard = ask(**more)
    assert second.folder == first.folder
    assert heard.answers == missing
    assert f"continues {first.folder}: 8 of {8 + missing} samples are there" in heard.notes
    assert second.totals.done == 8 + missing
    again, heard = ask(**more)
    assert (again.folder, heard.answers) == (first.folder, 0)


def test_a_continued_run_has_the_records_of_one_that_asked_all_at_once(tmp_path: Path) -> None:
    ask()
    continued, _ = ask(samples=3, lengths="1k,2k,4k")
    (tmp_path / "runs").rename(tmp_path / "before")
    at_once, heard = ask(samples=3, lengths="1k,2k,4k")
    assert heard.answers == 18
    continued_folder = tmp_path / "before" / continued.folder.name
    answers = {r.cell.key: (r.sent, r.score) for r in load_run(continued_folder).records}
    assert answers == {r.cell.key: (r.sent, r.score) for r in at_once.records}


def test_fewer_than_a_finished_run_has_are_shown_from_it() -> None:
    first, _ = ask(samples=3)
    second, heard = ask(samples=1)
    assert (second.folder, heard.answers) == (first.folder, 0)
    assert "has all of this, and more" in heard.notes


def test_more_lengths_of_nested_documents_are_a_new_run_and_it_is_said() -> None:
    first, _ = ask(reading="nested")
    second, heard = ask(reading="nested", lengths="1k,2k,4k")
    assert second.folder != first.folder
    assert heard.answers == 12
    assert f"a new run, not a continuation of {first.folder}: documents of nested reading change" in heard.notes


def test_another_model_task_or_seed_never_continues_a_run() -> None:
    first, _ = ask()
    for changed in ({"model": "sim:cliff?window=2k&seed=1"}, {"seed": 1}, {"tasks": ["vt"]}):
        other, heard = ask(**changed, samples=4)
        assert other.folder != first.folder
        assert heard.answers == 16
        assert "continu" not in heard.notes
