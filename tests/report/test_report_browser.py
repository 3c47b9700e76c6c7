"""The page in a real browser: no errors, labels, mouse and keyboard, and hostile text without effect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs

from leadline.report.page import write_page
from leadline.results.run import load_run
from leadline.store import runs as codec
from support.hostile_text import HOSTILE, MARK, hostile_records
from support.planted_runs import LENGTHS, decay, failed_record, lost_in_the_middle, planted_records, write_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks; the cell at 128k and depth 50% holds a failure among its samples."""
    records = list(planted_records(lost_in_the_middle, tasks=["niah", "uuid"], depths=[0.0, 0.25, 0.5, 0.75, 1.0]))
    failing = next(i for i, r in enumerate(records) if (r.cell.length, r.cell.depth) == (131072, 0.5))
    records[failing] = failed_record(records[failing].cell)
    folder = tmp_path_factory.mktemp("browser")
    return write_page([load_run(write_run(folder / "run", records))], folder / "report.html")


@pytest.fixture
def page(browser: Browser, report: Path) -> Iterator[Page]:
    """The report at desktop width. Anything on the console, or any request, fails the test."""
    yield from opened(browser, report)


def opened(browser: Browser, path: Path, **settings: object) -> Iterator[Page]:
    page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **settings})  # type: ignore[arg-type]
    noise: list[str] = []
    page.on("console", lambda message: noise.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: noise.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(path.as_uri())
    yield page
    page.close()
    assert noise == []


CELL = "#raw-0 [data-select='0/0/131072/0.5/*']"


def test_pointing_at_a_cell_says_value_interval_and_count(page: Page) -> None:
    page.hover(CELL)
    words = page.inner_text("#tip")
    assert words.startswith("niah, length 128k, depth 50%: ")
    assert "95% interval" in words
    assert "2 of 3 answered, 1 failed" in words
    page.mouse.move(5, 5)
    assert page.is_hidden("#tip")


def test_a_click_on_a_cell_shows_its_samples(page: Page) -> None:
    page.click(CELL)
    page.wait_for_selector("#drawer-list[data-shown]")
    assert page.locator("#drawer-list details.sample").count() == 3
    text = page.inner_text("#drawer")
    for words in ("question", "What is the number of the lighthouse", "expected", "answer", "no answer",
                  "timeout: no answer within 600 s", "position of the fact", "depth 50% (planned 50%)",
                  "131,040 tokens sent, 131,040 read"):  # fmt: skip
        assert words in text
    page.keyboard.press("Escape")
    assert page.is_hidden("#drawer")


@pytest.mark.slow
def test_the_keyboard_reaches_every_cell(page: Page) -> None:
    figure = page.locator("#raw-0 svg")
    total = figure.locator("[data-select]").count()
    figure.locator("[tabindex='0']").first.focus()
    seen = {page.evaluate("document.activeElement.dataset.select")}
    for _ in range(7):  # across strip and cells of both panels: right to the end, left to the end, down one
        for key in ("ArrowRight", "ArrowLeft"):
            for _ in range(16):
                page.keyboard.press(key)
                seen.add(page.evaluate("document.activeElement.dataset.select"))
        page.keyboard.press("ArrowDown")
        seen.add(page.evaluate("document.activeElement.dataset.select"))
    assert len(seen) == total
    assert page.is_visible("#tip"), "what the mouse shows, the keyboard shows"
    page.keyboard.press("Enter")
    page.wait_for_selector("#drawer-list[data-shown]")


def test_the_heatmap_can_be_smoothed_and_back(page: Page) -> None:
    assert page.is_hidden("#smoothed-map-0")
    page.click("text=Smoothed")
    assert page.is_hidden("#raw-0")
    page.hover("#smoothed-map-0 [data-select='0/0/131072/0.5/*']")
    assert "smoothed " in page.inner_text("#tip")
    page.click("[data-show='raw-0']")
    assert page.is_visible("#raw-0")
    assert page.get_attribute("[data-show='raw-0']", "aria-pressed") == "true"


def test_the_curves_and_the_outcomes_fit_a_phone(browser: Browser, report: Path) -> None:
    for page in opened(browser, report):
        page.set_viewport_size({"width": 390, "height": 844})
        edges = page.evaluate("[...document.querySelectorAll('.phone svg')].map(s => s.getBoundingClientRect())")
        assert len(edges) == 2
        assert all(edge["width"] > 0 and edge["right"] <= 390 for edge in edges)


def test_one_tab_stop_a_figure(page: Page) -> None:
    assert page.locator("#raw-0 svg [tabindex='0']").count() == 1
    assert page.locator("#raw-0 svg [data-select][role='button']").count() == 2 * (40 + 8)


def test_the_sample_browser_filters(page: Page) -> None:
    page.locator("#samples").scroll_into_view_if_needed()
    page.wait_for_selector("#browser[data-shown]")
    assert "correct" not in page.locator("#browser .badge").all_inner_texts()
    page.select_option("[name=outcome]", "error")
    page.wait_for_selector("#browser[data-shown='1']")
    assert page.inner_text("#browser .badge") == "error"
    page.select_option("[name=outcome]", "")
    page.select_option("[name=length]", "131072")
    page.select_option("[name=depth]", "0.25")
    page.select_option("[name=task]", "uuid")
    page.get_by_text("all 3 shown").wait_for()
    assert set(page.locator("#browser .place").all_inner_texts()) == {"uuid · 128k · depth 25%"}
    page.fill("[name=text]", "no such words anywhere")
    page.get_by_text("no samples").wait_for()


def test_a_bar_of_outcomes_opens_those_samples(page: Page) -> None:
    page.click("#outcomes-0 [data-select='0/0/131072/*/error']")
    page.wait_for_selector("#drawer-list[data-shown]")
    assert page.locator("#drawer-list details.sample").count() == 1


@pytest.mark.parametrize(
    ("kind", "first"),
    [("cells.csv", "run,task,length,depth,planned"), ("samples.csv", "run,task"), ("samples.jsonl", '{"run":"run"')],
)
def test_data_can_be_downloaded(page: Page, kind: str, first: str) -> None:
    with page.expect_download() as waiting:
        page.press(f"[data-download='{kind}']", "Enter")
    lines = Path(waiting.value.path()).read_text().splitlines()
    assert lines[0].startswith(first)
    assert len(lines) == {"cells.csv": 1 + 80, "samples.csv": 1 + 240, "samples.jsonl": 240}[kind]


def test_light_and_dark_are_both_readable(browser: Browser, report: Path) -> None:
    for scheme in ("light", "dark"):
        for page in opened(browser, report, color_scheme=scheme):
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            ink = page.evaluate("getComputedStyle(document.querySelector('#raw-0 svg text')).fill")
            assert contrast(paper, ink) > 4.5
            page.click("#theme")
            page.click("#theme")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 21, 27)"


