"""The page for labelling: blind, by keyboard, saved after every key, and closed to other pages."""

from __future__ import annotations

import csv
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leadline.features.dashboard.app import LabelServer
from leadline.features.judges.verdicts import COLUMNS, write_labels

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HOSTILE = "<img src=x onerror=document.title='hit'><script>document.title='hit'</script>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [
        dict.fromkeys(COLUMNS, "") | {"id": str(n), "question": f"Question {n}?", "targets": f"t{n}", "answer": f"a{n}"}
        for n in range(5)
    ]
    rows[1]["answer"] = HOSTILE
    rows[0]["label"] = "no"
    write_labels(tmp_path, rows)
    return tmp_path


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    server = LabelServer(folder, 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield server.address.rstrip("/")
    server.stop()
    thread.join(30)


def labels(folder: Path) -> list[str]:
    with (folder / "labels.csv").open(newline="") as opened:
        return [row["label"] for row in csv.DictReader(opened)]


def post(address: str, body: object, **headers: str) -> int:
    sent = {"Content-Type": "application/json", "Origin": address, **headers}
    request = urllib.request.Request(f"{address}/label", json.dumps(body).encode(), sent)
    try:
        with urllib.request.urlopen(request) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_label_is_saved_at_once_and_wrong_ones_are_refused(folder: Path, address: str) -> None:
    assert post(address, {"row": 2, "label": "yes"}) == 200
    assert labels(folder) == ["no", "", "yes", "", ""]
    refused: list[dict[str, object]] = [
        {"row": 9, "label": "yes"},
        {"row": -1, "label": "no"},
        {"row": 1, "label": "hm"},
    ]
    for wrong in [*refused, {"row": "x"}]:
        assert post(address, wrong) == 400
    assert labels(folder) == ["no", "", "yes", "", ""]


def test_other_pages_cannot_label(folder: Path, address: str) -> None:
    assert post(address, {"row": 1, "label": "yes"}, Origin="http://elsewhere.example") == 403
    assert post(address, {"row": 1, "label": "yes"}, **{"Content-Type": "text/plain"}) == 403
    assert post(address, {"row": 1, "label": "yes"}, Host="elsewhere.example") == 403
    assert labels(folder)[1] == ""


def test_no_verdict_reaches_the_page(address: str) -> None:
    with urllib.request.urlopen(f"{address}/rows") as reply:
        rows = json.load(reply)
    assert {tuple(row) for row in rows} == {("question", "targets", "evidence", "answer", "label")}


@pytest.mark.browser
def test_labelling_by_keyboard_in_a_browser(browser: Browser, folder: Path, address: str) -> None:
    from playwright.sync_api import expect

    page = browser.new_page()
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.goto(address)
    progress = page.locator("#progress")
    expect(progress).to_have_text("2 of 5, 1 labelled")  # the first without a label
    expect(page.locator("#answer")).to_have_text(HOSTILE)
    page.keyboard.press("y")
    expect(progress).to_have_text("3 of 5, 2 labelled")
    page.keyboard.press("p")
    expect(progress).to_have_text("4 of 5, 3 labelled")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[data-label=partial]")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("n")  # a label can be changed
    expect(progress).to_have_text("4 of 5, 3 labelled")
    assert labels(folder) == ["no", "yes", "no", "", ""]
    page.reload()  # resumed where it was left
    expect(progress).to_have_text("4 of 5, 3 labelled")
    page.get_by_role("button", name="right").click()
    expect(progress).to_have_text("5 of 5, 4 labelled")
    page.keyboard.press("y")
    expect(page.locator("#said")).to_contain_text("All answers are labelled")
    assert labels(folder) == ["no", "yes", "no", "yes", "yes"]
    assert page.title() == "Label answers · Leadline"
    page.close()
    assert noise == []
