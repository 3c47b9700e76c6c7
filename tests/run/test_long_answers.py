"""An endless answer does not stall a run: what its allowance can hold is graded, and the record says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.core.answers import Completion
from leadline.core.spec import make_spec
from leadline.results.run import load_run
from leadline.run import recording
from leadline.run.measure import measure
from leadline.run.recording import CUT_NOTE, graded_part, rescore
from leadline.scorers import match

MODEL = """
def right_then_endless(prompt):
    import re
    return re.findall(r"[0-9]{7}", prompt)[0] + " and so on" * 400_000


def late(prompt):
    import re
    return "so on and " * 400_000 + re.findall(r"[0-9]{7}", prompt)[0]
"""


def test_an_answer_within_its_allowance_is_graded_whole() -> None:
    answer = Completion("x" * 16_384)
    assert graded_part(answer, 128) is answer
    assert graded_part(Completion("x" * 64_000), 2000).text == "x" * 64_000


@pytest.mark.parametrize(("name", "score"), [("right_then_endless", 1.0), ("late", 0.0)])
def test_only_the_beginning_of_an_endless_answer_is_graded_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, score: float
) -> None:
    graded: list[int] = []
    before = type(match.ALL).score

    def score_it(self: object, probe: object, completion: Completion) -> object:
        graded.append(len(completion.text))
        return before(self, probe, completion)  # type: ignore[arg-type]

    monkeypatch.setattr(type(match.ALL), "score", score_it)
    (tmp_path / "mine.py").write_text(MODEL)
    task = {"name": "niah", "options": {"haystack": "noise", "keys": 1, "scorers": ["match.all"]}}
    values = {"model": f"{tmp_path}/mine.py:{name}", "tasks": [task], "lengths": [512], "depths": [0.5], "samples": 1}
    run = measure(make_spec(values), tmp_path / "run")
    (record,) = run.records
    assert isinstance(record.outcome, Completion)
    assert len(record.outcome.text) > 3_000_000  # kept as it came
    assert max(graded) == recording.GRADED_CHARACTERS_AT_LEAST
    assert record.score == score
    assert CUT_NOTE in record.sent.notes
    assert load_run(tmp_path / "run").totals.notes[CUT_NOTE] == 1
    rescore(tmp_path / "run")
    assert max(graded) == recording.GRADED_CHARACTERS_AT_LEAST
