"""Submissions and correlations: models scored one by one, failures kept, shards merged, agreement with targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt
import pytest

from leadline.cli.main import run_command
from leadline.core.errors import SourceError, UsageError
from leadline.core.spec import read_models
from leadline.features.correlate.charts import scatter
from leadline.features.correlate.correlation import correlations
from leadline.run.many_models import submission_entry
from leadline.store.submissions import (
    MetricScore,
    Submission,
    SubmissionEntry,
    merged,
    read_submission,
    scores_of,
    write_submission,
)

WINDOWS = (300, 600, 900, 1200, 1500, 1800)
GRID = ["--lengths", "2k", "--depths", "13", "--samples", "3", "--set", "least=64"]


def models_file(folder: Path, extra: list[Any] | None = None) -> Path:
    """Models that see further and further back, so that their rank is known."""
    models: list[Any] = [{"name": f"w{w}", "model": f"sim:recency?window={w}"} for w in WINDOWS]
    path = folder / "models.json"
    path.write_text(json.dumps({"models": [*models, *(extra or [])]}))
    return path


def submission_to(folder: Path, models: Path) -> list[str]:
    places = ["--out", str(folder), "--submission", str(folder / "submission.json")]
    return ["--models", str(models), *places, "--no-figure"]


@pytest.fixture(scope="module")
def submitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("submitted")
    file = models_file(folder, [{"name": "broken", "model": "sim:nobody"}])
    assert run_command(["run", "retrieval_gain", *GRID, *submission_to(folder / "out", file)]) == 1  # one model failed
    return folder


def test_every_model_has_an_entry_and_failures_say_why(submitted: Path) -> None:
    made = read_submission(submitted / "out" / "submission.json")
    assert [entry.name for entry in made.entries] == [*(f"w{w}" for w in WINDOWS), "broken"]
    assert (made.metric, made.better) == ("retrieval_gain", "higher")
    *scored, broken = made.entries
    assert broken.score is None
    assert "nobody" in broken.error
    values = [entry.score for entry in scored]
    assert values == sorted(values, key=lambda v: v or 0)
    assert all(entry.scores["retrieval_gain"].documents == 3 for entry in scored)
    assert all((submitted / "out" / entry.run / "records.jsonl").is_file() for entry in scored)
    assert made.spec["samples"] == 3
    assert "model" not in made.spec


def test_submitting_again_measures_nothing_that_is_there(submitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = read_submission(submitted / "out" / "submission.json")
    words = ["run", "retrieval_gain", *GRID, *submission_to(submitted / "out", submitted / "models.json")]
    assert run_command([*words, "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.err.count("measured already") == len(WINDOWS)
    after = read_submission(Path(json.loads(printed.out)["submission"]))
    assert [e.score for e in after.entries] == [e.score for e in before.entries]


@pytest.mark.slow
def test_shards_make_the_same_submission_as_one_run(submitted: Path, tmp_path: Path) -> None:
    file = models_file(tmp_path)
    for shard in ("1/2", "2/2"):
        words = ["run", "retrieval_gain", *GRID, *submission_to(tmp_path / "out", file)]
        assert run_command([*words, "--shard", shard]) == 0
    whole = {e.name: e.score for e in read_submission(submitted / "out" / "submission.json").entries if e.score}
    shards = {e.name: e.score for e in read_submission(tmp_path / "out" / "submission.json").entries}
    assert shards == whole


def test_a_proxy_that_ranks_as_the_target_does_has_a_correlation_of_one(
    submitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (submitted / "targets.json").write_text(json.dumps({f"w{w}": w / 10 for w in WINDOWS} | {"unmeasured": 1.0}))
    words = ["correlate", str(submitted / "out" / "submission.json"), str(submitted / "targets.json"), "--json"]
    assert run_command([*words, "--resamples", "200"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["correlations"]["spearman"]["value"] == pytest.approx(1)
    assert found["correlations"].keys() == {"spearman", "pearson", "kendall", "skipped spearman"}
    assert (found["resamples"], found["seed"]) == (200, 0)
    assert [m["name"] for m in found["models"]] == [f"w{w}" for w in WINDOWS]
    assert "broken has no retrieval_gain" in printed.err
    assert "unmeasured is left out" in printed.err
    assert all(Path(path).is_file() for path in found["figures"])


def test_scores_that_are_all_the_same_rank_nothing(submitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (submitted / "flat.json").write_text(json.dumps({f"w{w}": 0.5 for w in WINDOWS}))
    assert run_command(["correlate", str(submitted / "out" / "submission.json"), str(submitted / "flat.json")]) == 64
    assert "have the same target" in capsys.readouterr().err


@pytest.mark.slow
def test_answers_are_submitted_as_accuracy_and_may_be_targets(submitted: Path, tmp_path: Path) -> None:
    file = models_file(tmp_path)
    grid = ["--lengths", "2k", "--depths", "5", "--samples", "2"]
    assert run_command(["run", "niah", *grid, *submission_to(tmp_path / "accuracy", file)]) == 0
    targets = tmp_path / "accuracy" / "submission.json"
    assert read_submission(targets).metric == "accuracy"
    words = ["correlate", str(submitted / "out" / "submission.json"), str(targets), "--resamples", "200"]
    assert run_command([*words, "--figure", str(tmp_path / "picture")]) == 0
    assert (tmp_path / "picture.png").is_file()


def entry(name: str, value: float | None, better: Any = "higher") -> SubmissionEntry:
    scores = {} if value is None else {"loss": MetricScore(value, better=better)}
    return SubmissionEntry(name=name, model=name, score=value, scores=scores, error="" if value is not None else "lost")


def submission(*entries: SubmissionEntry, samples: int = 1) -> Submission:
    return Submission(
        metric="loss", better="lower", spec={"samples": samples}, created="", leadline="0", entries=entries
    )


def test_a_metric_that_is_better_when_lower_is_turned_round() -> None:
    assert scores_of(submission(entry("a", 2.0, "lower"), entry("b", None))) == {"a": -2.0}
    with pytest.raises(UsageError, match="no metric"):
        scores_of(submission(entry("a", 2.0)), "gain")


def test_what_one_shard_measured_is_not_lost_to_another_that_failed() -> None:
    whole = merged([submission(entry("a", None), entry("b", 1.0)), submission(entry("a", 2.0))])
    assert {e.name: e.score for e in whole.entries} == {"a": 2.0, "b": 1.0}
    with pytest.raises(UsageError, match="different"):
        merged([submission(entry("a", 1.0)), submission(entry("b", 1.0), samples=2)])


def test_scores_come_as_json_as_a_table_or_as_a_submission(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"x": 1, "y": 0.5}')
    (tmp_path / "b.json").write_text('[{"name": "x", "score": 1}, {"name": "y", "score": 0.5}]')
    (tmp_path / "c.csv").write_text("name,score,notes\nx,1,\ny,0.5,good\n")
    write_submission(submission(entry("x", 1.0), entry("y", 0.5)), tmp_path / "d.json")
    for name in ("a.json", "b.json", "c.csv", "d.json"):
        assert scores_of(read_submission(tmp_path / name)) == {"x": 1.0, "y": 0.5}
    (tmp_path / "e.json").write_text('{"x": "high"}')
    (tmp_path / "f.csv").write_text("model,value\nx,1\n")
    for name in ("e.json", "f.csv", "missing.json"):
        with pytest.raises(SourceError):
            read_submission(tmp_path / name)


def test_lists_of_models_are_read_and_their_mistakes_named(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text('models = ["sim:perfect", {name = "far", model = "sim:decay"}]')
    assert [(m.name, m.model) for m in read_models(path)] == [("sim:perfect", "sim:perfect"), ("far", "sim:decay")]
    for wrong in ("models = []", 'models = ["a:b", "a:b"]', "models = [3]", "models ="):
        path.write_text(wrong)
        with pytest.raises(UsageError):
            read_models(path)


def test_outliers_are_marked_in_the_scatter_plot() -> None:
    xs, ys = [*range(10), 3.0], [*(x + 0.1 for x in range(10)), 60.0]
    names = [f"m{i}" for i in range(11)]
    found = correlations(xs, ys, resamples=100)
    figure = scatter(names, xs, ys, found, proxy_name="gain", target_name="accuracy")
    alt.Chart.from_dict(figure.spec(), validate=True)
    assert [row["name"] for row in figure.data["models"] if row["kind"] == "outlier"] == ["m10"]
    assert "1 outlier by projection" in figure.alternative


@pytest.mark.slow
def test_questions_without_their_document_are_in_no_accuracy_and_in_no_noise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = ["--model", "sim:cliff?window=600", "--lengths", "512,1k", "--depths", "3", "--samples", "4"]
    found = {}
    for name, more in {"read": [], "both": ["--no-context"]}.items():
        folder = str(tmp_path / name)
        assert run_command(["run", "qa_fiction_1", *more, *grid, "--no-figure", "--out", folder]) == 0
        capsys.readouterr()
        assert (
            run_command(["plan", "qa_fiction_1", *more, *grid, "--detect", "10pt", "--noise-from", folder, "--json"])
            == 0
        )
        found[name] = json.loads(capsys.readouterr().out)["detection"]
    entries = [submission_entry(name, "sim", tmp_path / name) for name in found]
    assert [entry.score for entry in entries] == pytest.approx([0.5, 0.5])
    assert {**found["both"], "from": ""} == {**found["read"], "from": ""}
