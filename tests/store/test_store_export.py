"""Export: the same rows in every format, failures with empty fields rather than zeros."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import msgspec
import pytest

from leadline.core.errors import UsageError
from leadline.core.records import Score
from leadline.store.export import COLUMNS, rows, write_rows
from support.plain_records import record


def test_a_row_is_flat_and_a_failure_has_no_score() -> None:
    right, failed = rows([record(0), record(1, failed=True)])
    assert (right["task"], right["length"], right["depth"], right["sample"]) == ("niah", 1024, 0.5, 0)
    assert (right["score"], right["answer"], right["failure"]) == (1.0, "42", None)
    assert (failed["score"], failed["answer"], failed["failure"]) == (None, None, "server")


def test_csv_and_jsonl_hold_every_record_and_every_score(tmp_path: Path) -> None:
    two = msgspec.structs.replace(record(0, text='a "quote",\nand a line'), scores={"a": Score(1.0), "b": Score(0.5)})
    records = [two, record(1, failed=True)]
    write_rows(records, tmp_path / "r.csv")
    write_rows(records, tmp_path / "r.jsonl")
    with (tmp_path / "r.csv").open(newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == [*COLUMNS, "score.a", "score.b"]
    assert read[0]["answer"] == 'a "quote",\nand a line'
    assert (read[0]["score.b"], read[1]["score.b"], read[1]["score"]) == ("0.5", "", "")
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert lines[1]["failure_message"] == "500"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-2", "@cmd", "\t=1", "\r=1", "\n=1", "＝1"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted_in_csv_alone(tmp_path: Path, text: str) -> None:
    records = [record(0, text=text), record(1, text="1 = 1")]
    write_rows(records, tmp_path / "r.csv")
    write_rows(records, tmp_path / "r.jsonl")
    with (tmp_path / "r.csv").open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["answer"], second["answer"]) == (f"'{text}", "1 = 1")
    assert json.loads((tmp_path / "r.jsonl").read_text().splitlines()[0])["answer"] == text


def test_a_negative_number_stays_a_number_in_csv(tmp_path: Path) -> None:
    scored = msgspec.structs.replace(record(0), scores={"gain": Score(-0.25)})
    write_rows([scored], tmp_path / "r.csv")
    with (tmp_path / "r.csv").open(newline="") as file:
        (read,) = csv.DictReader(file)
    assert read["score"] == "-0.25"


def test_parquet_keeps_texts_exactly_and_another_ending_is_refused(tmp_path: Path) -> None:
    import pyarrow.parquet

    path = write_rows([record(0, text="=1+1"), record(1, failed=True)], tmp_path / "new" / "r.parquet")
    found = pyarrow.parquet.read_table(path).to_pylist()
    assert [row["answer"] for row in found] == ["=1+1", None]
    assert (found[1]["failure"], found[1]["score"]) == ("server", None)
    with pytest.raises(UsageError, match="unknown table format"):
        write_rows([record(0)], tmp_path / "r.xlsx")
