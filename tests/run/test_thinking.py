"""Thinking as an axis: what is sent, an allowance that is found and is part of the length, and tokens on the record."""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from leadline.core.answers import Completion
from leadline.core.drafts import EXTRA_ALLOWANCE
from leadline.core.errors import UsageError
from leadline.core.records import Record
from leadline.core.spec import make_spec
from leadline.core.types import Cell, Question
from leadline.models.openai.requests import checked_thinking, thinking_fields
from leadline.results.run import load_run
from leadline.run.allowance import FILE, first_allowances, grown_allowance, next_step
from leadline.run.documents import documents_fit, planned_documents
from leadline.run.plan import prepare
from leadline.store.files import replace_file
from leadline.store.manifest import MANIFEST, read_manifest
from leadline.store.runs import RECORDS, decode, encode_pretty, read_records
from support.commands import CommandResult, Say
from support.leadline_process import write_haystack
from support.plain_records import record as plain_record
from support.thinking_server import ThinkingServer

KWARGS = "chat_template_kwargs"
SENT: list[tuple[str, Any, str, dict[str, Any]]] = [
    ("on", "vllm", "", {KWARGS: {"enable_thinking": True}}),
    ("off", "llamacpp", "", {KWARGS: {"enable_thinking": False}}),
    ("low", "vllm", "", {KWARGS: {"enable_thinking": True, "reasoning_effort": "low"}, "reasoning_effort": "low"}),
    ("high", "plain", "api.openai.com", {"reasoning_effort": "high"}),
    ("off", "plain", "api.openai.com", {"reasoning_effort": "none"}),
    ("off", "plain", "example.org", {}),
    ("4096", "vllm", "", {KWARGS: {"enable_thinking": True}, "thinking_token_budget": 4096}),
    ("4096", "llamacpp", "", {KWARGS: {"enable_thinking": True}, "thinking_budget_tokens": 4096}),
    ("4096", "plain", "openrouter.ai", {"reasoning": {"max_tokens": 4096}}),
    ("4096", "plain", "api.anthropic.com", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
]


@pytest.mark.parametrize(("setting", "kind", "host", "expected"), SENT)
def test_each_kind_of_server_is_told_in_its_own_fields(
    setting: str, kind: Any, host: str, expected: dict[str, Any]
) -> None:
    found = thinking_fields(setting, kind, host, chat=True)
    assert found.template | found.request == expected
    assert bool(found.note) is (not expected)


def test_what_a_server_has_no_field_for_is_refused() -> None:
    for kind, host in (("sglang", ""), ("plain", "example.org")):
        with pytest.raises(UsageError, match="cannot be sent"):
            thinking_fields("4096", kind, host, chat=True)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="plain text"):
        thinking_fields("low", "vllm", "", chat=False)
    for wrong in ("", "much", "0", "-5", "1e3"):
        with pytest.raises(UsageError, match="not a thinking setting"):
            checked_thinking(wrong)


# --- the rule that grows allowances, alone


def cells_of(samples: int, length: int = 8192) -> list[Cell]:
    return [Cell("niah", length, depth, n) for n in range(samples) for depth in (0.0, 1.0)]


def records_of(cells: list[Cell], allowed: int, cut: int = 0) -> dict[str, Record]:
    made = {}
    for number, cell in enumerate(cells):
        outcome = Completion("1", "length" if number < cut else "stop")
        labels = {EXTRA_ALLOWANCE: str(allowed)}
        question = Question("?", targets=("42",), labels=labels)
        made[cell.key] = msgspec.structs.replace(plain_record(0), cell=cell, outcome=outcome, question=question)
    return made


def always(length: int, extra: int) -> bool:
    return True


def test_first_the_pilot_then_everything_then_nothing() -> None:
    cells = cells_of(3)
    first = next_step(cells, {}, {8192: 1024}, always)
    assert first.ask == {c.key for c in cells if c.sample == 0}
    done = records_of(cells[:2], 1024)
    assert next_step(cells, done, {8192: 1024}, always).ask == {c.key for c in cells if c.sample}
    assert not next_step(cells, records_of(cells, 1024), {8192: 1024}, always).ask


def test_a_pilot_that_is_cut_off_doubles_the_allowance_and_is_asked_again_whole() -> None:
    cells = cells_of(3)
    cut = records_of(cells[:2], 1024, cut=1)
    step = next_step(cells, cut, {8192: 1024}, always)
    assert step.allowances == {8192: 2048}
    assert step.ask == {c.key for c in cells[:2]}
    assert "1 of 2 answers are cut off" in step.notes[0]
    interrupted = next_step(cells, cut, step.allowances, always)  # before anything was asked with it
    assert (interrupted.ask, interrupted.allowances) == (step.ask, step.allowances)


