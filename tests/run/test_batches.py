"""Runs by batches: what is submitted, collected, asked again, and what happens when the program ends at any point."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import leadline
from leadline.core.answers import Completion, Failure
from leadline.core.errors import Interrupted, LeadlineError, RunStopped, StoreError, UsageError
from leadline.core.spec import Spec, make_spec
from leadline.models.batch_limits import BATCH_LIMITS
from leadline.models.openai.http import HttpReply, HttpRequest, RequestFailed
from leadline.results.run import load_run
from leadline.run import batches
from leadline.run.events import Event, Note, Waiting
from leadline.run.interrupt import Stop
from leadline.run.measure import measure_spec
from leadline.store.batches import BatchFolder
from leadline.store.runs import every_record
from support.batch_ends import Killed, Place, at_record, at_request, at_saving, counted
from support.batch_server import BATCHED, BatchServer, Fate
from support.commands import Say
from support.fake_server import FakeServer

QUESTIONS = 6


@pytest.fixture(autouse=True)
def without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(batches, "FIRST_LOOK_SECONDS", 0.001)
    monkeypatch.setattr("leadline.core.backoff.FIRST_WAIT_SECONDS", 0.001)


@pytest.fixture
def server() -> Iterator[BatchServer]:
    with BatchServer() as running:
        yield running


def spec_for(server: BatchServer, **values: Any) -> Spec:
    model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
    limits = {"batch": True, **values.pop("limits", {})}
    grid = {"tasks": ["passkey"], "lengths": "1k,2k", "depths": 3, "samples": 1}
    return make_spec({"model": model, **grid, "limits": limits, **values})


def in_batches_of(questions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BATCH_LIMITS, "openai", replace(BATCH_LIMITS["openai"], requests=questions))


def test_a_run_by_batches_has_the_records_of_any_other_run(server: BatchServer, tmp_path: Path) -> None:
    run = measure_spec(spec_for(server), tmp_path / "batch").run
    plain = measure_spec(spec_for(server, limits={"batch": False}), tmp_path / "plain").run
    assert (run.totals.done, run.totals.failed) == (QUESTIONS, 0)
    by_key = {record.cell.key: record for record in plain.records}
    for record in run.records:
        other = by_key[record.cell.key]
        assert (record.prompt_digest, record.sent.digest) == (other.prompt_digest, other.sent.digest)
        assert (record.outcome, record.receipt, record.scores) == (other.outcome, other.receipt, other.scores)
        assert record.sent.decoding["batch"] == "batch_0"
    assert Counter(server.asked.values()) == {1: QUESTIONS}


def test_questions_are_split_by_the_number_that_a_batch_takes(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_batches_of(4, monkeypatch)
    server.most_requests = 4
    run = measure_spec(spec_for(server), tmp_path / "run").run
    assert run.totals.done == QUESTIONS
    assert [batch["request_counts"]["total"] for batch in server.batches.values()] == [4, 2]


def test_questions_are_split_by_the_bytes_that_a_batch_takes(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BATCH_LIMITS, "openai", replace(BATCH_LIMITS["openai"], bytes=5000))
    run = measure_spec(spec_for(server), tmp_path / "run").run
    assert run.totals.done == QUESTIONS
    assert len(server.batches) > 1
    inputs = [server.files[batch["input_file_id"]] for batch in server.batches.values()]
    assert all(len(lines) <= 5000 for lines in inputs)
    assert Counter(server.asked.values()) == {1: QUESTIONS}


def test_a_question_larger_than_a_batch_fails_and_the_others_are_asked(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(BATCH_LIMITS, "openai", replace(BATCH_LIMITS["openai"], bytes=2000))
    run = measure_spec(spec_for(server), tmp_path / "run").run
    assert (run.totals.done, run.totals.failures) == (3, {"unsupported": 3})


@pytest.mark.parametrize("fate", ["expired", "server", "lost"])
def test_what_got_no_answer_is_asked_again_in_a_later_batch(fate: Fate, tmp_path: Path) -> None:
    def first_time_unlucky(line: dict[str, Any], times: int) -> Fate:
        return fate if times == 1 and line["custom_id"].endswith(("-0", "-3")) else "ok"

    with BatchServer(first_time_unlucky) as server:
        run = measure_spec(spec_for(server), tmp_path / "run").run
    assert (run.totals.done, run.totals.failed) == (QUESTIONS, 0)
    assert [batch["request_counts"]["total"] for batch in server.batches.values()] == [6, 2]
    assert sorted(record.attempts for record in run.records) == [1, 1, 1, 1, 2, 2]
    assert Counter(server.asked.values()) == {1: QUESTIONS}, "an answered question is not asked again"


def test_what_never_gets_an_answer_fails_after_the_attempts_of_the_run(tmp_path: Path) -> None:
    with BatchServer(lambda line, times: "expired") as server:
        run = measure_spec(spec_for(server, limits={"attempts": 2}), tmp_path / "run").run
    assert (run.totals.failed, run.totals.failures) == (QUESTIONS, {"timeout": QUESTIONS})
    assert {record.attempts for record in run.records} == {2}
    assert len(server.batches) == 2


def test_a_refused_question_is_a_failure_at_once(tmp_path: Path) -> None:
    with BatchServer(lambda line, times: "refused" if line["custom_id"].endswith("-1") else "ok") as server:
        run = measure_spec(spec_for(server), tmp_path / "run").run
    (failed,) = (record.outcome for record in run.records if isinstance(record.outcome, Failure))
    assert (failed.why, failed.status, failed.message) == ("refused_request", 400, "it went wrong")
    assert len(server.batches) == 1


def test_a_field_that_is_refused_is_left_out_of_the_next_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with BatchServer() as server:
        ask = server.model.handle

        def without_temperature(request: HttpRequest) -> HttpReply:
            """As hosted models that think: only questions of a batch are refused, so that opening does not learn it."""
            if request.url.startswith(BATCHED) and b'"temperature"' in (request.body or b""):
                message = "Unsupported parameter: 'temperature' is not supported with this model."
                return HttpReply(400, json.dumps({"error": {"message": message, "type": "invalid"}}).encode())
            return ask(request)

        monkeypatch.setattr(server.model, "handle", without_temperature)
        run = measure_spec(spec_for(server), tmp_path / "run").run
    assert run.totals.done == QUESTIONS
    assert {"temperature" in record.sent.decoding for record in run.records} == {False}
    assert len(server.batches) == 3  # the refused one, that of the answers, and that of second answers
    assert run.repeats is not None
    assert run.repeats.questions == QUESTIONS


def test_a_full_queue_makes_batches_smaller_and_then_waits_for_room(tmp_path: Path) -> None:
    heard: list[Event] = []
    with BatchServer(room=2) as server:
        run = measure_spec(spec_for(server), tmp_path / "run", listen=heard.append).run
    assert run.totals.done == QUESTIONS
    assert Counter(server.asked.values()) == {1: QUESTIONS}
    assert any(isinstance(event, Note) and "Enqueued token limit" in event.text for event in heard)
    asked = [b["request_counts"]["total"] for b in server.batches.values() if b["status"] == "completed"]
    assert max(asked) <= 2


def test_a_queue_without_room_for_one_question_ends_the_run_with_what_the_provider_says(tmp_path: Path) -> None:
    with BatchServer(room=0) as server, pytest.raises(RunStopped, match="Enqueued token limit reached"):
        measure_spec(spec_for(server), tmp_path / "run")
    assert not server.asked


# --- the program ends


PLACES: dict[str, Place] = {
    "before a batch is in the folder": at_saving("prepared", after=False),
    "when it is in the folder": at_saving("prepared", after=True),
    "before the file is uploaded": at_request("POST", "/v1/files"),
    "when the file is uploaded": at_request("POST", "/v1/files", after=True),
    "before the batch is created": at_request("POST", "/v1/batches"),
    "when the batch is created and its id is not known": at_request("POST", "/v1/batches", after=True),
    "when the second batch is created": at_request("POST", "/v1/batches", 2, after=True),
    "before the id is in the folder": at_saving("submitted", after=False),
    "when the id is in the folder": at_saving("submitted", after=True),
    "while the batches run": at_request("GET", "/v1/batches/batch_0", 1),
    "when the first batch has ended": at_request("GET", "/v1/batches/batch_0", 2, after=True),
    "before the results are read": at_request("GET", "/v1/files"),
    "when the results are read": at_request("GET", "/v1/files", after=True),
    "before the first record": at_record(1, after=False),
    "after the second record": at_record(2, after=True),
    "when all of the first batch is recorded": at_saving("recorded", after=False),
    "when that is in the folder": at_saving("recorded", after=True),
    "when the questions that expired are submitted again": at_request("POST", "/v1/batches", 3, after=True),
    "after the last record": at_record(QUESTIONS, after=True),
}


def one_expires(line: dict[str, Any], times: int) -> Fate:
    return "expired" if times == 1 and line["custom_id"].endswith("-1") else "ok"


@pytest.mark.quick_cases(
    place=("when it is in the folder", "when the batch is created and its id is not known", "while the batches run",
           "after the second record", "when the questions that expired are submitted again"),
)  # fmt: skip
@pytest.mark.parametrize("place", PLACES)
def test_a_run_that_ends_anywhere_is_continued_with_nothing_lost_and_nothing_asked_twice(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_batches_of(4, monkeypatch)
    with BatchServer(one_expires) as server:
        with monkeypatch.context() as patched:
            PLACES[place](patched, server)
            with pytest.raises(Killed):
                measure_spec(spec_for(server), tmp_path / "run")
        server.before = server.after = lambda method, path: None
        run = measure_spec(spec_for(server), tmp_path / "run").run
        again = measure_spec(spec_for(server), tmp_path / "run").run
    assert (run.totals.done, run.totals.failed, again.totals.done) == (QUESTIONS, 0, QUESTIONS)
    assert Counter(server.asked.values()) == {1: QUESTIONS}
    assert len([*every_record(tmp_path / "run")]) == QUESTIONS, "a record for each"
    assert sum(batch["request_counts"]["total"] for batch in server.batches.values()) == QUESTIONS + 2
    assert not [batch for batch in BatchFolder(tmp_path / "run").every() if batch.is_open]


def test_a_reply_that_is_lost_does_not_submit_a_batch_twice(server: BatchServer, tmp_path: Path) -> None:
    def lose() -> None:
        raise RequestFailed("timeout", "no answer within 600 seconds")

    lost = counted(lose, 1)
    server.after = lambda method, path: lost() if (method, path) == ("POST", "/v1/batches") else None
    run = measure_spec(spec_for(server), tmp_path / "run").run
    assert run.totals.done == QUESTIONS
    assert len(server.batches) == 1


def test_a_request_that_arrives_late_is_waited_for(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of batches does not have it at first."""
    monkeypatch.setattr(batches, "SETTLE_SECONDS", 3600.0)
    with monkeypatch.context() as patched:
        at_request("POST", "/v1/batches", after=True)(patched, server)
        with pytest.raises(Killed):
            measure_spec(spec_for(server), tmp_path / "run")
    hidden = dict(server.batches)
    server.batches.clear()
    server.after = lambda method, path: None
    waited: list[str] = []

    def arrives(event: Event) -> None:
        if isinstance(event, Waiting) and "may still arrive" in event.why:
            waited.append(event.why)
            server.batches.update(hidden)

    monkeypatch.setattr(Stop, "wait", lambda self, seconds: self.is_set)
    run = measure_spec(spec_for(server), tmp_path / "run", listen=arrives).run
    assert len(waited) == 1
    assert (run.totals.done, len(server.batches)) == (QUESTIONS, 1)


