"""A server that misbehaves during a run: nothing is lost, nothing that failed is scored, nothing is hidden.

The rows of the table of what goes wrong with servers, each as a whole run against a real socket.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leadline.core import backoff
from leadline.core.answers import Completion, Failure
from leadline.core.errors import RunStopped, ServerError
from leadline.core.spec import make_spec
from leadline.results.totals import Totals
from leadline.run.events import Answered, Event, Listener, Started, Waiting, ignore
from leadline.run.measure import measure
from leadline.store.runs import RECORDS, read_records
from support.fake_server import FakeServer, Faults, Kind
from support.fault_modes import count_modes
from support.leadline_process import write_haystack

SAMPLES = 100


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeServer]:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(backoff, "LONGEST_WAIT_SECONDS", 0.1)
    with FakeServer(kind="vllm") as running:
        yield running


def run(
    server: FakeServer,
    folder: Path,
    faults: Faults,
    samples: int = SAMPLES,
    tokenizer: str = "bytes",
    kind: Kind = "vllm",
    listen: Listener = ignore,
    opening: Faults = Faults(),  # noqa: B008 (frozen)
    **limits: Any,
) -> Totals:
    """A run whose server begins to misbehave once it is opened, or to be of another kind. `opening` has its faults
    until then."""

    def misbehave(event: Event) -> None:
        if isinstance(event, Started):
            server.faults = faults
            server.kind = kind
        listen(event)

    spec = make_spec(
        {
            "model": f"openai:fake?base_url={server.base_url}&tokenizer={tokenizer}",
            "tasks": {"name": "niah", "haystack": str(write_haystack(folder.parent))},
            "lengths": 1200,
            "depths": 4,
            "samples": samples // 4,
            "limits": {"workers": 8, **limits},
        }
    )
    server.faults, server.kind = opening, "vllm"
    return measure(spec, folder, listen=misbehave).totals


def faults(name: str, share: float, **values: Any) -> Faults:
    return Faults(**{name: share, **values})


def test_rate_limits_errors_and_dropped_connections_lose_nothing(server: FakeServer, tmp_path: Path) -> None:
    summary = run(server, tmp_path / "run", Faults(rate_429=0.1, rate_500=0.05, drop=0.05, retry_after=0.02))
    assert (summary.done, summary.failed, summary.classes) == (SAMPLES, 0, {"correct": SAMPLES})
    assert summary.retried > 0
    assert summary.receipts.equal == SAMPLES


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("fault", ["malformed", "truncated", "null_content", "error_200", "html", "drop_midway"])
def test_a_bad_body_now_and_then_is_asked_again(server: FakeServer, tmp_path: Path, fault: str) -> None:
    summary = run(server, tmp_path / "run", faults(fault, 0.1))
    assert (summary.done, summary.failed, summary.classes) == (SAMPLES, 0, {"correct": SAMPLES})
    assert summary.retried > 0


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("fault", "why"), [("null_content", "empty_body"), ("error_200", "server"), ("malformed", "malformed")]
)
def test_a_bad_body_every_time_is_a_failure_and_never_a_score(
    server: FakeServer, tmp_path: Path, fault: str, why: str
) -> None:
    summary = run(server, tmp_path / "run", faults(fault, 0.2, attempts=None), attempts=3)
    assert summary.done + summary.failed == SAMPLES
    assert 0 < summary.failed == summary.failures[why]
    for record in read_records(tmp_path / "run"):
        if record.failed:
            assert (record.scores, record.failure_class, record.attempts) == ({}, "error", 3)
        else:
            assert record.score == 1.0


@pytest.mark.parametrize("every", [40, pytest.param(3, marks=pytest.mark.slow)])
def test_no_kind_of_bad_reply_ends_a_run_or_is_taken_for_an_answer(
    tmp_path: Path, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.001)
    monkeypatch.setattr(backoff, "LONGEST_WAIT_SECONDS", 0.002)
    given = count_modes(every, tmp_path)
    assert not given.wrong
    assert len(given.failures) > 6
    assert given.answers


def test_a_refused_length_is_a_failure_of_its_own_kind_and_the_run_goes_on(server: FakeServer, tmp_path: Path) -> None:
    summary = run(server, tmp_path / "run", Faults(context_length=0.1))
    refused = [r for r in read_records(tmp_path / "run") if r.failed]
    assert 0 < len(refused) < SAMPLES
    assert summary.done == SAMPLES - len(refused)
    for record in refused:
        assert isinstance(record.outcome, Failure)
        assert (record.outcome.why, record.failure_class, record.attempts) == ("context_length", "input_truncated", 1)


def test_a_server_that_only_fails_stops_the_run_early_and_the_rest_is_asked_later(
    server: FakeServer, tmp_path: Path
) -> None:
    with pytest.raises(RunStopped):
        run(server, tmp_path / "run", Faults(rate_500=1.0, attempts=None), attempts=2, breaker=10)
    kept = list(read_records(tmp_path / "run"))
    assert 10 <= len(kept) <= 10 + 8
    assert all(r.failed for r in kept)
    assert run(server, tmp_path / "run", Faults()).done == SAMPLES


def test_a_server_that_counts_tokens_no_more_stops_the_run_and_the_rest_is_asked_later(
    server: FakeServer, tmp_path: Path
) -> None:
    with pytest.raises(RunStopped) as stopped:
        run(server, tmp_path / "run", Faults(), samples=20, tokenizer="server", kind="plain")
    assert "/tokenize" in stopped.value.where
    assert "run the same command again" in stopped.value.fix
    assert run(server, tmp_path / "run", Faults(), samples=20, tokenizer="server").done == 20


@pytest.mark.slow
@pytest.mark.parametrize("status", [503, 429])
def test_a_server_that_counts_tokens_again_soon_is_waited_for(server: FakeServer, tmp_path: Path, status: int) -> None:
    def heal() -> None:
        while sum(r.path == "/tokenize" for r in server.requests) < asked + 7:  # more than one question's own patience
            time.sleep(0.005)
        server.faults = Faults()

    asked, waited = 0, list[Event]()

    def misbehave(event: Event) -> None:
        nonlocal asked
        if isinstance(event, Started):
            asked = len([r for r in server.requests if r.path == "/tokenize"])
            server.faults = Faults(tokenize_status=status)
            threading.Thread(target=heal, daemon=True).start()
        waited.extend([event] if isinstance(event, Waiting) else [])

    summary = run(server, tmp_path / "run", Faults(), samples=40, tokenizer="server", listen=misbehave)
    assert (summary.done, summary.failed, summary.receipts.equal) == (40, 0, 40)
    assert waited


@pytest.mark.parametrize("retry_after", [None, 0.0])
def test_a_server_that_limits_everything_for_a_while_ends_no_run(
    server: FakeServer, tmp_path: Path, retry_after: float | None
) -> None:
    """More refusals in a row than the breaker or any sample's attempts would survive."""
    waited = list[Waiting]()

    def heal(event: Event) -> None:
        waited.extend([event] if isinstance(event, Waiting) else [])
        if sum(r.fault == "rate_429" for r in server.requests) > 100:
            server.faults = Faults()

    limited = Faults(rate_429=1.0, attempts=None, retry_after=retry_after)
    summary = run(server, tmp_path / "run", limited, samples=20, listen=heal, attempts=2, breaker=3)
    assert (summary.done, summary.failed) == (20, 0)
    assert all(event.why.startswith("rate limit of the server") for event in waited)


