"""Scorers are part of a run's identity, and `leadline rescore` grades saved answers again without asking a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from leadline.cli.main import run_command as run_command
from leadline.core.answers import Completion
from leadline.core.errors import OtherRunError, StoreError
from leadline.core.records import Score
from leadline.core.spec import make_spec
from leadline.results.run import load_run
from leadline.run import recording
from leadline.run.measure import measure
from leadline.scorers import match
from leadline.store.manifest import read_manifest
from leadline.store.runs import RECORDS, RESCORING, decode, read_records
from support.planted_runs import cliff, planted_records, write_run

LENIENT = "def mine(probe, completion):\n    return 1.0\n"
SEVERE = "def mine(probe, completion):\n    return 0.0\n"


def spec(scorers: list[str] | None = None, **values: object) -> object:
    task = {"name": "niah", "options": {"haystack": "noise", **({"scorers": scorers} if scorers else {})}}
    made = {"model": "sim:cliff?window=1k", "tasks": [task], "lengths": [512, 2048], "depths": 2, "samples": 2}
    return make_spec({**made, **values})


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_changed_scorer_file_is_said_and_not_mixed_into_a_run(here: Path) -> None:
    (here / "mine.py").write_text(LENIENT)
    asked = spec(["./mine.py:mine"])
    measure(asked, "run")  # type: ignore[arg-type]
    (here / "mine.py").write_text(SEVERE)
    with pytest.raises(OtherRunError, match=r"scorer\.mine\.code") as refused:
        measure(spec(["./mine.py:mine"], samples=3), "run")  # type: ignore[arg-type]
    assert "leadline rescore run --trust" in refused.value.fix
    assert run_command(["rescore", "run", "--trust"]) == 0
    assert {r.score for r in read_records("run")} == {0.0}
    run = measure(spec(["./mine.py:mine"], samples=3), "run")  # type: ignore[arg-type]
    assert run.table.whole.done == 12
    assert run.table.whole.mean == 0.0


def test_the_first_scorer_named_decides_even_if_the_run_has_it_already(here: Path) -> None:
    measure(spec(), "run")  # type: ignore[arg-type]
    assert run_command(["rescore", "run", "--scorer", "ruler.strict", "--scorer", "ruler.v1"]) == 0
    assert {tuple(r.scores) for r in read_records("run")} == {("ruler.strict", "ruler.v1", "match.all")}
    assert all(r.score == r.scores["ruler.strict"].value for r in read_records("run"))


def test_another_version_of_a_built_in_scorer_is_said(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(spec(), "run")  # type: ignore[arg-type]
    assert read_manifest(here / "run").fingerprints["scorer.match.all.version"]
    monkeypatch.setattr(match, "ALL", replace(match.ALL, version="99"))
    with pytest.raises(OtherRunError, match=r"scorer\.match\.all\.version"):
        measure(spec(), "run")  # type: ignore[arg-type]


def test_rescoring_puts_the_new_scorer_first_and_keeps_the_others_and_the_old_records(here: Path) -> None:
    measure(spec(), "run")  # type: ignore[arg-type]
    before = {r.cell: r for r in read_records("run")}
    text = (here / "run" / RECORDS).read_bytes()
    (here / "mine.py").write_text(SEVERE)
    assert run_command(["rescore", "run", "--scorer", "./mine.py:mine"]) == 0
    assert (here / "run/records-1.jsonl").read_bytes() == text
    after = list(read_records("run"))
    assert [list(r.scores) for r in after] == [["mine", "match.all", "ruler.v1", "ruler.strict"]] * 8
    for record in after:
        old = before[record.cell]
        assert record.outcome == old.outcome
        assert {n: s.value for n, s in record.scores.items() if n != "mine"} == {
            n: s.value for n, s in old.scores.items()
        }
        assert record.failure_class != "correct"
    run = measure(spec(["./mine.py:mine", "match.all", "ruler.v1", "ruler.strict"]), "run")  # type: ignore[arg-type]
    assert run.table.whole.mean == 0.0  # resumed: nothing was left to ask


def test_only_the_scorers_given_are_kept_when_asked(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure(spec(), "run")  # type: ignore[arg-type]
    capsys.readouterr()
    assert run_command(["rescore", "run", "--scorer", "match.exact", "--only", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["after"]["niah"]["scorer"] == "match.exact"
    assert {tuple(r.scores) for r in read_records("run")} == {("match.exact",)}


def test_answers_of_an_older_run_are_graded_by_the_rules_of_today(tmp_path: Path) -> None:
    """A folder whose manifest knows no scorers, with an answer that an older version took for right."""
    first, *others = planted_records(cliff, lengths=(1024, 2048), depths=(0.5,))
    scores = {"match.all": Score(1.0), "ruler.v1": Score(1.0)}
    longer = msgspec.structs.replace(
        first,
        outcome=Completion(f"I think of x{first.question.targets[0]}y"),
        scores=scores,
        failure_class="correct",
    )
    folder = write_run(tmp_path / "run", [longer, *others])
    found = recording.rescore(folder)
    assert found.after["niah"][1] < found.before["niah"][1]
    [again] = [r for r in load_run(folder).records if r.cell == first.cell]
    assert (again.scores["match.all"].value, again.scores["ruler.v1"].value) == (0.0, 1.0)
    assert again.failure_class == "wrong"
    assert decode((folder / "records-1.jsonl").read_bytes().splitlines()[0]) == longer


def test_an_interrupted_rescoring_is_noticed_and_done_again(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measure(spec(), "run")  # type: ignore[arg-type]
    text = (here / "run" / RECORDS).read_bytes()
    monkeypatch.setattr("leadline.store.runs.encode_pretty", lambda _: 1 / 0)  # dies before the manifest is written
    with pytest.raises(ZeroDivisionError):
        recording.rescore(here / "run", ["match.exact"])
    monkeypatch.undo()
    monkeypatch.chdir(here)
    assert (here / "run" / RESCORING).exists()
    assert (here / "run/records-1.jsonl").read_bytes() == text
    with pytest.raises(StoreError, match="was interrupted"):
        measure(spec(), "run")  # type: ignore[arg-type]
    recording.rescore(here / "run", ["match.exact"])
    assert not (here / "run" / RESCORING).exists()
    assert {next(iter(r.scores)) for r in read_records("run")} == {"match.exact"}


def test_one_answer_to_a_needle_of_ones_own_is_still_enough_when_it_is_graded_again(here: Path) -> None:
    (here / "mine.py").write_text("def mine(probe, completion):\n    return float(probe.match == 'any')\n")
    needle = {"needle": "Anna lost the red bicycle.", "question": "What did Anna lose?", "answers": ["bicycle", "bike"]}
    task = {"name": "niah_own", "options": {"haystack": "noise", "scorers": ["./mine.py:mine"], **needle}}
    measure(spec(tasks=[task]), "run")  # type: ignore[arg-type]
    assert {record.score for record in read_records("run")} == {1.0}
    assert run_command(["rescore", "run", "--trust"]) == 0
    assert {record.score for record in read_records("run")} == {1.0}
