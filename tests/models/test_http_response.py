"""The head of a reply means what it means to http.client, whichever of the two reads it."""

from __future__ import annotations

import http.client
import io
import random
from typing import Any

import pytest

from leadline.models.openai.http_response import Fields, Response

PLAIN = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
REPLIES = {
    "plain": PLAIN,
    "no reason": b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\n{}",
    "no fields": b"HTTP/1.1 200 OK\r\n\r\n{}",
    "line feeds alone": PLAIN.replace(b"\r\n", b"\n"),
    "HTTP/1.0": PLAIN.replace(b"1.1", b"1.0"),
    "HTTP/1.0, kept": b"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 2\r\n\r\n{}",
    "HTTP/0.9": PLAIN.replace(b"1.1", b"0.9"),
    "HTTP/2": PLAIN.replace(b"1.1", b"2.0"),
    "closing": PLAIN.replace(b"Server: x", b"Connection: close"),
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1;x=y\r\n}\r\n0\r\nA: b\r\n\r\n",
    "chunked and length": b"HTTP/1.1 200\r\ntransfer-encoding: Chunked\r\nContent-Length:9\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "another encoding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\nContent-Length: 2\r\n\r\n{}",
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nLink: </y>\r\n\r\n" + PLAIN,
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n" + PLAIN,
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    "no content": b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
    "not modified": b"HTTP/1.1 304 Not Modified\r\n\r\n",
    "two of a field": b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 5\r\n\r\n{}",
    "negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
    "no number": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
    "empty length": b"HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n{}",
    "spaces and tabs": b"HTTP/1.1 200 OK\r\nContent-Length: \t 2 \t\r\nA:b\r\nC: d e \r\n\r\n{}",
    "folded": b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\tc\r\nContent-Length: 2\r\n\r\n{}",
    "no colon": b"HTTP/1.1 200 OK\r\nServer x\r\nContent-Length: 2\r\n\r\n{}",
    "no name": b"HTTP/1.1 200 OK\r\n: x\r\nContent-Length: 2\r\n\r\n{}",
    "space before the colon": b"HTTP/1.1 200 OK\r\nServer : x\r\nContent-Length: 2\r\n\r\n{}",
    "as in a mailbox": b"HTTP/1.1 200 OK\r\nFrom me\r\nFrom: you\r\nContent-Length: 2\r\n\r\n{}",
    "carriage return alone": b"HTTP/1.1 200 OK\r\nA: b\rContent-Length: 2\r\n\r\n{}",
    "form feed": b"HTTP/1.1 200 OK\r\nA: b\x0cc\x1cd\r\nContent-Length: 2\r\n\r\n{}",
    "beyond ASCII": "HTTP/1.1 200 Ünder\r\nÄ: ö\r\nB: ü\x85\r\nContent-Length: 2\r\n\r\n{}".encode("latin-1"),
    "null": b"HTTP/1.1 200 OK\r\nA: \0\r\nContent-Length: 2\r\n\r\n{}",
    "several parts": b"HTTP/1.1 200 OK\r\nContent-Type: multipart/mixed; boundary=x\r\nContent-Length: 2\r\n\r\n{}",
    "ends in the head": PLAIN[:60],
    "ends before the fields": b"HTTP/1.1 200 OK\r\n",
    "99 fields": b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(99)) + b"\r\n{}",
    "100 fields": b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(100)) + b"\r\n{}",
    "101 fields": b"HTTP/1.1 200 OK\r\n" + b"".join(b"A%d: b\r\n" % i for i in range(101)) + b"\r\n{}",
    "longest field": b"HTTP/1.1 200 OK\r\nA: " + b"x" * 65_531 + b"\r\n\r\n{}",
    "a field too long": b"HTTP/1.1 200 OK\r\nA: " + b"x" * 65_532 + b"\r\n\r\n{}",
    "status line too long": b"HTTP/1.1 200 " + b"x" * 65_536 + b"\r\n\r\n",
    "no number as status": b"HTTP/1.1 abc OK\r\n\r\n",
    "status of four digits": b"HTTP/1.1 2000 OK\r\n\r\n",
    "no HTTP": b"220 smtp ready\r\n",
    "nothing": b"",
}


class _Socket:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self._data))


class _Plain(http.client.HTTPResponse):
    """http.client, which skips the replies before the reply only where their status is 100."""

    def _read_status(self) -> Any:
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if status == 101 or not 100 <= status < 200:
                return version, status, reason
            http.client.parse_headers(self.fp)


def _understood(response: http.client.HTTPResponse) -> Any:
    try:
        response.begin()
        fields = [(name.lower(), value) for name, value in response.headers.items()]
        said = [
            response.version,
            response.status,
            response.reason,
            response.chunked,
            response.length,
            response.will_close,
        ]
        body = b""
        while part := response.read1(100):
            body += part
        return said, fields, body, response.length
    except Exception as error:
        return type(error), str(error)


def _both(data: bytes, method: str = "POST") -> tuple[Any, Any]:
    reader: Any = _Socket(data)
    return _understood(Response(reader, method)), _understood(_Plain(reader, method=method))


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("method", ["POST", "HEAD"])
def test_a_reply_is_understood_as_http_client_does(name: str, method: str) -> None:
    ours, theirs = _both(REPLIES[name], method)
    assert ours == theirs


def test_damaged_replies_are_understood_as_http_client_does() -> None:
    draw = random.Random(7)
    signs = [
        b"\r",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b":",
        b"\0",
        b"\x0b",
        b"\x85",
        b"\xff",
        b"A: b\r\n",
        b"0",
        b"-",
        b"From ",
    ]
    for data in [data for data in REPLIES.values() if len(data) < 300] * 60:
        damaged = data
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(damaged) + 1)
            damaged = damaged[:at] + draw.choice([b"", draw.choice(signs)]) + damaged[at + draw.randint(0, 3) :]
        ours, theirs = _both(damaged)
        assert ours == theirs, damaged


def test_a_plain_head_needs_no_parser_of_e_mails() -> None:
    reader: Any = _Socket(PLAIN)
    response = Response(reader, "POST")
    response.begin()
    assert isinstance(response.headers, Fields)
    assert response.headers.get("content-LENGTH") == "2"
    assert response.headers.get("Location") is None
    assert "server" in response.headers
