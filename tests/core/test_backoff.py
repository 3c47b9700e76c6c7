"""One policy of asking again, whoever asks: a run, a check of a server, or a small question about it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from leadline.core import backoff
from leadline.core.answers import Completion, Failure
from leadline.core.backoff import Attempts, Backoff
from leadline.core.errors import ServerAway
from leadline.models.openai import discovery
from leadline.models.openai.discovery import send_with_retries
from leadline.models.openai.http import HttpClient, HttpReply, HttpRequest, RequestFailed, served_by

BUSY = Failure("server", "busy", transient=True, status=503)
LIMITED = Failure("rate_limited", "too many", transient=True, status=429)


def test_attempts_are_used_up_by_failures_and_not_by_a_rate_limit() -> None:
    policy = Backoff(3, timeout=60, rate_limit_wait=60)
    policy.note([LIMITED])
    attempts = Attempts(policy)
    waits = [attempts.wait_after([failure]) for failure in (LIMITED, LIMITED, LIMITED, BUSY, BUSY, BUSY)]
    assert [wait is None for wait in waits] == [False] * 5 + [True]


def test_waits_double_to_a_longest_one_and_are_drawn_from_its_upper_half() -> None:
    """Drawn, so that requests that failed together do not come back together."""

    def waits() -> list[float]:
        attempts = Attempts(Backoff(12, timeout=60, rate_limit_wait=60))
        return [wait.seconds for _ in range(10) if (wait := attempts.wait_after([BUSY]))]

    longest = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]
    drawn = [waits() for _ in range(100)]
    for number, most in enumerate(longest):
        column = [row[number] for row in drawn]
        assert most / 2 <= min(column) < 0.6 * most, number
        assert 0.9 * most < max(column) <= most, number


@pytest.mark.parametrize(("named", "extra"), [(0.5, 0.15), (2.0, 0.3), (60.0, 1.0)])
def test_a_time_that_the_server_names_is_never_cut_and_drawn_out_a_little(named: float, extra: float) -> None:
    limited = Failure("rate_limited", "later", transient=True, status=429, retry_after=named)
    wait = Attempts(Backoff(3, timeout=60, rate_limit_wait=900)).wait_after([limited])
    assert wait is not None
    assert wait.is_named
    slept = [wait.drawn_out() for _ in range(200)]
    assert named <= min(slept) < named + 0.2 * extra
    assert named + 0.8 * extra < max(slept) <= named + extra


def test_without_patience_a_rate_limit_uses_up_attempts() -> None:
    policy = Backoff(2, timeout=60, rate_limit_wait=0)
    policy.note([LIMITED])
    attempts = Attempts(policy)
    assert attempts.wait_after([LIMITED]) is not None
    assert attempts.wait_after([LIMITED]) is None


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (BUSY, True),
        (Failure("refused_request", "no", status=400), False),
        (Completion("7"), False),
        (Failure("server", "busy", transient=True, retry_after=60.0), True),
        (Failure("server", "busy", transient=True, retry_after=61.0), False),
        (Failure("rate_limited", "busy", transient=True, retry_after=61.0), True),
        (Failure("rate_limited", "busy", transient=True, retry_after=901.0), False),
    ],
)
def test_what_may_pass_within_the_limits_is_asked_again(outcome: Failure | Completion, expected: bool) -> None:
    assert Backoff(3, timeout=60, rate_limit_wait=900).may_pass(outcome) is expected


def test_a_rate_limit_ends_with_the_first_answer() -> None:
    policy = Backoff(1, timeout=60, rate_limit_wait=0)
    policy.note([LIMITED, BUSY])
    assert policy.rate_limit.is_over
    policy.note([LIMITED, Completion("7")])
    assert not policy.rate_limit.is_over


# --- small questions about a server


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that would have been slept."""
    slept: list[float] = []
    monkeypatch.setattr("leadline.models.openai.discovery.time.sleep", slept.append)
    monkeypatch.setattr("leadline.core.backoff.random.uniform", lambda low, high: low)
    return slept


def ask(reply: Callable[[int], HttpReply]) -> tuple[HttpReply, int]:
    """The last reply of a server that answers its number of requests so far, and that number."""
    requests: list[HttpRequest] = []

    def serve(request: HttpRequest) -> HttpReply:
        requests.append(request)
        return reply(len(requests))

    with served_by(serve) as base_url:
        client = HttpClient(base_url)
        client.rate_limit_wait = 900.0
        return send_with_retries(client, "GET", f"{base_url}/models"), len(requests)


def test_a_small_question_has_the_waits_of_a_sample(waits: list[float]) -> None:
    reply, requests = ask(lambda number: HttpReply(503, b"{}"))
    assert (reply.status, requests) == (503, discovery.ATTEMPTS)
    assert waits == [backoff.FIRST_WAIT_SECONDS / 2 * 2**number for number in range(discovery.ATTEMPTS - 1)]


def test_a_small_question_waits_as_long_as_the_server_asks_for(waits: list[float]) -> None:
    reply, requests = ask(lambda number: HttpReply(429 if number < 9 else 200, b"{}", retry_after=45.0))
    assert (reply.status, requests, waits) == (200, 9, [45.0] * 8)


@pytest.mark.parametrize(
    "reply",
    [
        HttpReply(404, b"{}"),
        HttpReply(501, b"{}"),
        HttpReply(429, json.dumps({"error": {"code": "insufficient_quota"}}).encode()),
        HttpReply(429, b"{}", retry_after=86_400.0),
    ],
    ids=["not there", "not implemented", "no credit", "tomorrow"],
)
def test_what_cannot_pass_is_asked_once(reply: HttpReply, waits: list[float]) -> None:
    assert ask(lambda number: reply) == (reply, 1)
    assert waits == []


def test_a_connection_that_breaks_is_tried_again_and_a_server_that_is_not_there_is_not(waits: list[float]) -> None:
    def break_off(message: str) -> Callable[[int], HttpReply]:
        def reply(number: int) -> HttpReply:
            if number < 3:
                raise RequestFailed("connection", message)
            return HttpReply(200, b"{}")

        return reply

    assert ask(break_off("the connection was reset"))[1] == 3
    with pytest.raises(ServerAway):
        ask(break_off("connection refused"))
    assert len(waits) == 2
