"""The HTTP client: proxies of the environment, kept connections, and nothing left over from a broken answer."""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from leadline.models.openai.http import HttpClient, RequestFailed
from support.fake_server import FakeServer, Faults


class _Proxy(BaseHTTPRequestHandler):
    seen: list[tuple[str, str, str]] = []  # noqa: RUF012  (one proxy a test)

    def _answer(self, status: int) -> None:
        self.seen.append((self.command, self.path, self.headers.get("Proxy-Authorization", "")))
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self) -> None:
        self._answer(200)

    def do_CONNECT(self) -> None:
        self._answer(502)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str, str]]]:
    """A proxy that the environment names; what it was asked for."""
    _Proxy.seen = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Proxy) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://me:s%40cret@127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("no_proxy", "near.invalid")
        yield _Proxy.seen
        server.shutdown()


KEY = "Basic " + base64.b64encode(b"me:s@cret").decode()


def test_a_far_server_is_asked_through_the_proxy(proxy: list[tuple[str, str, str]]) -> None:
    client = HttpClient("http://far.invalid/v1", timeout=60)
    assert client.get(f"{client.base_url}/models?x=1").status == 200
    assert proxy == [("GET", "http://far.invalid/v1/models?x=1", KEY)]


def test_a_secure_far_server_is_asked_through_a_tunnel(proxy: list[tuple[str, str, str]]) -> None:
    client = HttpClient("https://far.invalid/v1", timeout=60)
    with pytest.raises(RequestFailed, match="502") as caught:
        client.get(f"{client.base_url}/models")
    assert caught.value.reason == "connection"
    assert proxy == [("CONNECT", "far.invalid:443", KEY)]


def test_this_machine_and_excepted_names_are_asked_directly(proxy: list[tuple[str, str, str]]) -> None:
    with FakeServer(sockets=True) as server:
        client = HttpClient(server.base_url, timeout=60)
        assert client.get(f"{client.base_url}/models").status == 200
    with pytest.raises(RequestFailed):
        HttpClient("http://near.invalid/v1", timeout=60).get("http://near.invalid/v1/models")
    assert proxy == []


def test_a_connection_is_kept_between_requests() -> None:
    with FakeServer(sockets=True) as server:
        client = HttpClient(server.base_url, timeout=60)
        for _ in range(5):
            client.get(f"{client.base_url}/models")
        assert server.connections == 1


def test_threads_that_come_and_go_leave_their_connections_to_others() -> None:
    with FakeServer(Faults(delay_seconds=0.05), sockets=True) as server:
        client = HttpClient(server.base_url, timeout=60)
        body = b'{"messages": [{"role": "user", "content": "x"}]}'
        for _ in range(5):
            threads = [
                threading.Thread(target=client.post, args=(f"{client.base_url}/chat/completions", body))
                for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(server.completions) == 20
        assert server.connections == 4


def test_certificates_are_read_once_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[ssl.SSLContext] = []

    def read() -> ssl.SSLContext:
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", read)
    client = HttpClient("https://127.0.0.1:1/v1", timeout=60)
    for _ in range(3):
        with pytest.raises(RequestFailed):
            client.get(client.base_url)
    assert len(made) == 1


def test_the_rest_of_a_broken_answer_is_never_read_as_the_next() -> None:
    with FakeServer(Faults(drop_midway=1.0), sockets=True) as server:
        client = HttpClient(server.base_url, timeout=60)
        body = b'{"messages": [{"role": "user", "content": "x"}]}'
        with pytest.raises(RequestFailed, match="closed after"):
            client.post(f"{client.base_url}/chat/completions", body)
        assert b'"object": "list"' in client.get(f"{client.base_url}/models").body


def _drip(listening: socket.socket, head: bytes, part: bytes, times: int, end: bytes) -> None:
    """Answers every request of one connection with a part of the body every 50 ms."""
    connection, _ = listening.accept()
    with connection, contextlib.suppress(OSError):
        while connection.recv(65536):
            connection.sendall(head)
            for _ in range(times):
                connection.sendall(part)
                time.sleep(0.05)
            connection.sendall(end)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("head", "part", "end"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", b" ", b"{}"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", b"2\r\n{}\r\n0\r\n\r\n"),
    ],
)
@pytest.mark.parametrize("times", [6, 200])
def test_a_body_that_drips_is_read_until_the_request_has_taken_its_time(
    head: bytes, part: bytes, end: bytes, times: int
) -> None:
    head = head.replace(b"%d", str(times + 2).encode())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=_drip, args=(listening, head, part, times, end), daemon=True)
        server.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        client = HttpClient(url, timeout=1.5)
        if times > 10:
            with pytest.raises(RequestFailed, match=r"within 1\.5 seconds"):
                client.get(url)
        else:
            for _ in range(6):  # over one connection, and each has all its time
                assert client.get(url).body == b" " * times + b"{}"
        client.close()
        server.join(60)
