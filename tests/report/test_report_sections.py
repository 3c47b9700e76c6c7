"""The door `leadline.report_sections`: what a section says is in every report, and one that fails hides nothing."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from leadline.core import registry
from leadline.report.charts.heatmap import heatmap
from leadline.report.export import figures_of
from leadline.report.page import page
from leadline.report.sections import ReportSection, SectionFigure, SectionText, main_figure, run_values
from leadline.report.terminal import show_run, show_side_by_side
from leadline.report.text_table import TextTable
from leadline.results.run import Run, load_run
from leadline.results.summary import summary
from support.planted_runs import perfect, planted_records, write_run

Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts functions in place of the installed sections."""

    names, find = registry.names, registry.find

    def replace(**sections: Any) -> None:
        ours = "report_sections"
        monkeypatch.setattr(registry, "names", lambda kind: sorted(sections) if kind == ours else names(kind))
        monkeypatch.setattr(registry, "find", lambda kind, name: sections[name] if kind == ours else find(kind, name))

    return replace


@pytest.fixture
def run(tmp_path: Path) -> Run:
    records = list(planted_records(perfect, lengths=[1024, 4096], depths=[0.0, 1.0], samples=2))
    return load_run(write_run(tmp_path / "run", records, samples=2))


def said(run: Run) -> str:
    shown = io.StringIO()
    show_run(run, Console(file=shown, width=120))
    return shown.getvalue()


def own(runs: Sequence[Run], names: Sequence[str]) -> ReportSection:
    parts = (
        SectionText("A note of mine."),
        SectionText("Mind this <b>.", "warning"),
        TextTable("", ("name", "value"), [("first", "0.5\n0.4 to 0.6")]),
        SectionFigure("mine", lambda narrow: heatmap(runs[0], narrow=narrow), is_main=True),
    )
    return ReportSection(f"Mine, {len(runs)}", parts, {"runs": len(runs)}, link="Mine")


def test_a_section_is_in_the_terminal_the_page_the_json_and_the_figures(run: Run, install: Install) -> None:
    install(mine=own)
    assert "A note of mine." in said(run)
    assert "0.4 to 0.6" in said(run)
    html = page([run])
    assert '<a href="#mine-0">Mine</a>' in html
    assert "<h2>Mine, 1</h2>" in html
    assert '<p class="warning">Mind this &lt;b&gt;.</p>' in html
    section = html.partition('<section id="mine-0">')[2].partition("</section>")[0]
    assert [section.count(each) for each in ('<div class="wide not-phone"', '<div class="wide phone"')] == [1, 1]
    assert run_values(run)["mine"] == {"runs": 1}
    assert "mine" in [name for name, _ in figures_of(run)]
    chosen = main_figure(run)
    assert chosen is not None
    assert chosen.name == "mine"


def test_several_runs_have_one_section_for_all_and_one_each(run: Run, install: Install) -> None:
    install(mine=own)
    html = page([run, run])
    assert [f"<h2>Mine, {n}</h2>" in html for n in (1, 2)] == [True, True]
    shown = io.StringIO()
    show_side_by_side([run, run], ["one", "two"], Console(file=shown, width=120))
    assert "Mine, 2" in shown.getvalue()


@pytest.mark.parametrize(
    ("broken", "reason"),
    [(lambda runs, names: 1 / 0, "ZeroDivisionError"), (lambda runs, names: "text", "returns str")],
    ids=["it raises", "it returns a text"],
)
def test_a_section_that_fails_is_a_warning_beside_all_numbers(
    run: Run, install: Install, broken: Callable[..., Any], reason: str
) -> None:
    install(broken=broken, mine=own)
    for text in (said(run), page([run])):
        assert "The section broken could not be made" in text
        assert reason in text
        assert "A note of mine." in text
    values = run_values(run)
    assert reason in values["broken"]["error"]
    assert values["mean"] == 1.0


def test_a_section_cannot_replace_a_number_of_the_core(run: Run, install: Install) -> None:
    install(mean=own)
    assert run_values(run) == summary(run)