def test_ctrl_c_leaves_the_batches_at_the_provider_and_says_how_to_continue(
    server: BatchServer, tmp_path: Path
) -> None:
    server.looks = 5
    stop = Stop()

    def interrupt(event: Event) -> None:
        if isinstance(event, Waiting):
            stop.because(Interrupted("interrupted", where=str(tmp_path), fix="continue"))

    with pytest.raises(Interrupted) as error:
        measure_spec(spec_for(server), tmp_path / "run", listen=interrupt, stop=stop)
    assert error.value.what == "interrupted; 1 batch with 6 questions goes on at the provider"
    assert "run the same command again: it collects the answers" in error.value.fix
    heard: list[Event] = []
    run = measure_spec(spec_for(server), tmp_path / "run", listen=heard.append).run
    assert run.totals.done == QUESTIONS
    assert len(server.batches) == 1
    assert any(isinstance(event, Note) and "of an earlier start" in event.text for event in heard)


def test_a_batch_that_is_gone_is_not_asked_again_by_itself(server: BatchServer, tmp_path: Path) -> None:
    _interrupted(server, tmp_path)
    kept = dict(server.batches)
    server.batches.clear()
    for _ in range(2):
        with pytest.raises(RunStopped, match="the provider has no such batch") as error:
            measure_spec(spec_for(server), tmp_path / "run")
        assert "use the key of the account" in error.value.fix
        assert "batches/0001.json" in error.value.fix
    (tmp_path / "run" / "batches" / "0001.json").unlink()
    run = measure_spec(spec_for(server), tmp_path / "run").run
    assert run.totals.done == QUESTIONS
    assert kept


