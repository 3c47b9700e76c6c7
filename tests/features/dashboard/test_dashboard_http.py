"""The dashboard over HTTP: what it sends, what it refuses, and its streams of changes."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import socket
import threading
import time
from base64 import b64decode
from collections.abc import Generator, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from leadline.core.errors import ServerError
from leadline.features.dashboard.app import DashboardServer, _Handlers
from leadline.features.dashboard.live import READ_SECONDS
from leadline.features.dashboard.pages import Dashboard
from leadline.report.page import fingerprint
from leadline.report.serve import HEADERS, host_name, listen_on
from support.growing_runs import begun_run, of_now, writing
from support.hostile_text import HOSTILE, hostile_records
from support.planted_runs import cliff, failed_record, lost_in_the_middle, planted_records, write_run
from support.served_runs import Answer, dashboard, events, get

GRID: dict[str, Any] = {"lengths": [1024, 65536], "depths": [0.0, 1.0]}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_run(folder / "one", list(planted_records(cliff, **GRID)))
    write_run(folder / "two", list(planted_records(lost_in_the_middle, model="sim:<b>two</b>", **GRID)))
    write_run(folder / "hostile", hostile_records(), samples=len(HOSTILE))
    return folder


@pytest.fixture(scope="module")
def address(runs: Path) -> Iterator[str]:
    with dashboard(runs) as found:
        yield found


def ids(address: str) -> dict[str, str]:
    """By name of the folder."""
    rows = re.findall(r'value="(\w+)" aria-label="Compare [^"]*, ([\w-]+)"', get(address, "/").text)
    return {name: key for key, name in rows}


# --- what every answer carries ------------------------------------------------------------------


def paths(address: str) -> list[str]:
    one, two = ids(address)["one"], ids(address)["two"]
    return [
        "/", f"/run/{one}", f"/compare?run={one}&run={two}", f"/samples?run={one}", "/run/nothing", "/nothing",
        "/compare", "/samples",
    ]  # fmt: skip


def test_every_answer_carries_the_headers_that_protect_it(address: str) -> None:
    for path in paths(address):
        answer = get(address, path)
        for name in HEADERS:
            assert name.lower() in answer.headers, (path, name)
        assert "server" not in answer.headers
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_the_policy_lets_in_the_pages_own_script_and_style_alone(address: str) -> None:
    for path in paths(address)[:3]:
        answer = get(address, path)
        policy = answer.headers["content-security-policy"]
        (style,) = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
        script = re.findall(r"<script>(.*?)</script>", answer.text, re.DOTALL)[-1]
        assert f"style-src '{fingerprint(style)}'" in policy
        assert f"script-src '{fingerprint(script)}'" in policy
        assert "connect-src 'self'" in policy
        assert 'http-equiv="Content-Security-Policy"' not in answer.text, "one policy, in the header"


@pytest.mark.parametrize("name", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "", "10.0.0.1"])
def test_other_names_than_this_machines_are_refused(address: str, name: str) -> None:
    assert get(address, "/", host=name).status == 403


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:9000", "127.0.0.1:1", "[::1]:8321"])
def test_this_machine_may_be_called_by_its_names_through_any_tunnel(address: str, name: str) -> None:
    assert get(address, "/", host=name).status == 200


def test_listening_on_all_interfaces_it_accepts_ip_addresses_and_still_no_unknown_name(runs: Path) -> None:
    with dashboard(runs / "one", host="0.0.0.0") as address:
        assert get(address, "/", host="10.0.0.1:8321").status == 200
        assert get(address, "/", host=socket.gethostname()).status == 200
        assert get(address, "/", host="evil.example").status == 403


def test_host_names_are_read_with_and_without_ports() -> None:
    assert [host_name(h) for h in ("a", "a:1", "[::1]", "[::1]:1", "::1", "")] == ["a", "a", "::1", "::1", "::1", ""]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_is_for_reading_only(address: str, method: str) -> None:
    assert get(address, "/", method).status == 405


def test_a_head_has_no_body(address: str) -> None:
    answer = get(address, "/", "HEAD")
    assert (answer.status, answer.text) == (200, "")


@pytest.mark.parametrize(
    "path",
    ["/run/../../etc/passwd", "/run/..%2f..%2fetc%2fpasswd", "/run/%2fetc", "/run/one", "/..%5c..", "/run/",
     "/run/%00", "/records.jsonl", "/manifest.json", "/samples?run=../one", "/samples?run=", "/run/one/records.jsonl"],
)  # fmt: skip
def test_no_path_leads_to_a_file(address: str, path: str) -> None:
    answer = get(address, path)
    assert answer.status == 404
    assert "root:x:" not in answer.text
    assert '"outcome"' not in answer.text


# --- pages --------------------------------------------------------------------------------------


def test_what_models_are_called_is_text(address: str) -> None:
    assert "sim:&lt;b&gt;two&lt;/b&gt;" in get(address, "/").text
    assert "<b>two</b>" not in get(address, f"/run/{ids(address)['two']}").text


def test_words_of_the_address_are_text(address: str) -> None:
    answer = get(address, "/?q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E&status=%22%3E%3Cimg%3E&sort=%3Cb%3E")
    assert answer.status == 200
    assert "<script>alert(1)" not in answer.text
    assert "<img>" not in answer.text


def test_a_comparison_takes_two_runs_or_more(address: str) -> None:
    found = ids(address)
    for query in ("", f"run={found['one']}", f"run={found['one']}&run={found['one']}", "&".join(["run=x"] * 2)):
        assert get(address, f"/compare?{query}").status in (400, 404)
    many = "&".join(f"run={n}" for n in range(13))
    assert get(address, f"/compare?{many}").status == 400
    assert "2 runs compared" in get(address, f"/compare?run={found['one']}&run={found['two']}").text


def test_samples_stay_on_the_server_until_they_are_wanted(address: str) -> None:
    key = ids(address)["one"]
    page = get(address, f"/run/{key}").text
    assert 'id="pack-0"' not in page
    assert f'"samples":"/samples?run={key}"' in page
    answer = get(address, f"/samples?run={key}")
    packs = [json.loads(gzip.decompress(b64decode(pack))) for pack in json.loads(answer.text)["packs"]]
    assert sum(len(pack["columns"]["depth"]) for pack in packs) == 12
    again = get(address, f"/samples?run={key}", if_none_match=answer.headers["etag"])
    assert (again.status, again.text) == (304, "")


def test_hostile_answers_are_data_on_the_wire(address: str) -> None:
    key = ids(address)["hostile"]
    for path in (f"/run/{key}", f"/samples?run={key}"):
        assert "<script>window.harmed" not in get(address, path).text
    assert get(address, f"/samples?run={key}").headers["content-type"] == "application/json"


def test_lines_that_cannot_be_read_are_named_on_the_page(tmp_path: Path) -> None:
    write_run(tmp_path / "run", list(planted_records(cliff, **GRID)))
    (tmp_path / "run" / "records.jsonl").write_text("nonsense\nnonsense\n")
    with dashboard(tmp_path) as address:
        answer = get(address, f"/run/{ids(address)['run']}")
    assert answer.status == 200
    assert "2 lines set aside: line 1 of records.jsonl cannot be read" in answer.text


def test_a_folder_without_runs_says_how_to_make_one(tmp_path: Path) -> None:
    with dashboard(tmp_path) as address:
        text = get(address, "/").text
    assert "No runs yet." in text
    assert "leadline demo" in text


def test_a_run_that_was_stopped_says_what_is_missing(tmp_path: Path) -> None:
    begun_run(tmp_path / "run", list(planted_records(cliff, **GRID)), first=5)
    with pytest.raises(KeyboardInterrupt), writing(tmp_path / "run"):
        raise KeyboardInterrupt
    with dashboard(tmp_path) as address:
        text = get(address, f"/run/{ids(address)['run']}").text
    assert "This run stopped with 7 of 12 samples not asked." in text


def test_a_port_in_use_is_an_error_with_a_fix() -> None:
    taken = listen_on("127.0.0.1", 0)
    port = taken.getsockname()[1]
    try:
        with pytest.raises(ServerError, match=f"port {port} is in use") as caught:
            listen_on("127.0.0.1", port)
        assert "--port 0" in caught.value.fix
    finally:
        taken.close()


# --- streams ------------------------------------------------------------------------------------


def states(address: str, key: str) -> Generator[dict[str, Any], None, None]:
    for name, data in events(address, f"/run/{key}/events"):
        assert name == "state"
        yield json.loads(data)


def test_a_running_run_sends_its_progress_cells_and_failures(tmp_path: Path) -> None:
    records = list(planted_records(cliff, **GRID))
    begun_run(tmp_path / "run", records, first=3)
    with dashboard(tmp_path) as address, writing(tmp_path / "run") as writer:
        heard = states(address, ids(address)["run"])
        first = next(heard)
        assert (first["status"], first["asked"], first["planned"]) == ("running", 3, 12)
        (heatmap,) = first["heatmaps"]
        assert (heatmap["title"], heatmap["columns"], heatmap["rows"]) == ("niah", ["1k", "64k"], ["0%", "100%"])
        cells = {cell["select"]: cell for cell in heatmap["cells"]}
        assert cells["0/0/1024/0.0/*"]["value"] == "100"
        assert cells["0/0/65536/1.0/*"]["label"].endswith("no data, 0 of 3 answered")
        writer.append(of_now(records[-1]))
        writer.append(of_now(failed_record(records[-2].cell)))
        later = next(state for state in heard if state["asked"] == 5)
        assert later["failed"] == 1
        assert later["failures"][-1]["place"] == "niah, length 64k, depth 100%, sample 1"
        assert later["rate"].endswith("tokens/s")
        assert later["left"].endswith("left")
        changed = {cell["select"] for state in [later, *islice(heard, 1)] for cell in state["cells"]}
        assert changed <= {"0/0/65536/1.0/*"}, "only cells that have changed are sent again"
        assert "heatmaps" not in later


def test_a_stream_that_was_lost_begins_anew_with_everything(tmp_path: Path) -> None:
    records = list(planted_records(cliff, **GRID))
    begun_run(tmp_path / "run", records, first=3)
    with dashboard(tmp_path) as address, writing(tmp_path / "run") as writer:
        key = ids(address)["run"]
        first = states(address, key)
        next(first)
        first.close()
        writer.append(of_now(records[3]))
        time.sleep(READ_SECONDS)  # a file is not read more often
        again = [next(states(address, key)) for _ in range(2)]  # as from two tabs
        assert [(state["asked"], len(state["heatmaps"][0]["cells"])) for state in again] == [(4, 4)] * 2


def test_a_stream_ends_with_the_run(tmp_path: Path) -> None:
    records = list(planted_records(cliff, **GRID))
    begun_run(tmp_path / "run", records, first=11)
    with dashboard(tmp_path) as address:
        with writing(tmp_path / "run") as writer:
            heard = states(address, ids(address)["run"])
            assert next(heard)["status"] == "running"
            writer.append(of_now(records[11]))
        rest = list(heard)
        assert rest[-1]["status"] == "finished"
        assert rest[-1]["asked"] == 12


def test_the_list_announces_new_runs(tmp_path: Path) -> None:
    with dashboard(tmp_path) as address:
        heard = events(address, "/events")
        adding = threading.Timer(0.3, lambda: write_run(tmp_path / "new", list(planted_records(cliff, **GRID))))
        adding.start()
        name, data = next(heard)
        assert name == "list"
        assert json.loads(data)["version"]
        adding.join()
        assert "sim:planted" in get(address, "/").text
        heard.close()


def test_what_changes_after_a_stream_has_opened_is_news(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page asks for the list when the answer begins; what came just after that must not count as seen already."""
    noted: list[str] = []
    version = Dashboard.version

    def noting(board: Dashboard) -> str:
        noted.append(version(board))
        return noted[-1]

    monkeypatch.setattr(Dashboard, "version", noting)
    handlers = _Handlers(Dashboard([tmp_path]), lambda: True)
    asyncio.run(handlers.list_events(Request({"type": "http", "method": "GET", "path": "/events", "headers": []})))
    assert len(noted) == 1


def test_many_streams_are_no_burden_and_the_server_ends_with_them_open(tmp_path: Path) -> None:
    begun_run(tmp_path / "run", list(planted_records(cliff, **GRID)), first=3)
    with writing(tmp_path / "run"), dashboard(tmp_path) as address:
        key = ids(address)["run"]
        open_streams = [states(address, key) for _ in range(20)]
        assert {next(stream)["asked"] for stream in open_streams} == {3}
        answer: Answer = get(address, "/")
        assert answer.status == 200
    # leaving `dashboard` asserts that the server has ended


def test_an_answer_before_the_server_runs_is_given_when_it_does(tmp_path: Path) -> None:
    serving = DashboardServer([tmp_path], "127.0.0.1", 0)
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(get(serving.address, "/").status))
    asking.start()
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    asking.join(120)
    serving.stop()
    thread.join(120)
    assert found == [200]
