"""Servers that hang, that answer nothing, and that tokenise: what is said meanwhile, and afterwards."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leadline.core.activity import longest_wait
from leadline.core.errors import ServerAway, TokenizerError, UsageError
from leadline.core.spec import make_spec
from leadline.models.openai import discovery, tokenizer
from leadline.models.openai.discovery import ServerInfo
from leadline.models.openai.http import HttpClient
from leadline.models.openai.tokenizer import ServerTokenizer
from leadline.results.run import Run
from leadline.results.verdict import verdict
from leadline.run import events
from leadline.run.events import Event, Pending
from leadline.run.measure import measure
from leadline.run.plan import prepare
from support.fake_server import FakeServer
from support.openai_documents import open_model
from support.raw_server import GOOD, RawServer, answering, whole


@pytest.fixture
def hanging() -> Iterator[str]:
    """The URL of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"


def spec_for(base_url: str, **values: Any) -> Any:
    model = f"openai:fake?base_url={base_url}&tokenizer=bytes"
    grid = {"lengths": [1024], "depths": [0.5], "samples": 4}
    return make_spec({"model": model, "tasks": ["niah"], **grid, **values}, where="test")


def test_a_hanging_server_is_said_and_given_up_soon(hanging: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "OPENING_SECONDS", 0.6)
    monkeypatch.setattr(events, "FIRST_SECONDS", 0.05)
    heard: list[Event] = []
    with pytest.raises(ServerAway, match=r"within 0\.6 seconds") as caught:
        prepare(spec_for(hanging), listen=heard.append)
    assert "does not answer" in caught.value.fix
    assert heard
    assert all(isinstance(event, Pending) and event.what == f"GET {hanging}/models" for event in heard)
    assert len(heard) < 8  # said less and less often


def test_a_server_that_hangs_in_the_middle_of_a_run_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "FIRST_SECONDS", 0.05)
    said, go_on = threading.Event(), list[Event]()
    server = RawServer()

    def hang(sock: socket.socket) -> None:
        said.wait(120)
        sock.sendall(whole(json.dumps(without_usage("x")).encode()))

    def listen(event: Event) -> None:
        go_on.append(event)
        if isinstance(event, events.Started):
            server.write = hang
        if isinstance(event, Pending) and event.what.startswith("POST"):
            said.set()

    server.write = lambda sock: sock.sendall(whole(json.dumps(without_usage("x")).encode()))
    measure(spec_for(server.base_url), tmp_path / "run", listen=listen)
    server.close()
    assert said.is_set()


