"""Figures are drawn in another process, whose death is an error with a reason and not the end of this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.core.errors import RenderError
from leadline.report.charts.heatmap import heatmap
from leadline.report.charts.render import RenderProcess, render
from leadline.results.run import Run, load_run
from support.planted_runs import cliff, planted_records, write_run

BAR = {"data": {"values": [{"a": 1}]}, "mark": "bar", "encoding": {"x": {"field": "a", "type": "quantitative"}}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    records = list(planted_records(cliff, lengths=[1024, 65536], depths=[0.0, 1.0]))
    return load_run(write_run(tmp_path_factory.mktemp("runs") / "one", records))


@pytest.fixture
def process() -> Iterator[RenderProcess]:
    made = RenderProcess()
    yield made
    made.close()


def draw(process: RenderProcess) -> str:
    return str(process.submit("vegalite_to_svg", vl_spec=BAR).result())


def child(process: RenderProcess) -> subprocess.Popen[bytes]:
    found = process._process
    assert found is not None
    return found


def test_the_library_is_never_loaded_in_this_process(run: Run) -> None:
    assert render(heatmap(run), "png").startswith(b"\x89PNG")
    assert "vl_convert" not in sys.modules


def test_the_process_starts_with_the_first_figure_and_is_kept(process: RenderProcess) -> None:
    assert process._process is None
    assert draw(process).startswith("<svg")
    first = child(process)
    assert draw(process).startswith("<svg")
    assert child(process) is first


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGKILL])
def test_a_dead_process_is_an_error_and_the_next_figure_gets_a_new_one(
    process: RenderProcess, number: signal.Signals
) -> None:
    draw(process)
    os.kill(child(process).pid, number)
    child(process).wait()
    with pytest.raises(RenderError, match=f"the drawing process died .{number.name}"):
        draw(process)
    assert draw(process).startswith("<svg")


@pytest.mark.slow
def test_a_dead_process_is_not_blamed_for_what_another_printed(process: RenderProcess) -> None:
    messages = []
    for printed in (b"fatal: the first\n", b""):
        draw(process)
        os.write(process._errors.fileno(), printed)
        os.kill(child(process).pid, signal.SIGKILL)
        child(process).wait()
        with pytest.raises(RenderError) as caught:
            draw(process)
        messages.append(caught.value.what)
    assert "the first" in messages[0]
    assert "the first" not in messages[1]


def test_a_process_that_cannot_start_is_an_error(process: RenderProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(RenderError, match="cannot be started"):
        draw(process)


@pytest.mark.slow
def test_an_invalid_definition_is_an_error_and_the_process_lives_on(process: RenderProcess) -> None:
    with pytest.raises(RenderError, match="cannot be drawn"):
        process.submit("vegalite_to_svg", vl_spec={"mark": {"type": "nothing"}, "encoding": 5}).result()
    assert draw(process).startswith("<svg")


@pytest.mark.slow
def test_closing_ends_the_process(process: RenderProcess) -> None:
    figure = process.submit("vegalite_to_svg", vl_spec=BAR)
    figure.result()
    started = child(process)
    process.close()
    assert started.returncode == 0


@pytest.mark.slow
def test_a_program_that_draws_ends_by_itself(tmp_path: Path, run: Run) -> None:
    program = (
        "from leadline.report.charts.heatmap import heatmap\n"
        "from leadline.report.charts.render import write_figure\n"
        "from leadline.results.run import load_run\n"
        f"write_figure(heatmap(load_run({str(run.folder)!r})), __import__('pathlib').Path('map'), ['svg'])\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0
    assert (tmp_path / "map.svg").exists()


@pytest.mark.slow
def test_a_file_in_the_current_folder_is_not_taken_for_a_library(
    process: RenderProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vl_convert.py").write_text("raise SystemExit('taken for the library')")
    monkeypatch.chdir(tmp_path)
    assert draw(process).startswith("<svg")
