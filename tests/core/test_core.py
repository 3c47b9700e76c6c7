"""Spec, registry, seeds, digests and errors."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.core import registry
from leadline.core.contracts import Task
from leadline.core.errors import LeadlineError, UnknownName, UsageError
from leadline.core.files import cache_folder
from leadline.core.lengths import parse_depths, parse_length, parse_lengths
from leadline.core.registry import ModelName
from leadline.core.seeds import bulk_rng, digest, rng, seed_of
from leadline.core.spec import Spec, TaskSpec, load_spec, make_spec

# --- lengths and depths ---


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("4k", 4096), ("128k", 131072), ("1m", 1048576), ("4096", 4096), (512, 512), ("1.5k", 1536), (" 2K ", 2048)],
)
def test_lengths_may_be_written_with_k_and_m(text: str | int, tokens: int) -> None:
    assert parse_length(text) == tokens


@pytest.mark.parametrize("text", ["4q", "", "-1", "0", "1.0001k", True, "k", "9" * 400, 10**30])
def test_a_wrong_length_is_refused_with_an_example(text: str | bool) -> None:
    with pytest.raises(UsageError) as caught:
        parse_length(text)
    assert "4k" in caught.value.fix


def test_lengths_are_sorted_and_each_counts_once() -> None:
    assert parse_lengths("4k,1k,4096") == (1024, 4096)
    assert parse_lengths(["2k", 512]) == (512, 2048)


def test_a_depth_grid_is_even_a_list_or_dense_at_both_ends() -> None:
    assert parse_depths(5) == parse_depths("5") == parse_depths("linear:5") == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert parse_depths(1) == (0.5,)
    assert parse_depths("0,0.3") == (0.0, 0.3)
    sigmoid = parse_depths("sigmoid:11")
    steps = [b - a for a, b in itertools.pairwise(sigmoid)]
    assert (sigmoid[0], sigmoid[5], sigmoid[-1]) == (0.0, 0.5, 1.0)
    # Logistic with slope 0.1 per percent through an even grid, end points kept (needle-in-a-haystack's sigmoid).
    assert sigmoid[1] == pytest.approx(0.017986, abs=1e-6)
    assert min(steps[1:-1]) == min(steps[1], steps[-2])


@pytest.mark.parametrize(
    "grid", ["0,1.5", "-0.1", "x", "0", [2.0], "sigmoid:x", 2**63, "9" * 5000, f"sigmoid:{2**63}", "nan"]
)
def test_a_wrong_depth_grid_is_refused_at_once(grid: object) -> None:
    with pytest.raises(UsageError):
        parse_depths(grid)


# --- spec ---

MINIMAL = {"model": "sim:perfect", "tasks": ["niah"], "lengths": "1k"}


def test_a_file_and_flags_give_the_same_spec(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(
        'model = "sim:perfect"\nlengths = ["1k", "2k"]\ndepths = 3\nsamples = 2\n'
        '[[tasks]]\nname = "niah"\nkeys = 4\n[limits]\nworkers = 3\n'
    )
    from_file = make_spec(load_spec(file))
    from_flags = make_spec(
        {
            "model": "sim:perfect", "lengths": "1k,2k", "depths": "3", "samples": 2,
            "tasks": [{"name": "niah", "options": {"keys": 4}}], "limits": {"workers": 99},
        }
    )  # fmt: skip
    assert from_file.identity() == from_flags.identity()
    assert from_file.digest == from_flags.digest  # limits are not part of it


def test_everything_but_limits_changes_the_digest() -> None:
    spec = make_spec(MINIMAL)
    changes: list[dict[str, object]] = [
        {"model": "sim:cliff"}, {"lengths": "2k"}, {"depths": 3}, {"samples": 4}, {"reading": "nested"}, {"seed": 1},
        {"tasks": [{"name": "niah", "keys": 2}]},
    ]  # fmt: skip
    assert len({spec.digest, *(make_spec({**MINIMAL, **c}).digest for c in changes)}) == len(changes) + 1


def test_an_unknown_key_asks_what_was_meant() -> None:
    with pytest.raises(UnknownName) as caught:
        make_spec({**MINIMAL, "sample": 3})
    assert "'samples'" in caught.value.fix
    with pytest.raises(UnknownName) as caught:
        make_spec({**MINIMAL, "limits": {"worker": 3}})
    assert "'workers'" in caught.value.fix
    assert "limits" in caught.value.where


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 0},
        {"samples": "many"},
        {"reading": "twice"},
        {"tasks": []},
        {"tasks": ["niah", "niah"]},
        {"lengths": []},
        {"depths": []},
        {"depths": "sigmoid:1001"},  # keys of samples have four decimals
        {"depths": "0.10001,0.10002"},
    ],
)
def test_a_wrong_value_is_one_clear_error(change: dict[str, object]) -> None:
    with pytest.raises(UsageError) as caught:
        make_spec({**MINIMAL, **change})
    assert "Traceback" not in str(caught.value)
    assert "validation error" not in str(caught.value)


def test_a_wrong_choice_asks_what_was_meant() -> None:
    with pytest.raises(UnknownName, match="unknown reading 'freshh'") as caught:
        make_spec({**MINIMAL, "reading": "freshh"})
    assert caught.value.fix == "did you mean 'fresh'?"


def test_a_missing_value_is_named() -> None:
    with pytest.raises(UsageError, match="'model' is missing"):
        make_spec({"tasks": ["niah"], "lengths": "1k"})


def test_a_file_that_is_not_toml_says_where(tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text("model = ")
    with pytest.raises(UsageError) as caught:
        load_spec(file)
    assert caught.value.where == str(file)


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        make_spec(MINIMAL).samples = 9  # type: ignore[misc]
    assert isinstance(make_spec(MINIMAL), Spec)


# --- names ---


def test_a_model_name_is_split_into_provider_name_and_options() -> None:
    name = ModelName.parse("openai:org/model-7b?base_url=http://127.0.0.1:8000/v1&api=chat")
    assert (name.provider, name.name) == ("openai", "org/model-7b")
    assert name.options == {"base_url": "http://127.0.0.1:8000/v1", "api": "chat"}
    with pytest.raises(UsageError, match="has no provider"):
        ModelName.parse("gpt-4")


def test_unknown_names_of_every_kind_ask_what_was_meant() -> None:
    with pytest.raises(UnknownName, match="unknown task 'niahh'"):
        registry.task(TaskSpec(name="niahh"))
    with pytest.raises(UnknownName) as caught:
        registry.task(TaskSpec(name="niah", options={"key": 2}))
    assert "'keys'" in caught.value.fix
    with pytest.raises(UnknownName):
        registry.provider(ModelName.parse("smi:perfect"))
    with pytest.raises(UnknownName):
        registry.scorer("match.al")


def test_a_task_in_a_file_needs_no_installing(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from leadline.core.contracts import Task\n\nclass Mine(Task):\n    '''A task of mine.'''\n    size: int = 3\n"
    )
    task = registry.task(TaskSpec(name=f"{file}:Mine", options={"size": 5}))
    assert isinstance(task, Task)
    assert task.model_dump()["size"] == 5
    with pytest.raises(UnknownName, match="unknown name 'Mime'"):
        registry.task(TaskSpec(name=f"{file}:Mime"))
    with pytest.raises(UsageError, match="no such file"):
        registry.task(TaskSpec(name=f"{tmp_path}/other.py:Mine"))


@pytest.mark.parametrize("kind", ["tasks", "models", "scorers", "sources", "suites"])
def test_every_registered_plugin_loads(kind: registry.PluginKind) -> None:
    for name in registry.names(kind):
        assert registry.find(kind, name) is not None


# --- randomness ---


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(st.integers(), st.floats(0, 1), st.text()), min_size=1, max_size=5))
def test_the_same_coordinates_draw_the_same_numbers(coordinates: list[int | float | str]) -> None:
    assert rng(*coordinates).random() == rng(*coordinates).random()
    assert bulk_rng(*coordinates).integers(1 << 40) == bulk_rng(*coordinates).integers(1 << 40)


def test_different_coordinates_draw_different_numbers() -> None:
    places = [(0, "niah", 4096, d / 10, s) for d in range(11) for s in range(20)]
    assert len({seed_of(*p) for p in places}) == len(places)
    assert seed_of("1") != seed_of(1) != seed_of(1.0)
    assert seed_of(0.1 + 0.2) == seed_of(0.3)


def test_seeds_are_the_same_in_every_process_and_release() -> None:
    # A changed value here changes every published sample: raise the version of every task if it must change.
    assert seed_of(0, "niah", 4096, 0.5, 0) == 0x97169288B1C82AD1FA2F674F9AA36BB1
    code = "from leadline.core.seeds import seed_of; print(seed_of(0, 'niah', 4096, 0.5, 0))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(other.stdout) == seed_of(0, "niah", 4096, 0.5, 0)


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2, "ü"]}) == digest({"b": [2, "ü"], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


# --- errors ---


def test_exit_codes_leave_0_1_and_2_to_verdicts() -> None:
    def all_classes(cls: type[LeadlineError]) -> list[type[LeadlineError]]:
        return [cls, *(c for s in cls.__subclasses__() for c in all_classes(s))]

    codes = {c.__name__: c.exit_code for c in all_classes(LeadlineError)}
    assert codes.pop("FailedSamples") == 1
    assert min(codes.values()) >= 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"samples": "many"}, "samples: expected a whole number, got 'many'"),
        ({"tasks": 5}, "tasks: expected a list, got 5"),
        ({"samples": 0}, "samples: must be at least 1, got 0"),
        ({"samples": 10**30}, "samples: must be at most 1,000,000"),
        ({"limits": {"timeout": float("inf")}}, "timeout: must be at most 1,000,000, got inf"),
        ({"limits": {"timeout": "long"}}, "timeout: expected a number, got 'long'"),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(change: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make_spec({**MINIMAL, **change})


def test_a_plugin_file_that_was_just_changed_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same size and time, as an editor and a checkout within one second leave it."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = tmp_path / "mine.py"
    for number in (1, 2):
        file.write_text(f"VALUE = {number}\n")
        os.utime(file, (1_700_000_000, 1_700_000_000))
        assert registry.find("scorers", f"{file}:VALUE") == number


def test_a_chosen_cache_folder_needs_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user has none."""

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setenv("LEADLINE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
