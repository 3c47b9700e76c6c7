"""Logs of other harnesses are recognised by what is in them and graded by RULER's rule where it is RULER."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leadline.core.types import Question
from leadline.features.published.grade import grade_logs
from leadline.features.published.harness_logs import find_harness_logs, harness_log
from leadline.store.logged_questions import FIELD, encode_question
from support.commands import Say


def _line(number: int, answer: str, outputs: list[str], **doc: Any) -> str:
    """The fields of a line that lm-eval 0.4.13 writes for its RULER tasks."""
    return json.dumps(
        {
            "doc_id": number,
            "doc": {"index": 7, "input": "Some text.\nWhat is it?", "outputs": outputs, "gen_prefix": "It is", **doc},
            "target": outputs,
            "arguments": {"gen_args_0": {"arg_0": "prompt", "arg_1": {"until": []}}},
            "resps": [[answer]],
            "filtered_resps": [answer],
            "filter": "none",
            "metrics": ["4096"],
            "doc_hash": "0", "prompt_hash": "0", "target_hash": "0", "4096": 1.0,
        }
    )  # fmt: skip


def _write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_question_answering_accepts_any_reference_as_ruler_does(say: Say, tmp_path: Path) -> None:
    """lm-eval 0.4 averages over references: one of three found is 33 there and 100 by RULER's own rule."""
    path = _write(
        tmp_path / "samples_ruler_qa_squad_2026-08-21T10-11-12.345678.jsonl",
        _line(0, "in Paris, I think", ["Paris", "the city of Paris", "Paris, France"], max_length=4096),
        _line(1, "Rome", ["Paris", "the city of Paris"], max_length=4096),
    )
    said = say("score", str(path), "--json")
    assert said.code == 0, said.err
    (row,) = json.loads(said.out)["tasks"]
    assert (row["task"], row["length"], row["score"], row["samples"]) == ("ruler_qa_squad", 4096, 50.0, 2)


def test_lengths_of_one_file_are_apart_and_filters_are_one_answer(tmp_path: Path) -> None:
    path = _write(
        tmp_path / "samples_niah_single_1_2026-08-21T10-11-12.345678.jsonl",
        _line(0, "41", ["41"], max_length=4096),
        _line(0, "41", ["41"], max_length=4096),
        _line(1, "41", ["42"], max_length=8192),
    )
    log = harness_log(path)
    assert log is not None
    assert [(task.task, task.length, len(task.answers)) for task in log.tasks] == [
        ("niah_single_1", 4096, 1), ("niah_single_1", 8192, 1),
    ]  # fmt: skip


def test_a_folder_of_rulers_predictions_is_no_log(tmp_path: Path) -> None:
    _write(tmp_path / "4096" / "pred" / "vt.jsonl", json.dumps({"pred": "A", "outputs": ["A"], "input": "x"}))
    assert find_harness_logs([tmp_path]).logs == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"doc_id": 1, "doc": {}, "resps": "text"}', "not a line of lm-eval's samples"),
        ('{"doc_id": 1, "doc": {"outputs": []}, "resps": [["a"]]}', "no reference answers"),
        ('{"doc_id": 1, "doc": {"outputs": ["a"]}, "resps": [[]]}', "has no answer"),
        ('{"doc_id": 1', "not a line of lm-eval's samples"),
    ],
)
def test_a_damaged_line_is_named(say: Say, tmp_path: Path, line: str, what: str) -> None:
    path = _write(tmp_path / "samples_vt.jsonl", _line(0, "A", ["A"]), line)
    said = say("score", str(path))
    assert said.code != 0
    assert what in said.err
    assert f"{path}:2" in said.err


def test_a_log_and_another_file_are_not_graded_together(say: Say, tmp_path: Path) -> None:
    log = _write(tmp_path / "samples_vt.jsonl", _line(0, "A", ["A"]))
    other = _write(tmp_path / "vt.jsonl", json.dumps({"pred": "A", "outputs": ["A"]}))
    said = say("score", str(log), str(other))
    assert said.code != 0
    assert "grade them apart" in said.err


def test_scores_are_written_back_to_inspect_alone(say: Say, tmp_path: Path) -> None:
    log = _write(tmp_path / "samples_vt.jsonl", _line(0, "A", ["A"]))
    said = say("score", str(log), "--write-back", "scores.jsonl")
    assert said.code != 0
    assert "name .eval files" in said.err


def test_a_question_that_leadline_wrote_is_graded_by_its_own_scorers(tmp_path: Path) -> None:
    """RULER's rule would take the repeated beginning of the answer, and find nothing of a walk in a graph."""
    own = Question("Which?", targets=("ab12", "cd34"), scorers=("graphwalks", "graphwalks.strict"))
    doc = {"task": "graphwalks", FIELD: encode_question(own), "gen_prefix": "Answer:"}
    path = _write(
        tmp_path / "samples_leadline_graphwalks_4k_2026-08-21T10-11-12.345678.jsonl",
        _line(0, "Answer: Final Answer: [ab12, cd34]", ["ab12", "cd34"], max_length=4096, **doc),
        _line(1, "Answer: Final Answer: [ab12]", ["ab12", "cd34"], max_length=4096, **doc),
    )
    (graded,) = grade_logs(find_harness_logs([path]).all_read())
    assert (graded.task, graded.length, graded.metric) == ("graphwalks", 4096, "graphwalks")
    assert graded.score == pytest.approx(100 * (1 + 2 / 3) / 2, abs=0.01), "F1 of the two sets"


