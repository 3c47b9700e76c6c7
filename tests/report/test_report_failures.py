"""How samples without an answer enter a mean is a choice, and said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from leadline.cli.main import run_command
from leadline.results.run import load_run
from leadline.results.summary import summary, totals_values
from leadline.results.verdict import verdict
from support.planted_runs import failed_record, perfect, planted_records, write_run

ASK = ["--lengths", "512,1k", "--depths", "3", "--samples", "6", "--attempts", "1", "--no-figure"]


def test_failed_samples_are_left_out_or_counted_as_wrong_and_the_report_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    assert run_command(["run", "niah", "--model", "sim:flaky?rate=0.4", *ASK, "--out", folder]) == 1
    assert "wrong answers" not in capsys.readouterr().out, "no answer is no wrong answer"
    found = {}
    for failures in ("excluded", "zero"):
        assert run_command(["report", folder, "--json", "--failures", failures]) == 0
        found[failures] = json.loads(capsys.readouterr().out)
    assert found["excluded"]["failed"] == found["zero"]["failed"] > 0
    assert found["excluded"]["mean"] == 1.0
    assert found["zero"]["mean"] == pytest.approx(found["excluded"]["mean_if_failed_were_wrong"])
    assert found["excluded"]["counting"] != found["zero"]["counting"]
    assert found["excluded"]["effective_length"]["words"] == "not decided (95%: anything from below 512 to above 1k)"
    assert found["zero"]["effective_length"]["words"].startswith("below 512")
    assert "Healthy" in found["excluded"]["diagnosis"][0] or "No weak length" in found["excluded"]["diagnosis"][0]
    assert found["zero"]["diagnosis"][0].startswith("No pattern: about ")
    assert "leave them out" not in found["zero"]["counting"]
    assert "They count as wrong. " in verdict(load_run(folder, "zero")).headline
    assert "failed samples are in no mean." in verdict(load_run(folder)).not_measured[-1]
    assert "failed samples count as wrong." in verdict(load_run(folder, "zero")).not_measured[-1]


def test_the_report_names_the_shape_and_the_effective_length_of_its_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    assert (
        run_command(
            ["run", "niah", "--model", "sim:cliff?window=1100", *ASK, "--lengths", "512,1k,2k,4k", "--out", folder]
        )
        == 0
    )
    capsys.readouterr()
    assert run_command(["report", folder, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "cliff" in found["diagnosis"][0].lower()
    parts = found["effective_length_of_parts"]
    assert set(parts) == {"task", "category", "depth", "own_score"}
    assert parts["category"]["retrieval"]["words"]
    assert set(parts["depth"]) == {"first third", "middle third", "last third"}


def test_what_wrong_answers_had_in_common_is_shown_by_task_and_length(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    words = [
        "run",
        "vt",
        "--model",
        "sim:cliff?window=1500",
        "--set",
        "chains=3",
        "--lengths",
        "1k,2k",
        "--samples",
        "4",
    ]
    assert run_command([*words, "--depths", "2", "--no-figure", "--out", folder]) == 0
    shown = capsys.readouterr().out
    assert "wrong answers" in shown
    assert run_command(["report", folder, "--json"]) == 0
    lengths = {row["length"]: row for row in json.loads(capsys.readouterr().out)["lengths"]}
    assert lengths[1024]["details"] == {}
    wrong = lengths[2048]["details"]["another chain"]
    assert 1 <= wrong <= 8
    assert [line.split()[-2] for line in shown.splitlines() if "another chain" in line] == [str(wrong)]
    assert run_command(["report", folder]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    row = page[page.index("another chain</th>") :]
    assert [cell.partition("<")[0] for cell in row.split("<td>")[1:3]] == ["", str(wrong)]


def test_every_wrong_answer_is_in_the_table_by_its_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "niah", "--model", "sim:cliff?window=1k", "--lengths", "1k,4k", "--samples", "8", "--depths", "1"]
    assert run_command([*words, "--no-figure", "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    answers = re.search(r"^answers +(.*)$", shown, re.MULTILINE)
    assert answers is not None
    classes = {name: int(count) for count, name in re.findall(r"(\d+) ([a-z ]+)", answers[1])}
    seen: dict[str, int] = {}
    for line in shown.splitlines():
        if line.startswith("| niah |") and "k |" not in line:
            _, _, name, *counts = (cell.strip() for cell in line.split("|")[:-1])
            name = name.partition(":")[0]
            seen[name] = seen.get(name, 0) + sum(int(c) for c in counts if c)
    assert classes.pop("correct") == 8
    assert seen == classes, "one vocabulary, and no class is left out"
    assert "depth down" not in shown, "one depth is in the table already"


def test_a_failed_sample_has_no_receipt_to_give(tmp_path: Path) -> None:
    records = list(planted_records(perfect, lengths=[1024, 2048], depths=[0.5], samples=4))
    records[0] = failed_record(records[0].cell)
    run = load_run(write_run(tmp_path / "run", records, samples=4))
    receipts = summary(run)["receipts"]
    assert receipts == totals_values(run)["receipts"]
    assert receipts["not_given"] == run.receipts.not_given == 0
    assert receipts["equal"] + receipts["different"] == 7