def test_a_server_that_limits_everything_for_longer_than_allowed_stops_the_run(
    server: FakeServer, tmp_path: Path
) -> None:
    limited = Faults(rate_429=1.0, attempts=None, retry_after=None)
    with pytest.raises(RunStopped, match="rate_limited"):
        run(server, tmp_path / "run", limited, attempts=2, breaker=10, rate_limit_wait=0.1)
    assert run(server, tmp_path / "run", Faults()).done == SAMPLES


def test_a_server_that_limits_the_first_small_requests_is_opened_all_the_same(
    server: FakeServer, tmp_path: Path
) -> None:
    opening = Faults(limited_first=12, retry_after=None)
    assert run(server, tmp_path / "run", Faults(), samples=8, opening=opening).done == 8
    assert server.limited == 12


def test_a_server_that_limits_the_first_small_requests_for_too_long_is_an_error_that_says_so(
    server: FakeServer, tmp_path: Path
) -> None:
    opening = Faults(limited_first=10_000, retry_after=None)
    with pytest.raises(ServerError, match="429"):
        run(server, tmp_path / "run", Faults(), samples=8, opening=opening, rate_limit_wait=0)


@pytest.mark.slow
def test_a_server_that_is_gone_is_not_asked_to_count_for_another_of_its_kind(tmp_path: Path) -> None:
    """What was counted is kept for the whole process, and checkpoints are served one after another."""
    for number, samples in enumerate((8, 48)):
        with FakeServer(kind="vllm") as server:
            summary = run(server, tmp_path / str(number), Faults(), samples=samples, tokenizer="server")
            assert (summary.done, summary.receipts.equal) == (samples, samples)


