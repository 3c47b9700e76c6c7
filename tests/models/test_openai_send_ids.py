"""Prompts as token ids: the server renders and tokenises nothing, and the receipt still decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.answers import Completion
from leadline.core.errors import ServerError, UsageError
from leadline.core.spec import make_spec
from leadline.models.openai.http import HttpReply, HttpRequest, served_by
from leadline.models.openai.provider import OpenAI
from support.logprob_servers import MODEL, FakeVllm
from support.reading_server import ReadingServer


def spec(model: str) -> Any:
    return make_spec({"model": model, "tasks": ["niah"], "lengths": "1500", "depths": (0.2, 0.8), "samples": 1})


def test_a_chat_prompt_sent_as_ids_is_read_token_by_token_as_it_was_laid_out(tmp_path: Path) -> None:
    with ReadingServer(kind="vllm", window=4096) as server:
        runs = [
            leadline.measure(spec(f"openai:fake?base_url={server.base_url}{more}"), tmp_path / name, checks=False)
            for name, more in (("text", ""), ("ids", "&send=ids"))
        ]
    text, ids = ([r for r in run.records if isinstance(r.outcome, Completion)] for run in runs)
    assert [r.sent.form for r in text] == ["chat"] * 2
    assert [r.sent.form for r in ids] == ["ids"] * 2
    assert all(r.receipt.ok for r in ids)
    assert [r.prompt_tokens for r in ids] == [r.prompt_tokens for r in text]
    assert {r.cell.key: r.prompt_digest for r in ids} == {r.cell.key: r.prompt_digest for r in text}
    assert {r.cell.key: r.score for r in ids} == {r.cell.key: r.score for r in text}


def test_a_plain_prompt_is_sent_as_the_ids_of_its_document(tmp_path: Path) -> None:
    server = FakeVllm()
    with served_by(server) as base_url:
        model = f"openai:{MODEL}?base_url={base_url}&tokenizer=bytes&api=completions&send=ids"
        run = leadline.measure(spec(model), tmp_path / "run", checks=False, keep_prompts=True)
    sent = [body["prompt"] for path, body in server.asked if path == "/v1/completions" and len(body["prompt"]) > 1000]
    assert [len(prompt) for prompt in sent] == [r.prompt_tokens for r in run.records]
    assert all(isinstance(token, int) for prompt in sent for token in prompt)
    assert all(r.receipt.ok for r in run.records)


def test_a_server_that_takes_no_ids_is_refused_at_the_start() -> None:
    server = FakeVllm()

    def texts_only(request: HttpRequest) -> HttpReply:
        if request.path == "/v1/completions" and isinstance(json.loads(request.body or b"")["prompt"], list):
            return HttpReply(422, b'{"error": {"message": "prompt must be a string"}}')
        return server(request)

    with served_by(texts_only) as base_url:
        options = OpenAI(base_url=base_url, tokenizer="bytes", api="completions", send="ids")
        with pytest.raises(ServerError, match="takes no token ids: prompt must be a string"):
            options.open(MODEL)


def test_a_server_that_reads_another_number_of_tokens_than_it_was_sent_is_refused() -> None:
    server = FakeVllm()

    def adds_one(request: HttpRequest) -> HttpReply:
        reply = server(request)
        if request.path != "/v1/completions":
            return reply
        page = json.loads(reply.body)
        page["usage"]["prompt_tokens"] += 1
        return HttpReply(200, json.dumps(page).encode())

    with served_by(adds_one) as base_url:
        options = OpenAI(base_url=base_url, tokenizer="bytes", api="completions", send="ids")
        with pytest.raises(ServerError, match="read 9 tokens where 8 token ids were sent"):
            options.open(MODEL)


def test_ids_of_a_chat_prompt_need_the_template() -> None:
    with ReadingServer(kind="plain", window=4096) as server:
        options = OpenAI(base_url=server.base_url, tokenizer="bytes", send="ids")
        with pytest.raises(UsageError, match="needs the chat template"):
            options.open("fake")
