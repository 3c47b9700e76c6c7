"""`leadline plan`: what it shows without a server, and with --detect how many samples a drop needs."""

from __future__ import annotations

import json

import pytest

from leadline.cli.detection import parse_points
from leadline.cli.main import run_command
from leadline.core.errors import UsageError
from support.commands import Say
from support.fake_server import FakeServer

NO_SERVER = "openai:some-model?base_url=http://127.0.0.1:9/v1"


def test_with_a_tokenizer_a_plan_needs_no_server(say: Say) -> None:
    words = ("niah", "--lengths", "4k", "--model")
    planned = say("plan", *words, f"{NO_SERVER}&tokenizer=bytes", "--price-in", "1")
    assert planned.code == 0, planned.err
    assert "money   0.06" in planned.out
    assert "planned without the server: its window and what it adds to prompts are not known" in planned.err
    assert "reports no token counts" not in planned.err
    unknown = say("plan", *words, NO_SERVER)
    assert unknown.code == 69
    assert "to plan without the server, give tokenizer=FOLDER" in unknown.err
    asked = say("run", *words, f"{NO_SERVER}&tokenizer=bytes")
    assert asked.code == 69
    assert "tokenizer=" not in asked.err


def test_memory_and_time_are_results_of_a_plan(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("memory 1.0 GiB of 24", "time about 3 s", "the time is for one replica")
    monkeypatch.setattr("leadline.run.plan.forecast", lambda *_: lines)
    words = ("plan", "niah", "--model", "sim:perfect", "--lengths", "1k")
    shown = say(*words)
    assert "memory  1.0 GiB of 24\ntime    about 3 s\n        the time is for one replica\n" in shown.out
    assert "GiB" not in shown.err
    assert "note:  simulated" in shown.err
    assert json.loads(say(*words, "--json").out)["notes"][-3:] == list(lines)


@pytest.mark.parametrize("option", ["--no-figure", "--keep-prompts", "--log-to=x:y", "--no-checks"])
def test_options_that_change_no_cost_are_refused_with_the_reason(say: Say, option: str) -> None:
    refused = say("plan", "niah", "--model", "sim:perfect", option)
    assert refused.code == 64
    assert "leave it out: this option of `leadline run` does not change what a run costs" in refused.err


def test_a_run_of_a_server_that_is_away_can_be_planned(say: Say) -> None:
    with FakeServer() as server:
        model = f"openai:fake?base_url={server.base_url}&tokenizer=bytes"
        words = ("niah", "--model", model, "--lengths", "1k", "--depths", "1", "--samples", "2")
        assert say("run", *words, "--no-figure").code in (0, 1)
    planned = say("plan", *words)
    assert planned.code == 0, planned.err
    assert "2 samples are already answered" in planned.out


@pytest.mark.parametrize(("text", "share"), [("5pt", 0.05), ("5", 0.05), ("0.05", 0.05), ("2.5 points", 0.025)])
def test_points_may_be_written_in_several_ways(text: str, share: float) -> None:
    assert parse_points(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["x", "0", "-5", "500"])
def test_a_wrong_drop_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_points(text)


def test_a_plan_shows_how_many_samples_detect_a_five_point_drop(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "niah", "--model", "sim:perfect", "--lengths", "512,1k", "--samples", "3", "--depths", "5"]
    assert run_command([*words, "--detect", "5pt", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["detection"]
    # By hand: a two-sided 0.05 over 6 tests, 80 % power, 15 of 100 answers changing (10 flip, 5 are lost), is 720.
    assert found["tests"] == 6
    assert found["prompts"] == pytest.approx(720, rel=0.12)
    assert found["samples_a_cell"] * 10 == found["prompts"]
    assert 0.75 <= found["power"] <= 0.88
    assert found["this_run"]["sees"] > 0.15
    assert "gate" not in found


def test_a_plan_says_what_a_gate_passes_as_well_as_what_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "niah", "--model", "sim:perfect", "--lengths", "512,1k", "--samples", "40", "--depths", "5"]
    assert run_command([*words, "--detect", "10pt", "--gate", "overall >= -5; length:* >= -9; effective >= -10%"]) == 0
    said = capsys.readouterr().out
    assert "equal models pass in " in said
    assert "a drop of 10 points fails in " in said
    assert "to pass equal models in 80 of 100 it takes " in said
    assert "not planned: effective >= -10%" in said
