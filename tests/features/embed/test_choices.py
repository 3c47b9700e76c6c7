"""Rows with choices, numbers with commas and tables of any separator: read right, or refused with line and field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.core.errors import LeadlineError
from leadline.core.seeds import digest
from leadline.features.embed.items import read_items


def targets_of(folder: Path, *rows: dict[str, Any]) -> list[tuple[str, ...]]:
    """In the order of the rows."""
    path = folder / f"{digest(rows)}.jsonl"  # files are read once
    path.write_text("".join(json.dumps({"question": "q", "id": n, **row}) + "\n" for n, row in enumerate(rows, 1)))
    items = {item.id: item.targets for item in read_items(path).items}
    return [items[str(n)] for n in range(1, len(rows) + 1)]


def refused(folder: Path, text: str, name: str = "items.jsonl") -> str:
    """Where, what and fix of the error."""
    path = folder / name
    path.write_text(text)
    with pytest.raises(LeadlineError) as caught:
        read_items(path)
    assert caught.value.fix
    return f"{caught.value.where} | {caught.value.what} | {caught.value.fix}"


def row(**fields: Any) -> str:
    return json.dumps({"question": "q", **fields}) + "\n"


ARC_NUMBERS = {"text": ["moss", "fern", "oak", "pine"], "label": ["1", "2", "3", "4"]}
ARC_LETTERS = {"text": ["moss", "fern", "oak"], "label": ["A", "B", "C"]}


def test_the_labels_of_arc_name_its_choices(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"choices": ARC_NUMBERS, "answerKey": "1"},
        {"choices": ARC_NUMBERS, "answerKey": "4"},
        {"choices": ARC_LETTERS, "answerKey": "B"},
        {"choices": ARC_NUMBERS, "answer": 2},
        {"choices": ARC_LETTERS, "answer": "oak"},
        {"choices": {"text": ["2", "1"], "label": ["1", "2"]}, "answerKey": "1"},
    ]
    assert targets_of(tmp_path, *rows) == [("A",), ("D",), ("B",), ("B",), ("C",), ("A",)]


def test_several_accepted_answers_are_several_letters(tmp_path: Path) -> None:
    assert targets_of(tmp_path, {"choices": ["a1", "b1", "c1"], "answer": ["A", "c1", "a1"]}) == [("A", "C")]


def test_an_equal_pair_of_wrong_choices_harms_nothing(tmp_path: Path) -> None:
    assert targets_of(tmp_path, {"choices": ["x", "x", " y "], "answer": "y"}) == [("C",)]


def test_the_other_rows_decide_whether_a_number_is_an_index_or_a_text(tmp_path: Path) -> None:
    either: dict[str, Any] = {"choices": ["2", "3", "1", "0"], "answer": 2}
    assert targets_of(tmp_path, either, {"choices": ["x", "y"], "answer": 0}) == [("C",), ("A",)]
    assert targets_of(tmp_path, either, {"choices": ["10", "20"], "answer": "20"}) == [("A",), ("B",)]
    mixed = row(choices=["x", "y"], answer=0) + row(choices=["10", "20"], answer="20")
    assert "choice C by its number, and choice A by its text" in refused(tmp_path, row(**either) + mixed)


REFUSED = [
    (row(choices=["a", "a", "b"], answer="a"), "items.jsonl:1, answer", "A and B are both 'a'", "one choice is right"),
    (row(choices=["a", "b ", "b"], answer="C"), "items.jsonl:1, answer", "B and C are both 'b'", "change or remove"),
    (row(choices=["2", "3", "0"], answer="2"), "items.jsonl:1, answer", "choice C by its number", "letter C or A"),
    (row(choices=["B", "A"], answer="A"), "items.jsonl:1, answer", "A by its letter, and choice B", "from 0, 0 or 1"),
    (row(choices=["a", " "], answer="A"), "items.jsonl:1, choices", "choice B is empty", "give every choice a text"),
    (row(choices=[], answer="A"), "items.jsonl:1, choices", "not a list of 2", "docs/embed.md"),
    (row(choices=["x", "y"], answer=2), "items.jsonl:1, answer", "the numbers 0 to 1", "counted from 1, take 1 off"),
    (row(choices=["x", "y"], answer="9" * 5000), "items.jsonl:1, answer", "none of the 2", "the letter"),
    (row(choices=["w", "x", "y", "z"], answer=1) * 25, "items.jsonl:1, answer", "25 answers", "take 1 off each"),
    (row(choices=ARC_NUMBERS, answerKey="5"), "items.jsonl:1, answerKey", "none of the 4", "1, 2, 3, 4"),
    (row(choices={"text": ["a", "b"], "label": ["A", "A"]}, answerKey="A"), ":1, choices", "1 different", "its own"),
    (row(choices={"text": ["a", "b"], "label": ["A"]}, answerKey="A"), ":1, choices", "1 different", "its own"),
    (row(answer="#### twelve"), "items.jsonl:1, answer", "not a number: 'twelve'", "#### 1042"),
    (row(answer="3,5"), "items.jsonl:1, answer", "separates no thousands", "3.5"),
    (row(answer="#### 3,5"), "items.jsonl:1, answer", "separates no thousands", "3.5"),
    (row(answer=float("nan")), "items.jsonl:1, answer", "no text, number", "docs/embed.md"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "where", "what", "fix"), REFUSED)
def test_a_row_without_a_single_reading_is_refused(text: str, where: str, what: str, fix: str, tmp_path: Path) -> None:
    error = refused(tmp_path, text)
    for part, wanted in zip(error.split(" | "), (where, what, fix), strict=True):
        assert wanted in part


def test_numbers_from_0_are_believed_where_one_is_0(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"choices": ["w", "x", "y", "z"], "answer": n} for n in (0, *[1] * 40)]
    assert targets_of(tmp_path, *rows) == [("A",), *[("B",)] * 40]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("name", ["items.csv", "items.tsv"])
def test_a_table_is_read_whatever_separates_its_cells(name: str, separator: str, tmp_path: Path) -> None:
    lines = [["question", "A", "B", "C", "answer"], ['"one, two; or\tthree?"', "1,5", "2", "", "B"]]
    cells = [[f'"{cell}"' if separator in cell and cell[0] != '"' else cell for cell in line] for line in lines]
    path = tmp_path / name
    path.write_text("\ufeff" + "\r\n".join(separator.join(line) for line in cells) + "\r\n")
    [item] = read_items(path).items
    assert (item.targets, item.choices) == (("B",), ("1,5", "2"))
    assert item.text.startswith("one, two; or\tthree?")


TABLES = [
    ("question,A,B,C,answer\nx,a,b,c,A\nx,a,,c,B\n", "items.csv:3, B", "B is empty and choice C is not", "fill in B"),
    ("question,A,B,D,answer\nx,a,b,d,D\n", "items.csv:1, D", "a column D and none C", "without a gap"),
    ("question,answer,answer\nx,y,z\n", "items.csv:1, answer", "two columns are called answer", "rename"),
    ('question,choices,answer\nx,"[a, b]",a\n', "items.csv:2, choices", "in one cell", "the columns A, B, C"),
    ("question;answer\nx;3,5\n", "items.csv:2, answer", "separates no thousands", "3.5"),
    ("question;answer\nx;y;z\n", "items.csv:2", "3 cells in a table of 2", "docs/embed.md"),
]


@pytest.mark.parametrize(("text", "where", "what", "fix"), TABLES)
def test_a_table_without_a_single_reading_is_refused(
    text: str, where: str, what: str, fix: str, tmp_path: Path
) -> None:
    error = refused(tmp_path, text, "items.csv")
    for part, wanted in zip(error.split(" | "), (where, what, fix), strict=True):
        assert wanted in part
