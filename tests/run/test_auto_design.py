"""`auto`: lengths around what the model's configuration says, and the cheapest reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadline.core.contracts import ModelCard, PrefixCache, Task
from leadline.core.errors import UsageError
from leadline.core.spec import Spec, make_spec
from leadline.models.architecture import architecture_constants, read_constants
from leadline.run.auto_design import choose_lengths, choose_reading
from leadline.run.measure import measure, plan
from leadline.tasks.niah import Needle

K = 1024


@pytest.mark.parametrize(
    ("config", "constants"),
    [
        ({"sliding_window": 4096}, {"sliding window": 4096}),
        ({"sliding_window": 4096, "use_sliding_window": False}, {}),
        ({"sliding_window": 1024, "layer_types": ["full_attention"]}, {}),
        ({"sliding_window": 1024, "layer_types": ["full_attention", "sliding_attention"]}, {"sliding window": 1024}),
        (
            {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}},
            {"positions before the RoPE extension": 8192},
        ),
        (
            {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}},
            {"positions before the RoPE extension": 4096},
        ),
        (
            {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096},
            {"positions before the RoPE extension": 4096},
        ),
        ({"max_position_embeddings": 4096, "original_max_position_embeddings": 4096}, {}),
        ({"index_topk": 2048}, {"sparse index (index_topk)": 2048}),
        ({"attention_chunk_size": 8192}, {"attention chunk": 8192}),
        ({"text_config": {"sliding_window": 512}}, {"sliding window": 512}),
        (
            {"rope_parameters": {"full_attention": {"original_max_position_embeddings": 32768, "rope_type": "yarn"}}},
            {"positions before the RoPE extension": 32768},
        ),
        ({"sliding_window": None, "index_topk": "many", "rope_scaling": None}, {}),
    ],
)
def test_constants_are_those_that_a_configuration_states_and_uses(
    config: dict[str, Any], constants: dict[str, int]
) -> None:
    assert architecture_constants(config) == constants


def test_a_folder_without_a_readable_configuration_has_no_constants(tmp_path: Path) -> None:
    assert read_constants(tmp_path) == {}
    (tmp_path / "config.json").write_text("{")
    assert read_constants(tmp_path) == {}
    (tmp_path / "config.json").write_text(json.dumps({"sliding_window": 4096}))
    assert read_constants(tmp_path) == {"sliding window": 4096}


def card(window: int | None, *, hard: bool = True, **constants: int) -> ModelCard:
    named = {name.replace("_", " "): size for name, size in constants.items()}
    return ModelCard(name="m", window=window, window_is_hard=hard, window_origin="config.json", constants=named)


def test_lengths_are_powers_of_two_up_to_the_window() -> None:
    assert choose_lengths(card(8 * K)).lengths == (1 * K, 2 * K, 4 * K, 8 * K)


def test_a_window_that_is_no_power_of_two_is_a_length_of_its_own() -> None:
    assert choose_lengths(card(40_960)).lengths == (1 * K, 2 * K, 4 * K, 8 * K, 16 * K, 32 * K, 40_960)


def test_a_small_window_gets_shorter_lengths() -> None:
    assert choose_lengths(card(2048)).lengths == (512, 1 * K, 2 * K)
    assert choose_lengths(card(600)).lengths == (128, 256, 512, 600)


def test_a_model_that_takes_more_than_its_window_is_asked_one_length_beyond_it() -> None:
    assert choose_lengths(card(4 * K, hard=False)).lengths == (1 * K, 2 * K, 4 * K, 5 * K)
    assert max(choose_lengths(card(4 * K)).lengths) == 4 * K


def test_both_sides_of_a_constant_are_lengths() -> None:
    chosen = choose_lengths(card(16 * K, sliding_window=4 * K))
    assert chosen.lengths == (1 * K, 2 * K, 3584, 4 * K, 5 * K, 8 * K, 16 * K)
    assert "both sides of the sliding window of 4,096 (3.5k and 5k)" in chosen.note
    assert "window of 16,384 tokens (config.json)" in chosen.note


def test_no_constant_gives_a_length_that_the_model_refuses() -> None:
    chosen = choose_lengths(card(16 * K, sliding_window=15_000, chunk=64 * K, page=16))
    assert max(chosen.lengths) == 16 * K
    assert chosen.lengths[-2] == 13_120, "the side below 15,000"
    assert "chunk" not in chosen.note
    assert "page" not in chosen.note


def test_a_constant_that_is_the_window_adds_nothing() -> None:
    assert choose_lengths(card(8 * K, training_length=8 * K)).lengths == choose_lengths(card(8 * K)).lengths


def test_without_a_stated_window_lengths_end_at_8k_and_it_is_said() -> None:
    chosen = choose_lengths(card(None))
    assert chosen.lengths == (1 * K, 2 * K, 4 * K, 8 * K)
    assert "states no window" in chosen.note


class Fake:
    """Of a model, what the choice of a reading looks at."""

    def __init__(self, asked_per: str, nested_problem: str = "") -> None:
        self.asked_per = asked_per
        self.card = ModelCard(name="m", nested_problem=nested_problem)


class FakeServer(Fake):
    def __init__(self, *, off: bool) -> None:
        super().__init__("probe")
        self.prefix_cache = PrefixCache(off=off)


class FreshOnly(Needle):
    readings = ("fresh",)


@pytest.mark.parametrize(
    ("model", "task", "reading"),
    [
        (Fake("document"), Needle(), "nested"),
        (Fake("document", "its positions change with the length"), Needle(), "shared"),
        (Fake("document"), FreshOnly(), "fresh"),
        (FakeServer(off=False), Needle(), "shared"),
        (FakeServer(off=True), Needle(), "fresh"),
        (Fake("probe"), Needle(), "fresh"),
    ],
)
def test_the_reading_is_the_cheapest_that_model_and_task_allow(model: Any, task: Task, reading: str) -> None:
    assert choose_reading(model, [task]) == reading


def test_a_run_says_which_lengths_were_chosen_and_why(tmp_path: Path) -> None:
    spec = Spec(model="sim:cliff?window=2k", tasks=["niah"], depths=2, samples=1, reading="auto")
    run = measure(spec, tmp_path / "run")
    assert run.manifest.spec["lengths"] == [512, 1024, 2048, 2560]
    assert run.manifest.spec["reading"] == "fresh"
    assert any("one beyond it (2.5k)" in note for note in run.manifest.model["notes"])
    assert plan(spec).spec.lengths == (512, 1024, 2048, 2560)


def test_an_empty_list_of_lengths_is_an_error_and_auto_is_not() -> None:
    values = {"model": "sim:perfect", "tasks": ["niah"]}
    assert make_spec({**values, "lengths": "auto"}) == make_spec(values)
    with pytest.raises(UsageError, match="there are no lengths"):
        make_spec({**values, "lengths": []})
