"""Drawing beside: the same pictures as in this process, whatever becomes of the other one."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from leadline.report.charts import render as easel
from leadline.report.charts.heatmap import heatmap
from leadline.report.charts.render import drawn, render, render_process
from leadline.results.run import Run, load_run
from support.planted_runs import cliff, planted_records, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    records = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0]))
    return load_run(write_run(tmp_path_factory.mktemp("runs") / "one", records))


def plain(svg: str) -> str:
    """Without the numbers that an engine gives to gradients, which count up as long as it lives."""
    return re.sub(r"gradient_\d+", "gradient", svg)


def refuse(definition: easel.Definition) -> str:
    raise AssertionError("drawn in this process")


def test_a_picture_drawn_beside_is_the_one_drawn_here(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    here = plain(render(heatmap(run), "svg").decode())
    monkeypatch.setattr(easel, "_svg", refuse)
    with render_process():
        assert plain(render(heatmap(run), "svg").decode()) == here
    with pytest.raises(AssertionError, match="this process"):
        render(heatmap(run), "svg")


def test_what_a_dead_process_cannot_draw_is_drawn_here(run: Run) -> None:
    definition = heatmap(run).spec()
    here = plain(drawn(definition).result())
    with render_process():
        made = easel._EASEL.get()
        assert made is not None
        assert made._process is not None
        made._process.kill()
        made._process.wait()
        assert [plain(picture.result()) for picture in (drawn(definition), drawn(definition))] == [here, here]


def test_a_process_that_does_not_start_is_done_without(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with render_process():
        assert drawn(heatmap(run).spec()).result().startswith("<svg")


def test_a_definition_that_cannot_be_drawn_is_told_as_it_is_here() -> None:
    with render_process(), pytest.raises(ValueError, match=r"."):
        drawn({"mark": {"type": "nothing"}, "encoding": 5}).result()


def test_nobody_is_left_waiting_and_nothing_runs_on(run: Run) -> None:
    with render_process():
        made = easel._EASEL.get()
        assert made is not None
        assert made._process is not None
        picture = drawn(heatmap(run).spec())
    assert made._process.returncode == 0
    assert picture.done()


def test_a_file_where_the_command_was_typed_is_not_taken_for_a_library(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit('taken for the library')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(easel, "_svg", refuse)
    with render_process():
        assert drawn(heatmap(run).spec()).result().startswith("<svg")