@pytest.mark.parametrize("damage", ["cut", "gone", "batch"])
def test_damaged_files_of_a_batch_are_named_and_nothing_is_asked_again_by_itself(
    damage: str, server: BatchServer, tmp_path: Path
) -> None:
    _interrupted(server, tmp_path)
    folder = tmp_path / "run" / "batches"
    questions = folder / "0001.questions.gz"
    if damage == "gone":
        questions.unlink()
    else:
        path = questions if damage == "cut" else folder / "0001.json"
        path.write_bytes(path.read_bytes()[:-30])
    server.looks = 0
    with pytest.raises(StoreError, match=r"of a batch cannot be read|a batch of this run cannot be read") as error:
        measure_spec(spec_for(server), tmp_path / "run")
    assert "paid for, again" in error.value.fix
    assert len(server.batches) == 1
    (folder / "0001.json").unlink()
    assert measure_spec(spec_for(server), tmp_path / "run").run.totals.done == QUESTIONS
    assert [path.name for path in folder.iterdir()] == ["0001.json"], "texts are kept no longer than they are needed"


def test_results_that_are_gone_are_said_to_be(server: BatchServer, tmp_path: Path) -> None:
    _interrupted(server, tmp_path)
    server.looks = 0
    (batch,) = server.batches.values()
    server.finish(batch)
    del server.files[batch["output_file_id"]]
    with pytest.raises(
        RunStopped, match=r"the answers of batch batch_0, 6 questions, are not there: file .*No such File"
    ):
        measure_spec(spec_for(server), tmp_path / "run")


