"""Replies that no server should send, written byte by byte: each is the failure of one sample, and never of the run."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from leadline.core.answers import Completion, Failure
from leadline.core.errors import LeadlineError
from leadline.models.openai import http
from leadline.models.openai.provider import OpenAIModel
from support.openai_documents import document_for, open_model
from support.raw_server import GOOD, MODELS, RawServer, Write, answering, whole


@pytest.fixture
def server() -> Iterator[RawServer]:
    running = RawServer()
    yield running
    running.close()


@pytest.fixture
def model(server: RawServer) -> Iterator[OpenAIModel]:
    opened = open_model(server.base_url, timeout=60)
    yield opened
    opened.close()


def ask(model: OpenAIModel) -> Completion | Failure:
    document, probe = document_for(model)
    (answer,) = model.answer(document, [probe])
    assert isinstance(answer.outcome, (Completion, Failure))
    # What is written can be read back.
    assert msgspec.json.decode(msgspec.json.encode(answer.outcome), type=type(answer.outcome)) == answer.outcome
    return answer.outcome


DEEP = b'{"choices": ' + b"[" * 2000 + b"]" * 2000 + b"}"
MALFORMED = {
    "Latin-1": json.dumps({**GOOD, "note": "é"}, ensure_ascii=False).encode("latin-1"),
    "half a UTF-8 character": answering("x")[:-2] + b"\xe2\x82",
    "nested 2,000 deep": DEEP,
    "nested 200,000 deep": DEEP.replace(b"[" * 2000, b"[" * 200_000),
    "nothing": b"",
    "null bytes": b"\0" * 1000,
    "a number of 100,000 digits": b"9" * 100_000,
    "a list": b"[]",
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_body_that_cannot_be_read_is_a_failure(
    server: RawServer, model: OpenAIModel, body: bytes, status: int
) -> None:
    server.write = lambda sock: sock.sendall(whole(body, status=status))
    found = ask(model)
    assert isinstance(found, Failure)
    assert found.why == {200: "malformed", 400: "refused_request", 500: "server"}[status]
    assert len(found.message) < 1000


SHAPES: dict[str, Any] = {
    "choices is a number": {"choices": 1},
    "choices is an object": {"choices": {"0": 1}},
    "a choice is a text": {"choices": ["x"]},
    "an empty error": {"error": {"message": None, "code": [], "type": {}}},
    "an error list": {"error": [[1, 2], 3]},
    "usage is a text": {**GOOD, "usage": "much"},
    "odd counts": {**GOOD, "usage": {"prompt_tokens": True, "completion_tokens": 2**70, "prompt_tokens_details": [1]}},
    "content is an object": {"choices": [{"message": {"content": {"a": 1}}}]},
    "content of odd parts": {"choices": [{"message": {"content": [None, 1, {"type": "text"}, {"type": []}]}}]},
    "the reason is a list": {"choices": [{"message": {"content": "x"}, "finish_reason": [1]}]},
    "a thinking part in itself": {"choices": [{"message": {"content": [{"type": "thinking", "thinking": [[]]}]}}]},
}


@pytest.mark.parametrize("reply", SHAPES.values(), ids=SHAPES)
def test_a_reply_of_another_shape_is_a_failure_or_an_answer(
    server: RawServer, model: OpenAIModel, reply: dict[str, Any]
) -> None:
    server.write = lambda sock: sock.sendall(whole(json.dumps(reply).encode()))
    found = ask(model)
    if isinstance(found, Completion):
        assert found.prompt_tokens is None or type(found.prompt_tokens) is int


def test_the_count_true_is_no_count(server: RawServer, model: OpenAIModel) -> None:
    server.write = lambda sock: sock.sendall(whole(json.dumps(SHAPES["odd counts"]).encode()))
    found = ask(model)
    assert isinstance(found, Completion)
    assert (found.prompt_tokens, found.completion_tokens) == (None, None)


def endless(head: bytes, part: bytes) -> Write:
    def write(sock: socket.socket) -> None:
        sock.sendall(head)
        while True:
            sock.sendall(part)

    return write


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    "write",
    [
        endless(HEAD + b"\r\n{", b" " * 65536),
        endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"),
        endless(HEAD + b"Content-Length: 1000000000000\r\n\r\n{", b" " * 65536),
        lambda sock: sock.sendall(
            HEAD + b"Content-Encoding: gzip\r\nConnection: close\r\n\r\n" + gzip.compress(b" " * 50_000_000)
        ),
    ],
    ids=["until the connection closes", "chunked", "a terabyte announced", "a small gzip of a large body"],
)
def test_an_endless_body_is_malformed(
    server: RawServer, model: OpenAIModel, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    monkeypatch.setattr(http, "MAX_REPLY_BYTES", 4 << 20)
    server.write = write
    found = ask(model)
    assert isinstance(found, Failure)
    assert (found.why, found.transient) == ("malformed", True)
    assert "larger than" in found.message


@pytest.mark.parametrize(
    "write",
    [
        endless(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 1000 + b"\r\n"),
        lambda sock: sock.sendall(b"HTTP/1.1 abc\r\n\r\n"),
        lambda sock: sock.sendall(b"\xff\xfe" * 40_000),
        lambda sock: sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n"),
        lambda sock: sock.sendall(HEAD + b"Content-Length: many\r\n\r\n{}"),
        lambda sock: sock.sendall(whole(b"not gzip", headers="Content-Encoding: gzip\r\n")),
        lambda sock: sock.sendall(whole(gzip.compress(answering("x"))[:-30], headers="Content-Encoding: gzip\r\n")),
        lambda sock: sock.sendall(whole(b"{}", status=429, headers="Retry-After: nan\r\n")),
        lambda sock: sock.sendall(whole(b"{}", status=429, headers="Retry-After: 1e400\r\n")),
        lambda sock: sock.sendall(whole(b"{}", status=429, headers="Retry-After: Mon, 99 Foo 99999\r\n")),
        lambda sock: sock.sendall(whole(b"{}", status=302, headers=f"Location: http://x/{'y' * 60_000}\r\n")),
    ],
)
def test_broken_http_is_a_failure(server: RawServer, model: OpenAIModel, write: Write) -> None:
    server.write = write
    found = ask(model)
    assert isinstance(found, Failure)
    assert len(found.message) < 1000
    assert found.retry_after is None


def test_headers_that_drip_end_at_the_timeout(server: RawServer, model: OpenAIModel) -> None:
    model._client.timeout = 0.5  # after opening, which may take longer on a busy machine
    gone = threading.Event()

    def drip(sock: socket.socket) -> None:
        sock.sendall(b"HTTP/1.1 200 OK\r\n")
        for number in range(200):  # of 10 s, where the timeout is 0.5 s
            sock.sendall(f"X-{number}: wait\r\n".encode()[: 4 if number % 2 else None])
            if gone.wait(0.05):
                return
        sock.sendall(whole(answering("4711321")).partition(b"\r\n")[2])

    server.write = drip
    found = ask(model)
    gone.set()
    assert isinstance(found, Failure)
    assert (found.why, found.message) == ("timeout", "no answer within 0.5 seconds")


ANSWERS: dict[str, tuple[bytes, str]] = {
    "gzip": (whole(gzip.compress(answering("4711321")), headers="Content-Encoding: gzip\r\n"), "4711321"),
    "a long gzip": (
        whole(gzip.compress(answering("4711321", pad=" " * 3_000_000)), headers="Content-Encoding: gzip\r\n"),
        "4711321",
    ),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + whole(answering("4711321")), "4711321"),
    "100, 102, 103": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"
        + whole(answering("4711321")),
        "4711321",
    ),
    "a lone surrogate": (whole(answering("4711321 \ud83d!")), "4711321 \ufffd!"),
    "a pair of surrogates": (whole(answering("4711321 \U0001f600!")), "4711321 \U0001f600!"),
    "a null text part": (
        whole(answering([{"type": "text", "text": "4711321"}, {"type": "text", "text": None}])),
        "4711321",
    ),
    "a byte order mark": (whole(b"\xef\xbb\xbf" + answering("4711321")), "4711321"),
}


@pytest.mark.parametrize(("raw", "text"), ANSWERS.values(), ids=ANSWERS)
def test_an_unusual_reply_is_read_as_what_it_is(server: RawServer, model: OpenAIModel, raw: bytes, text: str) -> None:
    server.write = lambda sock: sock.sendall(raw)
    found = ask(model)
    assert isinstance(found, Completion), found
    assert found.text == text


def test_nothing_but_null_parts_is_no_answer(server: RawServer, model: OpenAIModel) -> None:
    server.write = lambda sock: sock.sendall(whole(answering([{"type": "text", "text": None}])))
    found = ask(model)
    assert isinstance(found, Failure)
    assert found.why == "empty_body"


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize(
    "reply",
    [
        {"error": {"message": "m" * 5_000_000}},
        {"error": "m" * 5_000_000},
        {"error": {"message": {"inner": "m" * 5_000_000}}},
        {"detail": [{"msg": "m" * 5_000_000}]},
        {"choices": [{"message": {"content": None}, "finish_reason": "m" * 5_000_000}]},
    ],
)
@pytest.mark.parametrize("status", [200, 400, 429, 500])
def test_the_text_of_an_error_is_bounded(server: RawServer, model: OpenAIModel, reply: Any, status: int) -> None:
    server.write = lambda sock: sock.sendall(whole(json.dumps(reply).encode(), status=status))
    found = ask(model)
    assert isinstance(found, Failure)
    assert len(found.message) <= 600


PAGES: list[Any] = [
    [{"id": "fake", "aliases": 5, "meta": 3, "root": []}],
    [{"id": ["fake"], "aliases": [[]], "max_model_len": True}],
    [None, 3, "x"],
    [{"id": "fake", "meta": {"n_vocab": -1, "size": [[]]}, "root": {"a": "\0"}, "max_model_len": 2**80}],
    [{"id": "fake", "root": "/tmp/\0/x"}],
]
REPLIES: list[Any] = [
    {}, {"tokens": None}, {"tokens": ["a"]}, {"tokens": [1e300]}, {"tokens": [2**70]}, {"tokens": {"a": 1}}, [], "x", 7,
    {"version": [], "default_generation_settings": 5, "context_length": "x", "tp_size": {}},
    {"default_generation_settings": {"n_ctx": True}, "tokens": [[1]], "content": 5, "prompt": []},
]  # fmt: skip


def _send_whole(body: bytes, sock: socket.socket) -> None:
    sock.sendall(whole(body))


@pytest.mark.parametrize("owner", ["vllm", "llamacpp", "sglang"])
def test_hostile_pages_at_opening_are_errors_in_our_words(
    server: RawServer, monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    monkeypatch.setattr("leadline.models.openai.discovery.time.sleep", lambda _: None)  # how long is tested elsewhere
    longest = 0
    for entries in PAGES:
        data = [{**e, "owned_by": owner} if isinstance(e, dict) else e for e in entries]
        for reply in REPLIES:
            monkeypatch.setitem(MODELS, "data", data)
            server.other = json.dumps(reply).encode()
            server.write = partial(_send_whole, json.dumps(reply).encode())
            try:
                open_model(server.base_url, timeout=60, tokenizer="").close()
            except LeadlineError as error:
                longest = max(longest, len(str(error)))
    assert 0 < longest < 3000
