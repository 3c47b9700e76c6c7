"""Batches of Anthropic and Google: the same cases for both, and what only one of them has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.answers import Failure
from leadline.core.errors import Interrupted, RunStopped, UsageError
from leadline.core.spec import Spec, make_spec
from leadline.features.hosted import gemini_batches
from leadline.models.batch_limits import BATCH_LIMITS
from leadline.run import batches
from leadline.run.events import Event, Waiting
from leadline.run.interrupt import Stop
from leadline.run.measure import measure_spec
from leadline.store.runs import every_record
from support.batch_ends import Killed, Place, at_record, at_request, at_saving
from support.batch_server import Fate
from support.hosted_batches import AnthropicBatchServer, GeminiBatchServer, GeminiFileServer, HostedBatchServer
from support.hosted_fakes import KEY, ResponsesFake

QUESTIONS = 6
FILES = "gemini files"
SERVERS: dict[str, Callable[..., HostedBatchServer]] = {
    "anthropic": AnthropicBatchServer,
    "gemini": GeminiBatchServer,
    FILES: GeminiFileServer,
}
every = pytest.mark.parametrize("provider", SERVERS)


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if FILES in request.node.name:
        monkeypatch.setattr(gemini_batches, "INLINE_BYTES", 0)
    monkeypatch.setattr(batches, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(batches, "FIRST_LOOK_SECONDS", 0.001)
    monkeypatch.setattr("leadline.core.backoff.FIRST_WAIT_SECONDS", 0.001)
    for name in ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, KEY)


def in_batches_of(questions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("anthropic", "gemini"):
        monkeypatch.setitem(BATCH_LIMITS, name, replace(BATCH_LIMITS[name], requests=questions))


def spec_for(server: HostedBatchServer, options: str = "", **values: Any) -> Spec:
    model = f"{server.model_name}?base_url={server.base_url}{options}"
    grid = {"tasks": ["passkey"], "lengths": "1k,2k", "depths": 3, "samples": 1, "limits": {"batch": True}}
    return make_spec({"model": model, **grid, **values})


def one_expires(line: dict[str, Any], times: int) -> Fate:
    return "expired" if times == 1 and line["custom_id"].endswith("-1") else "ok"


@every
def test_a_run_by_batches_has_the_records_of_any_other_run(provider: str, tmp_path: Path) -> None:
    with SERVERS[provider]() as server:
        run = measure_spec(spec_for(server, "&count=no"), tmp_path / "batch").run
        assert len(server.batches) == 1
        assert Counter(server.asked.values()) == {1: QUESTIONS}
        plain = measure_spec(spec_for(server, "&count=no", limits={}), tmp_path / "plain").run
    by_key = {record.cell.key: record for record in plain.records}
    assert run.totals.done == QUESTIONS
    for record in run.records:
        other = by_key[record.cell.key]
        assert (record.sent.digest, record.sent.prefix) == (other.sent.digest, other.sent.prefix)
        assert (record.outcome, record.receipt, record.scores) == (other.outcome, other.receipt, other.scores)


@every
@pytest.mark.parametrize("fate", ["expired", "server", "lost"])
def test_what_got_no_answer_is_asked_again(provider: str, fate: Fate, tmp_path: Path) -> None:
    def first_time_unlucky(line: dict[str, Any], times: int) -> Fate:
        return fate if times == 1 and line["custom_id"].endswith("-3") else "ok"

    with SERVERS[provider](first_time_unlucky) as server:
        run = measure_spec(spec_for(server), tmp_path / "run").run
    assert run.totals.done == QUESTIONS
    assert sorted(record.attempts for record in run.records) == [1, 1, 1, 1, 1, 2]
    assert Counter(server.asked.values()) == {1: QUESTIONS}
    assert len(server.batches) == 2


@every
def test_a_refused_question_is_a_failure_with_the_status_of_its_error(provider: str, tmp_path: Path) -> None:
    with SERVERS[provider](lambda line, times: "refused" if line["custom_id"].endswith("-1") else "ok") as server:
        run = measure_spec(spec_for(server), tmp_path / "run").run
    (failed,) = (record.outcome for record in run.records if isinstance(record.outcome, Failure))
    assert (failed.why, failed.status) == ("refused_request", 400)
    assert "unknown_field" in failed.message
    assert len(server.batches) == 1


PLACES: dict[str, Place] = {
    "when a batch is in the folder": at_saving("prepared", after=True),
    "before it is submitted": at_request("POST", ""),
    "when it is submitted and its id is not known": at_request("POST", "", after=True),
    "when the second one is": at_request("POST", "", 2, after=True),
    "when the id is in the folder": at_saving("submitted", after=True),
    "when the third request of a look was answered": at_request("GET", "", 3, after=True),
    "before the first record": at_record(1, after=False),
    "after the third record": at_record(3, after=True),
    "when a batch is recorded": at_saving("recorded", after=False),
    "when what expired is submitted again": at_request("POST", "", 3, after=True),
}


@pytest.mark.quick_cases(9)
@every
@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_ends_anywhere_is_continued_with_nothing_lost_and_nothing_asked_twice(
    provider: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_batches_of(4, monkeypatch)
    with SERVERS[provider](one_expires) as server:
        with monkeypatch.context() as patched:
            PLACES[place](patched, server)
            with pytest.raises(Killed):
                measure_spec(spec_for(server), tmp_path / "run")
        server.before = server.after = lambda method, path: None
        run = measure_spec(spec_for(server), tmp_path / "run").run
    assert (run.totals.done, run.totals.failed, run.receipts.equal) == (QUESTIONS, 0, QUESTIONS)
    assert Counter(server.asked.values()) == {1: QUESTIONS}
    assert len([*every_record(tmp_path / "run")]) == QUESTIONS


def test_a_batch_of_anthropic_is_recognised_among_others_of_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run submits as many questions, and both ids are lost."""
    with AnthropicBatchServer(looks=12) as server:
        for seed in (1, 2):
            with monkeypatch.context() as patched:
                at_request("POST", "", after=True)(patched, server)
                with pytest.raises(Killed):
                    measure_spec(spec_for(server, seed=seed), tmp_path / str(seed))
        server.after = lambda method, path: None
        waits: list[str] = []

        def look(event: Event) -> None:
            if isinstance(event, Waiting):
                waits.append(event.why)

        runs = [measure_spec(spec_for(server, seed=s), tmp_path / str(s), listen=look).run for s in (1, 2)]
    assert [run.totals.done for run in runs] == [QUESTIONS, QUESTIONS]
    assert any("may be ours" in why for why in waits)
    assert len(server.batches) == 2
    assert Counter(server.asked.values()) == {1: 2 * QUESTIONS}