def test_a_cancelled_batch_keeps_its_answers_and_the_rest_is_asked_by_the_next_start(tmp_path: Path) -> None:
    with BatchServer(lambda line, times: "lost" if times == 1 and line["custom_id"].endswith("-2") else "ok") as server:
        _interrupted(server, tmp_path)
        (batch,) = server.batches.values()
        server.finish(batch, "cancelled")
        with pytest.raises(RunStopped, match="was cancelled at the provider, with 1 question not answered"):
            measure_spec(spec_for(server), tmp_path / "run")
        run = measure_spec(spec_for(server), tmp_path / "run").run
    assert run.totals.done == QUESTIONS
    assert Counter(server.asked.values()) == {1: QUESTIONS}


def _interrupted(server: BatchServer, tmp_path: Path) -> None:
    server.looks, stop = 5, Stop()

    def interrupt(event: Event) -> None:
        if isinstance(event, Waiting):
            stop.because(Interrupted("interrupted"))

    with pytest.raises(Interrupted):
        measure_spec(spec_for(server), tmp_path / "run", listen=interrupt, stop=stop)


def test_a_batch_that_the_provider_refuses_ends_the_run_with_its_reason(server: BatchServer, tmp_path: Path) -> None:
    server.most_requests = 2
    with pytest.raises(RunStopped, match="refused batch batch_0: The file has more than 2 requests"):
        measure_spec(spec_for(server), tmp_path / "run")
    server.most_requests = 50_000
    assert measure_spec(spec_for(server), tmp_path / "run").run.totals.done == QUESTIONS


def test_a_provider_that_is_away_for_a_while_is_waited_for(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.looks = 3

    def goes_and_comes(event: Event) -> None:
        if isinstance(event, Waiting):
            server.down = not server.down

    run = measure_spec(spec_for(server, limits={"attempts": 1}), tmp_path / "run", listen=goes_and_comes).run
    assert run.totals.done == QUESTIONS
    assert len(server.batches) == 1


# --- what is refused, and what is said before


def test_a_model_without_batches_is_refused_with_those_that_have_them() -> None:
    spec = make_spec({"model": "sim:perfect", "tasks": ["passkey"], "lengths": "1k", "limits": {"batch": True}})
    with pytest.raises(UsageError) as error:
        leadline.plan(spec)
    assert error.value.what == "sim:perfect has no batches"
    assert "leave out --batch" in error.value.fix


def test_a_server_without_batches_is_refused(tmp_path: Path) -> None:
    with FakeServer(kind="vllm", window=8192) as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
        spec = make_spec({"model": model, "tasks": ["passkey"], "lengths": "1k", "limits": {"batch": True}})
        with pytest.raises(UsageError, match="this server has no batches"):
            leadline.plan(spec)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"limits": {"time": "10min"}, "until": "effective"}, "cannot end in a given time"),
        ({"tasks": ["retrieval_gain"]}, "which batches do not give"),
    ],
)
def test_what_batches_cannot_do_is_refused_before_anything_is_sent(
    values: dict[str, Any], what: str, server: BatchServer
) -> None:
    with pytest.raises(LeadlineError, match=what):
        leadline.plan(spec_for(server, **values))
    assert not server.batches


