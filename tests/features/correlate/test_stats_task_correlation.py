"""Correlation between tasks: scipy's values, planted clusters, intervals over models, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from leadline.core.errors import UsageError
from leadline.features.correlate.correlation import (
    over_lengths,
    spearman_matrix,
    task_correlation,
    task_scores,
)
from leadline.results.score_files import Point, read_task_table

FAMILIES = {"a1": 0, "b1": 1, "a2": 0, "c1": 2, "b2": 1, "a3": 0, "c2": 2}


def planted(models: int = 16, lengths: int = 3, noise: float = 0.25, seed: int = 0) -> dict[Point, dict[str, float]]:
    """Scores made of one skill for each family of tasks: tasks of a family agree, families do not."""
    draw = np.random.default_rng(seed)
    scores: dict[Point, dict[str, float]] = {}
    for model in range(models):
        skills = draw.normal(size=3)
        for length in range(lengths):
            now = skills + 0.2 * draw.normal(size=3)
            scores[f"m{model}", length] = {t: float(now[f] + noise * draw.normal()) for t, f in FAMILIES.items()}
    return scores


def test_the_matrix_is_scipys_with_ties_too() -> None:
    values = np.random.default_rng(1).normal(size=(20, 5))
    for table in (values, np.round(values)):
        assert spearman_matrix(table[None])[0] == pytest.approx(spearmanr(table).statistic)


@pytest.mark.parametrize("seed", range(5))
def test_planted_families_are_found_as_clusters_side_by_side(seed: int) -> None:
    found = task_correlation(task_scores(planted(seed=seed)), resamples=50)
    assert {frozenset(c) for c in found.clusters} == {
        frozenset({"a1", "a2", "a3"}),
        frozenset({"b1", "b2"}),
        frozenset({"c1", "c2"}),
    }
    assert [t for cluster in found.clusters for t in cluster] == list(found.tasks)
    assert sorted(found.merges[-1].tasks) == list(range(len(FAMILIES)))
    assert all(one.distance <= two.distance for one, two in zip(found.merges, found.merges[1:], strict=False))


@pytest.mark.slow
def test_intervals_hold_the_truth_and_count_models_not_lengths() -> None:
    covered = 0
    for seed in range(40):
        found = task_correlation(task_scores(planted(12, 4, seed=seed)), resamples=200, seed=seed)
        i, j = found.tasks.index("a1"), found.tasks.index("b1")  # of two families: the truth is 0
        covered += bool(found.low[i, j] <= 0 <= found.high[i, j])
        assert found.high[i, j] - found.low[i, j] > 0.4  # twelve models say little, however many lengths they have
    assert covered >= 34


def test_a_model_without_a_task_at_a_length_is_left_out_there() -> None:
    scores = planted(6)
    del scores["m2", 1]["b1"]
    table = task_scores(scores)
    assert table.left_out == (("m2", 1),)
    assert len(table.points) == 17
    found = task_correlation(table, resamples=30)  # models now have different numbers of lengths
    assert np.isfinite(found.low).all()
    assert task_correlation(over_lengths(table), resamples=30).points == 6


def test_a_task_that_never_varies_correlates_with_nothing_and_is_a_cluster_of_its_own() -> None:
    scores = planted()
    for row in scores.values():
        row["easy"] = 100.0
    found = task_correlation(task_scores(scores), resamples=30)
    at = found.tasks.index("easy")
    assert np.isnan(found.matrix[at]).all()
    assert np.isnan(found.low[at]).all()
    assert ("easy",) in found.clusters
    assert len(found.clusters) == 4


def test_too_few_models_or_tasks_are_refused_with_what_is_missing() -> None:
    with pytest.raises(UsageError, match="3 models with a score for every task") as caught:
        task_correlation(task_scores(planted(3)))
    assert "4 models or more" in caught.value.fix
    with pytest.raises(UsageError, match="2 tasks or more"):
        task_correlation(task_scores({point: {"a1": row["a1"]} for point, row in planted().items()}))


# --- tables ---


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


def test_a_table_has_a_column_for_each_task_or_a_row(tmp_path: Path) -> None:
    wide = read_task_table(table(tmp_path, "model,length,vt,cwe,avg\na,4k,90,80,85\na,8k,70,-,70\nb,4k,60,50,55\n"))
    assert wide == {("a", 4096): {"vt": 90, "cwe": 80}, ("a", 8192): {"vt": 70}, ("b", 4096): {"vt": 60, "cwe": 50}}
    long = read_task_table(table(tmp_path, "model;task;4k;8k\na;vt;90;70\na;cwe;80;-\nb;vt;60;\nb;cwe;50;\n"))
    assert long == wide
    alone = read_task_table(table(tmp_path, "name,vt,cwe\na,90,80\nb,60,50\n"))
    assert alone == {("a", None): {"vt": 90, "cwe": 80}, ("b", None): {"vt": 60, "cwe": 50}}


def test_the_column_of_models_is_found_wherever_it_is_and_however_it_is_written(tmp_path: Path) -> None:
    found = read_task_table(table(tmp_path, "Task,Model,4k\nvt,a,90\ncwe,a,80\nvt,b,60\n"))
    assert found == {("a", 4096): {"vt": 90, "cwe": 80}, ("b", 4096): {"vt": 60}}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("model,4k,8k\na,90,80\n", "none that says which task"),
        ("model,task,score\na,vt,80\n", "no column of the table is a length"),
        ("model,vt\na,good\n", "'good' is not a score"),
        ("model,vt,cwe\na,90,80\na,70,60\n", "a is in the table twice"),
        ("model,length,vt\na,long,80\n", "'long' is not a length"),
    ],
)
def test_a_table_that_cannot_be_read_says_why(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_task_table(table(tmp_path, text))
    assert what in caught.value.what
    assert "table.csv" in caught.value.where
    assert caught.value.fix
