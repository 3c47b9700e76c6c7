"""HTTP for many threads: kept-alive connections, as many as there are requests at once, and no retries.

`http.client` of the standard library, because it was the cheapest of those measured (benchmarks/server_requests.py,
docs/servers.md): half the CPU of urllib3, a fifth of requests, a seventh of httpx, for the same requests.
Retrying is decided elsewhere: what happens here happens once.
"""

from __future__ import annotations

import base64
import http.client
import select
import socket
import ssl
import threading
import time
import urllib.request
import weakref
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, Literal
from urllib.parse import SplitResult, unquote, urlsplit

SMALL_BYTES = 65_536
"""Bodies up to here go out together with their head. Larger ones are not worth copying."""
PART_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class HttpReply:
    """What a server answered, whatever its status."""

    status: int
    body: bytes
    content_type: str = ""
    retry_after: float | None = None
    """Seconds to wait, from either form of the Retry-After header."""
    location: str = ""

    @property
    def looks_like_html(self) -> bool:
        return "html" in self.content_type or self.body[:200].lstrip()[:1] == b"<"


class HttpTrouble(Exception):
    """No whole answer came: the connection failed, or it took too long."""

    def __init__(self, why: Literal["connection", "timeout"], message: str) -> None:
        super().__init__(message)
        self.why: Literal["connection", "timeout"] = why


class _OneGo:
    """Head and body of a request in one write: half the system calls, and threads change places half as often."""

    waits = False
    """Set before a request whose head is to wait for its body."""
    _head = b""

    def send(self, data: Any) -> None:
        if self.waits:
            self.waits, self._head = False, data
            return
        data, self._head = self._head + data, b""
        super().send(data)  # type: ignore[misc]


class _Connection(_OneGo, http.client.HTTPConnection):
    pass


class _SecureConnection(_OneGo, http.client.HTTPSConnection):
    pass


class HttpClient:
    """Requests to one server. A request has a connection of its own, and leaves it to the next of any thread: threads
    come and go, with every round of a run and every batch of texts to count, and would leave theirs behind open."""

    def __init__(self, base_url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 600.0) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self._headers = {"User-Agent": "leadline", "Accept": "application/json", **(headers or {})}
        self._url = urlsplit(self.base_url)
        self._proxy = _proxy_for(self._url)
        if self._proxy and self._url.scheme == "http":
            self._headers |= _proxy_key(self._proxy)
        self._idle: deque[_Connection | _SecureConnection] = deque()
        self._all: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._all)

    @property
    def root_url(self) -> str:
        """The base URL without its /v1, where servers keep what is not OpenAI's."""
        return self.base_url.removesuffix("/v1")

    def get(self, url: str) -> HttpReply:
        return self.send("GET", url, None)

    def post(self, url: str, body: bytes) -> HttpReply:
        return self.send("POST", url, body)

    def send(self, method: str, url: str, body: bytes | None) -> HttpReply:
        """One request, once. Raises HttpTrouble when no whole answer came back."""
        connection = self._connection()
        target = url if self._proxy and self._url.scheme == "http" else _target(url)
        headers = {**self._headers, "Content-Type": "application/json"} if body is not None else self._headers
        try:
            deadline = time.monotonic() + self.timeout
            connection.waits = body is not None and len(body) <= SMALL_BYTES
            connection.request(method, target, body, headers)
            sock = connection.sock  # which the connection lets go of when the server says that it will close it
            response = connection.getresponse()
            data = _read(response, sock, deadline)
        except TimeoutError:
            connection.close()
            raise HttpTrouble("timeout", f"no answer within {self.timeout:g} seconds") from None
        except http.client.IncompleteRead as error:
            connection.close()
            message = f"the connection closed after {len(error.partial)} bytes of the answer"
            raise HttpTrouble("connection", message) from None
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise HttpTrouble("connection", f"{type(error).__name__}: {error}") from None
        except BaseException:
            connection.close()  # Ctrl-C in mid-answer: the rest must not be read as the next one's
            raise
        finally:
            self._idle.append(connection)
        return HttpReply(
            status=response.status,
            body=data,
            content_type=response.getheader("Content-Type", "").lower(),
            retry_after=parse_retry_after(response.getheader("Retry-After")),
            location=response.getheader("Location", ""),
        )

    def close(self) -> None:
        with self._lock:
            self._idle.clear()
            _close_all(self._all)

    def _connection(self) -> _Connection | _SecureConnection:
        try:
            connection = self._idle.pop()  # the one used last, which is the least likely to have been closed
        except IndexError:
            return self._new_connection()
        if connection.sock is not None and _closed_by_peer(connection.sock):
            connection.close()  # it is opened again by the next request
        elif connection.sock is not None and connection.sock.gettimeout() != self.timeout:
            connection.sock.settimeout(self.timeout)
        return connection

    @cached_property
    def _trust(self) -> ssl.SSLContext:
        """Once for all connections: reading the system's certificates costs as much as many requests."""
        return ssl.create_default_context()

    def _new_connection(self) -> _Connection | _SecureConnection:
        place = self._proxy or self._url
        host, port = place.hostname or "", place.port
        made: _Connection | _SecureConnection
        if self._url.scheme == "https":
            made = _SecureConnection(host, port, timeout=self.timeout, context=self._trust)
            if self._proxy:
                made.set_tunnel(self._url.hostname or "", self._url.port or 443, _proxy_key(self._proxy))
        else:
            made = _Connection(host, port, timeout=self.timeout)
        with self._lock:
            self._all.append(made)
        return made


def _read(response: http.client.HTTPResponse, sock: socket.socket, deadline: float) -> bytes:
    """The whole body. A socket's own time limit is for each part of it: some servers and gateways send a blank now and
    then to keep a connection open, and a request would never end."""
    parts = [response.read1(PART_BYTES)]
    while parts[-1] and response.length != 0:  # None: the length is not announced
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        parts.append(response.read1(PART_BYTES))
    if response.length:
        raise http.client.IncompleteRead(b"".join(parts), response.length)
    response.read()  # nothing: but only now is the connection free for the next request
    return b"".join(parts)


def _close_all(connections: list[http.client.HTTPConnection]) -> None:
    for connection in connections:
        connection.close()
    connections.clear()


def parse_retry_after(value: str | None, *, now: float | None = None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3)."""
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    return max(0.0, at - (time.time() if now is None else now))


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _closed_by_peer(sock: socket.socket) -> bool:
    """Whether an idle connection has something to read, which can only be its end.

    Servers close connections that were idle for some seconds. Noticing it before sending keeps that from
    looking like a lost request.
    """
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _proxy_for(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for this URL, as other tools read it. This machine needs none."""
    host = url.hostname or ""
    address = urllib.request.getproxies().get(url.scheme, "")
    if not address or host in ("localhost", "::1") or host.startswith("127.") or urllib.request.proxy_bypass(host):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _proxy_key(proxy: SplitResult) -> dict[str, str]:
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
