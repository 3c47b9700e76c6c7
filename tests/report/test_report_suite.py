"""RULER's summary of a run of several tasks: terminal, JSON, Markdown, LaTeX and page, against arithmetic by hand."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from leadline.cli.main import run_command
from leadline.core.format import format_percent_range
from leadline.report.export import markdown
from leadline.report.page import page
from leadline.report.score_tables import suite_latex, suite_table
from leadline.report.terminal import show_run
from leadline.results.run import load_run

TASKS = ("niah_single", "niah_multikey_1", "vt", "cwe", "fwe")
GROUPS = {"retrieval": TASKS[:2], "tracing": ("vt",), "aggregation": ("cwe", "fwe")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("suite") / "run"
    words = ["run", "--model", "sim:decay?window=1k", "--lengths", "512,1k,2k", "--depths", "2", "--samples", "4"]
    words += [word for task in TASKS for word in ("--task", task)]
    assert run_command([*words, "--no-figure", "--json", "--out", str(out)]) == 0
    return out


def means(folder: Path) -> dict[str, dict[int, float]]:
    """Percent by task and length, from the lines of the file: every cell of a task has as many samples."""
    found: dict[str, dict[int, list[float]]] = {}
    for line in (folder / "records.jsonl").read_text().splitlines():
        record = json.loads(line)
        score = next(iter(record["scores"].values()))["value"]
        found.setdefault(record["cell"]["task"], {}).setdefault(record["cell"]["length"], []).append(100 * score)
    return {task: {n: sum(v) / len(v) for n, v in sorted(by.items())} for task, by in found.items()}


def over_tasks(scores: dict[str, dict[int, float]], tasks: tuple[str, ...]) -> list[float]:
    return [sum(scores[task][n] for task in tasks) / len(tasks) for n in (512, 1024, 2048)]


def as_json(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run_command(["report", str(folder), "--json", *options]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_averages_are_those_of_ruler(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, scores = as_json(folder, capsys)["suite"], means(folder)
    for name, tasks in (GROUPS | {"average": TASKS}).items():
        row = found["whole"] if name == "average" else next(r for r in found["categories"] if r["name"] == name)
        one, two, three = over_tasks(scores, tasks)
        assert row["average"]["percent"] == pytest.approx((one + two + three) / 3)
        assert row["wavg_inc"]["percent"] == pytest.approx((one + 2 * two + 3 * three) / 6)
        assert row["wavg_dec"]["percent"] == pytest.approx((3 * one + 2 * two + three) / 6)
        above = [n for n, score in zip((512, 1024, 2048), (one, two, three), strict=True) if score > 85.6]
        assert row["effective_tokens"] == max(above, default=None)
        assert row["average"]["low"] < row["average"]["percent"] < row["average"]["high"]


def test_a_suite_is_one_grid_in_the_terminal(folder: Path) -> None:
    out = io.StringIO()
    show_run(load_run(folder), Console(file=out, width=80))
    text = out.getvalue()
    assert len(text.splitlines()) < 40
    assert "depth down" not in text
    one, two, three = over_tasks(means(folder), TASKS)
    [row] = [line.split() for line in text.splitlines() if line.startswith("average ")]
    assert row[1:5] == [f"{value:.1f}" for value in (one, two, three, (one + two + three) / 3)]
    assert [line.split()[0] for line in text.splitlines() if re.match(r"(niah|vt|cwe|fwe)\w* ", line)] == list(TASKS)


def test_few_tasks_keep_their_heatmaps(tmp_path: Path) -> None:
    words = ["run", "--model", "sim:perfect", "--task", "niah", "--task", "vt", "--lengths", "1k", "--samples", "1"]
    assert run_command([*words, "--no-figure", "--json", "--out", str(tmp_path / "two")]) == 0
    out = io.StringIO()
    show_run(load_run(tmp_path / "two"), Console(file=out, width=80))
    assert out.getvalue().count("depth down") == 2


@pytest.mark.slow
def test_the_same_numbers_are_in_markdown_latex_and_page(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = means(folder)["niah_multikey_1"]
    first = [f"{scores[n]:.1f}" for n in (512, 1024, 2048)]
    capsys.readouterr()
    assert run_command(["report", str(folder), "--latex"]) == 0
    latex = capsys.readouterr().out
    assert rf"niah\_multikey\_1 & {' & '.join(first)} &" in latex
    assert latex.startswith(r"\begin{tabular}{lrrrrrrr}")
    assert latex.count(" & ") == 7 * latex.count(r" \\")
    assert run_command(["report", str(folder), "--markdown", "-o", str(folder / "page.html")]) == 0
    assert rf"| niah\_multikey\_1 | {' | '.join(first)} |" in capsys.readouterr().out
    assert f'<th scope="row">niah_multikey_1</th><td>{"</td><td>".join(first)}</td>' in page([load_run(folder)])


def test_a_threshold_moves_the_effective_length_everywhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strict, mild = (as_json(folder, capsys, "--threshold", number) for number in ("99.9", "2"))
    assert (strict["effective_length"]["threshold"], mild["effective_length"]["threshold"]) == (0.999, 0.02)
    assert strict["effective_length"]["length"] < mild["effective_length"]["length"]
    assert strict["suite"]["whole"]["effective"] == "below 512"
    assert mild["suite"]["whole"]["effective"] == "at least 2k"
    assert run_command(["report", str(folder), "--json", "--threshold", "0.85"]) == 64
    assert "write 85" in capsys.readouterr().err


def test_a_length_without_answers_has_no_average(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for line in lines:
        if line["cell"]["length"] == 2048 and line["cell"]["task"] == "vt":
            line |= {"outcome": {"kind": "failure", "why": "timeout", "message": "late"}, "scores": {}}
            line["failure_class"] = "error"
    (broken / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = load_run(broken).suite
    assert found is not None
    rows = {row.name: row for row in found.tasks}
    assert rows["vt"].averages is None
    assert rows["cwe"].averages is not None
    out = io.StringIO()
    show_run(load_run(broken), Console(file=out, width=80))
    assert re.search(r"^vt .* – ", out.getvalue(), re.M)


def test_a_suite_without_an_answer_has_a_table_of_failures(folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "failed"
    broken.mkdir()
    (broken / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for line in lines:
        line |= {"outcome": {"kind": "failure", "why": "timeout", "message": "late"}, "scores": {}}
        line["failure_class"] = "error"
    (broken / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert load_run(broken).suite is None
    out = io.StringIO()
    show_run(load_run(broken), Console(file=out, width=80))
    assert out.getvalue().count("niah_multikey_1") == 3
    assert run_command(["report", str(broken), "--latex"]) == 64
    assert run_command(["report", str(broken), "--json"]) == 0


@pytest.mark.slow
def test_the_column_of_rulers_rule_is_not_called_effective(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, out, note = load_run(folder), io.StringIO(), "By RULER's rule: the longest length whose own score is above"
    show_run(run, Console(file=out, width=400))
    capsys.readouterr()
    assert run_command(["report", str(folder), "--latex"]) == 0
    one = capsys.readouterr().out
    assert run_command(["report", str(folder), str(folder), "--latex"]) == 0
    both = capsys.readouterr().out
    shown = [out.getvalue(), markdown([run], ()), one, both, html.unescape(page([run]))]
    assert [text.count(note) for text in shown] == [1] * 5
    assert all("wAvg dec & by RULER's rule" in text for text in (one, both))
    assert not any(re.search(r"(\||&|<th scope=.col.>) *effective *(\||<|\\\\)", text) for text in shown)


def test_an_interval_is_a_range_within_the_scale(folder: Path) -> None:
    run = load_run(folder)
    assert run.suite is not None
    table = suite_table(run)
    [row] = [row for row in table.cells if row[0].text == "95% interval"]
    expected = [format_percent_range(run.suite.whole.scores[length].interval) for length in (512, 1024, 2048)]
    assert [cell.text for cell in row[1:4]] == expected
    ends = [float(end) for cell in row[1:] if cell.text for end in cell.text.split("–")]
    assert 0 <= min(ends) <= max(ends) <= 100
    assert "±" not in " ".join([*table.notes, markdown([run], ()), suite_latex([run], ["run"])])
