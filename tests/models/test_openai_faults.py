"""A server that misbehaves, on a real socket: each fault is classified, none is scored, none is hidden."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leadline.core.answers import Answer, Completion, Failure
from leadline.models.openai.provider import OpenAIModel
from support.fake_server import FakeServer, Faults, Kind, Reply
from support.openai_documents import document_for, open_model


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(kind="vllm", window=100_000, keep_bodies=True, sockets=True) as running:
        yield running


def ask(model: OpenAIModel, sample: int = 0) -> Answer:
    document, probe = document_for(model, sample=sample)
    (answer,) = model.answer(document, [probe])
    return answer


def failure(answer: Answer) -> Failure:
    assert isinstance(answer.outcome, Failure), answer.outcome
    return answer.outcome


TRANSIENT = {
    "rate_429": ("rate_limited", 429), "rate_500": ("server", 500), "rate_503": ("server", 503),
    "drop": ("connection", None), "drop_midway": ("connection", None), "truncated": ("malformed", 200),
    "malformed": ("malformed", 200), "html": ("malformed", 200), "null_content": ("empty_body", 200),
    "missing_content": ("empty_body", 200), "no_choices": ("empty_body", 200), "error_200": ("server", 200),
}  # fmt: skip


@pytest.mark.parametrize("api", ["chat", "completions"])
@pytest.mark.parametrize("fault", TRANSIENT)
def test_a_fault_that_may_pass_is_a_transient_failure_and_the_next_attempt_is_answered(
    server: FakeServer, fault: str, api: str
) -> None:
    model = open_model(server.base_url, api=api)
    share: dict[str, Any] = {fault: 1.0}
    server.faults = Faults(**share)
    first, second = ask(model), ask(model)
    found = failure(first)
    assert (found.why, found.status, found.transient) == (*TRANSIENT[fault], True)
    assert isinstance(second.outcome, Completion)
    assert "4711321" in second.outcome.text
    assert [(r.attempt, r.fault) for r in server.completions] == [(1, fault), (2, "")]


def test_each_probe_is_asked_once_whatever_comes_back(server: FakeServer) -> None:
    model = open_model(server.base_url)
    server.faults = Faults(drop=0.3, rate_500=0.3, attempts=None)
    outcomes = [ask(model, sample).outcome for sample in range(20)]
    assert len(server.completions) == 20
    assert {type(o) for o in outcomes} == {Completion, Failure}


def test_a_bad_request_is_a_permanent_failure_at_once(server: FakeServer) -> None:
    model = open_model(server.base_url)
    server.faults = Faults(bad_request=1.0)
    found = failure(ask(model))
    assert (found.why, found.transient, found.status) == ("refused_request", False, 400)
    assert "unknown parameter" in found.message


@pytest.mark.parametrize("kind", ["plain", "vllm", "sglang", "llamacpp"])
def test_a_prompt_beyond_the_window_is_refused_as_context_length_by_every_kind_of_server(kind: Kind) -> None:
    with FakeServer(kind=kind, window=400) as server:
        model = open_model(server.base_url)
        document, probe = document_for(model, filler="Nothing happened here. " * 40)
        (answer,) = model.answer(document, [probe])
    found = failure(answer)
    assert (found.why, found.transient) == ("context_length", False)


def test_retry_after_is_read_as_seconds_and_as_a_date(server: FakeServer) -> None:
    model = open_model(server.base_url)
    server.faults = Faults(rate_429=1.0, retry_after=8)
    assert failure(ask(model, 1)).retry_after == 8.0
    server.faults = Faults(rate_429=1.0, retry_after=8, retry_after_as_date=True)
    waited = failure(ask(model, 2)).retry_after
    assert waited is not None
    assert 6 <= waited <= 8
    server.faults = Faults(rate_429=1.0, retry_after=None)
    assert failure(ask(model, 3)).retry_after is None


def test_a_server_that_hangs_is_a_timeout(server: FakeServer) -> None:
    model = open_model(server.base_url, timeout=0.2)
    server.faults = Faults(hang=1.0)
    answer = ask(model)
    found = failure(answer)
    assert (found.why, found.transient) == ("timeout", True)
    assert answer.seconds >= 0.2
    server.faults = Faults()
    assert isinstance(ask(model).outcome, Completion)


def test_a_server_that_has_gone_is_a_connection_failure() -> None:
    with FakeServer(kind="vllm") as server:
        model = open_model(server.base_url)
    found = failure(ask(model))
    assert (found.why, found.transient) == ("connection", True)


def test_a_connection_closed_while_idle_is_not_a_failure(server: FakeServer) -> None:
    model = open_model(server.base_url)
    server.faults = Faults(close_after_response=True)
    for sample in range(5):
        assert isinstance(ask(model, sample).outcome, Completion)
        time.sleep(0.02)
    assert len(server.completions) == 5


def test_a_prompt_that_the_server_cut_shows_in_the_receipt(server: FakeServer) -> None:
    model = open_model(server.base_url)
    server.faults = Faults(truncate_to=100)
    document, probe = document_for(model, filler="Nothing happened here. " * 20)
    (answer,) = model.answer(document, [probe])
    assert isinstance(answer.outcome, Completion)
    assert answer.outcome.prompt_tokens == 100
    assert probe.prompt_tokens > 400


def test_a_server_without_receipts_gives_none(server: FakeServer) -> None:
    model = open_model(server.base_url)
    server.faults = Faults(without_usage=True)
    outcome = ask(model).outcome
    assert isinstance(outcome, Completion)
    assert outcome.prompt_tokens is None


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (Reply(""), Completion("", "stop")),
        (Reply(None, "length", "let me see"), Completion("", "length", "let me see")),
        (Reply("<think>hm</think>42"), Completion("42", "stop", "hm")),
        (Reply("42", "stop", "hm"), Completion("42", "stop", "hm")),
        (Reply("half an ans", "length"), Completion("half an ans", "length")),
    ],
)
def test_what_the_model_says_is_kept_as_it_said_it(reply: Reply, expected: Completion) -> None:
    with FakeServer(answer=lambda prompt: reply, kind="vllm") as server:
        outcome = ask(open_model(server.base_url)).outcome
    assert isinstance(outcome, Completion)
    assert (outcome.text, outcome.finish, outcome.thinking) == (expected.text, expected.finish, expected.thinking)


def test_many_threads_ask_at_once_over_kept_connections(server: FakeServer) -> None:
    model = open_model(server.base_url)
    server.faults = Faults(delay_seconds=0.01)
    before = server.connections
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda sample: ask(model, sample), range(160)))
    assert all(isinstance(a.outcome, Completion) for a in answers)
    assert server.connections - before <= 16
    assert server.peak_in_flight > 4
    model.close()


def test_the_key_is_read_from_the_environment_and_appears_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVER_KEY", "s3cret-value")
    with FakeServer(kind="vllm", api_key="s3cret-value", keep_bodies=True) as server:
        model = open_model(server.base_url, api_key_env="MY_SERVER_KEY")
        answer = ask(model)
        assert isinstance(answer.outcome, Completion)
        seen = f"{answer}{model.card}{model.server}{server.requests}"
        monkeypatch.delenv("MY_SERVER_KEY")
    assert "s3cret-value" not in seen


def test_closing_lets_go_of_every_connection(server: FakeServer) -> None:
    model = open_model(server.base_url)
    ask(model)
    model.close()
    assert isinstance(ask(model).outcome, Completion)  # and a model may be asked again
    threads = [t.name for t in threading.enumerate() if t.name.startswith("ThreadPool")]
    assert threads == []
