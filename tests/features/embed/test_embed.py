"""`embed`: items of a file or generated, the same at every length, and what they lose against their score alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.errors import LeadlineError, SourceError, UsageError
from leadline.core.lengths import parse_lengths
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Question
from leadline.features.embed.items import generated_item, read_items
from leadline.features.embed.loss import item_losses, length_of_loss
from leadline.features.embed.report import embed_section, format_length_of_loss
from leadline.features.embed.scorers import EMBED, EMBED_STRICT
from leadline.report.page import page
from leadline.results.run import load_run
from leadline.run.measure import measure
from leadline.stats.intervals import Estimate, Interval
from leadline.stats.observations import Observations
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.agent_readers import solve_item
from support.fitting import fit
from support.small_runs import simulated_run

ROWS = {
    "gsm8k": {"question": "How many?", "answer": "3 + 4 = <<3+4=7>>7\n#### 1,007"},
    "mmlu": {"question": "Which?", "subject": "botany", "choices": ["moss", "fern", "oak", "pine"], "answer": 2},
    "squad": {"id": "x7", "context": "Ada lived in Ely.", "question": "Where?", "answers": {"text": ["Ely", "in Ely"]}},
    "own": {"question": "Name it.", "answer": "amber", "scorer": "match.exact"},
}


def write_rows(folder: Path, *rows: Any) -> Path:
    path = folder / "items.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_rows_of_known_evaluations_are_read(tmp_path: Path) -> None:
    items = {item.text.split("\n")[0]: item for item in read_items(write_rows(tmp_path, *ROWS.values())).items}
    assert (items["How many?"].kind, items["How many?"].targets) == ("number", ("1007",))
    moss = items["Which?"]
    assert (moss.kind, moss.targets, moss.group) == ("choice", ("C",), "botany")
    assert moss.text.endswith("A) moss\nB) fern\nC) oak\nD) pine")
    ely = items["Passage: Ada lived in Ely."]
    assert (ely.id, ely.targets, ely.text) == ("x7", ("Ely", "in Ely"), "Passage: Ada lived in Ely.\nQuestion: Where?")
    assert items["Name it."].scorer == "match.exact"


def test_a_table_with_letters_as_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mmlu.csv"
    path.write_text('question,A,B,C,D,answer\n"Which, now?",moss,fern,oak,pine,B\n')
    [item] = read_items(path).items
    assert (item.targets, item.choices) == (("B",), ("moss", "fern", "oak", "pine"))


@pytest.mark.parametrize(
    ("name", "text", "where", "what"),
    [
        ("a.jsonl", '{"question": "x", "answer": "y"}\n{"q": "x"}\n', "a.jsonl:2, question", "no question"),
        ("b.jsonl", '{"question": "x"}\n', "b.jsonl:1, answer", "no answer"),
        ("c.jsonl", '{"question": "x", "answer": "y", "choices": ["a", "b"]}\n', "c.jsonl:1, answer", "none of the 2"),
        ("d.jsonl", '{"question": "x", "answer": "y", "scorer": "mach.all"}\n', "d.jsonl:1, scorer", "unknown scorer"),
        ("e.jsonl", "{broken\n", "e.jsonl:1", "not JSON"),
        ("f.jsonl", "[1]\n", "f.jsonl, item 1", "not a JSON object"),
        ("g.csv", "prompt,answer\nx,y\n", "g.csv:1", "no column question; columns: prompt, answer"),
        ("h.csv", "question,answer\nx,y,z\n", "h.csv:2", "3 cells in a table of 2"),
        ("i.csv", "question,answer\nx,\n", "i.csv:2, answer", "no answer"),
        ("j.jsonl", "\n", "j.jsonl", "no rows"),
        ("k.txt", "question\n", "k.txt", "not a .jsonl or .csv"),
        ("l.jsonl", '{"question": "x", "answer": {"a": 1}}\n', "l.jsonl:1", "no answer"),
        ("m.jsonl", '{"question": "x", "answer": "y", "choices": ["a"]}\n', "m.jsonl:1, choices", "list of 2"),
        ("n.jsonl", '{"question": "x", "answer": "#### "}\n', "n.jsonl:1, answer", "empty"),
    ],
)
def test_a_row_that_is_no_item_is_named_with_its_line_and_field(
    name: str, text: str, where: str, what: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(LeadlineError) as caught:
        read_items(tmp_path / name)
    assert where in caught.value.where
    assert what in caught.value.what
    assert caught.value.fix


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot read"):
        read_items(tmp_path / "none.jsonl")


def test_a_file_that_was_changed_is_read_again(tmp_path: Path) -> None:
    path = write_rows(tmp_path, ROWS["own"])
    [before] = read_items(path).items
    assert read_items(path).items[0] is before, "an unchanged file is read once"
    write_rows(tmp_path, {"question": "Name it.", "answer": "copper"}, ROWS["gsm8k"])
    assert {item.targets for item in read_items(path).items} == {("copper",), ("1007",)}
    path.unlink()
    with pytest.raises(SourceError):
        read_items(path)


def test_a_run_keeps_its_items_when_their_file_is_changed_during_it(tmp_path: Path) -> None:
    path = write_rows(tmp_path, ROWS["own"])
    spec = TaskSpec(name="embed", options={"data": str(path)})
    running = registry.task(spec)
    assert running.max_samples() == 1
    write_rows(tmp_path, *ROWS.values())
    assert running.max_samples() == 1
    assert registry.task(spec).max_samples() == len(ROWS)


# --- the scorer ---

ANSWERS = [
    # question, answer, embed, embed.strict
    ({"targets": ("42",), "value_kind": "numbers"}, "6 * 7 = 42\nAnswer: 42", 1, 1),
    ({"targets": ("42",), "value_kind": "numbers"}, "So there are 42 left.", 1, 0),
    ({"targets": ("42",), "value_kind": "numbers"}, "42 at first, and 40 in the end.", 0, 0),
    ({"targets": ("1042",), "value_kind": "numbers"}, "**Answer:** 1,042", 1, 1),
    ({"targets": ("42",), "value_kind": "numbers"}, "Answer: 42.0 apples", 1, 0),
    ({"targets": ("42",), "value_kind": "numbers"}, "Answer: 421", 0, 0),
    ({"targets": ("-3",), "value_kind": "numbers"}, "The answer is -3", 1, 1),
    ({"targets": ("42",), "value_kind": "numbers"}, "Answer: none", 0, 0),
    ({"targets": ("42",), "value_kind": "numbers"}, "Answer: 7\nNo. Answer: 42", 1, 1),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "Answer: B", 1, 1),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "Answer: (B) fern", 1, 0),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "A fern, so (B).", 1, 0),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "It must be fern.", 1, 0),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "moss or fern", 0, 0),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "Answer: A", 0, 0),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "Answer: I think B", 1, 0),
    ({"targets": ("B",), "choices": ("moss", "fern")}, "As said (C), it is fern.", 1, 0),
    ({"targets": ("Ely", "in Ely")}, "Answer: Ely", 1, 1),
    ({"targets": ("Ely",), "distractors": ("Ada",)}, "Ada is older.\nAnswer: Ely", 1, 1),
    ({"targets": ("Ely",), "distractors": ("Ada",)}, "Answer: Ely or Ada", 0, 0),
    ({"targets": ("Ely",)}, "Answer: Elyot", 0, 0),
    ({"targets": ("Ely",)}, "", 0, 0),
]
"""Worked by hand from the rule in docs/embed.md."""


@pytest.mark.parametrize(("question", "answer", "right", "strict"), ANSWERS)
def test_the_final_answer_is_judged(question: dict[str, Any], answer: str, right: int, strict: int) -> None:
    asked = Question("?", match="any", **question)
    assert EMBED.score(asked, Completion(answer)).value == right
    assert EMBED_STRICT.score(asked, Completion(answer)).value == strict


# --- documents ---


def prompt_of(length: int, sample: int, depth: float | None = 0.5, **options: Any) -> str:
    task = registry.task(TaskSpec(name="embed", options=options))
    cell = Cell("embed", length, depth if length else None, sample)
    document = fit(task.write([cell], seed=3), WhitespaceTokenizer(), completion_frame())
    return document.prompt_text(document.probes[0])


def test_an_item_is_the_same_at_every_length_and_depth_and_alone() -> None:
    items = {
        prompt_of(length, 4, depth).partition("[task]")[2].partition("[end")[0]
        for length, depth in ((0, None), (600, 0.0), (600, 1.0), (2000, 0.5))
    }
    assert len(items) == 1
    alone = prompt_of(0, 4)
    assert alone.startswith("[task]")
    assert prompt_of(2000, 4).endswith(alone.partition("[end of task]")[2])  # the same instruction in the same words


@pytest.mark.parametrize("place", ["before", "both"])
def test_the_instruction_can_stand_before_the_text_or_at_both_ends(place: str) -> None:
    for length in (0, 1000):
        prompt = prompt_of(length, 1, question_at=place)
        assert prompt.startswith("This text has one task in it")
        assert prompt.count("This text has one task") == (2 if place == "both" else 1)


def reader_that_ignores_the_document(prompt: str) -> str:
    """The last name, word or number before the question: what a guess by position is worth."""
    return prompt.split()[-40]


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_another_solver_gets_the_same_answers_from_the_prompt(count: int) -> None:
    guessed = 0
    for sample in range(count):
        prompt = prompt_of(400, sample, depth=(sample % 5) / 4, answer_tokens=32, haystack="noise")
        target = generated_item("all", sample, 3, "test").targets
        assert (solve_item(prompt),) == target
        guessed += reader_that_ignores_the_document(prompt) in target
    assert guessed <= count / 20


# --- loss ---


def planted(draw: np.random.Generator, loss: float, items: int, depths: int) -> tuple[Observations, list[Any]]:
    """Items of unequal difficulty, right alone with chance p and inside with chance p * (1 - loss)."""
    chance = draw.beta(4, 2, items)

    class Alone:
        def __init__(self, sample: int, score: float) -> None:
            self.cell, self.score = Cell("embed", 0, None, sample), score

    alone = [Alone(n, float(draw.random() < p)) for n, p in enumerate(chance)]
    rows = [(n, depth, p) for n, p in enumerate(chance) for depth in np.linspace(0, 1, depths)]
    samples = Observations(
        task=np.array(["embed"] * len(rows)),
        length=np.full(len(rows), 4096),
        depth=np.array([depth for _, depth, _ in rows]),
        sample=np.array([n for n, _, _ in rows]),
        cluster=np.array([f"{n}-{depth}" for n, depth, _ in rows]),
        value=np.array([float(draw.random() < p * (1 - loss)) for *_, p in rows]),
        failed=np.zeros(len(rows), dtype=np.bool_),
    )
    return samples, alone


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "items", "depths"), [(0.0, 40, 3), (0.3, 40, 3), (0.9, 25, 5)])
def test_the_interval_holds_the_planted_loss(loss: float, items: int, depths: int) -> None:
    draw, truth, rounds = np.random.default_rng(5), -loss * 4 / 6, 400
    hits = 0
    for _ in range(rounds):
        [found] = item_losses(*planted(draw, loss, items, depths))
        hits += found.by_length[4096].interval.holds(truth)
    assert 0.92 <= hits / rounds <= 0.995


def estimates(*losses: tuple[int, float, float, float]) -> dict[int, Estimate]:
    return {n: Estimate(mean, Interval(low, high, 0.95, ""), 40, 40) for n, mean, low, high in losses}


def test_the_length_of_the_loss_is_interpolated_and_bounded() -> None:
    found = length_of_loss(estimates((1024, -0.01, -0.04, 0.02), (4096, -0.03, -0.08, 0.02), (16384, -0.2, -0.3, -0.1)))
    assert (found.kept, found.lost) == (1024, 16384)
    assert found.point == pytest.approx(4096 * 4 ** (0.02 / 0.17))
    nothing = length_of_loss(estimates((1024, 0.0, -0.04, 0.04)))
    assert (nothing.kept, nothing.lost, nothing.point) == (1024, None, None)


def test_a_planted_cliff_is_found_at_its_length(tmp_path: Path) -> None:
    run = simulated_run(
        tmp_path, ["embed"], lengths=[0, 1024, 4096], depths=[0.0, 1.0], samples=12, model="sim:cliff?window=2000",
        options={"haystack": "noise"},
    )  # fmt: skip
    assert (len(run.alone), run.table.lengths, run.totals.planned) == (12, [1024, 4096], 12 + 48)
    [loss] = item_losses(run.table.samples, run.alone)
    assert loss.alone.mean == 1.0
    assert loss.by_length[1024].mean == 0.0
    assert loss.by_length[4096].mean == pytest.approx(-1.0, abs=0.1)
    assert loss.at.lost == 4096
    assert set(loss.by_depth) == {0.0, 1.0}
    assert "surely more at 4k" in format_length_of_loss(loss)
    section = embed_section([run], ["x"])
    assert section is not None
    [figure] = section.figures
    assert "depth 0%, 4k: -100.0 points, 12 answers" in figure.draw(False).alternative
    assert "Loss against the items alone" in page([run])
    both = embed_section([run, run], ["a", "b"])
    assert both is not None
    resumed = load_run(measure(make_spec(run.manifest.spec), run.folder).folder)
    assert resumed.totals.asked == 60


def test_a_file_of_few_items_bounds_the_samples(tmp_path: Path) -> None:
    path = write_rows(tmp_path, *ROWS.values())
    run = simulated_run(
        tmp_path, ["embed"], lengths=[0, 600], depths=[0.5], samples=9, options={"data": str(path), "haystack": "noise"}
    )
    assert run.totals.planned == 8
    assert {record.question.labels["item"] for record in run.records} == {"1", "2", "x7", "4"}
    assert {next(iter(r.scores)) for r in run.records if r.question.labels["item"] == "4"} == {"match.exact"}


def test_length_0_is_refused_where_it_means_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no length 0"):
        simulated_run(tmp_path, ["niah"], lengths=[0, 1024], depths=[0.5], samples=1)
    with pytest.raises(UsageError, match="another one beside it"):
        parse_lengths("0")
    with pytest.raises(UsageError, match="asks it alone"):
        registry.task(TaskSpec(name="embed", options={"no_context": True}))
