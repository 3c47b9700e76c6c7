"""Other harnesses are handed the samples of a run: the same prompts, in its order, until its rule is satisfied."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from leadline.core.errors import UsageError
from leadline.core.spec import Spec, make_spec
from leadline.features.harness_tasks.feeding import NextSample, SampleFeed
from leadline.features.harness_tasks.grading import (
    grade_logged,
    logged_observations,
    means_with_intervals,
    sample_fields,
    why_unscored,
)
from leadline.results.run import load_run
from leadline.run.measure import measure, measure_spec
from leadline.run.plan import Plan, prepare
from leadline.store.logged_questions import logged_question
from leadline.store.runs import read_records


def spec_of(**values: Any) -> Spec:
    return make_spec(
        {"model": "sim:cliff?window=1500", "tasks": ["niah"], "lengths": "1k,2k", "depths": 2, "samples": 4, **values}
    )


def asked_by_a_harness(plan: Plan, feed: SampleFeed) -> dict[str, tuple[NextSample, Any]]:
    """Every sample with its answer, asked one after another as a harness would."""
    answers: dict[str, tuple[NextSample, Any]] = {}
    waiting = feed.ready()
    while waiting or (waiting := feed.after_all()):
        following = waiting.pop(0)
        [answer] = plan.model.answer(following.document, [following.probe])
        key = following.probe.cell.key
        assert key not in answers, "no sample is asked twice"
        answers[key] = following, answer
        feed.answered(key, answer)
        waiting += feed.ready()
    return answers


@pytest.mark.parametrize("reading", ["fresh", "shared", "nested"])
def test_a_harness_is_handed_each_prompt_of_a_run_once_and_grades_it_alike(reading: str, tmp_path: Path) -> None:
    spec = spec_of(tasks=["niah", "vt"], reading=reading) if reading == "fresh" else spec_of(reading=reading)
    run = measure(spec, tmp_path / "run")
    records = {record.cell.key: record for record in read_records(run.folder)}
    with prepare(spec) as plan:
        answers = asked_by_a_harness(plan, SampleFeed(plan))
    assert answers.keys() == records.keys()
    rows = []
    for key, (following, answer) in answers.items():
        document, probe = following.document, following.probe
        fields, record = sample_fields(document, probe), records[key]
        assert fields["prompt_digest"] == record.prompt_digest
        question = logged_question(fields, key)
        assert question == record.question
        grade = grade_logged(question, answer.outcome, fields, document.user_text(probe))
        assert {name: score.value for name, score in grade.scores.items()} == {
            name: score.value for name, score in record.scores.items()
        }
        assert (grade.failure_class, grade.detail) == (record.failure_class, record.detail)
        if not why_unscored(answer.outcome, grade):
            rows.append((fields, next(iter(grade.scores.values())).value))
    numbers = means_with_intervals(logged_observations(rows), "", [1024, 2048])
    for (task, length), tally in load_run(run.folder).table.by_task_and_length.items():
        name = f"{task}_{length // 1024}k"
        assert tally.estimate is not None
        ends = tally.estimate.interval
        assert (numbers[name], numbers[f"{name}_low"], numbers[f"{name}_high"]) == pytest.approx(
            (tally.estimate.mean, ends.low, ends.high)
        )


def test_questions_of_one_document_follow_each_other(tmp_path: Path) -> None:
    with prepare(spec_of(reading="shared", depths=5, samples=3, limits={"workers": 1})) as plan:
        answers = asked_by_a_harness(plan, SampleFeed(plan))
    documents = [following.document.id for following, _ in answers.values()]
    changes = sum(a != b for a, b in pairwise(documents))
    assert changes == len(set(documents)) - 1


@pytest.mark.slow
def test_a_rule_ends_the_samples_where_it_ends_a_run(tmp_path: Path) -> None:
    spec = spec_of(until="effective", samples=40)
    measured = measure_spec(spec, tmp_path / "run")
    with prepare(spec) as plan:
        feed = SampleFeed(plan)
        answers = asked_by_a_harness(plan, feed)
    asked = {record.cell.key for record in read_records(tmp_path / "run")}
    assert answers.keys() == asked
    assert 0 < len(asked) < plan.planned, "the rule saved some"
    assert measured.rule is not None
    assert feed.outcome == measured.rule.sentence


def test_a_harness_that_drops_samples_ends(tmp_path: Path) -> None:
    with prepare(spec_of(until="effective", samples=8)) as plan:
        feed = SampleFeed(plan)
        assert feed.ready()
        rounds = 0
        while feed.after_all():
            rounds += 1
            assert rounds < 100
    assert feed.outcome


def test_a_second_answer_to_a_sample_changes_nothing(tmp_path: Path) -> None:
    with prepare(spec_of(samples=1)) as plan:
        feed = SampleFeed(plan)
        [first, *_] = feed.ready()
        [answer] = plan.model.answer(first.document, [first.probe])
        feed.answered(first.probe.cell.key, answer)
        feed.answered(first.probe.cell.key, answer)
        feed.answered("niah/1/0.0000/7", answer)


@pytest.mark.parametrize(
    ("values", "what", "fix"),
    [
        ({"tasks": ["mean_nll"]}, "asks for log-probabilities", "leadline run"),
        ({"model": "sim:cliff?window=1500", "allowance": "auto"}, "found by asking again", "a number of tokens"),
        ({"until": "verdict 0.95"}, "needs another run", "--base RUN"),
    ],
)
def test_what_no_other_harness_can_ask_is_refused_before_the_first_question(
    values: dict[str, Any], what: str, fix: str
) -> None:
    with prepare(spec_of(**values)) as plan, pytest.raises(UsageError, match=what) as error:
        SampleFeed(plan)
    assert fix in error.value.fix
