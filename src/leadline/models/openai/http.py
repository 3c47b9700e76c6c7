"""HTTP for many threads: kept connections, one deadline for a whole request, bounded replies, no retries.

The standard library connects and parses replies, except plain heads (`http_response`); requests are written here. For
many small requests the client takes less than half of urllib3's CPU time (docs/performance.md has both, and the share
of a whole run). Retries are decided by the run, so each call sends exactly one request.

`served_by` puts a Python function in the place of a server, for tests of your own and for ours:

    with served_by(reply) as base_url:
        leadline.measure(leadline.Spec(model=f"openai:fake?base_url={base_url}&tokenizer=bytes", ...))
"""

from __future__ import annotations

import base64
import http.client
import math
import select
import socket
import ssl
import time
import urllib.request
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cached_property
from itertools import count
from typing import Literal, cast
from urllib.parse import SplitResult, quote, unquote, urlsplit

from leadline.core.activity import waiting_for
from leadline.core.secrets import redact, redact_bytes, remember
from leadline.models.openai.http_response import DeadlineReader, Response

MAX_IDLE_CONNECTIONS = 1024
READ_BYTES = 1 << 16
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
    headers: Mapping[str, str] = field(default_factory=dict)
    """Unchanged bytes: redact them before they are shown."""

    @property
    def looks_like_html(self) -> bool:
        return "html" in self.content_type or self.body[:200].lstrip()[:1] == b"<"


FailedReason = Literal["connection", "timeout", "malformed"]