def test_a_question_of_another_version_is_named(say: Say, tmp_path: Path) -> None:
    doc = {FIELD: '{"text": "Which?", "targets": 7}'}
    path = _write(tmp_path / "samples_leadline_niah_4k.jsonl", _line(0, "A", ["A"], **doc))
    said = say("score", str(path))
    assert said.code == 66, said.err
    assert "not a question of this version of Leadline" in said.err
    assert f"{path}:1" in said.err
    assert "build the prompts again" in said.err


# --- scores written back to Inspect logs, whose library is a fake: a log is JSON, and a damaged one is not


def _fake_library(path: str) -> dict[str, Any]:
    return dict(json.loads(Path(path).read_text()))


def _header(path: str, *, header_only: bool) -> Any:
    log = _fake_library(path)
    return SimpleNamespace(version=log["version"], eval=SimpleNamespace(task="niah_single_1"))


def _summaries(path: str) -> list[Any]:
    return [SimpleNamespace(id=number, epoch=1) for number in range(len(_fake_library(path)["answers"]))]


def _samples(path: str, ids: list[tuple[int, int]], **options: Any) -> Iterator[Any]:
    """Read one after another, as the library does: what is wrong with one shows late."""
    log = _fake_library(path)
    for number, _ in ids:
        answer = log["answers"][number]
        choices = [SimpleNamespace(stop_reason="stop")] if answer is not None else []
        output = SimpleNamespace(choices=choices, completion=answer)
        sample = SimpleNamespace(id=number, epoch=1, error=None, target="41", input="What?", metadata={}, output=output)
        if log["version"] > 2:
            del sample.output.choices  # renamed there
        yield sample


@pytest.fixture
def inspect_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Writes a log, and lets it be read."""
    library = SimpleNamespace(
        read_eval_log=_header, read_eval_log_sample_summaries=_summaries, read_eval_log_samples_by_id=_samples
    )
    monkeypatch.setitem(sys.modules, "inspect_ai", SimpleNamespace(log=library))
    monkeypatch.setitem(sys.modules, "inspect_ai.log", library)

    def write(name: str, *answers: str | None, version: int = 2) -> Path:
        return _write(tmp_path / "logs" / f"{name}.eval", json.dumps({"version": version, "answers": answers}))

    return write


def _values(path: Path) -> list[float]:
    return [json.loads(line)["value"] for line in path.read_text().splitlines()]


def test_a_log_that_cannot_be_read_keeps_no_other_from_getting_its_scores(
    say: Say, tmp_path: Path, inspect_log: Callable[..., Path]
) -> None:
    good, other = inspect_log("a", "41", "7"), inspect_log("b", "41")
    torn = _write(tmp_path / "logs" / "torn.eval", '{"version": 2, "ans')
    newer, failed = inspect_log("newer", "41", version=3), inspect_log("failed", None)
    said = say("score", str(tmp_path / "logs"), "--write-back", "scores.jsonl", "--json")
    assert said.code == 66, said.err
    assert _values(tmp_path / "scores-a.jsonl") == [1.0, 0.0]
    assert _values(tmp_path / "scores-b.jsonl") == [1.0]
    assert not (tmp_path / "scores-torn.jsonl").exists()
    for log, outcome in {
        good: "2 scores of", other: "1 score of", torn: "not written: cannot be read by inspect_ai",
        newer: "not written: a log of version 3, and 2 is known here", failed: "no sample of it has an answer",
    }.items():  # fmt: skip
        assert any(str(log) in line and outcome in line for line in said.err.splitlines()), (log, said.err)
    assert "3 of 5 Inspect logs got no scores; the scores of the others are written" in said.err
    assert "fix:" in said.err
    assert json.loads(said.out)["tasks"][0]["samples"] == 3, "what could be read is graded"


def test_the_scores_of_one_log_are_in_the_file_that_was_named(
    say: Say, tmp_path: Path, inspect_log: Callable[..., Path]
) -> None:
    said = say("score", str(inspect_log("a", "41")), "--write-back", "scores.jsonl")
    assert said.code == 0, said.err
    assert _values(tmp_path / "scores.jsonl") == [1.0]


def test_logs_of_one_name_have_a_file_each(say: Say, tmp_path: Path, inspect_log: Callable[..., Path]) -> None:
    for folder, answer in (("one/a", "41"), ("two/a", "7")):
        inspect_log(folder, answer)
    said = say("score", str(tmp_path / "logs"), "--write-back", "scores.jsonl")
    assert said.code == 0, said.err
    assert _values(tmp_path / "scores-a.jsonl") + _values(tmp_path / "scores-a-2.jsonl") == [1.0, 0.0]


def test_one_damaged_log_is_an_error_of_its_own(say: Say, inspect_log: Callable[..., Path]) -> None:
    said = say("score", str(inspect_log("newer", "41", version=3)), "--write-back", "scores.jsonl")
    assert said.code == 66
    assert "a log of version 3, and 2 is known here" in said.err
    assert "update leadline" in said.err.partition("fix:")[2]
