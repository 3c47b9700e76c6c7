"""A model that a list gives a name is called so wherever people read of it; what it is stands in the details."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from leadline.features.dashboard.pages import RunQuery, list_runs
from leadline.features.dashboard.run_folders import RunIndex
from leadline.features.trackers.entry import tracker_entry
from leadline.report.charts.heatmap import heatmap
from leadline.report.export import markdown
from leadline.report.page import page
from leadline.report.terminal import show_run
from leadline.results.run import Run, load_run
from leadline.results.summary import summary
from leadline.results.verdict import verdict
from support.planted_runs import cliff, perfect, planted_records, write_run

NAME, MODEL = "4000, stretched", "hf:checkpoints/4000?rope=yarn:4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a name and one without."""
    made = tmp_path_factory.mktemp("runs")
    for name, model, surface in ((NAME, MODEL, cliff), ("", "hf:checkpoints/4000", perfect)):
        records = list(planted_records(surface, lengths=[1024, 65536], depths=[0.0, 1.0], model=model))
        write_run(made / ("named" if name else "plain"), records, name=name)
    return made


@pytest.fixture(scope="module")
def runs(folder: Path) -> list[Run]:
    return [load_run(folder / "named"), load_run(folder / "plain")]


def test_figures_and_verdicts_call_a_model_by_its_name(runs: list[Run]) -> None:
    figure = heatmap(runs[0])
    assert figure.spec()["title"]["text"] == NAME
    assert NAME in figure.alternative
    assert verdict(runs[0]).headline.startswith(NAME)
    assert heatmap(runs[1]).spec()["title"]["text"] == "hf:checkpoints/4000"


def test_the_page_and_its_leaderboard_name_it_and_its_details_say_what_it_is(runs: list[Run]) -> None:
    together = page(runs)
    assert f'<th scope="row">{NAME}</th>' in together
    assert f"hf:checkpoints/4000 compared with {NAME}" in together
    alone = page(runs[:1])
    assert f"<title>{NAME} " in alone
    assert f'<h1 class="model">{NAME} <small>{MODEL}</small></h1>' in alone
    assert f"<dd>{MODEL}</dd>" in alone


def test_markdown_and_the_terminal_name_it(runs: list[Run]) -> None:
    assert f"| {NAME} | " in markdown(runs, [])
    screen = io.StringIO()
    show_run(runs[0], Console(file=screen, width=200))
    assert screen.getvalue().startswith(f"{NAME} · {MODEL} · ")


def test_programs_read_both(runs: list[Run]) -> None:
    found = summary(runs[0])
    assert (found["name"], found["model"]) == (NAME, MODEL)
    assert summary(runs[1])["name"] == "hf:checkpoints/4000"


@pytest.mark.parametrize(
    ("name", "line"),
    [(NAME, "stretched"), ("stretched", "stretched"), ("4000", "hf:checkpoints?rope=yarn:4"), ("yarn 4", "yarn 4")],
)
def test_a_tracker_takes_the_line_from_the_name_and_the_step_from_the_model(
    name: str, line: str, tmp_path: Path
) -> None:
    records = list(planted_records(cliff, lengths=[1024], depths=[0.5], model=MODEL))
    entry = tracker_entry(load_run(write_run(tmp_path, records, name=name)), "auto")
    assert (entry.step, entry.name) == (4000, line)
    assert (entry.facts["name"], entry.facts["model"]) == (name, MODEL)


def test_the_list_of_runs_shows_it_and_finds_it_by_name_and_model(folder: Path) -> None:
    entries = RunIndex([folder]).entries()
    for words in ("stretched", "yarn"):
        found = list_runs(entries, RunQuery(words), lambda entry: None)
        assert [entry.title for entry in found.shown] == [NAME]
