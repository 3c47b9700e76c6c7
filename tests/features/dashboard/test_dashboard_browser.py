"""The dashboard in a real browser: a list to filter, sort and select from, and a report that grows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from leadline.core.answers import Failure
from leadline.features.dashboard import pages
from support.chromium import PATIENCE_MS
from support.growing_runs import begun_run, of_now, writing
from support.hostile_text import HOSTILE, MARK, hostile_records
from support.planted_runs import cliff, failed_record, lost_in_the_middle, planted_records, write_run
from support.served_runs import dashboard, get

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.slow]
GRID: dict[str, Any] = {"lengths": [1024, 8192, 65536], "depths": [0.0, 0.5, 1.0]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("listed")
    write_run(folder / "cliff", list(planted_records(cliff, model="sim:cliff", **GRID)))
    write_run(folder / "middle", list(planted_records(lost_in_the_middle, model="sim:middle?window=64k", **GRID)))
    write_run(folder / "hostile", hostile_records(), samples=len(HOSTILE))
    return folder


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with dashboard(runs) as found:
        yield found


@contextmanager
def opened(browser: Browser, address: str, **settings: Any) -> Iterator[Page]:
    """Anything on the console, and any request to elsewhere, fails the test."""
    page = browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **settings})
    noise: list[str] = []
    page.on("console", lambda message: noise.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(address) else noise.append(request.url))
    page.goto(f"{address}/")
    yield page
    page.close()
    assert noise == []


def counted(page: Page, selector: str, count: int) -> None:
    """Waits for this many. The page's policy forbids the usual way, evaluating a string."""
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_count(count, timeout=PATIENCE_MS)


def models(page: Page) -> list[str]:
    return page.locator("tr[data-run] .who a").all_inner_texts()


def read(page: Page) -> None:
    """Waits until the headlines of all rows are known."""
    counted(page, ".waiting", 0)


# --- the list -----------------------------------------------------------------------------------


def test_headlines_that_come_before_the_stream_are_shown_too(browser: Browser, tmp_path: Path) -> None:
    """A slow browser asks for the stream when all headlines have been read, and nothing changes after that."""
    write_run(tmp_path / "run", list(planted_records(cliff, **GRID)))
    with dashboard(tmp_path) as address:
        page = browser.new_page()

        def late(route: Route) -> None:
            while '"waiting"' in get(address, "/").text:
                time.sleep(0.1)
            route.continue_()

        page.route("**/events", late)
        page.goto(f"{address}/")
        read(page)
        page.close()


