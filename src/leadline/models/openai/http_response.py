"""Reading a reply from a socket until a deadline: its head, and its body as http.client reads it.

http.client has the parser of e-mails read every head, which is half of the work of a small request. A plain head (each
field once and on one line, in ASCII) is split here; any other goes to that parser.
"""

from __future__ import annotations

import http
import http.client
import io
import re
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, cast

MAX_LINE_BYTES = 65_536
MAX_LINES = 100
"""With the empty line that ends them; these are the limits of http.client."""
_PLAIN = re.compile(rb"(?:[!-9;-~]+:[\t -~]*\r?\n)*\r?\n")
_NO_BODY = (http.HTTPStatus.NO_CONTENT, http.HTTPStatus.NOT_MODIFIED, http.HTTPStatus.SWITCHING_PROTOCOLS)


class DeadlineReader(io.RawIOBase):
    """Reads from a socket until a point in time.

    A socket timeout alone limits each read only: servers that send a byte now and then, of the headers or of the body,
    would prolong a request without end.
    """

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline

    def readable(self) -> bool:
        return True

    def makefile(self, mode: str) -> io.BufferedReader:
        """The methods of a socket that http.client uses."""
        return io.BufferedReader(self)

    def readinto(self, buffer: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


class Fields(Mapping[str, str]):
    """The fields of a head, whose names have no letter case."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        """`fields` has its names in small letters."""
        self._fields = fields

    def __getitem__(self, name: str) -> str:
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class Response(http.client.HTTPResponse):
    """Without the replies before the reply (103 Early Hints)."""

    def __init__(self, reader: DeadlineReader, method: str) -> None:
        super().__init__(reader, method=method)  # type: ignore[arg-type]
        self._has_body = method != "HEAD"

    def begin(self) -> None:
        """Reads the head. What it says of the body is understood as http.client does."""
        version, self.status, reason = self._read_status()
        if not version.startswith("HTTP/1.") and version != "HTTP/0.9":
            raise http.client.UnknownProtocol(version)
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11
        self.code, self.reason = self.status, reason.strip()
        fields = _read_fields(self.fp)
        self.headers = self.msg = cast(http.client.HTTPMessage, fields)
        self.chunked = fields.get("Transfer-Encoding", "").lower() == "chunked"
        self.chunk_left = None
        self.length = None if self.chunked else _length(fields.get("Content-Length", ""))
        if not self._has_body or self.status in _NO_BODY:
            self.length = 0
        closes: bool = self._check_close()  # type: ignore[attr-defined]
        self.will_close = closes or (not self.chunked and self.length is None)

    def _read_status(self) -> tuple[str, int, str]:
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if status == http.HTTPStatus.SWITCHING_PROTOCOLS or not 100 <= status < 200:
                return version, status, reason
            _read_fields(self.fp)


def _length(text: str) -> int | None:
    try:
        length = int(text)
    except ValueError:
        return None
    return length if length >= 0 else None


def _read_fields(file: io.BufferedIOBase) -> Mapping[str, str]:
    lines: list[bytes] = []
    while len(lines) < MAX_LINES:
        lines.append(line := file.readline(MAX_LINE_BYTES + 1))
        if line in (b"\r\n", b"\n", b"") or len(line) > MAX_LINE_BYTES:
            break
    head = b"".join(lines)
    if _PLAIN.fullmatch(head):
        named = (line.partition(":") for line in head.decode("ascii").splitlines()[:-1])
        fields = {name.lower(): value.lstrip(" \t") for name, _, value in named}
        if len(fields) == len(lines) - 1:
            return Fields(fields)
    parsed = http.client.parse_headers(io.BytesIO(head))  # which also has the errors for what is too long
    return cast(Mapping[str, str], parsed)
