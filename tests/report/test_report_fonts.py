"""Figures keep their layout where the reader's machine has none of the fonts that they were laid out with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from leadline.report.charts.render import renderer, text_width, with_widths
from leadline.report.export import figures_of
from leadline.report.page import write_page
from leadline.results.run import Run, load_run
from support.planted_runs import lost_in_the_middle, planted_records, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

OUTSIDE = """() => [...document.querySelectorAll('svg')].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return frame.width === 0 ? [] : [...svg.querySelectorAll('text')].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 3 || box.right > frame.right + 3;
  }).map(text => text.textContent);
})"""
"""Texts that stick out of their figure to the left or right."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    tasks = ["niah_multikey_with_a_very_long_title", "vt"]
    records = list(planted_records(lost_in_the_middle, tasks=tasks, lengths=[1024, 8192, 65536], depths=[0.0, 1.0]))
    return load_run(write_run(tmp_path_factory.mktemp("runs") / "one", records))


@pytest.fixture
def page(run: Run, browser: Browser) -> Iterator[Page]:
    """The report in a browser whose every font is a wide one, as on a machine without Arial and its like."""
    file = write_page([run], run.folder / "report.html")
    text = file.read_text("utf-8").replace("Liberation Sans, Arial, Arimo, Helvetica, Nimbus Sans", "DejaVu Sans")
    wide = run.folder / "wide.html"
    wide.write_text(text, "utf-8")
    made = browser.new_page(viewport={"width": 1200, "height": 900})
    made.goto(wide.as_uri())
    yield made
    made.close()


@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_the_widths_are_those_that_the_figures_are_laid_out_with(weight: str) -> None:
    for text in ("context length (tokens)", "WWWWiiii·–…", "0123456789 [hops=2], {a} <b> & ~"):
        definition = {
            "data": {"values": [{}]},
            "mark": {"type": "text", "text": text, "font": "Liberation Sans", "fontSize": 100, "fontWeight": weight},
            "padding": 0,
        }
        drawn = renderer().submit("vegalite_to_svg", vl_spec=definition).result()
        measured = float(re.search(r'width="([\d.]+)"', drawn)[1])  # type: ignore[index]
        known = text_width(text, 100, bold=weight == "bold")
        assert known == pytest.approx(measured, abs=25)  # the view adds its own step of 20 pixels


def test_every_line_of_every_text_of_an_exported_svg_has_its_width(run: Run) -> None:
    for name, figure in figures_of(run):
        drawn = with_widths(renderer().submit("vegalite_to_svg", vl_spec=figure.spec()).result())
        texts = re.findall(r"<text [^>]*>(?:(?!</text>).)*", drawn)
        assert texts, name
        assert all("textLength" in text for text in texts), name


def test_unknown_characters_leave_the_width_open() -> None:
    svg = '<text font-size="10px">灯台</text>'
    assert with_widths(svg) == svg


@pytest.mark.slow
def test_no_text_leaves_its_figure_in_a_wide_font(page: Page) -> None:
    assert page.evaluate(OUTSIDE) == []


@pytest.mark.slow
def test_curves_fit_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 375, "height": 812})
    seen = page.evaluate(
        "() => [...document.querySelectorAll('#curves-0 .wide')].filter(d => d.clientWidth)"
        ".map(d => [d.scrollWidth - d.clientWidth, d.querySelector('svg').getBoundingClientRect().right])"
    )
    assert len(seen) == 1
    assert seen[0][0] <= 0
    assert seen[0][1] <= 375
    assert page.evaluate(OUTSIDE) == []
