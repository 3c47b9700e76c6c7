"""HTTP for many threads over urllib3: pooled connections, one deadline for a whole request, no retries.

Retries are decided by the run, so each call here sends exactly one request.
"""

from __future__ import annotations

import http
import http.client
import io
import math
import socket
import ssl
import time
import urllib.request
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import urllib3
import urllib3.connection
from urllib3.exceptions import (
    ConnectTimeoutError,
    DecodeError,
    HTTPError,
    IncompleteRead,
    NewConnectionError,
    ReadTimeoutError,
)

from leadline.core.secrets import redact, redact_bytes, remember

MAX_IDLE_CONNECTIONS = 1024
READ_BYTES = 1 << 16
"""Decoded bytes read at a time: small, since a compressed body may become a thousand times larger."""
MAX_REPLY_BYTES = 64 << 20
REPLY_BYTES_PER_BYTE = 32
"""Added to the limit for each byte sent: a reply may hold log-probabilities of every token of the prompt."""
MESSAGE_CHARACTERS = 500
"""Longer texts of a server's errors are cut: they are on every record."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A server's reply, whatever its status."""

    status: int
    body: bytes
    content_type: str = ""
    retry_after: float | None = None
    """Seconds to wait, from either form of the Retry-After header."""
    location: str = ""

    @property
    def looks_like_html(self) -> bool:
        return "html" in self.content_type or self.body[:200].lstrip()[:1] == b"<"


FailedReason = Literal["connection", "timeout", "malformed"]


class RequestFailed(Exception):
    """No complete reply arrived: the connection failed, the request timed out, or the reply is not one of HTTP."""

    def __init__(self, reason: FailedReason, message: str) -> None:
        super().__init__(message)
        self.reason: FailedReason = reason