def test_later_only_what_is_cut_off_is_asked_again_and_less_than_one_in_a_hundred_is_left() -> None:
    cells = cells_of(100)
    step = next_step(cells, records_of(cells, 1024, cut=2), {8192: 1024}, always)
    assert step.ask == {c.key for c in cells[:2]}
    assert not next_step(cells, records_of(cells, 1024, cut=1), {8192: 1024}, always).ask


def test_an_allowance_grows_while_a_document_can_be_made_in_the_rest_of_the_length() -> None:
    cells = cells_of(1, 3000)

    def fits(length: int, extra: int) -> bool:
        return length - extra >= 700

    first = next_step(cells, records_of(cells, 1024, cut=2), {3000: 1024}, fits)
    assert first.allowances == {3000: 2048}
    second = next_step(cells, records_of(cells, 2048, cut=1), first.allowances, fits)
    assert second.allowances == {3000: 2048}  # 2,304 would leave 696
    assert not second.ask
    assert "1 of 2 answers are cut off with 2,048 tokens for thinking: no document fits the length" in second.notes[0]
    assert grown_allowance(3000, 1600, fits) == 2000
    assert grown_allowance(3000, 2300, fits) == 2300


def test_an_allowance_that_fits_fits_every_document_and_not_only_the_first() -> None:
    values = {"model": "sim:perfect?tokenizer=bytes", "tasks": ["niah"], "lengths": [2000], "depths": 2, "samples": 6}
    with prepare(make_spec(values)) as made:
        fits = partial(documents_fit, made.spec, made.tasks, made.fitter, 2000)
        extra = bisect.bisect_left(range(2000), True, key=lambda tokens: not fits(tokens)) - 1
        assert 0 < extra < 2000
        made.fitter.extra_allowance = {2000: extra}
        for planned in planned_documents(made.spec, made.tasks):
            planned.document(made.spec.seed, made.fitter)


def test_the_first_allowance_is_small() -> None:
    assert first_allowances("auto", [512, 8192]) == {512: 256, 8192: 1024}
    assert first_allowances("4096", [8192]) == {8192: 4096}
    assert first_allowances("", [8192]) == {}


def test_old_specs_keep_their_digest() -> None:
    values = {"model": "sim:perfect", "tasks": ["niah"], "lengths": [1024]}
    assert "allowance" not in make_spec(values).identity()
    assert make_spec({**values, "allowance": "4k"}).identity()["allowance"] == "4096"


# --- whole runs


@pytest.fixture
def server() -> Iterator[ThinkingServer]:
    with ThinkingServer() as running:
        yield running


def run(say: Say, server: ThinkingServer, tmp_path: Path, *words: str, command: str = "run") -> CommandResult:
    return say(
        command, "niah", "--set", "keys=1", "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes",
        "--lengths", "6500,8000", "--depths", "2", "--samples", "2", "--no-figure", "--no-checks",
        "--set", f"haystack={write_haystack(tmp_path)}", "--out", str(tmp_path / "run"), *words,
    )  # fmt: skip


def test_an_allowance_is_found_within_the_length_and_kept_for_a_resumed_run(
    say: Say, server: ThinkingServer, tmp_path: Path
) -> None:
    said = run(say, server, tmp_path, "--thinking", "high", "--json")
    assert said.code == 0, said.err
    assert json.loads((tmp_path / "run" / FILE).read_text()) == {"6500": 4096, "8000": 4096}
    assert "answers are cut off with 1,024 tokens for thinking" in said.err
    assert len(server.completions) > 8
    assert "8 of 8 samples" in said.err, "a sample that was asked again is counted once"
    records = list(read_records(tmp_path / "run"))
    assert len(records) == 8
    assert all(r.prompt_tokens + r.question.allowance == r.cell.length for r in records)
    assert all(r.sent.decoding["max_tokens"] == r.question.allowance for r in records)
    assert {r.sent.decoding["reasoning_effort"] for r in records} == {"high"}
    by_length = {one["length"]: one for one in json.loads(said.out)["thinking"]}
    assert [(one["cut_off"], one["allowance"]) for one in by_length.values()] == [(0.0, 4096), (0.0, 4096)]
    assert 2400 <= by_length[8000]["mean_thinking_tokens"] <= 3000
    asked = len(server.completions)
    again = run(say, server, tmp_path, "--thinking", "high")
    assert again.code == 0
    assert len(server.completions) == asked, "nothing is asked again"