def test_a_batch_of_anthropic_that_was_cancelled_or_archived_is_said_to_be(tmp_path: Path) -> None:
    with AnthropicBatchServer() as server:
        _interrupted(server, tmp_path / "cancelled")
        server.cancel("msgbatch_0")
        with pytest.raises(RunStopped, match="was cancelled at the provider, with 6 questions not answered"):
            measure_spec(spec_for(server), tmp_path / "cancelled")
        _interrupted(server, tmp_path / "archived")
        server.batches["msgbatch_1"].update(processing_status="ended", archived_at="2026-11-18T00:00:00Z")
        with pytest.raises(RunStopped, match="its results are kept for 29 days"):
            measure_spec(spec_for(server), tmp_path / "archived")
        run = measure_spec(spec_for(server), tmp_path / "cancelled").run
    assert run.totals.done == QUESTIONS


def _interrupted(server: HostedBatchServer, folder: Path) -> None:
    server.looks, stop = 5, Stop()

    def interrupt(event: Event) -> None:
        if isinstance(event, Waiting):
            stop.because(Interrupted("interrupted"))

    with pytest.raises(Interrupted):
        measure_spec(spec_for(server), folder, listen=interrupt, stop=stop)
    server.looks = 1


@every
def test_a_missing_key_is_named_before_anything_is_submitted(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = provider.partition(" ")[0]
    monkeypatch.delenv(f"{api.upper()}_API_KEY")
    names = {"anthropic": "anthropic:claude-opus-4-5", "gemini": "gemini:gemini-3-pro"}
    spec = make_spec({"model": names[api], "tasks": ["passkey"], "lengths": "1k", "limits": {"batch": True}})
    with pytest.raises(UsageError, match=f"{api.upper()}_API_KEY"):
        measure_spec(spec, tmp_path / "run")


def test_questions_of_google_go_into_a_file_where_a_request_would_be_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GeminiBatchServer() as server:
        measure_spec(spec_for(server), tmp_path / "inline")
        assert not server.files
        monkeypatch.setattr(gemini_batches, "INLINE_BYTES", 8_000)
        server.inline_bytes = 8_500
        run = measure_spec(spec_for(server, seed=1), tmp_path / "file").run
        assert len(server.files) == 2  # the questions, and their replies
    assert run.totals.done == QUESTIONS


def test_a_server_that_speaks_responses_without_batches_is_refused() -> None:
    fake = ResponsesFake()
    with fake.served() as url:
        model = f"openai:{fake.model}?api=responses&base_url={url}"
        spec = make_spec({"model": model, "tasks": ["passkey"], "lengths": "1k", "limits": {"batch": True}})
        with pytest.raises(UsageError, match="this server has no batches"):
            leadline.plan(spec)
