"""The perplexity trap: planted in a simulated model, found by a run, drawn on two axes and said in a sentence."""

from __future__ import annotations

from pathlib import Path

import altair as alt
import pytest

from leadline.cli.main import run_command
from leadline.core import registry
from leadline.core.spec import Suite
from leadline.features.logprobs.report import format_perplexity_and_retrieval, perplexity_and_retrieval
from leadline.results.run import Run, load_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trap") / "run"
    grid = ["--lengths", "1k,2k,4k", "--depths", "2", "--samples", "5"]
    assert run_command(["run", "trap", "--model", "sim:cliff?window=3k", "--out", str(folder), *grid]) == 0
    return folder


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return load_run(folder)


def test_the_suite_asks_for_both_sides_over_the_same_lengths() -> None:
    suite: Suite = registry.find("suites", "trap")
    assert [t if isinstance(t, str) else t["name"] for t in suite.values["tasks"]] == [
        "niah", "mean_nll", "retrieval_gain",
    ]  # fmt: skip


@pytest.mark.slow
def test_perplexity_is_calm_where_accuracy_and_gain_are_gone(run: Run) -> None:
    figure = perplexity_and_retrieval(run)
    left = {row["length"]: row["mean"] for row in figure.data["left"]}
    right = {(row["series"], row["length"]): row["mean"] for row in figure.data["right"]}
    assert 0.8 < left["4k"] / left["1k"] < 1.25
    assert right["retrieval accuracy", "1k"] == 1
    assert right["retrieval accuracy", "4k"] == 0
    assert right["retrieval gain", "1k"] == pytest.approx(1, abs=0.05)
    assert right["retrieval gain", "4k"] == pytest.approx(0, abs=0.01)


def test_the_figure_is_valid_and_has_two_axes(run: Run) -> None:
    spec = perplexity_and_retrieval(run).spec()
    alt.Chart.from_dict(spec, validate=True)
    both = spec["vconcat"][0]
    assert both["resolve"] == {"scale": {"y": "independent"}}
    assert len(both["layer"]) == 2


def test_a_sentence_says_what_perplexity_hides(run: Run) -> None:
    words = format_perplexity_and_retrieval(run)
    assert "falls from 100% to 0%" in words
    assert "From 1k to 4k, perplexity changes from" in words


def test_the_command_draws_the_trap_and_not_a_heatmap(folder: Path) -> None:
    assert (folder / "trap.png").is_file()
    assert not (folder / "heatmap.png").exists()


def test_a_run_of_metrics_alone_draws_its_metrics(tmp_path: Path) -> None:
    words = ["run", "mean_nll", "--model", "sim:perfect", "--lengths", "1k", "--samples", "2"]
    assert run_command([*words, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "log-probabilities.png").is_file()
    assert format_perplexity_and_retrieval(load_run(tmp_path / "run")) == ""