@pytest.mark.slow
def test_answers_are_recorded_while_a_server_takes_its_time_to_count(server: FakeServer, tmp_path: Path) -> None:
    """A kill at that moment must not lose what has been answered."""
    folder = tmp_path / "run"
    recorded: list[int] = []

    def watch(event: Event) -> None:
        if isinstance(event, Answered) and not recorded:
            server.faults = Faults(tokenize_seconds=1.0)
            time.sleep(0.5)  # all that was in flight has been answered, and the next documents are not there yet
            recorded.append(len((folder / RECORDS).read_bytes().splitlines()))
            server.faults = Faults()

    run(server, folder, Faults(delay_seconds=0.2), samples=60, tokenizer="server", listen=watch)
    assert 2 <= recorded[0] < 60
    assert len(list(read_records(folder))) == 60


def test_retry_after_is_honoured(server: FakeServer, tmp_path: Path) -> None:
    summary = run(server, tmp_path / "run", Faults(rate_429=0.5, retry_after=0.6), samples=8)
    assert summary.done == 8
    limited = {r.digest: r.at for r in server.completions if r.fault == "rate_429"}
    assert limited
    for request in server.completions:
        if request.attempt == 2:
            assert request.at - limited[request.digest] >= 0.6


def test_a_server_that_cuts_prompts_is_found_out_by_its_receipts(server: FakeServer, tmp_path: Path) -> None:
    summary = run(server, tmp_path / "run", Faults(truncate_to=600), samples=8)
    assert summary.receipts.different == 8
    assert summary.receipts.largest_difference < -400
    assert summary.classes == {"input_truncated": 8}


def test_a_server_without_receipts_is_counted_as_such(server: FakeServer, tmp_path: Path) -> None:
    summary = run(server, tmp_path / "run", Faults(without_usage=True), samples=8)
    assert (summary.receipts.equal, summary.receipts.not_given) == (0, 8)


def test_failures_are_never_taken_for_answers_later(server: FakeServer, tmp_path: Path) -> None:
    first = run(server, tmp_path / "run", Faults(null_content=0.3, attempts=None), attempts=2)
    assert first.failed > 0
    before = {r.cell.key: r for r in read_records(tmp_path / "run") if not r.failed}
    second = run(server, tmp_path / "run", Faults())
    assert (second.done, second.failed) == (SAMPLES, 0)
    after = {r.cell.key: r for r in read_records(tmp_path / "run")}
    assert all(after[key] == record for key, record in before.items())
    assert all(isinstance(r.outcome, Completion) for r in after.values())


def test_connections_that_close_after_each_answer_do_no_harm(server: FakeServer, tmp_path: Path) -> None:
    assert run(server, tmp_path / "run", Faults(close_after_response=True)).done == SAMPLES
