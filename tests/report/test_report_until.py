"""Runs that stop by themselves: their intervals hold at every look, and every place that shows one says so."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from leadline.cli.main import run_command
from leadline.features.dashboard.live import headline_of
from leadline.report.charts.curves import curves
from leadline.report.charts.heatmap import heatmap
from leadline.report.comparison import differences_from_first
from leadline.report.export import markdown
from leadline.report.page import page
from leadline.report.terminal import show_run
from leadline.results.run import Run, load_run
from leadline.results.summary import summary
from leadline.results.verdict import verdict
from support.planted_runs import cliff, planted_records, write_run

WORDS = "95% confidence sequences"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The same records as a run of a fixed number and as one that stopped by itself, at 128k after fewer rounds."""
    folder = tmp_path_factory.mktemp("until")
    records = [
        r
        for r in planted_records(cliff, lengths=[16384, 32768, 65536, 131072], depths=[0.0, 0.5, 1.0], samples=24)
        if r.cell.length < 131072 or r.cell.sample < 4
    ]
    fixed, stopped = (write_run(folder / name, records, samples=24) for name in ("fixed", "stopped"))
    manifest = json.loads((stopped / "manifest.json").read_text())
    manifest["spec"]["until"] = "effective"
    (stopped / "manifest.json").write_text(json.dumps(manifest))
    return load_run(fixed), load_run(stopped)


def test_every_interval_is_a_sequence_and_wider(runs: tuple[Run, Run]) -> None:
    fixed, stopped = runs
    for view in ("cells", "by_task_and_length", "by_length", "by_task"):
        plain, wide = getattr(fixed.table, view), getattr(stopped.table, view)
        assert all(tally.interval.method == "confidence sequence" for tally in wide.values())
        for key, tally in wide.items():
            assert tally.mean == plain[key].mean
            assert tally.interval.half_width > plain[key].interval.half_width, key
            assert tally.interval.holds(tally.mean)
    assert {t.interval.method for t in fixed.table.cells.values() if t.interval} == {"wilson"}


def test_the_dashboard_shows_the_same_ends_as_the_report(runs: tuple[Run, Run]) -> None:
    glances = [headline_of(load_run(run.folder)) for run in runs]
    for run, glance in zip(runs, glances, strict=True):
        found = verdict(run).effective
        assert found is not None
        assert (glance.effective, glance.ends) == (found.point, found.ends)
    assert glances[0].mean == glances[1].mean
    assert glances[0].spread != glances[1].spread


def test_effective_length_lies_between_lengths_that_are_decided(runs: tuple[Run, Run]) -> None:
    found = verdict(runs[1])
    assert found.effective is not None
    assert (found.effective.low, found.effective.high) == (32768, 65536)
    assert found.by_task["niah"].low == 32768
    assert summary(runs[1])["effective_length"]["low"] == 32768


def test_what_kind_of_intervals_they_are_stands_beside_them(runs: tuple[Run, Run]) -> None:
    fixed, stopped = runs
    for figure in (heatmap, curves):
        assert WORDS in json.dumps(figure(stopped).spec())
        assert "confidence sequence" not in json.dumps(figure(fixed).spec())
    screen = io.StringIO()
    show_run(stopped, Console(file=screen, width=200))
    assert WORDS in screen.getvalue()
    assert "A rule chose the number of samples (until effective)" in screen.getvalue()
    assert "stopped by" not in screen.getvalue(), "it may be undecided"
    assert "A rule chose the number of samples of each cell (until effective)" in page([stopped])
    assert WORDS in markdown([stopped], [])
    both = page([fixed, stopped])
    assert "95% intervals over documents; of runs that stopped by themselves 95% confidence sequences" in both


def test_a_difference_says_that_its_intervals_are_too_narrow(runs: tuple[Run, Run]) -> None:
    fixed, stopped = runs
    assert not differences_from_first([fixed, fixed], ["a", "b"])[0].warnings
    (found,) = differences_from_first([stopped, stopped], ["a", "b"])
    assert "too narrow" in found.warnings[0]


def test_only_the_lengths_that_were_asked_are_called_all(tmp_path: Path) -> None:
    records = list(planted_records(cliff, lengths=[16384, 32768, 65536], depths=[0.0, 1.0], samples=4))
    folder = write_run(tmp_path / "run", records, samples=4)
    assert any(line.startswith("Over all lengths and depths") for line in verdict(load_run(folder)).findings)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["spec"] |= {"until": "effective", "lengths": [16384, 32768, 65536, 131072]}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    found = verdict(load_run(folder))
    assert any(line.startswith("Over the lengths and depths that were asked it is right") for line in found.findings)
    assert not any("all lengths" in line for line in found.findings)
    assert any(line.startswith("Nothing longer than 64k") for line in found.not_measured)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["sim:perfect?noise=0.05", "sim:cliff?window=1500"])
def test_headline_table_json_and_stopping_sentence_are_one_procedure(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "niah", "--model", model, "--lengths", "256,512,1k,2k", "--depths", "3", "--samples", "100"]
    run_command([*command, "--until", "effective", "--no-figure", "--out", str(tmp_path / "run")])
    printed = "".join(capsys.readouterr())
    run = load_run(tmp_path / "run")
    found, values = verdict(run), summary(run)["effective_length"]
    rows = {length: tally.interval for length, tally in run.table.by_length.items() if tally.interval}
    assert found.effective is not None
    if "cliff" in model:
        assert "1k reaches a score of 85.6, 2k does not (95% at every look)" in printed
        assert found.claim.startswith("Can use 1k of the 1500 tokens it claims (95%: at least 1k, below 2k)")
        assert (values["low"], values["high"], values["decided"]) == (1024, 2048, True)
        assert rows[1024].low >= 0.856 > rows[2048].high
    else:
        assert "at least 2k (95% at every look)" in printed
        assert found.claim.startswith("Can use at least 2k tokens")
        assert (values["low"], values["high"], values["decided"]) == (2048, None, True)
        assert rows[2048].low >= 0.856
    assert found.effective.by_rule
