"""The page for labelling: blind, by keyboard, saved after every key, and closed to other pages."""

from __future__ import annotations

import csv
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leadline.features.dashboard.run_folders import RunIndex
from leadline.features.judges.labelling import LabelServer
from leadline.features.judges.verdicts import COLUMNS, read_label_rows, write_labels
from support.planted_runs import perfect, planted_records, write_run
from support.served_runs import dashboard, get

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
    with serving(folder) as found:
        yield found


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


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    server = LabelServer(folder, 0)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server.address.rstrip("/")
    finally:
        server.stop()
        thread.join(120)


def edit(folder: Path, change: Callable[[list[dict[str, str]]], list[dict[str, str]]]) -> None:
    """What a spreadsheet does: reads the file alone, and saves it whole."""
    with (folder / "labels.csv").open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    with (folder / "labels.csv").open("w", newline="") as opened:
        writer = csv.DictWriter(opened, COLUMNS)
        writer.writeheader()
        writer.writerows(change(rows))


def kept(folder: Path) -> dict[str, str]:
    return {row["id"]: row["label"] for row in read_label_rows(folder / "labels.csv")}


def test_two_pages_at_once_lose_no_label(folder: Path) -> None:
    with serving(folder) as first, serving(folder) as second, ThreadPoolExecutor(8) as pool:
        calls = [(first if n % 2 else second, {"row": n % 5, "label": ("yes", "no")[n % 3 % 2]}) for n in range(40)]
        assert set(pool.map(lambda call: post(*call), calls)) == {200}
        assert [post(page, {"row": n, "label": "partial"}) for n, page in enumerate((first, second) * 2)] == [200] * 4
    assert kept(folder) == {"0": "partial", "1": "partial", "2": "partial", "3": "partial", "4": kept(folder)["4"]}
    assert kept(folder)["4"]
    assert len((folder / "labels.jsonl").read_text().splitlines()) == 44


def test_an_editor_that_saves_an_older_file_takes_no_label_away_and_its_own_labels_count(
    folder: Path, address: str
) -> None:
    before = (folder / "labels.csv").read_bytes()
    assert post(address, {"row": 1, "label": "yes"}) == 200
    assert post(address, {"row": 0, "label": "yes"}) == 200
    (folder / "labels.csv").write_bytes(before)  # saved by an editor that was opened before
    edit(folder, lambda rows: [row | ({"label": "partial"} if row["id"] == "3" else {}) for row in rows])
    assert post(address, {"row": 2, "label": "no"}) == 200
    expected = {"0": "yes", "1": "yes", "2": "no", "3": "partial", "4": ""}
    assert kept(folder) == expected
    assert labels(folder) == list(expected.values())
    edit(folder, lambda rows: [row | ({"label": "partial"} if row["id"] == "1" else {}) for row in rows])
    assert kept(folder)["1"] == "partial"  # by hand, after the page: the newest wins


def test_a_label_goes_to_its_answer_when_rows_were_moved_or_removed_by_hand(folder: Path, address: str) -> None:
    with urllib.request.urlopen(f"{address}/rows") as reply:
        assert json.load(reply)[3]["question"] == "Question 3?"
    edit(folder, lambda rows: [row for row in reversed(rows) if row["id"] != "2"])
    assert post(address, {"row": 3, "label": "yes"}) == 200
    assert post(address, {"row": 2, "label": "yes"}) == 400
    assert kept(folder) == {"4": "", "3": "yes", "1": "", "0": "no"}


def test_the_page_needs_the_token_of_its_address(folder: Path, address: str) -> None:
    origin, _, token = address.rpartition("/")
    assert len(token) >= 20
    assert post(origin, {"row": 1, "label": "yes"}) == 404
    assert post(f"{origin}/{token[:-1]}x", {"row": 1, "label": "yes"}) == 404
    assert get(origin, "/").status == 404
    assert get(origin, "/rows").status == 404
    assert labels(folder)[1] == ""


def test_a_torn_line_of_the_log_is_cut_off(folder: Path, address: str) -> None:
    assert post(address, {"row": 1, "label": "yes"}) == 200
    with (folder / "labels.jsonl").open("ab") as file:
        file.write(b'{"id": "2", "answer')  # a kill in the middle of a write
    assert post(address, {"row": 3, "label": "no"}) == 200
    lines = (folder / "labels.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["1", "3"]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:1@elsewhere.example", "elsewhere.example:80:127.0.0.1", "127.0.0.1.elsewhere.example", "[::1", "",
     "a b", "localhost:x", "localhost/elsewhere.example", "localhost:80:90"],
)  # fmt: skip
def test_a_host_header_that_only_resembles_this_machine_is_refused(address: str, host: str) -> None:
    origin, _, token = address.rpartition("/")
    assert get(origin, f"/{token}/rows", host=host).status in (400, 403)
    assert get(origin, f"/{token}/rows", host="LOCALHOST:99").status == 200


def test_no_verdict_reaches_the_page(address: str) -> None:
    with urllib.request.urlopen(f"{address}/rows") as reply:
        rows = json.load(reply)
    assert {tuple(row) for row in rows} == {("question", "targets", "evidence", "answer", "label")}


def test_the_dashboard_has_the_page_of_a_run_whose_answers_were_drawn(folder: Path) -> None:
    """The rest of the dashboard stays read-only, and so does the page where the network can reach it."""
    for name in ("drawn", "other"):
        records = list(planted_records(perfect, lengths=[1024], depths=[0.5], samples=2))
        write_run(folder / name, records, samples=2)
    (folder / "labels.csv").rename(folder / "drawn" / "labels.csv")
    ids = {entry.name: entry.id for entry in RunIndex([folder]).entries()}
    page, other = f"/run/{ids['drawn']}/label", f"/run/{ids['other']}/label"
    with dashboard(folder) as address:
        assert f'<a href="{page}/">Label</a>' in get(address, f"/run/{ids['drawn']}").text
        assert "/label/" not in get(address, f"/run/{ids['other']}").text
        assert get(address, f"{page}/").status == 200
        assert len(json.loads(get(address, f"{page}/rows").text)) == 5
        assert get(address, f"{other}/").status == 404
        assert post(address + page, {"row": 2, "label": "yes"}, Origin=address) == 200
        assert post(address + page, {"row": 3, "label": "yes"}, Origin="http://elsewhere.example") == 403
        assert post(address, {"row": 3, "label": "yes"}) == 405
    with dashboard(folder, host="0.0.0.0") as address:
        assert post(address + page, {"row": 3, "label": "yes"}, Origin=address) == 405
    assert labels(folder / "drawn") == ["no", "", "yes", "", ""]


@pytest.mark.slow
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
