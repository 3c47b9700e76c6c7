"""Prompts that a server did not read as sent, and answers without a text: first in every verdict, refused by gates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import leadline
from leadline.core.answers import Completion
from leadline.core.errors import NotMeasured, TruncatedPrompts
from leadline.core.records import Receipt, Record
from leadline.features.dashboard.live import headline_of
from leadline.report.comparison import differences_from_first
from leadline.results.run import load_run
from leadline.results.verdict import verdict
from leadline.run.recording import receipt_for
from leadline.store.runs import RECORDS, read_records
from support.commands import CommandResult, Say
from support.fake_server import FakeServer, Faults
from support.leadline_process import write_haystack

GATE = ("--gate", "overall >= -50")


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(kind="vllm") as running:
        yield running


def run(say: Say, server: FakeServer, folder: Path, faults: Faults) -> CommandResult:
    """`leadline run` of 2 x 3 x 2 samples with answers that are right whatever was read."""
    server.faults = faults
    return say(
        "run", "niah", "--set", "keys=1",
        "--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes", "--lengths", "600,3000",
        "--depths", "3", "--samples", "2", "--set", f"haystack={write_haystack(folder.parent)}", "--no-figure",
        "--out", str(folder),
    )  # fmt: skip


def records(folder: Path) -> list[Record]:
    return list(read_records(folder))


def test_answers_to_cut_prompts_are_in_no_mean_and_the_run_does_not_end_with_0(
    say: Say, server: FakeServer, tmp_path: Path
) -> None:
    said = run(say, server, tmp_path / "cut", Faults(truncate_to=1000))
    assert said.code == 1
    assert "6 of 12 samples have no valid answer (6 input_truncated: the server read" in said.err
    first = next(line for line in said.out.splitlines() if "niah" not in line and "not read as sent" in line)
    assert first.strip().startswith("6 of 12 prompts were not read as sent")
    found = load_run(tmp_path / "cut")
    assert (found.totals.done, found.totals.failed, found.totals.truncated) == (6, 6, 6)
    assert found.totals.classes == {"correct": 6, "input_truncated": 6}
    assert found.table.by_length[3000].mean is None
    assert found.table.whole.mean == 1.0
    assert verdict(found).headline.startswith("6 of 12 prompts were not read as sent")
    assert all(r.score is None and not r.scores for r in records(tmp_path / "cut") if r.truncated)


def test_cut_prompts_are_asked_again_when_the_server_reads_them_whole(
    say: Say, server: FakeServer, tmp_path: Path
) -> None:
    run(say, server, tmp_path / "cut", Faults(truncate_to=1000))
    said = run(say, server, tmp_path / "cut", Faults())
    assert said.code == 0
    assert len((tmp_path / "cut" / RECORDS).read_text().splitlines()) == 18
    assert load_run(tmp_path / "cut").totals.failed == 0


def test_a_gate_refuses_runs_with_cut_prompts_on_either_side(say: Say, server: FakeServer, tmp_path: Path) -> None:
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    run(say, server, cut, Faults(truncate_to=1000))
    run(say, server, whole, Faults())
    assert say("compare", str(whole), str(whole), *GATE).code != 65
    for pair in ((whole, cut), (cut, whole), (cut, cut)):
        said = say("compare", *map(str, pair), *GATE)
        assert (said.code, "6 prompts of a run were not read as sent" in said.err) == (65, True)
        with pytest.raises(TruncatedPrompts):
            leadline.load_run(pair[1]).compare(leadline.load_run(pair[0]), GATE[1])
    said = say("compare", str(whole), str(cut), "--json")
    assert json.loads(said.out)["candidate"]["truncated"] == 6
    assert "6 prompts not read as sent" in say("compare", str(whole), str(cut), "--markdown").out


def test_dashboard_and_compare_page_say_that_prompts_were_cut(say: Say, server: FakeServer, tmp_path: Path) -> None:
    run(say, server, tmp_path / "cut", Faults(truncate_to=1000))
    run(say, server, tmp_path / "whole", Faults())
    cut, whole = load_run(tmp_path / "cut"), load_run(tmp_path / "whole")
    assert (headline_of(cut).truncated, headline_of(whole).truncated) == (6, 0)
    difference = differences_from_first([whole, cut], ["whole", "cut"])[0]
    assert any(line.startswith("cut: 6 of 12 prompts were not read as sent") for line in difference.warnings)


def test_cached_tokens_that_a_server_leaves_out_and_tokens_that_it_adds_are_no_truncation(
    say: Say, server: FakeServer, tmp_path: Path
) -> None:
    said = run(say, server, tmp_path / "cached", Faults(cached_left_out=450))
    assert said.code == 0
    cached = load_run(tmp_path / "cached").totals
    assert (cached.failed, cached.receipts.equal, cached.receipts.cached_left_out) == (0, 12, 12)
    said = run(say, server, tmp_path / "more", Faults(adds_tokens=300))
    assert said.code == 0
    more = load_run(tmp_path / "more").totals
    assert (more.failed, more.receipts.more, more.receipts.truncated) == (0, 12, 0)
    assert "12 prompts longer than sent" in said.err


@pytest.mark.parametrize(
    ("reported", "cached", "short"),
    [(1000, 0, False), (1000, 900, False), (100, 900, False), (100, 0, True), (500, 200, True), (400, 400, True)],
)
def test_a_short_count_is_explained_by_cached_tokens_only_if_they_make_it_whole(
    reported: int, cached: int, short: bool
) -> None:
    outcome = Completion("x", prompt_tokens=reported, cached_tokens=cached)
    receipt = receipt_for(1000, outcome)
    assert receipt.short is short
    assert receipt.theirs == reported
    assert receipt.ok is (not short)
    assert Receipt(1000, None).read is None


@pytest.mark.parametrize("gate", [(), GATE])
def test_a_run_of_empty_answers_does_not_end_with_0_and_gates_refuse_it(
    say: Say, tmp_path: Path, gate: tuple[str, ...]
) -> None:
    def measured(model: str) -> CommandResult:
        return say(
            "run", "niah", "--model", model, "--lengths", "600,1200", "--depths", "2", "--samples", "2", "--no-figure",
            "--set", f"haystack={write_haystack(tmp_path)}", "--out", str(tmp_path / model.partition(":")[2]),
        )  # fmt: skip

    said = measured("sim:empty")
    assert said.code == 1
    assert "the model was not measured: the text is empty in 8 of 8 answers" in said.err
    assert "the server" not in said.err
    assert "--keep-prompts" in said.err
    assert measured("sim:perfect").code == 0
    for pair in (("perfect", "empty"), ("empty", "perfect")):
        found = say("compare", *(str(tmp_path / name) for name in pair), *gate)
        assert (found.code, "the text is empty" in found.err) == (65 if gate else 0, True)
        runs = [leadline.load_run(tmp_path / name) for name in pair]
        assert any("the text is empty" in w for w in differences_from_first(runs, pair)[0].warnings)
        if gate:
            with pytest.raises(NotMeasured, match="text is empty"):
                runs[1].compare(runs[0], gate[1])