def test_the_list_shows_every_run_with_its_headline(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        read(page)
        row = page.locator("tr[data-run]", has_text="sim:cliff").inner_text()
        for words in (
            "niah",
            "1k to 64k",
            "27 of 27",
            "below 64k\n1k and 8k not decided",
            "67%\n48–81%",
            "finished",
            "2025-11-15",
        ):
            assert words in row


def test_typing_filters_and_headers_sort_without_leaving_the_page(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        read(page)
        page.evaluate("window.stayed = true")
        page.fill("[name=q]", "middle")
        counted(page, "tr[data-run]", 1)
        assert models(page) == ["sim:middle"]
        assert page.url.endswith("/?q=middle")
        page.fill("[name=q]", "")
        counted(page, "tr[data-run]", 3)
        page.click("th a[data-order=model]")
        page.wait_for_selector("th[aria-sort=ascending] a[data-order=model]")
        assert models(page) == ["sim:cliff", "sim:middle", "sim:planted"]
        page.click("th a[data-order=model]")
        page.wait_for_selector("th[aria-sort=descending] a[data-order=model]")
        assert models(page)[0] == "sim:planted"
        page.go_back()
        page.wait_for_selector("th[aria-sort=ascending]")
        page.select_option("[name=status]", "running")
        page.get_by_text("No matching runs.").wait_for()
        assert page.evaluate("window.stayed")


def test_two_selected_runs_are_compared_and_samples_open_there(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        read(page)
        assert page.is_disabled("#compare-button")
        page.locator("tr[data-run]", has_text="sim:cliff").locator("input").check()
        page.fill("[name=q]", "middle")  # selected runs stay selected when they are filtered out
        counted(page, "tr[data-run]", 1)
        page.locator("tr[data-run] input").check()
        assert "2 runs selected" in page.inner_text("#selected")
        page.click("#compare-button")
        page.wait_for_selector("#comparison")
        assert "2 runs compared" in page.inner_text("h1")
        page.click("[data-select='1/0/65536/0.5/*']")
        page.wait_for_selector("#drawer-list[data-shown='3']")
        assert page.locator("#drawer-list .place").first.inner_text().startswith("sim:middle")
        page.keyboard.press("Escape")
        page.go_back()
        page.wait_for_selector("#clear-button:visible")
        page.click("#clear-button")
        assert page.is_disabled("#compare-button")


def test_the_keyboard_alone_selects_compares_and_opens(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        read(page)
        page.focus("tr[data-run]:nth-child(1) input")
        page.keyboard.press("Space")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.who') !== null")
        page.keyboard.press("Tab")
        page.keyboard.press("Space")
        page.focus("#compare-button")
        page.keyboard.press("Enter")
        page.wait_for_selector("#comparison")


def test_the_keyboard_focus_is_kept_when_the_list_is_reloaded(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        read(page)
        page.focus("th a[data-order=date]")
        page.keyboard.press("Enter")
        page.wait_for_selector("th[aria-sort=ascending]")
        counted(page, "th a[data-order=date]:focus", 1)


@pytest.mark.parametrize("width", [360, 390, 768, 1400])
def test_nothing_sticks_out_at_the_side(browser: Browser, address: str, width: int) -> None:
    with opened(browser, address, viewport={"width": width, "height": 800}) as page:
        read(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        cells = page.locator("tr[data-run]:first-child > *")
        boxes = cells.evaluate_all("nodes => nodes.map(node => node.getBoundingClientRect().toJSON())")
        for one in boxes:
            for other in boxes:
                assert one == other or not overlap(one, other), "cells of a row do not cover each other"


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    def within(low: str, high: str) -> bool:
        return min(one[high], other[high]) - max(one[low], other[low]) > 1

    return within("left", "right") and within("top", "bottom")


def test_light_and_dark_are_both_there(browser: Browser, address: str) -> None:
    for scheme, paper in (("light", "rgb(255, 255, 255)"), ("dark", "rgb(15, 21, 27)")):
        with opened(browser, address, color_scheme=scheme) as page:
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
            page.click("#theme")
            page.click("#theme")
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 21, 27)"
            page.evaluate("localStorage.clear()")


def test_data_can_be_downloaded_from_a_served_page(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.locator("tr[data-run]", has_text="sim:cliff").locator("a").click()
        page.wait_for_selector("#downloads:visible")
        with page.expect_download() as waiting:
            page.press("[data-download='samples.csv']", "Enter")
        assert len(Path(waiting.value.path()).read_text().splitlines()) == 1 + 27


def test_hostile_answers_are_inert(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.locator("tr[data-run]", has_text="sim:planted").locator("a").click()
        page.click("#heatmap-0 [data-select='0/0/1024/0.5/*']")
        page.wait_for_selector("#drawer-list[data-shown]")
        for at in range(len(HOSTILE)):
            page.evaluate(f"document.querySelectorAll('#drawer-list details.sample')[{at}].open = true")
        page.wait_for_timeout(200)
        assert page.evaluate(f"window.{MARK}") is None
        assert page.locator("#drawer-list img, #drawer-list script, #drawer-list svg").count() == 0
        assert "</script><script>" in page.inner_text("#drawer-list")


# --- live ---------------------------------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports are made as soon as there is something new."""
    monkeypatch.setattr(pages, "MIN_REFRESH_SECONDS", 0.5)
    monkeypatch.setattr(pages, "REFRESH_FACTOR", 0)


@pytest.mark.usefixtures("eager")
def test_a_run_appears_grows_and_ends_on_the_open_page(browser: Browser, tmp_path: Path) -> None:
    records = list(planted_records(cliff, **GRID))
    with dashboard(tmp_path) as address, opened(browser, address) as page:
        page.get_by_text("No runs yet.").wait_for()
        begun_run(tmp_path / "run", records, first=1)
        with writing(tmp_path / "run") as writer:
            page.wait_for_selector(".dot.running")
            page.get_by_text("1 of 27").wait_for()
            page.click("tr[data-run] a")
            page.wait_for_selector("#live .heatmap button")
            cell = page.locator("#live [data-select='0/0/65536/1.0/*']")
            assert cell.get_attribute("aria-label") == "niah, length 64k, depth 100%: no data, 0 of 3 answered"
            for record in records[1:-1]:
                writer.append(of_now(record))
            page.wait_for_selector("#live [data-select='0/0/65536/1.0/*']:not(.empty)")
            assert "2 of 3 answered" in (cell.get_attribute("aria-label") or "")
            assert "26 of 27 samples" in page.inner_text("#live-text")
            assert "tokens/s" in page.inner_text("#live-text")
            hostile = Failure("server", f"<img src=x onerror='window.{MARK}=1'>")
            writer.append(msgspec.structs.replace(of_now(failed_record(records[-1].cell)), outcome=hostile))
            page.wait_for_selector("#live-failures li")
            assert "server: <img src=x" in page.inner_text("#live-failures li")
            assert "1 failed" in page.inner_text("#live-text")
            page.locator(".facts", has_text="1 failed").wait_for()  # the report too
            cell.click()
            page.wait_for_selector("#drawer-list[data-shown='3']")
            page.keyboard.press("Escape")
            writer.append(of_now(records[-1]))
            page.evaluate("document.activeElement.blur()")
        page.wait_for_selector("#live", state="detached")
        page.wait_for_selector("#heatmap-0 svg")
        assert page.evaluate(f"window.{MARK}") is None
        page.click("#heatmap-0 [data-select='0/0/65536/1.0/*']")
        page.wait_for_selector("#drawer-list[data-shown='3']")


@pytest.mark.usefixtures("eager")
def test_what_is_open_or_focused_is_not_replaced(browser: Browser, tmp_path: Path) -> None:
    records = list(planted_records(cliff, **GRID))
    begun_run(tmp_path / "run", records, first=9)
    with dashboard(tmp_path) as address, writing(tmp_path / "run") as writer, opened(browser, address) as page:
        page.click("tr[data-run] a")
        page.wait_for_selector("#live .heatmap button:not(.empty)")
        page.click("details.numbers summary")  # opened, and in focus
        page.evaluate("document.querySelector('article').dataset.mine = 'yes'")
        writer.append(of_now(records[9]))
        page.get_by_text("10 of 27 samples").wait_for()
        page.wait_for_timeout(1500)
        assert page.get_attribute("article", "data-mine") == "yes"
        page.evaluate("document.activeElement.blur()")
        writer.append(of_now(records[10]))
        page.wait_for_selector("article:not([data-mine])")
        assert page.evaluate("document.querySelector('details.numbers').open"), "what was open is open again"


@pytest.mark.usefixtures("eager")
def test_the_page_of_a_stopped_run_is_live_again_when_the_run_goes_on(browser: Browser, tmp_path: Path) -> None:
    records = list(planted_records(cliff, **GRID))
    begun_run(tmp_path / "run", records, first=9)
    with pytest.raises(KeyboardInterrupt), writing(tmp_path / "run"):
        raise KeyboardInterrupt
    with dashboard(tmp_path) as address, opened(browser, address) as page:
        page.click("tr[data-run] a")
        page.get_by_text("stopped with 18 of 27 samples not asked").wait_for()
        for count in (10, 11):  # from a page that was never live, and from one that was
            with suppress(KeyboardInterrupt), writing(tmp_path / "run") as writer:
                writer.append(of_now(records[count - 1]))
                page.get_by_text(f"{count} of 27 samples ·").wait_for()
                raise KeyboardInterrupt
            page.wait_for_selector("#live", state="detached")
            page.get_by_text(f"stopped with {27 - count} of 27 samples not asked").wait_for()


def test_a_page_reconnects_to_its_server(browser: Browser, tmp_path: Path) -> None:
    """The stream is cut as a sleeping machine cuts it; the page asks for a new one by itself."""
    records = list(planted_records(cliff, **GRID))
    begun_run(tmp_path / "run", records, first=3)
    with dashboard(tmp_path) as address, writing(tmp_path / "run") as writer:
        page = browser.new_page()  # a lost connection is an error on the console, by rights
        page.goto(f"{address}/")
        page.click("tr[data-run] a")
        page.get_by_text("3 of 27 samples").wait_for()
        page.context.set_offline(True)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.get_by_text("not reachable").wait_for()
        writer.append(of_now(records[3]))
        page.context.set_offline(False)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.get_by_text("4 of 27 samples").wait_for()
        assert page.inner_text("#live-status") == "Running"
        page.close()