PRICES = "date = 2026-11-01\n[models.fake]\ninput = 1000.0\noutput = 2000.0\n"


def test_a_plan_says_how_many_batches_there_are_at_half_the_price(
    server: BatchServer, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_batches_of(4, monkeypatch)
    (tmp_path / "prices.toml").write_text(PRICES + "tiers.batch = {factor = 0.5}\n")
    words = [
        "plan", "passkey", "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes", "--lengths", "1k,2k",
        "--depths", "3", "--samples", "1", "--prices", str(tmp_path / "prices.toml"), "--json",
    ]  # fmt: skip
    plain, batched = (json.loads(say(*words, *more).out) for more in ([], ["--batch"]))
    assert batched["money"] == pytest.approx(plain["money"] / 2)
    assert "batch tier" in batched["prices"]
    (note,) = (note for note in batched["notes"] if "batch" in note)
    assert note.startswith("6 questions with about 0.0 MB go into 2 batches (at most 4 questions or 200 MB each)")
    assert not server.batches


def test_a_price_file_without_batches_needs_the_discount_of_a_known_provider(
    server: BatchServer, tmp_path: Path
) -> None:
    (tmp_path / "prices.toml").write_text(PRICES)
    with pytest.raises(UsageError, match="no price of openai:fake in batches is known") as error:
        leadline.plan(spec_for(server, limits={"prices": str(tmp_path / "prices.toml")}))
    assert "tiers.batch = {factor = 0.5}" in error.value.fix


def test_a_budget_holds_back_what_it_cannot_pay(server: BatchServer, tmp_path: Path) -> None:
    (tmp_path / "prices.toml").write_text(PRICES + "tiers.batch = {factor = 0.5}\n")
    limits = {"prices": str(tmp_path / "prices.toml"), "budget": "3usd"}
    with pytest.raises(RunStopped, match=r"the budget of 3\.00 usd is reached"):
        measure_spec(spec_for(server, limits=limits), tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert 0 < run.totals.done < QUESTIONS
    assert 0 < run.money <= 3
    whole = measure_spec(spec_for(server, limits=limits | {"budget": "30usd"}), tmp_path / "run").run
    assert whole.totals.done == QUESTIONS
    assert Counter(server.asked.values()) == {1: QUESTIONS}


def test_rounds_of_a_rule_are_batches(server: BatchServer, tmp_path: Path) -> None:
    run = measure_spec(spec_for(server, until="effective", samples=4, depths=2), tmp_path / "run").run
    assert all(isinstance(record.outcome, Completion) for record in run.records)
    assert set(server.asked.values()) == {1}
    assert len(server.batches) >= 1


def test_the_page_shows_the_limits_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "batch.md").read_text()
    for limits in BATCH_LIMITS.values():
        size = f"{limits.bytes / 1e6:,.0f}"
        assert f"| {limits.provider} | {limits.requests:,} | {size} | {limits.hours} | {limits.source} |" in page


def test_an_account_without_credit_takes_no_batch_and_the_run_goes_on_when_it_has_some(
    server: BatchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = {"message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota"}
    refused = HttpReply(429, json.dumps({"error": error}).encode(), "application/json")
    with monkeypatch.context() as patch:
        patch.setattr(server, "_create", lambda body: refused)
        with pytest.raises(RunStopped, match="the account has no credit: You exceeded your current quota") as raised:
            measure_spec(spec_for(server), tmp_path / "run")
    assert raised.value.fix.startswith("add credit to the account of this key")
    assert measure_spec(spec_for(server), tmp_path / "run").run.totals.done == QUESTIONS
    assert set(server.submitted.values()) == {1}


def test_a_batch_in_which_the_credit_ran_out_ends_the_run_and_no_other_is_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_batches_of(2, monkeypatch)
    credit = 1

    def while_there_is_credit(line: dict[str, Any], times: int) -> Fate:
        return "ok" if running.asked.total() < credit else "without credit"

    with BatchServer(while_there_is_credit) as running:
        with pytest.raises(RunStopped, match="the account has no credit: You exceeded your current quota") as raised:
            measure_spec(spec_for(running), tmp_path / "run")
        assert [batch["status"] for batch in running.batches.values()].count("completed") == 1
        assert raised.value.fix.startswith("add credit to the account of this key")
        assert load_run(tmp_path / "run").totals.done == 1
        credit = QUESTIONS
        assert measure_spec(spec_for(running), tmp_path / "run").run.totals.done == QUESTIONS
    assert Counter(running.asked.values()) == {1: QUESTIONS}
