"""The pass: whatever the workers, the order or the interruptions, the same records come out, each once."""

from __future__ import annotations

import gc
import itertools
import re
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadline.core import backoff
from leadline.core.answers import Completion, Failure
from leadline.core.drafts import Draft
from leadline.core.errors import LengthError, OtherRunError, RunStopped, SourceError
from leadline.core.records import Record
from leadline.core.spec import Spec, make_spec
from leadline.core.types import Document, Probe
from leadline.run import engine
from leadline.run import plan as planning
from leadline.run import queue as feed
from leadline.run.documents import planned_documents, with_drafts
from leadline.run.events import Answered, Event, Started, Stopping
from leadline.run.measure import measure
from leadline.store.manifest import read_manifest
from leadline.store.runs import RECORDS, read_records
from leadline.text.fitting import Fitter
from support.fake_server import FakeServer
from support.scripted_model import Outcome, ScriptedModel


def spec(**values: Any) -> Spec:
    base = {"model": "sim:perfect?tokenizer=bytes", "tasks": "niah", "lengths": "1k,2k", "depths": 3, "samples": 2}
    return make_spec({**base, **values})


def content(folder: Path) -> dict[str, Record]:
    """Records without what may differ between two runs of one spec: clocks and counts of attempts."""
    return {r.cell.key: msgspec.structs.replace(r, started=0.0, seconds=0.0, attempts=1) for r in read_records(folder)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    folder = tmp_path_factory.mktemp("whole") / "run"
    measure(spec(), folder)
    return content(folder)


def test_a_run_answers_every_cell_and_its_records_say_what_was_asked(whole: dict[str, Record]) -> None:
    assert len(whole) == 2 * 3 * 2
    one = whole["niah/2048/0.5000/1"]
    assert one.reading == "fresh"
    assert one.model == "sim:perfect?tokenizer=bytes"
    assert one.prompt_tokens + one.question.allowance == 2048
    assert one.receipt.ok
    assert one.failure_class == "correct"
    assert one.score == 1.0
    assert [round(f.depth, 1) for f in one.facts] == [0.5]
    assert isinstance(one.outcome, Completion)
    assert one.question.targets[0] in one.outcome.text


def test_drafts_written_ahead_change_nothing_and_one_that_cannot_be_written_fails_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = planning.prepare(spec())
    plain = list(planned_documents(made.spec, made.tasks))
    ahead = list(with_drafts(plain, made.spec.seed))
    assert all(planned.draft is not None for planned in ahead)
    for one, other in zip(plain, ahead, strict=True):
        assert one.document(made.spec.seed, made.fitter).text == other.document(made.spec.seed, made.fitter).text

    def broken(self: Any, cells: Any, *, seed: int) -> Draft:
        raise LengthError("it cannot be written")

    monkeypatch.setattr(type(plain[0].task), "write", broken)
    failing = list(with_drafts(plain, made.spec.seed))
    assert len(failing) == len(plain)
    with pytest.raises(LengthError, match="cannot be written"):
        failing[0].document(made.spec.seed, made.fitter)


@pytest.mark.parametrize("workers", [1, 7])
def test_the_number_of_workers_changes_nothing(tmp_path: Path, whole: dict[str, Record], workers: int) -> None:
    measure(spec(limits={"workers": workers}), tmp_path / "run")
    assert content(tmp_path / "run") == whole


def test_a_resumed_run_asks_only_what_is_missing_and_ends_the_same(tmp_path: Path, whole: dict[str, Record]) -> None:
    folder = tmp_path / "run"
    measure(spec(), folder)
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    (folder / RECORDS).write_bytes(b"".join(lines[:5]) + lines[5][:40])
    events: list[Event] = []
    summary = measure(spec(), folder, listen=events.append)
    started = next(e for e in events if isinstance(e, Started))
    assert (started.planned, started.done, started.torn_bytes) == (12, 5, 40)
    assert sum(isinstance(e, Answered) for e in events) == 7
    assert (summary.totals.done, summary.totals.failed, summary.totals.missing) == (12, 0, 0)
    assert content(folder) == whole
    assert len(read_manifest(folder).sessions) == 2


def test_a_finished_run_asks_nothing_more(tmp_path: Path) -> None:
    measure(spec(), tmp_path / "run")
    events: list[Event] = []
    measure(spec(), tmp_path / "run", listen=events.append)
    assert [type(e) for e in events] == [Started]


@pytest.mark.parametrize(("reading", "documents"), [("fresh", 12), ("shared", 4), ("nested", 2)])
def test_a_reading_mode_decides_how_many_documents_there_are(tmp_path: Path, reading: str, documents: int) -> None:
    summary = measure(spec(reading=reading, lengths="2k,4k"), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    assert summary.totals.done == len(records) == 12
    assert len({r.document for r in records}) == documents
    assert {r.score for r in records} == {1.0}
    assert all(r.prompt_tokens + r.question.allowance == r.cell.length for r in records)


def test_a_shared_document_is_the_same_when_it_is_resumed(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    measure(spec(reading="shared", lengths="4k"), folder)
    before = content(folder)
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    (folder / RECORDS).write_bytes(b"".join(lines[:2]))
    measure(spec(reading="shared", lengths="4k"), folder)
    assert content(folder) == before


def test_the_first_probe_of_a_shared_document_is_answered_before_the_others_are_asked(tmp_path: Path) -> None:
    with FakeServer(kind="vllm", keep_bodies=True) as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
        opened = len(server.completions)
        measure(spec(model=model, reading="shared", lengths="4k", samples=1, depths=5), tmp_path / "run")
        asked = server.completions[opened:]
        assert len(asked) >= 5
    records = sorted(read_records(tmp_path / "run"), key=lambda r: r.started)
    first, *others = records
    assert all(r.started >= first.started + first.seconds - 0.005 for r in others)


# --- failures and early ends --------------------------------------------------------------------


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedModel:
    """A model that answers right, in place of the one the spec names; tests change its script."""
    model = ScriptedModel(lambda probe, attempt: Completion(probe.question.targets[0]))
    monkeypatch.setattr(planning, "open_model", lambda spec, **_: model)
    monkeypatch.setattr(backoff, "FIRST_WAIT_SECONDS", 0.005)
    return model


def test_a_failure_is_recorded_and_never_scored(tmp_path: Path, scripted: ScriptedModel) -> None:
    refused = Failure("refused_request", "no", status=400)
    scripted.script = lambda probe, n: refused if probe.cell.sample == 0 else Completion(probe.question.targets[0])
    summary = measure(spec(), tmp_path / "run")
    assert (summary.totals.planned, summary.totals.done, summary.totals.failed) == (12, 6, 6)
    assert summary.totals.failures == {"refused_request": 6}
    failed = [r for r in read_records(tmp_path / "run") if r.failed]
    assert len(failed) == 6
    assert {(r.score, r.failure_class, len(r.scores)) for r in failed} == {(None, "error", 0)}


def test_failures_are_asked_again_on_resume_and_the_answer_wins(tmp_path: Path, scripted: ScriptedModel) -> None:
    scripted.script = lambda probe, n: Failure("server", "down", status=500) if n == 1 else Completion("7")
    first = measure(spec(), tmp_path / "run")
    assert (first.totals.done, first.totals.failed) == (0, 12)
    events: list[Event] = []
    second = measure(spec(), tmp_path / "run", listen=events.append)
    assert (second.totals.done, second.totals.failed) == (12, 0)
    assert events[0].failed_before == 12  # type: ignore[union-attr]


def test_a_dead_server_stops_the_run_early_and_it_can_be_resumed(tmp_path: Path, scripted: ScriptedModel) -> None:
    works = scripted.script
    scripted.script = lambda probe, n: Failure("connection", "refused", transient=True)
    limits = {"attempts": 2, "breaker": 5, "workers": 3}
    with pytest.raises(RunStopped, match="5 samples in a row got no answer") as stopped:
        measure(spec(samples=20, limits=limits), tmp_path / "run")
    assert stopped.value.exit_code == 75
    assert 5 <= len(list(read_records(tmp_path / "run"))) <= 5 + 3
    scripted.script = works
    assert measure(spec(samples=20, limits=limits), tmp_path / "run").totals.done == 120


def test_failures_that_are_about_the_sample_do_not_stop_the_run(tmp_path: Path, scripted: ScriptedModel) -> None:
    scripted.script = lambda probe, n: Failure("context_length", "too long", status=400)
    summary = measure(spec(samples=10, limits={"breaker": 3}), tmp_path / "run")
    assert (summary.totals.failed, summary.totals.classes) == (60, {"input_truncated": 60})


def test_a_wrong_key_stops_the_run_early(tmp_path: Path, scripted: ScriptedModel) -> None:
    scripted.script = lambda probe, n: Failure("refused_request", "who are you?", status=401)
    with pytest.raises(RunStopped, match="who are you"):
        measure(spec(samples=10, limits={"breaker": 3, "workers": 1}), tmp_path / "run")
    assert len(list(read_records(tmp_path / "run"))) == 3


def test_answers_in_between_keep_the_run_going(tmp_path: Path, scripted: ScriptedModel) -> None:
    down = Failure("server", "down", status=500)
    scripted.script = lambda probe, n: down if probe.cell.sample % 3 else Completion(probe.question.targets[0])
    summary = measure(spec(samples=9, limits={"breaker": 8, "workers": 1}), tmp_path / "run")
    assert (summary.totals.done, summary.totals.failed) == (18, 36)


def test_a_defect_in_a_plugin_ends_the_run_and_loses_nothing(tmp_path: Path, scripted: ScriptedModel) -> None:
    def script(probe: Probe, attempt: int) -> Outcome:
        if probe.cell.key == "niah/1024/0.5000/0":
            raise ZeroDivisionError("a defect")
        return Completion(probe.question.targets[0])

    works, scripted.script = scripted.script, script
    events: list[Event] = []
    with pytest.raises(ZeroDivisionError):
        measure(spec(limits={"workers": 1}), tmp_path / "run", listen=events.append)
    kept = len(list(read_records(tmp_path / "run")))
    assert kept == sum(isinstance(e, Answered) for e in events) > 0
    scripted.script = works
    assert measure(spec(limits={"workers": 1}), tmp_path / "run").totals.done == 12


def test_documents_before_one_that_cannot_be_built_are_asked(
    tmp_path: Path, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is resumed, a run stops at such a document: others must not wait for it for ever."""

    fit = Fitter.fit

    def picky(fitter: Fitter, draft: Draft) -> Document:
        if draft.questions[0].cell.sample == 4:
            raise SourceError("this one cannot exist")
        return fit(fitter, draft)

    monkeypatch.setattr(Fitter, "fit", picky)
    for _ in range(2):
        with pytest.raises(SourceError, match="this one cannot exist"):
            measure(spec(lengths="1k", depths=3, samples=6, limits={"workers": 4}), tmp_path / "run")
        assert {r.cell.sample for r in read_records(tmp_path / "run")} <= {0, 1, 2, 3}
    assert {r.cell.sample for r in read_records(tmp_path / "run")} == {0, 1, 2, 3}
    assert len(scripted.asked) == 12
    monkeypatch.setattr(Fitter, "fit", fit)
    assert measure(spec(lengths="1k", depths=3, samples=6, limits={"workers": 4}), tmp_path / "run").totals.done == 18


def test_a_machine_that_has_no_more_threads_is_asked_with_those_it_has(
    tmp_path: Path, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.seconds = 0.02
    start = threading.Thread.start

    def meagre(thread: threading.Thread) -> None:
        if thread.name == "asker-2":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", meagre)
    run = measure(spec(samples=20, limits={"workers": 4}), tmp_path / "run")
    assert run.totals.done == run.totals.planned == len(scripted.asked)
    assert not any(t.name.startswith("asker-") for t in threading.enumerate())


def test_an_in_process_model_has_one_worker_and_gets_whole_documents(tmp_path: Path, scripted: ScriptedModel) -> None:
    scripted.asked_per = "document"
    names: set[str] = set()
    works = scripted.script

    def script(probe: Probe, attempt: int) -> Outcome:
        names.add(threading.current_thread().name)
        return works(probe, attempt)

    scripted.script = script
    measure(spec(reading="shared", lengths="2k,4k"), tmp_path / "run")
    assert [len(call) for call in scripted.calls] == [3, 3, 3, 3]
    assert len(names) == 1


@pytest.mark.slow
def test_documents_live_only_while_they_are_in_flight(
    tmp_path: Path, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect()
    before = sum(type(o) is Document for o in gc.get_objects())
    alive: list[int] = []
    build = engine._Engine._build

    def counted(self: Any, planned: Any) -> Document:
        made = build(self, planned)
        alive.append(sum(type(o) is Document for o in gc.get_objects()))
        return made

    monkeypatch.setattr(engine._Engine, "_build", counted)
    monkeypatch.setattr(feed, "BATCH_TOKENS", 2 * 1024)
    scripted.seconds = 0.001
    measure(spec(lengths="1k", depths=5, samples=4, limits={"workers": 4}), tmp_path / "run")
    assert len(alive) == 20
    # In flight, answered and not yet let go, built in one go, and the two that the plan tried; others are what other
    # tests still hold.
    assert max(alive) - before <= 4 + 1 + 2 + 2


# --- what is written, and what is told ---------------------------------------------------------


def test_a_key_that_a_server_quotes_is_not_written(
    tmp_path: Path, scripted: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    scripted.script = lambda probe, n: Failure("refused_request", "bad key sk-0123456789", status=400)
    measure(spec(lengths="1k"), tmp_path / "run")
    assert b"sk-0123456789" not in (tmp_path / "run" / RECORDS).read_bytes()


def test_prompts_are_kept_when_asked_for(tmp_path: Path) -> None:
    measure(spec(lengths="1k", depths=1, samples=1), tmp_path / "run", keep_prompts=True)
    (kept,) = (tmp_path / "run" / "prompts").iterdir()
    (record,) = read_records(tmp_path / "run")
    assert kept.name == "niah-1024-0.5000-0.txt"
    assert len(kept.read_bytes()) == record.prompt_tokens
    assert record.question.targets[0] in kept.read_text()


def test_a_run_that_stops_says_so_once_and_keeps_what_was_in_flight(tmp_path: Path, scripted: ScriptedModel) -> None:
    first = iter([True])

    def script(probe: Probe, attempt: int) -> Outcome:
        if next(first, False):
            time.sleep(0.05)
            return Failure("connection", "refused")
        time.sleep(0.6)
        return Completion(probe.question.targets[0])

    scripted.script = script
    events: list[Event] = []
    with pytest.raises(RunStopped):
        measure(spec(limits={"breaker": 1, "workers": 2}), tmp_path / "run", listen=events.append)
    assert [e.why for e in events if isinstance(e, Stopping)] == [
        "1 samples in a row got no answer; the last one: connection: refused"
    ]
    assert sorted(r.failed for r in read_records(tmp_path / "run")) == [False, True]


def test_a_listener_that_fails_ends_the_run_and_its_workers(tmp_path: Path, scripted: ScriptedModel) -> None:
    scripted.seconds = 0.05

    def listen(event: Event) -> None:
        if isinstance(event, Answered):
            raise ZeroDivisionError("a defect")

    with pytest.raises(ZeroDivisionError):
        measure(spec(samples=20, limits={"workers": 2}), tmp_path / "run", listen=listen)
    time.sleep(0.2)
    asked = len(scripted.asked)
    time.sleep(0.2)
    assert len(scripted.asked) == asked < 120


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("reading", "first"),
    [
        ("fresh", {"samples": 1}),
        ("fresh", {"samples": 1, "lengths": [1024], "depths": [0.5]}),
        ("shared", {"samples": 1, "lengths": [2048]}),
        ("shared", {"samples": 2, "tasks": [{"name": "niah", "per_document": 2}]}),
        ("nested", {"samples": 1}),
    ],
)
def test_a_run_is_extended_in_its_folder_and_ends_as_if_made_at_once(
    tmp_path: Path, reading: str, first: dict[str, Any]
) -> None:
    lengths = [1024, 2048] if reading == "fresh" else [2048, 4096]  # one document has the facts of several cells
    asked = {"reading": reading, "samples": 3, "lengths": lengths, "depths": [0.0, 0.5, 1.0]}
    asked |= {name: value for name, value in first.items() if name == "tasks"}
    measure(spec(**(asked | first)), tmp_path / "grown")
    before = len(content(tmp_path / "grown"))
    events: list[Event] = []
    run = measure(spec(**asked), tmp_path / "grown", listen=events.append)
    assert sum(isinstance(e, Answered) for e in events) == 18 - before
    assert (run.totals.planned, run.totals.done) == (18, 18)
    measure(spec(**asked), tmp_path / "whole")
    assert content(tmp_path / "grown") == content(tmp_path / "whole")


def test_documents_over_a_text_stay_as_they_were_when_depths_are_added_and_share_none_of_it(tmp_path: Path) -> None:
    """Even when samples and further depths are added later, and asked again after a resume."""
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Paragraph {n} says that item {n * 7919} is on shelf {n * 31}." for n in range(4000)))
    asked = {"tasks": [{"name": "niah", "options": {"haystack": str(text)}}], "lengths": [1024]}
    folder, grids = tmp_path / "run", [([0.0, 1.0], 2), ([0.0, 0.5, 1.0], 2), ([0.0, 0.25, 0.5, 1.0], 3)]
    before: dict[str, str] = {}
    for depths, samples in grids:
        measure(spec(**asked, depths=depths, samples=samples), folder, keep_prompts=True)
        prompts = {r.cell.key: r.prompt_digest for r in read_records(folder)}
        assert before.items() <= prompts.items()
        before = prompts
    assert read_manifest(folder).added_depths == (0.5, 0.25)
    with planning.prepare(spec(**asked, depths=[0.0, 0.25, 0.5, 1.0], samples=3)) as made:
        made.fitter.share_text(made.spec.depths, (0.5, 0.25))
        documents = [
            made.fitter.fit(planned.task.write(planned.cells, seed=made.spec.seed))
            for planned in planned_documents(made.spec, made.tasks)
        ]
        assert {d.prompt_digest(p) for d in documents for p in d.probes} == set(before.values())
    said = [set(re.findall(r"item (\d+) is", d.text)) for d in documents]
    assert all(not one & other for one, other in itertools.combinations(said, 2))


@pytest.mark.parametrize(
    ("reading", "first"),
    [
        ("fresh", {"samples": 4}),
        ("fresh", {"lengths": [1024, 1500]}),
        ("shared", {"depths": [0.5]}),
        ("shared", {"samples": 1, "tasks": [{"name": "niah", "per_document": 2}]}),
        ("nested", {"lengths": [1024]}),
    ],
)
def test_a_run_whose_documents_would_change_is_not_extended(
    tmp_path: Path, reading: str, first: dict[str, Any]
) -> None:
    asked = {"reading": reading, "samples": 3, "lengths": [1024, 2048], "depths": [0.0, 0.5, 1.0]}
    asked |= {name: value for name, value in first.items() if name == "tasks"}
    measure(spec(**(asked | first)), tmp_path / "run")
    with pytest.raises(OtherRunError):
        measure(spec(**asked), tmp_path / "run")
