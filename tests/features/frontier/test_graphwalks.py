"""Walks on a graph: one list of edges answers dozens of questions, and truth is worked out at every cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.errors import SourceError, UsageError
from leadline.core.records import Receipt
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document, Probe
from leadline.run.measure import measure
from leadline.scorers.answer_sets import GRAPHWALKS, final_nodes, set_f1
from leadline.scorers.failure import classify
from leadline.store.runs import read_records
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit
from support.golden_answers import golden_folder
from support.published_data import graphwalks_row, write_rows


def written(cells: list[Cell], **options: object) -> Document:
    task = registry.task(TaskSpec(name="graphwalks", options={"placement": "anywhere", **options}))
    return fit(task.write(cells, seed=3), WhitespaceTokenizer(), completion_frame())


def detail(probe: Probe, text: str) -> tuple[str, str]:
    answer = Completion(text)
    return classify(probe.question, answer, {"graphwalks": GRAPHWALKS.score(probe.question, answer)}, Receipt(1, 1))


def test_one_list_answers_more_than_fifty_questions_of_every_operation() -> None:
    document = written([Cell("graphwalks", 8192, None, n) for n in range(52)], per_document=52)
    assert len({p.question.text for p in document.probes}) == 52
    assert {p.cut_characters for p in document.probes} == {document.probes[0].cut_characters}
    asked = [p.question.labels["operation"] for p in document.probes]
    assert {name: asked.count(name) for name in set(asked)} == {"bfs 1": 13, "bfs 2": 13, "bfs 3": 13, "parents": 13}
    empty = [p for p in document.probes if p.question.labels.get("empty")]
    assert empty
    assert all(bool(p.question.targets) != (p in empty) for p in document.probes)


def test_the_decisive_edges_are_where_the_grid_wants_them() -> None:
    cells = [Cell("graphwalks", 6000, depth, 0) for depth in (0.1, 0.5, 0.9)]
    document = written(cells, placement="depth", spread=0.1, empty=0)
    for probe in document.probes:
        depths = [fact.depth for fact in document.planted(probe)]
        assert depths
        assert all(abs(depth - float(probe.cell.depth or 0)) < 0.12 for depth in depths)


def test_sizes_and_forms_are_options() -> None:
    cells = [Cell("graphwalks", 9000, None, n) for n in range(8)]
    wide = written(cells, degree=4, answer_size=20, empty=0, per_document=8)
    assert max(len(p.question.targets) for p in wide.probes) > 8
    small = written(cells, answer_size=3, empty=0, per_document=8, names="hex", form="published")
    assert max(len(p.question.targets) for p in small.probes if p.question.labels["operation"] != "parents") <= 3
    assert any("BFS" in p.question.text for p in small.probes)
    none = written(cells, empty=1, per_document=8)
    assert {p.question.targets for p in none.probes} == {()}
    with pytest.raises(UsageError, match="too few nodes"):
        written([Cell("graphwalks", 90_000, None, n) for n in range(512)], answer_size=40, degree=3, per_document=256)


def test_a_walk_to_another_depth_and_one_against_the_edges_are_told_apart() -> None:
    document = written([Cell("graphwalks", 4000, None, n) for n in range(4)], per_document=4, empty=0)
    two = next(p for p in document.probes if p.question.labels["operation"] == "bfs 2")
    one = next(p for p in document.probes if p.question.labels["operation"] == "bfs 1")
    parents = next(p for p in document.probes if p.question.labels["operation"] == "parents")
    assert detail(two, f"Final Answer: [{', '.join(one.question.targets)}]") == (
        "distractor",
        "wrong depth of the walk",
    )
    both = ", ".join((*one.question.targets, *two.question.targets))
    assert detail(two, f"First {one.question.targets[0]}.\nFinal Answer: [{both}]") == (
        "partial",
        "wrong depth of the walk",
    )
    children = parents.question.mistakes["wrong direction of the edges"]
    assert detail(parents, f"Final Answer: [{', '.join(children)}]")[1] == "wrong direction of the edges"
    assert detail(two, f"First {one.question.targets[0]}, then {two.question.targets[0]}.")[0] == "wrong_format"


def test_nested_cuts_have_their_own_truth() -> None:
    cells = [Cell("graphwalks", length, None, n) for length in (3000, 6000) for n in range(4)]
    document = written(cells, per_document=4)
    short = [p for p in document.probes if p.cell.length == 3000]
    assert len({p.cut_characters for p in short}) == 1
    assert all(p.prompt_tokens + p.question.allowance == p.cell.length for p in document.probes)


def test_a_planted_accuracy_is_recovered_by_operation(tmp_path: Path) -> None:
    task = {"name": "graphwalks", "placement": "anywhere", "per_document": 52, "empty": 0}
    spec = {"model": "sim:perfect?noise=0.2", "tasks": [task], "lengths": "8k"}
    measure(make_spec({**spec, "samples": 104, "reading": "shared"}), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert len({r.cluster for r in records}) == 2
    said = [(r.outcome.text, r.question.targets) for r in records if isinstance(r.outcome, Completion)]
    named = sum(len(set(final_nodes(text) or ()) & set(targets)) for text, targets in said)
    asked = sum(len(r.question.targets) for r in records)
    assert abs(named / asked - 0.8) < 4 * (0.16 / asked) ** 0.5


# --- published files ---


def test_the_published_files_are_read_as_they_are(tmp_path: Path) -> None:
    write_rows(tmp_path / "graphwalks.jsonl", [graphwalks_row(n) for n in range(5)])
    task = {"name": "graphwalks_dataset", "data": str(tmp_path / "graphwalks.jsonl")}
    measure(make_spec({"model": "sim:perfect", "tasks": [task], "lengths": "4k", "samples": 99}), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert {r.question.labels["operation"] for r in records} == {"parents", "bfs 1"}
    assert len(records) == 5
    assert all(r.score == 1.0 for r in records if r.question.targets)
    (tmp_path / "other.jsonl").write_text('{"prompt": "x", "problem_type": "bfs", "answer_nodes": 3}\n')
    with pytest.raises(SourceError, match="answer_nodes is not a list"):
        registry.task(TaskSpec(name="graphwalks_dataset", options={"data": str(tmp_path / "other.jsonl")})).sources()


# --- the official score ---


@pytest.mark.parametrize(
    ("answer", "nodes", "score"),
    [
        ("Final Answer: [a, b]", ["a", "b"], 1.0),
        ("Reasons.\nFinal Answer: [b, a, c]\n\n", ["b", "a", "c"], 0.8),
        ("Final Answer: [a]\nDone.", None, 0.0),
        ("Final Answer: []", [], 0.0),
        ("Final Answer:[c, d]", ["c", "d"], 0.0),
        ("a, b", None, 0.0),
    ],
)
def test_the_last_line_is_graded_as_a_set(answer: str, nodes: list[str] | None, score: float) -> None:
    assert final_nodes(answer) == nodes
    assert (0.0 if nodes is None else set_f1(nodes, ["a", "b"])) == pytest.approx(score)


def test_two_empty_sets_are_equal() -> None:
    assert set_f1([], []) == 1.0


def test_published_answers_have_their_published_rewards() -> None:
    rows = (golden_folder("nemo_gym") / "graphwalks" / "example_rollouts.jsonl").read_text().splitlines()
    assert len(rows) == 5
    for row in map(json.loads, rows):
        texts = [
            part["text"] for out in row["response"]["output"] if out["type"] == "message" for part in out["content"]
        ]
        nodes = final_nodes("".join(texts))
        assert nodes == (None if row["parse_failed"] else row["predicted_nodes"])
        assert set_f1(nodes or [], json.loads(row["expected_answer"])) == pytest.approx(row["reward"])
