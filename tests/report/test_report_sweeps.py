"""A sweep over the values of an option: one panel, a line for each value, in the order of the values."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest

from leadline.core.types import Cell
from leadline.report.charts.curves import curves, sweeps_of
from leadline.report.charts.grid import task_grid
from leadline.report.charts.render import render
from leadline.report.charts.theme import SERIES
from leadline.results.run import Run, load_run
from leadline.results.verdict import verdict
from support.planted_runs import cliff, decay, perfect, planted_record, write_run

CHANCES = {"vt[hops=8]": decay, "vt[hops=2]": perfect, "vt[hops=16]": cliff}


def run_of(folder: Path, tasks: list[str]) -> Run:
    cells = [
        Cell(task, length, depth, sample)
        for task in tasks
        for length in (4096, 65536)
        for depth in (0.0, 1.0)
        for sample in range(3)
    ]
    records = [planted_record(c, CHANCES.get(c.task, perfect)(c.length, c.depth or 0.0)) for c in cells]
    return load_run(write_run(folder, records))


def test_labels_of_a_sweep_are_grouped_by_task_and_option_and_sorted_by_number() -> None:
    tasks = (
        "vt[hops=8] cwe vt[hops=16] niah[keys=4,values=1] niah[keys=4,values=2] vt[hops=2] qa_1[no_context] "
        "niah[haystack=prose:0.5,code:0.5] niah[haystack=noise] fwe[alpha=2.0]"
    ).split()
    vt, pairs, haystacks = sweeps_of(tasks)
    assert (vt.family, vt.options, vt.values) == ("vt", ("hops",), ("2", "8", "16"))
    assert vt.tasks == ("vt[hops=2]", "vt[hops=8]", "vt[hops=16]")
    assert (pairs.options, pairs.values) == (("keys", "values"), ("4, 1", "4, 2"))
    assert haystacks.values == ("prose:0.5,code:0.5", "noise")
    assert vt.is_ordered
    assert not pairs.is_ordered
    assert haystacks.colours() == list(SERIES[:2])
    assert len(set(vt.colours())) == 3


def test_a_swept_option_has_a_line_for_each_value(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", list(CHANCES))
    figure = curves(run)
    alt.Chart.from_dict(figure.spec(), validate=True)
    rows = figure.data["sweep0"]
    assert list(dict.fromkeys(r["series"] for r in rows)) == ["2", "8", "16"]
    for row in rows:
        task = f"vt[hops={row['series']}]"
        length = {"4k": 4096, "64k": 65536}[row["length"]]
        assert row["mean"] == run.table.by_task_and_length[task, length].mean
    svg = render(figure, "svg").decode()
    assert "vt by hops" in svg
    assert len(re.findall('aria-roledescription="mean"', svg)) == 6
    assert "vt by hops: 2 4k 100%" in figure.alternative


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("others", [["cwe"], [f"task {n}" for n in range(8)]])
def test_other_tasks_have_a_panel_beside_the_sweep(others: list[str], tmp_path: Path) -> None:
    figure = curves(run_of(tmp_path / "run", [*CHANCES, *others]))
    alt.Chart.from_dict(figure.spec(), validate=True)
    assert {r["series"] for r in figure.data["lines"]} == set(others)
    svg = render(figure, "svg").decode()
    assert "vt by hops" in svg
    assert ("cwe" if len(others) == 1 else "other tasks") in svg


def test_long_values_that_begin_alike_have_rows_and_lines_of_their_own(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [f"niah[haystack=texts/{'deep/' * 12}{name}.txt]" for name in ("alpha", "beta")])
    (lines,) = curves(run).data.values()
    assert len({row["series"] for row in lines}) == 2
    grid = task_grid(run, verdict(run))
    assert len({row["row"] for row in grid.data["cells"]}) == 3, "two tasks and their average"
    assert all(len(row["row"]) <= 40 for row in grid.data["cells"])


def test_a_task_called_average_keeps_its_own_mean(tmp_path: Path) -> None:
    run = load_run(
        write_run(
            tmp_path / "run",
            [
                planted_record(Cell(task, length, 0.5, sample), chance)
                for task, chance in (("average", 0.0), ("niah", 1.0))
                for length in (4096, 8192)
                for sample in range(3)
            ],
        )
    )
    cells = task_grid(run, verdict(run)).data["cells"]
    assert [row["mean"] for row in cells if row["length"] == "average"] == pytest.approx([0.0, 1.0, 0.5])


def test_many_values_still_have_a_line_each(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", [f"vt[hops={n}]" for n in range(1, 13)])
    figure = curves(run, narrow=True)
    assert len({r["series"] for r in figure.data["sweep0"]}) == 12
    assert "average" not in figure.data


def test_effective_lengths_stand_beside_their_rows_where_a_task_has_none(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", ["niah", "kv"])
    whole = verdict(run)
    grid = task_grid(run, replace(whole, by_task={"kv": whole.by_task["kv"]}))
    rows = [(row["row"], row["effective"]) for row in grid.data["effective"]]
    assert rows[:2] == [("niah", "–"), ("kv", str(whole.by_task["kv"]))]
