"""The ladder: the step that fails is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.records import Receipt
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document, Probe
from leadline.features.frontier.scorers import copy_score, word_error_rate
from leadline.run.measure import measure
from leadline.scorers.failure import classify
from leadline.stats.intervals import mean_interval
from leadline.store.runs import read_records
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit
from support.golden_answers import golden_folder


def written(cells: list[Cell], **options: object) -> Document:
    task = registry.task(TaskSpec(name="ladder", options={"placement": "anywhere", **options}))
    return fit(task.write(cells, seed=3), WhitespaceTokenizer(), completion_frame())


def graded(probe: Probe, text: str) -> tuple[float, float, str]:
    answer = Completion(text)
    scores = {name: registry.scorer(name).score(probe.question, answer) for name in probe.question.scorers}
    return (
        scores["ladder"].value,
        scores["ladder.strict"].value,
        classify(probe.question, answer, scores, Receipt(1, 1))[1],
    )


def test_every_step_is_asked_of_one_pile() -> None:
    document = written([Cell("ladder", 8192, None, n) for n in range(52)], per_document=52)
    steps = [p.question.labels["operation"] for p in document.probes]
    assert {s: steps.count(s) for s in steps} == {"retrieve": 13, "two steps": 13, "one step": 13, "solve": 13}
    assert len({p.question.text for p in document.probes}) == 52
    assert len({p.cut_characters for p in document.probes}) == 1


def test_a_question_that_was_found_and_solved_wrong_is_told_from_one_that_was_not_found() -> None:
    document = written([Cell("ladder", 3000, None, n) for n in range(4)], per_document=4)
    copy, two, one, _ = document.probes
    wrong, other = one.question.mistakes["found, solved wrong"][0], one.question.mistakes["another question"][0]
    assert graded(one, f"Answer: {one.question.targets[0]}")[:2] == (1.0, 1.0)
    assert graded(one, f"Answer: {wrong}") == (0.0, 0.0, "found, solved wrong")
    assert graded(one, f"Answer: {other}") == (0.0, 0.0, "another question")
    assert graded(two, f"{document.planted(two)[0].text}\nAnswer: {two.question.targets[0]}")[:2] == (1.0, 1.0)
    assert graded(copy, f"Here it is: {copy.question.targets[0]}")[:2] == (1.0, 0.0)
    almost = copy.question.targets[0].replace(" or ", " and ")
    assert 0.8 < graded(copy, almost)[0] < 1.0


@pytest.mark.parametrize(("said", "right", "rate"), [("a b c", "a b c", 0.0), ("a x c", "a b c", 1 / 3),
                                                      ("", "a b", 1.0), ("a b c d", "a b", 1.0)])  # fmt: skip
def test_word_error_rates(said: str, right: str, rate: float) -> None:
    assert word_error_rate(said, right) == pytest.approx(rate)


def test_a_planted_accuracy_is_recovered(tmp_path: Path) -> None:
    task = {"name": "ladder", "placement": "anywhere", "per_document": 50, "steps": ["one_step"]}
    spec = {"model": "sim:perfect?mistake=0.3", "tasks": [task], "lengths": "4k", "samples": 200}
    measure(make_spec({**spec, "reading": "shared"}), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    wrong = mean_interval([float(r.score == 0) for r in records], [r.cluster for r in records])
    assert wrong.interval.low <= 0.3 <= wrong.interval.high


def test_published_copies_have_their_published_rewards() -> None:
    rows = (golden_folder("nemo_gym") / "ruler2" / "example_rollouts.jsonl").read_text().splitlines()
    copies = [row for row in map(json.loads, rows) if row["eval_type"] == "ruler2"]
    assert len(copies) == 4
    for row in copies:
        assert copy_score(row["response"]["output_text"], row["expected_answer"]) == row["reward"]
