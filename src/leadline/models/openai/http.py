"""HTTP for many threads over urllib3: pooled connections, one deadline for a whole request, no retries.

Retries are decided by the run, so each call here sends exactly one request.
"""

from __future__ import annotations

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
from urllib3.exceptions import ConnectTimeoutError, HTTPError, IncompleteRead, NewConnectionError, ReadTimeoutError

MAX_IDLE_CONNECTIONS = 1024
READ_BYTES = 1_048_576


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


class RequestFailed(Exception):
    """No complete reply arrived: the connection failed, or the request timed out."""

    def __init__(self, reason: Literal["connection", "timeout"], message: str) -> None:
        super().__init__(message)
        self.reason: Literal["connection", "timeout"] = reason


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
        deadline = time.monotonic() + self.timeout
        headers = {**self._headers, "Content-Type": "application/json"} if body is not None else self._headers
        try:
            response = self._pool.urlopen(
                method,
                self._target(url),
                body=body,
                headers=headers,
                timeout=self.timeout,
                retries=False,
                redirect=False,
                assert_same_host=False,
                preload_content=False,
            )
            with closing(response):  # after an exception (Ctrl-C too) the connection is not used again
                data = _read(response, deadline)
        except (HTTPError, OSError) as error:
            raise _failed(error, self.timeout) from None
        return HttpReply(
            status=response.status,
            body=data,
            content_type=response.headers.get("Content-Type", "").lower(),
            retry_after=parse_retry_after(response.headers.get("Retry-After")),
            location=response.headers.get("Location", ""),
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


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    """Read the whole body before the deadline.

    A socket timeout alone limits each read only: gateways that send a blank now and then to keep a connection open
    would prolong a request without end.
    """
    sock = getattr(response.connection, "sock", None)  # None where the server closes the connection after the reply
    parts = []
    while part := response.read1(READ_BYTES):
        parts.append(part)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if sock is not None and response.length_remaining != 0:
            sock.settimeout(left)
    return b"".join(parts)


def _failed(error: HTTPError | OSError, timeout: float) -> RequestFailed:
    """The exception without urllib3's wrapping, whose messages name objects and addresses in memory."""
    if isinstance(error, IncompleteRead):
        return RequestFailed("connection", f"the connection closed after {error.partial} bytes of the reply")
    inner = [arg for arg in (*error.args, error.__cause__) if isinstance(arg, Exception)]
    if isinstance(error, HTTPError) and inner and not isinstance(error, ReadTimeoutError):
        if isinstance(inner[0], HTTPError | OSError):
            return _failed(inner[0], timeout)
        error = OSError(f"{type(inner[0]).__name__}: {inner[0]}")
    timed_out = isinstance(error, TimeoutError | ReadTimeoutError | ConnectTimeoutError)
    if timed_out and not isinstance(error, NewConnectionError):
        return RequestFailed("timeout", f"no answer within {timeout:g} seconds")
    return RequestFailed("connection", f"{type(error).__name__}: {error}")


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


def _connection_pool(base_url: str) -> urllib3.HTTPConnectionPool:
    """Connections to the server, through the proxy that the environment names for it; local servers use none."""
    url = urlsplit(base_url)
    host = url.hostname or ""
    options: dict[str, Any] = {"maxsize": MAX_IDLE_CONNECTIONS, "block": False}
    if url.scheme == "https":
        options["ssl_context"] = ssl.create_default_context()  # once: reading the certificates is slow
    address = urllib.request.getproxies().get(url.scheme, "")
    if not address or host in ("localhost", "::1") or host.startswith("127.") or urllib.request.proxy_bypass(host):
        return urllib3.connection_from_url(base_url, **options)
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    user = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}" if proxy.username else None
    options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=user)
    manager = urllib3.ProxyManager(f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}", **options)
    return manager.connection_from_url(base_url)
