"""Public data: fetched once from a real socket, checked, resumed when interrupted, and read offline afterwards."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from leadline.cli.main import run_command
from leadline.core.errors import LockedError, ServerError, SourceError, UnknownName, UsageError
from leadline.core.files import exclusive
from leadline.text import downloads
from leadline.text.downloads import LOCK, Download, Mirror, fetch, find_data, pull, sha256_of

DATA = bytes(range(256)) * 2000
SHA = hashlib.sha256(DATA).hexdigest()


@dataclass
class FileServer:
    """A server with one file, which may break off, forget ranges, or change what it has."""

    data: bytes = DATA
    etag: str = '"first"'
    breaks_after: int | None = None
    ranges: bool = True
    status: int = 200
    chunked: bool = False
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server() -> Iterator[FileServer]:
    kept = FileServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            kept.asked.append(wanted)
            begin = 0
            if wanted and kept.ranges and self.headers.get("If-Range") == kept.etag:
                begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            body = kept.data[begin:]
            if begin and not body:
                self.send_error(416)
                return
            self.send_response(kept.status if kept.status != 200 else 206 if begin else 200)
            self.send_header("ETag", kept.etag)
            if kept.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"100\r\n" + body[:100])  # fewer bytes than the chunk should have
                return
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if kept.breaks_after is None else body[: kept.breaks_after])

        def log_message(self, format: str, *args: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    kept.url = f"http://127.0.0.1:{http.server_port}/file.json"
    yield kept
    http.shutdown()
    http.server_close()
    thread.join()


def item(*mirrors: Mirror) -> Download:
    return Download("thing", "thing.json", "a thing", "none", mirrors)


def got(download: Download, folder: Path, *, again: bool = False) -> downloads.Pulled:
    return fetch(download, folder, progress=lambda done, total: None, again=again)


def test_a_file_is_fetched_once_checked_and_kept(server: FileServer, tmp_path: Path) -> None:
    first = got(item(Mirror(server.url, SHA)), tmp_path)
    assert (first.checked, first.fetched, first.sha256) == ("pinned", True, SHA)
    assert first.path.read_bytes() == DATA
    again = got(item(Mirror(server.url, SHA)), tmp_path)
    assert (again.checked, again.fetched) == ("pinned", False)
    assert len(server.asked) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == [LOCK, "thing.json"]


def test_a_download_that_broke_off_is_resumed(server: FileServer, tmp_path: Path) -> None:
    server.breaks_after = 100_000
    with pytest.raises(ServerError, match="ended after"):
        got(item(Mirror(server.url, SHA)), tmp_path)
    server.breaks_after = None
    assert got(item(Mirror(server.url, SHA)), tmp_path).path.read_bytes() == DATA
    assert server.asked == ["", "bytes=100000-"]


def test_a_chunked_reply_that_breaks_off_is_an_error_of_ours(server: FileServer, tmp_path: Path) -> None:
    server.chunked = True
    with pytest.raises(ServerError, match="could not be fetched"):
        got(item(Mirror(server.url, SHA)), tmp_path)


def test_a_partial_download_with_nothing_left_to_resume_is_begun_anew(server: FileServer, tmp_path: Path) -> None:
    """As after the process was killed between the last byte and the check."""
    server.breaks_after = 5000
    with pytest.raises(ServerError):
        got(item(Mirror(server.url, SHA)), tmp_path)
    server.breaks_after = None
    (tmp_path / "thing.json.part").write_bytes(DATA)
    with pytest.raises(ServerError, match="416"):
        got(item(Mirror(server.url, SHA)), tmp_path)
    assert got(item(Mirror(server.url, SHA)), tmp_path).path.read_bytes() == DATA


@pytest.mark.parametrize("change", ["ranges", "etag"])
def test_it_starts_again_when_the_server_cannot_resume_or_has_another_file(
    server: FileServer, tmp_path: Path, change: str
) -> None:
    server.breaks_after = 5000
    with pytest.raises(ServerError):
        got(item(Mirror(server.url, SHA)), tmp_path)
    server.breaks_after = None
    if change == "ranges":
        server.ranges = False
    else:
        server.etag = '"second"'
    assert got(item(Mirror(server.url, SHA)), tmp_path).path.read_bytes() == DATA


def test_a_file_with_another_hash_is_refused_and_not_kept(server: FileServer, tmp_path: Path) -> None:
    server.data = b"something else"
    with pytest.raises(SourceError, match="unexpected SHA-256") as caught:
        got(item(Mirror(server.url, SHA)), tmp_path)
    assert SHA in caught.value.fix
    assert not list(tmp_path.glob("thing*"))


@pytest.mark.parametrize("sha256", [SHA, ""])
def test_a_file_that_changed_on_disk_is_named_and_fetched_again(
    server: FileServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, sha256: str
) -> None:
    found = got(item(Mirror(server.url, sha256)), tmp_path)
    found.path.write_bytes(b"changed")
    again = got(item(Mirror(server.url, sha256)), tmp_path)
    assert (again.fetched, again.path.read_bytes()) == (True, DATA)
    assert str(found.path) in caplog.text


def test_a_damaged_download_is_refused_when_it_is_used(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    monkeypatch.setitem(downloads.DOWNLOADS, "thing", item(Mirror(server.url, SHA)))
    path = pull("thing").path
    assert find_data("thing") == path
    path.write_bytes(DATA[:-5])
    with pytest.raises(SourceError, match="damaged") as refused:
        find_data("thing")
    assert (refused.value.where, "sources pull thing" in refused.value.fix) == (str(path), True)
    pull("thing")
    assert find_data("thing") == path


@pytest.mark.parametrize("text", ["", "[1]", '{"thing": 3}', '{"thing": {"sha256": 5, "url": []}}', "[" * 5000])
def test_a_damaged_lock_file_stops_nothing(server: FileServer, tmp_path: Path, text: str) -> None:
    got(item(Mirror(server.url, SHA)), tmp_path)
    (tmp_path / LOCK).write_text(text)
    assert got(item(Mirror(server.url, SHA)), tmp_path).sha256 == SHA


def test_without_a_known_hash_the_first_download_is_trusted_and_later_ones_must_match(
    server: FileServer, tmp_path: Path
) -> None:
    unpinned = item(Mirror(server.url))
    assert got(unpinned, tmp_path).checked == "trusted on first use"
    assert json.loads((tmp_path / LOCK).read_text())["thing"] == {
        "file": "thing.json",
        "sha256": SHA,
        "url": server.url,
    }
    assert got(unpinned, tmp_path, again=True).checked == "locked"
    server.data = b"another thing"
    with pytest.raises(SourceError):
        got(unpinned, tmp_path, again=True)
    assert (tmp_path / "thing.json").read_bytes() == DATA


def test_two_downloads_at_once_both_have_an_entry_in_the_lock_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, read = threading.Barrier(2), downloads._read_entries

    def read_together(path: Path) -> dict[str, dict[str, str]]:
        found = read(path)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)  # a second reader, if it may read before the first has written
        return found

    monkeypatch.setattr(downloads, "_read_entries", read_together)
    names = ["first", "second"]
    for name in names:
        (tmp_path / name).write_bytes(DATA)
    items = [Download(name, name, "a thing", "none", (Mirror("http://a.invalid", SHA),)) for name in names]
    threads = [threading.Thread(target=got, args=(one, tmp_path)) for one in items]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(json.loads((tmp_path / LOCK).read_text())) == names


def test_a_file_that_another_process_is_downloading_is_left_to_it(server: FileServer, tmp_path: Path) -> None:
    part = tmp_path / "thing.json.part"
    part.write_bytes(b"half")
    with exclusive(part), pytest.raises(LockedError, match="another process is downloading thing"):
        got(item(Mirror(server.url)), tmp_path)
    assert part.read_bytes() == b"half"
    assert got(item(Mirror(server.url)), tmp_path).sha256 == SHA


def test_the_next_mirror_is_tried_when_one_does_not_answer(server: FileServer, tmp_path: Path) -> None:
    dead = Mirror("http://127.0.0.1:9/file.json", SHA)
    assert got(item(dead, Mirror(server.url, SHA)), tmp_path).url == server.url
    server.status = 404
    with pytest.raises(ServerError, match="404") as caught:
        got(item(dead, Mirror(server.url, SHA)), tmp_path / "other")
    assert "thing.json" in caught.value.fix


def test_a_folder_may_have_the_file_of_any_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path / "cache"))
    mirrors = Mirror("http://a.invalid/file.json", SHA), Mirror("http://b.invalid/file.json", "0" * 64)
    monkeypatch.setitem(downloads.DOWNLOADS, "thing", item(*mirrors))
    (tmp_path / "file.json").write_bytes(DATA)
    pulled = pull("thing", source=str(tmp_path))
    assert (pulled.checked, pulled.sha256) == ("pinned", SHA)


def test_a_name_that_no_file_can_have_is_an_error_of_ours() -> None:
    with pytest.raises(SourceError, match="no data file"):
        find_data("x" * 300)
    with pytest.raises(UsageError, match="no user 'nobody-of-this-name'"):
        find_data("~nobody-of-this-name/file.json")


def test_pinned_hashes_are_hashes_and_mirrors_are_urls() -> None:
    for download in downloads.DOWNLOADS.values():
        assert download.mirrors
        for mirror in download.mirrors:
            assert mirror.url.startswith("http")
            assert re.fullmatch("([0-9a-f]{64})?", mirror.sha256)


def test_the_command_fetches_names_files_and_works_offline_afterwards(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    monkeypatch.setitem(downloads.DOWNLOADS, "thing", item(Mirror(server.url)))
    with pytest.raises(SourceError, match="not on this machine"):
        find_data("thing")
    assert run_command(["sources", "pull"]) == 0
    assert "a thing" in capsys.readouterr().out
    assert run_command(["sources", "pull", "thing"]) == 0
    said = capsys.readouterr()
    assert said.out.strip() == str(tmp_path / "data" / "thing.json")
    assert "no pinned SHA-256" in said.err
    server.status = 500
    assert run_command(["sources", "pull", "thing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checked"] == "locked"
    assert sha256_of(find_data("thing")) == SHA
    with pytest.raises(UnknownName):
        pull("thong")
