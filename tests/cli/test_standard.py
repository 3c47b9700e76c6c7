"""`leadline run --model MODEL` with nothing else."""

from __future__ import annotations

import json

import pytest

from leadline.core import registry
from leadline.tasks.standard import STANDARD
from support.commands import Say


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
