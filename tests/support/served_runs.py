"""The dashboard on a real socket, in a thread of the test."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from leadline.features.dashboard.app import DashboardServer


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str


@contextmanager
def dashboard(*folders: Path, host: str = "127.0.0.1") -> Iterator[str]:
    """Its address, without the slash at the end."""
    serving = DashboardServer(folders, host, 0)
    thread = threading.Thread(target=serving.run, daemon=True)
    thread.start()
    try:
        yield serving.address.rstrip("/")
    finally:
        serving.stop()
        thread.join(120)
        assert not thread.is_alive(), "the server did not end"


def connect(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)


def get(address: str, path: str, method: str = "GET", **headers: str) -> Answer:
    """`path` is sent as it is, however odd."""
    connection = connect(address)
    connection.putrequest(method, path, skip_host="host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, text)


def events(address: str, path: str) -> Generator[tuple[str, str], None, None]:
    """Name and data of each event, for as long as somebody wants them."""
    connection = connect(address)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert answer.headers["content-type"].startswith("text/event-stream")
    name = ""
    try:
        while raw := answer.readline():
            line = raw.decode().strip()
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, line.removeprefix("data: ")
    finally:
        connection.close()