def contrast(one: str, other: str) -> float:
    from leadline.report.colours import luminance

    def light(colour: str) -> float:
        parts = [int(p) for p in colour.strip("rgb()").split(",")]
        return luminance("#" + "".join(f"{p:02x}" for p in parts))

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_sticks_out_at_the_side(browser: Browser, report: Path, width: int) -> None:
    for page in opened(browser, report, viewport={"width": width, "height": 800}):
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow
def test_long_names_of_several_runs_do_not_stick_out_on_a_phone(browser: Browser, tmp_path: Path) -> None:
    runs = []
    for size in ("7b", "13b"):
        model = f"openai:acme-{size}-instruct-long-context-preview?rope=yarn:4"
        records = list(planted_records(decay, lengths=[1024, 65536], depths=[0.0, 1.0], model=model))
        runs.append(load_run(write_run(tmp_path / size, records)))
    for page in opened(browser, write_page(runs, tmp_path / "two.html"), viewport={"width": 360, "height": 800}):
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.slow
def test_the_mean_of_a_length_stands_over_its_cells(browser: Browser, tmp_path: Path) -> None:
    """Also where longer lengths have no answer yet."""
    records = list(planted_records(decay, lengths=[1024, 2048], depths=[0.0, 1.0]))
    folder = write_run(tmp_path / "run", records)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["spec"]["lengths"] = [1024, 2048, 4096, 8192]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for page in opened(browser, write_page([load_run(folder)], tmp_path / "report.html")):
        middle = "e => { const b = e.getBoundingClientRect(); return b.x + b.width / 2; }"
        mean = page.locator("#raw-0 [data-select='0/0/2048/*/*']").evaluate(middle)
        cell = page.locator("#raw-0 [data-select='0/0/2048/1.0/*']").evaluate(middle)
        assert abs(mean - cell) < 2


