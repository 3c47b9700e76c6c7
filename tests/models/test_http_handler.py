"""A function in the place of a server: the seam that users' tests and ours share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import leadline
from leadline.core.answers import Completion, Failure
from leadline.core.spec import make_spec
from leadline.models.openai.http import HttpClient, HttpReply, HttpRequest, RequestFailed, served_by
from leadline.models.openai.provider import OpenAI


def answer_seven(request: HttpRequest) -> HttpReply:
    if request.path == "/v1/models":
        return HttpReply(200, json.dumps({"data": [{"id": "fake", "max_model_len": 4096}]}).encode())
    if not request.path.endswith("/chat/completions"):
        return HttpReply(404, b"{}")
    prompt = json.loads(request.body or b"")["messages"][-1]["content"]
    usage = {"prompt_tokens": len(prompt.encode()), "completion_tokens": 1}
    message = {"role": "assistant", "content": "7777777"}
    page = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
    return HttpReply(200, json.dumps(page).encode())


def test_a_run_is_answered_by_a_function(tmp_path: Path) -> None:
    with served_by(answer_seven) as base_url:
        spec = make_spec(
            {
                "model": f"openai:fake?base_url={base_url}&tokenizer=bytes", "tasks": ["passkey"], "lengths": "2k",
                "depths": 2, "samples": 1,
            }
        )  # fmt: skip
        run = leadline.measure(spec, tmp_path / "run", checks=False)
    assert [r.outcome.text for r in run.records if isinstance(r.outcome, Completion)] == ["7777777"] * 2


def test_what_the_function_raises_is_the_failure_of_the_sample(tmp_path: Path) -> None:
    def fail_later(request: HttpRequest) -> HttpReply:
        if request.path.endswith("/chat/completions") and len(request.body or b"") > 1000:
            raise RequestFailed("timeout", f"no answer within {request.timeout:g} seconds")
        return answer_seven(request)

    with served_by(fail_later) as base_url:
        values = {"model": f"openai:fake?base_url={base_url}&tokenizer=bytes", "tasks": ["passkey"], "lengths": "2k"}
        spec = make_spec({**values, "depths": 1, "samples": 1, "limits": {"attempts": 1, "timeout": 9}})
        run = leadline.measure(spec, tmp_path / "run", checks=False)
    (record,) = run.records
    assert isinstance(record.outcome, Failure)
    assert (record.outcome.why, record.outcome.message) == ("timeout", "no answer within 9 seconds")


def test_the_function_gets_the_request_as_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-secret-not-a-secret")
    seen: list[HttpRequest] = []

    def keep(request: HttpRequest) -> HttpReply:
        seen.append(request)
        return answer_seven(request)

    with served_by(keep) as base_url:
        OpenAI(base_url=base_url, tokenizer="bytes").open("fake").close()
    assert {request.headers["Authorization"] for request in seen} == {"Bearer not-a-secret-not-a-secret"}
    assert seen[0].method == "GET"
    assert seen[0].path == "/v1/models"


def test_a_function_answers_only_while_its_context_lasts_and_only_its_own_address() -> None:
    with served_by(answer_seven) as first, served_by(lambda request: HttpReply(500, b"")) as second:
        client = HttpClient(first)
        assert client.get(f"{first}/models").status == 200
        assert HttpClient(second).get(f"{second}/models").status == 500
    with pytest.raises(RequestFailed, match="has gone"):
        client.get(f"{first}/models")
