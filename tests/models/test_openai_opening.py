"""Opening a server model: kind, window, tokenizer, template and answer prefix are found, or a clear error is given."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from leadline.core.answers import Completion
from leadline.core.errors import LeadlineError, ServerError, TokenizerError, UnknownName, UsageError
from leadline.models.openai.discovery import ServerInfo, inspect_server
from leadline.models.openai.provider import OpenAI
from leadline.models.openai.tokenizer import ServerTokenizer
from support.fake_kinds import TEMPLATE
from support.fake_server import FakeServer, Faults, Kind
from support.openai_documents import document_for, open_model

KINDS: tuple[Kind, ...] = ("plain", "vllm", "sglang", "llamacpp")


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("kind", KINDS)
def test_our_count_of_the_prompt_is_the_servers_own(kind: Kind, api: str) -> None:
    with FakeServer(kind=kind, window=50_000) as server:
        model = open_model(server.base_url, api=api)
        document, probe = document_for(model)
        (answer,) = model.answer(document, [probe])
    assert isinstance(answer.outcome, Completion)
    assert answer.outcome.prompt_tokens == probe.prompt_tokens
    assert "4711321" in answer.outcome.text


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_and_the_window_are_found(kind: Kind) -> None:
    with FakeServer(kind=kind, window=50_000) as server:
        model = open_model(server.base_url)
    assert model.server.kind == kind
    assert model.card.window == (None if kind == "plain" else 50_000)
    assert model.card.name == "fake"


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_the_answer_prefix_is_a_begun_answer_where_the_server_can_continue_one(kind: Kind) -> None:
    prompts: list[str] = []

    def answer(prompt: str) -> str:
        prompts.append(prompt)
        return "42"

    with FakeServer(answer=answer, kind=kind, keep_bodies=True) as server:
        model = open_model(server.base_url)
        document, probe = document_for(model)
        (got,) = model.answer(document, [probe])
        body = server.completions[-1].body
    assert prompts[-1].endswith("<|im_start|>assistant\nThe number is")
    assert prompts[-1] == document.prompt_text(probe) or model.frame.extra_tokens
    assert got.sent.prefix == "prefill"
    assert body.get("continue_final_message", False) == (kind in ("vllm", "sglang"))
    assert body.get("min_tokens") == (1 if kind in ("vllm", "sglang") else None)
    assert (body["temperature"], body["max_tokens"]) == (0.0, 16)
    assert got.sent.decoding == {k: body[k] for k in ("max_tokens", "temperature", "min_tokens") if k in body}


def test_the_answer_prefix_ends_the_question_where_no_answer_can_be_begun() -> None:
    with FakeServer(keep_bodies=True) as server:
        model = open_model(server.base_url)
        document, probe = document_for(model)
        (got,) = model.answer(document, [probe])
        messages = server.completions[-1].body["messages"]
    assert [m["role"] for m in messages] == ["user"]
    assert messages[0]["content"].endswith("The number is")
    assert got.sent.prefix == "appended"
    assert got.sent.characters == len(messages[0]["content"])
    assert any("not prefilled" in note for note in model.card.notes)


@pytest.mark.parametrize(("prefill", "prefix"), [("yes", "prefill"), ("no", "appended")])
def test_the_user_may_choose_how_an_answer_is_begun(prefill: str, prefix: str) -> None:
    with FakeServer(kind="llamacpp") as server:
        model = open_model(server.base_url, prefill=prefill)
        document, probe = document_for(model)
        (answer,) = model.answer(document, [probe])
    assert answer.sent.prefix == prefix
    assert isinstance(answer.outcome, Completion)
    assert answer.outcome.prompt_tokens == probe.prompt_tokens


def test_a_probe_without_an_answer_prefix_has_none() -> None:
    with FakeServer(kind="vllm", keep_bodies=True) as server:
        model = open_model(server.base_url)
        document, probe = document_for(model, prefix="")
        (answer,) = model.answer(document, [probe])
        body = server.completions[-1].body
    assert answer.sent.prefix == "none"
    assert len(body["messages"]) == 1
    assert "continue_final_message" not in body
    assert isinstance(answer.outcome, Completion)
    assert answer.outcome.prompt_tokens == probe.prompt_tokens


def test_thinking_is_switched_through_the_template_and_not_forestalled() -> None:
    with FakeServer(kind="vllm", keep_bodies=True) as server:
        on = open_model(server.base_url, thinking="on", max_tokens=500)
        off = open_model(server.base_url, thinking="off")
        for model in (on, off):
            document, probe = document_for(model)
            model.answer(document, [probe])
        first, second = (r.body for r in server.completions)
    assert (on.frame.prefill, off.frame.prefill) == (False, True)
    assert first["chat_template_kwargs"] == {"enable_thinking": True}
    assert second["chat_template_kwargs"] == {"enable_thinking": False}
    assert first["max_tokens"] == 500
    assert on.card.fingerprints["decoding"] != off.card.fingerprints["decoding"]


def test_further_fields_are_sent_and_recorded() -> None:
    with FakeServer(kind="vllm", keep_bodies=True) as server:
        model = open_model(server.base_url, extra='{"top_k": 1, "nested": {"a": 2}}')
        document, probe = document_for(model)
        (answer,) = model.answer(document, [probe])
        body = server.completions[-1].body
    assert (body["top_k"], body["nested"]) == (1, {"a": 2})
    assert answer.sent.decoding["top_k"] == 1
    assert answer.sent.decoding["nested"] == '{"a": 2}'


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("plain", {}),
        ("vllm", {"structured_outputs": {"json": {"properties": {}}}}),  # guided_json is ignored since 0.12
        ("sglang", {"json_schema": {"properties": {}}}),
        ("llamacpp", {"json_schema": {"properties": {}}}),
    ],
)
def test_each_kind_of_server_has_its_own_field_for_the_schema_of_a_completion(
    kind: Kind, fields: dict[str, Any]
) -> None:
    assert ServerInfo(kind, "m").schema_fields({"properties": {}}, chat=False) == fields


# --- tokenizers and templates -------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_the_servers_own_tokenizer_is_used_when_none_is_named(kind: Kind) -> None:
    with FakeServer(kind=kind) as server:
        model = open_model(server.base_url, tokenizer="")
        assert isinstance(model.tokenizer, ServerTokenizer)
        assert model.tokenizer.encode("Zürich").tolist() == list("Zürich".encode())
        texts = [f"text number {i}" for i in range(40)]
        assert [t.tolist() for t in model.tokenizer.encode_batch(texts)] == [list(t.encode()) for t in texts]
        assert model.tokenizer.fingerprint == open_model(server.base_url, tokenizer="server").tokenizer.fingerprint
        asked = len(server.requests)
        model.tokenizer.encode("Zürich")
        assert len(server.requests) == asked, "small texts are asked for once"
        model.close()


def test_two_servers_with_other_tokenizers_have_other_fingerprints() -> None:
    with FakeServer(kind="sglang") as one, FakeServer(kind="sglang", tokens="whitespace") as two:
        prints = {open_model(s.base_url, tokenizer="server").tokenizer.fingerprint for s in (one, two)}
    assert len(prints) == 2


def test_a_named_tokenizer_that_is_not_the_servers_is_an_error() -> None:
    with FakeServer(kind="vllm") as server, pytest.raises(TokenizerError, match="not the server's"):
        open_model(server.base_url, tokenizer="whitespace")


def test_a_template_that_cannot_be_read_is_measured_and_noted() -> None:
    with FakeServer() as server:
        model = open_model(server.base_url)
    assert model.frame.extra_tokens == len("<s><|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n")
    assert any(str(model.frame.extra_tokens) in note for note in model.card.notes)


def test_a_template_given_as_a_file_is_used_and_checked_against_the_receipt(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.jinja", tmp_path / "wrong.jinja"
    right.write_text(TEMPLATE.replace("{{ bos_token }}", "<s>"))
    wrong.write_text(TEMPLATE)
    with FakeServer() as server:
        model = open_model(server.base_url, template=str(right))
        assert model.frame.before == "<s><|im_start|>user\n"
        assert model.frame.extra_tokens == 0
        model = open_model(server.base_url, template=str(wrong))
        assert model.frame.before == "<|im_start|>user\n"
        assert model.frame.extra_tokens == len("<s>")


def test_a_server_that_counts_nothing_is_noted() -> None:
    with FakeServer(Faults(without_usage=True)) as server:
        model = open_model(server.base_url)
    assert any("reports no token counts" in note for note in model.card.notes)


def test_opening_survives_faults_that_pass() -> None:
    with FakeServer(Faults(rate_429=0.3, rate_500=0.3, null_content=0.4, retry_after=0.01)) as server:
        model = open_model(server.base_url)
    assert model.frame.extra_tokens > 0


# --- bad input ----------------------------------------------------------------------------------


def open_error(base_url: str, **options: Any) -> LeadlineError:
    with pytest.raises(LeadlineError) as caught:
        open_model(base_url, **options)
    assert caught.value.where
    return caught.value


def test_no_server_is_a_server_error_with_what_to_do() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = open_error(f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
    assert isinstance(error, ServerError)
    assert "no server answers" in error.what
    assert "base_url" in error.fix


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<!DOCTYPE html><title>Welcome</title>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def web_page() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_web_page_in_place_of_an_api_is_a_server_error(web_page: str) -> None:
    error = open_error(web_page)
    assert isinstance(error, ServerError)
    assert "web page" in error.what
    assert "/v1" in error.fix


def test_a_forgotten_v1_is_put_in() -> None:
    with FakeServer(kind="vllm") as server:
        model = open_model(server.base_url.removesuffix("/v1"))
        document, probe = document_for(model)
        (answer,) = model.answer(document, [probe])
    assert isinstance(answer.outcome, Completion)


@pytest.mark.parametrize("path", ["/foo", "/foo/v1", "/v1/chat/completions"])
@pytest.mark.parametrize("tokenizer", ["", "server"])
def test_a_base_url_of_another_place_of_the_server_is_corrected(path: str, tokenizer: str) -> None:
    with FakeServer(kind="llamacpp") as server:
        error = open_error(server.base_url.removesuffix("/v1") + path, tokenizer=tokenizer)
        assert isinstance(error, ServerError)
        assert error.fix == f"write base_url={server.base_url}"


def test_a_model_that_the_server_does_not_have_is_named_with_those_it_has() -> None:
    with FakeServer(kind="vllm") as server:
        with pytest.raises(UnknownName) as caught:
            OpenAI(base_url=server.base_url, tokenizer="bytes").open("fakes")
        assert OpenAI(base_url=server.base_url, tokenizer="bytes").open("").card.name == "fake"
    assert "fake" in caught.value.fix


def test_a_refused_key_is_a_server_error_that_names_the_variable() -> None:
    with FakeServer(api_key="right") as server:
        error = open_error(server.base_url)
    assert isinstance(error, ServerError)
    assert "OPENAI_API_KEY" in error.fix


def test_a_server_that_only_fails_is_a_server_error() -> None:
    with FakeServer(Faults(bad_request=1.0)) as server:
        error = open_error(server.base_url)
    assert isinstance(error, ServerError)
    assert "unknown parameter" in error.what


def test_a_plain_server_needs_a_tokenizer() -> None:
    with FakeServer() as server:
        for named in ("", "server"):
            error = open_error(server.base_url, tokenizer=named)
            assert isinstance(error, TokenizerError)
            assert "tokenizer=FOLDER" in error.fix


def test_a_tokenizer_or_template_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with FakeServer() as server:
        assert isinstance(open_error(server.base_url, tokenizer=str(tmp_path / "none")), TokenizerError)
        assert isinstance(open_error(server.base_url, template=str(tmp_path / "none")), TokenizerError)


def test_a_template_that_is_not_there_is_an_error_although_the_model_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "leadline.models.openai.provider.inspect_server",
        lambda client, name: replace(inspect_server(client, name), folder=tmp_path),
    )
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    with FakeServer() as server:
        assert open_model(server.base_url).frame.before
        assert isinstance(open_error(server.base_url, template=str(tmp_path / "none")), TokenizerError)


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x/v1", "http://", "http://me:pass@127.0.0.1/v1"])
def test_a_base_url_that_is_none_or_holds_a_password_is_an_error(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        OpenAI(base_url=url).open("x")
    assert "pass" not in str(caught.value).replace("password", "")


def test_a_key_in_place_of_a_variables_name_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        OpenAI(api_key_env="sk-abc-123").open("x")
    assert "sk-abc" not in str(caught.value)