@pytest.mark.slow
def test_a_printed_page_shows_every_figure_whole(browser: Browser, report: Path) -> None:
    for page in opened(browser, report):
        page.emulate_media(media="print")
        page.set_viewport_size({"width": 690, "height": 980})  # A4 less its margins
        assert page.is_hidden("#samples")
        sizes = page.evaluate("[...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().right)")
        assert len(sizes) == 8, "two of them are for phones, and hidden"
        assert max(sizes) <= 690
        assert page.pdf(format="A4").startswith(b"%PDF")


@pytest.mark.slow
def test_hostile_answers_are_inert(browser: Browser, tmp_path: Path) -> None:
    run = load_run(write_run(tmp_path / "run", hostile_records(), samples=len(HOSTILE)))
    for page in opened(browser, write_page([run], tmp_path / "report.html")):
        page.click("#heatmap-0 [data-select='0/0/1024/0.5/*']")
        page.wait_for_selector("#drawer-list[data-shown]")
        for at in range(len(HOSTILE)):
            page.evaluate(f"document.querySelectorAll('#drawer-list details.sample')[{at}].open = true")
        page.wait_for_timeout(200)
        assert page.evaluate(f"window.{MARK}") is None
        assert page.locator("#drawer-list img, #drawer-list script, #drawer-list svg").count() == 0
        assert "</script><script>" in page.inner_text("#drawer-list")
        assert len(page.inner_text("#drawer-list")) < 100_000


@pytest.mark.real  # half a minute of making records, which the quick tests cannot spare
def test_a_page_holds_a_hundred_thousand_samples(browser: Browser, tmp_path: Path) -> None:
    """In under 15 MB."""
    tasks = [f"task {i}" for i in range(13)]
    few = list(planted_records(decay, tasks=tasks, samples=1))
    folder = write_run(tmp_path / "run", few, samples=88)
    with (folder / "records.jsonl").open("wb") as file:
        for record in few:
            line = codec.encode(record)
            # The same answers 88 times over, each under its own number: 100,672 lines.
            file.writelines(line.replace(b'"sample":0', b'"sample":%d' % number) for number in range(88))
    path = write_page([load_run(folder)], tmp_path / "report.html")
    assert len(few) * 88 > 100_000
    assert path.stat().st_size < 15_000_000
    for page in opened(browser, path):
        page.click(f"#raw-0 [data-select='0/12/{LENGTHS[-1]}/1.0/*']")
        page.wait_for_selector("#drawer-list[data-shown='25']")


@pytest.mark.slow
def test_the_verdicts_by_task_fit_a_desktop_and_scroll_in_their_box_on_a_phone(
    browser: Browser, tmp_path: Path
) -> None:
    tasks = [f"compaction[compactor=compact:{name}]" for name in ("tail", "prompt", "drop-tools")]
    records = [
        structs.replace(r, question=structs.replace(r.question, labels={"operation": f"open task {r.cell.sample}"}))
        for r in planted_records(decay, tasks=tasks, lengths=[1024, 65536], depths=[0.0, 1.0])
    ]
    write_run(tmp_path / "run", records)
    path = write_page([load_run(tmp_path / "run")], tmp_path / "report.html")
    for width in (1100, 400):
        for page in opened(browser, path, viewport={"width": width, "height": 800}):
            box = page.locator("#strata-0 .wide").first
            if width == 1100:
                assert box.evaluate("box => box.scrollWidth <= box.clientWidth")
            box.evaluate("box => { box.scrollLeft = box.scrollWidth }")
            last = box.locator("tr").nth(1).locator("td").last.bounding_box()
            assert last is not None
            assert last["x"] + last["width"] <= width, "the last column can be seen whole"
            assert page.evaluate("document.documentElement.scrollWidth") <= width
