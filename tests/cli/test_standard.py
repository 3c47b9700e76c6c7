"""`leadline run --model MODEL` with nothing else."""

from __future__ import annotations

import json
import re

import pytest

from leadline.core import registry
from leadline.tasks.standard import STANDARD
from support.commands import Say
from support.fake_server import FakeServer


@pytest.mark.slow
def test_a_model_is_enough_for_a_verdict(say: Say) -> None:
    done = say("run", "--model", "sim:cliff?window=2k", "--no-figure", "--json")
    assert done.code == 0, done.err
    values = json.loads(done.out)
    assert "runs/standard-sim-cliff-" in values["folder"]
    assert values["until"]["outcome"] == "decided"
    assert "2k reaches" in values["until"]["sentence"]
    assert "lengths up to the window of 2,048 tokens (planted), one beyond it (2.5k)" in done.err


def test_a_plan_of_the_standard_suite_names_lengths_reading_and_their_reasons(say: Say) -> None:
    planned = say("plan", "--model", "sim:cliff?window=2k&limit=2k", "--json")
    assert planned.code == 0, planned.err
    values = json.loads(planned.out)
    assert values["lengths"] == [512, 1024, 2048]
    assert values["reading"] == "fresh"
    assert values["window_origin"] == "planted"
    assert list(values["tasks"]) == ["niah_multikey_1", "niah_multivalue", "vt", "fwe", "qa_fiction_1", "worlds"]
    assert values["until"] == "effective"


def test_without_the_frontier_feature_the_standard_suite_has_its_other_tasks() -> None:
    known = [name for name in registry.names("tasks") if name != "worlds"]
    assert [str(task) for task in STANDARD.values_with(known)["tasks"]][-1] == "qa_fiction_1"


def test_lists_of_models_and_thinking_take_the_standard_suite_without_its_rule(say: Say, tmp_path: object) -> None:
    with open("models.toml", "w") as file:
        file.write('models = ["sim:perfect", "sim:cliff?window=1k"]')
    planned = say("plan", "--models", "models.toml", "--lengths", "1k", "--json")
    assert planned.code == 0, planned.err
    assert [model["until"] for model in json.loads(planned.out)["models"]] == ["", ""]


@pytest.mark.parametrize("key", ["", "wrong-key-123"])
def test_an_address_that_wants_a_key_is_answered_with_whether_it_is_set(
    key: str, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with FakeServer(api_key="right-key-123", sockets=True) as server:
        done = say("run", "--model", server.base_url)
    assert done.code == 64
    wanted = "refuses the key in $OPENAI_API_KEY (401)" if key else "wants a key and $OPENAI_API_KEY is not set (401)"
    assert wanted in done.err
    assert "wrong-key" not in done.err


def test_a_length_that_is_too_short_for_thinking_is_answered_with_one_that_is_not(say: Say) -> None:
    with FakeServer(kind="vllm", window=8192) as server:
        model = ("--model", f"openai:fake?base_url={server.base_url}&tokenizer=bytes", "--thinking", "on")
        refused = say("plan", "niah", *model, "--lengths", "500")
        assert refused.code == 65
        shortest = re.search(r"is about ([\d,]+); \d+ of them for thinking", refused.err)
        assert shortest is not None, refused.err
        planned = say("plan", "niah", *model, "--lengths", shortest[1].replace(",", ""))
    assert planned.code == 0, planned.err


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("reading", ["fresh", "nested"])
def test_chosen_lengths_that_a_task_cannot_hold_in_this_tokenizer_are_left_out(reading: str, say: Say) -> None:
    model = ("--model", "sim:cliff?window=8k&tokenizer=bytes", "--reading", reading)
    planned = say("plan", "standard", *model, "--json")
    assert planned.code == 0, planned.err
    assert min(json.loads(planned.out)["lengths"]) > 1024
    shown = f"{planned.out}{planned.err}"
    assert "1k is left out: too short for" in shown
    assert "will fail" not in shown