@pytest.mark.parametrize("setting", ["high", "high,off"])
def test_answers_that_were_cut_off_are_asked_again_by_a_run_that_was_stopped_before_it_did(
    say: Say, server: ThinkingServer, tmp_path: Path, setting: str
) -> None:
    words = ("--thinking", setting, "--lengths", "8000")
    assert run(say, server, tmp_path, *words).code == 0
    folder = tmp_path / "run" / ("" if setting == "high" else "thinking-high")
    lines = (folder / RECORDS).read_bytes().splitlines(keepends=True)
    cut_off, later = lines[0], [line for line in lines[-4:] if decode(line).cell != decode(lines[0]).cell]
    (folder / RECORDS).write_bytes(b"".join([*later, cut_off]))
    manifest = read_manifest(folder)
    stopped = msgspec.structs.replace(manifest.sessions[-1], ended="")
    replace_file(folder / MANIFEST, encode_pretty(msgspec.structs.replace(manifest, sessions=(stopped,))))
    asked = len(server.completions)
    assert run(say, server, tmp_path, *words).code == 0
    assert len(server.completions) == asked + 1
    assert {r.question.labels[EXTRA_ALLOWANCE] for r in read_records(folder)} == {"4096"}


def test_a_length_that_has_no_room_for_the_thinking_is_said_and_nothing_is_asked_without_end(
    say: Say, server: ThinkingServer, tmp_path: Path
) -> None:
    said = run(say, server, tmp_path, "--thinking", "high", "--lengths", "2000")
    assert said.code == 1
    assert "the whole allowance was used for thinking in 4 of 4 answers" in said.err
    assert "no document fits the length with more; measure longer lengths, or with less thinking" in said.err
    assert len(server.completions) <= 10


@pytest.mark.slow
def test_a_sweep_over_thinking_gives_a_run_each_and_accuracy_against_thinking(
    say: Say, server: ThinkingServer, tmp_path: Path
) -> None:
    said = run(say, server, tmp_path, "--thinking", "off,low,1500", "--lengths", "4000,7000", "--figure")
    assert said.code == 0, said.err
    runs = {name: load_run(tmp_path / "run" / name) for name in ("thinking-off", "thinking-low", "thinking-1500")}
    tokens = {name: one.totals.thinking_tokens for name, one in runs.items()}
    assert "3 of 3 models, 24 of 24 samples" in said.err
    assert tokens["thinking-off"] == 0
    assert 0 < tokens["thinking-low"] < tokens["thinking-1500"]
    accuracy = {name: {n: use.accuracy for n, use in one.totals.thinking.items()} for name, one in runs.items()}
    assert accuracy["thinking-off"] == {4000: 0.0, 7000: 0.0}
    assert accuracy["thinking-1500"][4000] == 1.0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "Accuracy against thinking" in page
    assert "accuracy against thinking" in said.out


def test_thinking_that_a_server_does_not_count_is_counted_by_its_share_of_the_text(say: Say, tmp_path: Path) -> None:
    with ThinkingServer(counts_thinking=False) as server:
        assert run(say, server, tmp_path, "--thinking", "low", "--lengths", "8000").code == 0
    for record in read_records(tmp_path / "run"):
        assert isinstance(record.outcome, Completion)
        assert record.outcome.thinking_tokens == len(record.outcome.thinking)


def test_thinking_costs_money(say: Say, server: ThinkingServer, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text("date = 2026-11-01\n[models.fake]\ninput = 0.0\noutput = 1000000.0\n")
    words = ("--thinking", "1000", "--allowance", "1500", "--lengths", "4000", "--prices", str(prices))
    assert run(say, server, tmp_path, *words).code == 0
    found = load_run(tmp_path / "run")
    assert found.totals.thinking_tokens == 4000
    assert found.totals.completion_tokens > 4000
    assert found.money == pytest.approx(found.totals.completion_tokens)


def test_settings_that_exclude_each_other_are_refused(say: Say, server: ThinkingServer, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        said = run(say, server, tmp_path, *words)
        assert said.code == 64
        assert "fix:" in said.err
        return said.err

    model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
    assert "not a thinking setting" in refused("--thinking", "somewhat")
    assert "no setting is given" in refused("--thinking", ",")
    named = say("run", "niah", "--thinking", "low,high", "--model", f"{model}&thinking=on")
    assert (named.code, "says how it thinks" in named.err) == (64, True)
    limited = say("run", "niah", "--allowance", "auto", "--model", f"{model}&max_tokens=9")
    assert (limited.code, "exclude each other" in limited.err) == (64, True)
    assert "while a rule decides" in refused("--allowance", "auto", "--until", "effective")
    assert "is not a length" in refused("--allowance", "plenty")


@pytest.mark.parametrize("settings", ["off", "off,low"])
def test_a_model_without_a_setting_for_thinking_is_refused_before_anything_is_measured(
    say: Say, tmp_path: Path, settings: str
) -> None:
    said = say("run", "niah", "--model", "sim:perfect", "--thinking", settings, "--out", str(tmp_path / "out"))
    assert said.code == 64
    assert "models of sim have no setting for thinking" in said.err
    assert "fix:   leave it out" in said.err
    assert not (tmp_path / "out").exists()
