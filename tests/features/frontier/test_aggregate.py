"""Counting over a list of records: one list answers dozens of questions, and truth is counted at every cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline.core import registry
from leadline.core.answers import Completion
from leadline.core.errors import LengthError
from leadline.core.spec import TaskSpec, make_spec
from leadline.core.types import Cell, Document
from leadline.features.frontier.aggregate import MESSAGES, TOPIC_OF
from leadline.features.frontier.scorers import counted_answer, partial_credit
from leadline.run.measure import measure
from leadline.stats.intervals import mean_interval
from leadline.store.runs import read_records
from leadline.text.chat import completion_frame
from leadline.text.tokenizers import WhitespaceTokenizer
from support.fitting import fit


def written(cells: list[Cell], **options: object) -> Document:
    task = registry.task(TaskSpec(name="aggregate", options=options))
    return fit(task.write(cells, seed=3), WhitespaceTokenizer(), completion_frame())


def test_one_list_answers_sixty_different_questions() -> None:
    document = written([Cell("aggregate", 8192, None, n) for n in range(60)], per_document=60)
    assert len({p.question.text for p in document.probes}) == 60
    assert len({p.cut_characters for p in document.probes}) == 1
    assert {p.question.labels["operation"] for p in document.probes} == {
        "count",
        "most",
        "least",
        "compare",
        "user",
        "period",
    }


def test_a_list_has_a_record_or_the_length_is_refused() -> None:
    made = 0
    for length in range(130, 200):
        try:
            document = written([Cell("aggregate", length, None, 0)])
        except LengthError:
            continue
        made += 1
        assert " | " in document.text[document.body_start_characters :]
    assert made


def test_truth_is_counted_at_every_cut() -> None:
    cells = [Cell("aggregate", length, None, 0) for length in (2000, 8000)]
    short, long = written(cells, operations=["count"]).probes
    assert short.question.text.partition("?")[0].split()[:6] == long.question.text.partition("?")[0].split()[:6]
    assert int(short.question.targets[0]) < int(long.question.targets[0])


def test_records_around_a_depth_are_those_of_the_user_asked_for() -> None:
    cells = [Cell("aggregate", 6000, depth, 0) for depth in (0.1, 0.9)]
    document = written(cells, placement="depth", spread=0.1)
    for probe in document.probes:
        facts = document.planted(probe)
        user = facts[0].text.partition(" |")[0]
        assert user in probe.question.text
        assert document.text.count(user) == len(facts)
        assert all(abs(fact.depth - float(probe.cell.depth or 0)) < 0.12 for fact in facts)


def test_topics_may_have_to_be_inferred_from_messages_that_leave_no_doubt() -> None:
    given, inferred = (written([Cell("aggregate", 2000, None, 0)], topics=t) for t in ("given", "inferred"))
    assert "| delivery\n" in given.text
    assert "| delivery\n" not in inferred.text
    assert len(TOPIC_OF) == sum(map(len, MESSAGES.values()))
    assert not any(topic in text.lower() for text, of in TOPIC_OF.items() for topic in MESSAGES if topic != of)


@pytest.mark.parametrize("noise", [0.2, 0.5])
def test_a_planted_accuracy_is_recovered(tmp_path: Path, noise: float) -> None:
    spec = {"model": f"sim:perfect?noise={noise}", "lengths": "4k", "samples": 240, "reading": "shared"}
    measure(make_spec({**spec, "tasks": [{"name": "aggregate", "per_document": 60}]}), tmp_path / "run")
    records = list(read_records(tmp_path / "run"))
    right = [r.scores["aggregate.strict"].value for r in records]
    found = mean_interval(right, [r.cluster for r in records])
    assert len({r.cluster for r in records}) == 4
    assert found.interval.low <= 1 - noise <= found.interval.high


# --- OOLONG's rule, by its own code (abertsch72/oolong, src/eval/eval_helpers.py) ---


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("Answer: 12", "12", 1.0),
        ("Answer: 13", "12", 0.75),
        ("Answer: 14", "12", 0.75**2),
        ("Answer: 2", "12", 0.75**10),
        ("Answer: -1", "0", 0.75),
        ("Answer: 1.5", "1", 0.0),
        ("Answer: same frequency", "same frequency", 1.0),
        ("Answer: Delivery", "delivery", 0.0),
        ("Answer: **12**", "12", 1.0),
        ("Answer: [delivery]", "delivery", 1.0),
        ("Answer: delivery", "billing", 0.0),
        ("Answer: messages about a are more common than those about b", "more common", 1.0),
        ("Answer: messages about a are more common than those about b", "less common", 0.0),
        ("Answer: 12.", "12", 0.0),
        ("12", "12", 1.0),
        ("I counted all of them and it must be 13", "12", 0.75),
        ("It is not possible to say", "12", 0.0),
        ("", "12", 0.0),
        ("Answer: 100000", "12", pytest.approx(0.0)),
    ],
)
def test_the_published_rule(answer: str, gold: str, score: float) -> None:
    assert partial_credit(answer, gold) == score


def test_the_strict_score_gives_no_credit_for_near_misses_and_takes_a_full_stop() -> None:
    [probe] = written([Cell("aggregate", 2000, None, 0)], operations=["count"]).probes
    strict, right = registry.scorer("aggregate.strict"), probe.question.targets[0]
    assert strict.score(probe.question, Completion(f"I counted.\nAnswer: {right}.")).value == 1.0
    assert strict.score(probe.question, Completion(f"Answer: {int(right) + 1}")).value == 0.0
    assert counted_answer(f"Answer: {right}") == right
