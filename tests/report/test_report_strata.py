"""What was asked is a curve of its own: in the terminal, on the page, in figures and in JSON, from one place."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from leadline.cli.main import run_command
from leadline.core import registry
from leadline.core.spec import make_spec
from leadline.report.charts.curves import curves
from leadline.report.score_tables import stratum_table, verdict_table
from leadline.report.terminal import show_run
from leadline.results.breakdowns import task_verdicts
from leadline.results.run import Run, load_run
from leadline.results.verdict import verdict_by_task
from leadline.run.measure import measure


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("strata") / "run"
    tasks = [{"name": "graphwalks", "placement": "anywhere", "empty": 0}, {"name": "aggregate"}, "niah_single_1"]
    spec = {"model": "sim:decay?window=4k", "tasks": tasks, "lengths": "2k,4k,8k", "samples": 24, "depths": 2}
    measure(make_spec({**spec, "reading": "shared"}), folder)
    return load_run(folder)


@pytest.mark.slow
def test_strata_are_those_of_the_records_in_their_natural_order(run: Run) -> None:
    found = {task: [s.value for s in run.strata if s.task == task] for task in run.table.tasks}
    assert found["graphwalks"] == ["bfs 1", "bfs 2", "bfs 3", "parents"]
    assert found["aggregate"] == sorted(found["aggregate"])
    assert found["niah_single_1"] == []
    for stratum in run.strata:
        for length, estimate in stratum.by_length.items():
            mine = [
                r.score
                for r in run.records
                if (r.cell.task, r.cell.length, r.question.labels.get("operation"))
                == (stratum.task, length, stratum.value)
            ]
            assert estimate.n == len(mine)
            assert estimate.mean == pytest.approx(sum(s or 0 for s in mine) / len(mine))


@pytest.mark.slow
def test_every_task_has_a_verdict_with_its_weakest_stratum(run: Run) -> None:
    verdicts = {v.task: v for v in verdict_by_task(run)}
    assert list(verdicts) == run.table.tasks
    walks = verdicts["graphwalks"]
    assert walks.longest == 8192
    assert walks.weakest is not None
    assert walks.weakest_mean is not None
    assert walks.weakest_mean.mean == min(s.by_length[8192].mean for s in run.strata if s.task == "graphwalks")
    assert walks.mistake == "wrong depth of the walk"
    assert verdicts["niah_single_1"].weakest is None


@pytest.mark.parametrize(
    ("counts", "usual"),
    [({}, ("", 0)), ({"a": 2}, ("a", 2)), ({"a": 2, "b": 3}, ("b", 3)), ({"a": 3, "b": 3}, ("", 0))],
)
def test_of_mistakes_that_tie_none_is_the_usual_one(counts: dict[str, int], usual: tuple[str, int]) -> None:
    run = SimpleNamespace(
        tasks=["niah"], lengths_of=lambda task: [], by_task_and_length={}, details={("niah", 1024): counts}
    )
    [found] = task_verdicts(run, (), {})  # type: ignore[arg-type]
    assert (found.mistake, found.mistakes) == usual


@pytest.mark.slow
def test_terminal_page_figure_and_json_show_the_same(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    shown = io.StringIO()
    show_run(run, Console(file=shown, width=200))
    for row in (*stratum_table(run).cells, *verdict_table(run).cells):
        assert row[1].text in shown.getvalue()
    drawn = curves(run)
    assert {row["series"] for row in drawn.data["strata1"]} == {"bfs 1", "bfs 2", "bfs 3", "parents"}
    assert run_command(["report", str(run.folder), "--json"]) == 0
    stated = json.loads(capsys.readouterr().out)
    assert len(stated["strata"]) == len(run.strata)
    assert [v["task"] for v in stated["verdicts"]] == run.table.tasks


@pytest.mark.slow
@pytest.mark.parametrize("name", ["frontier", "frontier-quick"])
def test_a_suite_of_all_families_reads_few_documents(name: str, tmp_path: Path) -> None:
    values = registry.find("suites", name).values
    spec = make_spec({**values, "model": "sim:perfect", "lengths": "4k", "samples": 8})
    families = {task.name for task in spec.tasks}
    assert families == {"mrcr", "graphwalks", "aggregate", "worlds", "ladder", "niah_forms"}
    for task in spec.tasks:
        assert registry.task(task).samples_per_document >= 12
    if name == "frontier-quick":
        measure(spec, tmp_path / "run")
        found = load_run(tmp_path / "run")
        assert found.table.whole.mean == 1.0
        assert len({r.cluster for r in found.records}) == len(spec.tasks)