def without_usage(content: str, finish: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return {**GOOD, "choices": [choice], "usage": {}}


@pytest.mark.parametrize(
    ("reply", "sentence", "option"),
    [
        (without_usage(""), "the text is empty in 4 of 4 answers", "max_tokens="),
        (
            without_usage("", "length", reasoning_content="Let me see"),
            "whole allowance was used for thinking",
            "thinking=off",
        ),
    ],
)
def test_what_a_server_did_is_no_diagnosis_of_the_model(
    tmp_path: Path, reply: dict[str, Any], sentence: str, option: str
) -> None:
    server = RawServer()
    server.write = lambda sock: sock.sendall(whole(json.dumps(reply).encode()))
    run = measure(spec_for(server.base_url), tmp_path / "run")
    server.close()
    assert sentence in verdict(run).headline
    assert option in verdict(run).headline
    assert "right in" not in verdict(run).headline
    assert not [line for line in verdict(run).findings if "fails" in line or "pattern" in line]


def test_a_server_that_refuses_half_the_prompts_is_said_first(tmp_path: Path) -> None:
    server, asked = RawServer(), iter(range(10_000))

    def write(sock: socket.socket) -> None:
        refused = next(asked) % 2
        error = json.dumps({"error": {"message": "this prompt is blocked"}}).encode()
        sock.sendall(whole(error, status=400) if refused and begun else whole(answering("x", usage={})))

    begun = False

    def listen(event: Event) -> None:
        nonlocal begun
        begun = True

    server.write = write
    run: Run = measure(spec_for(server.base_url, limits={"workers": 1}), tmp_path / "run", listen=listen)
    server.close()
    assert verdict(run).headline.startswith("2 of 4 prompts got no answer (refused_request: this prompt is blocked)")


# --- tokenizers


def test_a_tokenizer_that_a_plain_server_does_not_have_is_an_error_unless_a_mismatch_is_allowed() -> None:
    with FakeServer() as server:
        with pytest.raises(TokenizerError, match="not the server's") as caught:
            open_model(server.base_url, tokenizer="whitespace")
        assert "--allow-tokenizer-mismatch" in caught.value.fix
        model = open_model(server.base_url, tokenizer="whitespace", allow_tokenizer_mismatch="true")
    assert any("not the server's" in note for note in model.card.notes)


def test_an_allowed_mismatch_is_a_limit_of_the_spec_and_no_part_of_its_identity() -> None:
    with FakeServer() as server:
        wrong = spec_for(server.base_url).model_copy(
            update={"model": f"openai:fake?base_url={server.base_url}&tokenizer=whitespace"}
        )
        with pytest.raises(TokenizerError):
            prepare(wrong)
        allowed = wrong.model_copy(
            update={"limits": wrong.limits.model_copy(update={"allow_tokenizer_mismatch": True})}
        )
        prepare(allowed).close()
    assert allowed.digest == wrong.digest


def test_a_count_that_is_the_same_for_every_text_is_no_count() -> None:
    server = RawServer()  # says 10 tokens of everything
    model = open_model(server.base_url, timeout=60)
    server.close()
    assert any("no token counts" in note for note in model.card.notes)


class _Words(ServerTokenizer):
    """Words of a joined text are numbered by their letters; `</s>` is token 2. Counts its requests."""

    def __init__(self, *, merges: bool = False) -> None:
        super().__init__(HttpClient("http://127.0.0.1:1/v1"), ServerInfo("vllm", "m"))
        self.requests = 0
        self.merges = merges

    def _tokens(self, text: str, *, special: bool) -> list[int]:
        self.requests += 1
        if self.merges:
            text = text.replace("</s>\n", "</s>")
        found: list[int] = []
        for i, part in enumerate(text.split("</s>")):
            found += [*([2] if i else []), *(3 + ord(c) for c in part)]
        return found


@pytest.mark.parametrize("merges", [False, True])
def test_many_texts_are_tokenised_in_few_requests_if_that_is_exact(merges: bool) -> None:
    remote = _Words(merges=merges)
    texts = [f"\nsentence number {i}." for i in range(5000)]
    found = remote.encode_batch(texts)
    assert [ids.tolist() for ids in found] == [[3 + ord(c) for c in text] for text in texts]
    assert (remote.requests < 100) is not merges


def test_a_text_that_holds_the_separator_is_tokenised_alone() -> None:
    remote = _Words()
    texts = [f"\nsentence {i}." for i in range(40)] + ["\nthe end </s> of it"]
    found = remote.encode_batch(texts)
    assert all(np.array_equal(ids, remote.encode(text)) for ids, text in zip(found, texts, strict=True))


def test_a_tokenizer_that_takes_long_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    remote = _Words(merges=True)
    monkeypatch.setattr(tokenizer, "CONNECTIONS", 1)
    one = remote._tokens

    def slow(text: str, *, special: bool) -> list[int]:
        if text == "\ntext 30":
            wait = longest_wait()
            assert wait is not None
            said.append(wait.what)
        return one(text, special=special)

    monkeypatch.setattr(remote, "_tokens", slow)
    remote.encode_batch([f"\ntext {i}" for i in range(60)])
    assert said == ["the server's tokenizer: 30 of 60 texts"]


# --- addresses and options


@pytest.mark.parametrize("url", ["http://[::1", "http://[::1]:x/v1", "http://a:99999999/v1", "ftp://x", "http://"])
def test_what_is_no_url_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="not a URL"):
        open_model(url)


@pytest.mark.parametrize("seconds", ["1e400", "nan", "-1", "inf"])
def test_a_timeout_that_no_clock_has_is_a_usage_error(seconds: str) -> None:
    with pytest.raises(UsageError):
        open_model("http://127.0.0.1:1/v1", timeout=seconds)


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"", None], ids=["400", "closes", "hangs"])
def test_https_on_an_http_port_is_said(answer: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        kept: list[socket.socket] = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    kept.append(listening.accept()[0])
                    kept[-1].recv(65536)
                    if answer is not None:
                        kept[-1].sendall(answer)
                        kept[-1].close()

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(ServerAway, match="does not answer https; it may be one for http") as caught:
            open_model(f"https://127.0.0.1:{port}/v1", timeout=1)
    for sock in kept:
        sock.close()
    assert caught.value.fix == f"write base_url=http://127.0.0.1:{port}/v1"