class RequestFailed(Exception):
    """No complete reply arrived: the connection failed, the request timed out, or the reply is not one of HTTP."""

    def __init__(self, reason: FailedReason, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.reason: FailedReason = reason
        self.fix = fix


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as a function that takes the place of a server gets it."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    timeout: float
    """Seconds until the client would give up; the function may raise RequestFailed("timeout", ...) for it."""

    @property
    def path(self) -> str:
        """With its query."""
        return _target(self.url)


Handler = Callable[[HttpRequest], HttpReply]
"""Called from any number of threads. It may raise RequestFailed, as a server that is away does."""

_HANDLERS: dict[str, Handler] = {}
"""By host."""
_NUMBERS = count(1)


@contextmanager
def served_by(handler: Handler) -> Iterator[str]:
    """A base URL whose requests a function answers, without a socket, for as long as the context lasts."""
    host = f"in-process-{next(_NUMBERS)}.invalid"  # a name that no network has (RFC 2606)

    def serve(request: HttpRequest) -> HttpReply:
        if host not in _HANDLERS:
            raise RequestFailed("connection", "the function in the place of this server has gone")
        return handler(request)

    _HANDLERS[host] = serve
    try:
        yield f"http://{host}/v1"
    finally:
        del _HANDLERS[host]


class HttpClient:
    """Requests to one server, from any number of threads. Idle connections are shared between threads."""

    def __init__(
        self, base_url: str, *, headers: Mapping[str, str] | None = None, timeout: float = 600.0, query: str = ""
    ) -> None:
        """`query` is added to the URL of every request, and is shown nowhere."""
        self.base_url = base_url.rstrip("/")
        self._query = f"?{query}" if query else ""
        self.timeout = timeout
        self.rate_limit_wait = 0.0
        """Seconds that small questions about the server wait for its rate limit."""
        self._url = urlsplit(self.base_url)
        self._proxy = _proxy_for(self._url)
        self._forwarded = self._proxy is not None and self._url.scheme == "http"
        sent = {"Host": _ascii_host(self._url), "User-Agent": "leadline", "Accept": "application/json"}
        sent["Accept-Encoding"] = "identity"
        sent |= {**(_proxy_key(self._proxy) if self._forwarded else {}), **(headers or {})}
        self._handler = _HANDLERS.get(self._url.hostname or "")
        self._sent_headers = sent
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self._idle: deque[socket.socket] = deque(maxlen=MAX_IDLE_CONNECTIONS)
        weakref.finalize(self, _close_all, self._idle)

    @property
    def sends_key(self) -> bool:
        """Whether requests carry a key."""
        return "Authorization" in self._sent_headers

    @property
    def root_url(self) -> str:
        """The base URL without its /v1: where servers have their endpoints beyond OpenAI's."""
        return self.base_url.removesuffix("/v1")

    def get(self, url: str) -> HttpReply:
        return self.send("GET", url, None)

    def post(self, url: str, body: bytes) -> HttpReply:
        return self.send("POST", url, body)

    def send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        *,
        timeout: float | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        max_bytes: int | None = None,
    ) -> HttpReply:
        """Send one request, once, with further `headers`. Raises RequestFailed when no complete reply arrives within
        the timeout. A reply has at most `max_bytes` (by default what an answer may have), and some for every byte
        sent."""
        seconds = self.timeout if timeout is None else timeout
        with waiting_for(lambda: f"{method} {url}"):
            if self._handler is not None:
                about_body = {"Content-Type": content_type} if body is not None else {}
                sent = self._sent_headers | about_body | dict(headers or {})
                reply = self._handler(HttpRequest(method, url, sent, body, seconds))
                return replace(reply, body=redact_bytes(reply.body))
            most = MAX_REPLY_BYTES if max_bytes is None else max_bytes
            further = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
            return self._exchange(method, url, body, seconds, content_type, most, further)

    def _exchange(
        self, method: str, url: str, body: bytes | None, seconds: float, content_type: str, max_bytes: int,
        further: str,
    ) -> HttpReply:  # fmt: skip
        deadline = time.monotonic() + seconds
        sock = None
        try:
            sock = self._idle_connection() or self._connect(seconds)
            sock.settimeout(seconds)
            self._write(sock, method, url, body, content_type, further)
            response = Response(DeadlineReader(sock, deadline), method)
            try:
                response.begin()
                data = _read(response, max_bytes + REPLY_BYTES_PER_BYTE * len(body or b""))
            finally:
                response.close()
        except BaseException as error:  # Ctrl-C too: the rest of a reply must not be read as the next one
            if sock is not None:
                sock.close()
            if isinstance(error, RequestFailed) or not isinstance(error, Exception):
                raise
            raise _failed(error, seconds, self._url) from None
        if response.will_close:
            sock.close()
        else:
            self._idle.append(sock)
        location = response.headers.get("Location", "")
        return HttpReply(
            status=response.status,
            body=redact_bytes(data),
            content_type=response.headers.get("Content-Type", "").lower(),
            retry_after=parse_retry_after(response.headers.get("Retry-After")),
            location=redact(location)[:MESSAGE_CHARACTERS] if location else "",
            headers=cast(Mapping[str, str], response.headers),
        )

    def close(self) -> None:
        """Close all idle connections. A later request opens new ones."""
        _close_all(self._idle)

    def _write(
        self, sock: socket.socket, method: str, url: str, body: bytes | None, content_type: str, further: str
    ) -> None:
        target = url if self._forwarded else _target(url)
        target += self._query.replace("?", "&", 1) if "?" in target else self._query
        head = f"{method} {quote(target, safe=_URL_CHARACTERS)} HTTP/1.1\r\n{self._headers}{further}"
        if body is not None:
            head += f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        start, rest = f"{head}\r\n".encode("ascii"), body or b""
        try:
            if len(rest) <= READ_BYTES:  # in one packet: threads change places half as often
                sock.sendall(start + rest)
            else:
                sock.sendall(start)
                sock.sendall(rest)
        except BrokenPipeError:
            pass  # a server that refuses a body may answer before it has read it

    def _idle_connection(self) -> socket.socket | None:
        """The one used last, which is the least likely to have been closed by the server."""
        while True:
            try:
                sock = self._idle.pop()
            except IndexError:
                return None
            if not _has_input(sock):
                return sock
            sock.close()  # the only thing to read is the end

    @cached_property
    def _certificates(self) -> ssl.SSLContext:
        """Once for all connections: reading the system's certificates is slow."""
        return ssl.create_default_context()

    def _connect(self, seconds: float) -> socket.socket:
        address = self._proxy or self._url
        host, port = address.hostname or "", address.port or (443 if address.scheme == "https" else 80)
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
        if self._url.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=self._certificates)
        if self._proxy is not None and not self._forwarded:
            connection.set_tunnel(self._url.hostname or "", self._url.port or 443, _proxy_key(self._proxy))
        try:
            connection.connect()
        except BaseException as error:
            connected = connection.sock is not None  # so the handshake of TLS failed
            connection.close()
            if connected and self._url.scheme == "https" and isinstance(error, _NO_HANDSHAKE):
                raise _wrong_scheme("http", self._url) from None
            raise
        assert connection.sock is not None
        return connection.sock