class HttpClient:
    """Requests to one server, from any number of threads. Idle connections are shared between threads."""

    def __init__(self, base_url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 600.0) -> None:
        self.base_url = base_url.rstrip("/")
        self.timeout = timeout
        self._headers = {"User-Agent": "leadline", "Accept": "application/json", **(headers or {})}
        self._pool = _connection_pool(self.base_url)

    @property
    def root_url(self) -> str:
        """The base URL without its /v1: where servers have their endpoints beyond OpenAI's."""
        return self.base_url.removesuffix("/v1")

    def get(self, url: str) -> HttpReply:
        return self.send("GET", url, None)

    def post(self, url: str, body: bytes) -> HttpReply:
        return self.send("POST", url, body)

    def send(self, method: str, url: str, body: bytes | None) -> HttpReply:
        """Send one request, once. Raises RequestFailed when no complete reply arrives within the timeout."""
        headers = {**self._headers, "Content-Type": "application/json"} if body is not None else self._headers
        try:
            response = self._pool.urlopen(
                method,
                self._target(url),
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(total=self.timeout),
                retries=False,
                redirect=False,
                assert_same_host=False,
                preload_content=False,
            )
            with closing(response):  # after an exception (Ctrl-C too) the connection is not used again
                data = _read(response, MAX_REPLY_BYTES + REPLY_BYTES_PER_BYTE * len(body or b""))
        except RequestFailed:
            raise
        except Exception as error:  # whatever a server may cause in urllib3 and http.client
            raise _failed(error, self.timeout) from None
        return HttpReply(
            status=response.status,
            body=redact_bytes(data),
            content_type=response.headers.get("Content-Type", "").lower(),
            retry_after=parse_retry_after(response.headers.get("Retry-After")),
            location=redact(response.headers.get("Location", ""))[:MESSAGE_CHARACTERS],
        )

    def close(self) -> None:
        """Close all connections. A later request opens new ones."""
        self._pool.close()
        self._pool = _connection_pool(self.base_url)

    def _target(self, url: str) -> str:
        """The path of a URL; the whole URL where an HTTP proxy forwards the request."""
        if self._pool.proxy is not None and self._pool.scheme == "http":
            return url
        parts = urlsplit(url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


class _DeadlineReader(io.RawIOBase):
    """Reads from a socket until a point in time.

    A socket timeout alone limits each read only: servers that send a byte now and then, of the headers or of the body,
    would prolong a request without end.
    """

    def __init__(self, sock: socket.socket, raw: io.RawIOBase) -> None:
        self._sock, self._raw = sock, raw
        self._deadline = time.monotonic() + (sock.gettimeout() or 0.0)  # urllib3 sets what is left of the timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """With a deadline for headers and body, and without the replies before the reply (103 Early Hints)."""

    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp = io.BufferedReader(_DeadlineReader(sock, self.fp.detach()))

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if status == http.HTTPStatus.SWITCHING_PROTOCOLS or not 100 <= status < 200:
                return version, status, reason
            http.client.parse_headers(self.fp)


class _Connection(urllib3.connection.HTTPConnection):
    response_class = _Response


class _SecureConnection(urllib3.connection.HTTPSConnection):
    response_class = _Response


def _read(response: urllib3.BaseHTTPResponse, max_bytes: int) -> bytes:
    parts, size = [], 0
    while part := response.read(READ_BYTES):
        size += len(part)
        if size > max_bytes:
            raise RequestFailed("malformed", f"the reply is larger than {max_bytes >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def _failed(error: BaseException, timeout: float) -> RequestFailed:
    """The exception without urllib3's wrapping, whose messages name objects and addresses in memory."""
    if isinstance(error, IncompleteRead):
        return RequestFailed("connection", f"the connection closed after {error.partial} bytes of the reply")
    inner = [arg for arg in (*error.args, error.__cause__) if isinstance(arg, Exception)]
    if isinstance(error, HTTPError) and inner and not isinstance(error, ReadTimeoutError | DecodeError):
        return _failed(inner[0], timeout)
    timed_out = isinstance(error, TimeoutError | ReadTimeoutError | ConnectTimeoutError)
    if timed_out and not isinstance(error, NewConnectionError):
        return RequestFailed("timeout", f"no answer within {timeout:g} seconds")
    lost = isinstance(error, OSError | HTTPError | http.client.HTTPException) and not isinstance(error, DecodeError)
    message = redact(f"{type(error).__name__}: {error}")[:MESSAGE_CHARACTERS]
    return RequestFailed("connection" if lost else "malformed", message)


def parse_retry_after(value: str | None, *, now: float | None = None) -> float | None:
    """Seconds from a Retry-After header, which holds seconds or a date (RFC 9110, 10.2.3)."""
    if not value:
        return None
    try:
        seconds = float(value)
        return max(0.0, seconds) if math.isfinite(seconds) else None
    except ValueError:
        pass
    try:
        date = parsedate_to_datetime(value)
        at = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, at - (time.time() if now is None else now))


def _connection_pool(base_url: str) -> urllib3.HTTPConnectionPool:
    """Connections to the server, through the proxy that the environment names for it; local servers use none."""
    url = urlsplit(base_url)
    host = url.hostname or ""
    options: dict[str, Any] = {"maxsize": MAX_IDLE_CONNECTIONS, "block": False}
    if url.scheme == "https":
        options["ssl_context"] = ssl.create_default_context()  # once: reading the certificates is slow
    address = urllib.request.getproxies().get(url.scheme, "")
    if not address or host in ("localhost", "::1") or host.startswith("127.") or urllib.request.proxy_bypass(host):
        pool = urllib3.connection_from_url(base_url, **options)
    else:
        proxy = urlsplit(address if "://" in address else f"http://{address}")
        if proxy.username:
            user, password = unquote(proxy.username), unquote(proxy.password or "")
            remember(password)
            options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=f"{user}:{password}")
        manager = urllib3.ProxyManager(f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}", **options)
        pool = manager.connection_from_url(base_url)
    pool.ConnectionCls = _SecureConnection if url.scheme == "https" else _Connection
    return pool