def _read(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    """The body, decompressed. Neither what arrives nor what it becomes may be larger than the limit."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise RequestFailed("malformed", f"the reply is compressed in a way that was not asked for: {encoding[:40]!r}")
    unpack = zlib.decompressobj(wbits=47) if encoding not in ("", "identity") else None
    parts, size = [], 0
    while part := response.read1(READ_BYTES):
        if unpack is not None:
            part = unpack.decompress(part, max_bytes + 1 - size)
        size += len(part)
        if size > max_bytes:
            raise RequestFailed("malformed", f"the reply is larger than {max_bytes >> 20} MiB")
        parts.append(part)
    if response.length:
        raise RequestFailed("connection", f"the connection closed after {size} bytes of the reply")
    if unpack is not None and not unpack.eof:
        raise RequestFailed("malformed", "the end of the compressed reply is missing")
    return b"".join(parts)


_NO_HANDSHAKE = (TimeoutError, ConnectionResetError, ssl.SSLEOFError)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


def _failed(error: Exception, timeout: float, url: SplitResult) -> RequestFailed:
    if isinstance(error, TimeoutError):
        return RequestFailed("timeout", f"no answer within {timeout:g} seconds")
    if isinstance(error, http.client.IncompleteRead):
        return RequestFailed("connection", "the connection closed in the middle of the reply")
    if isinstance(error, ssl.SSLError) and error.reason in _NOT_TLS:
        return _wrong_scheme("http", url)
    if isinstance(error, http.client.BadStatusLine) and str(error).startswith("\x15\x03"):  # an alert of TLS
        return _wrong_scheme("https", url)
    lost = isinstance(error, OSError | http.client.HTTPException)
    message = redact(f"{type(error).__name__}: {error}")[:MESSAGE_CHARACTERS]
    return RequestFailed("connection" if lost else "malformed", message)


def _wrong_scheme(right: str, url: SplitResult) -> RequestFailed:
    message = f"this port does not answer {url.scheme}; it may be one for {right}"
    return RequestFailed("connection", message, f"write base_url={url._replace(scheme=right).geturl()}")


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


_URL_CHARACTERS = "%/:=&?~#+!$,;'@()*[]"


def _target(url: str) -> str:
    """The path of a URL with its query."""
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


def _ascii_host(url: SplitResult) -> str:
    host = url.netloc.rpartition("@")[2]
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _has_input(sock: socket.socket) -> bool:
    if hasattr(select, "poll"):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        return bool(poll.poll(0))
    return bool(select.select([sock], [], [], 0)[0])


def _close_all(sockets: deque[socket.socket]) -> None:
    while sockets:
        sockets.pop().close()


def _proxy_for(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for this URL; local servers use none."""
    host = url.hostname or ""
    address = urllib.request.getproxies().get(url.scheme, "")
    if not address or host in ("localhost", "::1") or host.startswith("127.") or urllib.request.proxy_bypass(host):
        return None
    return urlsplit(address if "://" in address else f"http://{address}")


def _proxy_key(proxy: SplitResult | None) -> dict[str, str]:
    if proxy is None or not proxy.username:
        return {}
    user, password = unquote(proxy.username), unquote(proxy.password or "")
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    remember(password)
    remember(encoded)
    return {"Proxy-Authorization": f"Basic {encoded}"}
